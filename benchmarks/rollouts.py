"""How many episodes a minute: in this process, and by one or two workers on Ray; and what it costs to go on with a run.

Prints tables and writes what was measured to benchmarks/results/rollouts.json. Needs a Chromium, ray, a quiet
machine; with fewer cores than browsers the workers stand in each other's way, and the table says so.

What is timed:
- rollouts: EPISODES episodes on MiniWoB++ pages of at most STEPS actions, browser.contexts at once in each browser,
  by a policy that asks a server on this machine which takes exactly LATENCY a call, however many come at once. The
  same episodes everywhere. `start` is what comes before the first of them: Ray, the workers, their browsers, and one
  round of episodes that opens the connections.
- resume: a stage of TRAJECTORIES finished episodes is opened again (the JSONL is read and checked) and all of its
  jobs are skipped.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from environment import machine, table
from model_server import MODEL, model_server, room

from wevo_nb.arms import open_policy
from wevo_nb.browser import BrowserEnv, Chromium
from wevo_nb.cluster import Walk, Workers, open_workers
from wevo_nb.params import ROOT, Params, load_params
from wevo_nb.policies import RandomPolicy, decision_of
from wevo_nb.provenance import provenance
from wevo_nb.rollout import rollout_many
from wevo_nb.runs import JSONL, write_json
from wevo_nb.schema import Observation, Step, Task, Trajectory
from wevo_nb.tasks import open_suite
from wevo_nb.tasks.miniwob import MiniWoB

RESULTS = ROOT / "benchmarks" / "results" / "rollouts.json"
PARTS = ("rollouts", "resume")
LATENCY = 0.5  # seconds a call of the server: an 8B model's reply of some 60 tokens
STEPS = 5  # most actions of an episode
BACKENDS = (("local", 1), ("ray", 1), ("ray", 2))  # and workers
NAME = "navigate-tree"  # of MiniWoB++, in which a click does not end the episode by itself
POLICY = "policy_0"


class Sizes(NamedTuple):
    """How often each thing is done."""

    episodes: int
    trajectories: int


FULL, QUICK = Sizes(48, 10_000), Sizes(2, 50)


# -- rollouts


def params_for(backend: str, workers: int, url: str) -> Params:
    """A policy behind the server at `url`, and the workers asked for."""
    role = {"engine": "openai", "base": MODEL, "url": url}
    roles = dict.fromkeys(("policy", "world_model", "judge", "scorer"), role)
    collect = {"backend": backend, "workers": workers}
    free = {"reply": "generate", "prompt": "full"}
    return load_params("demo", {"roles": roles, "collect": collect, "policy": free}).params


async def play(workers: Workers, make: Callable, sink: JSONL, jobs: Sequence[tuple[Task, int]]) -> list[Trajectory]:
    """The jobs, by whoever plays here; the policy is closed afterwards."""
    params = workers.params
    policy = open_policy("none", None, POLICY, None, params)
    limits = {"max_steps": STEPS, "max_repeats": STEPS + 1, "concurrency": params.browser.contexts}
    try:
        return await workers.rollout_many(Walk(policy=POLICY), policy, make, jobs, sink, **limits)
    finally:
        await policy.model.client.close()


async def timed(params: Params, folder: Path, episodes: int, started: float) -> dict:
    """One row: a round that opens everything, then the episodes that count."""
    suite, sink = MiniWoB(), JSONL(folder / "trajectories.jsonl", Trajectory)
    tasks = suite.draw(NAME, "train", 0, episodes)
    first = suite.draw(NAME, "train", 10_000, params.collect.workers * params.browser.contexts)
    with open_workers(params, "none") as workers:
        async with Chromium(params.browser) as chromium:
            with open_suite(params) as pages:
                make = lambda: BrowserEnv(chromium, pages, params.browser, params.observation)  # noqa: E731
                await play(workers, make, sink, [(task, 0) for task in first])
                begun = time.perf_counter()
                done = await play(workers, make, sink, [(task, 1) for task in tasks])
                seconds = time.perf_counter() - begun
    if broken := [one.broken for one in done if one.broken]:
        raise RuntimeError(f"{len(broken)} of {len(done)} episodes broke off: {broken[0]}")
    steps = sum(len(one.steps) for one in done)
    return {
        "backend": params.collect.backend, "workers": params.collect.workers, "at_once": len(first),
        "episodes": len(done), "steps": steps, "start_seconds": round(begun - started, 2), "seconds": round(seconds, 2),
        "episodes_a_minute": round(60 * len(done) / seconds, 1),
    }  # fmt: skip


def measure_rollouts(sizes: Sizes) -> list[dict]:
    rows = []
    with model_server(LATENCY) as url:
        for backend, workers in BACKENDS:
            with tempfile.TemporaryDirectory() as folder:
                params = params_for(backend, workers, url)
                rows.append(asyncio.run(timed(params, Path(folder), sizes.episodes, time.perf_counter())))
    return rows


# -- resume


def finished(number: int) -> Trajectory:
    """An episode of STEPS steps on pages of nine elements."""
    decision = decision_of("I will click link 'Door 1'. Action: ```click [2]```")
    task = Task(suite="rooms", name="rooms", seed=number, goal="Find the exit.")
    steps = tuple(
        Step(observation=Observation(text=room(i)), decision=decision, valid=True, ms=5) for i in range(STEPS)
    )
    final = Observation(text=room(STEPS), done=True, reward=1.0)
    return Trajectory(task=task, policy="random", environment="rooms", steps=steps, final=final, ended="done")


def measure_resume(sizes: Sizes) -> list[dict]:
    episodes = [finished(number) for number in range(sizes.trajectories)]
    jobs, policy = [(one.task, 0) for one in episodes], RandomPolicy(load_params("demo").params.policy)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trajectories.jsonl"
        path.write_text("".join(one.model_dump_json(exclude_defaults=True) + "\n" for one in episodes))
        begun = time.perf_counter()
        sink = JSONL(path, Trajectory)
        opened = time.perf_counter()
        found = asyncio.run(rollout_many(policy, None, jobs, sink, max_steps=STEPS, concurrency=1))
        skipped = time.perf_counter()
        size = path.stat().st_size
    if found != episodes:
        raise RuntimeError("what was read is not what was written")
    return [{
        "trajectories": len(found), "megabytes": round(size / 1e6, 2), "open_seconds": round(opened - begun, 3),
        "skip_seconds": round(skipped - opened, 3),
    }]  # fmt: skip


# -- what is printed


def report(part: str, rows: list[dict]) -> str:
    """A part as text."""
    lines = [table(rows, {key: key.replace("_", " ") for key in rows[0]})]
    if part == "rollouts":
        rates = {(row["backend"], row["workers"]): row["episodes_a_minute"] for row in rows}
        base = rates[BACKENDS[0]]
        lines += [f"{backend} {n}: {rate / base:.2f} times local" for (backend, n), rate in rates.items()][1:]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few episodes: to see that it runs, not for the record")
    parser.add_argument("--only", choices=PARTS, help="one part; the file then holds this part alone")
    asked = parser.parse_args()
    sizes = QUICK if asked.quick else FULL
    result = {"measured": datetime.now(UTC).isoformat(timespec="seconds"), "quick": asked.quick, "machine": machine()}
    result |= {"latency_seconds": LATENCY, "most_steps": STEPS}
    for part in [asked.only] if asked.only else PARTS:
        result[part] = {"rollouts": measure_rollouts, "resume": measure_resume}[part](sizes)
        write_json(RESULTS, result | {"versions": provenance()})  # what is measured is kept if a later part fails
        print(f"{part}\n{report(part, result[part])}\n", flush=True)
    print(f"written: {RESULTS}")


if __name__ == "__main__":
    main()
