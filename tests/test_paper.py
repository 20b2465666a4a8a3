"""The reported numbers: the frames hold what the file holds, number by number."""

import pandas as pd
import pytest

from wevo_nb import metrics, paper


def value(frame: pd.DataFrame, column: str, **where) -> float:
    for key, wanted in where.items():
        frame = frame[frame[key] == wanted]
    assert len(frame) == 1, where
    return frame[column].iloc[0]


@pytest.mark.parametrize(
    ("method", "benchmark", "percent"),
    [  # the headline numbers, as literals
        ("Llama-3.3-70B zero-shot", "webvoyager", 32.98),
        ("self-improve (1)", "webvoyager", 38.68),
        ("WebEvolver", "webvoyager", 42.49),
        ("WebEvolver + WMLA (d=2)", "webvoyager", 51.37),
        ("WebEvolver + WMLA (d=1)", "mind2web_live", 28.30),
    ],
)
def test_table_1_holds_the_headline_numbers(method, benchmark, percent):
    assert value(paper.table_1(), "success_percent", method=method, benchmark=benchmark) == percent


@pytest.mark.parametrize(
    ("frame", "block", "of", "rows"),
    [
        (paper.table_1, "main", "method", 22),
        (paper.table_3, "out_of_domain", "method", 15),
        (paper.table_4, "branching", "k", 3),
    ],
)
def test_every_success_rate_of_the_file_stands_in_its_frame(frame, block, of, rows):
    held = paper.numbers()["webevolver"][block]
    table = frame()
    assert len(table) == rows and table["reported"].all() and set(table["source"]) == {held["source"]}
    for row in held["rows"]:
        for benchmark, percent in row.items():
            if benchmark != of:
                assert value(table, "success_percent", **{of: row[of]}, benchmark=benchmark) == percent


def test_table_2_holds_every_grade():
    held = paper.numbers()["webevolver"]["world_model_intrinsic"]
    table = paper.table_2()
    assert len(table) == 8 * 3 and table["reported"].all()
    rows = [{"depth": "all"} | row for row in held["all_depths"]]
    rows += [{"model": "iter-2"} | row for row in held["iter_2_by_depth"]]
    for row in rows:
        for metric in ("STR", "Sim", "OA"):
            assert value(table, "score_percent", model=row["model"], depth=row["depth"], metric=metric) == row[metric]
    assert value(table, "score_percent", model="iter-2", depth="1", metric="OA") == 72.86


def test_figure_3_is_the_line_the_point_and_the_look_ahead_of_table_1():
    curve = paper.figure_3()
    voyager = curve[curve["benchmark"] == "webvoyager"].sort_values(["iteration", "success_percent"])
    assert voyager["success_percent"].tolist() == [32.98, 38.68, 38.23, 38.65, 42.49, 46.24, 51.37]
    assert voyager["iteration"].tolist() == [0, 1, 2, 3, 4, 4, 4]
    live = curve[curve["benchmark"] == "mind2web_live"].sort_values(["iteration", "success_percent"])
    assert live["success_percent"].tolist() == [18.86, 15.09, 16.98, 16.98, 22.64, 24.53, 28.30]
    main = paper.table_1().set_index(["method", "benchmark"])["success_percent"]
    for row in curve.itertuples():  # the two places of the file do not contradict each other
        assert row.success_percent == main[(row.method, row.benchmark)]
    ours = metrics.iteration_table(pd.DataFrame(columns=metrics.SUCCESS_COLUMNS))
    assert list(ours.columns) == list(curve.columns)  # so that one can stand below the other


def test_intervals_are_derived_only_where_n_is_given():
    table = paper.table_3()
    simple = table[table["benchmark"] == "simpleqa"].iloc[0]
    assert (simple["n"], round(simple["low"], 2), round(simple["high"], 2)) == (100, 27.27, 45.76)  # Wilson, 36 of 100
    unknown = table[table["benchmark"] == "gaia_web_l2"]
    assert unknown[["n", "low", "high"]].isna().all(axis=None) and unknown["success_percent"].notna().all()
    assert set(paper.table_1()["n"]) == {473, 53}


def test_gains_are_differences_of_table_1():
    pairs = [("zero_shot", "self_improve_1"), ("webevolver+best_of_k", "webevolver+wmla_d1")]
    gains = paper.gains(pairs)
    assert gains[["arm_a", "arm_b"]].values.tolist() == [["zero_shot", "self_improve_1"]]  # no best-of-k there
    assert gains["webvoyager"].tolist() == [pytest.approx(5.70)]
    assert gains["mind2web_live"].tolist() == [pytest.approx(-3.77)]


def test_every_block_of_the_file_names_its_source():
    for name in ("main", "world_model_intrinsic", "out_of_domain", "branching", "self_evolution_curve"):
        assert paper.numbers()["webevolver"][name]["source"]
