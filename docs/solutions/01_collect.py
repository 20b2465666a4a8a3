"""Exercises of notebook 01, answered on finished runs.

python docs/solutions/01_collect.py demo          # exercises 1 and 3
python docs/solutions/01_collect.py demo cold     # exercise 2 too, for the run that it makes
"""

from __future__ import annotations

import sys
from math import comb

import pandas as pd
from finished import iterations, metrics_of, trajectories

from wevo_nb.metrics import wilson


def exercise_1(run: str, *, episodes: int = 5, iteration: int = 1) -> pd.DataFrame:
    """How likely `episodes` of each kind's episodes, drawn without putting back, hold a success at all.

    Columns task, n, successes, chance (a fraction). Of n episodes with c successes a draw of k holds
    none in C(n - c, k) of C(n, k) cases. A kind with fewer than k episodes is drawn whole.
    """
    rows = []
    for row in metrics_of(run, f"iter-{iteration}/01_collect")["by_task"]:
        n, c = row["n"], row["successes"]
        k = min(episodes, n)
        rows.append({"task": row["task"], "n": n, "successes": c, "chance": 1 - comb(n - c, k) / comb(n, k)})
    return pd.DataFrame(rows).sort_values("chance", ignore_index=True, kind="stable")


def exercise_2(*runs: str, iteration: int = 1) -> pd.DataFrame:
    """Collections side by side: run, temperature, episodes, successes, kinds solved at least once."""
    rows = []
    for run in runs:
        stage = f"iter-{iteration}/01_collect"
        kept = trajectories(run, stage, "kept.jsonl")
        funnel = {step["step"]: step["kept"] for step in metrics_of(run, stage)["funnel"]}
        counts = {"episodes": funnel["episodes"], "successes": funnel["successes"]}
        rows.append({"run": run, **counts, "kinds": len({t.task.name for t in kept})})
    return pd.DataFrame(rows)


def exercise_3(run: str) -> pd.DataFrame:
    """What each iteration's collection found: iteration, n, successes, rate, low, high, new_kinds.

    new_kinds: kinds of task with a success here and none in an earlier iteration.
    """
    rows, known = [], set()
    for iteration in iterations(run, "01_collect"):
        by_task = metrics_of(run, f"iter-{iteration}/01_collect")["by_task"]
        solved = {row["task"] for row in by_task if row["successes"]}
        n, won = sum(row["n"] for row in by_task), sum(row["successes"] for row in by_task)
        rate = dict(zip(("rate", "low", "high"), wilson(won, n), strict=True))
        rows.append({"iteration": iteration, "n": n, "successes": won, **rate, "new_kinds": len(solved - known)})
        known |= solved
    return pd.DataFrame(rows)


if __name__ == "__main__":
    run, *others = sys.argv[1:] or ["demo"]
    print(exercise_1(run).round(2).to_string(), exercise_3(run).round(2).to_string(), sep="\n\n")
    if others:
        print("", exercise_2(run, *others).to_string(), sep="\n")
