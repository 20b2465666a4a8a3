"""benchmarks/training.py on eight short rows and the tiny model: what it counts, and that both ways learn the same."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from test_sft import ROWS

from wevo_nb import sft
from wevo_nb.models import find_model, load_tokenizer
from wevo_nb.params import load_params
from wevo_nb.training_checks import row_lengths

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

import training


def test_tokens_and_padding_are_counted_and_the_first_loss_is_the_same():
    """Eight rows in batches of four for one epoch: ours pads each batch to 32, TRL to its longest row."""
    lengths = row_lengths(ROWS, load_tokenizer(find_model("tiny")))
    assert load_params("study").params.world_model_sft.batch == 4 and 32 < min(lengths) and max(lengths) <= 64
    forward = torch.nn.Embedding.forward
    ours, trl = (training.fit(way, ROWS, "tiny", 1) for way in ("ours", "trl_kept"))
    assert torch.nn.Embedding.forward is forward
    assert ours["tokens"] == trl["tokens"] == sum(lengths) and ours["steps"] == trl["steps"] == 2
    assert ours["padding"] == pytest.approx(1 - sum(lengths) / (8 * 64), abs=1e-3)
    assert 0 <= trl["padding"] < ours["padding"]
    assert ours["first_loss"] == pytest.approx(trl["first_loss"], abs=0.05)
    assert ours["tokens_per_second"] > 0


def test_adapters_learn_in_the_precision_of_their_name(monkeypatch):
    """They begin where full training does, for a new adapter adds nothing."""
    seen, cast = [], sft.cast_adapter
    monkeypatch.setattr(sft, "cast_adapter", lambda model, dtype: (seen.append(dtype), cast(model, dtype)))
    full, *adapters = (training.fit(way, ROWS, "tiny", 1) for way in ("ours", *training.ADAPTERS))
    assert seen == [torch.float32, torch.bfloat16]
    assert [one["first_loss"] for one in adapters] == pytest.approx([full["first_loss"]] * 2, abs=0.05)


def test_rows_come_from_real_pages_and_no_two_are_alike():
    rows = training.rows_of(training.QUICK)
    assert len(rows) == 8 and len({str(row) for row in rows}) == 8
    assert {row.outcome for row in rows} <= {"success", "failure", "changed", "same"}


def test_the_ways_that_are_asked_for_are_measured_and_no_others(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(training, "RESULTS", tmp_path / "training.json")
    monkeypatch.setattr(sys, "argv", ["training.py", "--quick", "--model", "tiny", "--ways", "ours", "trl_kept"])
    training.main()
    found = json.loads(training.RESULTS.read_text())
    speeds = [(one["way"], one["tokens_per_second"]) for one in found["ways"]]
    assert [way for way, _ in speeds] == ["ours", "trl_kept"]
    assert found["ours_over"] == {"trl_kept": round(speeds[0][1] / speeds[1][1], 2)}
    said = capsys.readouterr().out
    assert f"ours {found['ours_over']['trl_kept']} times trl_kept" in said and "aim" not in said
