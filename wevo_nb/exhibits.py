"""Every table and figure of the papers with our runs beside it: the reported numbers, ours, and what is missing.

`frame` is the tidy frame of one exhibit, `save` writes it as a table (tables.py) and a figure
(figures_paper.py), `write` does all of them and an overview. Reads the analyses of runs through
results.py; with no run only what the papers report. Used by notebook 06 and `wevo figures`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from wevo_nb import figures_paper, paper, tables
from wevo_nb.counterparts import BY_RULE, COUNTERPARTS, GRADES
from wevo_nb.figures import save_figure
from wevo_nb.results import Results
from wevo_nb.runs import sha256

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

NOT_RUN = "not run"
SEEDS = ("test_seeds",)
SPLITS = ("test_seeds", "test_tasks")


class Exhibit(NamedTuple):
    """What is shown: `columns` and `panels` of ours are empty places where nothing was run."""

    title: str
    draw: str | None  # a function of figures_paper; None: a table alone
    columns: tuple[str, ...] = ()
    panels: tuple[str, ...] = ("",)
    ours: str = ""  # what of ours stands beside it
    unit: str = "%"  # of its empty places


EXHIBITS: dict[str, Exhibit] = {
    "webevolver_table_1": Exhibit(
        "WebEvolver, Table 1: success of every method",
        "points",
        SPLITS,
        ours="Ours: the arm of the same recipe, on our held-out episodes; further arms below.",
    ),
    "webevolver_table_1_by_task": Exhibit(
        "Success of every arm by site or task family (ours; our source has no such breakdown of Table 1)",
        "success_by_site",
    ),
    "webevolver_table_2": Exhibit(
        "WebEvolver, Table 2: world models as graded, all depths",
        "points",
        GRADES,
        ours="Ours: grades of single held-out steps by the model that world_model.graded_rows asked.",
    ),
    "webevolver_table_2_by_depth": Exhibit(
        "WebEvolver, Table 2 by depth: how a walk in the world model decays",
        "by_depth",
        (*GRADES, *BY_RULE),
        ours="Ours: free walks in the newest world model, as graded and, in the last four, by rule.",
    ),
    "webevolver_table_3": Exhibit(
        "WebEvolver, Table 3: success out of domain",
        "points",
        ("test_tasks", "test_sites"),
        ours="Ours: tasks and sites that no model was trained on.",
    ),
    "webevolver_table_4": Exhibit(
        "WebEvolver, Table 4: look-ahead by the number of candidates (d = 2)",
        "by_candidates",
        ("webevolver, d = 2",),
        ours="Ours: WMLA by policy and depth.",
    ),
    "webevolver_figure_3": Exhibit(
        "WebEvolver, Figure 3: success over iterations",
        "figure_3",
        ("0", "1", "2", "3", "final"),
        SPLITS,
        ours=(
            "The line is self-improvement, 0 being zero-shot; WebEvolver stands at the end. The two curves with "
            "look-ahead are only drawn in the paper: of them there are the last points, of Table 1, and crosses "
            "where a number is missing. Ours: look-ahead around the policy of each iteration, where it was run."
        ),
    ),
    "webevolver_depth_study": Exhibit(
        "WebEvolver, depth study: look-ahead by imagined steps (k = 3)",
        "depth_study",
        ("0", "1", "2", "3"),
        SEEDS,
        ours="Reported: of Table 1, 0 being WebEvolver alone; depth 3 was tried and has no number there.",
    ),
    "webevolver_settings": Exhibit(
        "WebEvolver: reported settings", None, ("value",), ours="Ours: the params of the run."
    ),
    "webevolver_not_reported": Exhibit(
        "What WebEvolver does not report",
        None,
        ("value",),
        ours="Ours: what our runs measured of it. Spread: largest minus smallest rate over runs; n counts what a "
        "number rests on (episodes, decisions or runs).",
    ),
    "wma_next_state": Exhibit(
        "WMA, preliminary analysis I: which of two pages follows (chance 50%)", "points", ("two choices",)
    ),
    "wma_action_selection": Exhibit(
        "WMA, preliminary analysis II: the right action of ten, without and with outcomes",
        "points",
        ("without outcome", "with outcome"),
    ),
    "wma_table_1": Exhibit(
        "WMA, Table 1: WebArena, without and with action selection",
        "points",
        ("without selection", "with selection"),
        ours="Ours: each way of looking ahead and its plain policy. Most actions: of an episode.",
    ),
    "wma_table_2": Exhibit(
        "WMA, Table 2: relative gain over chain of thought by domain (GPT-4o-mini)",
        "points",
        ("webevolver+wmla_d1",),
        ours="Ours: relative gain of look-ahead over its plain policy by task family, where that solves any; the "
        "interval takes the two rates as independent; in the figure it may end outside.",
        unit=paper.RELATIVE,
    ),
    "wma_table_3": Exhibit(
        "WMA, Table 3: Mind2Web",
        "points",
        ("webevolver", "webevolver+wmla_d1"),
        ours="Ours: a policy alone and with look-ahead, by what is held out.",
    ),
    "wma_table_3_detail": Exhibit("WMA, Table 3, cross-task in detail", "points"),
    "wma_table_4": Exhibit(
        "WMA, Table 4: cost of a task",
        "points",
        ("seconds a decision",),
        ours="Ours: means by decision and not by task, without an interval, on the machine of the run.",
        unit="a decision",
    ),
    "wma_table_4_by_domain": Exhibit(
        "WMA, Table 4: success by domain, tree search and WMA",
        "points",
        ("webevolver+tree_search", "webevolver+wmla_d1"),
        ours="Ours: by task family.",
    ),
    "wma_table_5": Exhibit(
        "WMA, Table 5: ablation",
        "points",
        ("webevolver",),
        ours="Ours: best of k (nothing imagined), WebDreamer (a world model that was not trained, with a scorer of "
        "its own) and WMLA by what its world model was taught, changes or whole pages.",
    ),
    "wma_table_9": Exhibit(
        "WMA, Table 9: by width and depth",
        "points",
        ("webevolver",),
        ours="Ours: WMLA by candidates and imagined steps.",
    ),
    "wma_table_10": Exhibit(
        "WMA, Table 10: coverage of the true page, as graded",
        "points",
        ("coverage",),
        ours="Ours: as graded by the model that world_model.graded_rows asked.",
    ),
    "wma_errors": Exhibit("WMA: classes of wrong predictions", "points", ("wrong predictions",)),
    "wma_value_function": Exhibit(
        "WMA: a prompted and a fine-tuned value function",
        "points",
        ("success",),
        ours="Ours: presets that prompt for a score (paper, released_code) or were taught values (value, wma).",
    ),
    "wma_multimodal": Exhibit("WMA, appendix A: a world model that sees (Qwen2-VL-2B, Mind2Web)", "points"),
    "wma_settings": Exhibit("WMA: reported settings", None, ("value",), ours="Ours: the params of the run."),
    "webdreamer": Exhibit(
        "WebDreamer: reported success",
        "points",
        ("reactive", "webdreamer", "tree_search"),
        ours="Ours: the policy alone, with WebDreamer's look-ahead and with tree search.",
    ),
}


def frame(name: str, results: Results) -> pd.DataFrame:
    """An exhibit as a tidy frame with paper.COLUMNS: reported rows, then ours, run by run, then empty places.

    A place of ours that was not run has value nan and a `note`. Raises KeyError with the known names.
    """
    import pandas as pd

    if name not in EXHIBITS:
        raise KeyError(f"there is no exhibit '{name}': there are {', '.join(EXHIBITS)}")
    reported = paper.table(name) if name in paper.TABLES else pd.DataFrame(columns=paper.COLUMNS)
    rows = list(COUNTERPARTS[name](results)) if name in COUNTERPARTS else []
    ours = pd.DataFrame(rows, columns=["run", "panel", "row", "column", "n", "value", "low", "high", "unit"])
    ours = ours.drop_duplicates(["run", "panel", "row", "column"]).assign(note="")
    ours = pd.concat([ours, _places(EXHIBITS[name], reported, ours, results)], ignore_index=True)
    units = dict(zip(reported["column"], reported["unit"], strict=True)) if name in paper.TABLES else {}
    known = [units.get(column, unit) for column, unit in zip(ours["column"], ours["unit"], strict=True)]
    source = "measured: outputs/" + ours["run"].astype(str) + "/06_analysis"
    ours = ours.assign(
        table=name, reported=False, unit=known, source=source.where(ours["run"].isin([*results.suites]), "")
    )
    parts = [part.reindex(columns=paper.COLUMNS) for part in (reported, ours) if len(part)]
    whole = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=paper.COLUMNS)
    whole = whole.astype(dict.fromkeys(["value", "n", "low", "high"], float) | {"reported": bool})
    return _ordered(whole, EXHIBITS[name].columns) if len(whole) else whole


def _ordered(frame: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Reported rows as they are; ours run by run, panel by panel, rows as `tables.row_places`, `columns` first."""
    import pandas as pd

    place = lambda values: {value: i for i, value in enumerate(dict.fromkeys(values))}  # noqa: E731
    order = frame.assign(
        run=frame["run"].map(place(frame["run"])),
        panel=frame["panel"].map(place(frame["panel"])),
        column=frame["column"].map(place([*columns, *frame["column"]])),
        row=frame["row"].map(tables.row_places(frame)),
    )
    ours = order[~frame["reported"]].sort_values(["run", "panel", "row", "column"], kind="stable").index
    return pd.concat([frame[frame["reported"]], frame.loc[ours]], ignore_index=True)


def _places(exhibit: Exhibit, reported: pd.DataFrame, ours: pd.DataFrame, results: Results) -> pd.DataFrame:
    """The cells of our runs, or of none, that hold nothing: each row at each column of ours."""
    import pandas as pd

    rows = list(dict.fromkeys([*reported["row"], *ours["row"]]))
    columns = list(dict.fromkeys([*exhibit.columns, *ours["column"]] if exhibit.columns else []))
    panels = list(dict.fromkeys(ours["panel"])) or list(exhibit.panels)
    filled = set(zip(ours["run"], ours["panel"], ours["row"], ours["column"], strict=True))
    there = set(zip(reported["row"], reported["column"], strict=True)) if exhibit.panels != ("",) else set()
    lines = {row for row, _ in there}  # of the paper's curves: a place is where they have one
    empty = [
        (run, panel, row, column)
        for run in [*results.suites, *filter(None, [results.together])] or [""]
        for panel in panels
        for row in rows
        for column in columns
        if (run, panel, row, column) not in filled and (row not in lines or (row, column) in there)
    ]
    return pd.DataFrame(empty, columns=["run", "panel", "row", "column"]).assign(note=NOT_RUN, unit=exhibit.unit)


def caption(name: str, results: Results) -> str:
    """Title, where the reported numbers come from, what does not agree there, what is ours and how sure it is."""
    exhibit = EXHIBITS[name]
    said = [f"{exhibit.title}."]
    if name in paper.TABLES:
        reported = paper.table(name)
        said.append(f"Reported, not measured here, read at second hand: {reported['source'].iloc[0]}.")
        if reported["low"].notna().any():
            said.append("Its intervals are Wilson's, derived from rate and n.")
    said += filter(None, [paper.discrepancies().get(name, ""), exhibit.ours])
    runs = ", ".join(results.suites)
    if results.together:
        said.append(f"Runs {runs} differ in their seed alone and are added up; the single runs are the faint points.")
    elif results.apart:
        said.append(f"Runs {runs} {results.apart}: they are not added up.")
    elif runs:
        said.append(f"Run {runs}.")
    judged = {run: by for run, by in results.judged.items() if by}
    alike = set(judged.values())
    said += [f"Ours, {by}." for by in alike] if len(alike) < 2 else [f"{run}, {by}." for run, by in judged.items()]
    said.append("Intervals are 95%; a dash is what was not run or is not given." if runs else "No run of ours yet.")
    return " ".join(said)


def draw(name: str, whole: pd.DataFrame, results: Results) -> Figure | None:
    """The figure of an exhibit from its `frame`; None for one that is a table alone."""
    how = EXHIBITS[name].draw
    return getattr(figures_paper, how)(whole, results.shown) if how else None


def save(name: str, results: Results, folder: Path) -> Path | None:
    """Writes tables/<name>.{csv,md,tex,json} and figures/<name>.{png,pdf,svg,csv,json} below `folder`.

    Returns the path of the png; None for an exhibit that is a table alone.
    """
    return _save(name, frame(name, results), results, folder)


def _save(name: str, whole: pd.DataFrame, results: Results, folder: Path) -> Path | None:
    said = caption(name, results)
    inputs = {paper.FILE.name: sha256(paper.FILE), **results.inputs}
    shown = whole[whole["reported"] | whole["run"].isin([*results.shown, ""])]
    tables.write(whole, shown, folder / "tables", name, said, inputs)
    figure = draw(name, whole, results)
    return save_figure(figure, whole, folder / "figures", name, inputs, said) if figure else None


def write(results: Results, folder: Path, names: Sequence[str] = tuple(EXHIBITS)) -> Path:
    """Saves every exhibit and an overview, `papers.md`, which tells how many numbers each has; returns its path."""
    parts = ["# The papers' tables and figures, our runs beside them\n"]
    for name in names:
        whole = frame(name, results)
        png = _save(name, whole, results, folder)
        reported, ours = (
            int(whole["value"].notna()[whole["reported"] == is_theirs].sum()) for is_theirs in (True, False)
        )
        parts.append(f"## {EXHIBITS[name].title}\n\nNumbers reported: {reported}, ours: {ours}.\n")
        if png:
            parts.append(f"![{name}](figures/{png.name})\n")
        parts.append((folder / "tables" / f"{name}.md").read_text())
    overview = folder / "papers.md"
    overview.write_text("\n".join(parts))
    return overview
