#!/usr/bin/env python3
"""Adds up the runs of a study, one a seed: the tables and figures that docs/STUDY.md quotes.

    .venv/bin/python tools/pool_study.py study-1 study-2 --out docs/study

Reads finished runs below outputs/ (or WEVO_OUTPUTS), with their analyses; `wevo_nb.repeats` says which
arms differ in the seed alone, and adds these up. Notebook 06 does the same with `analysis.runs`; this
also copies what each run's own analysis says.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from wevo_nb import comparisons, figures, metrics, noise, repeats
from wevo_nb.intervals import wilson
from wevo_nb.params import load_params
from wevo_nb.runs import StageError, read_json, run_folder, sha256, write_csv


def read(runs: list[str]) -> repeats.Repeats:
    """The arms of these runs, in the order of the profile. Raises SystemExit where one is not finished or not alike."""
    for run in runs:
        if not (run_folder(run) / "06_analysis" / "manifest.json").exists():
            raise SystemExit(f"{run_folder(run)} is no finished run: wevo run --profile study --run {run}")
    made = read_json(run_folder(runs[0]) / "run.json")
    try:
        return repeats.read(runs, load_params(made["profile"], made.get("overrides", {})).params.arms())
    except StageError as problem:
        raise SystemExit(str(problem)) from None


def dreams(run: str) -> pd.DataFrame:
    """How many imagined episodes were accepted, kept, replayed and true."""
    told = read_json(run_folder(run) / "03_synthesize" / "metrics.json")
    counts = {step["step"]: step["kept"] for step in told["funnel"]} | told["truth"]
    rate, low, high = wilson(counts["true"], counts["replayed"])
    return pd.DataFrame([{**counts, "truth_rate": rate, "low": low, "high": high}])


def analysed(name: str):
    """A table of a run's own analysis."""
    return lambda run: pd.read_csv(run_folder(run) / "06_analysis" / "tables" / f"{name}.csv")


def synthesized(name: str):
    """A table of a run's synthesis."""
    return lambda run: pd.read_csv(run_folder(run) / "03_synthesize" / f"{name}.csv")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("runs", nargs="+", metavar="RUN")
    parser.add_argument("--out", type=Path, default=Path("docs/study"))
    asked = parser.parse_args()
    found = read(asked.runs)
    print("\n".join(repeats.describe(found)))
    pairs = comparisons.reported(list(dict.fromkeys(arm for arms in found.found.values() for arm in arms)))
    each = {
        "tasks_by_run": lambda run: metrics.task_table(found.found[run]),
        "dreams": dreams,
        "dreams_by_kind": synthesized("kinds"),
        "truth": synthesized("truth"),
        **{name: analysed(name) for name in ("report_card", "stall", "lookahead", "ledger")},
    }
    tables = {
        name: pd.concat([make(run).assign(run=run) for run in asked.runs], ignore_index=True)
        for name, make in each.items()
    }
    tables["success_by_run"] = repeats.runs_table(found)
    by_pair = comparisons.mark_twins(repeats.paired_runs_table(found, pairs), noise.same_in_all(asked.runs))
    tables["paired_by_run"] = by_pair[~by_pair["same_policy"]].drop(columns=["same_policy", "p_holm"])
    tables["success"] = repeats.added_rates(tables["success_by_run"])
    tables["paired"] = repeats.added_pairs(tables["paired_by_run"])
    tables["tasks"] = repeats.added_rates(tables["tasks_by_run"], ["task", "arm", "split"])
    for name, table in tables.items():
        write_csv(asked.out / "tables" / f"{name}.csv", table)
    inputs = {run: sha256(run_folder(run) / "06_analysis" / "manifest.json") for run in asked.runs}
    drawn = {
        "success_by_arm": (figures.success_by_arm, tables["success"], "Success by arm, all seeds added up."),
        "paired_differences": (figures.paired_differences, tables["paired"], "Paired differences, all seeds added up."),
        "success_by_task": (figures.success_by_task, tables["tasks"], "Successes by task, all seeds added up."),
    }
    for run, rows in tables["stall"].groupby("run"):
        drawn[f"stall_{run}"] = (figures.stall, rows, f"What each iteration still finds, {run}.")
    for name, (draw, frame, caption) in drawn.items():
        figures.save_figure(draw(frame), frame, asked.out / "figures", name, inputs, caption)
    for row in tables["paired"].to_dict("records"):
        print(f"{row['split']}: {comparisons.brief(row)}")


if __name__ == "__main__":
    main()
