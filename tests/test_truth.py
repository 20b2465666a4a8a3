"""Dreams beside the real page: which are replayed, the tables by hand, and what a run may and may not say."""

from __future__ import annotations

import csv
import re

import pytest
from stand_ins import task, walk

from wevo_nb.params import ROOT
from wevo_nb.schema import Trajectory, Verdict
from wevo_nb.truth import by_cause, by_kind, examples, known_click, of, takeaways, to_replay, with_truth, without_copies

PAGE = "[1] radio 'Ada'\n[2] button 'Submit'"


def dream(name="a", seed=0, *, reward=None, accepted=False, action="click [1]", ended=None, attempt=0) -> Trajectory:
    """One step in a world model, then an end with P(success) `reward`, or none."""
    ended = ended or ("limit" if reward is None else "done")
    one = walk(task(name, seed), PAGE, action, "", ended=ended, reward=reward, attempt=attempt)
    verdict = Verdict(outcome="success" if accepted else "failure", judge="world_model")
    return one.model_copy(update={"environment": "world_model", "verdict": verdict})


def replayed(one: Trajectory, true: bool, **update) -> Trajectory:
    again = walk(one.task, PAGE, "click [1]", "", reward=float(true), policy="replay", attempt=one.attempt)
    return again.model_copy(update=update)


YES = [dream("a", seed, reward=0.9, accepted=True) for seed in range(4)]
NO = [dream("b", 0, reward=0.6), dream("b", 1, reward=0.2), dream("b", 2), dream("a", 9, reward=0.1)]
# of the accepted three are true, of the refused the one at the horizon and one with an end
PAIRS = list(zip([*YES, *NO], [True, True, True, False, False, True, True, False], strict=True))


def test_which_dreams_are_replayed():
    idle = dream("c", ended="dead_end").model_copy(update={"steps": ()})  # nothing was done in it
    dreams = [*YES, *NO, idle]
    assert to_replay(dreams, "none") == []
    assert to_replay(dreams, "accepted") == [*YES, NO[0]]  # .6 is drawn in the curve
    assert to_replay(dreams, "all") == [*YES, *NO]


def test_a_dream_is_true_where_its_own_replay_is():
    twice = [dream(reward=0.9, accepted=True), dream(reward=0.9, attempt=1)]
    broken = replayed(YES[1], True, ended="error", error="gone")
    pairs = with_truth([*twice, YES[1], YES[2]], [replayed(twice[1], True), replayed(twice[0], False), broken])
    assert [true for _, true in pairs] == [False, True, None, None]


def test_truth_by_cause_by_hand():
    rows = {row["cause"]: row for row in by_cause([*PAIRS, (dream("c", ended="dead_end"), None)])}
    counted = {cause: (row["dreams"], row["replayed"], row["true"]) for cause, row in rows.items()}
    assert counted == {"accepted": (4, 4, 3), "judge no": (3, 3, 1), "horizon": (1, 1, 1), "nothing left": (1, 0, 0)}
    assert list(rows) == ["accepted", "judge no", "horizon", "nothing left"]
    # Wilson's interval of 3 of 4, by its formula
    assert [rows["accepted"][end] for end in ("low", "high")] == pytest.approx([0.3006, 0.9544], abs=1e-4)
    [nothing] = [row for row in by_cause(PAIRS[4:]) if row["cause"] == "accepted"]
    assert (nothing["dreams"], nothing["rate"]) == (0, pytest.approx(float("nan"), nan_ok=True))


def test_truth_by_kind_stands_beside_the_real_episodes():
    real = [walk(task("a", seed), PAGE, "click [1]", "", reward=reward) for seed, reward in enumerate((1.0, 0.5, 0.0))]
    a, b = by_kind(PAIRS, real)
    assert list(a.values()) == ["a", 5, 4, 4, 3, 1, 0, 3, 1]  # half a reward is no success
    assert list(b.values()) == ["b", 3, 0, 0, 0, 3, 2, 0, 0]
    assert of(PAIRS, accepted=True) == [True, True, True, False]


def test_examples_are_of_different_kinds_and_begin_where_the_judge_was_wrong():
    same = dream("a", 3, reward=0.9, accepted=True, attempt=1)
    other = dream("c", 0, reward=0.9, accepted=True)
    told = examples([*PAIRS, (same, False), (other, True)], most=2)
    shown = [(cause, one.task.name, one.task.seed, true) for cause, one, true in told]
    assert shown == [
        ("accepted", "a", 3, False), ("accepted", "c", 0, True),
        ("judge no", "b", 1, True), ("judge no", "a", 9, False), ("horizon", "b", 2, True),
    ]  # fmt: skip


def test_dreams_of_one_task_with_the_same_actions_are_one():
    one, other = dream("a", 0), dream("a", 0, action="click [2]", attempt=2)
    pairs = [(one, True), (dream("a", 0, attempt=1), True), (other, False), (dream("a", 1), None)]
    assert without_copies(pairs) == [pairs[0], *pairs[2:]]


def test_a_step_by_hand_is_on_what_the_objective_names():
    def tried(seed: int, *actions: str):
        steps = [turn for action in actions for turn in (PAGE, action)]
        return walk(task("a", seed, goal="Select Ada and click Submit"), *steps, PAGE, ended="limit")

    real = [tried(0, "click [2]", "click [1]"), tried(1, "click [1]"), tried(2, "click [1]")]
    found = known_click(real, [real[0].task, real[2].task])
    assert (found.situation.task.seed, found.situation.action.id, found.outcome) == (2, 1, "same")
    assert known_click(real, [real[0].task]).situation.task.seed == 1  # a solved one, rather than Submit
    assert known_click(real[:1], [real[0].task]).situation.action.id == 2
    assert known_click([], [task("a")]) is None


REAL = [walk(task("a"), PAGE, "click [1]", "", reward=1.0)]


def test_what_came_out_is_said_in_words_with_counts():
    said = takeaways(PAIRS, YES, REAL, "all")
    assert said == [
        "Accepted: 4 of 8 dreams of 2 kinds. Without copies (same task and actions), as all that follows: "
        "4 of 8 (50% [22, 78]).",
        "True in the real page: 3 of 4 (75% [30, 95]) of the accepted; whether most come true is open.",
        "Of the refused 2 of 4 (50% [15, 85]) would have been true; of all true dreams 3 of 5 (60% [23, 88]) "
        "were accepted (recall).",
        "True among the accepted minus true among the refused: +25 [-32, +66] points; "
        "whether a success in imagination means anything is open.",
        "D_w holds 4 dreams, one a task, 3 of 4 true; collected episodes solved all of its kinds.",
    ]
    copied = takeaways([*PAIRS, (dream("a", 3, reward=0.9, accepted=True, attempt=1), False)], YES, REAL, "all")
    assert copied[1] == said[1].replace("accepted;", "accepted, with copies 3 of 5;") and copied[2:] == said[2:]
    assert takeaways(PAIRS, YES, [], "all")[-1].endswith("true; no collected episode solved a.")


def test_a_settled_difference_is_said_to_be_one():
    many = [(dream("a", seed, reward=0.9, accepted=True), True) for seed in range(12)]
    none = [(dream("b", seed, reward=0.1), False) for seed in range(12)]
    said = takeaways(many + none, [], REAL, "all")
    assert said[1].endswith("(100% [76, 100]) of the accepted; most come true.")
    assert said[3].endswith("points; a success in imagination means something.")
    turned = takeaways([(one, not true) for one, true in many + none], [], REAL, "all")
    assert turned[1].endswith("most do not.") and turned[3].endswith("the judge does worse than chance.")


def test_what_a_run_cannot_say_is_said():
    refused = takeaways(PAIRS[4:], [], REAL, "all")
    assert refused[1] == "Whether an accepted dream comes true is open: no dream was accepted."
    assert refused[2].endswith("of all true dreams 0 of 2 (0% [0, 66]) were accepted (recall).")
    assert len(refused) == 4 and refused[3].startswith("D_w is empty")
    unknown = takeaways([(one, None) for one in YES], YES, REAL, "none")
    assert unknown[1] == "Whether an accepted dream comes true is open: none of the 4 accepted was replayed."
    assert "refused were not replayed (synthesize.replay: none)" in unknown[2]
    assert unknown[3].startswith("D_w holds 4 dreams, one a task; ")


# -- the study


STUDY = (1, 2, 3)  # its seeds


def table_of(seed: int, name: str) -> list[dict[str, str]]:
    with (ROOT / "docs" / "study" / f"seed-{seed}" / "tables" / f"{name}.csv").open() as lines:
        return list(csv.DictReader(lines))


@pytest.mark.parametrize("seed", STUDY)
def test_the_studys_dreams_by_kind_add_up_to_its_other_tables(seed):
    kinds, [dreams] = table_of(seed, "dreams_by_kind"), table_of(seed, "dreams")
    total = lambda column: sum(int(row[column]) for row in kinds)  # noqa: E731
    told = [int(dreams[column]) for column in ("imagined", "accepted", "replayed", "true")]
    assert [total(column) for column in ("dreams", "accepted", "accepted_replayed", "accepted_true")] == told
    assert total("refused_replayed") == told[0] - told[1]  # all of them, when the run was finished
    every_end_of_half = int(table_of(seed, "truth")[0]["true"])  # was replayed by the run itself
    assert total("accepted_true") + total("refused_true") >= every_end_of_half
    rows = [row for row in table_of(seed, "ledger") if row["arm"] == "webevolver" and row["outcome"] == "accepted"]
    accepted = {row["family"]: row["n"] for row in rows}
    assert {row["kind"]: row["accepted"] for row in kinds if row["accepted"] != "0"} == accepted


def test_the_table_of_notebook_03_is_the_studys():
    text = (ROOT / "notebooks" / "03_synthesize.ipynb").read_text()
    of_one = r" (\d+), (\d+), (\d+); (\d+) \|"
    quoted = re.findall(rf"\| `([\w-]+)` \|{of_one * 3} (\d+), (\d+), (\d+) \|", text)
    held = [
        {row["task"]: row["successes"] for row in table_of(seed, "tasks_by_run")
         if (row["arm"], row["split"], row["n"]) == ("self_improve_1", "test_seeds", "10")}
        for seed in STUDY
    ]  # fmt: skip
    told = lambda row: (row["dreams"], row["accepted"], row["accepted_true"], row["refused_true"])  # noqa: E731
    dreamt = [{row["kind"]: told(row) for row in table_of(seed, "dreams_by_kind")} for seed in STUDY]
    every = [(kind, *(n for one in dreamt for n in one[kind]), *(one[kind] for one in held)) for kind in dreamt[0]]
    assert sorted(quoted) == sorted(every)
    assert len(quoted) == 10
