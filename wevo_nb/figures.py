"""The figures of a run: one function each, a tidy frame in, a matplotlib Figure out.

Frames come from metrics.py; `save_figure` writes png, pdf, svg, the plotted csv and a json with the
hashes of what it was made from. A method has one colour everywhere, of a palette that colour-blind
readers can tell apart (Okabe and Ito 2008). Rates are drawn in percent, with n and a 95% interval.
The papers' own figures are in figures_paper.py. Notebooks 02 to 06.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib
from matplotlib.figure import Figure

from wevo_nb import runs

if TYPE_CHECKING:
    import pandas as pd

BLUE, SKY, ORANGE, GREY, GREEN, PINK, YELLOW = "#0072B2 #56B4E9 #D55E00 #6E6E6E #009E73 #CC79A7 #E69F00".split()
COLOURS = {  # the first pattern found in a method's name gives its colour
    "best_of_k": PINK, "webdreamer|untrained": YELLOW, "wmla.*[2-9]|look-ahead.*[2-9]|real page": "#00614A",
    "iteration_1": "#7FCDBB", "wmla|look-ahead|iteration_": GREEN,
    "webevolver": ORANGE, "synthetic|no_world_model": "#8C6D31", "majority|gpt-4o": "#B5B5B5", "explorer": "#B35C9E",
    "true_dreams": "#B8860B",
    "more_real|real_only": "#3B6FA0", "mixed": "#E8A36B", "self.improve.*[3-9]": "#08306B", "self.improve.*2": BLUE,
    "self.improve": SKY, "zero.shot|copy_page": GREY,
}  # fmt: skip
TITLES = {
    "test_seeds": "held-out seeds of the training tasks", "test_tasks": "tasks never trained on",
    "test_sites": "sites never trained on",
    "webvoyager": "WebVoyager", "mind2web_live": "Mind2Web-Live",
}  # fmt: skip
STYLE = {
    "font.size": 9, "axes.titlesize": 10, "axes.titleweight": "bold", "axes.titlelocation": "left", "axes.grid": True,
    "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True, "grid.color": "#E4E4E4",
    "ytick.major.size": 0, "legend.frameon": False, "legend.fontsize": 8, "pdf.fonttype": 42, "svg.hashsalt": "wevo",
    "figure.constrained_layout.h_pad": 0.08, "figure.constrained_layout.w_pad": 0.08,
}  # fmt: skip
UP = "higher is better"
DOTTED = "dotted: zero_shot; in lower blocks the plain policy"
STALL = {  # metric of exploration.stall_table: title of its panel, unit and which way is which
    "distinct_pages": ("different pages", "count\nhigher explores more"),
    "pages_per_episode": ("pages an episode", "count\nhigher explores more"),
    "actions_per_page": ("different actions a page", "mean count\nhigher explores more"),
    "similarity": ("similarity to the past", "share of actions in common\nlower explores more"),
    "entropy": ("entropy of the policy", "nats\nhigher explores more"),
    "acceptance": ("acceptance", f"% of episodes\n{UP}"),
    "new_tasks": ("newly solved kinds", f"count\n{UP}"),
}


def colour(method: str) -> str:
    """The colour of an arm, of a method of the paper or of a world model; black where it has none."""
    return next((shade for pattern, shade in COLOURS.items() if re.search(pattern, method.lower())), "#000000")


def save_figure(figure: Figure, frame: pd.DataFrame, folder: Path, name: str, inputs: dict, caption: str = "") -> Path:
    """Writes <name>.png, .pdf, .svg, .csv (the plotted frame) and .json (caption, inputs, hash of the csv).

    `inputs` maps what the frame was made from to its hash. Returns the path of the png.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.png"
    frame.to_csv(path.with_suffix(".csv"), index=False)
    with matplotlib.rc_context(STYLE):
        figure.savefig(path, dpi=200)
        figure.set_layout_engine("none")  # it is laid out: the same in every file, and once
        figure.savefig(path.with_suffix(".pdf"), metadata={"CreationDate": None})
        figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    made_of = {"caption": caption, "inputs": inputs, "csv": runs.sha256(path.with_suffix(".csv"))}
    runs.write_json(path.with_suffix(".json"), made_of)
    return path


def _styled(draw):
    """A figure function in our style; of a frame without rows it returns a figure that says so."""

    @functools.wraps(draw)
    def drawn(frame: pd.DataFrame) -> Figure:
        with matplotlib.rc_context(STYLE):
            if len(frame):
                return draw(frame)
            figure = Figure(figsize=(8, 1))
            figure.text(0.5, 0.5, f"{draw.__name__}: nothing to draw yet", ha="center", va="center", color=GREY)
            return figure

    return drawn


@_styled
def success_by_arm(frame: pd.DataFrame) -> Figure:
    """Success of every arm, a panel a split. Frame: `metrics.success_table`.

    The policies stand on top, with the rate of zero_shot as a dotted line; below them, policy by policy, the ways
    to look ahead, with the rate of their own policy.
    """
    arms = list(dict.fromkeys(frame["arm"]))
    plain = [arm for arm in arms if "+" not in arm]
    groups = {"zero_shot": plain}  # what the dotted line of a group is the rate of
    for arm in arms:
        if "+" in arm:
            groups.setdefault(f"{arm.partition('+')[0]}+", []).append(arm)
    rows = [arm for group in groups.values() for arm in group]
    figure, panels = _panels(frame["split"], (9.5, 1.5 + 0.34 * len(rows)), sharey=True)
    for split, panel in panels.items():
        _rows(panel, rows)
        here = frame[frame["split"] == split].set_index("arm")
        for base, group in groups.items():
            ends = [rows.index(group[0]) - 0.5, rows.index(group[-1]) + 0.5] if group else []
            if ends and ends[0] > 0:
                panel.axhline(ends[0], color="#BBBBBB", linewidth=0.7)
            if ends and (base := base.rstrip("+")) in here.index:
                panel.plot([100 * here.loc[base, "rate"]] * 2, ends, color=colour(base), linestyle=":", linewidth=1.5)
        for row in here.itertuples():
            _interval(panel, rows.index(row.Index), row.rate, row.low, row.high, colour(row.Index))
            _note(panel, rows.index(row.Index), f"{row.successes}/{row.n}")
        panel.set(xlim=(0, 100), xlabel=f"success (% of episodes, 95% interval); {UP}\n{DOTTED}")
    return figure


@_styled
def task_rates(frame: pd.DataFrame) -> Figure:
    """Success of one policy on every task, the best on top. Frame: `metrics.task_table` of one arm."""
    frame = frame.sort_values("rate", ascending=False)
    figure, panels = _panels(frame["arm"], (7, 1.2 + 0.26 * len(frame)))
    for arm, panel in panels.items():
        _rows(panel, list(frame["task"]))
        for y, row in enumerate(frame.itertuples()):
            _interval(panel, y, row.rate, row.low, row.high, colour(arm))
            _note(panel, y, f"{row.successes}/{row.n}")
        panel.set(xlim=(0, 100), xlabel=f"success (% of episodes, 95% interval); {UP}")
    return figure


@_styled
def paired_differences(frame: pd.DataFrame) -> Figure:
    """Differences on the same episodes, +won -lost of n; hollow where 0 is inside. Frame: `metrics.paired_table`."""
    pairs = list(dict.fromkeys(zip(frame["arm_b"], frame["arm_a"], strict=True)))
    figure, panels = _panels(frame["split"], (10.5, 1.5 + 0.34 * len(pairs)), sharey=True, sharex=True)
    for split, panel in panels.items():
        _rows(panel, [f"{b}  against  {a}" for b, a in pairs])
        panel.axvline(0, color="black", linewidth=1)
        for row in frame[frame["split"] == split].itertuples():
            y, hollow = pairs.index((row.arm_b, row.arm_a)), row.low <= 0 <= row.high
            _interval(panel, y, row.difference, row.low, row.high, colour(row.arm_b), hollow=hollow)
            _note(panel, y, f"+{row.won} \N{MINUS SIGN}{row.lost} of {row.n}")
        panel.set_xlabel("difference (points, 95% interval);\nright of 0: the arm named first is better")
    return figure


@_styled
def differences_by_run(frame: pd.DataFrame) -> Figure:
    """Paired differences, the runs of a pair one below the other, a bar at the mean. `repeats.paired_runs_table`."""
    pairs = list(dict.fromkeys(zip(frame["arm_b"], frame["arm_a"], strict=True)))
    named = list(dict.fromkeys(frame["run"]))
    height = 1.8 + (0.2 + 0.16 * len(named)) * len(pairs)
    figure, panels = _panels(frame["split"], (10.5, height), sharey=True, sharex=True)
    for split, panel in panels.items():
        _rows(panel, [f"{b}  against  {a}" for b, a in pairs])
        panel.axvline(0, color="black", linewidth=1)
        for (b, a), rows in frame[(frame["split"] == split) & (frame["n"] > 0)].groupby(["arm_b", "arm_a"], sort=False):
            y, mean = pairs.index((b, a)), 100 * rows["difference"].mean()
            panel.plot([mean, mean], [y - 0.42, y + 0.42], color="black", linewidth=2, alpha=0.5)
            for row in rows.itertuples():
                place = y + 0.7 * ((named.index(row.run) + 0.5) / len(named) - 0.5)
                _interval(panel, place, row.difference, row.low, row.high, colour(b), hollow=row.low <= 0 <= row.high)
            _note(panel, y, f"{mean:+.0f}, n = {'+'.join(str(n) for n in rows['n'])}".replace("-", "\N{MINUS SIGN}"))
        panel.set_xlabel(
            "difference (points, 95% interval);\nright of 0: the arm named first is better\n"
            f"from above: {', '.join(named)}; bar: mean"
        )
    return figure


@_styled
def trajectory_funnel(frame: pd.DataFrame) -> Figure:
    """How many are left after every filter, a panel a stage. Frame: stage, step, kept; in order."""
    stages = dict(list(frame.groupby("stage", sort=False)))
    lengths = [len(rows) + 1 for rows in stages.values()]
    figure = Figure(figsize=(8.5, 0.8 + 0.5 * len(stages) + 0.25 * sum(lengths)), layout="constrained")
    grid = figure.subplots(len(stages), 1, squeeze=False, gridspec_kw={"height_ratios": lengths})
    for (stage, rows), panel in zip(stages.items(), grid[:, 0], strict=True):
        kept, texts = rows["kept"].tolist(), []
        sources = rows["step"].str.extract(r"^(\w+): ", expand=False).fillna("").tolist()  # real or imagined
        for i, now in enumerate(kept):
            before = kept[i - 1] if i and sources[i] == sources[i - 1] else 0
            texts.append(f"{now}  ({now / before:.0%} of the step before)" if before and now <= before else str(now))
        _bars(panel, rows["step"].tolist(), kept, texts)
        panel.set_title(stage)
    grid[-1, 0].set_xlabel("count left")
    return figure


@_styled
def world_model_quality(frame: pd.DataFrame) -> Figure:
    """The report cards, a panel a metric. Frame: iteration, model, target, metric, n, value, low, high (fractions)."""
    iterations = sorted(set(frame["iteration"]))
    own = frame["model"] == "iteration_" + frame["iteration"].astype(str)
    frame = frame[own | ~frame["model"].str.startswith("iteration_")]  # earlier models stand in the table alone
    frame = frame.assign(series=frame["model"].str.replace(r"iteration_\d+", "trained", regex=True))
    if frame["target"].nunique() > 1:
        frame["series"] += ", " + frame["target"]
    series = list(dict.fromkeys(frame["series"]))
    figure, panels = _panels(frame["metric"], (2.4 * frame["metric"].nunique() + 0.3, 3.5), sharey=True)
    for metric, panel in panels.items():
        rows = frame[frame["metric"] == metric]
        _side_by_side(panel, rows, "iteration", iterations, series, spread=0.2, shade="model")
        panel.set(ylim=(-3, 103), xlabel="iteration")
        if metric == "auc_success":
            panel.axhline(50, color="black", linestyle=":", linewidth=1)
            panel.text(-0.45, 51, "chance", fontsize=7)
    figure.axes[0].set_ylabel(f"% of held-out transitions\n(AUC: x 100); {UP}")
    _legend(figure, columns=len(series))
    return figure


@_styled
def time_and_tokens(frame: pd.DataFrame) -> Figure:
    """Where time and tokens went. Frame: stage, seconds, prompt_tokens, completion_tokens, peak_memory_mb."""
    figure = Figure(figsize=(10.5, 1.4 + 0.3 * len(frame)), layout="constrained")
    time, tokens = figure.subplots(1, 2, sharey=True)
    stages, minutes = frame["stage"].tolist(), (frame["seconds"] / 60).tolist()
    memory = frame["peak_memory_mb"] / 1024
    _bars(time, stages, minutes, [f"{m:.1f} min, {gb:.1f} GB" for m, gb in zip(minutes, memory, strict=True)])
    prompt, completion = frame["prompt_tokens"] / 1000, frame["completion_tokens"] / 1000
    total = (prompt + completion).tolist()
    _bars(tokens, stages, total, [f"{t:,.0f}k" if t else "none" for t in total], ORANGE, label="completion")
    tokens.barh(range(len(stages)), prompt, color=SKY, height=0.7, label="prompt")
    time.set(title="wall time", xlabel="minutes, and peak memory; less is better")
    tokens.set(title="model tokens", xlabel="thousand tokens; less is better")
    _legend(figure, columns=2)
    return figure


@_styled
def loss_curve(frame: pd.DataFrame) -> Figure:
    """Training loss: thin as logged, thick its running mean. Frame: step, loss, model."""
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    panel = figure.subplots()
    shades = [BLUE, ORANGE, GREEN, PINK, YELLOW, SKY, "#000000"]
    for place, (model, rows) in enumerate(frame.groupby("model", sort=False)):
        shade, window = shades[place % len(shades)], max(len(rows) // 10, 1)
        panel.plot(rows["step"], rows["loss"], color=shade, alpha=0.25, linewidth=0.8)
        smooth = rows["loss"].rolling(window, min_periods=1, center=True).mean()
        panel.plot(rows["step"], smooth, color=shade, linewidth=1.8, label=f"{model} ({len(rows)} logged steps)")
    panel.set(xlabel="optimizer step", ylabel="training loss (nats)\nlower is better", ylim=(0, None))
    panel.legend()
    return figure


@_styled
def row_tokens(frame: pd.DataFrame) -> Figure:
    """How long the rows of a training are, whole and their replies alone. Frame: part, tokens, limit (dashed)."""
    figure = Figure(figsize=(8, 2.6), layout="constrained")
    parts = list(dict.fromkeys(frame["part"]))
    for part, panel in zip(parts, figure.subplots(1, len(parts), squeeze=False)[0], strict=True):
        rows = frame[frame["part"] == part]
        longest, limit = rows["tokens"].max(), rows["limit"].max()
        panel.hist(rows["tokens"], bins=30, color=BLUE)
        if limit < 3 * longest:  # further off it would only squeeze the rest
            panel.axvline(limit, color="black", linestyle="--", linewidth=1)
        panel.set(xlabel=f"tokens of a {part}", ylabel="rows", xlim=(0, None))
        panel.set_title(f"{len(rows)} rows, longest {longest}, limit {limit}")
    return figure


@_styled
def success_by_task(frame: pd.DataFrame) -> Figure:
    """Successes of every task and arm as a heatmap, easiest tasks on top. Frame: `metrics.task_table`."""
    arms = list(dict.fromkeys(frame["arm"]))
    means = frame.groupby(["split", "task"])["rate"].mean()
    tasks = sorted(means.index, key=lambda task: (task[0], -means[task], task[1]))
    rates = frame.pivot(index=["split", "task"], columns="arm", values="rate").reindex(index=tasks, columns=arms)
    figure = Figure(figsize=(2.6 + 1.05 * len(arms), 1.4 + 0.27 * len(tasks)), layout="constrained")
    panel = figure.subplots()
    image = panel.imshow(100 * rates.to_numpy(dtype=float), cmap="cividis", vmin=0, vmax=100, aspect="auto")
    for row in frame.itertuples():
        x, y = arms.index(row.arm), tasks.index((row.split, row.task))
        ink = "black" if row.rate > 0.5 else "white"
        panel.text(x, y, f"{row.successes}/{row.n}", ha="center", va="center", color=ink, fontsize=8)
    seeds = sum(split == "test_seeds" for split, _ in tasks)
    panel.axhline(seeds - 0.5, color="white", linewidth=5)
    panel.set_xticks(range(len(arms)), arms, rotation=30, ha="right")
    panel.set_yticks(range(len(tasks)), [task if split == "test_seeds" else f"{task} *" for split, task in tasks])
    panel.set_title("successes / episodes (* never trained on)")
    panel.grid(False)
    figure.colorbar(image, ax=panel, shrink=0.6, label=f"success (%); {UP}")
    return figure


@_styled
def imagined_ledger(frame: pd.DataFrame) -> Figure:
    """What became of imagined rollouts, and how many accepted ones are true. Frame: `metrics.ledger_table`."""
    figure = Figure(figsize=(9.5, 1.2 + 0.34 * len(frame)), layout="constrained")
    panel = figure.subplots()
    replayed = frame["counted"] == "replayed"
    _rows(panel, frame["outcome"].mask(replayed, "accepted, replayed: " + frame["outcome"]).tolist())
    if replayed.any():
        panel.axhline((~replayed).sum() - 0.5, color="black", linewidth=0.7)
    for y, row in enumerate(frame.itertuples()):
        shade = ORANGE if row.counted == "replayed" else GREEN if row.outcome.startswith("accepted") else GREY
        _interval(panel, y, row.rate, row.low, row.high, shade)
        _note(panel, y, f"{row.n}/{row.of}")
    panel.set(
        xlim=(-2, 102), xlabel="share (%, 95% interval) of the imagined rollouts; below the line of those replayed"
    )
    return figure


@_styled
def stall(frame: pd.DataFrame) -> Figure:
    """What is still new in what each iteration collected, a panel a metric; dashed squares, what it did in tests.

    Frame: `exploration.stall_table`, one or several on top of one another.
    """
    parts = dict(list(frame.groupby("metric", sort=False)))
    arms, columns = list(dict.fromkeys(frame["arm"])), min(len(parts), 4)
    lines = -(-len(parts) // columns)
    figure = Figure(figsize=(2.7 * columns, 2.7 * lines + 0.3), layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False).ravel()
    for (metric, rows), panel in zip(parts.items(), panels, strict=False):
        for place, arm in enumerate(arms):
            part = rows[(rows["arm"] == arm) & rows["value"].notna()]
            x = part["iteration"] + 0.1 * (place - (len(arms) - 1) / 2)
            tested = arm.endswith("_tests")
            look = {"fmt": "s--", "mfc": "white"} if tested else {"fmt": "o-"}
            y, low, high = (100 if metric == "acceptance" else 1) * part[["value", "low", "high"]].to_numpy(float).T
            panel.errorbar(x, y, [y - low, high - y], **look, color=colour(arm), capsize=2.5, label=arm)
        ends = rows.groupby("iteration")["n"].agg(["min", "max"])
        counts = ["-".join(dict.fromkeys(map(str, pair))) for pair in ends.to_numpy()]
        panel.set_xticks(ends.index, [f"{i}\n{n}" for i, n in zip(ends.index, counts, strict=True)])
        panel.tick_params(axis="x", labelsize=6)
        (title, unit), top = STALL.get(metric, (metric, "")), panel.get_ylim()[1]
        panel.set(title=title, ylabel=unit, xlabel="iteration, n below", ylim=(-0.03 * top, 1.06 * top))
        panel.set_xlim(ends.index[0] - 0.4, ends.index[-1] + 0.4)
    for panel in panels[len(parts) :]:
        panel.set_visible(False)
    _legend(figure, columns=4)
    return figure


def _panels(names: Iterable[str], size: tuple[float, float], **options) -> tuple[Figure, dict]:
    """A figure with one row of titled panels, one a different name; the panels by name."""
    names = list(dict.fromkeys(names))
    figure = Figure(figsize=size, layout="constrained")
    panels = dict(zip(names, figure.subplots(1, len(names), squeeze=False, **options)[0], strict=True))
    for name, panel in panels.items():
        panel.set_title(TITLES.get(name, name))
    return figure, panels


def _rows(panel, labels: list[str]):
    """Names the rows of a horizontal panel, the first on top."""
    panel.set_yticks(range(len(labels)), labels)
    panel.set_ylim(len(labels) - 0.4, -0.6)
    panel.grid(False, axis="y")


def _bars(panel, labels: list[str], values: list[float], texts: list[str], shade: str = BLUE, **options):
    """Horizontal bars with a text behind each."""
    panel.barh(range(len(labels)), values, color=shade, height=0.7, **options)
    for y, (value, text) in enumerate(zip(values, texts, strict=True)):
        panel.text(value, y, f" {text}", va="center", fontsize=8)
    panel.set_xlim(0, 1.4 * max(values) or 1)
    _rows(panel, labels)
    panel.grid(False)


def _interval(panel, place, value, low, high, shade, *, upright=False, hollow=False, label=None):
    """Fractions as a point with its interval in percent, at `place` on the other axis; nan ends: no interval."""
    ends = [[100 * max(value - low, 0)], [100 * max(high - value, 0)]] if low == low else None
    x, y, name = (place, 100 * value, "yerr") if upright else (100 * value, place, "xerr")
    face = "white" if hollow else shade
    panel.errorbar([x], [y], **{name: ends}, fmt="o", color=shade, mfc=face, markersize=6, capsize=2.5, label=label)


def _side_by_side(panel, rows, at: str, places: list, series: list[str], *, spread: float, shade: str = "series"):
    """Each row as an upright point over its place (`at`, one of `places`), series beside each other; n below each."""
    for row in rows.to_dict("records"):
        x = places.index(row[at]) + spread * (series.index(row["series"]) - (len(series) - 1) / 2)
        told = {"upright": True, "label": row["series"]}
        _interval(panel, x, row["value"], row["low"], row["high"], colour(row[shade]), **told)
    most = rows.groupby(at)["n"].max().reindex(places, fill_value=0)
    panel.set_xticks(range(len(places)), [f"{place}\nn = {n:.0f}" for place, n in most.items()])
    panel.set_xlim(-0.5, len(places) - 0.5)


def _note(panel, y: float, text: str):
    """Small print at the right edge, outside the axes."""
    panel.text(1.02, y, text, transform=panel.get_yaxis_transform(), va="center", fontsize=8, color="#333333")


def _legend(figure: Figure, columns: int):
    """One legend below all panels, each name once."""
    named = {name: point for p in figure.axes for point, name in zip(*p.get_legend_handles_labels(), strict=True)}
    if named:
        figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=columns)
