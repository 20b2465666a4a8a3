"""What a finished run left: read here for the solutions beside this file, or refused with the cure.

Reads `outputs/<run>/` (or the folder that WEVO_OUTPUTS names), writes nothing.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from wevo_nb.runs import JSONL, StageError, read_json, run_folder
from wevo_nb.schema import Trajectory


def path(run: str, *parts: str) -> Path:
    """A file of a finished run. Raises StageError where it is not there."""
    found = run_folder(run).joinpath(*parts)
    if not found.exists():
        raise StageError(f"there is no {found}: 'wevo status --run {run}' says what is done, 'wevo run' does the rest")
    return found


def trajectories(run: str, stage: str, file: str = "trajectories.jsonl") -> list[Trajectory]:
    """The episodes of a stage, sorted by key."""
    return JSONL(path(run, stage, file), Trajectory).values()


def table(run: str, *parts: str) -> pd.DataFrame:
    """A CSV of a run as a frame."""
    return pd.read_csv(path(run, *parts), keep_default_na=False, na_values=[""])


def metrics_of(run: str, stage: str) -> dict:
    """The `metrics.json` of a stage."""
    return read_json(path(run, stage, "metrics.json"))


def iterations(run: str, stage: str) -> list[int]:
    """The iterations of a run in which `stage` is finished, in order. Raises StageError where there is none."""
    done = [p.parent.parent.name for p in run_folder(run).glob(f"iter-*/{stage}/manifest.json")]
    if not done:
        raise StageError(f"run '{run}' has no finished {stage} in {run_folder(run)}: 'wevo run --run {run}' makes it")
    return sorted(int(name.removeprefix("iter-")) for name in done)
