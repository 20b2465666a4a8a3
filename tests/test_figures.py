"""The figures draw and save what they are given, and notebook 06 runs on a run that is whole or half done."""

import json

import pandas as pd
import pytest

from wevo_nb import comparisons, exhibits, figures, metrics, paper, runs
from wevo_nb.llm import Usage
from wevo_nb.params import ROOT, load_params
from wevo_nb.report_card import COLUMNS
from wevo_nb.schema import Action, Decision, Observation, Step, Task, Trajectory, Verdict

TRAINED, HELD_OUT = ("click-button", "click-link", "enter-text", "focus-text"), ("click-test", "login-user")
# of 24 episodes on held-out seeds and 8 on held-out tasks, the first so many are solved
SOLVED = {
    "zero_shot": (6, 2),
    "self_improve_1": (12, 3),
    "self_improve_2": (12, 4),
    "webevolver": (15, 4),
    "webevolver+wmla_d1": (16, 4),
    "webevolver+best_of_k": (14, 3),
}


def episodes(arm: str) -> list[Trajectory]:
    """24 + 8 one-step episodes of an arm, solved as in SOLVED."""
    seeds = [Task(suite="miniwob", name=name, seed=s, split="test_seeds") for name in TRAINED for s in range(6)]
    tasks = [Task(suite="miniwob", name=name, seed=s, split="test_tasks") for name in HELD_OUT for s in range(4)]
    page = Observation(text="[1] button 'OK'", goal="Click OK")
    step = Step(observation=page, decision=Decision(reply="click [1]", action=Action(verb="click", id=1)))
    made = []
    for group, solved in zip((seeds, tasks), SOLVED[arm], strict=True):
        for place, task in enumerate(group):
            verdict = Verdict(outcome="success" if place < solved else "failure", judge="reward")
            final = Observation(text="", done=True, reward=float(verdict.success))
            episode = {"task": task, "policy": arm, "environment": "browser", "steps": (step,), "ended": "done"}
            made.append(Trajectory(**episode, final=final, verdict=verdict))
    return made


def finish(run: str, name: str, metrics: dict, trajectories=(), tables=None):
    """One finished stage, written by the package's own Stage."""
    stage = runs.open_stage(run, name, load_params("demo"), sections=("iterations",))
    file = runs.JSONL(stage.path("trajectories.jsonl"), Trajectory)
    for trajectory in trajectories:
        file.append(trajectory)
    for table, rows in (tables or {}).items():
        pd.DataFrame(rows).to_csv(stage.path(f"{table}.csv"), index=False)
    usage = {"policy": {"calls": 10, "prompt_tokens": 4000, "completion_tokens": 300, "seconds": 2.0}}
    stage.track(**{role: Usage(**used) for role, used in usage.items()})
    stage.finish(metrics=metrics)


def report_card(iteration: int) -> list[dict]:
    values = {"copy_page": 0.2, "untrained": 0.1, f"iteration_{iteration}": 0.5 + 0.1 * iteration}
    return [
        {"model": model, "target": "change", "depth": depth, "metric": metric, "n": 50, "value": v, "low": v - 0.1,
         "high": v + 0.1}
        for metric in ("exact_match", "changed_f1", "parses", "outcome_accuracy", "auc_success")
        for model, v in values.items()
        for depth in (1, 2)
    ]  # fmt: skip


def make_run(run: str, arms: list[str]):
    """A small finished run of two iterations, without a model or a browser."""
    loss = {"loss": [{"step": step, "loss": 2 / step} for step in range(1, 21)]}
    for i in (1, 2):
        funnel = [{"step": "sampled episodes", "kept": 240}, {"step": "successes", "kept": 100 + i}]
        finish(run, f"iter-{i}/01_collect", {"funnel": funnel})
        finish(run, f"iter-{i}/02_wm_train", {}, tables={"report_card": report_card(i)} | loss)
        finish(run, f"iter-{i}/04_self_improve", {}, tables=loss)
    ledger = [
        {"arm": "webevolver", "family": task, "outcome": outcome, "n": n}
        for task in HELD_OUT
        for outcome, n in (("accepted", 10), ("judge no", 25), ("unreadable page", 5))
    ]
    imagined = {"funnel": [{"step": "imagined", "kept": 80}, {"step": "accepted", "kept": 20}]}
    finish(run, "03_synthesize", imagined | {"truth": {"replayed": 20, "true": 5}}, tables={"ledger": ledger})
    finish(run, "04_webevolver", {}, tables=loss)
    for arm in arms:
        finish(run, f"05_wmla/{arm}", {}, episodes(arm))


def frames() -> dict[str, pd.DataFrame]:
    """One frame for every figure function, under its name."""
    by_arm = {arm: episodes(arm) for arm in SOLVED}
    success = metrics.success_table(by_arm)
    ledger = pd.DataFrame({"task": "login-user", "outcome": ["refused", "accepted"], "n": [30, 10]})
    paired = metrics.paired_table(by_arm, comparisons.reported(list(SOLVED)))
    cost = {"stage": "03_synthesize", "seconds": 90.0, "peak_memory_mb": 900}
    return {
        "success_by_arm": success,
        "paired_differences": paired,
        "differences_by_run": pd.concat([paired.assign(run=run) for run in ("a", "b")], ignore_index=True),
        "trajectory_funnel": pd.DataFrame({"stage": "01", "step": ["sampled", "successes"], "kept": [240, 101]}),
        "world_model_quality": pd.DataFrame(report_card(1) + report_card(2))
        .assign(iteration=[1] * 30 + [2] * 30)
        .query("depth == 1")
        .reset_index(drop=True),
        "time_and_tokens": pd.DataFrame([cost | {"prompt_tokens": 800, "completion_tokens": 50}]),
        "row_tokens": pd.DataFrame({"part": ["row", "row", "reply"], "tokens": [90, 700, 30], "limit": [768, 768, 80]}),
        "loss_curve": pd.DataFrame({"step": [1, 2, 3], "loss": [2.0, 1.5, 1.0], "model": "wm"}),
        "success_by_task": metrics.task_table(by_arm),
        "imagined_ledger": metrics.ledger_table(ledger, {"replayed": 10, "true": 2}),
    }


@pytest.mark.parametrize("name", sorted(frames()))
def test_saves_five_files_and_the_csv_is_what_was_plotted(tmp_path, name):
    frame = frames()[name]
    before = frame.copy()
    figure = getattr(figures, name)(frame)
    path = figures.save_figure(figure, frame, tmp_path / "figures", name, {"05_wmla/x": "abc"}, "Why.")
    pd.testing.assert_frame_equal(frame, before)  # drawing changes nothing
    saved = pd.read_csv(path.with_suffix(".csv"), dtype={"stage": str})
    pd.testing.assert_frame_equal(saved, frame, check_dtype=False)
    assert path.read_bytes()[:4] == b"\x89PNG"
    assert path.with_suffix(".pdf").read_bytes()[:4] == b"%PDF"
    assert "<svg" in path.with_suffix(".svg").read_text()[:600]
    made_of = json.loads(path.with_suffix(".json").read_text())
    assert made_of["inputs"] == {"05_wmla/x": "abc"} and made_of["caption"] == "Why."
    assert made_of["csv"] == runs.sha256(path.with_suffix(".csv"))


@pytest.mark.parametrize("name", sorted(frames()))
def test_a_frame_without_rows_gives_a_figure_that_says_so(name):
    figure = getattr(figures, name)(pd.DataFrame())
    assert [text.get_text() for text in figure.texts] == [f"{name}: nothing to draw yet"]


def test_success_figure_marks_rate_and_interval_in_percent():
    figure = figures.success_by_arm(metrics.success_table({"zero_shot": episodes("zero_shot")}))
    seeds, tasks = figure.axes
    bar = seeds.containers[0]
    assert bar.lines[0].get_xdata()[0] == 25.0  # 6 of 24
    low, high = bar.lines[2][0].get_segments()[0][:, 0]
    assert (round(low, 1), round(high, 1)) == (12.0, 44.9)  # Wilson, worked out by hand
    assert "6/24" in [text.get_text() for text in seeds.texts] and "2/8" in [text.get_text() for text in tasks.texts]
    assert "higher is better" in seeds.get_xlabel() and "%" in seeds.get_xlabel()


def test_ways_to_look_ahead_stand_below_the_policies_beside_their_own():
    order = ["zero_shot", "webevolver+wmla_d1", "webevolver", "webevolver+best_of_k"]
    seeds = figures.success_by_arm(metrics.success_table({arm: episodes(arm) for arm in order})).axes[0]
    rows = ["zero_shot", "webevolver", "webevolver+wmla_d1", "webevolver+best_of_k"]
    assert [label.get_text() for label in seeds.get_yticklabels()] == rows
    dotted = [(line.get_xdata()[0], list(line.get_ydata())) for line in seeds.lines if line.get_linestyle() == ":"]
    assert dotted == [(25.0, [-0.5, 1.5]), (62.5, [1.5, 3.5])]  # 6 of 24 beside the policies, 15 of 24 below
    assert "dotted" in seeds.get_xlabel()


def test_forest_plot_is_hollow_where_the_interval_holds_zero():
    by_arm = {arm: episodes(arm) for arm in ("zero_shot", "webevolver", "self_improve_1", "self_improve_2")}
    pairs = [("zero_shot", "webevolver"), ("self_improve_1", "self_improve_2")]
    seeds = figures.paired_differences(metrics.paired_table(by_arm, pairs)).axes[0]
    faces = [bar.lines[0].get_markerfacecolor() for bar in seeds.containers]
    assert faces == ["#D55E00", "white"]  # +9 of 24; 0 of 24


def test_the_runs_of_a_pair_stand_below_one_another_with_a_bar_at_their_mean():
    rows = [("a", 40, 0.10, 0.02, 0.18), ("b", 60, -0.04, -0.10, 0.02)]
    frame = pd.DataFrame(rows, columns=["run", "n", "difference", "low", "high"])
    panel = figures.differences_by_run(frame.assign(arm_a="zero_shot", arm_b="webevolver", split="test_seeds")).axes[0]
    points = [bar.lines[0] for bar in panel.containers]
    assert [point.get_xdata()[0] for point in points] == [10, -4]
    assert points[0].get_ydata()[0] < 0 < points[1].get_ydata()[0]  # the axis points down
    assert [point.get_markerfacecolor() for point in points] == ["#D55E00", "white"]  # off 0, and not
    assert any(line.get_xdata() == pytest.approx([3, 3]) for line in panel.lines if len(line.get_xdata()) == 2)
    assert "+3, n = 40+60" in [text.get_text() for text in panel.texts]
    assert "from above: a, b" in panel.get_xlabel()


def test_a_method_has_one_colour_under_our_name_and_the_papers():
    for arm, method in paper.METHODS.items():
        assert figures.colour(arm) == figures.colour(method), arm
    shades = [figures.colour(arm) for arm in SOLVED]
    assert len(set(shades)) == len(SOLVED)


@pytest.mark.notebook
def test_notebook_06_on_a_half_finished_run_and_again_when_it_is_whole(tmp_path, monkeypatch):
    """Missing arms are named; the second analysis is not refused though its inputs have changed."""
    import papermill

    monkeypatch.setenv("WEVO_OUTPUTS", str(tmp_path))
    stage = tmp_path / "made" / "06_analysis"

    def analyse() -> dict:
        notebook, out = ROOT / "notebooks" / "06_analysis.ipynb", tmp_path / "out.ipynb"
        papermill.execute_notebook(notebook, out, {"profile": "demo", "run": "made"}, progress_bar=False, cwd=tmp_path)
        return json.loads((stage / "metrics.json").read_text())

    for arm in ("zero_shot", "self_improve_1"):
        finish("made", f"05_wmla/{arm}", {}, episodes(arm))
    half = analyse()
    assert half["arms"] == ["zero_shot", "self_improve_1"]
    missing = [arm for arm in load_params("demo").params.arms() if arm not in half["arms"]]
    assert half["missing"] == missing and "webevolver+wmla_d1" in missing

    make_run("made", [arm for arm in SOLVED if arm not in half["arms"]])
    whole = analyse()
    assert whole["arms"] == list(SOLVED) and not set(whole["missing"]) & set(SOLVED)
    success = pd.read_csv(stage / "tables" / "success.csv")
    assert list(success.columns) == [*metrics.SUCCESS_COLUMNS, *metrics.CARE_COLUMNS]
    assert success[success["split"] == "test_seeds"]["successes"].tolist() == [6, 12, 12, 15, 16, 14]
    paired = pd.read_csv(stage / "tables" / "paired.csv").set_index(["arm_a", "arm_b", "split"])
    paired_columns = [*metrics.PAIRED_COLUMNS, *metrics.TEST_COLUMNS, *metrics.CARE_COLUMNS, "same_policy"]
    assert list(paired.reset_index().columns) == paired_columns
    row = paired.loc[("webevolver+best_of_k", "webevolver+wmla_d1", "test_seeds")]
    assert (row["n"], row["won"], row["lost"]) == (24, 2, 0)
    drawn = {path.stem for path in (stage / "figures").glob("*.png")}
    beside = {name for name, exhibit in exhibits.EXHIBITS.items() if exhibit.draw}
    assert drawn == {*frames()} - {"row_tokens"} | {"by_depth", "stall", "judges", *beside}
    assert {path.stem for path in (stage / "tables").glob("*.tex")} == set(exhibits.EXHIBITS)
    main = pd.read_csv(stage / "tables" / "webevolver_table_1.csv").set_index(["run", "row", "column"])
    assert main.loc[("made", "WebEvolver", "test_seeds")]["value"] == 62.5  # 15 of 24
    lookahead = pd.read_csv(stage / "tables" / "lookahead.csv", keep_default_na=False)
    assert lookahead[lookahead["split"] == "test_seeds"]["preset"].tolist() == ["", "", "", "", "wmla_d1", "best_of_k"]
    assert list(pd.read_csv(stage / "tables" / "report_card.csv").columns) == list(COLUMNS)
    assert list(pd.read_csv(stage / "tables" / "ledger.csv").columns) == ["arm", "family", "outcome", "n"]
    stalled = pd.read_csv(stage / "tables" / "stall.csv").groupby("arm")["iteration"].unique().map(list)
    assert stalled.to_dict() == {
        "self_improve": [1, 2],
        "self_improve_tests": [0, 1, 2],
        "webevolver_tests": [0, 1, 2],
    }
    asked = [sentence.partition("?")[0] for sentence in whole["takeaways"] if "?" in sentence]
    assert asked == ["Does self-improvement help", "Do dreams help", "Does look-ahead help", "How sure"]
    truth = "80 dreams, 20 accepted; of 20 replayed, 5 are true in the real page (95% interval 11 to 47%)"
    assert any(truth in sentence for sentence in whole["takeaways"])
    manifest = json.loads((stage / "manifest.json").read_text())
    assert "05_wmla/webevolver+wmla_d1" in manifest["inputs"] and "tables/success.csv" in manifest["outputs"]


def test_the_rates_of_one_policy_on_its_tasks(tmp_path):
    rows = [("b", 3, 4), ("a", 1, 4)]
    frame = pd.DataFrame(
        [
            {"task": t, "arm": "p", "split": "train", "n": n, "successes": s, "rate": s / n, "low": 0.1, "high": 0.9}
            for t, s, n in rows
        ]
    )
    figure = figures.task_rates(frame)
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["b", "a"]
    path = figures.save_figure(figure, frame, tmp_path, "rates", {})
    assert pd.read_csv(path.with_suffix(".csv"))["rate"].tolist() == [0.75, 0.25]


def test_the_stall_has_a_panel_a_metric_and_a_line_a_method_with_n_below(tmp_path):
    rows = [
        ("self_improve", 1, "acceptance", 0.40, 198, 0.33, 0.47),
        ("self_improve", 2, "acceptance", 0.50, 198, 0.43, 0.57),
        ("webevolver_tests", 1, "acceptance", 0.40, 180, 0.33, 0.47),
        ("self_improve", 1, "similarity", float("nan"), 0, float("nan"), float("nan")),
        ("self_improve", 2, "similarity", 0.75, 190, 0.70, 0.80),
        ("self_improve", 1, "new_tasks", 7.0, 9, float("nan"), float("nan")),
        ("self_improve", 2, "new_tasks", 1.0, 9, float("nan"), float("nan")),
    ]
    frame = pd.DataFrame(rows, columns=["arm", "iteration", "metric", "value", "n", "low", "high"])
    figure = figures.stall(frame)
    accepted, similar, new = figure.axes
    ours, other = (bar.lines[0] for bar in accepted.containers)
    assert ours.get_ydata().tolist() == [40.0, 50.0] and other.get_ydata().tolist() == [40.0]  # percent
    assert (ours.get_color(), other.get_color()) == (figures.SKY, figures.ORANGE)
    spans = [segment[:, 1].round(6).tolist() for segment in accepted.containers[0].lines[2][0].get_segments()]
    assert spans == [[33.0, 47.0], [43.0, 57.0]]
    assert [label.get_text() for label in accepted.get_xticklabels()] == ["1\n180-198", "2\n198"]
    assert similar.containers[0].lines[0].get_ydata().tolist() == [0.75]  # nothing to be like in the first
    assert new.containers[0].lines[0].get_ydata().tolist() == [7.0, 1.0]
    assert "lower explores more" in similar.get_ylabel() and "% of episodes" in accepted.get_ylabel()
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["self_improve", "webevolver_tests"]
    assert (ours.get_linestyle(), other.get_linestyle()) == ("-", "--")
    assert (ours.get_marker(), other.get_marker()) == ("o", "s") and other.get_markerfacecolor() == "white"
    path = figures.save_figure(figure, frame, tmp_path, "stall", {})
    pd.testing.assert_frame_equal(pd.read_csv(path.with_suffix(".csv")), frame)
    assert [text.get_text() for text in figures.stall(frame.iloc[:0]).texts] == ["stall: nothing to draw yet"]
