"""benchmarks/rollouts.py: what it counts and what it writes, on small cases known before."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

import rollouts


@pytest.fixture
def quick(tmp_path, monkeypatch):
    """Runs it with --quick and further words; returns what it has written."""
    monkeypatch.setattr(rollouts, "RESULTS", tmp_path / "r.json")

    def run(*words: str, latency: float = 0.05) -> dict:
        monkeypatch.setattr(rollouts, "LATENCY", latency)
        monkeypatch.setattr(sys, "argv", ["rollouts.py", "--quick", *words])
        rollouts.main()
        return json.loads((tmp_path / "r.json").read_text())

    return run


def test_resume_reads_and_skips_every_episode(quick, capsys):
    written = quick("--only", "resume")
    [row] = written["resume"]
    one = len(rollouts.finished(0).model_dump_json(exclude_defaults=True)) + 1
    assert row["trajectories"] == 50 and "rollouts" not in written and written["quick"]
    assert row["megabytes"] == pytest.approx(50 * one / 1e6, abs=0.006)  # seeds have one or two digits
    assert row["open_seconds"] >= 0 and row["skip_seconds"] >= 0
    assert "open seconds" in capsys.readouterr().out


@pytest.mark.browser
def test_no_episode_is_faster_than_the_server(quick, monkeypatch, capsys):
    """Two at once in one browser: each step waits for a call."""
    monkeypatch.setattr(rollouts, "BACKENDS", (("local", 1),))
    [row] = quick("--only", "rollouts")["rollouts"]
    assert (row["backend"], row["workers"], row["at_once"], row["episodes"]) == ("local", 1, 3, 2)
    assert 2 <= row["steps"] <= 10 and row["seconds"] >= row["steps"] / 2 * 0.05
    assert row["episodes_a_minute"] == pytest.approx(120 / row["seconds"], rel=0.05)
    assert "episodes a minute" in capsys.readouterr().out


@pytest.mark.scale
@pytest.mark.browser
def test_workers_are_measured_on_the_same_episodes(quick, monkeypatch, capsys):
    monkeypatch.setattr(rollouts, "BACKENDS", (("local", 1), ("ray", 2)))
    here, there = quick("--only", "rollouts")["rollouts"]
    assert (there["backend"], there["workers"], there["at_once"]) == ("ray", 2, 6)
    assert there["steps"] == here["steps"] and there["episodes"] == here["episodes"] == 2
    assert there["start_seconds"] > here["start_seconds"] > 0
    assert "ray 2: " in capsys.readouterr().out
