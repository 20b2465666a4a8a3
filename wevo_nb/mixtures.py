"""Which rows a final policy learns from: real ones, imagined ones, and the controls of that comparison.

An arm is D_1, the real successes of the first round, with something beside it, or a set of equal
size of one kind or both. A control adds as many different rows as the imagined trajectories have,
and is trained on as many, so that more data alone cannot explain a difference. Used by notebook 04. Paper: section 3.3,
Table 1; the arms of equal size are ours.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from wevo_nb.rejection import balance
from wevo_nb.runs import read_json, twins
from wevo_nb.sections import EQUAL, FINAL_ARMS
from wevo_nb.targets import Row

if TYPE_CHECKING:
    import pandas as pd

SOURCES = {  # what an arm reads beside D_1
    "webevolver": "imagined", "true_dreams": "true", "no_world_model": "written", "explorer": "explored",
    "more_real": "later", "real_only": "imagined", "synthetic_only": "imagined", "mixed": "imagined",
}  # fmt: skip


class NoSuchRows(ValueError):
    """An arm whose rows do not exist."""


def compose(
    arm: str, first: Sequence[Row], beside: Mapping[str, Sequence[Row]], *, seed: int
) -> tuple[list[Row], list[Row]]:
    """(real rows, rows beside them) of an arm, different ones each, before balancing.

    `first` are the rows of D_1; `beside` those of SOURCES by name: imagined, true (imagined, and so
    in the real page), written, explored, later (real successes of the later rounds). Controls take
    as many as webevolver has beside D_1. `fit` makes the sizes alike after balancing too.

    Raises NoSuchRows where an arm of equal size has no imagined row to be equal to.
    """
    rng = random.Random(seed)
    imagined = list(beside.get("imagined", ()))
    known = {_key(row) for row in first}
    new = lambda rows: [row for row in rows if _key(row) not in known]  # noqa: E731
    draw = lambda rows, n: rng.sample(list(rows), min(n, len(rows)))  # noqa: E731
    size = min(len(imagined), len(first))
    if arm in EQUAL and not size:
        raise NoSuchRows(
            f"arm {arm} is as large as the imagined data, and that is empty: lower synthesize.threshold, "
            "or leave the arm out of sft.arms"
        )
    match arm:
        case "webevolver":
            return list(first), new(imagined)
        case "no_world_model" | "true_dreams":
            return list(first), new(beside.get(SOURCES[arm], ()))
        case "explorer" | "more_real":
            return list(first), draw(new(beside.get(SOURCES[arm], ())), len(new(imagined)))
        case "real_only":
            return draw(first, size), []
        case "synthetic_only":
            return [], draw(imagined, size)
        case "mixed":
            return draw(first, size - size // 2), draw(new(imagined), size // 2)
    raise NoSuchRows(f"no data arm '{arm}': take one of {', '.join(FINAL_ARMS)}")


def train_on(
    arm: str, real: Sequence[Row], beside: Sequence[Row], imagined: Sequence[Row], *, per_task: int, max_repeat: int,
    seed: int,
) -> tuple[list[Row], list[dict]]:  # fmt: skip
    """The rows that an arm is trained on, from those of `compose`, and the steps to them: data, step, kept.

    Both parts are balanced over the kinds of task. Then what stands beside D_1 is cut or repeated to as many rows
    as the balanced `imagined` ones are, and an arm of EQUAL as a whole; `no_world_model` has what it has.

    Raises NothingToLearnFrom where there is no row at all.
    """
    how = {"per_task": per_task, "max_repeat": max_repeat, "seed": seed}
    first, steps = balance(real, **how) if real or not beside else ([], [])
    other, more = balance(beside, **how) if beside else ([], [])
    found = [{"data": "real", **step} for step in steps] + [{"data": SOURCES[arm], **step} for step in more]
    if not imagined or arm == "no_world_model":
        return first + other, found
    size = len(balance(imagined, **how)[0])
    rows = fit(first + other, size, seed=seed) if arm in EQUAL else first + fit(other, size, seed=seed)
    fitted = [{"data": SOURCES[arm], "step": "as many as the imagined ones", "kept": size}]
    return rows, found + (fitted if other or arm in EQUAL else [])


def kinds_table(
    kinds: Sequence[str], real: Sequence[Row], beside: Sequence[Row], training: Sequence[Row]
) -> pd.DataFrame:
    """A row a kind of task: the different rows there are, real and beside them; the rows trained on, and how many
    of these are different. `kinds` come first, with 0 where one has no row; a last row is the sum.
    """
    import pandas as pd

    once = {(_key(row), row.task): row for row in training}.values()
    parts = {"real": real, "beside them": beside, "trained on": training, "of these different": once}
    counts = {name: Counter(row.task for row in rows) for name, rows in parts.items()}
    named = list(dict.fromkeys([*kinds, *sorted(set().union(*counts.values()))]))
    table = pd.DataFrame({name: [count[kind] for kind in named] for name, count in counts.items()}, index=named)
    table.loc["all"] = table.sum()
    return table.rename_axis("kind")


def policies_table(folder: Path) -> pd.DataFrame:
    """A row a finished policy of a run: what it learned from, in different rows; rows trained on, steps, its twin.

    The twin, in `same policy as`, is an earlier policy that learned from the very same rows; empty where none did.
    """
    import pandas as pd

    same = {later: first for first, later in twins(folder)}
    rows = []
    for path in sorted(folder.glob("**/04_*/manifest.json"), key=lambda path: (-len(path.parts), path)):
        if ".old-" in str(path):
            continue
        told = read_json(path.parent / "metrics.json")
        name = told["arm"]
        if name == "self_improve":
            name += f"_{path.parent.parent.name.removeprefix('iter-')}"
        rows.append({"policy": name, **told["rows"], "steps": told["steps"], "same policy as": same.get(name, "")})
    return pd.DataFrame(rows)


def fit(rows: Sequence[Row], size: int, *, seed: int) -> list[Row]:
    """`size` rows: cut, or begun anew, in an order fixed by `seed`. None of nothing."""
    shuffled = random.Random(seed).sample(list(rows), len(rows))
    return [shuffled[i % len(shuffled)] for i in range(size)] if shuffled else []


def _key(row: Row) -> tuple[str, str]:
    return str(row.messages), row.reply
