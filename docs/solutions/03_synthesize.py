"""Exercises of notebook 03, answered on finished runs.

python docs/solutions/03_synthesize.py demo                      # exercise 1
python docs/solutions/03_synthesize.py demo more                 # exercise 2, for the run that it makes
python docs/solutions/03_synthesize.py dreams-1 dreams-2 dreams-3    # exercise 3 too: three runs
"""

from __future__ import annotations

import sys

import pandas as pd
from finished import metrics_of, table

from wevo_nb import metrics


def exercise_1(where: str, *, precision: float = 0.8) -> pd.DataFrame:
    """The threshold that keeps most dreams at `precision` true, by the rate and, more cautious, by its lower end.

    `where` is a run, or the path of a truth.csv. Columns: by, threshold, n, true, rate, low, high; no row
    where no threshold is enough.
    """
    curve = pd.read_csv(where) if where.endswith(".csv") else table(where, "03_synthesize", "truth.csv")
    rows = []
    for by in ("rate", "low"):
        enough = curve[curve[by] >= precision]
        rows += enough.nlargest(1, "n").assign(by=by).to_dict("records")
    return pd.DataFrame(rows, columns=["by", *curve.columns])


def exercise_2(*runs: str) -> pd.DataFrame:
    """Dreams side by side: run, imagined, accepted, replayed, true, rate, low, high (of the replayed)."""
    rows = []
    for run in runs:
        told = metrics_of(run, "03_synthesize")
        kept, truth = {step["step"]: step["kept"] for step in told["funnel"]}, told["truth"]
        rate = dict(zip(("rate", "low", "high"), metrics.wilson(truth["true"], truth["replayed"]), strict=True))
        rows.append({"run": run, "imagined": kept["imagined"], "accepted": kept["accepted"], **truth, **rate})
    return pd.DataFrame(rows)


def exercise_3(*runs: str, against: str = "self_improve_1", split: str = "test_seeds") -> pd.DataFrame:
    """The arms that learned from dreams against `against`, won and lost added up over the runs.

    Columns arm, n, won, lost, difference, low, high, p. The interval is over episodes: what another
    training seed would give is seen in the runs one by one, not in it.
    """
    pairs = pd.concat([table(run, "06_analysis", "tables", "paired.csv") for run in runs])
    mine = pairs[(pairs["arm_a"] == against) & (pairs["split"] == split)]
    mine = mine[mine["arm_b"].isin(["webevolver", "true_dreams"])]
    rows = []
    for arm, counts in mine.groupby("arm_b")[["n", "won", "lost"]].sum().iterrows():
        n, won, lost = map(int, counts)
        rows.append({"arm": arm, "n": n, "won": won, "lost": lost, **metrics.paired(won, lost, n)})
    return pd.DataFrame(rows, columns=["arm", "n", "won", "lost", "difference", "low", "high", "p"])


if __name__ == "__main__":
    run, *others = sys.argv[1:] or ["demo"]
    print(exercise_1(run).round(2).to_string())
    if others:
        print("", exercise_2(run, *others).round(2).to_string(), sep="\n")
    if len(others) > 1:
        print("", exercise_3(run, *others).round(3).to_string(), sep="\n")
