"""The pooling of a study's runs: counts of each run added up, whatever pages they share."""

from __future__ import annotations

import runpy

import pandas as pd
import pytest

from wevo_nb import metrics
from wevo_nb.params import ROOT
from wevo_nb.runs import write_json

TOOL = runpy.run_path(str(ROOT / "tools" / "pool_study.py"))


def test_successes_of_all_runs_are_added_up():
    rows = [("a", "test_seeds", 10, 4), ("b", "test_seeds", 10, 9), ("a", "test_seeds", 8, 1)]
    by_run = pd.DataFrame(rows, columns=["arm", "split", "n", "successes"])
    table = TOOL["added_rates"](by_run, ["arm", "split"]).set_index("arm")
    assert table[["n", "successes"]].to_numpy().tolist() == [[18, 5], [10, 9]]
    assert tuple(table.loc["a", ["rate", "low", "high"]]) == pytest.approx(metrics.wilson(5, 18))


def test_pairs_of_all_runs_are_added_up():
    rows = [("x", "y", "test_seeds", 100, 12, 2), ("x", "y", "test_seeds", 90, 9, 0)]
    by_run = pd.DataFrame(rows, columns=["arm_a", "arm_b", "split", "n", "won", "lost"])
    [row] = TOOL["added_pairs"](by_run).to_dict("records")
    assert (row["n"], row["won"], row["lost"], row["difference"]) == (190, 21, 2, pytest.approx(19 / 190))
    assert {key: row[key] for key in ("low", "high", "p")} == pytest.approx(
        {key: metrics.paired(21, 2, 190)[key] for key in ("low", "high", "p")}
    )


def test_a_run_that_is_not_finished_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("WEVO_OUTPUTS", str(tmp_path))
    with pytest.raises(SystemExit, match="study-9 is no finished run: wevo run --profile study --run study-9"):
        TOOL["params_of"](["study-9"])


def test_runs_whose_stages_noted_other_params_are_not_added_up(tmp_path, monkeypatch):
    """Whatever the profile says today: what a stage was made with is what counts. The seed may differ."""
    monkeypatch.setenv("WEVO_OUTPUTS", str(tmp_path))
    for run, seed, written in (("a", 1, 8), ("b", 2, 8), ("c", 3, 24)):
        write_json(tmp_path / run / "06_analysis" / "manifest.json", {})
        write_json(tmp_path / run / "run.json", {"profile": "study", "overrides": {"seed": seed}})
        noted = {"params": {"seed": seed, "synthesize": {"written": written}}}
        write_json(tmp_path / run / "03_synthesize" / "params.json", noted)
    assert TOOL["params_of"](["a", "b"]).iterations == 3
    with pytest.raises(SystemExit, match="c and a were made with other params: 03_synthesize synthesize.written"):
        TOOL["params_of"](["a", "b", "c"])
