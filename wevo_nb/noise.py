"""The noise floor: how far numbers lie apart that should be alike.

One arm under two seeds, and one policy under two names. A difference between arms that is no larger is not
told from noise. Reads runs (repeats.py), returns tables and sentences; writes nothing. Notebook 06. Paper:
it reports no noise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

from wevo_nb.intervals import difference_of_rates
from wevo_nb.metrics import paired_table
from wevo_nb.repeats import Repeats, episode_variance, finished_arms, root_mean, runs_table, same_episodes
from wevo_nb.runs import run_folder, twins
from wevo_nb.schema import Trajectory

if TYPE_CHECKING:
    import pandas as pd

SEEDS, NAMES = "one arm, two seeds", "one policy, two names"  # where noise is measured
COLUMNS = [
    "source", "arm_a", "run_a", "arm_b", "run_b", "split", "n", "difference", "low", "high", "episode_sd",
]  # fmt: skip
FLOOR_COLUMNS = ["source", "split", "comparisons", "rms", "largest", "episode_rms"]


def table(repeats: Repeats) -> pd.DataFrame:
    """What moves without a cause of interest: COLUMNS, one row a comparison and split.

    SEEDS: an arm of one run against itself in another; on different episodes by `intervals.difference_of_rates`,
    n being the smaller, on shared ones by `intervals.paired`. NAMES: two arms of one run whose policies learned
    from the very same rows, so that only the rollouts can differ. episode_sd: what drawing episodes gives by itself.
    """
    import pandas as pd

    one = runs_table(repeats).to_dict("records")
    of = lambda row: (row["arm"], row["split"])  # noqa: E731
    rows = []
    if not same_episodes(repeats):
        rows = [_moved(a, b) for a, b in combinations(one, 2) if of(a) == of(b) and a["n"] and b["n"]]
    else:
        for a, b in combinations(repeats.found, 2):
            for arm in (arm for arm in repeats.found[a] if arm in repeats.found[b]):
                both = {a: repeats.found[a][arm], b: repeats.found[b][arm]}
                rows += [{**row, "arm_a": arm, "arm_b": arm} for row in _paired_noise(both, [(a, b)], SEEDS)]
    for run, found in repeats.found.items():
        alike = [pair for pair in same_policy(run) if set(pair) <= set(found)]
        rows += [{**row, "run_a": run, "run_b": run} for row in _paired_noise(found, alike, NAMES)]
    return pd.DataFrame(rows, columns=COLUMNS)


def _moved(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict:
    """A row of `table` from two rows of `runs_table`, on different episodes."""
    difference, low, high = difference_of_rates(a["successes"], a["n"], b["successes"], b["n"])
    row = {"source": SEEDS, "arm_a": a["arm"], "run_a": a["run"], "arm_b": b["arm"], "run_b": b["run"]}
    row |= {"split": a["split"], "n": min(a["n"], b["n"]), "difference": difference, "low": low, "high": high}
    return row | {"episode_sd": (episode_variance(a) + episode_variance(b)) ** 0.5}


def _paired_noise(found: Mapping[str, Sequence[Trajectory]], pairs: Iterable[tuple[str, str]], source: str) -> list:
    """Rows of `table` on the same episodes; the names of `pairs` stand for arms and for runs."""
    return [
        {"source": source, "episode_sd": episode_variance(row) ** 0.5}
        | {"run_a": row["arm_a"], "run_b": row["arm_b"]}
        | {key: row[key] for key in ("arm_a", "arm_b", "split", "n", "difference", "low", "high")}
        for row in paired_table(found, pairs).to_dict("records")
        if row["n"]
    ]


def same_policy(run: str) -> list[tuple[str, str]]:
    """Pairs of finished arms of a run that are one policy under two names, alone or with the same look-ahead."""
    arms = finished_arms(run)
    ahead = sorted({arm.partition("+")[2] for arm in arms})
    named = [(f"{a}+{how}", f"{b}+{how}") if how else (a, b) for a, b in twins(run_folder(run)) for how in ahead]
    return [pair for pair in named if set(pair) <= set(arms)]


def same_in_all(runs: Iterable[str]) -> list[tuple[str, str]]:
    """Pairs that are one policy in each of these runs."""
    found = [same_policy(run) for run in runs]
    return [pair for pair in (found[0] if found else []) if all(pair in same for same in found)]


def floor(apart: pd.DataFrame) -> pd.DataFrame:
    """`table` in a row a source and split: FLOOR_COLUMNS, the root mean square and the largest difference.

    Arms of one run share a base model and their episodes, so the comparisons of one pair of runs are not so many
    pieces of evidence.
    """
    import pandas as pd

    rows = []
    for (source, split), group in apart.groupby(["source", "split"], sort=False):
        gaps = group["difference"].abs()
        row = {"source": source, "split": split, "comparisons": len(group), "rms": root_mean(list(gaps**2))}
        rows.append(row | {"largest": gaps.max(), "episode_rms": root_mean(list(group["episode_sd"] ** 2))})
    return pd.DataFrame(rows, columns=FLOOR_COLUMNS)


def describe(row: Mapping[str, Any]) -> str:
    """A row of `floor` as a sentence, in percentage points."""
    many = f"root mean square of {row['comparisons']} comparisons, at most {100 * row['largest']:.0f}"
    return (
        f"{row['source']} ({row['split']}): {100 * row['rms']:.1f} points apart "
        f"({many if row['comparisons'] > 1 else '1 comparison'}); other episodes alone give "
        f"{100 * row['episode_rms']:.1f}."
    )
