"""Numbers with their uncertainty: success rates, paired comparisons.

Reads trajectories and verdicts (schema.py), returns tables; writes nothing. A rate is a fraction
in 0..1 and never stands without its n and its 95% interval (intervals.py). Two arms are compared on
the same task and seed, never by their two rates. Notebooks 01, 02, 05 and 06. Paper: section 4, Table 1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from wevo_nb.intervals import (
    NAN,
    cluster_bootstrap,
    detectable,
    holm,
    paired,
    paired_bootstrap,
    unscored_bounds,
    wilson,
)

if TYPE_CHECKING:
    import pandas as pd

    from wevo_nb.params import Arm
    from wevo_nb.schema import Decision, Task, Trajectory

Clusters = Literal["family", "site"]

SPLITS = ("test_seeds", "test_tasks", "test_sites")  # the order of every table; other splits follow
SUCCESS_COLUMNS = ["arm", "split", "n", "successes", "rate", "low", "high"]
PAIRED_COLUMNS = ["arm_a", "arm_b", "split", "n", "won", "lost", "difference", "low", "high", "p"]
# More of a pair: p corrected for the table, the paired bootstrap, the least difference that it could have shown.
TEST_COLUMNS = ["p_holm", "boot_low", "boot_high", "detectable"]
# What both tables end with: episodes that nobody scored, the result had these all failed or all succeeded, and the
# interval over whole task families or sites.
CARE_COLUMNS = ["unscored", "low_bound", "high_bound", "clusters", "cluster_low", "cluster_high"]
LOOKAHEAD_COLUMNS = [
    "policy", "preset", "k", "depth", "split", "n", "rate", "low", "high", "calls", "tokens", "seconds",
    "model_seconds", "steps", "decisions", "overruled", "fell_back",
]  # fmt: skip
GRID_COLUMNS = ["source", "axis", "series", "x", "n", "rate", "low", "high"]


def main_split(splits: Iterable[str]) -> str:
    """The split on which results are told: the first of SPLITS that is among these; empty where none is.

    Held-out seeds of the training tasks; a benchmark of the live web may have none, if all of its tasks are held out.
    """
    there = set(splits)
    return next((split for split in SPLITS if split in there), "")


def success_table(
    trajectories_by_arm: Mapping[str, Iterable[Trajectory]], clusters: Clusters = "family"
) -> pd.DataFrame:
    """One row an arm and split: SUCCESS_COLUMNS and CARE_COLUMNS (rates, intervals and bounds are fractions).

    An episode without a verdict, or with an unscored one, is no failure: it is left out of n and counted in
    `unscored`; low_bound and high_bound are the rate had all of these failed or succeeded. low and high are over
    episodes, cluster_low and cluster_high over as many `clusters` drawn whole: task families (a task without a site
    is its family's in both cases) or sites.
    """
    import pandas as pd

    rows = []
    for arm, trajectories in trajectories_by_arm.items():
        for split, group in _grouped(different(trajectories), lambda t: t.task.split).items():
            scored = [(cluster_of(t.task, clusters), done) for t in group if (done := _succeeded(t)) is not None]
            won, n = sum(done for _, done in scored), len(scored)
            care = _care(scored, len(group) - n, unscored_bounds(won, n, len(group) - n))
            rows.append((arm, split, n, won, *wilson(won, n), *care))
    return pd.DataFrame(rows, columns=[*SUCCESS_COLUMNS, *CARE_COLUMNS])


def task_table(trajectories_by_arm: Mapping[str, Iterable[Trajectory]]) -> pd.DataFrame:
    """One row a task and arm: task, arm, split, n, successes, rate, low, high."""
    import pandas as pd

    rows = []
    for arm, trajectories in trajectories_by_arm.items():
        for (split, task), group in _grouped(different(trajectories), lambda t: (t.task.split, t.task.name)).items():
            scored = [done for t in group if (done := _succeeded(t)) is not None]
            rows.append((task, arm, split, len(scored), sum(scored), *wilson(sum(scored), len(scored))))
    return pd.DataFrame(rows, columns=["task", *SUCCESS_COLUMNS])


def cluster_of(task: Task, clusters: Clusters) -> str:
    """The cluster of a task, whose episodes resemble each other: its family (`name`), or its site if it has one."""
    return task.site or task.name if clusters == "site" else task.name


def unscored_count(trajectories_by_arm: Mapping[str, Iterable[Trajectory]]) -> pd.DataFrame:
    """One row an arm and split: arm, split, episodes, unscored (left out of every rate)."""
    import pandas as pd

    rows = []
    for arm, trajectories in trajectories_by_arm.items():
        for split, group in _grouped(different(trajectories), lambda t: t.task.split).items():
            unscored = sum(_succeeded(t) is None for t in group)
            rows.append({"arm": arm, "split": split, "episodes": len(group), "unscored": unscored})
    return pd.DataFrame(rows, columns=["arm", "split", "episodes", "unscored"])


def paired_table(
    trajectories_by_arm: Mapping[str, Iterable[Trajectory]],
    pairs: Iterable[tuple[str, str]],
    clusters: Clusters = "family",
) -> pd.DataFrame:
    """One row a pair (a, b) and split, b against a: PAIRED_COLUMNS, TEST_COLUMNS and CARE_COLUMNS, in fractions.

    n counts the (task name, seed) that both arms ran and scored; `won`: b succeeded where a failed. low, high and p
    are those of `intervals.paired`, p_holm is p corrected for all rows of this table, boot_low and boot_high are the
    paired bootstrap, detectable the least difference that such a row could have shown; CARE_COLUMNS as in
    `success_table`: low_bound is the difference had every unscored episode of b failed and of a succeeded. Raises
    ValueError for an arm that is not there, and where an arm holds the same task and seed twice.
    """
    import pandas as pd

    pairs = list(pairs)
    absent = sorted({arm for pair in pairs for arm in pair} - set(trajectories_by_arm))
    if absent:
        raise ValueError(f"no trajectories of {', '.join(absent)}; there are {', '.join(trajectories_by_arm)}")
    outcomes = {arm: _outcomes(arm, trajectories_by_arm[arm]) for arm in {arm for pair in pairs for arm in pair}}
    rows = []
    for a, b in pairs:
        for split in _ordered({split for arm in (a, b) for split in outcomes[arm]}):
            of_a, of_b = outcomes[a].get(split, {}), outcomes[b].get(split, {})
            both = [(cluster_of(of_a[key][0], clusters), of_a[key][1], of_b[key][1]) for key in of_a if key in of_b]
            rows.append({"arm_a": a, "arm_b": b, "split": split} | _pair(both))
    table = pd.DataFrame(rows, columns=[*PAIRED_COLUMNS, *TEST_COLUMNS, *CARE_COLUMNS])
    return table.assign(p_holm=holm(table["p"]))


def _pair(both: Sequence[tuple[str, bool | None, bool | None]]) -> dict[str, float]:
    """A row of `paired_table` from the cluster and the two outcomes of each episode; None: not scored."""
    scored = [(cluster, int(b) - int(a)) for cluster, a, b in both if None not in (a, b)]
    gains = [gain for _, gain in scored]
    won, lost, n = gains.count(1), gains.count(-1), len(gains)
    as_if = lambda a, b: sum((b if y is None else int(y)) - (a if x is None else int(x)) for _, x, y in both)  # noqa: E731
    bounds = [as_if(*ends) / len(both) if both else NAN for ends in ((1, 0), (0, 1))]
    boot_low, boot_high = paired_bootstrap(won, lost, n)
    row = {"n": n, "won": won, "lost": lost, "boot_low": boot_low, "boot_high": boot_high}
    row |= paired(won, lost, n) | {"detectable": detectable(won, lost, n)}
    return row | dict(zip(CARE_COLUMNS, _care(scored, len(both) - n, bounds), strict=True))


def _care(scored: Sequence[tuple[str, float]], unscored: int, bounds: Sequence[float]) -> tuple:
    """The values of CARE_COLUMNS, from the cluster and the value of each scored episode."""
    clusters: dict[str, list[float]] = {}
    for cluster, value in scored:
        clusters.setdefault(cluster, []).append(value)
    totals, sizes = [sum(values) for values in clusters.values()], [len(values) for values in clusters.values()]
    return unscored, *bounds, len(clusters), *cluster_bootstrap(totals, sizes)


def lookahead_table(trajectories_by_arm: Mapping[str, Iterable[Trajectory]], arms: Iterable[Arm]) -> pd.DataFrame:
    """One row an arm and split, LOOKAHEAD_COLUMNS: success, and what a decision cost on average.

    preset is empty and depth 0 for a plain policy. calls, tokens and seconds are means over the
    decisions whose cost is known (seconds with the waiting of episodes side by side, model_seconds
    without), steps those of real pages tried; overruled counts decisions that
    differ from the policy's own first candidate, fell_back those left to the policy because its own
    candidate, or none, could be scored.
    """
    import pandas as pd

    success = success_table(trajectories_by_arm).set_index(["arm", "split"])
    rows = []
    for arm in arms:
        for split, group in _grouped(trajectories_by_arm.get(arm.name, ()), lambda t: t.task.split).items():
            decisions = [step.decision for one in group for step in one.steps]
            costs = [d.cost for d in decisions if d.cost]
            mean = lambda key, costs=costs: sum(getattr(c, key) for c in costs) / len(costs) if costs else NAN  # noqa: E731
            row = {"policy": arm.policy, "preset": arm.preset, "split": split}
            row |= {"k": arm.ahead.k if arm.ahead else 1, "depth": arm.ahead.depth if arm.ahead else 0}
            row |= success.loc[(arm.name, split), ["n", "rate", "low", "high"]].to_dict()
            row |= {key: mean(key) for key in ("calls", "tokens", "seconds", "model_seconds", "steps")}
            row["decisions"] = len(decisions)
            row["overruled"] = sum(map(overruled, decisions))
            row["fell_back"] = sum(bool(d.fell_back) for d in decisions)
            rows.append(row)
    return pd.DataFrame(rows, columns=LOOKAHEAD_COLUMNS)


def overruled(decision: Decision) -> bool:
    """Whether look-ahead did another candidate than the policy's own first one."""
    first = decision.candidates[:1]
    return bool(first) and not decision.fell_back and not first[0].reply.startswith(decision.reply)


def grid_table(lookahead: pd.DataFrame, split: str, *, source: str = "this run") -> pd.DataFrame:
    """Success by width and by depth, in the form of `paper.grids`: GRID_COLUMNS.

    `lookahead` is a `lookahead_table`. A series holds what stays: the policy and the depth along k,
    the policy and k along the depth, where a plain policy stands at depth 0 of every k. Only
    `wmla` presets are on a grid; a policy with one of them has none, and a series of one point is none.
    """
    import pandas as pd

    rows = []
    here = lookahead[lookahead["split"] == split]
    wmla = here[here["preset"].str.startswith("wmla")]
    wmla = wmla[wmla.groupby("policy")["preset"].transform("nunique") > 1]
    for row in wmla.to_dict("records"):
        rows.append({"axis": "k", "series": f"{row['policy']}, d = {row['depth']}", "x": row["k"]} | row)
        rows.append({"axis": "depth", "series": f"{row['policy']}, k = {row['k']}", "x": row["depth"]} | row)
    for row in here[here["preset"] == ""].to_dict("records"):
        for k in sorted(set(wmla["k"][wmla["policy"] == row["policy"]])):
            rows.append({"axis": "depth", "series": f"{row['policy']}, k = {k}", "x": 0} | row)
    table = pd.DataFrame(rows, columns=[*GRID_COLUMNS[1:]]).assign(source=source)[GRID_COLUMNS]
    several = table.groupby(["axis", "series"])["x"].transform("nunique") > 1
    return table[several].drop_duplicates(["axis", "series", "x"]).reset_index(drop=True)


def iteration_of(arm: str) -> int | None:
    """The iteration of a plain policy: 0 of zero_shot, i of self_improve_<i>, None of any other arm."""
    if arm == "zero_shot":
        return 0
    match = re.fullmatch(r"self_improve_(\d+)", arm)
    return int(match[1]) if match else None


def ledger_table(ledger: pd.DataFrame, truth: Mapping[str, int] | None) -> pd.DataFrame:
    """What became of the imagined rollouts: counted, outcome, n, of, rate, low, high (fractions).

    `ledger` has the columns of `synthesis.ledger`; `truth` its counts {replayed, true}.
    The rows of `counted` = imagined are shares of all rollouts; the one of `counted` = replayed
    is the truth rate: accepted rollouts whose actions succeed in the real page.
    """
    import pandas as pd

    counts = ledger.groupby("outcome", sort=False)["n"].sum().sort_values(ascending=False, kind="stable")
    rows = [("imagined", str(outcome), int(n), int(counts.sum())) for outcome, n in counts.items()]
    if truth and truth["replayed"]:
        rows.append(("replayed", "true in the real page", int(truth["true"]), int(truth["replayed"])))
    columns = ["counted", "outcome", "n", "of", "rate", "low", "high"]
    return pd.DataFrame([(*row, *wilson(*row[2:])) for row in rows], columns=columns)


def _succeeded(trajectory: Trajectory) -> bool | None:
    """None: not scored."""
    verdict = trajectory.verdict
    return None if verdict is None or verdict.outcome == "unscored" else verdict.success


def different(trajectories: Iterable[Trajectory]) -> list[Trajectory]:
    """The episodes without repeats: of those with the same kind, goal and first page the one of the lowest seed.

    Some kinds of task have few different pages. Their seeds are no further evidence: a greedy policy
    does the same on the same page, and one decision would count many times.
    """
    kept: dict[tuple, Trajectory] = {}
    for one in sorted(trajectories, key=lambda t: t.task.seed):
        first = one.steps[0].observation if one.steps else one.final
        told = (one.task.goal, first.text) if first.text and one.task.goal else (one.task.seed,)
        kept.setdefault((one.task.split, one.task.name, one.attempt, *told), one)
    return list(kept.values())


def _grouped(trajectories: Iterable[Trajectory], key) -> dict:
    """Trajectories by key, where the split is the key or the first part of it, in the order of SPLITS."""
    groups: dict = {}
    for trajectory in trajectories:
        groups.setdefault(key(trajectory), []).append(trajectory)
    return {k: groups[k] for k in _ordered(groups)}


def _ordered(keys: Iterable) -> list:
    """By split in the order of SPLITS, then by name."""
    first = lambda key: key if isinstance(key, str) else key[0]  # noqa: E731
    return sorted(keys, key=lambda key: (SPLITS.index(first(key)) if first(key) in SPLITS else len(SPLITS), key))


def _outcomes(arm: str, trajectories: Iterable[Trajectory]) -> dict[str, dict[tuple[str, int], tuple]]:
    """(task, success or None) by split, then by (task name, seed); repeats left out, None: not scored."""
    outcomes: dict[str, dict[tuple[str, int], tuple]] = {}
    everything, seen = list(trajectories), set()
    for key in ((t.task.name, t.task.seed) for t in everything):
        if key in seen:
            raise ValueError(f"{arm} holds {key[0]}, seed {key[1]}, twice: keep one episode a task and seed to pair it")
        seen.add(key)
    for one in different(everything):
        outcomes.setdefault(one.task.split, {})[one.task.name, one.task.seed] = one.task, _succeeded(one)
    return outcomes
