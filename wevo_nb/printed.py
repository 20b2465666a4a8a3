"""What the command line prints: a run, a plan, a trajectory and a list of tasks, as lines and tables of rich.

Functions give what is to be printed, from top to bottom; cli.py prints it.
"""

from __future__ import annotations

import csv
import shlex
from collections.abc import Iterator
from pathlib import Path

from rich.table import Table
from rich.text import Text

from wevo_nb.actions import thought_of
from wevo_nb.chain import Planned, clock, pace
from wevo_nb.runs import read_json, run_folder
from wevo_nb.schema import Observation, Trajectory

STATES = {
    "done": "done",
    "loads": "done, loads in seconds",
    "goes on": "begun, goes on where it was",
    "to do": "to do",
    "always": "to do (reads the others' files)",
    "fresh": "to do anew; an old folder is set aside",
}


def run_lines(run: str, planned: list[Planned], states: list[str]) -> Iterator[Table | Text]:
    """What `wevo run` is going to do: the stages in order, and where each stands."""
    yield Text(f"run '{run}', profile {planned[0].resolved.profile}; results go to {run_folder(run)}")
    table = Table("", "notebook", "stage", "", box=None, header_style="bold")
    for number, (step, at) in enumerate(zip(planned, states, strict=True), start=1):
        table.add_row(str(number), step.notebook, step.stage, STATES[at], style="dim" if at == "done" else "")
    yield table


def result_lines(run: str, planned: list[Planned]) -> Iterator[Table | Text]:
    """What there is to read of a run, and the table of success rates, if the analysis made it."""
    folder = run_folder(run)
    yield Text("\nexecuted notebooks", "bold")
    yield from (Text(f"  {folder / step.stage / 'notebook.ipynb'}") for step in planned)
    table = folder / "06_analysis" / "tables" / "success.csv"
    if planned[-1].notebook != "06_analysis" or not table.exists():
        return
    yield Text("figures", "bold")
    yield Text(f"  {folder / '06_analysis' / 'figures'}")
    yield Text("results", "bold")
    yield Text(f"  {table}")
    with table.open() as file:
        heading, *rows = (row[:7] for row in csv.reader(file))  # the rate; its bounds and clusters are in the file
    yield (shown := Table(*heading, box=None, header_style="bold"))
    for row in rows:
        shown.add_row(*[f"{float(cell):.3f}" if "." in cell and cell[:1].isdigit() else cell for cell in row])


def planned_lines(told: dict) -> Iterator[Table | Text]:
    """A plan to read from top to bottom: what it does, with what, what it takes, what is missing."""
    yield Text(f"profile {told['profile']}: what a run needs, computed from its params; nothing was started", "bold")
    counts = ("calls", "prompt_tokens", "completion_tokens", "steps", "rows", "trained_tokens")
    rows = [[one["stage"], *(f"{one[count]:,}" for count in counts), f"{one['hours']:.2f}"] for one in told["stages"]]
    sums = [sum(one[count] for one in told["stages"]) for count in counts]
    rows.append(["together", *(f"{total:,}" for total in sums), f"{told['hours']:.2f}"])
    yield table_of("stages, estimated", ["stage", *(count.replace("_", " ") for count in counts), "hours"], rows)
    models = [
        [
            one["role"],
            one["engine"],
            one["base"],
            f"{one['parameters']:,}" if one["parameters"] else "",
            one["revision"],
        ]
        for one in told["models"]
    ]
    yield table_of("models", ["role", "engine", "base", "parameters", "revision"], models, numbers=(3,))
    yield Text("\ncommands", "bold")
    by_text: dict[str, list[str]] = {}
    for one in told["commands"]:
        if one["what"] == "server" or one["number"] == 0:  # a training's other hosts differ in the rank alone
            text = one["command"] if isinstance(one["command"], str) else shlex.join(one["command"])
            by_text.setdefault(f"{one['what']}: {text}", []).append(one["stage"])
    yield from (Text(f"  {text}  ({', '.join(stages)})") for text, stages in by_text.items())
    hosts = 1 + max((one["number"] for one in told["commands"] if one["what"] == "training"), default=0)
    if hosts > 1:
        yield Text(f"  a training on each of {hosts} hosts, with --machine_rank 0 to {hosts - 1}")
    parts = ("weights", "kv", "optimizer", "activations", "other", "per_gpu")
    phases = [
        [f"{one['kind']}: {one['model']}", str(one["devices"]), *(f"{one[f'{part}_gb']:.2f}" for part in parts)]
        for one in told["phases"]
    ]
    headings = ["phase", "devices", "weights", "KV cache", "optimizer", "activations", "other", "in all"]
    yield table_of("memory of one device at most, GB", headings, phases)
    spent = ", ".join(f"{name} {usd:,.2f}" for name, usd in told["costs"].items())
    alone = told["host_gb"] == told["memory"]["per_gpu_gb"]  # a host without GPUs
    host = "" if alone else f"{told['host_gb']:,.1f} GB of memory on the first host, "
    yield Text(
        f"\n{told['memory']['per_gpu_gb']:.1f} GB on the fullest device, {host}{told['disk_gb']:,.1f} GB of disk, "
        f"{told['hours']:,.1f} hours, {told['cost']:,.2f} dollars ({spent})",
        "bold",
    )
    yield Text("assumed: " + "; ".join(told["assumptions"]), "dim")
    yield Text("\nmissing on this machine" if told["missing"] else "\nnothing is missing on this machine", "bold")
    yield from (Text(f"  {one['what']}: {one['cure']}", "yellow") for one in told["missing"])
    yield Text("it does not fit the hardware section" if told["problems"] else "it fits the hardware section", "bold")
    yield from (Text(f"  {problem}", "red") for problem in told["problems"])


def table_of(title: str, headings: list[str], rows: list[list[str]], numbers: tuple[int, ...] | None = None) -> Table:
    """A table; the columns of `numbers`, by default all but the first, stand to the right."""
    table = Table(title=f"\n{title}", title_justify="left", title_style="bold", box=None, header_style="bold")
    for place, heading in enumerate(headings):
        right = place > 0 if numbers is None else place in numbers
        table.add_column(heading, justify="right" if right else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def status_row(folder: Path, part: str) -> tuple[str, ...]:
    """Stage, state, time, peak memory, calls and tokens."""
    manifest, progress = read_json(folder / "manifest.json"), read_json(folder / "progress.json")
    if manifest:
        calls, tokens = (total(manifest["usage"], end) for end in ("calls", "_tokens"))
        spent = (clock(manifest["seconds"]), f"{manifest['peak_memory_mb']:,}", f"{calls:,}", f"{tokens:,}")
        return part, "done", *spent
    if progress:
        import psutil

        at = pace(progress, {progress["label"]: (0.0, 0)})
        running = "running" if psutil.pid_exists(progress["pid"]) else "interrupted"
        return part, f"{running}: {at}", clock(progress["seconds"]), "", "", ""
    return part, "interrupted" if (folder / "params.json").exists() else "not begun", "", "", "", ""


def total(usage: dict, end: str) -> int:
    """The sum of the counts whose name ends so, over all roles."""
    inner = sum(total(value, end) for value in usage.values() if isinstance(value, dict))
    return inner + sum(value for key, value in usage.items() if key.endswith(end) and not isinstance(value, dict))


def trajectory_lines(trajectory: Trajectory) -> Iterator[Text]:
    """A trajectory as text to read from top to bottom."""
    goal = trajectory.task.goal or trajectory.final.goal
    yield Text(trajectory.key, "bold")
    yield Text(f"goal: {goal}\npolicy: {trajectory.policy}, in: {trajectory.environment}")
    for number, step in enumerate(trajectory.steps, start=1):
        yield from page_lines(f"page {number}", step.observation)
        yield Text(f"thought: {thought_of(step.decision.reply)}", "italic")
        action = step.decision.reply.rpartition("Action:")[2].strip().strip("`")
        yield Text(f"action: {action}" + ("" if step.valid else "  (could not be carried out)"), "bold cyan")
        if step.decision.error:
            yield Text(f"not read: {step.decision.error}", "red")
        for candidate in step.decision.candidates:
            score = "unscored" if candidate.score is None else f"{candidate.score:.2f}"
            yield Text(f"  candidate, {score}: {candidate.reply}", "dim")
    yield from page_lines("last page", trajectory.final)
    reward = "" if trajectory.final.reward is None else f", reward {trajectory.final.reward:g}"
    steps = f"{len(trajectory.steps)} steps in {trajectory.seconds:.1f} s"
    yield Text(f"\nended: {trajectory.ended}{reward}, {steps}", "bold")
    if trajectory.error:
        yield Text(f"error: {trajectory.error}", "red")
    if verdict := trajectory.verdict:
        colour = {"success": "green", "failure": "red"}.get(verdict.outcome, "yellow")
        yield Text(f"verdict of {verdict.by}: {verdict.outcome} {verdict.reason}".rstrip(), f"bold {colour}")


def page_lines(title: str, seen: Observation) -> Iterator[Text]:
    yield Text(f"\n{' '.join([title, *filter(None, [seen.title, seen.url])])}", "dim")
    if seen.note:
        yield Text(f"note: {seen.note}", "yellow")
    yield Text(seen.text or "(empty)")


def suite_lines(suites: list[dict]) -> Iterator[Table | Text]:
    """Each suite with its counts, and how to get those that are not here."""
    yield (table := Table("suite", "tasks", "splits", "licence", box=None, header_style="bold"))
    for one in suites:
        total = "not here" if one["missing"] else f"{one['total']:,}"
        table.add_row(one["suite"], total, split_counts(one["splits"]), Text(one["licence"]))
    for one in suites:
        if one["missing"]:
            yield Text(f"{one['suite']}: {one['missing'].splitlines()[0]}", "yellow")
    yield Text("one suite: wevo tasks NAME; files of their owners: wevo tasks NAME --download")


def task_lines(shown: dict) -> Iterator[Table | Text]:
    """The tasks of a suite as a table, under its licence, over the totals."""
    yield Text(f"{shown['suite']}: {shown['licence']}", "bold")
    if shown["about"]:
        yield Text(shown["about"])
    yield from file_lines(shown["files"])
    rows = shown["tasks"]
    table = Table(box=None, header_style="bold")
    columns = [key for key in (rows[0] if rows else {}) if any(row[key] for row in rows)]
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(row[column]) for column in columns))
    yield table
    yield Text(f"{len(rows)} of {shown['chosen']:,} shown; in all {shown['total']:,}: {split_counts(shown['splits'])}")


def file_lines(files: list[dict]) -> Iterator[Text]:
    for one in files:
        yield Text(f"{one['file']} is here, from {one['address']} (SHA-256 {one['checksum']})", "dim")


def split_counts(splits: dict[str, int]) -> str:
    return ", ".join(f"{split} {count:,}" for split, count in splits.items())
