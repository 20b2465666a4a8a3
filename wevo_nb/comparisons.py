"""Which arms are compared with which, and how a comparison is told: what it shows, or what it could have shown.

Reads the tables of metrics.py, returns pairs of names and sentences; writes nothing. Notebooks 05 and 06.
Paper: Table 1, whose steps these pairs are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from wevo_nb.intervals import FEW_CLUSTERS, NAN, detectable
from wevo_nb.metrics import Clusters, iteration_of
from wevo_nb.params import FINAL_ARMS

if TYPE_CHECKING:
    import pandas as pd

    from wevo_nb.schema import Trajectory

SAME = "same actions"  # the result of a pair that did the very same: one policy under two names, or nothing overruled
PAIRS_COLUMNS = ["arm", "against", "n", "won", "lost", "points", "low", "high", "p", "result"]
KINDS = {"family": "task families", "site": "sites"}  # of clusters, in a sentence


def reported(arms: Sequence[str]) -> list[tuple[str, str]]:
    """The pairs (a, b) the notebooks report, b against a, among the arms that are there.

    Every arm against zero_shot; each iteration against the one before; each final policy against
    the first and the last iteration, and webevolver against every other of them; each look-ahead
    arm against its own policy, and against best-of-k with the same scorer, which imagines nothing.
    """
    improved = sorted((a for a in arms if iteration_of(a)), key=iteration_of)
    wanted = [("zero_shot", arm) for arm in arms]
    wanted += [(f"self_improve_{iteration_of(arm) - 1}", arm) for arm in improved]
    final = [arm for arm in arms if arm in FINAL_ARMS]
    wanted += [(arm, last) for last in final for arm in (*improved[:1], *improved[-1:])]
    wanted += [(arm, "webevolver") for arm in final]
    for arm in arms:
        policy, plus, preset = arm.partition("+")
        if plus:
            wanted += [(policy, arm), (f"{policy}+{control_of(preset)}", arm)]
    there = [(a, b) for a, b in wanted if a != b and a in arms and b in arms]
    return list(dict.fromkeys(there))


def control_of(preset: str) -> str:
    """The preset with the same scorer that imagines nothing. Source: the presets of params/base.yaml."""
    by_model = ("webdreamer", "paper", "released_code")
    return (
        f"best_of_k_{preset}"
        if preset in ("expected", "veto", "likelihood")
        else "best_of_k_llm"
        if preset in by_model
        else "best_of_k"
    )


def describe_clusters(table: pd.DataFrame, clusters: Clusters = "family") -> list[str]:
    """What drawing whole clusters does to the intervals of a `success_table` or `paired_table`: a sentence a split."""
    said = []
    for split, rows in table[table["n"] > 0].groupby("split", sort=False):
        least, most = int(rows["clusters"].min()), int(rows["clusters"].max())
        count = f"{least} to {most}" if least < most else f"{most}"
        wide = (rows["cluster_high"] - rows["cluster_low"]) / (rows["high"] - rows["low"])
        change = f"the intervals are {wide.median():.1f} times as wide (median)" if most > 1 else "there is no interval"
        few = f"; fewer than {FEW_CLUSTERS}, so these are too narrow even then" if 1 < most < FEW_CLUSTERS else ""
        said.append(f"{split}: over {count} {KINDS[clusters]} instead of episodes {change}{few}.")
    return said


def pairs_table(
    paired: pd.DataFrame, trajectories_by_arm: Mapping[str, Sequence[Trajectory]], split: str
) -> pd.DataFrame:
    """The rows of a `paired_table` on one split, PAIRS_COLUMNS: points and their interval in percentage points.

    result: better or worse where the interval is off 0, else open; SAME where both arms took the very same actions
    in every episode. A pair that shares no scored episode is left out. p is not corrected for the number of rows.
    """
    import pandas as pd

    rows = []
    for row in paired[(paired["split"] == split) & (paired["n"] > 0)].to_dict("records"):
        a, b = (trajectories_by_arm[row[key]] for key in ("arm_a", "arm_b"))
        points = {key: 100 * row[name] for key, name in (("points", "difference"), ("low", "low"), ("high", "high"))}
        result = "better" if row["low"] > 0 else "worse" if row["high"] < 0 else "open"
        if not row["won"] + row["lost"] and same_actions(a, b, split):
            result = SAME
        rows.append(row | points | {"arm": row["arm_b"], "against": row["arm_a"], "result": result})
    return pd.DataFrame(rows, columns=PAIRS_COLUMNS)


def same_actions(a: Iterable[Trajectory], b: Iterable[Trajectory], split: str) -> bool:
    """Whether two arms took the same actions, step by step, in every episode of a split; False where one has none."""
    done = [
        {(t.task.key, t.attempt): [s.decision.action for s in t.steps] for t in arm if t.task.split == split}
        for arm in (a, b)
    ]
    return bool(done[0]) and done[0] == done[1]


def told(row: Mapping[str, Any]) -> str:
    """A row of `pairs_table` in the shortest words, in percentage points."""
    if row["result"] == SAME:
        return f"{row['arm']} and {row['against']} (n = {row['n']})"
    points, low, high = (f"{round(row[key]):+d}".replace("+0", "0") for key in ("points", "low", "high"))
    counts = f"{row['won']} won, {row['lost']} lost, n = {row['n']}"
    return f"{row['arm']} against {row['against']} {points} [{low}, {high}] ({counts})"


def describe(row: Mapping[str, Any], clusters: Clusters = "family") -> str:
    """A row of `paired_table` as a sentence, in percentage points; where it is open, with what it could have shown."""
    n, won, lost = (int(row[key]) for key in ("n", "won", "lost"))
    if not n:
        return f"{row['arm_b']} and {row['arm_a']} share no scored episode of {row['split']}."
    points = 100 * row["difference"]
    how_far = f"{abs(points):.0f} points {'above' if points > 0 else 'below'}" if row["difference"] else "level with"
    p = "p < 0.001" if row["p"] < 0.001 else f"p = {row['p']:.3f}"
    settled = row["low"] > 0 or row["high"] < 0
    return (
        f"{row['arm_b']} is {how_far} {row['arm_a']} on {n} held-out episodes of {row['split']} "
        f"(95% interval {100 * row['low']:.0f} to {100 * row['high']:.0f}, "
        f"won {won}, lost {lost}, {p}){_by_cluster(row, KINDS[clusters]) if settled else _too_small(won, lost, n)}."
    )


def _too_small(won: int, lost: int, n: int) -> str:
    """What so many episodes can show, for a pair that is open."""
    least = 100 * detectable(won, lost, n)
    shown = f"{least:.0f} points or more, hardly less" if least == least else "no difference"
    return f"; the interval holds 0, the sign is open: {n} such episodes can show {shown}"


def _by_cluster(row: Mapping[str, Any], kind: str) -> str:
    """Whether a pair that is settled over episodes stays so over whole clusters; nothing where it does."""
    clusters, low, high = row.get("clusters", 0), row.get("cluster_low", NAN), row.get("cluster_high", NAN)
    if clusters == 1:
        return f"; of {kind} there is one, it may hold for no other"
    if not low <= 0 <= high:
        return ""
    few = ", and so few make it too narrow" if clusters < FEW_CLUSTERS else ""
    return f"; over {clusters:.0f} {kind} the interval is {100 * low:.0f} to {100 * high:.0f} and holds 0{few}"
