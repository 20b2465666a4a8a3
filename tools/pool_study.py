#!/usr/bin/env python3
"""Pools the runs of a study, one a seed: the tables and figures that docs/STUDY.md quotes.

    .venv/bin/python tools/pool_study.py study-1 study-2 --out docs/study

Reads finished runs below outputs/ (or WEVO_OUTPUTS), with their analyses. Successes and pairs are
counted in each run and then added up, so n and the intervals are over episodes; the tables by run
stand beside them, since another training seed moves all episodes of a run at once.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from wevo_nb import figures, metrics
from wevo_nb.params import Params, flatten, load_params
from wevo_nb.runs import JSONL, read_json, run_folder, sha256, write_csv
from wevo_nb.schema import Trajectory

OWN = ("seed",)  # what runs of one study may differ in


def params_of(runs: list[str]) -> Params:
    """The params of all runs, as their stages noted them. Raises SystemExit where a run is not finished, or they
    differ in more than the seed.
    """
    for run in runs:
        if not (run_folder(run) / "06_analysis" / "manifest.json").exists():
            raise SystemExit(f"{run_folder(run)} is no finished run: wevo run --profile study --run {run}")
    first = noted(runs[0])
    for run in runs[1:]:
        if differ := sorted(key for key, value in (first | noted(run)).items() if first.get(key) != value):
            raise SystemExit(f"{run} and {runs[0]} were made with other params: {', '.join(differ[:5])}")
    made = read_json(run_folder(runs[0]) / "run.json")
    return load_params(made["profile"], made.get("overrides", {})).params


def noted(run: str) -> dict:
    """The params of each stage of a run that has them, by `<stage> <key>`; not the seed."""
    found = {}
    for path in sorted(run_folder(run).glob("**/params.json")):
        stage = path.parent.relative_to(run_folder(run)).as_posix()
        values = flatten(read_json(path)["params"]) if ".old-" not in stage else {}
        found |= {f"{stage} {key}": value for key, value in values.items() if key not in OWN}
    return found


def episodes(run: str, arms: tuple[str, ...]) -> dict[str, list[Trajectory]]:
    return {arm: JSONL(run_folder(run) / "05_wmla" / arm / "trajectories.jsonl", Trajectory).values() for arm in arms}


def added_rates(by_run: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Successes and n of all runs added up, with the Wilson interval."""
    total = by_run.groupby(keys, sort=False)[["n", "successes"]].sum().reset_index()
    bounds = [metrics.wilson(row.successes, row.n) for row in total.itertuples()]
    return total.assign(**dict(zip(("rate", "low", "high"), zip(*bounds, strict=True), strict=True)))


def added_pairs(by_run: pd.DataFrame) -> pd.DataFrame:
    """Won, lost and n of all runs added up, with the interval and p of `metrics.paired`."""
    total = by_run.groupby(["arm_a", "arm_b", "split"], sort=False)[["n", "won", "lost"]].sum().reset_index()
    rest = [metrics.paired(row.won, row.lost, row.n) for row in total.itertuples()]
    return pd.concat([total, pd.DataFrame(rest)], axis=1)


def dreams(run: str) -> pd.DataFrame:
    """How many imagined episodes were accepted, kept, replayed and true."""
    told = read_json(run_folder(run) / "03_synthesize" / "metrics.json")
    counts = {step["step"]: step["kept"] for step in told["funnel"]} | told["truth"]
    rate, low, high = metrics.wilson(counts["true"], counts["replayed"])
    return pd.DataFrame([{**counts, "truth_rate": rate, "low": low, "high": high}])


def analysed(name: str):
    """A table of a run's own analysis."""
    return lambda run: pd.read_csv(run_folder(run) / "06_analysis" / "tables" / f"{name}.csv")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("runs", nargs="+", metavar="RUN")
    parser.add_argument("--out", type=Path, default=Path("docs/study"))
    asked = parser.parse_args()
    arms = params_of(asked.runs).arms()
    found = {run: episodes(run, arms) for run in asked.runs}
    pairs = metrics.comparisons(list(arms))
    each = {
        "success_by_run": lambda run: metrics.success_table(found[run]),
        "paired_by_run": lambda run: metrics.paired_table(found[run], pairs),
        "tasks_by_run": lambda run: metrics.task_table(found[run]),
        "dreams": dreams,
        **{name: analysed(name) for name in ("report_card", "stall", "lookahead", "ledger")},
    }
    tables = {
        name: pd.concat([make(run).assign(run=run) for run in asked.runs], ignore_index=True)
        for name, make in each.items()
    }
    tables["success"] = added_rates(tables["success_by_run"], ["arm", "split"])
    tables["paired"] = added_pairs(tables["paired_by_run"])
    tables["tasks"] = added_rates(tables["tasks_by_run"], ["task", "arm", "split"])
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
        print(f"{row['split']}: {metrics.describe_pair(row)}")


if __name__ == "__main__":
    main()
