"""benchmarks/analysis.py: what it makes up has the shape it says, and what it writes fits; no clock is asserted."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

import analysis

from wevo_nb.index import Index
from wevo_nb.observation import is_page
from wevo_nb.schema import Task, Trajectory


@pytest.mark.parametrize("shape, steps, elements", [("miniwob", range(1, 7), range(3, 13)), ("live", [12], [60])])
def test_an_episode_has_the_shape_it_says(shape, steps, elements):
    draw, task = random.Random(0), Task(suite="made-up", name="kind-0", seed=0)
    for _ in range(20):
        one = analysis.episode(draw, shape, task, "p", ahead=True, judged=True)
        assert len(one.steps) in steps and one.verdict.success == (one.final.reward == 1.0)
        for step in one.steps:
            assert is_page(step.observation.text) and step.observation.text.count("\n") + 1 in elements
            assert step.decision.action.id and len(step.decision.candidates) == 2
        assert Trajectory.model_validate_json(one.model_dump_json(exclude_defaults=True)) == one


def test_a_run_has_every_trajectory_once(tmp_path):
    megabytes = analysis.make_run(tmp_path, "miniwob", 200)
    found = Index(tmp_path / analysis.RUN)
    assert len(found.entries) == 200 and not found.problems and megabytes > 0.1
    assert {entry.arm for entry in found.entries if entry.stage == "05_wmla"} == {f"arm_{i}" for i in range(10)}
    assert sum(entry.stage == "01_collect" for entry in found.entries) == 100
    assert all(entry.outcome in ("success", "failure") for entry in found.entries)  # collections by their rule
    assert sum(entry.ahead > 0 for entry in found.entries) == 50  # every second arm


def test_growth_tells_linear_from_quadratic():
    row = {"shape": "miniwob", "megabytes": 1.0, "imports_mb": 70}
    rows = [
        row | {"trajectories": 10, "index": 1.0, "page": 1.0, "one": 0.0, "peak_mb": 80},
        row | {"trajectories": 100, "index": 10.0, "page": 100.0, "one": 0.0, "peak_mb": 270},
        row | {"shape": "live", "trajectories": 10, "index": 5.0, "page": 5.0, "one": 5.0, "peak_mb": 90},
    ]
    assert analysis.growth(rows) == ["10 to 100, cost of one: index 1.00, page 10.00, peak_mb 2.00 times"]


def test_it_prints_and_writes_what_it_measured(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(analysis, "RESULTS", tmp_path / "a.json")
    monkeypatch.setattr(sys, "argv", ["analysis.py", "--quick"])
    monkeypatch.setattr(analysis, "QUICK", (("miniwob", 40),))
    analysis.main()
    written = json.loads((tmp_path / "a.json").read_text())
    [viewer], [tables] = written["viewer"], written["tables"]
    assert viewer["trajectories"] == tables["trajectories"] == 40
    assert viewer["command"] > viewer["index"] > 0 and tables["load"] > 0
    assert viewer["peak_mb"] >= viewer["imports_mb"] > 10
    out = capsys.readouterr().out
    assert "viewer, seconds" in out and "stall" in out and str(tmp_path / "a.json") in out
