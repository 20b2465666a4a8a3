"""The notebooks as a chain: which come when, what is done, and running one by papermill.

Reads the run's folder, writes run.json and the executed notebook of a stage, which appears under
its name only when it ended well. Does nothing that opening the notebooks one by one does not.
Used by `wevo run` and `wevo status`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, TimeoutError
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from wevo_nb.params import ROOT, ParamsError, Resolved, flatten, load_params, merge, parse_arm
from wevo_nb.runs import StageError, link_tree, read_json, run_folder, section_of, signature, write_json

NOTEBOOKS = ("01_collect", "02_wm_train", "03_synthesize", "04_final_sft", "05_wmla", "06_analysis")
NEED_BROWSER = ("01_collect", "03_synthesize", "05_wmla")
POLL_S = 1.0  # between two looks at a stage's progress.json
# Set with an interrupt: the exception alone can be lost, where it comes up in a callback that swallows it.
STOPPED = threading.Event()
QUIET_KERNEL_S = 120  # a kernel on a busy machine may be silent for so long after a cell


class Planned(NamedTuple):
    """One notebook of a run: the stage folder that it fills, and the params that it gets."""

    notebook: str
    stage: str
    iteration: int
    overrides: dict
    resolved: Resolved

    @property
    def parts(self) -> list[str]:
        """The folders with a manifest of their own: one an arm in notebook 05."""
        arms = self.resolved.params.arms()
        return [f"{self.stage}/{arm}" for arm in arms] if self.notebook == "05_wmla" else [self.stage]

    @property
    def parameters(self) -> dict:
        """What papermill hands to the notebook, the run's name apart."""
        return {"profile": self.resolved.profile, "iteration": self.iteration, "overrides": self.overrides}


class NotebookFailed(RuntimeError):
    """A notebook that raised, or whose kernel died. `executed` is what there is of it."""

    def __init__(self, message: str, executed: Path):
        super().__init__(message)
        self.executed = executed


def plan(profile: str, overrides: dict) -> list[Planned]:
    """Every notebook of a whole run, in order. Raises ParamsError."""
    params = load_params(profile, overrides).params
    last = params.iterations

    def one(notebook: str, stage: str, iteration: int, arm: str | None = None) -> Planned:
        laid = merge(overrides, {"sft": {"arm": arm}}) if arm else overrides
        return Planned(notebook, stage, iteration, laid, load_params(profile, laid))

    steps = []
    for i in range(1, last + 1):
        steps += [
            one("01_collect", f"iter-{i}/01_collect", i),
            *([one("02_wm_train", f"iter-{i}/02_wm_train", i)] if i >= params.world_model.first_iteration else []),
            one("04_final_sft", f"iter-{i}/04_self_improve", i, "self_improve"),
        ]
    return steps + [
        one("03_synthesize", "03_synthesize", last),
        *(one("04_final_sft", f"04_{arm}", last, arm) for arm in params.sft.arms),
        one("05_wmla", "05_wmla", last),
        one("06_analysis", "06_analysis", last),
    ]


def choose(planned: list[Planned], only: list[str], iteration: int | None, overrides: dict) -> list[Planned]:
    """The part of a plan that is asked for: by numbers of notebooks, an iteration, and sft.arm.

    Raises ParamsError where nothing is left, or the question has no sense.
    """
    only = [part.strip().zfill(2) for asked in only for part in asked.split(",")]
    for asked in only:
        if not any(notebook.startswith(asked) for notebook in NOTEBOOKS):
            raise ParamsError(f"--only {asked} names no notebook: take one of {', '.join(n[:2] for n in NOTEBOOKS)}")
    arm = overrides.get("sft", {}).get("arm")
    if arm and not only:
        raise ParamsError("the plan of a whole run sets sft.arm itself: leave it out, or add --only 04")
    if iteration is not None and not only:
        raise ParamsError("--iteration goes with --only, e.g. --only 02 --iteration 1")

    def of_iteration(step: Planned) -> bool:
        if iteration is None:
            return True
        if step.stage.startswith("iter-"):
            return step.iteration == iteration
        return step.notebook != "04_final_sft" or arm is not None  # 04 of an iteration is its self_improve

    chosen = [
        step
        for step in planned
        if (not only or step.notebook.startswith(tuple(only)))
        and of_iteration(step)
        and (not arm or step.notebook != "04_final_sft" or step.resolved.params.sft.arm == arm)
    ]
    if not chosen:
        first = planned[0].resolved.params.world_model.first_iteration
        late = f"; world models are trained from world_model.first_iteration {first} on" if first > 1 else ""
        raise ParamsError(f"the plan has no iteration {iteration} of {', '.join(only)}: see --iterations{late}")
    return chosen


def state(run: str, step: Planned) -> str:
    """`done`, `loads` (only the executed notebook is missing), `goes on`, `to do`, or `always`."""
    if step.notebook == "06_analysis":
        return "always"
    folders = [run_folder(run) / part for part in step.parts]
    if all((folder / "manifest.json").exists() for folder in folders):
        return "done" if _same_notebook(run, step) else "loads"
    return "goes on" if any((folder / "params.json").exists() for folder in folders) else "to do"


def _same_notebook(run: str, step: Planned) -> bool:
    """Whether the stage's executed notebook was given these params."""
    notebook = read_json(run_folder(run) / step.stage / "notebook.ipynb") or {}
    given = notebook.get("metadata", {}).get("papermill", {}).get("parameters", {})
    try:
        then = load_params(given["profile"], given["overrides"]).params
    except (KeyError, ParamsError):
        return False
    return then == step.resolved.params and given["iteration"] == step.iteration


def refuse_other_params(run: str, step: Planned):
    """Raises StageError, with the difference, where the stage on disk has other params or inputs."""
    if step.notebook == "06_analysis":
        return
    for part in step.parts:
        everything = _of_part(step, part).params.model_dump(mode="json")
        now = {name: section_of(everything, name) for name in everything}
        spec = read_json(run_folder(run) / part / "params.json")
        if spec is None:
            continue
        known = spec["params"].keys() & now.keys()  # what else a stage noted is for its notebook to compare
        old, new = (flatten({key: values[key] for key in known}) for values in (spec["params"], now))
        for other, before in spec["inputs"].items():
            if (run_folder(run) / other / "manifest.json").exists():
                old[f"input {other}"], new[f"input {other}"] = before, signature(run, other)
        differ = [key for key in sorted(old | new) if old.get(key, "-") != new.get(key, "-")]
        if differ:
            lines = [f"  {key}: {old.get(key, '-')} there, {new.get(key, '-')} now" for key in differ]
            raise StageError(
                f"{run_folder(run) / part} was made with other params or inputs:\n" + "\n".join(lines) + "\n"
                f"take another name with --run, or set the old folder aside with --only {step.notebook[:2]} --fresh"
            )


def stands(run: str, step: Planned) -> bool:
    """Whether the stage is done in that run, with these params."""
    if state(run, step) not in ("done", "loads"):
        return False
    try:
        refuse_other_params(run, step)
    except StageError:
        return False
    return True


def _of_part(step: Planned, part: str) -> Resolved:
    """The params that a part's folder depends on: not which other arms there are."""
    if step.notebook == "05_wmla":
        return step.resolved.of_arm(parse_arm(part.rpartition("/")[2], step.resolved.params))
    return step.resolved.without("sft.arms") if step.notebook == "04_final_sft" else step.resolved


def check_machine(steps: list[Planned]):
    """Raises StageError where a notebook, or a browser that starts, is missing for these steps."""
    for step in steps:
        if not (ROOT / "notebooks" / f"{step.notebook}.ipynb").exists():
            raise StageError(f"there is no notebooks/{step.notebook}.ipynb in {ROOT}: is the checkout whole?")
    needing = [step for step in steps if step.notebook in NEED_BROWSER]
    if not needing:
        return
    from wevo_nb.chromium import BrowserMissing, Chromium, Error

    async def start():
        async with Chromium(needing[0].resolved.params.browser):
            pass

    try:
        asyncio.run(start())
    except BrowserMissing as problem:
        raise StageError(str(problem)) from None
    except Error as problem:
        first = problem.message.splitlines()[0]
        raise StageError(f"the browser does not start ({first}): 'make browser' says more") from None


def refuse_other_profile(run: str, profile: str):
    """Raises StageError where the run belongs to another profile."""
    made = read_json(run_folder(run) / "run.json") or {"profile": profile}
    if made["profile"] != profile:
        raise StageError(f"run '{run}' belongs to profile {made['profile']}, not {profile}: take another --run")


def profile_of(run: str) -> str:
    """The profile that a run was begun with; demo where there is no such run."""
    return (read_json(run_folder(run) / "run.json") or {"profile": "demo"})["profile"]


def note_run(run: str, profile: str, overrides: dict, *, whole: bool):
    """Keeps in run.json what the run is made with; a part of the run adds to it."""
    path = run_folder(run) / "run.json"
    made = read_json(path) or {"profile": profile, "created": datetime.now(UTC).isoformat(timespec="seconds")}
    arm_apart = {key: value for key, value in overrides.items() if key != "sft" or set(value) != {"arm"}}
    write_json(path, made | {"overrides": arm_apart if whole else merge(made.get("overrides", {}), arm_apart)})


def branch(source: str, run: str, before: list[str]):
    """Begins `run` with the stages `before` of `source`; weights are linked, the rest is copied.

    So one stage can be tried with other params without doing the earlier ones again. Raises
    StageError where there is no `source` or `run` has begun.
    """
    made_with(source)
    if run_folder(run).exists():
        raise StageError(f"--from {source}: run '{run}' has begun already; take another --run")
    for stage in before:
        if (run_folder(source) / stage).exists():
            link_tree(run_folder(source) / stage, run_folder(run) / stage)
    shutil.copy2(run_folder(source) / "run.json", run_folder(run) / "run.json")


def made_with(run: str) -> tuple[str, dict]:
    """Profile and overrides of a run. Raises StageError where there is none."""
    made = read_json(run_folder(run) / "run.json")
    if made is None:
        raise StageError(f"there is no run '{run}' in {run_folder(run).parent}: 'wevo run --run {run}' begins one")
    return made["profile"], made.get("overrides", {})


def execute(run: str, step: Planned, notice: Callable[[str], None], threads: int) -> Path:
    """Runs the notebook in a kernel of its own; `notice` is told the progress, about once a second.

    Returns the executed notebook. Raises NotebookFailed, and leaves what was executed in
    `<run>/failed/`. An interrupt ends the kernel and all it started.
    """
    folder = run_folder(run) / step.stage
    folder.mkdir(parents=True, exist_ok=True)
    hidden, failed = folder / ".notebook.ipynb", run_folder(run) / "failed" / f"{step.stage.replace('/', '-')}.ipynb"
    _prepare_environment(threads)
    # In a thread, so that an interrupt comes here and not into the middle of papermill.
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(_papermill, step.notebook, hidden, {"run": run, **step.parameters})
        try:
            _watch(running, folder, notice)
        except BaseException:
            end_kernels()
            raise
    problem = running.exception()
    if problem is None:
        failed.unlink(missing_ok=True)
        return hidden.replace(folder / "notebook.ipynb")
    if hidden.exists():
        failed.parent.mkdir(exist_ok=True)
        hidden.replace(failed)
    raise NotebookFailed(_readable(problem), failed) from problem


def _no_closed_socket(record: logging.LogRecord) -> bool:
    """Whether to log: a kernel's last message can come to a socket that is already closed, which harms nothing."""
    return "non-socket" not in str(record.exc_info and record.exc_info[1])


def _papermill(notebook: str, output: Path, parameters: dict):
    import papermill

    logging.getLogger("papermill").setLevel(logging.ERROR)
    logging.getLogger("tornado.general").addFilter(_no_closed_socket)
    papermill.execute_notebook(
        ROOT / "notebooks" / f"{notebook}.ipynb",
        output,
        parameters=parameters,
        kernel_name="python3",
        progress_bar=False,
        iopub_timeout=QUIET_KERNEL_S,
        extra_arguments=["--log-level=CRITICAL"],  # its errors come as messages; its log tells how it was closed
    )


def _prepare_environment(threads: int):
    """What the kernel inherits: this environment's own kernel, and as many threads as are wanted."""
    os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"  # else a kernel of the user's named python3 wins
    os.environ.setdefault("OMP_NUM_THREADS", str(threads or os.cpu_count() or 1))
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # spinning threads take the cores from the browser
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def _watch(running: Future, folder: Path, notice: Callable[[str], None]):
    began, first = time.time(), {}
    while True:
        try:
            running.exception(timeout=POLL_S)
            return
        except TimeoutError:
            if STOPPED.is_set():
                raise KeyboardInterrupt from None
            notice(pace(newest_progress(folder, began), first))


def newest_progress(folder: Path, since: float = 0.0) -> dict:
    """The progress that a stage wrote last, its parts included; empty where there is none."""
    found = []
    for path in (folder / "progress.json", *folder.glob("*/progress.json")):
        try:
            found.append((path.stat().st_mtime, read_json(path)))
        except FileNotFoundError:
            continue  # the stage has just ended
    written, progress = max(found, key=lambda pair: pair[0], default=(0.0, None))
    return (progress or {}) if written >= since else {}


def pace(progress: dict, first: dict) -> str:
    """One line: label, n of total, time left. `first` keeps when and where each label was first seen."""
    if not progress:
        return ""
    label, n, total = progress["label"], progress["n"], progress["total"]
    seconds, start = first.setdefault(label, (progress["seconds"], n))
    line = f"{label} {n}/{total}"
    if start < n < total:
        line += f", {clock((progress['seconds'] - seconds) / (n - start) * (total - n))} left"
    return line


def clock(seconds: float) -> str:
    """Seconds as m:ss."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def end_kernels():
    """Kills the processes that this one started, and what those started."""
    import psutil

    for child in psutil.Process().children(recursive=True):
        try:
            child.kill()
        except psutil.NoSuchProcess:
            continue


def _readable(problem: BaseException) -> str:
    """What went wrong in the notebook, in its own words."""
    from nbclient.exceptions import DeadKernelError
    from papermill.exceptions import PapermillExecutionError

    if isinstance(problem, PapermillExecutionError):
        return f"{problem.ename}: {problem.evalue}"
    if isinstance(problem, DeadKernelError):
        return "the kernel died: killed from outside, or for want of memory"
    if isinstance(problem, FileNotFoundError):
        return f"there is no {problem.filename}"
    return f"{type(problem).__name__}: {problem}"
