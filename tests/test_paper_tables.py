"""Our runs beside the papers: read and added up, at the right place, printed as LaTeX, Markdown and CSV."""

from __future__ import annotations

import json
import re

import pandas as pd
import pytest
from runs_by_hand import one_and_two
from runs_by_hand import write as write_run
from typer.testing import CliRunner

from wevo_nb import counterparts, exhibits, paper, results, tables
from wevo_nb.cli import app
from wevo_nb.runs import StageError, run_folder, sha256


@pytest.fixture
def outputs(tmp_path, monkeypatch):
    monkeypatch.setenv("WEVO_OUTPUTS", str(tmp_path))
    return tmp_path


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Two runs that differ in their seed, read."""
    with one_and_two(tmp_path_factory.mktemp("outputs")):
        yield results.read(["one", "two"])


@pytest.fixture(scope="module")
def none():
    return results.read([])


def cell(name: str, found: results.Results, row: str, column: str, run: str, panel: str = ""):
    """One row of our part of an exhibit, its value rounded to six places."""
    table = exhibits.frame(name, found)
    [hit] = table[
        ~table["reported"]
        & (table["row"] == row)
        & (table["column"] == column)
        & (table["run"] == run)
        & (table["panel"] == panel)
    ].itertuples()
    return hit._replace(value=round(hit.value, 6))


# -- read and added up


def test_counts_of_runs_that_differ_in_their_seed_are_added(two):
    assert two.together == "2 runs" and two.apart == "" and two.shown == ["2 runs"]
    table = two.tables["success"].set_index(["run", "arm", "split"])
    row = table.loc[("2 runs", "webevolver", "test_seeds")]
    assert (row["n"], row["successes"], row["rate"]) == (40, 22, 0.55)  # 10 of 20 and 12 of 20
    assert (round(row["low"], 4), round(row["high"], 4)) == (0.3983, 0.6929)  # Wilson, 22 of 40
    assert table.loc[("one", "webevolver", "test_seeds")]["successes"] == 10  # single runs stay
    ahead = two.tables["lookahead"].set_index(["run", "policy", "preset", "split"])
    row = ahead.loc[("2 runs", "webevolver", "wmla_d1", "test_seeds")]
    assert (row["n"], row["rate"], row["calls"], row["decisions"], row["overruled"]) == (40, 0.75, 4.0, 200, 6)
    ledger = two.tables["ledger"]
    assert ledger[ledger["run"] == "2 runs"].set_index("outcome")["n"].to_dict() == {"accepted": 12, "judge no": 28}
    cost = two.tables["cost"]
    assert cost[cost["run"] == "2 runs"][["seconds", "calls", "prompt_tokens"]].values.tolist() == [[120, 200, 3000000]]


def test_shares_are_added_as_counts_and_means_by_their_weight(two):
    card = two.tables["report_card"].set_index(["run", "metric", "depth"])
    share = card.loc[("2 runs", "exact_match", 1)]
    assert (share["n"], share["value"]) == (20, 0.75)  # 8 of 10 and 7 of 10
    assert (round(share["low"], 4), round(share["high"], 4)) == (0.5313, 0.8881)  # Wilson, 15 of 20
    mean = card.loc[("2 runs", "STR", 1)]
    half = 0.2 / 2**0.5  # of two independent halves of +- 0.2
    assert [mean["value"], mean["low"], mean["high"]] == pytest.approx([0.6, 0.6 - half, 0.6 + half])


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"seed": 1, "k": 5}, r"differ in more than their seed \(self_improve_1: \S+ wmla.k 3 in one, 5 in two\)"),
        ({"seed": 0}, "have a seed in common"),
    ],
)
def test_other_runs_stand_beside_each_other(outputs, other, why):
    write_run(outputs, "one", seed=0)
    write_run(outputs, "two", **other)
    found = results.read(["one", "two"])
    assert re.search(why, found.apart) and found.together == "" and found.shown == ["one", "two"]
    assert set(found.tables["success"]["run"]) == {"one", "two"}
    assert f"Runs one, two {found.apart}: they are not added up." in exhibits.caption("webevolver_table_1", found)


def test_the_same_tasks_do_not_count_twice(outputs):
    """On a live suite another seed meets the same tasks: n would be twice what it is."""
    for seed, run in enumerate(("one", "two")):
        write_run(outputs, run, seed=seed, suite="webvoyager")
    found = results.read(["one", "two"])
    assert found.together == "" and "met the same tasks" in found.apart and "webvoyager" in found.apart


def test_only_the_tables_that_are_asked_for_are_read(two):
    found = results.read(["one"], ["success"])
    assert len(found.tables["success"]) == 8 and found.tables["lookahead"].empty
    assert list(found.inputs) == ["one/06_analysis/tables/success.csv"]


def test_costs_that_nobody_noted_are_no_numbers(outputs):
    """Notebook 06 leaves them empty where decisions hold no cost; a plain policy has an empty preset."""
    write_run(outputs, "one", seed=0)
    path = outputs / "one" / "06_analysis" / "tables" / "lookahead.csv"
    table = pd.read_csv(path)
    table.loc[table["preset"].isna(), ["seconds", "tokens"]] = float("nan")
    table.to_csv(path, index=False)
    found = results.read(["one"])
    assert set(found.tables["lookahead"]["preset"]) == {"", "wmla_d1"}
    price = exhibits.frame("wma_table_4", found).set_index(["row", "column"])["value"]
    assert pd.isna(price["webevolver", "seconds a decision"]) and price["webevolver+wmla_d1", "seconds a decision"] == 4


def test_a_run_without_an_analysis_and_one_named_twice_are_refused(two):
    with pytest.raises(
        StageError, match="run 'three' has no analysis in .*: 'wevo run --run three --only 06' makes it"
    ):
        results.read(["one", "three"])
    with pytest.raises(StageError, match="run one is named twice"):
        results.read(["one", "one"])


# -- beside the papers


def test_ours_stand_at_the_place_of_the_papers_method(two):
    ours = cell("webevolver_table_1", two, "WebEvolver + WMLA (d=1)", "test_seeds", "2 runs")
    assert (ours.value, ours.n, ours.unit, ours.note) == (75.0, 40, "%", "")
    assert ours.source == "" and not ours.reported  # of the runs, which have theirs
    assert cell("webevolver_table_1", two, "WebEvolver", "test_seeds", "one").source.endswith("outputs/one/06_analysis")
    missing = cell("webevolver_table_1", two, "GPT-4o", "test_seeds", "2 runs")
    assert missing.value != missing.value and missing.note == "not run"


def test_the_lines_of_figure_3_are_ours_too(two):
    line = [cell("webevolver_figure_3", two, "self-improve", i, "2 runs", "test_seeds").value for i in ("0", "1")]
    assert line == [30.0, 45.0]  # 12 and 18 of 40
    assert cell("webevolver_figure_3", two, "WebEvolver", "final", "2 runs", "test_seeds").value == 55.0
    assert cell("webevolver_figure_3", two, "with look-ahead (d=1)", "final", "one", "test_tasks").value == 50.0
    table = exhibits.frame("webevolver_figure_3", two)
    ours = table[~table["reported"] & (table["run"] == "one") & (table["panel"] == "test_seeds")]
    empty = ours[ours["note"] == "not run"].groupby("row")["column"].agg(list).to_dict()
    assert empty == {
        "self-improve": ["2", "3"],
        "with look-ahead (d=1)": ["0", "1", "2", "3"],
        "with look-ahead (d=2)": ["0", "1", "2", "3", "final"],
    }


def test_depth_candidates_grades_and_ablation(two):
    name = "WebEvolver + WMLA, k = 3"
    study = [cell("webevolver_depth_study", two, name, d, "2 runs", "test_seeds").value for d in ("0", "1")]
    assert study == [55.0, 75.0]
    assert cell("webevolver_table_4", two, "k = 3", "webevolver, d = 1", "one").value == 70.0
    assert cell("wma_table_9", two, "w = 3, d = 1", "webevolver", "one").value == 70.0
    assert cell("webevolver_table_2_by_depth", two, "1", "exact_match", "2 runs").value == 75.0
    assert cell("webevolver_table_2_by_depth", two, "2", "STR", "one").value == 50.0
    assert cell("webevolver_table_2", two, "iter-2 (ours)", "STR", "two").value == 70.0
    assert cell("wma_table_5", two, "full", "webevolver", "one").value == 70.0
    assert cell("wma_table_5", two, "no_next_state", "webevolver", "one").note == "not run"  # best of k
    assert cell("wma_table_1", two, "webevolver+wmla_d1", "without selection", "one").value == 50.0
    assert cell("webdreamer", two, "webevolver (ours)", "reactive", "two").value == 60.0


def test_a_relative_gain_is_of_the_same_tasks(two):
    gain = cell("wma_table_2", two, "click-link", "webevolver+wmla_d1", "one")
    assert gain.value == pytest.approx(40.0) and gain.unit == "% relative"  # 7 of 10 against 5 of 10
    assert (round(gain.low, 1), round(gain.high, 1)) == (-33.3, 193.7)  # exp(ln 1.4 +- 1.96 sqrt(1/7 - .1 + 1/5 - .1))


def test_what_the_paper_does_not_report(two):
    name = "webevolver_not_reported"
    get = lambda row, run="2 runs": cell(name, two, row, "value", run)  # noqa: E731
    accepted = get("acceptance rate of synthetic trajectories: of those imagined, %")
    assert (accepted.value, accepted.n) == (pytest.approx(30.0), 40)
    assert (round(accepted.low, 2), round(accepted.high, 2)) == (18.07, 45.43)  # Wilson, 12 of 40
    assert get("trajectory counts: collected").value == 120 and get("trajectory counts: collected", "one").value == 60
    assert get("run-to-run spread: points of webevolver between runs").value == pytest.approx(10)  # 50 and 60%
    assert get("token cost: million tokens of all stages", "one").value == 2.0
    assert get("look-ahead latency: seconds a decision of webevolver+wmla_d1").value == 4.0


def test_settings_are_read_from_the_params(two):
    got = [cell("webevolver_settings", two, row, "value", "one").value for row in ("synthetic_horizon", "candidates")]
    assert got == [7, 3]


def test_tasks_of_the_sites_are_added_up_by_site(outputs):
    write_run(outputs, "one", seed=0, suite="sites")
    path = outputs / "one" / "06_analysis" / "tables" / "tasks.csv"
    tasks = pd.read_csv(path)
    tasks["task"] = tasks["task"].map({"click-link": "tables-sort", "enter-text": "tables-capital"})
    tasks.to_csv(path, index=False)
    hit = cell("webevolver_table_1_by_task", results.read(["one"]), "tables", "webevolver", "one", "test_seeds")
    assert (hit.n, hit.value) == (20, 50.0)


def test_the_papers_own_benchmarks_keep_their_names(outputs):
    """All of WebVoyager is held out (tasks/live.py): its only split is test_tasks, and every table is told on that."""
    write_run(outputs, "one", seed=0, suite="webvoyager", splits={"test_tasks": 20})
    found = results.read(["one"])
    table = exhibits.frame("webevolver_table_1", found)
    both = table[(table["row"] == "WebEvolver") & (table["column"] == "webvoyager") & table["value"].notna()]
    assert both["reported"].tolist() == [True, False] and both["value"].tolist()[1] == 50  # 10 of 20
    for name in ("webevolver_table_4", "wma_table_1", "wma_table_2", "wma_table_4", "wma_table_5", "wma_table_9"):
        ours = exhibits.frame(name, found).query("not reported and value == value")
        assert len(ours) and set(ours["run"]) == {"one"}, name


@pytest.mark.parametrize(("held_out", "suite"), [("webvoyager", "webvoyager"), ("cross_task", "openwebvoyager")])
def test_a_policy_of_openwebvoyager_may_be_tested_on_webvoyager(outputs, held_out, suite):
    write_run(outputs, "one", seed=0, suite="openwebvoyager")
    for path in (outputs / "one" / "05_wmla").glob("*/params.json"):
        spec = json.loads(path.read_text())
        spec["params"]["tasks"] = {"held_out": [held_out]}
        path.write_text(json.dumps(spec))
    assert results.suite_of("one") == suite


@pytest.mark.parametrize(
    ("target", "row"), [("change", "full"), ("change_described", "full"), ("page", "full_tree_target")]
)
def test_the_ablation_tells_world_models_by_what_they_were_taught(outputs, target, row):
    write_run(outputs, "one", seed=0, target=target)
    ours = exhibits.frame("wma_table_5", results.read(["one"])).query("not reported and value == value")
    assert ours[["row", "column", "value"]].values.tolist() == [[row, "webevolver", 70.0]]  # 14 of 20


def test_a_cost_that_one_run_does_not_know_is_the_mean_of_the_others():
    """100 decisions of 4 seconds and 100 of unknown cost: 4 seconds a decision, and not 2."""
    named = {
        "policy": "webevolver",
        "preset": "wmla_d1",
        "k": 3,
        "depth": 1,
        "split": "test_seeds",
        "n": 10,
        "rate": 0.5,
    }
    counts = {"decisions": 100, "overruled": 3, "fell_back": 0, "calls": 4.0, "tokens": 9.0, "model_seconds": 1.0}
    frame = pd.DataFrame([named | counts | {"steps": 0.0, "seconds": s} for s in (float("nan"), 4.0)])
    [row] = results.added_lookahead(frame).to_dict("records")
    assert (row["seconds"], row["calls"], row["decisions"], row["n"]) == (4.0, 4.0, 200, 20)


@pytest.mark.parametrize("name", exhibits.EXHIBITS)
def test_with_no_run_every_exhibit_is_the_papers_with_empty_places(none, name):
    table = exhibits.frame(name, none)
    reported = table[table["reported"]]
    assert list(table.columns) == paper.COLUMNS
    if name in paper.TABLES:
        pd.testing.assert_frame_equal(reported.reset_index(drop=True), paper.table(name), check_dtype=False)
    ours = table[~table["reported"]]
    assert ours["value"].isna().all() and (ours["note"] == "not run").all() and (ours["run"] == "").all()
    if exhibits.EXHIBITS[name].columns and name in paper.TABLES:
        assert len(ours) > 0 and set(ours["row"]) == set(reported["row"])
    assert "No run of ours yet." in exhibits.caption(name, none)


@pytest.mark.parametrize("name", exhibits.EXHIBITS)
def test_no_place_of_an_exhibit_is_filled_twice(two, name):
    table = exhibits.frame(name, two)
    assert not table.duplicated(["reported", "run", "panel", "row", "column"]).any()
    ours = table[~table["reported"] & table["value"].notna()]
    assert set(ours["run"]) <= {"one", "two", "2 runs"}
    rates = ours[(ours["unit"] == "%") & ours["low"].notna()]
    assert ((rates["low"] <= rates["value"] + 1e-9) & (rates["value"] <= rates["high"] + 1e-9)).all()
    assert rates["n"].gt(0).all()


def test_every_table_of_the_papers_is_an_exhibit_and_every_counterpart_has_one():
    assert set(paper.TABLES) | {"webevolver_table_1_by_task"} == set(exhibits.EXHIBITS)
    assert set(counterparts.COUNTERPARTS) <= set(exhibits.EXHIBITS)
    with pytest.raises(KeyError, match="no exhibit 'table_7'"):
        exhibits.frame("table_7", results.read([]))


def test_discrepancies_stand_in_the_captions(none):
    assert "The abstract's gain of 10%" in exhibits.caption("webevolver_table_1", none)
    assert "The 6%" in exhibits.caption("webevolver_figure_3", none)
    assert "two scales" in exhibits.caption("webevolver_table_2_by_depth", none)
    assert "read at second hand: WMA (ICLR 2025), Table 9." in exhibits.caption("wma_table_9", none)


# -- printed


def frame(rows: list[tuple]) -> pd.DataFrame:
    """A tidy frame: panel, row, column, value, n, low, high, run (empty: reported), note."""
    names = ["panel", "row", "column", "value", "n", "low", "high", "run", "note"]
    table = pd.DataFrame(rows, columns=names).assign(table="t", unit="%", source="")
    return table.assign(reported=table["run"] == "")[paper.COLUMNS]


NAN = float("nan")
FRAME = frame([
    ("", "WebEvolver", "webvoyager", 42.5, 473, 38.0, 47.0, "", ""),
    ("", "a_b & c", "webvoyager", 28.25, 473, 24.0, 32.0, "", ""),
    ("", "WebEvolver", "test_seeds", 55.0, 40, 39.83, 69.29, "mine", ""),
    ("", "a_b & c", "test_seeds", NAN, NAN, NAN, NAN, "mine", "not run"),
])  # fmt: skip


def test_markdown_has_reported_and_ours_side_by_side():
    assert tables.markdown(FRAME).splitlines() == [
        "| | reported: WebVoyager (n = 473) | mine: held-out seeds (n = 40) |",
        "|---|---|---|",
        "| WebEvolver | 42.50 | 55.0 [39.8, 69.3] |",
        "| a_b & c | 28.25 | – |",
    ]


def test_panels_are_blocks_of_rows_and_what_is_only_drawn_says_so():
    block = frame([
        ("webvoyager", "line", "0", 32.98, 473, NAN, NAN, "", ""),
        ("webvoyager", "line", "1", NAN, 473, NAN, NAN, "", paper.ONLY_DRAWN),
        ("test_seeds", "line", "0", 50.0, 20, 29.9, 70.1, "mine", ""),
        ("test_seeds", "line", "1", NAN, NAN, NAN, NAN, "mine", "not run"),
    ])  # fmt: skip
    assert tables.markdown(block).splitlines()[2:] == [
        "| **reported: WebVoyager** | | |",
        "| line | 32.98 | drawn only |",
        "| **mine: held-out seeds** | | |",
        "| line | 50.0 [29.9, 70.1] (n = 20) | – |",
    ]


def test_many_columns_are_printed_as_counts():
    many = frame([("test_seeds", "click", f"arm {i}", 50.0, 10, 23.7, 76.3, "mine", "") for i in range(9)])
    assert tables.markdown(many).splitlines()[-1] == "| click |" + " 5/10 |" * 9
    assert " & ".join(rf"\rotatebox{{90}}{{arm {i}}}" for i in range(9)) in tables.latex(many, "", "many")


def test_latex_is_escaped_and_set_with_booktabs():
    text = tables.latex(FRAME, "10% of a_b", "my_table")
    assert r"\caption{10\% of a\_b}" in text and r"\label{tab:my-table}" in text
    assert r"a\_b \& c & 28.25 & -- \\" in text and r"WebEvolver & 42.50 & 55.0 [39.8, 69.3] \\" in text
    assert r"& \multicolumn{1}{c}{reported} & \multicolumn{1}{c}{mine} \\" in text or r" & reported & mine \\" in text
    for rule in (r"\toprule", r"\midrule", r"\bottomrule"):
        assert text.count(rule) == 1
    assert text.count("{") == text.count("}") and text.count(r"\begin") == text.count(r"\end") == 2


@pytest.mark.parametrize("name", exhibits.EXHIBITS)
def test_latex_of_every_exhibit_has_one_width_and_nothing_unescaped(two, name):
    whole = exhibits.frame(name, two)
    text = tables.latex(whole, exhibits.caption(name, two), name)
    [columns] = re.findall(r"\\begin\{tabular\}\{([lr]+)\}", text)
    body = re.search(r"\\toprule\n(.*)\\bottomrule", text, re.S)[1]
    for line in body.splitlines():
        if not line.endswith(r"\\"):
            assert re.fullmatch(r"\\midrule", line), line
            continue
        spans = sum(int(n) - 1 for n in re.findall(r"\\multicolumn\{(\d+)\}", line))
        assert len(re.findall(r"(?<!\\)&", line)) + 1 + spans == len(columns), line
        assert not re.search(r"(?<!\\)[%#$]|(?<!\\)_", line), line


def test_four_files_a_table_five_a_figure_and_an_overview(two, tmp_path):
    out = tmp_path / "out"
    overview = exhibits.write(two, out, ["webevolver_table_1", "webevolver_settings"])
    assert overview.read_text().count("\n## ") == 2
    methods = len(paper.numbers()["webevolver"]["main"]["rows"])
    # of two benchmarks; and four arms on two splits, in run one, in run two and in both together
    assert f"Numbers reported: {2 * methods}, ours: {4 * 2 * 3}." in overview.read_text()
    kinds = lambda folder, name: {p.suffix for p in (out / folder).glob(f"{name}.*")}  # noqa: E731
    for name in ("webevolver_table_1", "webevolver_settings"):
        assert kinds("tables", name) == {".csv", ".md", ".tex", ".json"}
    assert kinds("figures", "webevolver_table_1") == {".png", ".pdf", ".svg", ".csv", ".json"}
    assert kinds("figures", "webevolver_settings") == set()
    path = out / "tables" / "webevolver_table_1.csv"
    told = json.loads(path.with_suffix(".json").read_text())
    assert told["csv"] == sha256(path) and told["inputs"]["paper_numbers.json"] == sha256(paper.FILE)
    success = "one/06_analysis/tables/success.csv"
    assert told["inputs"][success] == sha256(run_folder("one").parent / success) and "10%" in told["caption"]
    saved = pd.read_csv(path, keep_default_na=False, na_values={c: [""] for c in ("value", "n", "low", "high")})
    pd.testing.assert_frame_equal(saved, exhibits.frame("webevolver_table_1", two), check_dtype=False)
    assert set(saved["run"]) == {"", "one", "two", "2 runs"}  # single runs stay in the tidy file
    printed = path.with_suffix(".md").read_text()
    assert "2 runs: held-out seeds (n = 40)" in printed and "one: held-out" not in printed


def test_wevo_figures_from_the_command_line(two, tmp_path):
    out = tmp_path / "made"
    done = CliRunner().invoke(app, ["figures", "--run", "one", "--run", "two", "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert {p.stem for p in (out / "tables").glob("*.tex")} == set(exhibits.EXHIBITS)
    drawn = {name for name, exhibit in exhibits.EXHIBITS.items() if exhibit.draw}
    assert {p.stem for p in (out / "figures").glob("*.pdf")} == drawn
    assert (out / "papers.md").read_text().count("\n## ") == len(exhibits.EXHIBITS)
    refused = CliRunner().invoke(app, ["figures", "--run", "nowhere"])
    assert refused.exit_code == 2 and "has no analysis" in refused.output
