"""What a judge is worth: every count of a small table worked out by hand, at its edges too."""

from __future__ import annotations

import json
from math import isnan

import pytest
from stand_ins import FORM, SMOKE, task, walk

from wevo_nb.calibration import (
    COLUMNS,
    UNKNOWN,
    beside,
    calibrate,
    describe,
    lives_on,
    of_dreams,
    of_run,
    tells,
    to_judge,
    truth_of,
    with_truth,
)
from wevo_nb.runs import write_json, write_jsonl
from wevo_nb.schema import Trajectory, Verdict

S, F, U = "success", "failure", "unscored"


def episode(true: bool, outcome: str | None, *, seed: int = 0, policy: str = "policy_0", model: str = "m", judge="llm"):
    one = walk(task(seed=seed), FORM, "click [2]", "", reward=1.0 if true else -1.0, policy=policy)
    verdict = outcome and Verdict(outcome=outcome, judge=judge, model=model, prompt="abc")
    return one.model_copy(update={"verdict": verdict})


def episodes(*told: tuple[bool, str, str]) -> list[Trajectory]:
    return [episode(true, outcome, seed=i, policy=policy) for i, (true, outcome, policy) in enumerate(told)]


OWN, RANDOM = "policy_0", "random"
# Own: 3 true, 2 accepted; 4 false, 3 accepted; 1 unscored. The explorer: 1 true, accepted; 5 false, 1 accepted.
JUDGED = episodes(
    (True, S, OWN), (True, S, OWN), (True, F, OWN), (False, S, OWN), (False, S, OWN), (False, S, OWN), (False, F, OWN),
    (False, U, OWN), (True, S, RANDOM), (False, S, RANDOM), *[(False, F, RANDOM)] * 4,
)  # fmt: skip


def by_metric(rows) -> dict:
    assert all(set(row) == set(COLUMNS) for row in rows)
    return {row["metric"]: row for row in rows}


def test_every_metric_by_hand():
    """13 scored: 3 true accepted, 1 true refused, 4 false accepted, 5 false refused."""
    rows = by_metric(calibrate(with_truth(JUDGED), stage="s", base="m"))
    counts = {
        metric: (round(row["value"] * row["n"]), row["n"]) for metric, row in rows.items() if metric != "own_bias"
    }
    assert counts == {
        "accuracy": (8, 13), "precision": (3, 7), "recall": (3, 4), "false_success": (4, 9),
        "false_success_own": (3, 4), "false_success_others": (1, 5), "unscored": (1, 14),
    }  # fmt: skip
    assert {(row["stage"], row["judge"], row["model"], row["prompt"]) for row in rows.values()} == {
        ("s", "llm", "m", "abc")
    }
    recall = rows["recall"]  # Wilson of 3 of 4, by hand
    assert (recall["low"], recall["high"]) == (pytest.approx(0.3006, abs=5e-5), pytest.approx(0.9544, abs=5e-5))


def test_the_bias_for_its_own_policy_has_newcombes_interval():
    """3 of 4 against 1 of 5: Wilson (.3006, .9544) and (.0362, .6245); distances squared, added, and the root taken."""
    bias = by_metric(calibrate(with_truth(JUDGED), stage="s", base="m"))["own_bias"]
    low = 0.55 - ((0.75 - 0.3006) ** 2 + (0.6245 - 0.2) ** 2) ** 0.5
    high = 0.55 + ((0.9544 - 0.75) ** 2 + (0.2 - 0.0362) ** 2) ** 0.5
    assert bias["n"] == 9 and bias["value"] == pytest.approx(0.55)
    assert (bias["low"], bias["high"]) == (pytest.approx(low, abs=2e-4), pytest.approx(high, abs=2e-4))


@pytest.mark.parametrize("base", ["another", ""])
def test_a_judge_that_is_not_the_policys_base_has_nothing_of_its_own(base):
    rows = by_metric(calibrate(with_truth(JUDGED), stage="s", base=base))
    assert rows["false_success_own"]["n"] == 0 and rows["false_success_others"]["n"] == 9
    assert isnan(rows["own_bias"]["value"]) and isnan(rows["own_bias"]["low"])
    assert "those of" not in describe(list(rows.values()))


def test_a_judge_that_accepts_nothing_has_no_precision_and_one_that_scored_nothing_no_accuracy():
    rows = by_metric(calibrate(with_truth(episodes((True, F, OWN), (False, F, OWN))), stage="s", base="m"))
    assert isnan(rows["precision"]["value"]) and rows["recall"]["value"] == 0.0 and rows["precision"]["n"] == 0
    rows = by_metric(calibrate(with_truth(episodes((True, U, OWN))), stage="s", base="m"))
    assert rows["accuracy"]["n"] == 0 and rows["unscored"]["value"] == 1.0


def test_judges_models_and_prompts_are_kept_apart_and_the_reward_is_no_judge_to_be_checked():
    told = [episode(True, S), episode(True, S, model="n"), episode(True, S, judge="key_points"), episode(True, None)]
    told.append(episode(True, S, judge="reward"))
    rows = calibrate(with_truth(told), stage="s", base="m")
    kinds = {(row["judge"], row["model"]) for row in rows}
    assert kinds == {("llm", "m"), ("llm", "n"), ("key_points", "m")} and len(rows) == 3 * 8


def test_the_truth_is_known_of_real_pages_that_tell_their_reward_alone():
    one = episode(True, S)
    assert (truth_of(one), truth_of(episode(False, S))) == (True, False)
    assert truth_of(walk(task(), FORM, "click [2]", FORM, ended="limit")) is False  # no end, no reward
    assert truth_of(walk(task(), FORM, "click [2]", "", reward=0.5)) is False  # a part is none
    assert truth_of(one.model_copy(update={"environment": "world_model"})) is None
    assert truth_of(one.model_copy(update={"ended": "error"})) is None
    live = one.task.model_copy(update={"suite": "gaia_web"})
    assert truth_of(one.model_copy(update={"task": live})) is None


def params(**collect):
    return SMOKE.model_copy(update={"collect": SMOKE.collect.model_copy(update=collect)})


def test_a_judge_reads_all_that_is_learned_from_or_a_sample_of_each():
    mine = [episode(True, None, seed=i) for i in range(10)]
    others = [episode(False, None, seed=i, policy=RANDOM) for i in range(7)]
    read = lambda name, **how: [t.key for t in to_judge(name, mine, others, params(**how))]  # noqa: E731
    keys = lambda some: [t.key for t in some]  # noqa: E731
    how = {"llm_judge_sample": 3, "explorer_teaches": ("world_model",)}
    assert read("llm", judge="reward", **how) == keys([*mine[:9:3], *others[:6:2]])
    assert read("llm", judge="llm", **how) == keys([*mine, *others[:6:2]])
    assert read("llm", judge="llm", **how | {"explorer_teaches": ("policy",)}) == keys([*mine, *others])
    assert read("llm", judge="reward", llm_judge_sample=0) == []
    assert read("llm", judge="reward", llm_judge_sample=99) == keys([*mine, *others])


def test_where_only_judges_can_tell_no_sample_is_read():
    live = [t.model_copy(update={"task": t.task.model_copy(update={"suite": "webvoyager"})}) for t in JUDGED]
    assert to_judge("key_points", live, [], params(judge="llm")) == []
    assert len(to_judge("llm", live, [], params(judge="llm"))) == len(JUDGED)


def test_the_precision_of_who_accepted_dreams_is_their_share_that_is_true():
    dream = episode(True, S, judge="world_model", model="")
    [row] = of_dreams([dream, dream], true=1, replayed=4)
    assert (row["judge"], row["metric"], row["n"], row["value"]) == ("world_model", "precision", 4, 0.25)
    assert of_dreams([], true=0, replayed=0) == []
    [row] = of_dreams([dream], true=0, replayed=0)
    assert row["n"] == 0 and isnan(row["value"])


def test_a_judge_in_a_sentence_with_counts_and_intervals():
    said = describe(calibrate(with_truth(JUDGED), stage="iter-1/01_collect", base="m"))
    assert said == (
        "iter-1/01_collect, judge llm (m, prompt abc): right on 8 of 13 (62% [36%, 82%]); "
        "precision 3 of 7 (43% [16%, 75%]); recall 3 of 4 (75% [30%, 95%]); "
        "failures accepted 4 of 9 (44% [19%, 73%]); "
        "those of its own policy 3 of 4 (75% [30%, 95%]); those of others 1 of 5 (20% [4%, 62%]); "
        "unscored 1 of 14 (7% [1%, 31%]); bias for its own +55 points [-7, +81]."
    )
    assert describe([]) == UNKNOWN
    unknown = of_dreams([episode(True, S, judge="rank", model="")], true=0, replayed=0)
    assert describe(unknown) == "03_synthesize, judge rank (prompt abc): none of its verdicts can be checked."


@pytest.fixture
def run(tmp_path):
    """A collection with a judge, dreams that were replayed, and one arm judged by a model, one by the reward."""
    for name in ("iter-1/01_collect", "03_synthesize", "05_wmla/zero_shot", "05_wmla/webevolver"):
        (tmp_path / name).mkdir(parents=True)
        write_json(tmp_path / name / "params.json", {"params": {"roles.policy": {"base": "m"}}})
        write_json(tmp_path / name / "manifest.json", {})
    write_jsonl(tmp_path / "iter-1/01_collect/llm_judge.jsonl", JUDGED)
    dream = episode(True, S, judge="world_model", model="")
    write_jsonl(tmp_path / "03_synthesize/accepted.jsonl", [dream])
    (tmp_path / "03_synthesize/metrics.json").write_text(json.dumps({"truth": {"replayed": 8, "true": 2}}))
    by_model, by_reward = episodes((True, S, "zero_shot"), (False, S, "zero_shot")), [episode(True, S, judge="reward")]
    write_jsonl(tmp_path / "05_wmla/zero_shot/trajectories.jsonl", by_model)
    write_jsonl(tmp_path / "05_wmla/webevolver/trajectories.jsonl", by_reward)
    return tmp_path


def test_whether_a_judge_tells_successes_from_failures():
    """3 of 4 against 4 of 9, 75% - 44%: open. All of 20 against none of 20: apart. All of everything: open. One
    that turns it round takes one for the other."""
    said = tells("llm", calibrate(with_truth(JUDGED), stage="s", base="m"))
    assert said.startswith("Judge llm calls 3 of 4 successes and 4 of 9 failures a success, +31 points [")
    assert said.endswith("whether it tells them apart is open.")
    twenty = lambda right, wrong: calibrate(  # noqa: E731
        with_truth(episodes(*[(True, right, OWN)] * 20, *[(False, wrong, OWN)] * 20)), stage="s"
    )
    assert tells("llm", twenty(S, F)).endswith("it tells them apart.") and "+100 points" in tells("llm", twenty(S, F))
    assert tells("llm", twenty(F, S)).endswith("it takes one for the other.")
    assert "+0 points" in tells("llm", twenty(S, S)) and tells("llm", twenty(S, S)).endswith("is open.")
    only = calibrate(with_truth(episodes((True, S, OWN))), stage="s")
    assert tells("llm", only).endswith("1 of 1 successes and 0 of 0 failures a success: too little to say whether it "
                                       "tells them apart.")  # fmt: skip
    assert tells("reward", only) == tells("llm", of_dreams([episode(True, S)], true=1, replayed=1)) == ""


def test_every_judge_of_a_run_is_found_in_the_records_of_its_finished_stages(run):
    table = of_run(run)
    assert list(table.columns) == COLUMNS
    precision = table[table["metric"] == "precision"].set_index("stage")
    assert precision["n"].to_dict() == {"iter-1/01_collect": 7, "03_synthesize": 8, "05_wmla": 2}
    assert precision["value"].round(3).to_dict() == {"iter-1/01_collect": 0.429, "03_synthesize": 0.25, "05_wmla": 0.5}
    assert table.set_index(["stage", "metric"]).loc[("05_wmla", "false_success_own"), "n"] == 1
    (run / "03_synthesize/manifest.json").unlink()
    assert set(of_run(run)["stage"]) == {"iter-1/01_collect", "05_wmla"}


def test_a_run_without_such_a_judge_has_none(run, tmp_path):
    (run / "iter-1/01_collect/llm_judge.jsonl").unlink()
    write_jsonl(run / "03_synthesize/accepted.jsonl", [])
    (run / "05_wmla/zero_shot/trajectories.jsonl").write_text("")
    assert of_run(run).empty and of_run(tmp_path / "nothing").empty


def test_runs_of_earlier_versions_are_read_too(run):
    """Their verdicts name no model and no prompt, and their judge by the role that it had."""
    old = [t.model_copy(update={"verdict": Verdict(outcome=t.verdict.outcome, judge="llm judge")}) for t in JUDGED]
    write_jsonl(run / "iter-1/01_collect/llm_judge.jsonl", old)
    table = of_run(run)
    table = table[table["stage"] == "iter-1/01_collect"].set_index("metric")
    assert table.loc["accuracy", "n"] == 13 and table.loc["false_success", "n"] == 9
    assert table.loc["false_success_own", "n"] == table.loc["false_success_others", "n"] == 0
    assert set(table["judge"]) == {"llm judge"}


def test_what_stands_beside_a_number_and_on_what_rejection_sampling_lives():
    rows = calibrate(with_truth(JUDGED), stage="s", base="m")
    assert lives_on("llm", rows) == (
        "What is kept lives on the precision of judge llm: 3 of 7 (43% [16%, 75%]) accepted are true."
    )
    assert lives_on("reward", rows) == "Of what is kept: judged by the pages' own reward, the truth."
    assert lives_on("key_points", rows) == f"Of what is kept: {UNKNOWN}."
    assert beside("llm", rows) == describe(rows) and beside("answer", rows) == "judged by the published answers"
    assert beside("key_points", rows) == UNKNOWN
