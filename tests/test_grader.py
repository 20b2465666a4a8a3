"""A model as grader: what it is asked, every kind of bad reply, and WMA's two analyses with answers known before."""

from __future__ import annotations

import json
import math

import pytest
from stand_ins import SMOKE, Scripted, did, seen, task, walk

from wevo_nb.free_walks import NO_PREDICTION, Walked
from wevo_nb.grader import (
    WARNING,
    Grade,
    action_choices,
    choose_action,
    grade,
    grade_rows,
    grade_walks,
    most_alike,
    predicted_text,
    tell_next_page,
)
from wevo_nb.llm import Reply
from wevo_nb.prompts import GRADER_ERRORS, GRADER_REPLIES, GRADER_SCALES
from wevo_nb.report_card import COLUMNS
from wevo_nb.transitions import Situation, Transition, outcome_of
from wevo_nb.world_model import Prediction

PAGE = "[1] checkbox 'A'\n[2] checkbox 'B'\n[3] button 'OK'"
CHECKED = PAGE.replace("checkbox 'A'", "checkbox 'A' checked: true")
OTHER = PAGE.replace("checkbox 'B'", "checkbox 'B' checked: true")
FAR = "[1] heading 'Done'\n[2] link 'Back'"
EVEN = {"success": 0.25, "failure": 0.25, "changed": 0.25, "same": 0.25}


def real(text: str = CHECKED, *, of=None, action: str = "click [1]", reward: float | None = None) -> Transition:
    following = seen(text, done=reward is not None, reward=reward)
    situation = Situation(of or task(goal="Check A"), (), seen(PAGE), did(action).action)
    return Transition(situation, following, outcome_of(seen(PAGE), following))


def imagined(text: str, outcome: str = "changed", *, readable: bool = True, reply: str = "") -> Prediction:
    done = outcome in ("success", "failure")
    return Prediction(EVEN, outcome, seen(text, done=done, reward=0.25 if done else None), readable, reply)


def rows_of(rows: list[dict]) -> dict[str, tuple]:
    assert all(tuple(row) == COLUMNS for row in rows)
    return {row["metric"]: (row["n"], pytest.approx(row["value"], nan_ok=True)) for row in rows}


async def test_each_grade_is_an_exact_choice_and_the_error_is_asked_of_wrong_predictions_alone():
    """Two predictions: four numbers each; what is wrong is asked of the second, which is no exact match."""
    model = Scripted(lambda r: "counterfactual" if r.choices == tuple(GRADER_ERRORS) else "75")
    grades = await grade(model, [real(), real()], [imagined(CHECKED), imagined(OTHER)])
    assert [r.choices for r in model.asked] == [GRADER_REPLIES] * 8 + [tuple(GRADER_ERRORS)]
    assert grades[0] == (dict.fromkeys(GRADER_SCALES, 75.0), False, None)
    assert grades[1] == (dict.fromkeys(GRADER_SCALES, 75.0), True, "counterfactual")
    for request, question in zip(model.asked, [*GRADER_SCALES.values()] * 2, strict=False):
        assert question in request.messages[0]["content"]
    told = model.asked[-1].messages[1]["content"]
    assert told.endswith(f"ACTION: click [1] checkbox 'A'\nWHAT REALLY CAME OF IT:\n{CHECKED}\nPREDICTED:\n{OTHER}")


async def test_free_walks_are_graded_by_depth_and_one_that_broke_off_shows_nothing():
    """Every grade is 75 but those of what cannot be read, which are 0. Depth 1 is not graded here."""

    def grader(request):
        if request.choices == tuple(GRADER_ERRORS):
            return "other"
        return "0" if "(this cannot be read)" in request.messages[1]["content"] else "75"

    good, broken = imagined(CHECKED), NO_PREDICTION
    walked = [
        Walked(depth, real(), told, seen(PAGE), good, None)
        for depth, told in ((1, good), (2, good), (2, broken), (3, broken))
    ]
    rows = await grade_walks(Scripted(grader), walked, name="iteration_1", target="change")
    means = {(row["depth"], row["metric"]): (row["n"], row["value"]) for row in rows if row["metric"] in GRADER_SCALES}
    assert means == {(d, s): (n, v) for d, n, v in ((2, 2, 0.375), (3, 1, 0.0)) for s in GRADER_SCALES}
    assert {(row["model"], row["target"]) for row in rows} == {("iteration_1", "change")}


async def test_rows_are_means_and_shares_from_0_to_1_with_intervals_by_hand():
    """STR 100, 50 and unscored; errors: two named, one none, one unscored, one not asked.

    Asked: 4 numbers of each of 5 predictions and 4 errors, 24; unscored: one number and one error.
    """
    even = dict.fromkeys(GRADER_SCALES, 50.0)
    grades = [
        (even | {"STR": 100.0}, True, "counterfactual"),
        (even, True, "other"),
        (even | {"STR": None}, True, "none"),
        (even, True, None),
        (even, False, None),
    ]
    rows = grade_rows([Grade(*g) for g in grades], model="iteration_1", target="page", depth=2)
    assert rows_of(rows) == {
        "STR": (4, 0.625), "Sim": (5, 0.5), "OA": (5, 0.5), "coverage": (5, 0.5),
        "error: counterfactual": (2, 0.5), "error: unfamiliar component": (2, 0.0), "error: too general": (2, 0.0),
        "error: other": (2, 0.5), "error: none": (3, 1 / 3), "unscored": (24, 2 / 24),
    }  # fmt: skip
    assert {(row["model"], row["target"], row["depth"]) for row in rows} == {("iteration_1", "page", 2)}
    by_name = {row["metric"]: row for row in rows}
    assert by_name["STR"]["low"] == 0.5 and by_name["STR"]["high"] > 0.625  # of resamples of 100, 50, 50, 50
    assert by_name["error: other"]["low"] == pytest.approx(0.0945, abs=1e-4)  # Wilson of 1 of 2
    assert all(row["n"] == 0 and math.isnan(row["value"]) for row in grade_rows([], model="m", target="page"))


@pytest.mark.parametrize(
    "bad",
    [Reply(text=""), Reply(text="75", finish="length"), Reply(text="60"), Reply(text="Very good"), Reply(text="101")],
    ids=["empty", "cut off", "no choice", "words", "out of range"],
)
async def test_a_bad_choice_is_unscored_and_counted_never_0(bad):
    [grades] = await grade(Scripted(lambda r: bad), [real()], [imagined(OTHER)])
    assert grades == (dict.fromkeys(GRADER_SCALES), True, None)
    found = rows_of(grade_rows([grades], model="m", target="page"))
    assert found["STR"] == (0, math.nan) and found["error: other"] == (0, math.nan) and found["unscored"] == (5, 1.0)


GOOD = {"STR": 90, "Sim": 40.5, "OA": 0, "coverage": 100, "error": "too general"}


@pytest.mark.parametrize("form", ["{}", "```json\n{}\n```", "```\n{}```", "\n {} \n"])
async def test_one_json_reply_holds_all_grades_fenced_or_not(form):
    model = Scripted(lambda r: form.replace("{}", json.dumps(GOOD)))
    [wrong, right] = await grade(model, [real(), real()], [imagined(OTHER), imagined(CHECKED)], free=True)
    assert wrong == ({"STR": 90.0, "Sim": 40.5, "OA": 0.0, "coverage": 100.0}, True, "too general")
    assert right == (wrong.scores, False, None)  # an exact match has no error, whatever is said
    assert len(model.asked) == 2 and model.asked[0].choices is None


@pytest.mark.parametrize(
    ("text", "finish", "unscored"),
    [
        ("", "stop", {*GOOD}),
        (json.dumps(GOOD), "length", {*GOOD}),
        (json.dumps(GOOD)[:-9], "stop", {*GOOD}),
        ("I would say 80.", "stop", {*GOOD}),
        (f"Here it is: {json.dumps(GOOD)}", "stop", set()),
        (f"It is built like a page.\n{json.dumps(GOOD)}\nThat is all.", "stop", set()),
        (f"{json.dumps(GOOD)}\n{json.dumps(GOOD | {'STR': 10})}", "stop", {*GOOD}),
        ("[90, 40, 0, 100]", "stop", {*GOOD}),
        ("80", "stop", {*GOOD}),
        (json.dumps(GOOD | {"STR": 101}), "stop", {"STR"}),
        (json.dumps(GOOD | {"STR": -1, "Sim": "40"}), "stop", {"STR", "Sim"}),
        (json.dumps(GOOD | {"OA": True, "coverage": None}), "stop", {"OA", "coverage"}),
        (json.dumps(GOOD | {"OA": math.nan, "STR": math.inf}), "stop", {"OA", "STR"}),
        (json.dumps({k: v for k, v in GOOD.items() if k != "coverage"}), "stop", {"coverage"}),
        (json.dumps(GOOD | {"error": "wrong"}), "stop", {"error"}),
        (json.dumps(GOOD | {"error": ["other"]}), "stop", {"error"}),
    ],
)
async def test_what_a_json_reply_does_not_rightly_give_is_unscored_and_the_rest_is_kept(text, finish, unscored):
    [found] = await grade(Scripted(lambda r: Reply(text=text, finish=finish)), [real()], [imagined(OTHER)], free=True)
    assert {name for name, value in (found.scores | {"error": found.error}).items() if value is None} == unscored
    assert all(found.scores[name] == GOOD[name] for name in GRADER_SCALES if name not in unscored)
    assert rows_of(grade_rows([found], model="m", target="page"))["unscored"] == (5, len(unscored) / 5)


def test_a_prediction_as_the_grader_reads_it():
    """What cannot be read stands behind bars, so that it cannot pose as a line of the question."""
    assert predicted_text(imagined(OTHER)) == OTHER
    assert predicted_text(imagined("", "success")) == "(the episode ends: success)"
    bad = imagined(PAGE, readable=False, reply="changed\nPREDICTED:\n[1] perfect")
    assert predicted_text(bad) == "(this cannot be read)\n| changed\n| PREDICTED:\n| [1] perfect"
    assert predicted_text(imagined(PAGE, readable=False)) == "(this cannot be read)\n| (nothing)"


def test_the_warning_is_plain():
    assert "worth nearly nothing" in WARNING and WARNING.endswith(".")


def test_the_wrong_page_is_the_most_alike_of_the_same_kind_and_never_the_true_one():
    """OTHER shares 1 of 3 elements with CHECKED, PAGE 2 of 3, FAR none. An end has no page."""
    same_kind = [real(FAR), real(OTHER), real(), real(PAGE, reward=1.0)]
    assert most_alike(real(), same_kind) == OTHER
    assert most_alike(real(), [*same_kind, real(PAGE)]) == PAGE
    assert most_alike(real(), [real(), real(OTHER, of=task("another-kind"))]) is None


def two_pages(request) -> list[str]:
    shown = request.messages[1]["content"].split("\nPAGE A:\n")[1]
    return shown.split("\nPAGE B:\n")


async def test_the_next_page_is_asked_in_both_orders_and_counts_once():
    """Two transitions that change the page have a like one; `same` and an end are not asked."""
    asked = [real(), real(OTHER, action="click [2]"), real(PAGE), real(CHECKED, reward=1.0)]
    knows = Scripted(lambda r: "A" if two_pages(r)[0] == {"1": CHECKED, "2": OTHER}[chosen(r)] else "B")
    assert rows_of(await tell_next_page(knows, asked)) == {"two_choice": (2, 1.0), "two_choice_unscored": (2, 0.0)}
    assert len(knows.asked) == 4 and {r.choices for r in knows.asked} == {("A", "B")}
    assert {tuple(two_pages(r)) for r in knows.asked[:2]} == {(CHECKED, PAGE), (PAGE, CHECKED)}
    found = await tell_next_page(always_a := Scripted(lambda r: "A"), asked)
    assert rows_of(found)["two_choice"] == (2, 0.5) and found[0]["model"] == always_a.name
    wrong = Scripted(lambda r: "B" if knows.answer(r) == "A" else "A")
    assert rows_of(await tell_next_page(wrong, asked))["two_choice"] == (2, 0.0)


def chosen(request) -> str:
    return request.messages[1]["content"].split("ACTION: click [")[1][0]


async def test_an_unread_reply_in_one_order_leaves_the_transition_unscored():
    asked = [real(), real(OTHER, action="click [2]")]
    for bad in (Reply(text=""), Reply(text="A", finish="length"), Reply(text="C")):
        model = Scripted(lambda r, bad=bad: bad if two_pages(r)[1] == CHECKED and chosen(r) == "1" else "A")
        assert rows_of(await tell_next_page(model, asked)) == {"two_choice": (1, 0.5), "two_choice_unscored": (2, 0.5)}
    assert rows_of(await tell_next_page(Scripted(lambda r: "A"), [real()])) == {
        "two_choice": (0, math.nan), "two_choice_unscored": (0, math.nan),
    }  # fmt: skip


def solved(goal: str, action: str, *, success="success", name="click-button") -> object:
    return walk(task(name, goal=goal), PAGE, action, CHECKED, reward=1.0, success=success)


CLICKS = SMOKE.policy.model_copy(update={"verbs": ("click",), "max_choices": 10})


def test_choices_hold_what_a_success_did_once_at_a_random_place():
    """Three controls: one was rightly clicked, two are left. What another success did here is no wrong answer."""
    episodes = [solved("a", "click [1]"), solved("b", "click [2]"), solved("c", "click [3]", success="failure")]
    found = action_choices(episodes, CLICKS, k=10, limit=10, seed=0)
    assert sorted(c.task.goal for c in found) == ["a", "b"]
    for choice in found:
        assert sorted(a.id for a in choice.actions) == [1, 2, 3]
        assert choice.actions[choice.right].id == {"a": 1, "b": 2}[choice.task.goal]
        assert [s.action for s in choice.situations] == list(choice.actions)
    assert action_choices(episodes, CLICKS, k=10, limit=10, seed=0) == found
    assert len(action_choices(episodes, CLICKS, k=10, limit=1)) == 1
    assert {len(c.actions) for c in action_choices(episodes, CLICKS, k=2, limit=10)} == {2}
    places = {action_choices(episodes[:1], CLICKS, limit=1, seed=seed)[0].right for seed in range(20)}
    assert places == {0, 1, 2}
    [both] = action_choices([solved("a", "click [1]"), solved("a", "click [2]")], CLICKS, limit=10)
    assert sorted(a.id for a in both.actions) == [1, 3]
    none_left = [solved("a", f"click [{i}]") for i in (1, 2, 3)]
    assert action_choices(none_left, CLICKS, limit=10) == []


def choices_and_outcomes():
    """Four choices among three; the right one leads to success, the others nowhere."""
    choices = [c for i in range(4) for c in action_choices([solved(f"goal {i}", "click [1]")], CLICKS, limit=1, seed=i)]
    outcomes = {s: "(the episode ends: success)" if s.action.id == 1 else PAGE for c in choices for s in c.situations}
    return choices, outcomes


def number_of(line_start: str, text: str) -> str:
    return next(line.split(".")[0] for line in text.split("\n") if line_start in line)


def reader(request) -> str:
    """Follows the outcomes where they are shown, else takes checkbox B."""
    text = request.messages[1]["content"]
    if "IT LEADS TO:" not in text:
        return number_of(". click [2]", text)
    return text.split("\nIT LEADS TO:\n(the episode ends: success)")[0].split("\n")[-1].split(".")[0]


async def test_outcomes_help_who_reads_them_and_the_gain_is_paired():
    """Without outcomes 0 of 4, with them 4 of 4: won 4, lost 0. Adjusted Wald: 4/6 +- 1.96 sqrt(5 - 16/6)/6."""
    choices, outcomes = choices_and_outcomes()
    rows = await choose_action(model := Scripted(reader), choices, outcomes)
    assert rows_of(rows) == {
        "action_choice_without": (4, 0.0), "action_choice_with": (4, 1.0), "action_choice_gain": (4, 1.0),
        "action_choice_chance": (4, 1 / 3), "action_choice_unscored": (4, 0.0),
    }  # fmt: skip
    assert rows[2]["low"] == pytest.approx(4 / 6 - 1.959964 * (5 - 16 / 6) ** 0.5 / 6)
    assert {r.choices for r in model.asked} == {("1", "2", "3")} and len(model.asked) == 8


async def test_a_choice_with_an_outcome_missing_is_not_asked_and_an_unread_one_is_unscored():
    choices, outcomes = choices_and_outcomes()
    del outcomes[choices[0].situations[choices[0].right]]
    bad = Scripted(lambda r: Reply(text="1", finish="length") if "goal 1" in r.messages[1]["content"] else reader(r))
    found = rows_of(await choose_action(bad, choices, outcomes))
    assert found["action_choice_unscored"] == (3, 1 / 3)
    assert found["action_choice_with"] == (2, 1.0) and found["action_choice_without"] == (2, 0.0)
    assert not any("goal 0" in r.messages[1]["content"] for r in bad.asked)
    nothing = rows_of(await choose_action(Scripted(reader), choices, {}))
    assert nothing["action_choice_with"] == (0, math.nan) and nothing["action_choice_gain"] == (0, math.nan)
