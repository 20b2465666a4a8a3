"""The command line: `wevo run | plan | status | show | view | report | figures | params | tasks | replay | sites`.

`wevo run` says first what it will do, then executes the notebooks one after the other (chain.py)
and shows the progress that their stages write down. Stopped or killed, the same command goes on
where it was. Errors are one message: exit status 2 before anything began, 1 after.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from wevo_nb import chain, printed
from wevo_nb.params import ParamsError, load_params, merge, parse_setting
from wevo_nb.runs import StageError, run_folder, set_aside
from wevo_nb.schema import Split, Trajectory
from wevo_nb.tasks import listing

LINE_EVERY_S = 20  # between lines of progress where there is no terminal

app = typer.Typer(no_args_is_help=True, add_completion=False, help="WebEvolver in six notebooks.")
sites = typer.Typer(no_args_is_help=True, help="Serve the local sites of the suite 'sites', to look at them.")
app.add_typer(sites, name="sites")
console = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 150)

Profile = Annotated[str, typer.Option("--profile", "-p", help="A file of params/, such as smoke, demo or qlora_8b.")]
Run = Annotated[str | None, typer.Option("--run", "-r", help="Folder below outputs/; by default the profile's name.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", "-s", metavar="KEY=VALUE", help="A param over the profile's; repeatable.")
]


@app.command()
def run(
    profile: Annotated[
        str | None, typer.Option("--profile", "-p", help="A file of params/; by default the run's, else demo.")
    ] = None,
    run: Run = None,
    iterations: Annotated[int | None, typer.Option("--iterations", "-n", help="Rounds of self-improvement.")] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", "-o", metavar="NN", help="Only these notebooks, e.g. 02 or 04,05.")
    ] = None,
    iteration: Annotated[int | None, typer.Option("--iteration", "-i", help="With --only: of this iteration.")] = None,
    settings: Settings = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Set the old folders of these stages aside.")] = False,
    source: Annotated[
        str | None, typer.Option("--from", metavar="RUN", help="Begin --run with the finished stages of this one.")
    ] = None,
):
    """Run the notebooks in order. Finished stages are skipped and broken ones go on: run it again."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    with plain_errors():
        profile = profile or chain.profile_of(source or run or "demo")
        run = run or profile
        overrides = read_settings(settings, iterations)
        planned = chain.choose(chain.plan(profile, overrides), only or [], iteration, overrides)
        if source:
            whole = [step.stage for step in chain.plan(profile, overrides)]
            anew = next((step.stage for step in planned if not chain.stands(source, step)), planned[-1].stage)
            chain.branch(source, run, whole[: whole.index(anew)])
        chain.refuse_other_profile(run, profile)
        if not fresh:
            for step in planned:
                chain.refuse_other_params(run, step)
        states = ["fresh" if fresh else chain.state(run, step) for step in planned]
        console.print(Group(*printed.run_lines(run, planned, states)))
        to_run = [step for step, at in zip(planned, states, strict=True) if at != "done"]
        chain.check_machine(to_run)
        if fresh:
            for moved in filter(None, [set_aside(run, step.stage) for step in planned]):
                console.print(f"set aside: {moved}")
        chain.note_run(run, profile, overrides, whole=not only)
        for number, step in enumerate(to_run, start=1):
            run_one(run, step, f"{number}/{len(to_run)}")
    console.print(Group(*printed.result_lines(run, planned)))


@app.command()
def plan(
    profile: Profile = "demo",
    settings: Settings = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for other programs.")] = False,
):
    """What a run needs: stages, commands, calls, memory, disk, hours, cost, and what is missing here.

    Exit status 1 where the hardware section cannot hold it; what only this machine lacks is told.
    """
    from wevo_nb import planner  # it brings torch

    with plain_errors():
        told = planner.plan(profile, read_settings(settings))
        if as_json:
            print(json.dumps(told, ensure_ascii=False, indent=1))
        else:
            console.print(Group(*printed.planned_lines(told)))
    if not told["fits"]:
        raise typer.Exit(1)


@app.command()
def status(run: Annotated[str | None, typer.Option("--run", "-r", help="By default the newest run.")] = None):
    """What of a run is done, how far the rest is, and what it has cost."""
    with plain_errors():
        run = run or newest_run()
        table = Table("stage", "state", box=None, header_style="bold")
        for heading in ("time", "peak MB", "calls", "tokens"):
            table.add_column(heading, justify="right")
        for step in chain.plan(*chain.made_with(run)):
            for part in step.parts:
                table.add_row(*printed.status_row(run_folder(run) / part, part))
        console.print(f"run '{run}' in {run_folder(run)}", table, sep="\n")


@app.command()
def show(trajectory: Annotated[str, typer.Argument(help="FILE.jsonl or RUN/STAGE, then #number or #key.")]):
    """Print one trajectory: task, goal, each page, thought, action and note, and the verdict.

    For example: wevo show demo/iter-1/01_collect#3
    """
    with plain_errors():
        console.print(Group(*printed.trajectory_lines(find_trajectory(trajectory))))


@app.command()
def view(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="A run, or several to set side by side.")],
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0 takes a free one.")] = 8899,
    browser: Annotated[bool, typer.Option("--open/--no-open", help="Open it in the browser of this desktop.")] = True,
):
    """Look through the trajectories of a run in a browser: filters, pages, look-ahead, two runs side by side.

    On this machine alone, under http://127.0.0.1:8899; Ctrl-C ends it. From another machine: ssh -L 8899:127.0.0.1:8899
    """
    from wevo_nb.view import serve

    with plain_errors():
        serve(runs, port, lambda line: console.print(Text(line)), browser=browser)


@app.command()
def report(run: Annotated[str, typer.Argument(help="A run, finished or not.")]):
    """Write outputs/RUN/report.html: results, figures, cost, provenance and what is missing, in one file."""
    from wevo_nb.report import write_report

    with plain_errors():
        console.print(Text(f"{write_report(run)}"))


@app.command()
def figures(
    runs: Annotated[list[str] | None, typer.Option("--run", "-r", help="A run with an analysis; repeatable.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="By default below outputs/papers.")] = None,
):
    """Write every table and figure of the papers, our runs beside the reported numbers; with no run these alone."""
    from wevo_nb import exhibits, results

    with plain_errors():
        folder = out or run_folder("papers") / ("+".join(runs or []) or "reported")
        overview = exhibits.write(results.read(runs or []), folder)
        console.print(Text(f"{len(exhibits.EXHIBITS)} tables and figures are in {folder}; all of them: {overview}"))


@app.command()
def params(profile: Profile = "demo", settings: Settings = None):
    """Print every param of a profile and the layer that set it: base, the profile, or --set."""
    with plain_errors():
        resolved = load_params(profile, read_settings(settings))
        table = Table("key", "value", "set by", box=None, header_style="bold")
        for row in resolved.rows(*type(resolved.params).model_fields):
            style = "" if row["set by"] == "base" else "bold"
            table.add_row(row["key"], Text(row["value"]), row["set by"], style=style)
        console.print(table)


@app.command()
def tasks(
    suite: Annotated[str | None, typer.Argument(help="By default all suites, with their counts.")] = None,
    split: Annotated[Split | None, typer.Option("--split", help="Only tasks of this split.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="At most so many tasks.")] = None,
    download: Annotated[bool, typer.Option("--download", help="Fetch the suite's files from their owners.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for other programs.")] = False,
):
    """List the task suites, or the tasks of one: id, site, template, split and goal."""
    with plain_errors():
        if suite is None and (download or split or limit):
            raise ParamsError("--download, --split and --limit go with a suite, e.g. wevo tasks webvoyager --download")
        if download:
            shown, lines = listing.download(suite), printed.file_lines
        elif suite:
            shown, lines = listing.listing(suite, split, limit), printed.task_lines
        else:
            shown, lines = listing.overview(), printed.suite_lines
        if as_json:
            print(json.dumps(shown, ensure_ascii=False, indent=1))
        else:
            console.print(Group(*lines(shown)))


@app.command()
def replay(trajectory: Annotated[str, typer.Argument(help="RUN/STAGE, then #number or #key.")]):
    """Do a recorded episode again with the network off and compare its pages; exit status 1 where one differs.

    The run has to be made with --set browser.har=record. For example: wevo replay demo/iter-1/01_collect#3
    """
    with plain_errors():
        checks = replay_checks(trajectory)
        for check in checks:
            said = f"differs\n{check.difference}" if check.difference else "is the same"
            console.print(Text(f"page {check.number} {check.url} {said}", "red" if check.difference else ""))
        console.print(f"{sum(not check.difference for check in checks)} of {len(checks)} pages are the same")
    if any(check.difference for check in checks):
        raise typer.Exit(1)


@sites.command()
def up():
    """Build the sites if need be (half a minute, once) and serve them until `wevo sites down`."""
    from wevo_nb.tasks.sites import build, serve, servers

    with plain_errors():
        folder = build.world()
        running = {one["site"] for one in servers.standing()}
        servers.start([site for site in serve.SITES if site not in running], folder, stays=True)
        show_sites()


@sites.command("status")
def sites_status():
    """Which sites are served, where, and the memory they take."""
    with plain_errors():
        show_sites()


@sites.command()
def down():
    """Stop what `wevo sites up` serves; what was changed there is gone."""
    from wevo_nb.tasks.sites import servers

    with plain_errors():
        console.print(f"{servers.end_standing()} sites stopped")


# -- run


def run_one(run: str, step: chain.Planned, number: str):
    """Executes one notebook, with progress. Raises NotebookFailed."""
    title = f"[{number}] {step.stage}"
    began, shown = time.time(), {"label": "", "at": 0.0}

    with console.status(Text(title)) as spinner:

        def notice(line: str):
            spinner.update(Text(f"{title}  {line}"))
            due = line.split(" ")[0] != shown["label"] or time.time() - shown["at"] >= LINE_EVERY_S
            if line and due and not console.is_terminal:
                console.print(Text(f"{title}  {line}"))
                shown.update(label=line.split(" ")[0], at=time.time())

        executed = chain.execute(run, step, notice, step.resolved.params.llm.threads)
    console.print(Text(f"{title}  done in {chain.clock(time.time() - began)}: {executed}"))


def read_settings(settings: list[str] | None, iterations: int | None = None) -> dict:
    overrides: dict = {}
    for setting in settings or []:
        overrides = merge(overrides, parse_setting(setting))
    return overrides if iterations is None else merge(overrides, {"iterations": iterations})


# -- status


def newest_run() -> str:
    found = run_folder("any").parent.glob("*/run.json")
    newest = max(found, key=lambda path: path.stat().st_mtime, default=None)
    if newest is None:
        raise StageError(f"there are no runs in {run_folder('any').parent} yet: 'wevo run --profile demo' begins one")
    return newest.parent.name


# -- show


def find_trajectory(where: str) -> Trajectory:
    """Of `FILE.jsonl#number`, `FILE.jsonl#key` or `RUN/STAGE#...`. Raises StageError with what there is."""
    place, _, which = where.partition("#")
    path = Path(place)
    if path.suffix != ".jsonl":
        folder = run_folder("any").parent / place
        path = folder / "trajectories.jsonl"
        if not path.exists():
            others = sorted(folder.glob("*.jsonl")) or sorted(folder.glob("**/trajectories.jsonl"))
            raise StageError(f"no {path}" + "".join(f"\n  there is {other}" for other in others[:20]))
    if not path.exists():
        raise StageError(f"no file {path}: name one, or RUN/STAGE such as demo/iter-1/01_collect")
    with path.open() as file:
        found = [Trajectory.model_validate_json(line) for line in file if line.endswith("\n")]
    if which.isdigit() or not which:
        if int(which or 0) < len(found):
            return found[int(which or 0)]
        raise StageError(f"{path} holds {len(found)} trajectories, so there is no number {which or 0}")
    for trajectory in found:
        if trajectory.key == which:
            return trajectory
    raise StageError(f"{path} holds no {which}; its first keys: {', '.join(t.key for t in found[:3])}")


# -- replay


def replay_checks(where: str) -> list:
    """Of `RUN/STAGE#...`: every page of the trajectory, compared with what it is when done again."""
    import asyncio

    from wevo_nb.replay import replay
    from wevo_nb.tasks import suite_named

    found, place = find_trajectory(where), where.partition("#")[0]
    run, _, stage = place.partition("/")
    if not stage or place.endswith(".jsonl"):
        raise StageError(
            f"'{place}' is no RUN/STAGE such as demo/iter-1/01_collect: recordings lie in a stage's folder"
        )
    params = load_params(*chain.made_with(run)).params
    with suite_named(found.task.suite) as suite:
        return asyncio.run(replay(found, run_folder(run) / stage, suite, params))


# -- sites


def show_sites():
    """What of the sites is built and served."""
    from wevo_nb.tasks.sites import build, servers

    folder = build.cache() / build.fingerprint()
    console.print(Text(f"built in {folder}" if folder.is_dir() else "not built yet: wevo sites up builds them"))
    table = Table("site", "address", "pid", "MB", box=None, header_style="bold")
    for one in servers.standing():
        table.add_row(one["site"], f"http://{one['address']}/", str(one["pid"]), str(one["megabytes"]))
    console.print(table if table.row_count else "none is served: wevo sites up")


# -- errors


@contextmanager
def plain_errors():
    """Turns what may go wrong into one message and an exit status."""
    try:
        yield
    except (ParamsError, StageError) as problem:
        fail(str(problem), 2)
    except chain.NotebookFailed as problem:
        fail(f"{problem}\nthe notebook as far as it came: {problem.executed}\nthe same command goes on where it was", 1)
    except KeyboardInterrupt:
        fail("stopped; the same command goes on where it was", 130)


def fail(message: str, status: int):
    Console(stderr=True, highlight=False, soft_wrap=True).print(Text(message, "red"))
    raise typer.Exit(status)


def _interrupt(*_):
    chain.STOPPED.set()
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(app())
