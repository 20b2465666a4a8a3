"""The tool behind docs/STUDY.md names a run that is not finished, and runs that cannot be added up."""

from __future__ import annotations

import runpy

import pytest

from wevo_nb.params import ROOT
from wevo_nb.runs import write_json

TOOL = runpy.run_path(str(ROOT / "tools" / "pool_study.py"))


def test_a_run_that_is_not_finished_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("WEVO_OUTPUTS", str(tmp_path))
    with pytest.raises(SystemExit, match="study-9 is no finished run: wevo run --profile study --run study-9"):
        TOOL["read"](["study-9"])


def test_runs_whose_stages_noted_other_params_are_not_added_up(tmp_path, monkeypatch):
    """Whatever the profile says today: what a stage was made with is what counts. The seed may differ."""
    monkeypatch.setenv("WEVO_OUTPUTS", str(tmp_path))
    for run, seed, k in (("a", 1, 3), ("b", 2, 3), ("c", 3, 5)):
        write_json(tmp_path / run / "06_analysis" / "manifest.json", {})
        write_json(tmp_path / run / "run.json", {"profile": "study", "overrides": {"seed": seed}})
        arm = tmp_path / run / "05_wmla" / "zero_shot"
        write_json(arm / "params.json", {"params": {"seed": seed, "wmla": {"k": k}}, "inputs": {}})
        write_json(arm / "manifest.json", {"provenance": {"git_commit": "0"}})
    assert TOOL["read"](["a", "b"]).seeds == {"a": 1, "b": 2}
    with pytest.raises(SystemExit, match="a, b, c differ in more than the seed.*wmla.k 3 in a, 5 in c"):
        TOOL["read"](["a", "b", "c"])
