"""Which rows a final policy learns from: sizes and kinds of every data arm, by hand."""

from __future__ import annotations

import pytest

from wevo_nb.mixtures import NoSuchRows, compose, fit, kinds_table, policies_table, train_on
from wevo_nb.rejection import NothingToLearnFrom
from wevo_nb.runs import write_json
from wevo_nb.sections import FINAL_ARMS
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


def of_kinds(prefix: str, **counts: int) -> list[Row]:
    told = [(kind, {"role": "user", "content": f"{prefix}{kind}{i}"}) for kind, n in counts.items() for i in range(n)]
    return [Row((message,), "reply", kind) for kind, message in told]


REAL, DREAMT = of_kinds("real", a=9, b=1), of_kinds("imagined", a=1, c=2)  # balanced: 4 + 2, and 2 + 4
HOW = {"per_task": 4, "max_repeat": 2, "seed": 0}


@pytest.mark.parametrize(
    ("arm", "beside", "of_real", "of_beside"),
    [
        ("self_improve", [], 6, 0),
        ("webevolver", DREAMT, 6, 6),
        ("explorer", of_kinds("explored", a=1), 6, 6),  # two after the balance, repeated to the six of the dreams
        ("more_real", of_kinds("later", a=9, b=9, c=9), 6, 6),  # twelve, cut
        ("more_real", [], 6, 0),
        ("no_world_model", of_kinds("written", a=1), 6, 2),  # as many as it has
    ],
)
def test_controls_are_trained_on_as_many_rows_beside_the_real_ones_as_there_are_dreams(arm, beside, of_real, of_beside):
    found, steps = train_on(arm, REAL, beside, [] if arm == "self_improve" else DREAMT, **HOW)
    real = [row for row in found if row.messages[0]["content"].startswith("real")]
    assert (len(real), len(found) - len(real)) == (of_real, of_beside)
    assert {row.messages[0]["content"] for row in real if row.task == "b"} == {"realb0"}
    assert steps[0] == {"data": "real", "step": "balanced to 4 a kind", "kept": 6}
    fitted = [step["kept"] for step in steps if step["step"] == "as many as the imagined ones"]
    assert fitted == ([6] if of_beside and arm != "no_world_model" else [])


@pytest.mark.parametrize(("arm", "real", "beside"), [("real_only", REAL, []), ("mixed", REAL[:5], DREAMT[:1])])
def test_arms_of_equal_size_are_as_large_as_the_dreams_alone(arm, real, beside):
    assert len(train_on(arm, real, beside, DREAMT, **HOW)[0]) == 6
    assert len(train_on("synthetic_only", [], DREAMT, DREAMT, **HOW)[0]) == 6


def test_without_any_row_nothing_is_trained():
    with pytest.raises(NothingToLearnFrom):
        train_on("webevolver", [], [], [], **HOW)


def test_rows_are_counted_by_kind_different_ones_and_repeats():
    table = kinds_table(["b", "a", "never"], REAL, DREAMT, [REAL[0], REAL[0], REAL[1], DREAMT[1]])
    assert table.to_dict("index") == {
        "b": {"real": 1, "beside them": 0, "trained on": 0, "of these different": 0},
        "a": {"real": 9, "beside them": 1, "trained on": 3, "of these different": 2},
        "never": {"real": 0, "beside them": 0, "trained on": 0, "of these different": 0},
        "c": {"real": 0, "beside them": 2, "trained on": 1, "of these different": 1},
        "all": {"real": 10, "beside them": 3, "trained on": 4, "of these different": 3},
    }


def test_policies_stand_in_their_order_and_a_twin_is_named(tmp_path):
    for stage, arm, row in (
        ("04_webevolver", "webevolver", "a"), ("iter-1/04_self_improve", "self_improve", "a"),
        ("iter-2/04_self_improve", "self_improve", "b"), ("04_mixed.old-1", "mixed", "c"),
    ):  # fmt: skip
        write_json(tmp_path / stage / "metrics.json", {"arm": arm, "rows": {"trained on": 8}, "steps": 4})
        write_json(tmp_path / stage / "rows.json", [row])
        write_json(tmp_path / stage / "manifest.json", {})
    table = policies_table(tmp_path)
    assert table["policy"].tolist() == ["self_improve_1", "self_improve_2", "webevolver"]
    assert table["same policy as"].tolist() == ["", "", "self_improve_1"]
    assert table["trained on"].tolist() == [8, 8, 8] and table["steps"].tolist() == [4, 4, 4]
