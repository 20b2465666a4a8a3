"""The figures of world models, judges and look-ahead: report cards, walks, truth by threshold, grids.

Like figures.py: a tidy frame in, a matplotlib Figure out, n and a 95% interval on every point.
Used by notebooks 02, 03, 05 and 06. Paper: Table 2, Table 4 and the depth study.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from wevo_nb.card_pairs import SHOWN
from wevo_nb.figures import (
    BLUE,
    GREEN,
    ORANGE,
    PINK,
    SKY,
    UP,
    YELLOW,
    _interval,
    _legend,
    _note,
    _rows,
    _side_by_side,
    _styled,
    colour,
)
from wevo_nb.report_card import LOWER_IS_BETTER, TEACHER_FORCED

if TYPE_CHECKING:
    import pandas as pd

FIRST_METRICS = ("parses", "exact_match", "outcome_accuracy", "changed_f1", "auc_success")  # that most is read from
LINES = (GREEN, BLUE, ORANGE, PINK, SKY, YELLOW)  # of a grid, whose series are all one method
DEPTH_METRICS = ("exact_match", "outcome_accuracy", "element_f1", "hallucinated_facts")
WORTH = {  # metric of calibration.calibrate: title of its panel, and which way is better
    "precision": ("precision", UP),
    "recall": ("recall", UP),
    "false_success": ("failures accepted", "lower is better"),
    "false_success_own": ("of its own policy", "lower is better"),
}
WALK_METRICS = ("outcome_accuracy", "exact_match")
FRACTIONS = (range(0, 101, 25), ("0", ".25", ".5", ".75", "1"))  # ticks of a scale in percent


@_styled
def report_card_rows(frame: pd.DataFrame) -> Figure:
    """A report card at one step, a panel a metric (of `card_pairs.SHOWN`), a row a model. Frame: its columns."""
    models, metrics = list(dict.fromkeys(frame["model"])), [m for m in SHOWN if m in set(frame["metric"])]
    figure = Figure(figsize=(1.2 + 2.0 * len(metrics), 1.5 + 0.34 * len(models)), layout="constrained")
    panels = figure.subplots(1, len(metrics), sharey=True, squeeze=False)[0]
    for metric, panel in zip(metrics, panels, strict=True):
        _rows(panel, models)
        part = frame[frame["metric"] == metric]
        for row in part[part["n"] > 0].itertuples():
            _interval(panel, models.index(row.model), row.value, row.low, row.high, colour(row.model))
        if metric == "auc_success":
            panel.axvline(50, color="black", linestyle=":", linewidth=1)
        panel.set_title(f"{metric}\nn = {part['n'].max():.0f}", fontsize=9)
        panel.set(xlim=(-4, 104))
        panel.set_xticks(*FRACTIONS)
    figure.supxlabel(f"0 to 1, 95% interval; {UP}; dotted: a coin", fontsize=8)
    return figure


@_styled
def walk_points(frame: pd.DataFrame) -> Figure:
    """Free walks beside predictions from the real page, a panel a metric. Frame: `walk_frame`."""
    metrics, depths = list(dict.fromkeys(frame["metric"])), sorted(set(frame["depth"]))
    series = list(dict.fromkeys(frame["series"]))
    figure = Figure(figsize=(1 + 3.4 * len(metrics), 3.2), layout="constrained")
    panels = figure.subplots(1, len(metrics), sharey=True, squeeze=False)[0]
    for metric, panel in zip(metrics, panels, strict=True):
        _side_by_side(panel, frame[frame["metric"] == metric], "depth", depths, series, spread=0.16)
        panel.set(title=metric, ylim=(-4, 104), xlabel="step of the walk")
        panel.set_yticks(*FRACTIONS)
    panels[0].set_ylabel(f"0 to 1, 95% interval\n{UP}")
    _legend(figure, columns=len(series))
    return figure


def walk_frame(card: pd.DataFrame, newest: str) -> pd.DataFrame:
    """The frame of `walk_points` from a report card: series, depth (from 2 on), metric (WALK_METRICS), n, value, low,
    high (fractions). Series are the free walks of `newest`, the same places from the real page, and copying the page.
    """
    import pandas as pd

    deep = card[card["depth"] > 1]
    parts = [
        deep[deep["model"] == newest].assign(series=f"{newest}, free walk"),
        deep[(deep["model"] == newest) & deep["metric"].str.startswith(TEACHER_FORCED)].assign(
            series=f"{newest}, real page", metric=lambda rows: rows["metric"].str.removeprefix(TEACHER_FORCED)
        ),
        deep[deep["model"] == "copy_page"].assign(series="copy_page"),
    ]
    whole = pd.concat(parts, ignore_index=True)
    columns = ["series", "depth", "metric", "n", "value", "low", "high"]
    return whole[whole["metric"].isin(WALK_METRICS) & (whole["n"] > 0)][columns].reset_index(drop=True)


@_styled
def quality_by_depth(frame: pd.DataFrame) -> Figure:
    """How a world model's walk decays, a panel a metric. Frame: the columns of the report card.

    Rows of the paper's Table 2 may stand in it, with values from 0 to 1 and nan intervals.
    """
    known = [m for m in DEPTH_METRICS if m in set(frame["metric"])]
    metrics = list(dict.fromkeys([*known, *frame["metric"]]))
    columns = min(len(metrics), 4)
    lines = -(-len(metrics) // columns)
    figure = Figure(figsize=(2.7 * columns, 2.6 * lines + 0.5), layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False).ravel()
    models = list(dict.fromkeys(frame["model"]))
    depths = sorted(set(frame["depth"]))
    for metric, panel in zip(metrics, panels, strict=False):
        rows = frame[frame["metric"] == metric]
        for place, model in enumerate(models):
            part = rows[rows["model"] == model].sort_values("depth")
            if part.empty:
                continue
            xs = [depths.index(d) + 0.1 * (place - (len(models) - 1) / 2) for d in part["depth"]]
            panel.plot(xs, 100 * part["value"], color=colour(model), linewidth=1)
            for x, row in zip(xs, part.itertuples(), strict=True):
                _interval(panel, x, row.value, row.low, row.high, colour(model), upright=True, label=model)
        counts = rows.groupby("depth")["n"].max().reindex(depths)
        panel.set_xticks(range(len(depths)), [f"{d}\nn = {n:.0f}" if n == n else str(d) for d, n in counts.items()])
        panel.set(title=metric, ylim=(-3, 103), xlim=(-0.5, len(depths) - 0.5), xlabel="depth of the walk")
        panel.set_ylabel("%, lower is better" if metric in LOWER_IS_BETTER else f"%, {UP}", fontsize=7)
    for panel in panels[len(metrics) :]:
        panel.set_visible(False)
    _legend(figure, columns=4)
    return figure


def depth_frame(card: pd.DataFrame, table_2: pd.DataFrame, grades: pd.DataFrame | None = None) -> pd.DataFrame:
    """The frame of `quality_by_depth`: DEPTH_METRICS of a report card, our `grades` of the kinds that the
    paper has (`grader.grade_rows`), then those of `paper.table_2`.

    The newest model stands there twice: `<model>, real page` is predicted at the same places, but
    from the real page. What its free walk loses is the difference of the two; depth 1 are other
    places, all that is held out.
    """
    import pandas as pd

    newest = card["model"].iloc[-1] if len(card) else ""
    forced = card[card["metric"].str.startswith(TEACHER_FORCED) & (card["model"] == newest)]
    forced = forced.assign(metric=forced["metric"].str.removeprefix(TEACHER_FORCED), model=f"{newest}, real page")
    ours = pd.concat([card, forced], ignore_index=True)
    ours = ours[ours["metric"].isin(DEPTH_METRICS)].assign(depth=lambda rows: rows["depth"].astype(str))
    graded = table_2[table_2["depth"] != "all"].assign(
        metric=lambda rows: rows["metric"] + ", paper",
        model="paper iter-2",
        value=lambda rows: rows["score_percent"] / 100,
    )
    columns = ["model", "depth", "metric", "n", "value", "low", "high"]
    parts = [ours, graded]
    if grades is not None:
        own = grades[grades["metric"].isin(set(table_2["metric"]))].assign(depth=lambda rows: rows["depth"].astype(str))
        parts.insert(1, own)
    return pd.concat(parts, ignore_index=True).reindex(columns=columns)


@_styled
def truth_by_threshold(frame: pd.DataFrame) -> Figure:
    """How many dreams reach each threshold and how many of these are true; the thresholds stand side by side.

    Frame: `synthesis.truth_by_threshold`.
    """
    figure = Figure(figsize=(7, 3), layout="constrained")
    panel = figure.subplots()
    for place, row in enumerate(frame.itertuples()):
        if row.n:
            _interval(panel, place, row.rate, row.low, row.high, ORANGE, upright=True)
    reached = zip(frame["threshold"], frame["n"], strict=True)
    panel.set_xticks(range(len(frame)), [f"{t:g}\nn = {n}" for t, n in reached])
    panel.set(xlabel="P(success) of at least", ylabel=f"true (%, 95% interval)\n{UP}", ylim=(-3, 103))
    panel.set_xlim(-0.5, len(frame) - 0.5)
    return figure


@_styled
def judges_worth(frame: pd.DataFrame) -> Figure:
    """What each judge is worth, a panel a metric. Frame: `calibration.COLUMNS`, of what was measured (n > 0)."""
    frame = frame[frame["metric"].isin(WORTH)]
    names = frame["judge"] + frame["model"].map(lambda model: f" ({model})" if model else "") + "\n" + frame["stage"]
    rows = list(dict.fromkeys(names))
    shown = [metric for metric in WORTH if metric in set(frame["metric"])]
    figure = Figure(figsize=(2.6 * max(len(shown), 2), 1.3 + 0.45 * len(rows)), layout="constrained")
    panels = figure.subplots(1, max(len(shown), 1), sharey=True, squeeze=False)[0]
    for metric, panel in zip(shown, panels, strict=False):
        _rows(panel, rows)
        for row, name in zip(frame.itertuples(), names, strict=True):
            if row.metric == metric:
                _interval(panel, rows.index(name), row.value, row.low, row.high, BLUE)
                _note(panel, rows.index(name), f"{round(row.value * row.n)}/{row.n}")
        panel.set(title=WORTH[metric][0], xlim=(-3, 103), xlabel=f"% (95% interval)\n{WORTH[metric][1]}")
    return figure


@_styled
def lookahead_grid(frame: pd.DataFrame) -> Figure:
    """Success by width and by depth, this run and the paper. Frame: `metrics.GRID_COLUMNS`.

    A panel a source and axis. A series is named `<policy>, <what is fixed>`; what all lines of a panel have fixed
    stands in its title.
    """
    parts = dict(list(frame.groupby(["source", "axis"], sort=False)))
    figure = Figure(figsize=(3.4 * len(parts), 3.4), layout="constrained")
    panels = figure.subplots(1, len(parts), squeeze=False, sharey=True)[0]
    for ((source, axis), rows), panel in zip(parts.items(), panels, strict=True):
        names = list(dict.fromkeys(rows["series"]))
        fixed = {name.rpartition(", ")[2] for name in names}
        for place, name in enumerate(names):
            label = name.rpartition(", ")[0] if len(fixed) == 1 else name
            part = rows[rows["series"] == name].sort_values("x")
            xs = [x + 0.08 * (place - (len(names) - 1) / 2) for x in part["x"]]
            shade = LINES[place % len(LINES)]
            panel.plot(xs, 100 * part["rate"], color=shade, linewidth=1)
            for x, row in zip(xs, part.itertuples(), strict=True):
                _interval(panel, x, row.rate, row.low, row.high, shade, upright=True, label=label)
        spread = sorted({int(rows["n"].min()), int(rows["n"].max())})
        panel.set_xticks(sorted(set(rows["x"])))
        told = [source, *(fixed if len(fixed) == 1 else ())]
        panel.set_title(f"{', '.join(told)} (n = {'-'.join(map(str, spread))})", fontsize=9)
        panel.set_xlabel("candidates k" if axis == "k" else "steps imagined d (0: none)")
        drawn = dict(zip(*reversed(panel.get_legend_handles_labels()), strict=True))  # each name once
        panel.legend(drawn.values(), drawn.keys(), loc="best")
    panels[0].set_ylabel(f"success (%, 95% interval)\n{UP}")
    return figure
