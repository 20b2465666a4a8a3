"""What of our runs stands beside which number of the papers: rows for each table of paper.TABLES.

Reads `results.Results`, gives tidy rows with the columns of paper.COLUMNS; writes nothing. Values
are in the unit of the paper's table. A counterpart answers the same question with other models on
other tasks: set signs and shapes beside one another, not levels. Used by exhibits.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from wevo_nb.metrics import NAN, iteration_of, main_split, wilson
from wevo_nb.paper import AHEAD, METHODS, RELATIVE, SELF_IMPROVE, WEBEVOLVER
from wevo_nb.params import flatten
from wevo_nb.results import Results, added_card
from wevo_nb.runs import read_json, run_folder

if TYPE_CHECKING:
    import pandas as pd

BY_RULE = ("exact_match", "outcome_accuracy", "element_f1", "hallucinated_facts")  # of the report card
GRADES = ("STR", "Sim", "OA")
LIVE = {  # suites whose tasks are the papers' own benchmarks, with the column of the tables
    "webvoyager": "webvoyager", "mind2web": "mind2web_live", "gaia_web": "gaia_web", "simpleqa": "simpleqa",
}  # fmt: skip
WHOLE = {"change": "full", "change_described": "full", "page": "full_tree_target"}  # WMLA by what was taught
SETTINGS = {
    "synthetic_horizon": ("03_synthesize", "synthesize.horizon"),
    "candidates": ("05_wmla/*", "wmla.k"),
    "lookahead_depths": ("05_wmla/*", "wmla.depth"),
    "other_candidates_temperature": ("05_wmla/*", "wmla.temperature"),
}
WMA_SETTINGS = {
    "samples": ("05_wmla/*", "wmla.samples"),
    "kept": ("05_wmla/*", "wmla.k"),
    "lr": ("iter-*/02_wm_train", "world_model_sft.learning_rate"),
    "epochs": ("iter-*/02_wm_train", "world_model_sft.epochs"),
}


def _cell(run: str, row: str, column: str, rate: tuple, n: float, *, panel: str = "", unit: str = "%") -> dict:
    """`rate` is (value, low, high); where the unit is %, fractions become percent."""
    value, low, high = (100 * x if unit == "%" else x for x in rate)
    cell = {"run": run, "panel": panel, "row": row, "column": column, "n": n, "value": value, "low": low, "high": high}
    return cell | {"unit": unit}


def _rate(row) -> tuple[float, float, float]:
    return row.rate, row.low, row.high


def method(arm: str) -> str:
    """An arm under the paper's name, where it has one."""
    return METHODS.get(arm, arm)


def success(results: Results) -> Iterable[dict]:
    """Success of each arm on each split; on the papers' own benchmarks under their names."""
    main = _main_splits(results)
    for row in results.tables["success"].itertuples():
        benchmark = LIVE.get(_suite(results, row.run)) if row.split == main[row.run] else None
        yield _cell(row.run, method(row.arm), benchmark or row.split, _rate(row), row.n)


def by_task(results: Results) -> Iterable[dict]:
    """Success of each arm by site (suite `sites`) or task family; the splits are panels."""
    tasks = results.tables["tasks"].copy()
    sites = tasks["run"].map(lambda run: _suite(results, run) == "sites")
    tasks["task"] = tasks["task"].where(~sites, tasks["task"].str.split("-").str[0])
    groups = tasks.groupby(["run", "split", "task", "arm"], sort=False)[["n", "successes"]].sum().reset_index()
    for row in groups.itertuples():
        yield _cell(row.run, row.task, row.arm, wilson(row.successes, row.n), row.n, panel=row.split)


def out_of_domain(results: Results) -> Iterable[dict]:
    """Success on what was never trained on: GAIA-web by level and SimpleQA, else held-out tasks and sites."""
    tasks = results.tables["tasks"]
    for row in tasks.itertuples():
        if _suite(results, row.run) == "gaia_web":
            level = "".join(letter for letter in row.task if letter.isdigit())
            yield _cell(row.run, method(row.arm), f"gaia_web_l{level}", _rate(row), row.n)
    for row in results.tables["success"].itertuples():
        suite = _suite(results, row.run)
        if suite == "simpleqa" or (suite not in LIVE and row.split != "test_seeds"):
            yield _cell(row.run, method(row.arm), LIVE.get(suite, row.split), _rate(row), row.n)


def graded(results: Results) -> Iterable[dict]:
    """Our grades on single held-out steps, in the kinds of Table 2, by model."""
    card = results.tables["report_card"]
    for row in card[card["metric"].isin(GRADES) & (card["depth"] == 1)].itertuples():
        name = row.model.replace("iteration_", "iter-")
        yield _cell(row.run, f"{name} (ours)", row.metric, (row.value, row.low, row.high), row.n)


def by_depth(results: Results) -> Iterable[dict]:
    """The newest world model by depth of its walk: our grades where there are any, and four metrics by rule."""
    card = _newest(results.tables["report_card"])
    card = card[card["metric"].isin([*GRADES, *BY_RULE])]
    deep = card["depth"].astype(int).clip(upper=4)
    card = card.assign(depth=deep.astype(str).replace("4", ">=4"))
    for row in added_card(card, ("run", "depth", "metric")).itertuples() if len(card) else ():
        yield _cell(row.run, row.depth, row.metric, (row.value, row.low, row.high), row.n)


def by_candidates(results: Results) -> Iterable[dict]:
    """WMLA by the number of candidates, a column a policy and depth, on the main split."""
    for row in _ahead(results).itertuples():
        yield _cell(row.run, f"k = {row.k}", f"{row.policy}, d = {row.depth}", _rate(row), row.n)


def by_imagined_steps(results: Results) -> Iterable[dict]:
    """WMLA by the depth, 0 being the plain policy; the splits are panels."""
    table = results.tables["lookahead"]
    for row in _ahead(results, every_split=True).itertuples():
        name = f"{method(row.policy)} + WMLA, k = {row.k}"
        yield _cell(row.run, name, str(row.depth), _rate(row), row.n, panel=row.split)
        plain = table[(table["preset"] == "") & (table["policy"] == row.policy) & (table["split"] == row.split)]
        for base in plain[plain["run"] == row.run].itertuples():
            yield _cell(row.run, name, "0", _rate(base), base.n, panel=row.split)


def over_iterations(results: Results) -> Iterable[dict]:
    """The lines of Figure 3: self-improvement, WebEvolver, and look-ahead around the policies of each; splits are
    panels.
    """
    for row in results.tables["success"].itertuples():
        policy, _, preset = row.arm.partition("+")
        iteration = iteration_of(policy)
        ahead = {f"wmla_d{depth}": line for depth, line in AHEAD.items()}
        line = {"": WEBEVOLVER if iteration is None else SELF_IMPROVE} | ahead
        if preset in line and (iteration is not None or policy == "webevolver"):
            place = "final" if iteration is None else str(iteration)
            yield _cell(row.run, line[preset], place, _rate(row), row.n, panel=row.split)


def settings(results: Results, keys: Mapping[str, tuple[str, str]]) -> Iterable[dict]:
    """The params of our stages that say the same: `keys` maps a name of the paper to a stage and its key."""
    for run in results.suites:
        for name, (stage, key) in keys.items():
            for found in sorted(run_folder(run).glob(f"{stage}/params.json"))[-1:]:
                value = flatten(read_json(found)["params"]).get(key)
                if isinstance(value, (int, float)):
                    yield _cell(run, name, "value", (value, NAN, NAN), NAN, unit="")


def not_reported(results: Results) -> Iterable[dict]:
    """What the paper does not report and our runs do; a row is the paper's word and, after a colon, what it is of."""
    yield from _spread(results)
    ledger = results.tables["ledger"]
    for run, rows in ledger[ledger["arm"] == "webevolver"].groupby("run", sort=False):
        counts = rows.groupby("outcome")["n"].sum()
        total, accepted = int(counts.sum()), int(counts.get("accepted", 0))
        name = "acceptance rate of synthetic trajectories: of those imagined, %"
        yield _cell(run, name, "value", wilson(accepted, total), total)
        yield _number(run, "trajectory counts: imagined", total)
    stall = results.tables["stall"]
    collected = stall[(stall["arm"] == "self_improve") & (stall["metric"] == "acceptance")]
    for run in results.suites if len(collected) else ():
        yield _number(run, "trajectory counts: collected", collected[collected["run"] == run]["n"].sum())
    if len(collected) and results.together:
        yield _number(results.together, "trajectory counts: collected", collected["n"].sum())
    for run, rows in results.tables["cost"].groupby("run", sort=False):
        tokens = rows[["prompt_tokens", "completion_tokens"]].sum().sum()
        yield _number(run, "token cost: million tokens of all stages", tokens / 1e6)
    for row in _ahead(results).itertuples():
        name = f"look-ahead latency: seconds a decision of {row.policy}+{row.preset}"
        yield _number(row.run, name, row.seconds, row.decisions)
    card = _newest(results.tables["report_card"])
    for row in card[(card["depth"] == 1) & card["metric"].str.startswith("hallucinated_")].itertuples():
        name = f"a direct hallucination measure: invented {row.metric.removeprefix('hallucinated_')}, %"
        yield _cell(row.run, name, "value", (row.value, row.low, row.high), row.n)


def _number(run: str, name: str, value: float, n: float = NAN) -> dict:
    return _cell(run, name, "value", (value, NAN, NAN), n, unit="")


def _spread(results: Results) -> Iterable[dict]:
    """How far the runs lie apart, largest minus smallest rate on the main split; of several runs added up alone."""
    table = _on_main(results, "success")
    singles = table[table["run"] != results.together]
    for arm, rows in singles.groupby("arm", sort=False) if results.together else ():
        if arm in ("zero_shot", "webevolver"):
            apart = 100 * (rows["rate"].max() - rows["rate"].min())
            yield _number(results.together, f"run-to-run spread: points of {arm} between runs", apart, len(rows))


def next_state(results: Results) -> Iterable[dict]:
    """How often a model tells the page that followed from one that is like it."""
    yield from _asked(results, {"two_choice": "two choices"})


def action_selection(results: Results) -> Iterable[dict]:
    """How often a model takes the right action, without and with what each leads to."""
    yield from _asked(results, {"action_choice_without": "without outcome", "action_choice_with": "with outcome"})


def selection(results: Results) -> Iterable[dict]:
    """Each way of looking ahead beside its own plain policy, on the main split."""
    for row, plain in _pairs(_on_main(results, "success")):
        for column, found in (("without selection", plain), ("with selection", row)):
            yield _cell(row.run, row.arm, column, _rate(found), found.n)


def by_split(results: Results) -> Iterable[dict]:
    """Plain policies and WMLA on each split: seeds, then tasks, then sites that were never trained on."""
    for row, plain in _pairs(results.tables["success"]):
        if row.arm.endswith("+wmla_d1"):
            policy = row.arm.partition("+")[0]
            yield _cell(row.run, row.split, policy, _rate(plain), plain.n)
            yield _cell(row.run, row.split, row.arm, _rate(row), row.n)


def relative_gain(results: Results) -> Iterable[dict]:
    """Relative gain of look-ahead over its plain policy by task family, %, where the plain one solved any.

    The interval is that of a ratio of independent rates (log method, statsmodels), which for the
    same tasks is wide rather than narrow; nan where either solved none.
    """
    from statsmodels.stats.proportion import confint_proportions_2indep

    table = _on_main(results, "tasks")
    for row in table[table["arm"].str.endswith("+wmla_d1")].itertuples():
        policy = row.arm.partition("+")[0]
        same = (table["run"] == row.run) & (table["task"] == row.task)
        for plain in table[same & (table["arm"] == policy) & (table["successes"] > 0)].itertuples():
            counts = (row.successes, row.n, plain.successes, plain.n)
            low, high = (NAN, NAN)
            if row.successes:
                low, high = confint_proportions_2indep(*counts, compare="ratio", method="log")
            gain = tuple(100 * (ratio - 1) for ratio in (row.rate / plain.rate, low, high))
            yield _cell(row.run, row.task, row.arm, gain, plain.n, unit=RELATIVE)


def by_domain(results: Results) -> Iterable[dict]:
    """Tree search and look-ahead by task family, on the main split."""
    table = _on_main(results, "tasks")
    for row in table[table["arm"].str.contains(r"\+(?:tree_search|wmla_d1|wma)$")].itertuples():
        yield _cell(row.run, row.task, row.arm, _rate(row), row.n)


def price(results: Results) -> Iterable[dict]:
    """What a decision takes, by policy and way of looking ahead: seconds, calls and thousand tokens."""
    for row in _on_main(results, "lookahead").itertuples():
        name = "+".join(filter(None, (row.policy, row.preset)))
        for column, value in (("seconds", row.seconds), ("calls", row.calls), ("1000 tokens", row.tokens / 1000)):
            yield _cell(row.run, name, f"{column} a decision", (value, NAN, NAN), row.decisions, unit="a decision")


def ablation(results: Results) -> Iterable[dict]:
    """Nothing imagined (best of k), an untrained world model (WebDreamer's, with its own scorer), one that was taught
    whole pages, and one that was taught changes, by policy, on the main split.
    """
    named = {"best_of_k": "no_next_state", "webdreamer": "untrained_world_model"}
    for row in _on_main(results, "success").itertuples():
        policy, _, preset = row.arm.partition("+")
        name = WHOLE.get(_target(results, row.run), "") if preset == "wmla_d1" else named.get(preset)
        if name:
            yield _cell(row.run, name, policy, _rate(row), row.n)


def width_and_depth(results: Results) -> Iterable[dict]:
    """WMLA by candidates and depth, by policy, on the main split."""
    for row in _ahead(results).itertuples():
        yield _cell(row.run, f"w = {row.k}, d = {row.depth}", row.policy, _rate(row), row.n)


def coverage(results: Results) -> Iterable[dict]:
    """How much of the true page a prediction covers, as graded, by model."""
    yield from _asked(results, {"coverage": "coverage"})


def errors(results: Results) -> Iterable[dict]:
    """Classes of errors of the newest world model, of the wrong predictions with an error named."""
    card = _newest(results.tables["report_card"])
    names = {"error: counterfactual", "error: unfamiliar component", "error: too general", "error: other"}
    for row in card[card["metric"].isin(names) & (card["depth"] == 1)].itertuples():
        yield _cell(
            row.run, row.metric.removeprefix("error: "), "wrong predictions", (row.value, row.low, row.high), row.n
        )


def value_function(results: Results) -> Iterable[dict]:
    """Look-ahead that asks for a value: prompted, or taught to the world model; on the main split."""
    named = {"paper": "prompted", "released_code": "prompted", "value": "taught", "wma": "taught"}
    for row in _on_main(results, "success").itertuples():
        preset = row.arm.partition("+")[2]
        if preset in named:
            yield _cell(row.run, f"{named[preset]}: {row.arm}", "success", _rate(row), row.n)


def reactive(results: Results) -> Iterable[dict]:
    """WebDreamer and tree search beside their plain policy, a row a policy, on the main split; WebEvolver always."""
    named = {"": "reactive", "webdreamer": "webdreamer", "tree_search": "tree_search"}
    table = _on_main(results, "success")
    parts = [arm.split("+") for arm in table["arm"]]
    asked = {"webevolver"} | {part[0] for part in parts if len(part) == 2 and part[1] in named}
    for row in table.itertuples():
        policy, _, preset = row.arm.partition("+")
        if preset in named and policy in asked:
            yield _cell(row.run, f"{policy} (ours)", named[preset], _rate(row), row.n)


COUNTERPARTS: dict[str, Callable[[Results], Iterable[dict]]] = {
    "webevolver_table_1": success,
    "webevolver_table_1_by_task": by_task,
    "webevolver_table_2": graded,
    "webevolver_table_2_by_depth": by_depth,
    "webevolver_table_3": out_of_domain,
    "webevolver_table_4": by_candidates,
    "webevolver_figure_3": over_iterations,
    "webevolver_depth_study": by_imagined_steps,
    "webevolver_settings": lambda results: settings(results, SETTINGS),
    "webevolver_not_reported": not_reported,
    "wma_next_state": next_state,
    "wma_action_selection": action_selection,
    "wma_table_1": selection,
    "wma_table_2": relative_gain,
    "wma_table_3": by_split,
    "wma_table_4": price,
    "wma_table_4_by_domain": by_domain,
    "wma_table_5": ablation,
    "wma_table_9": width_and_depth,
    "wma_table_10": coverage,
    "wma_errors": errors,
    "wma_value_function": value_function,
    "wma_settings": lambda results: settings(results, WMA_SETTINGS),
    "webdreamer": reactive,
}


def _suite(results: Results, run: str) -> str:
    """Of the rows of all runs added up: that of the first, since they differ in the seed alone."""
    return results.suites.get(run) or next(iter(results.suites.values()), "")


def _target(results: Results, run: str) -> str:
    """What the newest world model of a run was taught, by its report card; empty without one."""
    card = _newest(results.tables["report_card"])
    found = card[card["run"] == run]["target"].unique()
    return found[0] if len(found) == 1 else ""


def _main_splits(results: Results) -> dict[str, str]:
    """By run, the split on which its results are told."""
    table = results.tables["success"]
    return {run: main_split(rows["split"]) for run, rows in table.groupby("run", sort=False)}


def _on_main(results: Results, name: str) -> pd.DataFrame:
    """The rows of a table on the main split of their run."""
    table = results.tables[name]
    return table[table["split"] == table["run"].map(_main_splits(results))]


def _pairs(table: pd.DataFrame) -> Iterable[tuple]:
    """The rows of `success` of an arm that looks ahead, each with that of its plain policy."""
    plain = {(row.run, row.split, row.arm): row for row in table.itertuples()}
    for row in table[table["arm"].str.contains("+", regex=False)].itertuples():
        if base := plain.get((row.run, row.split, row.arm.partition("+")[0])):
            yield row, base


def _ahead(results: Results, *, every_split: bool = False) -> pd.DataFrame:
    """The rows of WMLA of the look-ahead table, on the main split or on all."""
    table = results.tables["lookahead"] if every_split else _on_main(results, "lookahead")
    return table[table["preset"].str.startswith("wmla")]


def _newest(card: pd.DataFrame) -> pd.DataFrame:
    """Of each run the rows of its newest world model."""
    numbers = card["model"].str.extract(r"^iteration_(\d+)$", expand=False).astype(float)
    return card[numbers == numbers.groupby(card["run"]).transform("max")]


def _asked(results: Results, columns: dict[str, str]) -> Iterable[dict]:
    """Single held-out steps: the metrics in `columns`, a row a model."""
    card = results.tables["report_card"]
    for row in card[card["metric"].isin(list(columns)) & (card["depth"] == 1)].itertuples():
        yield _cell(row.run, f"{row.model} (ours)", columns[row.metric], (row.value, row.low, row.high), row.n)
