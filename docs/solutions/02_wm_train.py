"""Exercises of notebook 02, answered on finished runs.

python docs/solutions/02_wm_train.py demo               # exercise 1
python docs/solutions/02_wm_train.py demo flat          # exercise 2, for the run that it makes
python docs/solutions/02_wm_train.py demo study         # exercise 3
"""

from __future__ import annotations

import sys

import pandas as pd
from finished import iterations, path, table

from wevo_nb.runs import StageError, read_json
from wevo_nb.targets import WORDS

SHOWN = ("exact_match", "exact_changed", "outcome_accuracy", "changed_f1", "auc_success")


def exercise_1(run: str, *, iteration: int | None = None) -> pd.DataFrame:
    """How much of what the world model learns to write names the outcome.

    Columns outcome, rows, characters (of all replies together), share (of them in the outcome's
    phrase), and a last row `all`. By default of the newest world model.
    """
    iteration = iteration or iterations(run, "02_wm_train")[-1]
    rows = pd.DataFrame(read_json(path(run, f"iter-{iteration}/02_wm_train", "rows.json")))
    rows["characters"] = rows["reply"].str.len()
    rows["named"] = [min(len(WORDS[o]), n) for o, n in zip(rows["outcome"], rows["characters"], strict=True)]
    by = rows.groupby("outcome")[["characters", "named"]].agg("sum").assign(rows=rows["outcome"].value_counts())
    by.loc["all"] = by.sum()
    by["share"] = by["named"] / by["characters"]
    return by.reset_index()[["outcome", "rows", "characters", "share"]]


def newest(run: str, iteration: int | None = None) -> pd.DataFrame:
    """The rows of the report card that tell the world model itself, at depth 1: metric, n, value, low, high.

    By default of the run's newest iteration. Raises StageError where the card has no such model.
    """
    iteration = iteration or iterations(run, "02_wm_train")[-1]
    card = table(run, f"iter-{iteration}/02_wm_train", "report_card.csv")
    mine = card[(card["model"] == f"iteration_{iteration}") & (card["depth"] == 1) & card["metric"].isin(SHOWN)]
    if mine.empty:
        raise StageError(f"the report card of iteration {iteration} of '{run}' has no row of iteration_{iteration}")
    return mine[["metric", "n", "value", "low", "high"]]


def exercise_2(*runs: str, iteration: int | None = 1) -> pd.DataFrame:
    """Report cards side by side: run, metric, n, value, low, high (fractions)."""
    return pd.concat([newest(run, iteration).assign(run=run) for run in runs])[
        ["metric", "run", "n", "value", "low", "high"]
    ].sort_values("metric", ignore_index=True, kind="stable")


def exercise_3(*runs: str) -> pd.DataFrame:
    """The same for the newest world model of each run. Their held-out pages differ: no paired comparison."""
    return exercise_2(*runs, iteration=None)


if __name__ == "__main__":
    run, *others = sys.argv[1:] or ["demo"]
    print(exercise_1(run).round(2).to_string())
    if others:
        print("", exercise_3(run, *others).round(2).to_string(), sep="\n")
