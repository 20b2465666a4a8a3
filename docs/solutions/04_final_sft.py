"""Exercises of notebook 04, answered on finished runs.

python docs/solutions/04_final_sft.py demo          # exercises 1 and 3
python docs/solutions/04_final_sft.py demo lora     # exercise 2 too, for the run that it makes
"""

from __future__ import annotations

import sys

import pandas as pd
from finished import metrics_of, path, table, trajectories

from wevo_nb import metrics
from wevo_nb.runs import read_json, run_folder
from wevo_nb.sections import FINAL_ARMS


def exercise_1(run: str, *, stage: str = "iter-1/04_self_improve") -> pd.DataFrame:
    """What a policy learned from, fewest different rows first: task, rows, different, times (a row on average).

    `different` is what there would be without repeats.
    """
    rows = read_json(path(run, stage, "rows.json"))
    told = pd.DataFrame([{"task": row["task"], "row": str((row["messages"], row["reply"]))} for row in rows])
    counts = told.groupby("task")["row"].agg(rows="size", different="nunique").reset_index()
    counts["times"] = counts["rows"] / counts["different"]
    return counts.sort_values(["different", "task"], ignore_index=True)


def exercise_2(run: str, other: str, *, arm: str = "self_improve_1") -> pd.DataFrame:
    """`arm` of the run `other` against the same arm of `run` on the same held-out episodes: `metrics.paired_table`."""
    both = {one: trajectories(one, f"05_wmla/{arm}") for one in (run, other)}
    return metrics.paired_table(both, [(run, other)])


def exercise_3(run: str, *, against: str = "self_improve_1", split: str = "test_seeds") -> pd.DataFrame:
    """Every final arm: the different rows it had beside the real ones, and how it did against `against`.

    Columns arm, beside, n, won, lost, difference, low, high, p.
    """
    pairs = table(run, "06_analysis", "tables", "paired.csv")
    mine = pairs[(pairs["arm_a"] == against) & (pairs["split"] == split) & pairs["arm_b"].isin(FINAL_ARMS)]
    there = [arm for arm in mine["arm_b"] if (run_folder(run) / f"04_{arm}" / "metrics.json").exists()]
    beside = {arm: metrics_of(run, f"04_{arm}")["rows"]["beside, different"] for arm in there}
    mine = mine.assign(arm=mine["arm_b"], beside=mine["arm_b"].map(beside))
    return mine[["arm", "beside", "n", "won", "lost", "difference", "low", "high", "p"]].reset_index(drop=True)


if __name__ == "__main__":
    run, *others = sys.argv[1:] or ["demo"]
    print(exercise_1(run).round(2).to_string(), exercise_3(run).round(3).to_string(), sep="\n\n")
    for other in others:
        print("", exercise_2(run, other).round(3).to_string(), sep="\n")
