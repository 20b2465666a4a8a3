"""The numbers that WebEvolver, WMA and WebDreamer report: one tidy frame a table, to stand beside a run's own.

They live in paper_numbers.json beside this file, each block with the table it was read from, and
were read at second hand. Nothing here was measured by this package: every row is marked
`reported`. The papers give no intervals; those beside rates are Wilson intervals that we derive
from the rate and n, where n is given. Notebooks 02, 05 and 06, `wevo figures`. Papers: arXiv
2504.21024 (WebEvolver), 2410.13232 (WMA), 2411.06559 (WebDreamer).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from wevo_nb.intervals import wilson
from wevo_nb.metrics import main_split

if TYPE_CHECKING:
    import pandas as pd

FILE = Path(__file__).with_name("paper_numbers.json")
COLUMNS = [
    "table", "panel", "row", "column", "value", "unit", "n", "low", "high", "reported", "run", "source", "note",
]  # fmt: skip
# Tasks a benchmark. Those of Table 1 stand in its source; SimpleQA: the first 100 questions; GAIA-web
# level 1: the official script's split at index 26. None: not given, so no interval can be derived.
TASKS = {"webvoyager": 473, "mind2web_live": 53, "gaia_web_l1": 26, "gaia_web_l2": None, "simpleqa": 100}
METHODS = {  # our arms under the paper's names
    "zero_shot": "Llama-3.3-70B zero-shot",
    "self_improve_1": "self-improve (1)",
    "self_improve_2": "self-improve (2)",
    "self_improve_3": "self-improve (3)",
    "no_world_model": "Synthetic Traj. (no world model)",
    "webevolver": "WebEvolver",
    "webevolver+webdreamer": "WebEvolver + WebDreamer",
    "webevolver+wmla_d1": "WebEvolver + WMLA (d=1)",
    "webevolver+wmla_d2": "WebEvolver + WMLA (d=2)",
}
SELF_IMPROVE, WEBEVOLVER = "self-improve", "WebEvolver"  # the lines of Figure 3
AHEAD = {1: "with look-ahead (d=1)", 2: "with look-ahead (d=2)"}
RELATIVE = "% relative"  # the unit of a relative gain
ONLY_DRAWN, NOT_GIVEN = "only drawn in the paper", "not given in the paper"

Cells = list[tuple]  # (row, column, value), and for some a panel


class Table(NamedTuple):
    """Where a table's numbers stand in the file, and how they become cells."""

    paper: str
    block: str | None
    cells: Callable[[Any], Cells]
    unit: Mapping[str, str] | str = "%"  # by column or panel, or of all; % where the mapping has none
    n: Mapping[str, int | None] | int | None = None  # by column or panel, or of all
    rates: bool = True  # shares of n: an interval can be derived


@cache
def numbers() -> dict[str, Any]:
    """The whole file: WebEvolver, WMA and WebDreamer, each block with its source."""
    return json.loads(FILE.read_text())


def table(name: str) -> pd.DataFrame:
    """One of TABLES as COLUMNS, a row a number; value, low and high in `unit`, n and interval nan where not given.

    A number that the paper does not give is a row with value nan and a `note`. Raises KeyError
    with the known names.
    """
    import pandas as pd

    if name not in TABLES:
        raise KeyError(f"the papers have no table '{name}': there are {', '.join(TABLES)}")
    spec = TABLES[name]
    paper = numbers()[spec.paper]
    block = paper if spec.block is None else paper[spec.block]
    noted = block.get("source") if isinstance(block, dict) else None
    source = f"{TITLES[spec.paper]}, {noted or 'table not noted'}"
    rows = []
    for row, column, value, *panel in spec.cells(block):
        panel = panel[0] if panel else ""
        n = spec.n.get(panel or column) if isinstance(spec.n, Mapping) else spec.n
        unit = spec.unit.get(panel or column, "%") if isinstance(spec.unit, Mapping) else spec.unit
        text = value if isinstance(value, str) else NOT_GIVEN if value is None else ""
        value = float("nan") if value is None or isinstance(value, str) else float(value)
        _, low, high = wilson(value / 100 * n, n) if spec.rates and n and value == value else (None, None, None)
        low, high = (None, None) if low is None else (100 * low, 100 * high)
        rows.append((name, panel, row, column, value, unit, n, low, high, True, "", source, text))
    numeric = dict.fromkeys(["value", "n", "low", "high"], float)
    return pd.DataFrame(rows, columns=COLUMNS).astype(numeric)


TITLES = {
    "webevolver": "WebEvolver (EMNLP 2025, arXiv 2504.21024)",
    "wma": "WMA (ICLR 2025)",
    "webdreamer": "WebDreamer",
}


def _records(of: str, inner: str = "rows", label: str = "{}") -> Callable[[dict], Cells]:
    """Cells of a list of records: `of` names the row, every other key is a column."""
    return lambda block: [
        (label.format(record[of]), key, value) for record in block[inner] for key, value in record.items() if key != of
    ]


def _flat(column: str) -> Callable[[dict], Cells]:
    """Cells of a plain mapping: a key is a row."""
    return lambda block: [(key, column, value) for key, value in block.items() if key != "source"]


def _settings(block: Mapping[str, Any]) -> Cells:
    """Cells of settings: a list takes a column a place."""
    each = lambda value: zip(("value", "second", "third"), value if isinstance(value, list) else [value], strict=False)  # noqa: E731
    return [(key, place, one) for key, value in block.items() for place, one in each(value)]


def _nested(**keys: str) -> Callable[[dict], Cells]:
    """Cells of a mapping of mappings: a row for each of `keys`, named as given; a column an inner key."""
    return lambda block: [(row, inner, value) for key, row in keys.items() for inner, value in block[key].items()]


def _figure_3(block: dict) -> Cells:
    """The line of self-improvement, WebEvolver's point after it, and the look-ahead of Table 1 at the same place.

    The look-ahead curves over iterations are only drawn in the paper: their places are empty.
    """
    cells: Cells = []
    main = {row["method"]: row for row in numbers()["webevolver"]["main"]["rows"]}
    for benchmark, line in block["openwebvoyager_line"].items():
        cells += [(SELF_IMPROVE, str(i), value, benchmark) for i, value in enumerate(line)]
        cells.append((WEBEVOLVER, "final", block["webevolver_point"][benchmark], benchmark))
        for depth, name in AHEAD.items():
            cells += [(name, str(i), ONLY_DRAWN, benchmark) for i in range(len(line))]
            cells.append((name, "final", main[METHODS[f"webevolver+wmla_d{depth}"]][benchmark], benchmark))
    return cells


def _depths(block: dict) -> Cells:
    """Look-ahead by depth, of Table 1; the paper says that it tried depth 3 and gives no number."""
    main = {row["method"]: row for row in block["rows"]}
    arms = {"0": "webevolver", "1": "webevolver+wmla_d1", "2": "webevolver+wmla_d2", "3": None}
    return [
        ("WebEvolver + WMLA, k = 3", depth, None if arm is None else main[METHODS[arm]][benchmark], benchmark)
        for benchmark in ("webvoyager", "mind2web_live")
        for depth, arm in arms.items()
    ]


def _webarena(block: dict) -> Cells:
    names = {"sr": "without selection", "sr_selected": "with selection", "max_actions": "max_actions"}
    return [
        (f"{row['policy']}, {row['method']}", name, row[key]) for row in block["rows"] for key, name in names.items()
    ]


def _selection(block: dict) -> Cells:
    return [
        ("mean of the models", "without outcome", block["mean_without_outcome"]),
        ("GPT-4o", "without outcome", block["gpt4o_without_outcome"]),
        ("GPT-4o", "with outcome", block["gpt4o_with_outcome"]),
    ]


def _webdreamer(block: dict) -> Cells:
    return [(key, inner, value) for key, row in block.items() if key != "source" for inner, value in row.items()]


TABLES: dict[str, Table] = {
    "webevolver_table_1": Table("webevolver", "main", _records("method"), n=TASKS),
    "webevolver_table_2": Table("webevolver", "world_model_intrinsic", _records("model", "all_depths"), rates=False),
    "webevolver_table_2_by_depth": Table(
        "webevolver", "world_model_intrinsic", _records("depth", "iter_2_by_depth"), rates=False
    ),
    "webevolver_table_3": Table("webevolver", "out_of_domain", _records("method"), n=TASKS),
    "webevolver_table_4": Table("webevolver", "branching", _records("k", label="k = {}"), n=TASKS),
    "webevolver_figure_3": Table("webevolver", "self_evolution_curve", _figure_3, n=TASKS),
    "webevolver_depth_study": Table("webevolver", "main", _depths, n=TASKS),
    "webevolver_settings": Table("webevolver", "settings", _settings, unit="", rates=False),
    "webevolver_not_reported": Table(
        "webevolver", "not_reported", lambda block: [(what, "value", None) for what in block], unit="", rates=False
    ),
    "wma_next_state": Table("wma", "next_state_two_choice", _flat("two choices")),
    "wma_action_selection": Table("wma", "action_selection", _selection),
    "wma_table_1": Table("wma", "webarena", _webarena, unit={"max_actions": "actions"}),
    "wma_table_2": Table("wma", "relative_gain_by_domain_4o_mini", _flat("relative gain"), RELATIVE, rates=False),
    "wma_table_3": Table("wma", "mind2web", _records("split")),
    "wma_table_3_detail": Table("wma", "mind2web", _nested(cross_task_detail="cross-task")),
    "wma_table_4": Table(
        "wma",
        "cost",
        _nested(tree_search="tree search", wma="WMA"),
        unit={"usd": "USD a task", "seconds": "seconds a task"},
        rates=False,
    ),
    "wma_table_4_by_domain": Table(
        "wma",
        "cost",
        lambda block: [
            (domain, method, value)
            for domain, pair in block["sr_by_domain"].items()
            for method, value in zip(("tree_search", "wma"), pair, strict=True)
        ],
    ),
    "wma_table_5": Table("wma", "ablation", _flat("success"), n=200),
    "wma_table_9": Table(
        "wma",
        "width_depth",
        lambda block: [(f"w = {row['w']}, d = {row['d']}", "success", row["sr"]) for row in block["rows"]],
    ),
    "wma_table_10": Table("wma", "coverage", _flat("coverage"), n=100, rates=False),
    "wma_errors": Table("wma", "errors", _flat("wrong predictions"), n=50),
    "wma_value_function": Table("wma", "value_function", _flat("success")),
    "wma_multimodal": Table("wma", "multimodal", _nested(text="text", text_and_screenshot="text and screenshot")),
    "wma_settings": Table("wma", "settings", _settings, unit="", rates=False),
    "webdreamer": Table("webdreamer", None, _webdreamer),
}


def discrepancies() -> dict[str, str]:
    """What the sources note as not agreeing inside the paper, by table, in words; the numbers are worked out here."""
    main = {row["method"]: row for row in numbers()["webevolver"]["main"]["rows"]}
    get = lambda arm, benchmark="webvoyager": main[METHODS[arm]][benchmark]  # noqa: E731
    said = []
    for benchmark, title in (("webvoyager", "WebVoyager"), ("mind2web_live", "Mind2Web-Live")):
        points = get("webevolver", benchmark) - get("self_improve_3", benchmark)
        said.append(f"{points:.2f} points or {100 * points / get('self_improve_3', benchmark):.1f}% on {title}")
    first = get("self_improve_1") - get("zero_shot")
    gain = (
        "The abstract's gain of 10% over self-evolving agents holds for WebVoyager as a relative one, not in points: "
        f"WebEvolver stands {', '.join(said)} above self-improve (3), and "
        f"{get('webevolver') - get('zero_shot'):.2f} points above zero-shot on WebVoyager. The 6% that the paper "
        f"gives for the first iteration on WebVoyager are {first:.2f} points, "
        f"{100 * first / get('zero_shot'):.1f}% of the zero-shot rate."
    )
    grades = numbers()["webevolver"]["world_model_intrinsic"]
    whole = next(row["STR"] for row in grades["all_depths"] if row["model"] == "iter-2")
    depths = [row["STR"] for row in grades["iter_2_by_depth"]]
    scale = (
        "The paper's grades are noted to be told on two scales; our source has both halves of the table from 0 to "
        "100, and nothing is converted. The row of all depths is no plain mean of the four depths "
        f"(iter-2, STR: {whole:.2f} against {sum(depths) / len(depths):.2f}); how many walks reach each is not given."
    )
    return {
        "webevolver_table_1": gain,
        "webevolver_figure_3": gain,
        "webevolver_table_2": scale,
        "webevolver_table_2_by_depth": scale,
    }


def table_2() -> pd.DataFrame:
    """Table 2, both halves, for `figures_model.depth_frame`: model, depth, metric, score_percent, reported, source.

    Depths: `all`, or 1 to >=4. Metrics: STR structural correctness, Sim content similarity, OA overall.
    """
    import pandas as pd

    whole, deep = table("webevolver_table_2"), table("webevolver_table_2_by_depth")
    whole, deep = whole.assign(model=whole["row"], depth="all"), deep.assign(model="iter-2", depth=deep["row"])
    both = pd.concat([whole, deep], ignore_index=True).rename(columns={"column": "metric", "value": "score_percent"})
    return both[["model", "depth", "metric", "score_percent", "reported", "source"]]


def grids() -> pd.DataFrame:
    """Look-ahead on WebVoyager by candidates (Table 4, d=2) and by depth (Table 1, k=3): `metrics.GRID_COLUMNS`.

    Rates are fractions; the intervals are derived from n. Depth 0 is WebEvolver without look-ahead.
    """
    import pandas as pd

    by_k, by_depth = table("webevolver_table_4"), table("webevolver_depth_study")
    by_depth = by_depth[(by_depth["panel"] == "webvoyager") & by_depth["value"].notna()]
    by_k = by_k.assign(axis="k", series="webevolver, d = 2", x=by_k["row"].str.removeprefix("k = ").astype(int))
    by_depth = by_depth.assign(axis="depth", series="webevolver, k = 3", x=by_depth["column"].astype(int))
    both = pd.concat([by_k, by_depth], ignore_index=True).rename(columns={"value": "rate"})
    both[["rate", "low", "high"]] /= 100
    return both.assign(source="paper")[["source", "axis", "series", "x", "n", "rate", "low", "high"]]


def gains(pairs: Iterable[tuple[str, str]]) -> pd.DataFrame:
    """What Table 1 reports for pairs of our arms, b minus a: arm_a, arm_b, then points on each benchmark.

    Pairs with an arm that the paper does not have are left out.
    """
    import pandas as pd

    reported = table("webevolver_table_1").pivot(index="row", columns="column", values="value")
    benchmarks = ["webvoyager", "mind2web_live"]
    rows = [
        {"arm_a": a, "arm_b": b} | {x: reported[x][METHODS[b]] - reported[x][METHODS[a]] for x in benchmarks}
        for a, b in pairs
        if a in METHODS and b in METHODS
    ]
    return pd.DataFrame(rows, columns=["arm_a", "arm_b", *benchmarks])


def gains_beside(paired: pd.DataFrame) -> pd.DataFrame:
    """Our differences on the main split beside those of Table 1, all in points, and whether they agree.

    `paired` is a `metrics.paired_table` after `comparisons.mark_twins`. agreement: `agrees` and `contradicts` where
    our interval leaves out 0; `open` where it holds 0; `paper mixed` where the paper's two benchmarks do not go one
    way; `same policy` where our pair only repeats another under a twin's name.
    """
    ours = paired[(paired["split"] == main_split(paired["split"])) & (paired["n"] > 0)]
    told = ours.merge(gains(zip(ours["arm_a"], ours["arm_b"], strict=True)), on=["arm_a", "arm_b"])
    told["agreement"] = [_agreement(row) for row in told.to_dict("records")]
    told[["difference", "low", "high"]] *= 100
    names = {"webvoyager": "paper: WebVoyager", "mind2web_live": "paper: Mind2Web-Live"}
    columns = ["arm_b", "arm_a", "n", "difference", "low", "high", *names, "agreement"]
    return told[columns].rename(columns=names)


def _agreement(row: Mapping[str, Any]) -> str:
    if row["same_policy"]:
        return "same policy"
    if row["webvoyager"] * row["mind2web_live"] <= 0:
        return "paper mixed"
    if row["low"] <= 0 <= row["high"]:
        return "open"
    return "agrees" if (row["low"] > 0) == (row["webvoyager"] > 0) else "contradicts"
