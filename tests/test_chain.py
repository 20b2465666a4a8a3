"""The whole chain on the smoke profile: real Chromium, real training, a tiny model.

One run is left alone; a second is killed with -9 in collection, in training and in evaluation
and must end in the same tables. Then each notebook is run alone, from another folder.
"""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import command, environment

from wevo_nb.params import ROOT

pytestmark = pytest.mark.notebook
TABLES = ("success.csv", "paired.csv")
ARMS = ["zero_shot", "self_improve_1", "self_improve_2", "webevolver", "webevolver+wmla_d1", "webevolver+best_of_k"]


def tables(run: Path) -> dict[str, list[dict]]:
    folder = run / "06_analysis" / "tables"
    return {name: list(csv.DictReader((folder / name).open())) for name in TABLES}


def test_the_table_of_results_keeps_its_contract(unbroken):
    success, paired = tables(unbroken).values()
    care = ["unscored", "low_bound", "high_bound", "clusters", "cluster_low", "cluster_high"]
    assert list(success[0]) == ["arm", "split", "n", "successes", "rate", "low", "high", *care]
    assert list(paired[0]) == [
        "arm_a", "arm_b", "split", "n", "won", "lost", "difference", "low", "high", "p",
        "p_holm", "boot_low", "boot_high", "detectable", *care, "same_policy",
    ]  # fmt: skip
    assert [(row["arm"], row["split"]) for row in success] == [
        (a, s) for a in ARMS for s in ("test_seeds", "test_tasks")
    ]
    # of 6 and 2 episodes: the two seeds of click-test-2 and of click-test-transfer give one page and goal
    assert {row["split"]: row["n"] for row in success} == {"test_seeds": "5", "test_tasks": "1"}


def test_the_report_card_holds_the_graders_rows_beside_those_by_rule(unbroken):
    rows = list(csv.DictReader((unbroken / "06_analysis/tables/report_card.csv").open()))
    by_rule, graded = ({(r["model"], r["depth"]) for r in rows if r["metric"] == m} for m in ("exact_match", "STR"))
    models = {"copy_page", "majority", "untrained", "iteration_1", "iteration_2"}
    assert by_rule == graded and {model for model, _ in graded} == models
    assert all(0 <= float(r["value"]) <= 1 for r in rows if r["metric"] == "STR" and int(r["n"]))


def test_every_stage_says_what_it_was_made_of(unbroken):
    manifests = [json.loads(path.read_text()) for path in unbroken.rglob("manifest.json")]
    assert len(manifests) == 15  # ten notebooks, of which 05 has one an arm
    for manifest in manifests:
        assert manifest["provenance"]["packages"]["torch"]
        assert manifest["seconds"] > 0 and manifest["peak_memory_mb"] > 0
    collect = json.loads((unbroken / "iter-1/01_collect/manifest.json").read_text())
    assert collect["usage"]["policy"]["calls"] > 18  # at least one decision in each of 18 episodes
    assert collect["provenance"]["browser"]


def test_test_seeds_are_never_collected_from(unbroken):
    read = lambda path: [json.loads(line)["task"] for line in path.read_text().splitlines()]  # noqa: E731
    train = {(t["name"], t["seed"]) for p in unbroken.glob("iter-*/01_collect/trajectories.jsonl") for t in read(p)}
    test = {(t["name"], t["seed"]) for t in read(unbroken / "05_wmla/zero_shot/trajectories.jsonl")}
    assert len(train) == 36 and len(test) == 8
    assert not {seed for _, seed in train} & {seed for _, seed in test}


def test_the_tool_of_the_study_adds_up_a_finished_run(unbroken, tmp_path):
    """Of one run the sums are its own, and each pair that met is told, twins left out."""
    command = [sys.executable, ROOT / "tools" / "pool_study.py", unbroken.name, "--out", tmp_path]
    done = subprocess.run(command, env=environment(unbroken.parent), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    read = lambda folder, name: list(csv.DictReader((folder / "tables" / f"{name}.csv").open()))  # noqa: E731
    own = {(row["arm"], row["split"]): row["successes"] for row in read(unbroken / "06_analysis", "success")}
    assert {(row["arm"], row["split"]): row["successes"] for row in read(tmp_path, "success")} == own
    pairs = [row for row in read(unbroken / "06_analysis", "paired") if row["same_policy"] == "False"]
    told = [f"{row['split']}: {row['arm_b']} against {row['arm_a']} " for row in pairs]
    assert told and all(any(line.startswith(start) for line in done.stdout.splitlines()) for start in told)


def test_a_finished_run_does_nothing_twice(unbroken):
    before = {p: p.stat().st_mtime_ns for p in unbroken.rglob("trajectories.jsonl")}
    done = subprocess.run(command(), env=environment(unbroken.parent), capture_output=True, text=True)
    assert done.returncode == 0
    assert before == {p: p.stat().st_mtime_ns for p in unbroken.rglob("trajectories.jsonl")}


def test_killed_three_times_it_ends_in_the_same_tables(unbroken, tmp_path):
    run = tmp_path / "smoke"
    killed_in("iter-1/01_collect", "episodes", 5, tmp_path)
    assert not (run / "iter-1/01_collect/manifest.json").exists()
    killed_in("iter-1/02_wm_train", "training steps", 10, tmp_path)  # after a checkpoint
    assert not (run / "iter-1/02_wm_train/manifest.json").exists()
    killed_in("05_wmla/self_improve_1", "self_improve_1", 2, tmp_path)
    done = subprocess.run(command(), env=environment(tmp_path), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]
    for file in run.rglob("trajectories.jsonl"):
        keys = [(t["task"]["name"], t["task"]["seed"], t.get("attempt", 0)) for t in map(json.loads, file.open())]
        assert len(keys) == len(set(keys))
    assert steps_of(run, "iter-1/02_wm_train") == steps_of(unbroken, "iter-1/02_wm_train")
    assert tables(run) == tables(unbroken)


def test_a_run_begun_from_another_leaves_that_one_as_it_was(unbroken):
    before = {p: p.read_bytes() for p in unbroken.rglob("*") if p.suffix in (".csv", ".json", ".jsonl")}
    words = ["--run", "branch", "--from", "smoke", "--only", "05", "--only", "06", "--set", "wmla.k=2"]
    done = subprocess.run(command(*words), env=environment(unbroken.parent), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert before == {p: p.read_bytes() for p in before}
    branch = unbroken.parent / "branch"
    k = lambda run: json.loads((run / "05_wmla/webevolver+wmla_d1/params.json").read_text())["params"]["wmla"]["k"]  # noqa: E731
    assert (k(unbroken), k(branch)) == (3, 2)
    assert len(tables(branch)["success.csv"]) == 12


def killed_in(stage: str, label: str, at_least: int, outputs: Path):
    """Runs until `stage` has got so far, then kills its kernel with -9; the command must fail."""
    running = subprocess.Popen(
        command(), env=environment(outputs), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    file = outputs / "smoke" / stage / "progress.json"
    until = time.monotonic() + 900  # all stages before it, on a slow machine that does other things
    while time.monotonic() < until:
        state = json.loads(file.read_text()) if file.exists() else {}
        if state.get("label") == label and state["n"] >= at_least:
            break
        assert running.poll() is None, running.stdout.read()[-2000:]
        time.sleep(0.03)
    else:
        running.kill()
        pytest.fail(f"{stage} never came to {label} {at_least}")
    os.kill(state["pid"], signal.SIGKILL)
    said, _ = running.communicate(timeout=120)
    assert running.returncode == 1, said
    assert "the same command goes on where it was" in said


def steps_of(run: Path, stage: str) -> list[str]:
    return [row["step"] for row in csv.DictReader((run / stage / "loss.csv").open())]


@pytest.mark.parametrize(
    ("notebook", "stage", "iteration", "overrides", "shows"),
    [
        ("01_collect", "iter-1/01_collect", 1, {"tasks": {"train_seeds": 2}}, "6 episodes"),
        ("02_wm_train", "iter-2/02_wm_train", 2, {"world_model": {"target": "page"}}, "page"),
        (
            "03_synthesize",
            "03_synthesize",
            2,
            {"synthesize": {"attempts": 1, "look_ahead": "wmla_d1"}},
            "6 dreams",
        ),
        ("04_final_sft", "04_webevolver", 2, {"sft": {"arm": "webevolver", "epochs": 2}}, "04_webevolver"),
        ("05_wmla", "05_wmla", 2, {"wmla": {"arms": ["zero_shot", "webevolver+wmla_d2"]}}, "webevolver+wmla_d2"),
        ("06_analysis", "06_analysis", 2, {"seed": 0}, "zero_shot"),
    ],
)
def test_a_notebook_runs_alone_by_papermill_from_another_folder(
    unbroken, tmp_path, notebook, stage, iteration, overrides, shows
):
    shutil.copytree(unbroken, tmp_path / "mine")
    shutil.rmtree(tmp_path / "mine" / stage)
    parameters = {"profile": "smoke", "run": "mine", "iteration": iteration, "overrides": overrides}
    words = [
        "-m",
        "papermill",
        str(ROOT / "notebooks" / f"{notebook}.ipynb"),
        "out.ipynb",
        "-y",
        json.dumps(parameters),
    ]
    done = subprocess.run(
        [sys.executable, *words], cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    outputs = [
        str(output.get("text") or output.get("data", {}).get("text/plain", ""))
        for cell in json.loads((tmp_path / "out.ipynb").read_text())["cells"]
        for output in cell.get("outputs", [])
    ]
    assert any(shows in text for text in outputs)


def test_a_world_model_may_be_trained_once_on_all_collections(unbroken):
    words = ["--run", "late", "--from", "smoke", "--only", "02", "--set", "world_model.first_iteration=2"]
    done = subprocess.run(command(*words), env=environment(unbroken.parent), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    late = unbroken.parent / "late"
    assert not (late / "iter-1/02_wm_train").exists()
    models = {row["model"] for row in csv.DictReader((late / "iter-2/02_wm_train/report_card.csv").open())}
    assert models == {"copy_page", "majority", "untrained", "iteration_2"}
    rows = json.loads((late / "iter-2/02_wm_train/params.json").read_text())["inputs"]
    assert sorted(rows) == ["iter-1/01_collect", "iter-2/01_collect"]
