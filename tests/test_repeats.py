"""Runs of one experiment are held to differ in the seed alone, and their spread is worked out by hand."""

from __future__ import annotations

from math import isnan, nan

import pandas as pd
import pytest

from wevo_nb import metrics, noise, repeats, runs
from wevo_nb.intervals import paired, wilson
from wevo_nb.params import ROOT, load_params
from wevo_nb.runs import StageError
from wevo_nb.schema import Observation, Task, Trajectory, Verdict


@pytest.fixture(autouse=True)
def outputs(tmp_path, monkeypatch):
    monkeypatch.setenv("WEVO_OUTPUTS", str(tmp_path))
    return tmp_path


def episodes(arm: str, outcomes: str, seed: int = 0, split: str = "test_seeds") -> list[Trajectory]:
    """One episode a letter, S, F or U (unscored), with seeds from 1000 x seed on, ten a family."""
    names = {"S": "success", "F": "failure", "U": "unscored"}
    return [
        Trajectory(
            task=Task(suite="miniwob", name=f"family-{i // 10}", seed=1000 * seed + i, split=split),
            policy=arm,
            environment="browser",
            steps=(),
            final=Observation(text=""),
            ended="done",
            verdict=Verdict(outcome=names[letter], judge="reward"),
        )
        for i, letter in enumerate(outcomes)
    ]


def finish(run: str, name: str, seed: int, sections=("policy",), inputs=(), found=(), rows=None, **overrides):
    """One finished stage, written by the package's own Stage."""
    resolved = load_params("demo", {"seed": seed} | overrides)
    stage = runs.open_stage(run, name, resolved, sections=sections, inputs=tuple(inputs))
    file = runs.JSONL(stage.path("trajectories.jsonl"), Trajectory)
    for trajectory in found:
        file.append(trajectory)
    if rows is not None:
        runs.write_json(stage.path("rows.json"), rows)
    stage.finish(metrics={})


def arm(run: str, name: str, seed: int, outcomes: str, policy: str | None = None, met: int | None = None, **overrides):
    """A finished arm of notebook 05, on top of the stage that trained its policy; `met`: whose episodes it met."""
    found = episodes(name, outcomes, seed if met is None else met)
    finish(run, f"05_wmla/{name}", seed, inputs=(policy,) if policy else (), found=found, **overrides)


def solved(successes: int, n: int) -> str:
    return "S" * successes + "F" * (n - successes)


def three_runs(**rates: tuple[int, int, int]) -> repeats.Repeats:
    """Runs a, b, c of seeds 1, 2, 3, each arm with so many successes of 100."""
    for run, seed in (("a", 1), ("b", 2), ("c", 3)):
        for name, successes in rates.items():
            arm(run, name, seed, solved(successes[seed - 1], 100))
    return repeats.read(["a", "b", "c"])


# -- what may stand side by side


def test_runs_that_differ_in_the_seed_alone_are_read_in_the_order_asked_for():
    for run, seed in (("a", 1), ("b", 2)):
        finish(run, "04_webevolver", seed)
        arm(run, "webevolver", seed, "SF", "04_webevolver")
        arm(run, "zero_shot", seed, "FF")
    read = repeats.read(["a", "b"], ["zero_shot", "webevolver"])
    assert read.seeds == {"a": 1, "b": 2} and read.left_out == {} and read.remarks == []
    assert {run: [*found] for run, found in read.found.items()} == {
        "a": ["zero_shot", "webevolver"],
        "b": ["zero_shot", "webevolver"],
    }
    assert repeats.describe(read) == ["runs: a (seed 1), b (seed 2)"]
    assert [*repeats.read(["b"]).found] == ["b"]  # one run is no fault
    hashes = repeats.inputs(read)
    assert [*hashes] == [f"{run}/05_wmla/{name}" for run in "ab" for name in ("zero_shot", "webevolver")]
    assert hashes["a/05_wmla/zero_shot"] == runs.signature("a", "05_wmla/zero_shot")


def test_an_arm_of_which_a_stage_behind_it_was_made_otherwise_is_left_out_and_named():
    """Synthesis of b ran with another horizon: what was trained on it goes, zero_shot stays."""
    for run, seed, horizon in (("a", 1, 7), ("b", 2, 5)):
        finish(run, "03_synthesize", seed, sections=("synthesize",), **{"synthesize.horizon": horizon})
        finish(run, "04_webevolver", seed, inputs=("03_synthesize",))
        for name in ("webevolver", "webevolver+wmla_d1"):
            arm(run, name, seed, "SF", "04_webevolver")
        arm(run, "zero_shot", seed, "FF")
    read = repeats.read(["a", "b"])
    assert [*read.found["a"]] == [*read.found["b"]] == ["zero_shot"]
    assert repeats.describe(read)[1] == (
        "left out, for they differ in more than the seed: webevolver, webevolver+wmla_d1 "
        "(03_synthesize synthesize.horizon 7 in a, 5 in b)"
    )
    assert set(repeats.runs_table(read)["arm"]) == {"zero_shot"}


def test_how_many_dreams_were_replayed_makes_no_arm_another():
    """A run says true, as it was written once, the other all: what is accepted is the same."""
    for run, seed, replay in (("a", 1, True), ("b", 2, "all")):
        finish(run, "03_synthesize", seed, sections=("synthesize",), **{"synthesize.horizon": 7})
        path = runs.run_folder(run) / "03_synthesize" / "params.json"
        spec = runs.read_json(path)
        spec["params"]["synthesize"]["replay"] = replay
        runs.write_json(path, spec)
        finish(run, "04_webevolver", seed, inputs=("03_synthesize",))
        arm(run, "webevolver", seed, "SF", "04_webevolver")
    assert repeats.differing(["a", "b"], "webevolver") == ""


def test_a_stage_that_only_one_run_has_behind_an_arm_is_a_difference():
    finish("b", "04_webevolver", 2)
    arm("a", "webevolver", 1, "SF")
    arm("b", "webevolver", 2, "SF", "04_webevolver")
    assert "04_webevolver policy.history - in a, 1 in b" in repeats.differing(["a", "b"], "webevolver")


def test_a_param_from_before_it_was_there_counts_as_its_default():
    """Run a is of code without policy.prompt and policy.history: short and 3 by default."""
    arm("a", "zero_shot", 1, "SF")
    arm("b", "zero_shot", 2, "SF", **{"policy.prompt": "short", "policy.history": 3})
    arm("c", "zero_shot", 3, "SF", **{"policy.prompt": "short", "policy.history": 5})
    path = runs.run_folder("a") / "05_wmla/zero_shot" / "params.json"
    spec = runs.read_json(path)
    del spec["params"]["policy"]["prompt"], spec["params"]["policy"]["history"]
    runs.write_json(path, spec)
    assert repeats.differing(["a", "b"], "zero_shot") == repeats.differing(["b", "a"], "zero_shot") == ""
    assert repeats.differing(["a", "c"], "zero_shot") == "05_wmla/zero_shot policy.history - in a, 5 in c"


def test_runs_that_differ_in_every_arm_are_refused_with_the_keys():
    arm("a", "zero_shot", 1, "SF")
    arm("b", "zero_shot", 2, "SF", **{"policy.history": 5})
    message = "a, b differ in more than the seed, in every arm; zero_shot: .* policy.history 1 in a, 5 in b"
    with pytest.raises(StageError, match=message):
        repeats.read(["a", "b"])


def test_two_runs_of_one_seed_are_one_piece_of_evidence():
    for run in ("a", "b"):
        arm(run, "zero_shot", 1, "SF")
    with pytest.raises(StageError, match="a and b both have seed 1: .*wevo run --run b-other --set seed=2"):
        repeats.read(["a", "b"])


def test_a_run_without_a_finished_arm_and_a_stage_that_is_gone_are_named(outputs):
    with pytest.raises(
        StageError, match="no finished arm in .*none/05_wmla: run notebook 05, or 'wevo run --run none'"
    ):
        repeats.read(["none"])
    for run, seed in (("a", 1), ("b", 2)):
        finish(run, "04_webevolver", seed)
        arm(run, "webevolver", seed, "SF", "04_webevolver")
    (outputs / "b" / "04_webevolver" / "params.json").unlink()
    with pytest.raises(StageError, match="b/04_webevolver is gone, and 05_wmla/webevolver of run 'b' was made of it"):
        repeats.read(["a", "b"])


def test_arms_that_a_run_lacks_and_other_code_are_remarked(outputs):
    arm("a", "zero_shot", 1, "SF")
    arm("a", "self_improve_1", 1, "SF")
    arm("b", "zero_shot", 2, "SF")
    path = outputs / "b" / "05_wmla" / "zero_shot" / "manifest.json"
    manifest = runs.read_json(path)
    ours = manifest["provenance"]["git_commit"][:10]
    manifest["provenance"]["git_commit"] = "0123456789abcdef"
    runs.write_json(path, manifest)
    read = repeats.read(["a", "b"])
    assert read.remarks == ["b has no self_improve_1", f"made by different code: a by {ours}, b by 0123456789"]
    table = repeats.spread_table(repeats.runs_table(read)).set_index("arm")
    assert table["runs"].to_dict() == {"self_improve_1": 1, "zero_shot": 2}


# -- side by side


def test_the_runs_of_an_arm_stand_together_with_their_seeds():
    table = repeats.runs_table(three_runs(zero_shot=(20, 40, 60), webevolver=(50, 50, 50)))
    assert list(table.columns) == repeats.RUN_COLUMNS
    assert table[["arm", "run", "seed", "n", "successes"]].values.tolist() == [
        ["webevolver", "a", 1, 100, 50], ["webevolver", "b", 2, 100, 50], ["webevolver", "c", 3, 100, 50],
        ["zero_shot", "a", 1, 100, 20], ["zero_shot", "b", 2, 100, 40], ["zero_shot", "c", 3, 100, 60],
    ]  # fmt: skip


def test_the_spread_of_three_runs_by_hand():
    """.2, .4, .6: sd .2; t of two degrees of freedom 4.3027, half 4.3027 x .2 / sqrt 3 = .49683, cut at 0.

    Episodes alone: variances .0016, .0024, .0024, root of their mean .0462. Three times .5 of 100: sd 0 and .05.
    """
    table = repeats.spread_table(repeats.runs_table(three_runs(zero_shot=(20, 40, 60), webevolver=(50, 50, 50))))
    assert list(table.columns) == ["arm", "split", *repeats.SPREAD_COLUMNS]
    moved, same = table.set_index("arm").loc["zero_shot"], table.set_index("arm").loc["webevolver"]
    assert (moved.runs, moved["mean"], moved.sd) == (3, pytest.approx(0.4), pytest.approx(0.2))
    assert (moved.least, moved.most) == (0.2, 0.6)
    assert (moved.low, moved.high) == (0, pytest.approx(0.89683, abs=1e-5))
    assert moved.episode_sd == pytest.approx(0.046188, abs=1e-6)
    assert (same["mean"], same.sd, same.low, same.high, same.episode_sd) == (0.5, 0, 0.5, 0.5, pytest.approx(0.05))
    assert repeats.describe_spread(table.to_dict("records")[1]) == (
        "zero_shot, test_seeds: 40% in the mean of 3 runs, 20 to 60 (95% interval of the mean 0 to 90, sd 20.0, "
        "more than the 4.6 that other episodes give by themselves)."
    )
    assert "sd 0.0, no more than the 5.0" in repeats.describe_spread(table.to_dict("records")[0])


def test_two_runs_and_one_say_that_they_are():
    arm("a", "zero_shot", 1, solved(30, 100))
    arm("b", "zero_shot", 2, solved(40, 100))
    [two] = repeats.spread_table(repeats.runs_table(repeats.read(["a", "b"]))).to_dict("records")
    assert (two["mean"], two["sd"]) == (pytest.approx(0.35), pytest.approx(0.1 / 2**0.5)) and isnan(two["low"])
    assert repeats.describe_spread(two) == (
        "zero_shot, test_seeds: 35% in the mean of 2 runs, 30 to 40; two runs are a distance, no interval."
    )
    [one] = repeats.spread_table(repeats.runs_table(repeats.read(["a"]))).to_dict("records")
    assert isnan(one["sd"]) and repeats.describe_spread(one) == (
        "zero_shot, test_seeds: 30% in one run: what another seed gives is not known."
    )


def test_a_pair_has_a_spread_of_its_own_and_only_where_a_run_has_both():
    """+10 and -4 of 100 in two runs, the third without webevolver: mean 3, sd 14 / sqrt 2.

    Episodes alone: (10/100 - .01) / 100 and (4/100 - .0016) / 100, root of their mean .025338.
    """
    for run, seed, ours in (("a", 1, 40), ("b", 2, 26), ("c", 3, None)):
        arm(run, "zero_shot", seed, solved(30, 100))
        if ours:
            arm(run, "webevolver", seed, solved(ours, 100))
    by_run = repeats.paired_runs_table(repeats.read(["a", "b", "c"]), [("zero_shot", "webevolver")])
    assert list(by_run.columns) == repeats.PAIRED_RUN_COLUMNS
    assert by_run[["run", "seed", "n", "won", "lost"]].values.tolist() == [["a", 1, 100, 10, 0], ["b", 2, 100, 0, 4]]
    [row] = repeats.spread_table(by_run).to_dict("records")
    assert (row["runs"], row["mean"], row["sd"]) == (2, pytest.approx(0.03), pytest.approx(0.14 / 2**0.5))
    assert row["episode_sd"] == pytest.approx(0.025338, abs=1e-6)
    assert repeats.describe_spread(row) == (
        "webevolver against zero_shot, test_seeds: 3 points in the mean of 2 runs, -4 to 10; "
        "two runs are a distance, no interval."
    )
    assert repeats.describe_signs(by_run, "test_seeds") == (
        "0 of 1 differences on test_seeds have one sign in every run: none."
    )
    assert repeats.describe_signs(by_run.assign(difference=[-0.1, -0.2]), "test_seeds").endswith(
        "1 of 1 differences on test_seeds have one sign in every run: webevolver below zero_shot."
    )
    assert "0 of 1 " in repeats.describe_signs(by_run.assign(difference=[0.0, 0.0]), "test_seeds")  # 0 has no sign
    assert "0 of 0 " in repeats.describe_signs(by_run.iloc[:1], "test_seeds")  # one run keeps nothing


def test_no_row_has_no_spread_and_keeps_the_columns():
    read = three_runs(zero_shot=(1, 2, 3))
    none = repeats.paired_runs_table(read, [])
    assert none.empty and list(none.columns) == repeats.PAIRED_RUN_COLUMNS
    assert list(repeats.spread_table(none).columns) == ["arm_a", "arm_b", "split", *repeats.SPREAD_COLUMNS]
    rows = pd.DataFrame([["zero_shot", "test_seeds", "a", 0, nan]], columns=["arm", "split", "run", "n", "rate"])
    assert repeats.spread_table(rows).empty  # nothing scored is no rate


# -- added up


def test_successes_of_all_runs_are_added_up():
    rows = [("a", "test_seeds", 10, 4), ("b", "test_seeds", 10, 9), ("a", "test_seeds", 8, 1)]
    by_run = pd.DataFrame(rows, columns=["arm", "split", "n", "successes"])
    table = repeats.added_rates(by_run).set_index("arm")
    assert table[["n", "successes"]].to_numpy().tolist() == [[18, 5], [10, 9]]
    assert tuple(table.loc["a", ["rate", "low", "high"]]) == pytest.approx(wilson(5, 18))
    empty = repeats.added_rates(by_run.iloc[:0])
    assert empty.empty and list(empty.columns) == ["arm", "split", "n", "successes", "rate", "low", "high"]


def test_pairs_of_all_runs_are_added_up():
    rows = [("x", "y", "test_seeds", 100, 12, 2), ("x", "y", "test_seeds", 90, 9, 0)]
    by_run = pd.DataFrame(rows, columns=["arm_a", "arm_b", "split", "n", "won", "lost"])
    [row] = repeats.added_pairs(by_run).to_dict("records")
    assert (row["n"], row["won"], row["lost"], row["difference"]) == (190, 21, 2, pytest.approx(19 / 190))
    assert {key: row[key] for key in ("low", "high", "p")} == pytest.approx(
        {key: paired(21, 2, 190)[key] for key in ("low", "high", "p")}
    )
    assert repeats.added_pairs(by_run.iloc[:0]).empty


def test_runs_that_met_the_same_episodes_say_that_they_cannot_be_added_up():
    for run, seed in (("a", 1), ("b", 2)):
        arm(run, "zero_shot", seed, "SF", met=0)
    read = repeats.read(["a", "b"])
    assert repeats.same_episodes(read)
    assert "the runs met the same episodes: they are compared and averaged, but not added up" in repeats.describe(read)


def test_runs_of_different_episodes_can_be_added_up():
    read = three_runs(zero_shot=(1, 2, 3))
    assert not repeats.same_episodes(read)
    table = repeats.added_rates(repeats.runs_table(read))
    assert table[["n", "successes"]].values.tolist() == [[300, 6]]


# -- noise


def test_an_arm_against_itself_under_another_seed_is_newcombes_difference():
    """48 of 80 and 56 of 70: .0524 to .3339 (Newcombe 1998, Table II, method 10).

    Episodes alone: .6 x .4 / 80 + .8 x .2 / 70, root .072703.
    """
    arm("a", "zero_shot", 1, solved(48, 80))
    arm("b", "zero_shot", 2, solved(56, 70))
    table = noise.table(repeats.read(["a", "b"]))
    assert list(table.columns) == noise.COLUMNS
    [row] = table.to_dict("records")
    assert [row[key] for key in noise.COLUMNS[:7]] == [
        "one arm, two seeds", "zero_shot", "a", "zero_shot", "b", "test_seeds", 70,
    ]  # fmt: skip
    assert row["difference"] == pytest.approx(0.2)
    assert (row["low"], row["high"]) == (pytest.approx(0.0524, abs=5e-5), pytest.approx(0.3339, abs=5e-5))
    assert row["episode_sd"] == pytest.approx(0.072703, abs=1e-6)


def test_on_shared_episodes_an_arm_is_paired_with_itself():
    arm("a", "zero_shot", 1, "SSFFF", met=0)
    arm("b", "zero_shot", 2, "FSSSF", met=0)
    [row] = noise.table(repeats.read(["a", "b"])).to_dict("records")
    assert (row["source"], row["arm_a"], row["arm_b"], row["run_a"], row["run_b"]) == (
        "one arm, two seeds", "zero_shot", "zero_shot", "a", "b",
    )  # fmt: skip
    assert (row["n"], row["difference"]) == (5, pytest.approx(0.2))  # won two, lost one
    assert (row["low"], row["high"]) == pytest.approx([paired(2, 1, 5)[key] for key in ("low", "high")])


def test_one_policy_under_two_names_differs_by_its_rollouts_alone():
    """Both learned from the same rows; 2 of 100 fell otherwise, once each way: the difference is 0, not its spread."""
    for name, stage in (("self_improve_1", "iter-1/04_self_improve"), ("no_world_model", "04_no_world_model")):
        finish("a", stage, 1, rows=[1, 2, 3])
        arm("a", name, 1, "SF" if name == "self_improve_1" else "FS", stage)
        arm("a", f"{name}+wmla_d1", 1, "FF" if name == "self_improve_1" else "FS", stage)
    finish("a", "04_webevolver", 1, rows=[4])
    arm("a", "webevolver", 1, "SS", "04_webevolver")
    assert noise.same_policy("a") == [
        ("self_improve_1", "no_world_model"),
        ("self_improve_1+wmla_d1", "no_world_model+wmla_d1"),
    ]
    arm("b", "self_improve_1", 2, "SF")
    assert (noise.same_in_all(["a"]), noise.same_in_all(["a", "b"])) == (noise.same_policy("a"), [])
    assert noise.same_in_all([]) == []
    table = noise.table(repeats.read(["a"]))
    assert table[["source", "arm_a", "arm_b", "run_a", "run_b", "n", "difference"]].values.tolist() == [
        ["one policy, two names", "self_improve_1", "no_world_model", "a", "a", 2, 0],
        ["one policy, two names", "self_improve_1+wmla_d1", "no_world_model+wmla_d1", "a", "a", 2, 0.5],
    ]
    assert table["episode_sd"].tolist() == pytest.approx([(1 / 2) ** 0.5, (0.25 / 2) ** 0.5])


def test_the_noise_floor_is_a_root_mean_square_a_source_and_split():
    """Of 20, 40, 60 of 100: gaps .2, .2, .4, root mean square .28284; their episode variances .004, .0048, .004."""
    apart = noise.table(three_runs(zero_shot=(20, 60, 40)))
    [row] = noise.floor(apart).to_dict("records")
    assert (row["source"], row["split"], row["comparisons"]) == ("one arm, two seeds", "test_seeds", 3)
    assert (row["rms"], row["largest"]) == (pytest.approx(0.282843, abs=1e-6), pytest.approx(0.4))
    assert row["episode_rms"] == pytest.approx((0.0128 / 3) ** 0.5)
    assert noise.describe(row) == (
        "one arm, two seeds (test_seeds): 28.3 points apart (root mean square of 3 comparisons, at most 40); "
        "other episodes alone give 6.5."
    )
    none = noise.floor(apart.iloc[:0])
    assert none.empty and list(none.columns) == noise.FLOOR_COLUMNS


def test_one_run_without_twins_has_no_noise_to_measure():
    arm("a", "zero_shot", 1, "SF")
    table = noise.table(repeats.read(["a"]))
    assert table.empty and list(table.columns) == noise.COLUMNS


def test_the_unscored_stay_out_of_the_runs_and_are_counted():
    arm("a", "zero_shot", 1, "SFU")
    [row] = repeats.runs_table(repeats.read(["a"])).to_dict("records")
    assert (row["n"], row["successes"], row["unscored"]) == (2, 1, 1)
    assert (row["low_bound"], row["high_bound"]) == (pytest.approx(1 / 3), pytest.approx(2 / 3))
    assert metrics.success_table(repeats.read(["a"]).found["a"])["n"].tolist() == [2]


# -- the notebook


def analyse(outputs, run: str, **overrides):
    """The folder of an analysis, made by the notebook itself."""
    import papermill

    given = {"profile": "demo", "run": run, "overrides": overrides}
    notebook, out = ROOT / "notebooks" / "06_analysis.ipynb", outputs / "out.ipynb"
    papermill.execute_notebook(notebook, out, given, progress_bar=False, cwd=outputs)
    return outputs / run / "06_analysis"


@pytest.mark.notebook
def test_notebook_06_without_a_run_has_empty_tables_and_the_papers(outputs):
    folder = analyse(outputs, "nothing")
    told = runs.read_json(folder / "metrics.json")
    assert told["arms"] == [] and "No arm of this run is finished" in told["takeaways"][0]
    assert not any(" help? " in sentence for sentence in told["takeaways"])
    for name, columns in (("success", metrics.SUCCESS_COLUMNS), ("paired", metrics.PAIRED_COLUMNS)):
        table = pd.read_csv(folder / "tables" / f"{name}.csv")
        assert table.empty and list(table.columns)[: len(columns)] == columns
    assert len(pd.read_csv(folder / "tables" / "webevolver_table_1.csv")) > 10
    assert (folder / "figures" / "webevolver_table_1.png").exists()


@pytest.mark.notebook
def test_notebook_06_over_several_runs_and_over_runs_that_are_not_alike(outputs):
    from papermill.exceptions import PapermillExecutionError

    for run, seed, ours in (("a", 1, 40), ("b", 2, 26)):
        arm(run, "zero_shot", seed, solved(30, 100))
        arm(run, "self_improve_1", seed, solved(ours, 100))
    analyse(outputs, "b", seed=2)
    folder = analyse(outputs, "a", **{"seed": 1, "analysis.runs": ["a", "b"]})
    read = lambda name: pd.read_csv(folder / "tables" / f"{name}.csv")  # noqa: E731
    assert read("runs")[["arm", "run", "seed", "successes"]].values.tolist() == [
        ["zero_shot", "a", 1, 30], ["zero_shot", "b", 2, 30],
        ["self_improve_1", "a", 1, 40], ["self_improve_1", "b", 2, 26],
    ]  # fmt: skip
    assert read("spread")[["runs", "mean"]].values.tolist() == [[2, 0.3], [2, 0.33]]
    assert read("noise")["difference"].tolist() == pytest.approx([0, -0.14])
    assert read("added_paired")[["n", "won", "lost"]].values.tolist() == [[200, 10, 4]]
    assert (folder / "figures" / "differences_by_run.png").exists()
    beside = read("webevolver_table_1").query("row == 'self-improve (1)' and column == 'test_seeds'").set_index("run")
    assert beside["value"].to_dict() == {"a": 40, "b": 26}  # side by side: which suite they met was not noted
    said = runs.read_json(folder / "metrics.json")["takeaways"]
    signs = "0 of 1 differences on test_seeds have one sign in every run: none."
    assert signs in next(sentence for sentence in said if sentence.startswith("How sure?"))
    assert runs.read_json(folder / "metrics.json")["runs"] == {"a": 1, "b": 2}
    drawn = runs.read_json(folder / "figures" / "differences_by_run.json")["inputs"]
    assert {"a/05_wmla/zero_shot", "b/05_wmla/zero_shot"} <= set(drawn)

    arm("c", "zero_shot", 3, solved(30, 100), **{"policy.history": 5})
    arm("d", "zero_shot", 4, solved(30, 100))
    with pytest.raises(PapermillExecutionError, match="d, c differ in more than the seed, in every arm"):
        analyse(outputs, "d", **{"seed": 4, "analysis.runs": ["c"]})
