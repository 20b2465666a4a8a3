"""Notebook 06's tables and the viewer over many trajectories: seconds and peak memory, and whether both are linear.

Prints tables and writes what was measured to benchmarks/results/analysis.json. Needs a quiet machine
and disk for the trajectories, which are made up in the shape of real ones: `miniwob` as in the study
(1 to 6 steps, pages of a few elements, every second arm looks ahead), `live` as on sites (12 steps,
pages of 60 elements, 40 kB a trajectory). Half of them are tests of ARMS arms on the same tasks, half
are collections of ROUNDS iterations. Each measurement is a process of its own.

What is timed:
- viewer: `index` reads all lines; `page` finds and counts what the list and its filters show; `one` opens a
  trajectory; `look` finds that nothing is new; `command` is from `wevo view` on the command line to the first page,
  which is held against the aim.
- tables: `load` reads and checks all records; then success_table, paired_table, task_table, lookahead_table and
  stall_table.
`cpu` is the processor time of all of these but the command, which a busy machine does not stretch. Peak
memory is that of the process; `imports` is what it takes before the first trajectory.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from environment import machine, table

from wevo_nb.params import ROOT, Arm, load_params
from wevo_nb.policies import decision_of
from wevo_nb.provenance import provenance
from wevo_nb.runs import JSONL, write_json
from wevo_nb.schema import Candidate, Observation, Step, Task, Trajectory, Verdict

RESULTS = ROOT / "benchmarks" / "results" / "analysis.json"
PARTS = ("viewer", "tables")
SHAPES = {"miniwob": ((1, 6), (3, 12)), "live": ((12, 12), (60, 60))}  # steps, elements of a page: least and most
FULL = (("miniwob", 10_000), ("miniwob", 100_000), ("live", 10_000))
QUICK = (("miniwob", 200), ("live", 20))
ARMS, ROUNDS, KINDS = 10, 5, 20
AIM_SECONDS = 2.0  # from the command to the first page of 10,000 trajectories of the study's shape
WORDS = "news mail inbox delete submit cancel search tab next open close Tora Adara link button list item price".split()
ROLES = ("button", "link", "StaticText", "textbox", "radio")
RUN = "many"


# -- trajectories as they are written


def page(draw: random.Random, elements: int) -> str:
    """A page of so many elements, hardly ever the same twice."""
    names = (f"{draw.choice(WORDS)} {draw.choice(WORDS)} {draw.randrange(1000)}" for _ in range(elements))
    return "\n".join(f"[{i}] {draw.choice(ROLES)} '{name}'" for i, name in enumerate(names, start=1))


def episode(draw: random.Random, shape: str, task: Task, policy: str, *, ahead: bool, judged: bool) -> Trajectory:
    """One trajectory of a shape: its steps act on elements that are there, the last one ends it."""
    steps, elements = (draw.randint(*bounds) for bounds in SHAPES[shape])
    done = []
    for _ in range(steps):
        reply = f"Thought: I will click the next one. Action: ```click [{draw.randint(1, elements)}]```"
        decision = decision_of(reply).model_copy(update={"probability": draw.random(), "entropy": draw.random()})
        if ahead:
            futures = [Candidate(reply=reply, imagined=(page(draw, elements),), score=draw.random()) for _ in range(2)]
            decision = decision.model_copy(update={"candidates": tuple(futures)})
        seen = Observation(text=page(draw, elements), url="http://site/", title="A site", goal=task.goal)
        done.append(Step(observation=seen, decision=decision, ms=50))
    good = draw.random() < 0.5
    verdict = Verdict(outcome="success" if good else "failure", judge="reward", reason=f"reward {good:.2f}")
    final = Observation(text=page(draw, elements), goal=task.goal, done=True, reward=float(good))
    return Trajectory(
        task=task, policy=policy, environment="browser", steps=tuple(done), final=final, ended="done",
        verdict=verdict if judged else None, seconds=1.0,
    )  # fmt: skip


def group(
    shape: str, name: str, count: int, split: str, *, ahead: bool = False, judged: bool = True
) -> Iterator[Trajectory]:
    draw = random.Random(f"{shape} {name}")
    for i in range(count):
        goal = f"Click the {WORDS[i % len(WORDS)]} of number {i}."
        task = Task(suite="made-up", name=f"kind-{i % KINDS}", seed=i, goal=goal, split=split)
        yield episode(draw, shape, task, name, ahead=ahead, judged=judged)


def make_run(outputs: Path, shape: str, count: int) -> float:
    """A run of `count` trajectories below `outputs`; returns its size in megabytes."""
    run = outputs / RUN
    write_json(run / "run.json", {"profile": "smoke", "created": datetime.now(UTC).isoformat(timespec="seconds")})
    for i in range(ARMS):
        rows = group(shape, f"arm_{i}", count // 2 // ARMS, "test_seeds", ahead=i % 2 == 1)
        write_lines(run / "05_wmla" / f"arm_{i}" / "trajectories.jsonl", rows)
    for i in range(1, ROUNDS + 1):
        folder = run / f"iter-{i}" / "01_collect"
        write_lines(
            folder / "trajectories.jsonl", group(shape, f"policy_{i}", count // 2 // ROUNDS, "train", judged=False)
        )
        write_json(folder / "params.json", {"params": {"collect": {"judge": "reward"}}})
    return sum(path.stat().st_size for path in run.rglob("*.jsonl")) / 1e6


def write_lines(path: Path, rows: Iterator[Trajectory]):
    """One after the other: a hundred thousand do not have to be in memory at once."""
    path.parent.mkdir(parents=True)
    with path.open("w") as file:
        file.writelines(one.model_dump_json(exclude_defaults=True) + "\n" for one in rows)


# -- measured in a process of its own


class Clock:
    """Seconds by label, and the peak of memory."""

    def __init__(self):
        self.seconds: dict[str, float] = {}
        self.imports, self._at, self._cpu = peak_mb(), time.perf_counter(), time.process_time()

    def lap(self, label: str):
        now = time.perf_counter()
        self.seconds[label] = round(now - self._at, 3)
        self._at = time.perf_counter()

    def result(self, trajectories: int) -> dict:
        cpu = round(time.process_time() - self._cpu, 3)
        return {
            "trajectories": trajectories,
            **self.seconds,
            "cpu": cpu,
            "imports_mb": self.imports,
            "peak_mb": peak_mb(),
        }


def peak_mb() -> int:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def measure_viewer(run: Path) -> dict:
    from wevo_nb import markup, view
    from wevo_nb.index import FACETS, Index, in_order, search

    markup.render(
        "message.html", title="", said="", runs=[], link=view.link, run="", query={}
    )  # the templates are read
    clock = Clock()
    index = Index(run)
    clock.lap("index")
    found, counts = search(index.entries, {"outcome": "success"}, "kind")
    rows = [(value, counts[facet][value]) for facet in FACETS for value in in_order(counts[facet], facet)]
    clock.lap("page")
    one = found[len(found) // 2]
    assert index.load(one).task.name == one.family and rows
    clock.lap("one")
    assert not index.refresh()
    clock.lap("look")
    return clock.result(len(index.entries))


def measure_tables(run: Path) -> dict:
    import scipy.stats  # noqa: F401 - these imports are none of the tables' time
    import statsmodels.stats.proportion  # noqa: F401

    from wevo_nb import metrics
    from wevo_nb.exploration import stall_table

    clock = Clock()
    load = lambda folder: JSONL(folder / "trajectories.jsonl", Trajectory).values()  # noqa: E731
    arms = {folder.name: load(folder) for folder in sorted((run / "05_wmla").iterdir())}
    rounds = {i: load(run / f"iter-{i}" / "01_collect") for i in range(1, ROUNDS + 1)}
    gc.freeze()  # as notebook 06
    clock.lap("load")
    metrics.success_table(arms)
    clock.lap("success")
    metrics.paired_table(arms, [("arm_0", arm) for arm in arms if arm != "arm_0"])
    clock.lap("paired")
    metrics.task_table(arms)
    clock.lap("tasks")
    ahead = load_params("demo").params.wmla.preset("wmla_d1")
    known = [
        Arm(arm, arm, None, "wmla_d1", ahead) if i % 2 else Arm(arm, arm, None, "", None) for i, arm in enumerate(arms)
    ]
    metrics.lookahead_table(arms, known)
    clock.lap("lookahead")
    stall_table(rounds, arm="self_improve")
    clock.lap("stall")
    return clock.result(sum(map(len, (*arms.values(), *rounds.values()))))


def measure_command(outputs: Path) -> float:
    """Seconds from the start of `wevo view` to its first page."""
    command = [sys.executable, "-m", "wevo_nb.cli", "view", RUN, "--port", "0", "--no-open"]
    environment = {**os.environ, "WEVO_OUTPUTS": str(outputs), "PYTHONPATH": str(ROOT)}
    began = time.perf_counter()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        process.stdout.readline()
        address = re.search(r"http://\S+", process.stdout.readline())[0]
        with urllib.request.urlopen(address) as answer:
            answer.read()
        return round(time.perf_counter() - began, 3)
    finally:
        process.terminate()
        process.wait()


def measure(part: str, outputs: Path) -> dict:
    """One part over the run below `outputs`, in a process of its own."""
    command = [sys.executable, __file__, "--measure", part, "--outputs", str(outputs)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    told = json.loads(done.stdout)
    return told | ({"command": measure_command(outputs)} if part == "viewer" else {})


# -- what is printed


def growth(rows: list[dict]) -> list[str]:
    """How much more a trajectory costs where there are more of them: 1.0 is linear."""
    said = []
    labels = [key for key in rows[0] if key not in ("shape", "trajectories", "megabytes", "imports_mb", "command")]
    by_size = sorted((row for row in rows if row["shape"] == "miniwob"), key=lambda row: row["trajectories"])
    for small, large in zip(by_size, by_size[1:], strict=False):
        more = large["trajectories"] / small["trajectories"]
        parts = []
        for label in labels:
            base = small["imports_mb"] if label == "peak_mb" else 0
            few, many = small[label] - base, large[label] - base
            parts += [f"{label} {many / few / more:.2f}"] if few > 0.05 else []
        said.append(f"{small['trajectories']:,} to {large['trajectories']:,}, cost of one: {', '.join(parts)} times")
    return said


def report(part: str, rows: list[dict]) -> str:
    """A part as text."""
    lines = [table(rows, {key: key.replace("_", " ") for key in rows[0]}), *growth(rows)]
    for row in rows if part == "viewer" else []:
        if (row["shape"], row["trajectories"]) == ("miniwob", 10_000):
            met = "met" if row["command"] < AIM_SECONDS else "missed"
            lines.append(f"10,000 open in {row['command']:.2f} s, aim {AIM_SECONDS:.0f} s: {met}")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="few trajectories: to see that it runs, not for the record"
    )
    parser.add_argument("--only", choices=PARTS, help="one part; the file then holds this part alone")
    parser.add_argument("--measure", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--outputs", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.measure:
        run = asked.outputs / RUN
        print(json.dumps({"viewer": measure_viewer, "tables": measure_tables}[asked.measure](run)))
        return
    parts = [asked.only] if asked.only else list(PARTS)
    result = {"measured": datetime.now(UTC).isoformat(timespec="seconds"), "quick": asked.quick, "machine": machine()}
    result |= {part: [] for part in parts}
    for shape, count in QUICK if asked.quick else FULL:
        with tempfile.TemporaryDirectory() as folder:
            megabytes = round(make_run(Path(folder), shape, count), 1)
            for part in parts:
                result[part].append({"shape": shape, "megabytes": megabytes} | measure(part, Path(folder)))
                write_json(RESULTS, result | {"versions": provenance()})  # kept if a later one fails
    for part in parts:
        print(f"{part}, seconds\n{report(part, result[part])}\n", flush=True)
    print(f"written: {RESULTS}")


if __name__ == "__main__":
    main()
