"""Which rows a final policy learns from: real ones, imagined ones, and the controls of that comparison.

An arm is D_1, the real successes of the first round, with something beside it, or a set of equal
size of one kind or both. A control adds as many different rows as the imagined trajectories have,
and is trained on as many, so that more data alone cannot explain a difference. Used by notebook 04. Paper: section 3.3,
Table 1; the arms of equal size are ours.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from wevo_nb.params import FINAL_ARMS
from wevo_nb.targets import Row

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
    if arm in ("real_only", "synthetic_only", "mixed") and not size:
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


def fit(rows: Sequence[Row], size: int, *, seed: int) -> list[Row]:
    """`size` rows: cut, or begun anew, in an order fixed by `seed`. None of nothing."""
    shuffled = random.Random(seed).sample(list(rows), len(rows))
    return [shuffled[i % len(shuffled)] for i in range(size)] if shuffled else []


def _key(row: Row) -> tuple[str, str]:
    return str(row.messages), row.reply
