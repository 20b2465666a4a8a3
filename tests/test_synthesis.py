"""Imagined trajectories: causes, thresholds, ranks, truth by threshold, and trajectories written in one go."""

from __future__ import annotations

import pytest
from stand_ins import SMOKE, Scripted, did, outcome_reply, seen, task, walk

from wevo_nb.llm import Reply
from wevo_nb.runs import JSONL
from wevo_nb.schema import Decision, Effect, Observation, Step, Trajectory, Verdict
from wevo_nb.synthesis import (
    End,
    accept_by_rank,
    accept_calibrated,
    calibrate,
    cause_of,
    ends_of,
    ledger,
    read_written,
    real_ends,
    surest,
    truth_by_threshold,
    write_missing,
    write_trajectories,
)
from wevo_nb.transitions import Situation, Transition
from wevo_nb.world_model import Prediction

PAGE = "[1] checkbox 'News'\n[2] button 'OK'"
AFTER = "[1] checkbox 'News' checked: true\n[2] button 'OK'"
TASK = task(goal="Check News")


def dream(name="click-button", seed=0, *, reward=None, steps=1, attempt=0, success=None, ended=None, last=None):
    """`steps` clicks on PAGE, then an imagined end with `reward`, or no end."""
    turns = [turn for _ in range(steps) for turn in (PAGE, "click [1]")]
    ended = ended or ("done" if reward is not None else "limit")
    return walk(
        task(name, seed), *turns, last or (PAGE if reward is None else ""), ended=ended, reward=reward,
        attempt=attempt, success=success,
    )  # fmt: skip


UNREAD = Step(observation=seen(PAGE), decision=Decision(reply="hm", action=None, error="no action"), valid=False)
NO_ELEMENT = seen(PAGE, note="no element", effect=Effect(problem="no_element"))
GARBLED = seen(PAGE, note="unread", effect=Effect(problem="unreadable"))


@pytest.mark.parametrize(
    ("one", "cause"),
    [
        (dream(reward=0.9, success="success"), "accepted"),
        (dream(reward=0.4, success="failure"), "judge no"),
        (dream(reward=None, ended="stop", success="failure"), "judge no"),
        (dream(reward=0.9), "unscored"),
        (dream(success="unscored"), "unscored"),
        (dream(success="failure").model_copy(update={"steps": (UNREAD,)}), "unparsed"),
        (dream(success="failure", last=NO_ELEMENT), "invented id"),
        (dream(success="failure", last=GARBLED), "unreadable page"),
        (dream(success="failure", ended="stuck"), "looped"),
        (dream(success="failure", ended="limit"), "horizon"),
        (dream(success="failure", ended="dead_end"), "nothing left"),
    ],
)
def test_every_imagined_trajectory_has_one_cause(one, cause):
    assert cause_of(one) == cause


def test_the_ledger_counts_by_family_and_cause():
    found = [dream("b", reward=0.9, success="success"), dream("a", success="failure"), dream("a", 1, success="failure")]
    assert ledger(found, arm="webevolver") == [
        {"arm": "webevolver", "family": "a", "outcome": "horizon", "n": 2},
        {"arm": "webevolver", "family": "b", "outcome": "accepted", "n": 1},
    ]


# -- acceptance


def ends(family: str, *chances_and_truths: tuple[float, bool]) -> list[End]:
    return [End(family, chance, true) for chance, true in chances_and_truths]


def test_a_threshold_for_each_kind_of_task_is_the_lowest_that_is_precise_enough():
    """a: from .6 on five of six are true, from .65 on all five, from .7 on too few are left to rest on.

    b has two ends: the threshold of all together serves it, from .6 on six of eight.
    """
    real = ends("a", *((c, c > 0.6) for c in (0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.9)))
    real += ends("b", (0.9, False), (0.95, True))
    assert calibrate(real, precision=0.75, least=0.5) == {"": 0.6, "a": 0.6}
    assert calibrate(real, precision=1.0, least=0.5) == {"": None, "a": 0.65}
    assert calibrate(real, precision=0.75, least=0.7) == {"": 0.7}  # of a only four are believed: that of all serves it
    assert calibrate(ends("c", *[(0.9, False)] * 5), precision=0.5, least=0.5) == {"": None, "c": None}
    assert calibrate([], precision=0.5, least=0.5) == {"": None}


def test_only_ends_that_were_foreseen_calibrate():
    """An end where the model says `changed` is one that no dream could come to; a stop is always asked."""
    page = Observation(text=PAGE)
    situations = [Situation(TASK, (), page, did(action).action) for action in ("click [2]", "click [2]", "stop [1]")]
    real = [Transition(s, Observation(text="", done=True, reward=1.0), "success") for s in situations]
    chances = {"success": 0.3, "failure": 0.1, "changed": 0.6, "same": 0.0}
    said = [
        Prediction(chances, "success", Observation(text="", done=True, reward=0.75), True),
        *[Prediction(chances, "changed", page, True)] * 2,
    ]
    assert ends_of(real, said) == [End("click-button", pytest.approx(0.75), True)] * 2


async def test_the_ends_of_real_episodes_are_what_the_world_model_is_asked_about():
    """Of three steps two end an episode; P(success) is 0.6 / (0.6 + 0.2). What was learned from as well is left out."""
    model = Scripted(lambda request: outcome_reply("success", success=0.6, failure=0.2, changed=0.2))
    kept_back = [dream("a", reward=1.0, steps=2), dream("b", reward=0.0), dream("b", 1)]
    found = await real_ends(model, kept_back, [dream("c")], SMOKE.world_model)
    assert found == [End("a", pytest.approx(0.75), True), End("b", pytest.approx(0.75), False)]
    assert len(model.asked) == 2
    [left] = await real_ends(model, kept_back, [dream("b", 7, reward=0.0)], SMOKE.world_model)
    assert left.family == "a"


def test_a_calibrated_threshold_judges_its_own_kind():
    found = [dream("a", reward=0.65, success="failure"), dream("b", reward=0.9, success="success")]
    found.append(dream("a", success="failure"))
    a, b, open_end = accept_calibrated(found, {"": 0.95, "a": 0.6})
    assert (a.verdict.outcome, b.verdict.outcome) == ("success", "failure")
    assert b.verdict.reason == "reward 0.90, threshold 0.95" and open_end == found[2]
    assert accept_calibrated(found[:1], {"": None})[0].verdict == Verdict(
        outcome="failure", judge="calibrated", reason="reward 0.65, no threshold is precise enough"
    )


def test_by_rank_the_surest_of_each_task_are_accepted():
    """Of three ends of one task the best; of another task the one that reaches the least."""
    found = [dream(reward=r, attempt=i) for i, r in enumerate((0.6, 0.9, 0.8))]
    found += [dream(seed=1, reward=0.55), dream(seed=2, reward=0.4), dream(seed=3, success="failure")]
    ranked = accept_by_rank(found, 1, least=0.5)
    assert [t.verdict.success if t.verdict else None for t in ranked] == [False, True, False, True, False, False]
    assert [t.verdict.success for t in accept_by_rank(found, 2, least=0.5)][:3] == [False, True, True]


def test_of_each_task_the_surest_accepted_one_is_kept():
    kinds = enumerate([(0.7, 1), (0.9, 1), (0.9, 2)])
    sure, short, long = (dream(reward=r, steps=n, attempt=i, success="success") for i, (r, n) in kinds)
    other = dream(seed=1, reward=0.99, success="failure")
    assert surest([long, sure, short, other]) == [short]


def test_truth_by_threshold_by_hand():
    rows = truth_by_threshold([(0.5, False), (0.65, True), (0.9, True), (0.99, False)])
    told = {row["threshold"]: (row["n"], row["true"], row["rate"]) for row in rows}
    assert told[0.5] == (4, 2, 0.5) and told[0.6] == (3, 2, pytest.approx(2 / 3)) and told[0.95] == (1, 0, 0.0)
    assert rows[0]["low"] < 0.5 < rows[0]["high"]


# -- written in one go


def written(text: str, finish="stop"):
    return read_written(TASK, seen(PAGE), Reply(text=text, finish=finish), horizon=7)


def test_a_written_trajectory_reads_back():
    one = written(f"ACTION: ```click [1]```\nPAGE:\n{AFTER}\nACTION: ```click [2]```")
    assert [s.observation.text for s in one.steps] == [PAGE, AFTER] and one.ended == "done"
    assert [s.decision.action.id for s in one.steps] == [1, 2] and one.environment == "written"


@pytest.mark.parametrize(
    ("text", "finish", "steps", "ended"),
    [
        ("I would click the box.", "stop", 1, "limit"),
        ("ACTION: look around", "stop", 1, "limit"),
        (f"ACTION: ```click [1]```\nPAGE:\n{AFTER}\nACTION: ```cli", "length", 2, "limit"),
        ("ACTION: ```click [1]```\nPAGE:\nthe box is ticked\nACTION: ```click [2]```", "stop", 1, "limit"),
        ("ACTION: ```click [1]```", "length", 1, "limit"),
    ],
)
def test_what_cannot_be_read_ends_a_written_trajectory(text, finish, steps, ended):
    one = written(text, finish)
    assert (len(one.steps), one.ended) == (steps, ended) and one.final.reward is None


async def test_a_written_end_is_rewarded_by_what_the_untrained_model_predicts_of_it():
    text = f"ACTION: ```click [1]```\nPAGE:\n{AFTER}\nACTION: ```click [2]```"
    texts = iter([text, "nothing"])
    judged = outcome_reply("success", success=0.6, failure=0.2, same=0.2)
    model = Scripted(lambda r: judged if r.choices else next(texts))
    how = dict(horizon=3, temperature=0.0, seed=0)
    good, bad = await write_trajectories(model, model, [(TASK, seen(PAGE))] * 2, SMOKE.world_model, **how)
    assert good.final.done and good.final.reward == pytest.approx(0.75)
    assert (
        bad.final.reward is None
        and cause_of(bad.model_copy(update={"verdict": Verdict(outcome="failure", judge="j")})) == "unparsed"
    )
    judged = [r for r in model.asked if r.choices]
    assert len(judged) == 1 and judged[0].messages[1]["content"].endswith(
        "EARLIER: click [1] checkbox 'News'\nACTION: click [2] button 'OK'"
    )
    assert model.asked[0].max_tokens == 600 and "OBJECTIVE: Check News" in model.asked[0].messages[1]["content"]


async def test_only_what_is_not_there_yet_is_written(tmp_path):
    class Bar:
        moved = 0

        def update(self):
            self.moved += 1

    tasks = [(task("a", seed), seen(PAGE)) for seed in range(4)]
    sink, bar, model = JSONL(tmp_path / "written.jsonl", Trajectory), Bar(), Scripted(lambda request: "nothing")
    sink.append(written("nothing").model_copy(update={"task": tasks[1][0]}))
    how = dict(batch=2, bar=bar, horizon=3, temperature=0.0, seed=0)
    await write_missing(model, tasks, SMOKE.world_model, sink, **how)
    assert sorted(one.task.seed for one in sink.values()) == [0, 1, 2, 3]
    assert (len(model.asked), bar.moved) == (3, 3)
