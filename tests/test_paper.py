"""The reported numbers: the tables hold what the file holds, number by number, and nothing beside it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pandas as pd
import pytest

from wevo_nb import metrics, paper

FILE = json.loads((Path(paper.__file__).parent / "paper_numbers.json").read_text())
SHARED = ("webvoyager", "mind2web_live")


def leaves(value, path=()):
    """Every leaf of the file with its path."""
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(inner, (*path, key))
    else:
        yield path, value


LEAVES = dict(leaves(FILE))
NUMBERS = {path: value for path, value in LEAVES.items() if isinstance(value, int | float)}
# Numbers that name a row instead of standing in one: k, and width and depth.
NAMES = [p for p in NUMBERS if p[-1] in ("k", "w", "d") and p[1] in ("branching", "width_depth")]
PLACES = ("value", "second", "third")  # of a list among settings


def place(path: tuple) -> tuple[str, str, str, str]:
    """Where a number must stand: table, panel, row and column. Written from the papers, not from paper.py."""
    row = lambda key: LEAVES[(*path[:-1], key)]  # noqa: E731
    match path:
        case ("webevolver", "main", "rows", _, benchmark):
            return "webevolver_table_1", "", row("method"), benchmark
        case ("webevolver", "world_model_intrinsic", "all_depths", _, metric):
            return "webevolver_table_2", "", row("model"), metric
        case ("webevolver", "world_model_intrinsic", "iter_2_by_depth", _, metric):
            return "webevolver_table_2_by_depth", "", row("depth"), metric
        case ("webevolver", "out_of_domain", "rows", _, benchmark):
            return "webevolver_table_3", "", row("method"), benchmark
        case ("webevolver", "branching", "rows", _, benchmark):
            return "webevolver_table_4", "", f"k = {row('k')}", benchmark
        case ("webevolver", "self_evolution_curve", "openwebvoyager_line", benchmark, iteration):
            return "webevolver_figure_3", benchmark, "self-improve", str(iteration)
        case ("webevolver", "self_evolution_curve", "webevolver_point", benchmark):
            return "webevolver_figure_3", benchmark, "WebEvolver", "final"
        case (("webevolver" | "wma") as of, "settings", name):
            return f"{of}_settings", "", name, "value"
        case (("webevolver" | "wma") as of, "settings", name, position):
            return f"{of}_settings", "", name, PLACES[position]
        case ("wma", "next_state_two_choice", model):
            return "wma_next_state", "", model, "two choices"
        case ("wma", "action_selection", "mean_without_outcome"):
            return "wma_action_selection", "", "mean of the models", "without outcome"
        case ("wma", "action_selection", name):
            return "wma_action_selection", "", "GPT-4o", name.removeprefix("gpt4o_").replace("_", " ")
        case ("wma", "webarena", "rows", _, key):
            column = {"sr": "without selection", "sr_selected": "with selection"}.get(key, key)
            return "wma_table_1", "", f"{row('policy')}, {row('method')}", column
        case ("wma", "relative_gain_by_domain_4o_mini", domain):
            return "wma_table_2", "", domain, "relative gain"
        case ("wma", "mind2web", "rows", _, method):
            return "wma_table_3", "", row("split"), method
        case ("wma", "mind2web", "cross_task_detail", metric):
            return "wma_table_3_detail", "", "cross-task", metric
        case ("wma", "cost", "sr_by_domain", domain, position):
            return "wma_table_4_by_domain", "", domain, ("tree_search", "wma")[position]
        case ("wma", "cost", method, unit):
            return "wma_table_4", "", {"tree_search": "tree search", "wma": "WMA"}[method], unit
        case ("wma", "ablation", variant):
            return "wma_table_5", "", variant, "success"
        case ("wma", "width_depth", "rows", _, "sr"):
            return "wma_table_9", "", f"w = {row('w')}, d = {row('d')}", "success"
        case ("wma", "coverage", model):
            return "wma_table_10", "", model, "coverage"
        case ("wma", "errors", kind):
            return "wma_errors", "", kind, "wrong predictions"
        case ("wma", "value_function", kind):
            return "wma_value_function", "", kind, "success"
        case ("wma", "multimodal", shown, metric):
            return "wma_multimodal", "", shown.replace("_", " "), metric
        case ("webdreamer", benchmark, method):
            return "webdreamer", "", benchmark, method
    raise AssertionError(f"no table is named for {path}")


@pytest.fixture(scope="module")
def tables():
    return {name: paper.table(name) for name in paper.TABLES}


@pytest.mark.parametrize("path", [p for p in NUMBERS if p not in NAMES], ids=lambda p: ".".join(map(str, p)))
def test_every_number_of_the_file_stands_in_its_table_once(tables, path):
    name, *key = place(path)
    found = tables[name].set_index(["panel", "row", "column"])["value"].get(tuple(key))
    assert found == NUMBERS[path], (name, key)  # a scalar: one row, and the very number


def test_the_tables_hold_no_number_that_is_not_in_the_file(tables):
    """But for those that Figure 3 and the depth study take from Table 1, which the next test looks at."""
    held = [
        (name, row.panel, row.row, row.column)
        for name, table in tables.items()
        for row in table[table["value"].notna()].itertuples()
    ]
    claimed = [place(path) for path in NUMBERS if path not in NAMES]
    quoted = [("webevolver_depth_study", b, "WebEvolver + WMLA, k = 3", str(d)) for b in SHARED for d in (0, 1, 2)]
    quoted += [("webevolver_figure_3", b, f"with look-ahead (d={d})", "final") for b in SHARED for d in (1, 2)]
    assert len(held) == len(set(held)) == 184 and len(claimed) == len(set(claimed)) == 174
    assert set(held) == {*claimed, *quoted}


def test_numbers_that_name_a_row_name_it():
    assert len(NAMES) == 3 + 10
    assert paper.table("webevolver_table_4")["row"].tolist() == ["k = 2", "k = 3", "k = 5"]
    widths = ["w = 1, d = 1", "w = 2, d = 1", "w = 3, d = 1", "w = 3, d = 3", "w = 9, d = 1"]
    assert paper.table("wma_table_9")["row"].tolist() == widths


def test_what_figure_3_and_the_depth_study_take_from_table_1(tables):
    curve = tables["webevolver_figure_3"].set_index(["panel", "row", "column"])["value"]
    assert [curve["webvoyager", f"with look-ahead (d={d})", "final"] for d in (1, 2)] == [46.24, 51.37]
    assert [curve["mind2web_live", f"with look-ahead (d={d})", "final"] for d in (1, 2)] == [28.30, 24.53]
    study = tables["webevolver_depth_study"]
    assert study["column"].tolist() == ["0", "1", "2", "3"] * 2
    assert study[study["panel"] == "webvoyager"]["value"].tolist()[:3] == [42.49, 46.24, 51.37]
    assert study[study["panel"] == "mind2web_live"]["value"].tolist()[:3] == [22.64, 28.30, 24.53]
    main = tables["webevolver_table_1"].set_index(["row", "column"])["value"]
    names = ["Llama-3.3-70B zero-shot", "self-improve (1)", "self-improve (2)", "self-improve (3)"]
    for benchmark in SHARED:  # the two places of the file do not contradict each other
        assert [curve[benchmark, "self-improve", str(i)] for i in range(4)] == [main[n, benchmark] for n in names]
        assert curve[benchmark, "WebEvolver", "final"] == main["WebEvolver", benchmark]


def test_what_the_papers_do_not_give_keeps_its_place(tables):
    """The two curves with look-ahead, depth 3, and the null of the file."""
    curve = tables["webevolver_figure_3"]
    gone = curve[curve["value"].isna()]
    assert len(gone) == 2 * 2 * 4 and set(gone["note"]) == {"only drawn in the paper"}
    assert set(gone["row"]) == {"with look-ahead (d=1)", "with look-ahead (d=2)"}
    assert set(gone["column"]) == {"0", "1", "2", "3"}
    study, webarena = tables["webevolver_depth_study"], tables["wma_table_1"]
    for table, row in ((study[study["panel"] == "webvoyager"], "WebEvolver + WMLA, k = 3"),
                       (webarena, "GPT-4o, Vanilla CoT")):  # fmt: skip
        [empty] = table[table["value"].isna()].itertuples()
        assert (empty.row, empty.note) == (row, "not given in the paper")
    assert [p for p, v in LEAVES.items() if v is None] == [("wma", "webarena", "rows", 0, "sr_selected")]
    assert tables["webevolver_not_reported"]["row"].tolist() == FILE["webevolver"]["not_reported"]


def test_settings_in_words_are_there(tables):
    said = {**tables["webevolver_settings"].set_index("row")["note"], **tables["wma_settings"].set_index("row")["note"]}
    for path, value in LEAVES.items():
        if path[1:2] == ("settings",) and isinstance(value, str):
            assert said[path[2]] == value


def test_every_row_is_marked_and_names_its_source(tables):
    for name, table in tables.items():
        assert list(table.columns) == paper.COLUMNS and (table["table"] == name).all()
        assert table["reported"].all() and (table["run"] == "").all()
        block = FILE[paper.TABLES[name].paper]
        block = block if paper.TABLES[name].block is None else block[paper.TABLES[name].block]
        noted = block.get("source", "table not noted") if isinstance(block, dict) else "table not noted"
        assert all(source.endswith(f", {noted}") for source in table["source"]), name
    assert set(tables["webevolver_table_2"]["unit"]) == {"%"}
    assert tables["wma_table_4"]["unit"].tolist() == ["USD a task", "seconds a task"] * 2


def test_intervals_are_derived_only_where_n_is_given(tables):
    simple = tables["webevolver_table_3"].query("column == 'simpleqa'").iloc[0]
    assert (simple["n"], round(simple["low"], 2), round(simple["high"], 2)) == (100, 27.27, 45.76)  # Wilson, 36 of 100
    unknown = tables["webevolver_table_3"].query("column == 'gaia_web_l2'")
    assert unknown[["n", "low", "high"]].isna().all(axis=None) and unknown["value"].notna().all()
    assert set(tables["webevolver_table_1"]["n"]) == {473, 53}
    for name in ("webevolver_table_2", "wma_table_2", "wma_table_10", "webdreamer"):  # grades, ratios, n not given
        assert tables[name][["low", "high"]].isna().all(axis=None)
    ablation = tables["wma_table_5"].set_index("row").loc["full"]
    assert (round(ablation["low"], 2), round(ablation["high"], 2)) == (16.82, 28.24)  # Wilson, 44 of 200


def test_the_discrepancies_are_worked_out_from_the_numbers():
    said = paper.discrepancies()
    gain, scale = said["webevolver_figure_3"], said["webevolver_table_2"]
    assert "10%" in gain and "3.84 points or 9.9% on WebVoyager" in gain  # 42.49 - 38.65; / 38.65
    assert "5.66 points or 33.3% on Mind2Web-Live" in gain and "9.51 points above zero-shot" in gain
    assert "The 6%" in gain and "5.70 points, 17.3%" in gain  # 38.68 - 32.98; / 32.98
    assert "two scales" in scale and "56.79 against 58.88" in scale  # (75.96 + 57.80 + 51.24 + 50.54) / 4 = 58.885
    assert set(said) <= set(paper.TABLES)


def test_an_unknown_table_is_named_with_those_that_there_are():
    with pytest.raises(KeyError, match=r"no table 'table_7': there are webevolver_table_1, .*webdreamer"):
        paper.table("table_7")


def test_gains_are_differences_of_table_1():
    pairs = [("zero_shot", "self_improve_1"), ("webevolver+best_of_k", "webevolver+wmla_d1")]
    gains = paper.gains(pairs)
    assert gains[["arm_a", "arm_b"]].values.tolist() == [["zero_shot", "self_improve_1"]]  # no best-of-k there
    assert gains["webvoyager"].tolist() == [pytest.approx(5.70)]
    assert gains["mind2web_live"].tolist() == [pytest.approx(-3.77)]


def test_our_gains_agree_with_the_papers_or_not():
    """Table 1: self-improve (1) +5.70 and -3.77, WebEvolver over zero-shot +9.51 and +3.78: one way."""
    rows = [
        ("zero_shot", "self_improve_1", "test_seeds", 0.2, 0.1, 0.3, False, "paper mixed"),
        ("zero_shot", "webevolver", "test_seeds", 0.2, 0.1, 0.3, False, "agrees"),
        ("self_improve_1", "webevolver", "test_seeds", -0.2, -0.3, -0.1, False, "contradicts"),
        ("self_improve_2", "webevolver", "test_seeds", 0.1, -0.1, 0.3, False, "open"),
        ("self_improve_3", "webevolver", "test_seeds", 0.0, -0.1, 0.1, True, "same policy"),
        ("zero_shot", "explorer", "test_seeds", 0.2, 0.1, 0.3, False, "not in the paper"),
        ("zero_shot", "webevolver", "test_tasks", 0.2, 0.1, 0.3, False, "of another split"),
    ]
    columns = ["arm_a", "arm_b", "split", "difference", "low", "high", "same_policy", "agreement"]
    frame = pd.DataFrame(rows, columns=columns).assign(n=50)
    told = paper.gains_beside(frame.drop(columns="agreement"))
    assert told["agreement"].tolist() == frame["agreement"].tolist()[:5]
    first = told.iloc[1]
    assert first[["difference", "low", "high"]].tolist() == pytest.approx([20, 10, 30])
    assert first[["paper: WebVoyager", "paper: Mind2Web-Live"]].tolist() == pytest.approx([9.51, 3.78])
    assert paper.gains_beside(frame.iloc[:0]).empty


def test_both_halves_of_table_2_in_one_frame():
    both = paper.table_2().set_index(["model", "depth", "metric"])["score_percent"]
    assert len(both) == 24
    assert (both["iter-2", "all", "STR"], both["iter-2", "1", "OA"], both["GPT-4o", "all", "Sim"]) == (
        56.79,
        72.86,
        33.26,
    )


def test_grids_are_fractions_by_candidates_and_by_depth():
    grid = paper.grids()
    assert list(grid.columns) == metrics.GRID_COLUMNS
    by_k = grid[grid["axis"] == "k"]
    assert by_k["x"].tolist() == [2, 3, 5] and by_k["rate"].tolist() == pytest.approx([0.4862, 0.5137, 0.5073])
    by_depth = grid[grid["axis"] == "depth"]
    assert by_depth["x"].tolist() == [0, 1, 2] and by_depth["rate"].tolist() == pytest.approx([0.4249, 0.4624, 0.5137])
    assert set(grid["n"]) == {473} and (grid["low"] < grid["rate"]).all()


def test_the_file_is_the_one_of_the_reference():
    """The numbers as they were read: changing one by accident fails here."""
    kept = {".".join(map(str, path)): value for path, value in NUMBERS.items()}
    assert len(kept) == 187 and round(sum(kept.values()), 2) == 22838.15
    assert hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:16] == "8e421dccd5f586c8"
