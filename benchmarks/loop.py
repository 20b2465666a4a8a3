"""What the whole loop costs: seconds, tokens, calls, steps a second and peak memory, stage by stage.

Runs the chain as `wevo run` does, from the start, then reads what each stage wrote down (manifest,
trajectories.jsonl, loss.csv); or only reads a run that is finished. Prints a table and writes
benchmarks/results/loop.json. Needs what `wevo run` needs: a Chromium, a model, a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from wevo_nb import chain
from wevo_nb.params import ROOT, ParamsError
from wevo_nb.provenance import provenance
from wevo_nb.runs import StageError, read_json, run_folder, write_json

RESULTS = ROOT / "benchmarks" / "results" / "loop.json"
COUNTS = ("calls", "prompt_tokens", "completion_tokens")
COLUMNS = ("stage", "seconds", "share", *COUNTS, "episodes", "steps", "unit", "steps_per_second", "peak_memory_mb")
NO_STEPS = {"episodes": None, "steps": None, "unit": "", "steps_per_second": None}


def run_chain(profile: str, run: str):
    """`wevo run` from the start; old folders of the same name are set aside. Raises where it fails."""
    command = [sys.executable, "-m", "wevo_nb.cli", "run", "--profile", profile, "--run", run, "--fresh"]
    subprocess.run(command, cwd=ROOT, check=True)


def steps_of(folder: Path) -> dict:
    """episodes, steps and what a step is: an action of an episode, or an update of the optimizer."""
    episodes, losses = folder / "trajectories.jsonl", folder / "loss.csv"
    if episodes.exists():
        lines = [json.loads(line) for line in episodes.read_bytes().split(b"\n") if line]
        return NO_STEPS | {"episodes": len(lines), "steps": sum(len(one["steps"]) for one in lines), "unit": "actions"}
    if losses.exists():
        return NO_STEPS | {"steps": len(losses.read_text().splitlines()) - 1, "unit": "updates"}
    return NO_STEPS


def stage_row(folder: Path, stage: str) -> dict | None:
    """One stage in figures; None where it is not finished."""
    manifest = read_json(folder / "manifest.json")
    if manifest is None:
        return None
    used = {key: sum(role.get(key, 0) for role in manifest["usage"].values()) for key in COUNTS}
    row = {"stage": stage, "seconds": manifest["seconds"], **used, **steps_of(folder)}
    if row["steps"]:
        row["steps_per_second"] = round(row["steps"] / row["seconds"], 2)
    return row | {"peak_memory_mb": manifest["peak_memory_mb"]}


def measure(run: str) -> dict:
    """Rows of a run's finished stages, their total, and the wall time of its notebooks. Raises StageError."""
    profile, overrides = chain.made_with(run)
    planned, folder = chain.plan(profile, overrides), run_folder(run)
    found = {part: stage_row(folder / part, part) for step in planned for part in step.parts}
    rows = [row for row in found.values() if row]
    if not rows:
        raise StageError(f"no stage of run '{run}' is finished in {folder}: 'wevo run --run {run}' goes on with it")
    seconds = sum(row["seconds"] for row in rows)
    rows = [row | {"share": round(row["seconds"] / seconds, 3)} for row in rows]
    total = {"stage": "total", "seconds": round(seconds, 1), "share": 1.0, **NO_STEPS}
    total |= {key: sum(row[key] for row in rows) for key in COUNTS}
    total["episodes"] = sum(row["episodes"] or 0 for row in rows)
    total["peak_memory_mb"] = max(row["peak_memory_mb"] for row in rows)
    executed = [read_json(folder / step.stage / "notebook.ipynb") or {} for step in planned]
    walls = [book.get("metadata", {}).get("papermill", {}).get("duration") or 0.0 for book in executed]
    return {
        "run": run, "profile": profile, "overrides": overrides, "rows": rows, "total": total,
        "notebook_seconds": round(sum(walls), 1), "unfinished": [part for part, row in found.items() if not row],
    }  # fmt: skip


def machine() -> dict:
    return {"system": platform.platform(), "memory_gb": round(psutil.virtual_memory().total / 2**30, 1)}


def table(rows: list[dict]) -> str:
    """Rows as aligned text under COLUMNS."""
    lines = [[key.replace("_", " ") for key in COLUMNS], *([shown(row[key]) for key in COLUMNS] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.rjust, line, widths)) for line in lines)


def shown(value: str | float | None) -> str:
    if value is None or isinstance(value, str):
        return value or "-"
    return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", default="smoke", help="a file of params/ to run (default: smoke)")
    parser.add_argument("--run", metavar="NAME", help="read this run, and run nothing (default: bench-PROFILE, anew)")
    asked = parser.parse_args()
    run = asked.run or f"bench-{asked.profile}"
    try:
        if not asked.run:
            run_chain(asked.profile, run)
        result = {"measured": datetime.now(UTC).isoformat(timespec="seconds"), "machine": machine(), **measure(run)}
    except (StageError, ParamsError, subprocess.CalledProcessError) as problem:
        raise SystemExit(str(problem)) from None
    write_json(RESULTS, result | {"versions": provenance()})
    print(table([*result["rows"], result["total"]]))
    print(f"the notebooks took {result['notebook_seconds']:,.1f} s, start of their kernels included")
    print(f"not finished: {', '.join(result['unfinished']) or 'none'}; written: {RESULTS}")


if __name__ == "__main__":
    main()
