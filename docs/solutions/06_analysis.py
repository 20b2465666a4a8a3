"""Exercises of notebook 06, answered on finished runs.

python docs/solutions/06_analysis.py demo             # exercises 1 to 3
python docs/solutions/06_analysis.py demo demo-1      # exercise 4 too
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from finished import table, trajectories

from wevo_nb import figures, metrics
from wevo_nb.runs import StageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def exercise_1(run: str, *, split: str = "test_seeds") -> dict:
    """The kind of task with the largest gain of the last self-improvement over zero-shot.

    task, gain (episodes), total (of all kinds), share (gain / total; nan where the total is 0).
    A kind may gain more than all together, where others lose.
    """
    tasks = table(run, "06_analysis", "tables", "tasks.csv")
    tasks = tasks[tasks["split"] == split]
    improved = [arm for arm in tasks["arm"].unique() if metrics.iteration_of(arm)]
    if not improved:
        raise StageError(f"run '{run}' has no arm self_improve_<i>: it needs one beside zero_shot")
    won = tasks.pivot(index="task", columns="arm", values="successes")
    gain = won[max(improved, key=metrics.iteration_of)] - won["zero_shot"]
    task, total = gain.idxmax(), int(gain.sum())
    return {
        "task": task,
        "gain": int(gain[task]),
        "total": total,
        "share": float(gain[task] / total) if total else np.nan,
    }


def exercise_2(run: str, *, a: str = "zero_shot", b: str = "self_improve_1") -> dict:
    """Both splits of a pair as one: n, won, lost, difference, low, high, p.

    Fair where the question is about these episodes together; not fair as an average over kinds of
    task, because the split with more episodes decides, and the two ask different things.
    """
    pairs = table(run, "06_analysis", "tables", "paired.csv")
    mine = pairs[(pairs["arm_a"] == a) & (pairs["arm_b"] == b)]
    if mine.empty:
        raise StageError(f"paired.csv of run '{run}' does not compare {b} with {a}: take a pair that it has")
    n, won, lost = (int(mine[column].sum()) for column in ("n", "won", "lost"))
    return {"n": n, "won": won, "lost": lost, **metrics.paired(won, lost, n)}


def exercise_3(
    run: str, *, a: str = "zero_shot", b: str = "self_improve_1", split: str = "test_seeds", draws: int = 10_000
) -> dict:
    """The difference of two arms with an interval that resamples whole kinds of task.

    difference, low, high (fractions; percentiles 2.5 and 97.5), kinds, and wider: its width over that of
    `metrics.paired`. With few kinds such an interval is itself uncertain, and rather too narrow.
    """
    outcomes = {}
    for arm in (a, b):
        for one in metrics.different(trajectories(run, f"05_wmla/{arm}")):
            if one.task.split == split and one.verdict and one.verdict.outcome != "unscored":
                outcomes.setdefault((one.task.name, one.task.seed), {})[arm] = one.verdict.success
    both = {key: found for key, found in outcomes.items() if len(found) == 2}
    if not both:
        raise StageError(f"{a} and {b} of run '{run}' share no scored episode of {split}")
    told = pd.DataFrame([{"kind": kind, "gain": found[b] - found[a]} for (kind, _), found in both.items()])
    kinds = told.groupby("kind")["gain"].agg(["sum", "size"]).to_numpy()
    drawn = kinds[np.random.default_rng(0).integers(len(kinds), size=(draws, len(kinds)))].sum(axis=1)
    low, high = np.percentile(drawn[:, 0] / drawn[:, 1], [2.5, 97.5])
    plain = metrics.paired(int((told["gain"] > 0).sum()), int((told["gain"] < 0).sum()), len(told))
    return {
        "difference": plain["difference"],
        "low": float(low),
        "high": float(high),
        "kinds": len(kinds),
        "wider": float(high - low) / (plain["high"] - plain["low"]),
    }


def exercise_4(*runs: str, split: str = "test_seeds") -> tuple[pd.DataFrame, Figure]:
    """Every comparison of the runs side by side, and one forest plot with a panel a run.

    Columns arm_b, arm_a, one a run (difference, a fraction), same_sign: all above 0 or all below.
    """
    tables = [table(run, "06_analysis", "tables", "paired.csv").assign(run=run) for run in runs]
    pairs = pd.concat([one[one["split"] == split] for one in tables], ignore_index=True)
    side = pairs.pivot(index=["arm_b", "arm_a"], columns="run", values="difference")[list(runs)]
    side["same_sign"] = (side > 0).all(axis=1) | (side < 0).all(axis=1)
    return side.reset_index(), figures.paired_differences(pairs.assign(split=pairs["run"]))


if __name__ == "__main__":
    run, *others = sys.argv[1:] or ["demo"]
    print(exercise_1(run), exercise_2(run), exercise_3(run), sep="\n\n")
    if others:
        frame, figure = exercise_4(run, *others)
        figure.savefig("forest.png", dpi=150)
        print("", frame.round(3).to_string(), "drawn: forest.png", sep="\n")
