"""Exercises of notebook 05, answered on finished runs.

python docs/solutions/05_wmla.py demo           # exercise 1
python docs/solutions/05_wmla.py scorers        # exercise 2, for the run that it makes
python docs/solutions/05_wmla.py grid           # exercise 3, for the run that it makes
"""

from __future__ import annotations

import sys

import pandas as pd
from finished import table, trajectories

from wevo_nb import metrics
from wevo_nb.runs import run_folder


def exercise_1(run: str, *, plain: str = "zero_shot", ahead: str = "zero_shot+wmla_d1") -> pd.DataFrame:
    """The held-out episodes that only one of two arms solved: task (its key), solved_by. To look at with `wevo show`.

    Seeds with the very same page and goal count once, as in every table of success.
    """
    solved = {
        arm: {t.task.key: t.verdict.success for t in metrics.different(trajectories(run, f"05_wmla/{arm}"))}
        for arm in (plain, ahead)
    }
    both = sorted(solved[plain].keys() & solved[ahead].keys())
    rows = [
        {"task": key, "solved_by": ahead if solved[ahead][key] else plain}
        for key in both
        if solved[plain][key] != solved[ahead][key]
    ]
    return pd.DataFrame(rows, columns=["task", "solved_by"])


def exercise_2(run: str, *, split: str = "test_seeds") -> pd.DataFrame:
    """Each way to look ahead against its plain policy, where that was run as well, and its price.

    Columns arm, n, won, lost, difference, low, high, p, calls (of models, a decision), tokens, seconds.
    """
    price = table(run, "05_wmla", "lookahead.csv").fillna({"preset": ""})
    price = price[(price["split"] == split) & (price["preset"] != "")]
    price["arm"] = price["policy"] + "+" + price["preset"]
    there = [a for a in price["arm"] if (run_folder(run) / "05_wmla" / a.partition("+")[0] / "manifest.json").exists()]
    results = {a: trajectories(run, f"05_wmla/{a}") for arm in there for a in (arm, arm.partition("+")[0])}
    pairs = metrics.paired_table(results, [(arm.partition("+")[0], arm) for arm in there])
    pairs = pairs[pairs["split"] == split].rename(columns={"arm_b": "arm"}).drop(columns=["arm_a", "split"])
    return pairs.merge(price[["arm", "calls", "tokens", "seconds"]], on="arm")


def exercise_3(run: str, *, split: str = "test_seeds") -> pd.DataFrame:
    """Success by the number of candidates and the depth: series, axis, x, n, rate, low, high.

    A grid has a best cell by luck alone: believe a difference between cells only where it stands in
    pairs, on episodes that it was not chosen on.
    """
    return metrics.grid_table(table(run, "05_wmla", "lookahead.csv").fillna({"preset": ""}), split)


if __name__ == "__main__":
    for run in sys.argv[1:] or ["demo"]:
        print(exercise_2(run).round(3).to_string(), exercise_3(run).round(2).to_string(), sep="\n\n")
        if (run_folder(run) / "05_wmla" / "zero_shot+wmla_d1").exists():
            print("", exercise_1(run).to_string(), sep="\n")
