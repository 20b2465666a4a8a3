"""What a collection found, by kind of task and in words: beside earlier ones, and beside random clicks.

Reads `metrics.task_table` of groups of episodes (in its column `arm`), returns tables and sentences; writes
nothing. The groups are different episodes, so their rates are compared unpaired. Notebook 01. Paper: section 3.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wevo_nb.intervals import difference_of_rates, wilson

if TYPE_CHECKING:
    import pandas as pd


def counted(successes: int, n: int) -> str:
    """`6 of 20 (30% [15%, 52%])`, with the Wilson 95% interval; `0 of 0` alone where n is 0.

    Raises ValueError unless 0 <= successes <= n.
    """
    rate, low, high = wilson(successes, n)
    return "0 of 0" if n == 0 else f"{successes} of {n} ({rate:.0%} [{low:.0%}, {high:.0%}])"


def side_by_side(table: pd.DataFrame) -> pd.DataFrame:
    """A row a kind of task, a column a group, `counted` in the cells; a dash where a group has no such kind."""
    groups = list(dict.fromkeys(table["arm"]))
    cells = [counted(row.successes, row.n) for row in table.itertuples()]
    wide = table.assign(cell=cells).pivot(index="task", columns="arm", values="cell")
    return wide.reindex(columns=groups).fillna("–").rename_axis(index="kind", columns=None)


def compare(table: pd.DataFrame, a: str, b: str) -> str:
    """Group b against group a on the kinds that both tried, in words.

    Both rates, their difference in points with Newcombe's 95% interval, and which kinds only one of them solved.
    """
    tried = {group: set(table["task"][(table["arm"] == group) & (table["n"] > 0)]) for group in (a, b)}
    table = table[table["task"].isin(tried[a] & tried[b])]
    (won_a, n_a), (won_b, n_b) = _total(table, a), _total(table, b)
    if not n_a:
        return f"{b} and {a} tried no kind in common: nothing to compare."
    rates = f"{b} {counted(won_b, n_b)}, {a} {counted(won_a, n_a)}"
    points, low, high = (round(100 * value) for value in difference_of_rates(won_a, n_a, won_b, n_b))
    ends = f"{points:+d} points [{low:+d}, {high:+d}]"
    said = "open, the interval holds 0" if low <= 0 <= high else f"{b if low > 0 else a} succeeds more often"
    kinds, in_a, in_b = set(table["task"]), _solved(table, a), _solved(table, b)
    only = f"Kinds solved by {b} alone: {_listed(in_b - in_a)}; by {a} alone: {_listed(in_a - in_b)}"
    return f"{rates}: {ends}, {said}. {only}; by neither: {_listed(kinds - in_a - in_b)}."


def never(table: pd.DataFrame) -> str:
    """The kinds without a success, each with what its rate may still be (the upper end of the 95% interval)."""
    left = table[(table["successes"] == 0) & (table["n"] > 0)]
    named = [f"{row.task} (0 of {row.n}, the true rate may be up to {row.high:.0%})" for row in left.itertuples()]
    return f"No success: {', '.join(named)}." if named else "Every kind was solved at least once."


def _total(table: pd.DataFrame, group: str) -> tuple[int, int]:
    mine = table[table["arm"] == group]
    return int(mine["successes"].sum()), int(mine["n"].sum())


def _solved(table: pd.DataFrame, group: str) -> set[str]:
    return set(table["task"][(table["arm"] == group) & (table["successes"] > 0)])


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "none"
