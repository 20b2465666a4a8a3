"""Exercises of notebook 03, answered on finished runs.

python docs/solutions/03_synthesize.py demo                      # exercise 1
python docs/solutions/03_synthesize.py demo more                 # exercise 2, for the run that it makes
python docs/solutions/03_synthesize.py dreams-1 dreams-2 dreams-3    # exercise 3 too: three runs
"""

from __future__ import annotations

import sys

import pandas as pd
from finished import iterations, metrics_of, table

from wevo_nb import metrics
from wevo_nb.runs import run_folder


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


def exercise_3(*runs: str, split: str = "test_seeds") -> pd.DataFrame:
    """The way from a world model to a policy, a row a run.

    Columns run, rows (that the world model learned from), auc_success (nan: no ends to rank), imagined,
    accepted, true, then webevolver against self_improve_1: n, won, lost, difference, low, high, p.
    """
    rows = []
    for run, dreams in zip(runs, exercise_2(*runs).to_dict("records"), strict=True):
        last = iterations(run, "02_wm_train")[-1]
        learned = metrics_of(run, f"iter-{last}/02_wm_train")["gate"]["rows"]
        card = table(run, f"iter-{last}/02_wm_train", "report_card.csv").set_index(["model", "depth", "metric"])
        auc = card["value"].get((f"iteration_{last}", 1, "auc_success"), metrics.NAN)
        pairs = table(run, "06_analysis", "tables", "paired.csv").set_index(["arm_a", "arm_b", "split"])
        n, won, lost = (int(pairs.loc[("self_improve_1", "webevolver", split), key]) for key in ("n", "won", "lost"))
        gain = {"n": n, "won": won, "lost": lost, **metrics.paired(won, lost, n)}
        told = {key: dreams[key] for key in ("imagined", "accepted", "true")}
        rows.append({"run": run, "rows": learned, "auc_success": auc, **told, **gain})
    return pd.DataFrame(rows)


if __name__ == "__main__":
    run, *others = sys.argv[1:] or ["demo"]
    print(exercise_1(run).round(2).to_string())
    if others:
        print("", exercise_2(run, *others).round(2).to_string(), sep="\n")
        analysed = [one for one in (run, *others) if (run_folder(one) / "06_analysis" / "manifest.json").exists()]
        print("", exercise_3(*analysed).round(3).to_string(), sep="\n")
