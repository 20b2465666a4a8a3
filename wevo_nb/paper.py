"""The numbers that WebEvolver reports, as tidy frames to stand beside a run's own.

They live in paper_numbers.json beside this file, each block with the table it was read from, and
were read at second hand. Nothing here was measured by this package: every row is marked
`reported`. The paper gives no intervals and no single runs; those drawn beside its success rates
are Wilson intervals that we derive from the rate and n. Notebook 06. Paper: arXiv 2504.21024.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wevo_nb.intervals import wilson

if TYPE_CHECKING:
    import pandas as pd

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


@cache
def numbers() -> dict[str, Any]:
    """The whole file: WebEvolver, WMA and WebDreamer, each block with its source."""
    return json.loads(Path(__file__).with_name("paper_numbers.json").read_text())


def table_1() -> pd.DataFrame:
    """Table 1, success: method, benchmark, n, success_percent, low, high (percent), reported, source."""
    return _success("main")


def table_2() -> pd.DataFrame:
    """Table 2, world models graded by GPT-4o: model, depth, metric, score_percent, reported, source.

    Depths: `all`, or 1 to >=4. Metrics: STR structural correctness, Sim content similarity, OA overall.
    """
    import pandas as pd

    block = numbers()["webevolver"]["world_model_intrinsic"]
    rows = [{"depth": "all"} | row for row in block["all_depths"]]
    rows += [{"model": "iter-2"} | row for row in block["iter_2_by_depth"]]
    tidy = pd.DataFrame(rows).melt(["model", "depth"], var_name="metric", value_name="score_percent")
    return tidy.assign(reported=True, source=block["source"])


def table_3() -> pd.DataFrame:
    """Table 3, success out of domain: the columns of `table_1`; n and interval are nan where n is not given."""
    return _success("out_of_domain")


def table_4() -> pd.DataFrame:
    """Table 4, look-ahead (d=2) by the number of candidates: the columns of `table_1`, k in place of method."""
    return _success("branching", of="k")


def grids() -> pd.DataFrame:
    """Look-ahead on WebVoyager by candidates (Table 4, d=2) and by depth (Table 1, k=3): `metrics.GRID_COLUMNS`.

    Rates are fractions; the intervals are derived from n. Depth 0 is WebEvolver without look-ahead.
    """
    import pandas as pd

    by_k = table_4().assign(axis="k", series="webevolver+wmla_d2").rename(columns={"k": "x"})
    depths = {"webevolver": 0, "webevolver+wmla_d1": 1, "webevolver+wmla_d2": 2}
    main = table_1()
    named = {METHODS[arm]: depth for arm, depth in depths.items()}
    by_depth = main[(main["benchmark"] == "webvoyager") & main["method"].isin(named)]
    by_depth = by_depth.assign(axis="depth", series="webevolver+wmla k=3", x=by_depth["method"].map(named))
    both = pd.concat([by_k[by_k["benchmark"] == "webvoyager"], by_depth], ignore_index=True)
    both[["rate", "low", "high"]] = both[["success_percent", "low", "high"]].astype(float) / 100
    return both.assign(source="paper, reported")[["source", "axis", "series", "x", "n", "rate", "low", "high"]]


def figure_3() -> pd.DataFrame:
    """Figure 3, success over iterations: the columns of `table_1` and iteration.

    The line is zero-shot and self-improve (1..3); WebEvolver and its look-ahead (Table 1) stand
    one step after the last. The look-ahead curves over iterations are only drawn in the paper.
    """
    import pandas as pd

    block = numbers()["webevolver"]["self_evolution_curve"]
    line, point = block["openwebvoyager_line"], block["webevolver_point"]
    rows = []
    for benchmark, values in line.items():
        names = ["Llama-3.3-70B zero-shot", *(f"self-improve ({i})" for i in range(1, len(values)))]
        for iteration, (method, value) in enumerate(zip(names, values, strict=True)):
            rows.append((method, benchmark, iteration, value, block["source"]))
        rows.append(("WebEvolver", benchmark, len(values), point[benchmark], block["source"]))
    last = max(row[2] for row in rows)
    main = numbers()["webevolver"]["main"]
    for row in main["rows"]:
        if "WMLA" in row["method"]:
            rows += [(row["method"], benchmark, last, row[benchmark], main["source"]) for benchmark in line]
    columns = ["method", "benchmark", "iteration", "success_percent", "source"]
    return _with_intervals(pd.DataFrame(rows, columns=columns))


def gains(pairs: Iterable[tuple[str, str]]) -> pd.DataFrame:
    """What Table 1 reports for pairs of our arms, b minus a: arm_a, arm_b, then points on each benchmark.

    Pairs with an arm that the paper does not have are left out.
    """
    import pandas as pd

    reported = table_1().pivot(index="method", columns="benchmark", values="success_percent")
    benchmarks = ["webvoyager", "mind2web_live"]
    rows = [
        {"arm_a": a, "arm_b": b} | {x: reported[x][METHODS[b]] - reported[x][METHODS[a]] for x in benchmarks}
        for a, b in pairs
        if a in METHODS and b in METHODS
    ]
    return pd.DataFrame(rows, columns=["arm_a", "arm_b", *benchmarks])


def _success(block: str, of: str = "method") -> pd.DataFrame:
    import pandas as pd

    values = numbers()["webevolver"][block]
    tidy = pd.DataFrame(values["rows"]).melt(of, var_name="benchmark", value_name="success_percent")
    return _with_intervals(tidy.assign(source=values["source"]))


def _with_intervals(frame: pd.DataFrame) -> pd.DataFrame:
    """Adds n, the derived Wilson interval in percent, and the mark `reported`."""
    frame = frame.astype({"success_percent": float})
    frame["n"] = frame["benchmark"].map(TASKS).astype(float)
    rates = zip(frame["success_percent"], frame["n"], strict=True)
    derived = [wilson(p / 100 * n, n) if n > 0 else (n, n, n) for p, n in rates]
    frame["low"] = [100 * low for _, low, _ in derived]
    frame["high"] = [100 * high for _, _, high in derived]
    frame["reported"] = True
    known = ["method", "k", "benchmark", "iteration", "n", "success_percent", "low", "high", "reported", "source"]
    return frame[[column for column in known if column in frame]]
