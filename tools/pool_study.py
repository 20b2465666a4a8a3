#!/usr/bin/env python3
"""Pools the runs of a study, one a seed: the tables and figures that docs/STUDY.md quotes.

    .venv/bin/python tools/pool_study.py study-1 study-2 --out docs/study

Reads finished runs below outputs/ (or WEVO_OUTPUTS). Episodes of all runs are put together arm by
arm, so n and the intervals are over episodes; a table by run stands beside them, since another
training seed moves all episodes of a run at once.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

import pandas as pd

from wevo_nb import exploration, figures, metrics
from wevo_nb.judge import as_collected
from wevo_nb.params import Params, load_params
from wevo_nb.runs import JSONL, read_json, run_folder, sha256, write_csv
from wevo_nb.schema import Trajectory


def tested(runs: list[str], arms: tuple[str, ...]) -> dict[str, dict[str, list[Trajectory]]]:
    """Episodes by run and arm. Raises SystemExit where an arm is not finished."""
    found: dict[str, dict[str, list[Trajectory]]] = {}
    for run in runs:
        for arm in arms:
            folder = run_folder(run) / "05_wmla" / arm
            if not (folder / "manifest.json").exists():
                raise SystemExit(f"{folder} is not finished: wevo run --profile study --run {run}")
            found.setdefault(run, {})[arm] = JSONL(folder / "trajectories.jsonl", Trajectory).values()
    return found


async def stalled(runs: list[str], found: dict, params: Params) -> pd.DataFrame:
    """`stall_table` of the collections and of the tests of all runs together."""
    collected = {
        i: [t for run in runs for t in await as_collected(run_folder(run) / f"iter-{i}/01_collect", params)]
        for i in range(1, params.iterations + 1)
    }
    pooled = {arm: [t for run in runs for t in found[run][arm]] for arm in found[runs[0]]}
    rounds = {i: pooled[arm] for arm in pooled if (i := metrics.iteration_of(arm)) is not None}
    lines = {"self_improve": collected, "self_improve_tests": rounds}
    lines["webevolver_tests"] = rounds | {max(rounds) + 1: pooled["webevolver"]}
    return pd.concat([exploration.stall_table(groups, arm=arm) for arm, groups in lines.items()], ignore_index=True)


def dreams(runs: list[str]) -> pd.DataFrame:
    """How many imagined episodes were accepted in each run, kept, replayed and true."""
    rows = []
    for run in runs:
        told = read_json(run_folder(run) / "03_synthesize" / "metrics.json")
        counts = {step["step"]: step["kept"] for step in told["funnel"]} | told["truth"]
        rate, low, high = metrics.wilson(counts["true"], counts["replayed"])
        rows.append({"run": run, **counts, "truth_rate": rate, "low": low, "high": high})
    return pd.DataFrame(rows)


def cards(runs: list[str], iteration: int) -> pd.DataFrame:
    """The report card of each run's last world model."""
    paths = {run: run_folder(run) / f"iter-{iteration}/02_wm_train/report_card.csv" for run in runs}
    return pd.concat([pd.read_csv(path).assign(run=run) for run, path in paths.items()], ignore_index=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("runs", nargs="+", metavar="RUN")
    parser.add_argument("--profile", default="study")
    parser.add_argument("--out", type=Path, default=Path("docs/study"))
    asked = parser.parse_args()
    params = load_params(asked.profile).params
    found = tested(asked.runs, params.arms())
    pooled = {arm: [t for run in asked.runs for t in found[run][arm]] for arm in params.arms()}
    pairs = metrics.comparisons(list(pooled))
    by_run = [metrics.success_table(found[run]).assign(run=run) for run in asked.runs]
    tables = {
        "success": metrics.success_table(pooled),
        "success_by_run": pd.concat(by_run, ignore_index=True),
        "paired": metrics.paired_table(pooled, pairs),
        "paired_by_run": pd.concat([metrics.paired_table(found[r], pairs).assign(run=r) for r in asked.runs]),
        "tasks": metrics.task_table(pooled),
        "stall": asyncio.run(stalled(asked.runs, found, params)),
        "dreams": dreams(asked.runs),
        "report_card": cards(asked.runs, params.iterations),
    }
    for name, table in tables.items():
        write_csv(asked.out / "tables" / f"{name}.csv", table)
    inputs = {run: sha256(run_folder(run) / "06_analysis" / "manifest.json") for run in asked.runs}
    drawn = {
        "success_by_arm": (figures.success_by_arm, tables["success"], "Success by arm, all seeds together."),
        "paired_differences": (figures.paired_differences, tables["paired"], "Paired differences, all seeds together."),
        "success_by_task": (figures.success_by_task, tables["tasks"], "Successes by task, all seeds together."),
        "stall": (figures.stall, tables["stall"], "What each iteration still finds, all seeds together."),
    }
    for name, (draw, frame, caption) in drawn.items():
        figures.save_figure(draw(frame), frame, asked.out / "figures", name, inputs, caption)
    rows = tables["paired"].to_dict("records")
    print("\n".join(f"{row['split']}: {metrics.describe_pair(row)}" for row in rows))


if __name__ == "__main__":
    main()
