"""The world model's report card and free walks, on pages of six elements, every number worked out by hand."""

from __future__ import annotations

import math
from functools import partial

import pytest
from stand_ins import SMOKE, Scripted, did, outcome_reply, seen, task, walk

from wevo_nb import report_card as cards
from wevo_nb import world_model
from wevo_nb.free_walks import NO_PREDICTION, next_actions, walk_freely
from wevo_nb.llm import Reply
from wevo_nb.report_card import COLUMNS, LOWER_IS_BETTER, as_predictor, copy_page, majority, report_card, walk_card
from wevo_nb.targets import read_page
from wevo_nb.transitions import Situation, Transition, content, outcome_of, transitions
from wevo_nb.world_model import UNREAD, Prediction

PAGE = """[1] textbox 'Name'
[2] checkbox 'A'
[3] checkbox 'B'
[4] button 'OK'
[5] link 'Help'
[6] StaticText 'x'"""
A_CHECKED = PAGE.replace("checkbox 'A'", "checkbox 'A' checked: true")
B_CHECKED = PAGE.replace("checkbox 'B'", "checkbox 'B' checked: true")
HELP_OPEN = PAGE.replace("link 'Help'", "dialog 'Help text'")


def real(text: str = PAGE, reward: float | None = None) -> Transition:
    following = seen(text, done=reward is not None, reward=reward)
    return Transition(
        Situation(task(), (), seen(PAGE), did("click [2]").action), following, outcome_of(seen(PAGE), following)
    )


def imagined(outcome: str, text: str = PAGE, *, success=0.0, failure=0.0, readable=True) -> Prediction:
    rest = (1 - success - failure) / 2
    probabilities = {"success": success, "failure": failure, "changed": rest, "same": rest}
    done = outcome in ("success", "failure")
    after = seen("" if done else text, done=done, reward=success if done else None, note="" if readable else UNREAD)
    return Prediction(probabilities, outcome, after, readable)


CASE = [
    (real(A_CHECKED), imagined("changed", A_CHECKED)),  # right
    (real(HELP_OPEN), imagined("changed", B_CHECKED)),  # another change
    (real(A_CHECKED), imagined("changed", readable=False)),  # unreadable: the page as it was
    (real(), imagined("same")),  # right
    (real(reward=1.0), imagined("success", success=0.8, failure=0.1)),  # right, 0.8/0.9
    (real(reward=-1.0), imagined("success", success=0.6, failure=0.2)),  # wrong, 0.6/0.8
    (real(reward=0.5), imagined("failure", success=0.1, failure=0.7)),  # right: a part is no success; 0.1/0.8
    (real(reward=1.0), imagined("changed", A_CHECKED, success=0.05, failure=0.45)),  # wrong, 0.05/0.5
]


def card(pairs, *, target="change", **how) -> dict[str, dict]:
    rows = report_card([t for t, _ in pairs], [p for _, p in pairs], model="m", target=target, **how)
    assert all(tuple(row) == COLUMNS for row in rows)
    return {row["metric"]: row for row in rows}


def values(found: dict[str, dict]) -> dict[str, tuple]:
    return {name: (row["n"], pytest.approx(row["value"], nan_ok=True)) for name, row in found.items()}


def test_every_metric_of_the_case_by_hand():
    """The first four stay open; the third has no page, so three pages are predicted.

    Elements: 6, 4, 0 and 6 of 6 are right, 18 predicted of 24 true: F1 = 2 x 16 / (18 + 24). Changed
    ones: 6 came or went, 4 were predicted, 2 rightly: F1 = 2 x 2 / (6 + 4). Copied: 5, 5 and 6 of 6.
    Controls: 5 a page, role and name all known; the page tells no fact. Ends: 3 predicted, all 3
    real, of 4. P(success | end) of the real successes 0.889 and 0.1, of the failures 0.75 and 0.125:
    2 of 4 pairs in order.
    """
    assert values(card(CASE)) == {
        "parses": (8, 7 / 8),
        "outcome_accuracy": (8, 6 / 8),
        "end_precision": (3, 1.0),
        "end_recall": (4, 3 / 4),
        "auc_success": (4, 0.5),
        "exact_match": (8, 4 / 8),
        "exact_changed": (3, 1 / 3),
        "ids_resolve": (4, 3 / 4),
        "element_f1": (4, 32 / 42),
        "changed_f1": (4, 4 / 10),
        "copied": (3, 16 / 18),
        "hallucinated_controls": (3, 0.0),
        "hallucinated_facts": (3, math.nan),
    }


ORDER = """[1] heading 'Order 17'
[2] StaticText 'Anna Smith'
[3] textbox 'Amount'
[4] button 'Pay'
[5] link 'Terms'
[6] StaticText 'Total $40'"""
PAID = ORDER.replace("'Pay'", "'Cancel'").replace("$40", "$250")
INVENTED = (
    ORDER.replace("'Pay'", "'Cancel'")
    .replace("'Terms'", "'Refund'")
    .replace("'Total $40'", "'Total $300 for Bob, <number> left, 250 typed'")
)


def order(text: str = PAID, *, earlier: tuple[str, ...] = ()) -> Transition:
    history = walk(task(), *(part for page in earlier for part in (page, "click [1]")), ORDER).steps
    situation = Situation(task(goal="Pay Bob"), history, seen(ORDER), did("type [3] [250] [1]").action)
    return Transition(situation, seen(text), outcome_of(seen(ORDER), seen(text)))


def test_what_is_invented_by_hand():
    """Controls: textbox Amount and button Cancel are real, link Refund is not. Facts: Order, 17, Anna Smith, Total,
    Bob (the goal's) and 250 (typed) are known, $300 is not, a placeholder is none: 1 of 7.

    Copied: 3 of 6 lines. Elements: 4 of 6 and 6 right. Changed: 4 really, 6 predicted, 3 rightly (Pay
    went, Cancel came, Total $40 went).
    """
    found = values(card([(order(), imagined("changed", INVENTED))]))
    assert found["hallucinated_controls"] == (1, 1 / 3)
    assert found["hallucinated_facts"] == (1, 1 / 7)
    assert found["copied"] == (1, 3 / 6)
    assert found["element_f1"] == (1, 8 / 12)
    assert found["changed_f1"] == (1, 6 / 10)
    assert {"hallucinated_controls", "hallucinated_facts"} < LOWER_IS_BETTER


def test_what_an_earlier_real_page_showed_is_not_invented():
    """A control and a price of a page two steps back; a fact that only a control shows counts as shown."""
    earlier = "[1] link 'Refund'\n[2] button 'Refund $300'"
    found = values(card([(order(earlier=(earlier,)), imagined("changed", INVENTED))]))
    assert found["hallucinated_controls"] == (1, 0.0) and found["hallucinated_facts"] == (1, 0.0)


@pytest.mark.parametrize(
    ("action", "predicted", "resolves"),
    [
        ("click [5]", PAID, True),
        ("click [5]", INVENTED, True),  # another name: still a link
        ("click [5]", ORDER.replace("[5] link 'Terms'\n[6]", "[5]"), False),  # the link went: 5 is a text
        ("click [6]", ORDER.replace("\n[6] StaticText 'Total $40'", ""), False),  # nothing under this id
        ("click [9]", PAID, True),  # not on the true page either: nothing to find
        ("tab [5]", ORDER.replace("[5] link 'Terms'\n[6]", "[5]"), True),  # a tab, no element
        ("scroll [down]", PAID, True),
        (None, PAID, True),
        (None, PAID.replace("[6]", "[5]"), False),  # an id twice
        (None, PAID.replace("[6]", "[7]"), False),  # a gap
    ],
)
def test_ids_resolve_where_the_next_real_action_finds_its_element(action, predicted, resolves):
    following = [did(action).action if action else None]
    found = card([(order(), imagined("changed", predicted))], next_actions=following)
    assert found["ids_resolve"]["value"] == resolves


def test_the_next_real_action_is_looked_up_by_goal_and_page():
    episodes = [
        walk(task(goal="a"), PAGE, "click [2]", A_CHECKED, "click [4]", A_CHECKED, reward=1.0),
        walk(task(goal="b"), PAGE, "click [2]", A_CHECKED, "scroll [down]", HELP_OPEN, ended="limit"),
    ]
    found = next_actions(transitions(episodes), episodes)
    assert found == [did("click [4]").action, None, did("scroll [down]").action, None]


def test_shares_have_wilson_intervals_and_the_others_bootstrap_ones():
    found = card(CASE)
    exact = found["exact_match"]  # 4 of 8: centre 1/2, half 1.96 sqrt(1/32 + 3.8415/256)/(1 + 3.8415/8)
    assert (exact["low"], exact["high"]) == (pytest.approx(0.2152, abs=1e-4), pytest.approx(0.7848, abs=1e-4))
    for name in ("changed_f1", "element_f1", "copied", "auc_success"):
        assert 0 <= found[name]["low"] < found[name]["value"] < found[name]["high"] <= 1


def test_the_bootstrap_interval_is_that_of_resampled_transitions():
    """60 transitions, 30 with one of one right and 30 with none: the interval of a mean of 60 coins, 1/2 +- 0.127."""
    row = cards.ratio("m", [(1, 1)] * 30 + [(0, 1)] * 30)
    assert (row["low"], row["high"]) == (pytest.approx(0.373, abs=0.02), pytest.approx(0.627, abs=0.02))
    assert cards.ratio("m", [(1, 2)] * 5) == {"metric": "m", "n": 5, "value": 0.5, "low": 0.5, "high": 0.5}


def test_a_perfect_model_gets_1_and_invents_nothing():
    truth = [t for t, _ in CASE] + [order()]
    sure = {"success": {"success": 1.0}, "failure": {"failure": 1.0}}
    perfect = [imagined(t.outcome, t.following.text, **sure.get(t.outcome, {})) for t in truth]
    found = {name: row["value"] for name, row in card(list(zip(truth, perfect, strict=True))).items()}
    assert {found.pop(name) for name in LOWER_IS_BETTER & set(found)} == {0.0}
    copied = found.pop("copied")  # of 5 pages of 6 elements 5, 5, 5, 6 and 4
    assert copied == pytest.approx(25 / 30) and set(found.values()) == {1.0}


def test_copying_the_page_gets_only_what_stays():
    """Of the four open pages 5, 5, 5 and 6 of 6 elements stay; no end is ever predicted."""
    truth = [t for t, _ in CASE]
    assert values(card(list(zip(truth, copy_page(truth), strict=True)))) == {
        "parses": (8, 1.0), "outcome_accuracy": (8, 1 / 8), "end_precision": (0, math.nan), "end_recall": (4, 0.0),
        "auc_success": (4, 0.5), "exact_match": (8, 1 / 8), "exact_changed": (3, 0.0),
        "ids_resolve": (4, 1.0), "element_f1": (4, 21 / 24),
        "changed_f1": (4, 0.0), "copied": (4, 1.0), "hallucinated_controls": (4, 0.0),
        "hallucinated_facts": (4, math.nan),
    }  # fmt: skip


def test_the_majority_baseline_says_what_is_most_frequent_in_training():
    ends = [real(reward=1.0), real(reward=-1.0), real(reward=-1.0), real(A_CHECKED)]
    [prediction] = majority([real()], ends)
    assert (prediction.outcome, prediction.observation.done, prediction.observation.reward) == ("failure", True, 0.25)
    assert prediction.probabilities == {"success": 0.25, "failure": 0.5, "changed": 0.25, "same": 0.0}
    [prediction] = majority([real()], [real(A_CHECKED), real(B_CHECKED), real()])
    assert (prediction.outcome, prediction.observation.text, prediction.readable) == ("changed", PAGE, True)
    with pytest.raises(ValueError, match="no training transition"):
        majority([real()], [])


def test_a_right_page_under_a_wrong_outcome_is_no_match():
    """`changed` with a page like the one before is not `same`, though the text is right."""
    found = card([(real(), imagined("changed", PAGE))])
    assert found["exact_match"]["value"] == 0 and found["outcome_accuracy"]["value"] == 0


def test_a_reply_without_an_outcome_is_right_about_nothing():
    """The world model leaves the page as it was and calls that `same`: true here, but nobody said so."""
    nothing = Prediction(dict.fromkeys(world_model.WORDS, 0.0), "same", seen(PAGE, note=UNREAD), False)
    found = card([(real(), nothing)])
    names = ("parses", "outcome_accuracy", "exact_match", "ids_resolve", "element_f1")
    assert {name: found[name]["value"] for name in names} == dict.fromkeys(names, 0.0)
    assert found["copied"]["n"] == 0


def test_an_end_that_did_not_come_takes_no_element_away():
    """Two elements really changed and none was predicted to: not the six that an empty page would take away."""
    pairs = [(real(A_CHECKED), imagined("changed", A_CHECKED)), (real(A_CHECKED), imagined("failure", failure=1.0))]
    found = card(pairs)
    assert found["changed_f1"]["value"] == pytest.approx(2 * 2 / (4 + 2))
    assert (found["end_precision"]["n"], found["end_precision"]["value"]) == (1, 0.0)


def test_what_gives_neither_end_a_chance_says_nothing_about_success():
    """Were it P(success) = 0, the real failure would stand below the real success for no reason."""
    pairs = [(real(reward=1.0), imagined("failure", success=0.2, failure=0.6)), (real(reward=-1.0), NO_PREDICTION)]
    assert card(pairs)["auc_success"]["value"] == 0.0


def test_what_cannot_be_measured_is_nan_not_0():
    found = card([(real(), imagined("same")), (real(reward=1.0), imagined("success", success=1.0))])
    assert math.isnan(found["changed_f1"]["value"]) and math.isnan(found["auc_success"]["value"])
    assert found["parses"]["value"] == 1
    assert math.isnan(card([])["exact_match"]["value"]) and card([])["changed_f1"]["n"] == 0


def test_a_sentence_is_no_page_but_its_facts_are_checked():
    """`The` begins a sentence; Anna Smith and $250 are real, Carl and $7 invented: 2 of 4."""
    page, readable = read_page(ORDER, "The total is $250 for Anna Smith. Then Carl pays $7", "change_described")
    pairs = [(order(), imagined("changed", page, readable=readable)), (order(ORDER), imagined("same", ORDER))]
    found = values(card(pairs, target="change_described"))
    assert found.pop("hallucinated_facts") == (1, 2 / 4)
    assert set(found) == {"parses", "outcome_accuracy", "end_precision", "end_recall", "auc_success"}


# Free walks: check A, check B, press OK.
AB_CHECKED = A_CHECKED.replace("checkbox 'B'", "checkbox 'B' checked: true")
EPISODE = walk(task(), PAGE, "click [2]", A_CHECKED, "click [3]", AB_CHECKED, "click [4]", AB_CHECKED, reward=1.0)
CHECKED = {2: "~[2] checkbox 'A' checked: true", 3: "~[3] checkbox 'B' checked: true"}


def world(spoil=lambda request: None) -> Scripted:
    """A world model that is right, but where `spoil` has another reply to a request."""

    def answer(request):
        if (other := spoil(request)) is not None:
            return other
        id_ = int(request.messages[1]["content"].split("ACTION: click [")[1][0])
        if request.choices:
            return outcome_reply("success" if id_ == 4 else "changed")
        return CHECKED[id_]

    return Scripted(answer)


async def walked(model: Scripted, depth: int = 3, **how):
    params = SMOKE.world_model.model_copy(update={"target": "change"})
    predict_ = partial(world_model.predict, model, params=params)
    return await walk_freely(predict_, [EPISODE], depth, **({"starts": 10, "seed": 0} | how))


def at(rows: list[dict], depth: int) -> dict[str, tuple]:
    return {row["metric"]: (row["n"], row["value"]) for row in rows if row["depth"] == depth}


async def test_a_right_model_walks_to_the_end_on_its_own_pages():
    """Starts on the first two pages, since from the third there is but one step: 2 walks at depth 1 and 2, 1 at 3."""
    found = await walked(model := world())
    assert [w.depth for w in found] == [1, 1, 2, 2, 3]
    rows = walk_card(found, model="m", target="change")
    assert all(tuple(row) == COLUMNS for row in rows) and {row["depth"] for row in rows} == {2, 3}
    for prefix in ("", "teacher_forced_"):
        assert at(rows, 2)[f"{prefix}exact_match"] == (2, 1.0) and at(rows, 3)[f"{prefix}exact_match"] == (1, 1.0)
        assert at(rows, 3)[f"{prefix}end_recall"] == (1, 1.0)
    # 3 real situations, then 2 and 1 imagined ones, an outcome each; a page for each of 2, 1 and 0 that change
    assert [bool(r.choices) for r in model.asked] == [True] * 3 + [False] * 2 + [True] * 2 + [False] + [True]


async def test_a_walk_goes_on_from_what_was_imagined():
    """A is wrongly left unchecked: at depth 2 the page before is imagined, the real one stands in `forced` alone."""

    def wrong(request):
        first_page = not request.choices and "ACTION: click [2]" in request.messages[1]["content"]
        return "~[6] StaticText 'y'" if first_page else None

    found = await walked(world(wrong))
    first, second, third = (w for w in found if len(w.transition.situation.history) == w.depth - 1)
    assert first.prediction.observation.text == second.before.text == PAGE.replace("'x'", "'y'")
    assert second.prediction.observation.text == third.before.text == B_CHECKED.replace("'x'", "'y'")
    assert second.forced.observation.text == AB_CHECKED
    assert second.next_action == did("click [4]").action and third.next_action is None
    rows = walk_card([second], model="m", target="change")
    here = at(rows, 2)  # the step is right, on a page that has A and the text wrong
    assert here["changed_f1"] == (1, 1.0) and here["exact_match"] == (1, 0.0)
    assert here["copied"] == (1, pytest.approx(5 / 6))  # all but B, of the page that was imagined before
    assert here["element_f1"] == (1, pytest.approx(8 / 12)) and here["teacher_forced_exact_match"] == (1, 1.0)


async def test_the_history_of_a_walk_holds_imagined_pages():
    asked = []

    async def copying(situations):
        asked.append(situations)
        return copy_page([Transition(s, seen(""), "") for s in situations])

    await walk_freely(copying, [EPISODE], 3, starts=10, seed=0)
    [deepest] = asked[2]
    assert [step.observation.text for step in deepest.history] == [PAGE, PAGE]  # the second one imagined
    assert [step.decision for step in deepest.history] == [step.decision for step in EPISODE.steps[:2]]
    assert deepest.observation.text == PAGE and deepest.action == did("click [4]").action


@pytest.mark.parametrize(
    "broken",
    [Reply(text="?"), Reply(text="", finish="length"), outcome_reply("failure")],
    ids=["unreadable page", "cut-off page", "false end"],
)
async def test_a_walk_that_broke_off_stays_in_n_as_wrong(broken):
    """From the first page it breaks off at once, from the second not: at depth 2 one of two is right, at 3 none."""

    def spoil(request):
        first = "ACTION: click [2]" in request.messages[1]["content"]
        return broken if first and bool(request.choices) == bool(broken.logprobs) else None

    found = await walked(world(spoil))
    lost = [w for w in found if w.prediction is NO_PREDICTION]
    assert sorted(w.depth for w in lost) == [2, 3] and all(w.forced.readable for w in lost)
    rows = walk_card(found, model="m", target="change")
    assert at(rows, 2)["parses"] == at(rows, 2)["exact_match"] == at(rows, 2)["outcome_accuracy"] == (2, 0.5)
    assert at(rows, 3)["parses"] == at(rows, 3)["exact_match"] == at(rows, 3)["end_recall"] == (1, 0.0)
    assert at(rows, 2)["element_f1"] == (1, 0.0) and at(rows, 2)["changed_f1"] == (1, 0.0)  # the other walk ends here
    assert at(rows, 2)["teacher_forced_exact_match"] == (2, 1.0)


async def test_starts_are_drawn_by_seed_each_walk_once():
    def copied(starts, seed, episodes=(EPISODE,)):
        return walk_freely(as_predictor(copy_page), episodes, 2, starts=starts, seed=seed)

    begun = lambda found: [w.transition.situation.observation.text for w in found if w.depth == 1]  # noqa: E731
    assert begun(await copied(1, 0)) == begun(await copied(1, 0))
    assert {begun(await copied(1, seed))[0] for seed in range(8)} == {PAGE, A_CHECKED}
    again = EPISODE.model_copy(update={"attempt": 1})
    assert len(begun(await copied(10, 0, (EPISODE, again)))) == 2
    assert await copied(0, 0) == [] and await copied(10, 0, ()) == []


async def test_a_walk_with_a_transition_that_is_known_is_left_out():
    """Of the two walks of two steps both hold the second transition of the episode, and one its first."""
    one, two, *_ = [content(t) for t in transitions([EPISODE])]
    copying = as_predictor(copy_page)
    begun = lambda found: [w.transition.situation.observation.text for w in found if w.depth == 1]  # noqa: E731
    draw = partial(walk_freely, copying, [EPISODE], 2, starts=10, seed=0)
    assert begun(await draw(known={one})) == [A_CHECKED] and begun(await draw(known={two})) == []
    assert len(begun(await draw(known={("another",)}))) == 2


async def test_a_walk_does_not_cross_a_step_that_was_not_carried_out():
    stale = seen(A_CHECKED, note="there is no element [9]")
    episode = walk(task(), PAGE, "click [2]", A_CHECKED, "click [9]", stale, "click [3]", AB_CHECKED, ended="limit")
    assert await walk_freely(as_predictor(copy_page), [episode], 2, starts=10, seed=0) == []
    assert len(await walk_freely(as_predictor(copy_page), [episode], 1, starts=10, seed=0)) == 2


async def test_a_baseline_walks_too_without_seeing_the_truth():
    found = await walk_freely(
        as_predictor(partial(majority, training=[real(A_CHECKED)])), [EPISODE], 2, starts=10, seed=0
    )
    assert {w.prediction.outcome for w in found} == {"changed"}
    assert {w.prediction.observation.text for w in found if w.depth == 2} == {PAGE, A_CHECKED}
