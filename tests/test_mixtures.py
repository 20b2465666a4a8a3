"""Which rows a final policy learns from: sizes and kinds of every data arm, by hand."""

from __future__ import annotations

import pytest

from wevo_nb.mixtures import NoSuchRows, compose, fit
from wevo_nb.params import FINAL_ARMS
from wevo_nb.targets import Row


def rows(kind: str, count: int) -> list[Row]:
    return [Row(({"role": "user", "content": f"{kind}{i}"},), "reply", "task") for i in range(count)]


FIRST = rows("first", 6)
IMAGINED = [FIRST[0], *rows("imagined", 3)]  # one is known already
BESIDE = {"imagined": IMAGINED, "written": rows("written", 2), "explored": rows("explored", 9), "later": FIRST[:5]}
BESIDE["true"] = IMAGINED[:2]


def kinds(found: list[Row]) -> dict[str, int]:
    names = [row.messages[0]["content"].rstrip("0123456789") for row in found]
    return {name: names.count(name) for name in dict.fromkeys(names)}


@pytest.mark.parametrize(
    ("arm", "real", "other"),
    [
        ("webevolver", {"first": 6}, {"imagined": 3}),
        ("true_dreams", {"first": 6}, {"imagined": 1}),
        ("no_world_model", {"first": 6}, {"written": 2}),
        ("explorer", {"first": 6}, {"explored": 3}),  # as many as there are new imagined rows
        ("more_real", {"first": 6}, {}),  # what the later rounds found was known
        ("real_only", {"first": 4}, {}),
        ("mixed", {"first": 2}, {"imagined": 2}),
    ],
)
def test_what_an_arm_is_composed_of(arm, real, other):
    found, beside = compose(arm, FIRST, BESIDE, seed=0)
    assert (kinds(found), kinds(beside)) == (real, other)
    assert compose(arm, FIRST, BESIDE, seed=0) == (found, beside)


def test_synthetic_alone_has_all_imagined_rows_and_arms_of_equal_size_are_equal():
    real, imagined = compose("synthetic_only", FIRST, BESIDE, seed=0)
    assert real == [] and len(imagined) == 4
    sizes = {len(a) + len(b) for a, b in (compose(arm, FIRST, BESIDE, seed=1) for arm in ("real_only", "mixed"))}
    assert sizes == {4}


def test_a_control_draws_by_seed():
    drawn = [compose("explorer", FIRST, BESIDE, seed=seed)[1] for seed in range(4)]
    assert any(one != drawn[0] for one in drawn[1:])


@pytest.mark.parametrize("arm", ["real_only", "synthetic_only", "mixed"])
def test_without_imagined_rows_there_is_nothing_to_be_equal_to(arm):
    with pytest.raises(NoSuchRows, match=f"arm {arm} is as large as the imagined data, and that is empty: lower synth"):
        compose(arm, FIRST, {"imagined": []}, seed=0)


def test_sizes_are_made_alike_by_cutting_or_beginning_anew():
    assert sorted(map(str, fit(FIRST, 4, seed=0))) == sorted(set(map(str, fit(FIRST, 4, seed=0))))
    assert len(fit(FIRST, 15, seed=0)) == 15 and len(set(map(str, fit(FIRST, 15, seed=0)))) == 6
    assert fit([], 3, seed=0) == [] and fit(FIRST, 4, seed=0) == fit(FIRST, 4, seed=0)


def test_every_arm_of_the_params_can_be_composed_and_no_other():
    for arm in FINAL_ARMS:
        compose(arm, FIRST, BESIDE, seed=0)
    with pytest.raises(NoSuchRows, match="no data arm 'webevolve': take one of webevolver, "):
        compose("webevolve", FIRST, BESIDE, seed=0)
