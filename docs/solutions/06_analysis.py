"""Exercises of notebook 06, answered on finished runs.

python docs/solutions/06_analysis.py demo             # exercises 1 to 3
python docs/solutions/06_analysis.py demo demo-1      # exercise 4 too
"""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
from finished import table

from wevo_nb import intervals, metrics
from wevo_nb.runs import StageError


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


def exercise_3(run: str, *, split: str = "test_seeds") -> pd.DataFrame:
    """How many episodes would settle each pair that is open, were its shares of won and lost the true ones.

    Columns arm_b, arm_a, n, won, lost, needed: the least n at which the McNemar test comes out below 0.05 four times
    in five. nan where won and lost are alike: no n settles a difference of 0.
    """
    pairs = table(run, "06_analysis", "tables", "paired.csv")
    unsure = pairs[(pairs["split"] == split) & (pairs["low"] <= 0) & (pairs["high"] >= 0)]
    needed = [episodes_needed(row.won / row.n, row.lost / row.n) for row in unsure.itertuples()]
    return unsure[["arm_b", "arm_a", "n", "won", "lost"]].assign(needed=needed).reset_index(drop=True)


def episodes_needed(won: float, lost: float) -> float:
    """The least n with a power of intervals.POWER where these shares of episodes are won and lost, by halving."""
    if won == lost:
        return np.nan
    enough = lambda n: intervals.mcnemar_power(n, won + lost, abs(won - lost)) >= intervals.POWER  # noqa: E731
    high = 1
    while not enough(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return float(high)


def exercise_4(a: str, b: str, *, split: str = "test_seeds") -> pd.DataFrame:
    """Whether two runs' differences lie further apart than their episodes alone explain, a row a pair that both have.

    Columns arm_b, arm_a, a and b (differences, fractions), gap (b - a), low, high, apart (0 is outside). The interval
    of the gap of two independent numbers is made of their own (Newcombe 1998; MOVER). Where a pair is apart, the
    seed moved the gain, and one run's interval is too narrow; of twenty pairs one is apart by luck.
    """
    keys = ["arm_b", "arm_a"]
    tables = [table(run, "06_analysis", "tables", "paired.csv") for run in (a, b)]
    one, other = (pairs[pairs["split"] == split].set_index(keys)[["difference", "low", "high"]] for pairs in tables)
    both = one.add_suffix("_a").join(other.add_suffix("_b"), how="inner")
    gap = both["difference_b"] - both["difference_a"]
    below = np.hypot(both["difference_b"] - both["low_b"], both["high_a"] - both["difference_a"])
    above = np.hypot(both["high_b"] - both["difference_b"], both["difference_a"] - both["low_a"])
    side = {a: both["difference_a"], b: both["difference_b"], "gap": gap, "low": gap - below, "high": gap + above}
    told = pd.DataFrame(side)
    return told.assign(apart=(told["low"] > 0) | (told["high"] < 0)).reset_index()


if __name__ == "__main__":
    run, *others = sys.argv[1:] or ["demo"]
    print(exercise_1(run), exercise_2(run), exercise_3(run).to_string(), sep="\n\n")
    for other in others[:1]:
        print("", exercise_4(run, other).round(3).to_string(), sep="\n")
