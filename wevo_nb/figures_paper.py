"""The figures of the papers at the width of a paper's columns, our runs beside them.

Like figures.py: a tidy frame in (paper.COLUMNS), a matplotlib Figure out. Reported numbers are
diamonds, ours circles, both with 95% intervals; runs that were added up are also there one by one,
faint and without interval. What was not run or is not given keeps its place. Used by exhibits.py.
"""

from __future__ import annotations

import functools
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import matplotlib
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from wevo_nb.figures import BLUE, GREEN, GREY, ORANGE, PINK, SKY, STYLE, UP, YELLOW, _legend, colour
from wevo_nb.paper import RELATIVE
from wevo_nb.tables import label, who

if TYPE_CHECKING:
    import pandas as pd

SINGLE, DOUBLE = 3.3, 6.9  # inches: one column of a paper, and both
SMALL = STYLE | {
    "font.size": 7, "axes.titlesize": 7.5, "axes.titleweight": "normal", "axes.labelsize": 7,
    "xtick.labelsize": 6.5, "ytick.labelsize": 6.5,
    "legend.fontsize": 6.5, "axes.linewidth": 0.6, "xtick.major.width": 0.6,
    "figure.constrained_layout.h_pad": 0.03, "figure.constrained_layout.w_pad": 0.03,
}  # fmt: skip
LINES = (BLUE, ORANGE, GREEN, PINK, SKY, YELLOW)  # of what has no method's colour
ROW = 0.165  # inches a row of points takes
SAME_SCALE = 6  # panels share a scale where the longest is less than so many times the shortest
LOWER = {"hallucinated_facts"}  # columns where less is better
NEUTRAL = {"max_actions", "wrong predictions"}  # columns with no better end


def _small(draw):
    """A figure function in the style of a paper; of a frame without rows it returns a figure that says so."""

    @functools.wraps(draw)
    def drawn(frame: pd.DataFrame, shown: Sequence[str] = ()) -> Figure:
        with matplotlib.rc_context(SMALL):
            if len(frame):
                return draw(frame, list(shown))
            figure = Figure(figsize=(SINGLE, 0.6))
            figure.text(0.5, 0.5, f"{draw.__name__}: nothing to draw yet", ha="center", va="center", color=GREY)
            return figure

    return drawn


@_small
def points(frame: pd.DataFrame, shown: list[str]) -> Figure:
    """Rows from top to bottom, a panel a column; reported and ours in one panel where they measure the same."""
    rows = list(dict.fromkeys(frame["row"]))
    panels = _columns(frame)
    figure, axes = _grid(len(panels), SINGLE if len(panels) == 1 else DOUBLE, 0.62 + ROW * len(rows), sharey=True)
    for (column, part), panel in zip(panels.items(), axes, strict=False):
        _point_panel(panel, part, rows, shown)
        panel.set_title(_title(column, part, shown))
    _one_scale(axes, list(panels.values()))
    _key(figure, frame, shown)
    return figure


def _one_scale(axes: list, parts: list[pd.DataFrame]):
    """The same scale for all panels, where they have one unit and that hides nothing."""
    units = {unit for part in parts for unit in part["unit"]}
    spans = [_span(part) for part in parts if part["value"].notna().any()]
    ends = [high for _, high in spans]
    if spans and len(units) == 1 and max(ends) < SAME_SCALE * min(ends):
        for panel in axes[: len(parts)]:
            panel.set_xlim(min(low for low, _ in spans), max(ends))


def _point_panel(panel, part: pd.DataFrame, rows: list[str], shown: list[str]):
    groups = _groups(part, shown)
    owners = [name for name, group in groups if group["value"].notna().any()]
    for name, group in groups:
        for row in group[group["value"].notna()].itertuples():
            y = rows.index(row.row) + 2 * _shift(owners.index(name), owners)
            ends = [[max(row.value - row.low, 0)], [max(row.high - row.value, 0)]] if row.low == row.low else None
            panel.errorbar(row.value, y, xerr=ends, **_mark(name, shown, colour(row.row)))
    for row in _singles(part, shown).itertuples():
        _faint(panel, [row.value], [rows.index(row.row)], colour(row.row))
    if part["value"].isna().all():
        _say(panel, _missing(part))
    panel.set_yticks(range(len(rows)), [label(row) for row in rows])
    panel.set_ylim(len(rows) - 0.4, -0.6)
    panel.grid(False, axis="y")
    low, high = _span(part)
    panel.set(xlim=(low, high), xlabel=_unit(part))


@_small
def figure_3(frame: pd.DataFrame, shown: list[str]) -> Figure:
    """Success over iterations, a line a row, a panel a benchmark or split; a cross: a number is missing."""
    return _by_columns(frame, shown, "iteration")


@_small
def depth_study(frame: pd.DataFrame, shown: list[str]) -> Figure:
    """Success by imagined steps, a line a row, a panel a benchmark or split; a cross: a number is missing."""
    return _by_columns(frame, shown, "imagined steps d (0: none)")


def _by_columns(frame: pd.DataFrame, shown: list[str], what: str) -> Figure:
    places, names = (list(dict.fromkeys(frame[key])) for key in ("column", "row"))
    blocks = dict(list(_kept(frame, shown).groupby(["who", "panel"], sort=False)))
    figure, axes = _grid(len(blocks), DOUBLE, 1.95)
    for ((owner, title), part), panel in zip(blocks.items(), axes, strict=False):
        alone = _singles(frame, shown)
        alone = alone[alone["panel"] == title] if not part["reported"].any() else alone.iloc[:0]
        for place, name in enumerate(names):
            shade, line = _line_colour(name, place), part[part["row"] == name]
            _line(panel, line, places, "column", shade, name, _shift(place, names), _mark(owner, (), shade))
            rows = alone[alone["row"] == name]
            x = rows["column"].map(places.index).astype(float) + _shift(place, names)
            _faint(panel, x, rows["value"], shade)
        panel.set_title(f"{label(title)}\n{owner}, {_counted(part) or _missing(part)}")
        _ordinal(panel, part, places, what)
        low, high = panel.get_ylim()
        for place, name in enumerate(names):  # below 0, where no number can be
            gone = part[(part["row"] == name) & part["value"].isna()]
            x, depth = gone["column"].map(places.index).astype(float), -(0.06 + 0.05 * place) * high
            panel.plot(x, [depth] * len(gone), "x", color=_line_colour(name, place), ms=3, mew=0.8)
        panel.set_ylim(-(0.08 + 0.05 * len(names)) * high if part["value"].isna().any() else low, high)
        panel.set_yticks([tick for tick in panel.get_yticks() if 0 <= tick <= high])
    axes[0].plot([], [], "x", color=GREY, ms=3, mew=0.8, label="no number")
    _legend(figure, 5)
    return figure


@_small
def by_candidates(frame: pd.DataFrame, shown: list[str]) -> Figure:
    """Success by the number of candidates, a line for the paper and each run, a panel a column."""
    return _by_rows(frame, shown, SINGLE, "")


@_small
def by_depth(frame: pd.DataFrame, shown: list[str]) -> Figure:
    """Quality by the depth of a walk, a line for the paper and each run, a panel a metric."""
    return _by_rows(frame, shown, DOUBLE, "depth of the walk")


def _by_rows(frame: pd.DataFrame, shown: list[str], width: float, what: str) -> Figure:
    places, panels = sorted(dict.fromkeys(frame["row"]), key=_number), _columns(frame)
    figure, axes = _grid(len(panels), width, 1.8)
    owners = [name for name, _ in _groups(frame, shown)]
    for (column, part), panel in zip(panels.items(), axes, strict=False):
        for name, group in _groups(part, shown):
            place = owners.index(name)
            shade = "black" if name == "reported" else LINES[(place - 1) % len(LINES)]
            _line(panel, group, places, "row", shade, name, _shift(place, owners), _mark(name, shown, shade))
        for row in _singles(part, shown).itertuples():
            _faint(panel, [places.index(row.row)], [row.value], "black")
        if part["value"].isna().all():
            _say(panel, _missing(part))
        panel.set_title(_title(column, part, shown))
        _ordinal(panel, part, places, what)
    _legend(figure, 5)
    return figure


@_small
def success_by_site(frame: pd.DataFrame, shown: list[str]) -> Figure:
    """Successes of every row and column of our runs, a block a run, a part a panel of the frame."""
    frame = frame[frame["run"].isin(shown) & frame["value"].notna()]
    columns = list(dict.fromkeys(frame["column"]))
    rows = list(dict.fromkeys(zip(frame["run"], frame["panel"], frame["row"], strict=True)))
    rows.sort(key=lambda key: (shown.index(key[0]), key[1]))
    figure = Figure(figsize=(DOUBLE, 1.15 + 0.16 * max(len(rows), 6)), layout="constrained")
    panel = figure.subplots()
    grid = [[float("nan")] * len(columns) for _ in rows]
    for row in frame.itertuples():
        y, x = rows.index((row.run, row.panel, row.row)), columns.index(row.column)
        grid[y][x] = row.value
        ink = "black" if row.value > 50 else "white"
        text = f"{row.value * row.n / 100:.0f}/{row.n:.0f}"
        panel.text(x, y, text, ha="center", va="center", color=ink, fontsize=5.5)
    image = panel.imshow(grid, cmap="cividis", vmin=0, vmax=100, aspect="auto")
    ends = [i for i, key in enumerate(rows) if i and key[:2] != rows[i - 1][:2]]
    panel.hlines([i - 0.5 for i in ends], -0.5, len(columns) - 0.5, color="white", linewidth=3)
    panel.set_xticks(range(len(columns)), columns, rotation=35, ha="right")
    panel.set_yticks(range(len(rows)), [row for *_, row in rows])
    for start in [0, *ends]:
        run, split, _ = rows[start]
        panel.annotate(f"{run}\n{label(split)}", (1.0, start - 0.5), xycoords=("axes fraction", "data"), rotation=-90,
                       xytext=(4, 0), textcoords="offset points", va="top", fontsize=6.5)  # fmt: skip
    panel.grid(False)
    figure.colorbar(image, ax=panel, shrink=0.8, aspect=30, fraction=0.03, pad=0.05, label=f"success (%)\n{UP}")
    return figure


def _columns(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The frame by column, reported ones first."""
    return dict(list(frame.groupby("column", sort=False)))


def _kept(part: pd.DataFrame, shown: list[str]) -> pd.DataFrame:
    """Reported rows and those of the runs that are shown, with the heading of each in `who`."""
    kept = part[part["reported"] | part["run"].isin([*shown, ""])]
    return kept.assign(who=[who(row) for row in kept.itertuples()])


def _groups(part: pd.DataFrame, shown: list[str]) -> list[tuple[str, pd.DataFrame]]:
    """By heading: reported rows, then those of each run that is shown."""
    return list(_kept(part, shown).groupby("who", sort=False))


def _singles(part: pd.DataFrame, shown: list[str]) -> pd.DataFrame:
    """The rows of runs that are part of those added up."""
    return part[~part["reported"] & ~part["run"].isin([*shown, ""]) & part["value"].notna()]


def _title(column: str, part: pd.DataFrame, shown: list[str]) -> str:
    """A column; who measured it, where it is one; n where it is known."""
    owners = {name: _counted(group) for name, group in _groups(part, shown) if group["value"].notna().any()}
    if len(owners) > 1:
        kept = _kept(part, shown)
        counted = _counted(kept) if owners.get("reported", "n") else f"ours: {_counted(kept[~kept['reported']])}"
    else:
        counted = ", ".join(filter(None, [*owners, *owners.values()]))
    return "\n".join(filter(None, [textwrap.fill(label(column), 26), counted]))


def _counted(part: pd.DataFrame) -> str:
    """n, or its range, of the numbers in a panel; empty where none is known."""
    n = sorted(set(part[part["value"].notna()]["n"].dropna()))
    return f"n = {'-'.join(f'{x:.0f}' for x in dict.fromkeys((n[0], n[-1])))}" if n else ""


def _missing(part: pd.DataFrame) -> str:
    """Why a panel is empty, in the words of its rows."""
    return ", ".join(dict.fromkeys(note for note in part["note"] if note)) or "nothing to draw"


def _say(panel, text: str):
    panel.text(0.5, 0.5, text, transform=panel.transAxes, ha="center", va="center", color=GREY, fontsize=6.5)


def _grid(count: int, width: float, height: float, **options) -> tuple[Figure, list]:
    """A figure of `count` panels, at most four (a single column: two) in a line of `height` inches."""
    lines = -(-count // (2 if width == SINGLE else 4))
    across = -(-count // lines)
    figure = Figure(figsize=(width, height * lines + 0.25), layout="constrained")
    axes = figure.subplots(lines, across, squeeze=False, **options).ravel()
    for panel in axes[count:]:
        panel.set_visible(False)
    return figure, list(axes)


def _line(panel, part: pd.DataFrame, places: list[str], key: str, shade: str, name: str, shift: float, mark: dict):
    """One line with its intervals; it breaks where a number is missing, and before what is no step of its axis."""
    there = part[part["value"].notna()].set_index(key)
    if there.empty:
        return
    whole = there["value"].reindex([place for place in places if place != "final"])
    panel.plot([x + shift for x in range(len(whole))], whole, color=shade, linewidth=1)
    x, y = [places.index(place) + shift for place in there.index], there["value"]
    ends = [(y - there["low"]).clip(lower=0), (there["high"] - y).clip(lower=0)] if there["low"].notna().any() else None
    panel.errorbar(x, y, yerr=ends, label=name, **mark)


def _mark(owner: str, shown: Sequence[str], shade: str) -> dict:
    """How a point is drawn: a hollow diamond what is reported, a filled shape a run."""
    same = {"color": shade, "linestyle": "none", "elinewidth": 0.8, "capsize": 1.5, "capthick": 0.8, "mew": 0.9}
    if owner == "reported":
        return same | {"marker": "D", "markersize": 3.2, "mfc": "white"}
    return same | {"marker": "os^v"[list(shown).index(owner) % 4 if owner in shown else 0], "markersize": 3.4}


def _faint(panel, x, y, shade: str):
    """Runs one by one, behind what they add up to."""
    panel.plot(x, y, "o", color=shade, alpha=0.45, markersize=2.2, mew=0)


def _key(figure: Figure, frame: pd.DataFrame, shown: list[str]):
    """A legend of who measured."""
    drawn = [name for name, group in _groups(frame, shown) if group["value"].notna().any()]
    marks = [_mark(name, shown, "black") for name in drawn]
    for mark in marks:
        for only in ("elinewidth", "capsize", "capthick"):
            mark.pop(only)
    points_ = [Line2D([], [], **mark) for mark in marks]
    figure.legend(points_, drawn, loc="outside lower center", ncols=4)


def _shift(place: int, of: Sequence) -> float:
    """Sideways, so that several at one place do not hide one another."""
    return 0.13 * (place - (len(of) - 1) / 2)


def _line_colour(name: str, place: int) -> str:
    """A method's colour where the lines are different methods, else the next of LINES."""
    return LINES[place % len(LINES)] if "WMLA" in name else colour(name)


def _number(row: str) -> float:
    return float("".join(c for c in row if c.isdigit()) or 0)


def _span(part: pd.DataFrame) -> tuple[float, float]:
    """From 0, or below it, to a little above all that is drawn."""
    import pandas as pd

    values = pd.concat([part["value"], part["low"], part["high"]]).dropna()
    low, high = (min(0.0, values.min()), values.max()) if len(values) else (0.0, 0.0)
    if part["unit"].iloc[0] == RELATIVE and len(values):  # an interval of a ratio may be endless
        high = min(high, 2.5 * part["value"].max())
    high = high or 100.0
    room = 0.06 * (high - low)
    return low - (room if low < 0 else 0.02 * (high - low)), high + room


def _unit(part: pd.DataFrame) -> str:
    """The unit, and which way is better."""
    column, unit = part["column"].iloc[0], part["unit"].iloc[0]
    if column in NEUTRAL:
        return unit
    lower = column in LOWER or unit in ("USD a task", "seconds a task", "a decision")
    return f"{unit}, lower is better" if lower else f"{unit}, {UP}"


def _ordinal(panel, part: pd.DataFrame, places: list[str], what: str):
    panel.set_xticks(range(len(places)), places)
    low, high = _span(part)
    panel.set(xlim=(-0.45, len(places) - 0.55), ylim=(low, high), xlabel=what, ylabel=_unit(part))
