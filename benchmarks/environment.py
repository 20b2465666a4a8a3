"""What the browser environment costs: milliseconds and recall of an observation, steps a second, memory.

Beside BrowserGym in the same run (--no-browsergym leaves it out). Prints tables and writes what was
measured to benchmarks/results/environment.json. Needs a Chromium and a quiet machine; the first run
downloads BrowserGym and a documentation package with pip.

What is timed, medians after a warm-up, in the same window and without a budget on either side:
- an observation of ours: all that BrowserEnv does between the settled page and the Observation
  (every frame is read, the text form, the end of the episode, tabs, changes);
- of BrowserGym: `_get_obs` as its `step` calls it, with the browser not slowed (slow_mo 0), then the text
  of the visible accessibility tree. It takes a screenshot, too, and ours does not: the column
  "w/o shot" is the ratio without what that costs.
Neither includes the wait for the page. Recall is the share of the controls that a person sees in
the window, found by a script of its own (recall.py), that the text names as controls.
MiniWoB++: random valid actions, and all that `step` does: act, wait until quiet, read. BrowserGym's
step is taken as it ships (slow_mo 100 ms, 0.5 s before it reads) and with both waits off.
Sites: the scripted oracle. Memory: resident, of all the browser's processes, over page loads of
which each has a fresh context, as episodes have.
"""

from __future__ import annotations

import argparse
import asyncio
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import numpy
import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import reading
from browsergym_side import BrowserGymMissing, browsergym
from pages import Pages, generate

from wevo_nb.browser import BrowserEnv
from wevo_nb.chromium import Chromium, find_chromium
from wevo_nb.params import ROOT, Params, load_params
from wevo_nb.policies import RandomPolicy
from wevo_nb.provenance import provenance
from wevo_nb.rollout import rollout_many
from wevo_nb.runs import JSONL, write_json
from wevo_nb.schema import Policy, Task, Trajectory
from wevo_nb.tasks.miniwob import MiniWoB
from wevo_nb.tasks.sites import Sites
from wevo_nb.tasks.sites.build import SitesError, world
from wevo_nb.tasks.sites.oracle import Oracle

RESULTS = ROOT / "benchmarks" / "results" / "environment.json"
PARTS = ("observation", "miniwob", "sites", "memory")
CONTEXTS = (1, 2, 4)  # episodes at once
MINIWOB = ("click-button", "click-checkboxes", "click-tab-2", "enter-text", "login-user", "navigate-tree")
MINIWOB_STEPS, SITE_STEPS = 10, 40  # most steps of an episode


class Sizes(NamedTuple):
    """How often each thing is done."""

    repeats: int  # readings of a window
    repeats_browsergym: int
    seeds: int  # episodes of each MiniWoB task
    steps_browsergym: int  # of each MiniWoB task
    site_tasks: int  # of each site
    loads: int  # pages of the memory part


FULL, QUICK = Sizes(15, 3, 10, 10, 10, 500), Sizes(5, 1, 3, 3, 2, 60)


# -- steps a second


async def walk(
    suite, policy: Policy, tasks: list[Task], params: Params, *, contexts: int, most: int
) -> tuple[list[Trajectory], float, str]:
    """An episode of each task, `contexts` at once; the seconds they took together, and the browser's executable."""
    async with Chromium(params.browser) as chromium:
        make = lambda: BrowserEnv(chromium, suite, params.browser, params.observation)  # noqa: E731
        with tempfile.TemporaryDirectory() as folder:
            sink = JSONL(Path(folder) / "trajectories.jsonl", Trajectory)
            await rollout_many(policy, make, [(tasks[0], 1)], sink, max_steps=1, concurrency=1)  # a warm-up
            started = time.perf_counter()
            jobs = [(task, 0) for task in tasks]
            done = await rollout_many(policy, make, jobs, sink, max_steps=most, concurrency=contexts)
            seconds = time.perf_counter() - started
        own = chromium.playwright.chromium.executable_path
        return done, seconds, find_chromium(own, params.browser.executable)


def rate(done: list[Trajectory], seconds: float) -> dict:
    """Steps a second with the resets, and without: then only the steps' share of the episodes' time counts."""
    steps = [step.ms / 1000 for one in done for step in one.steps]
    share = sum(steps) / sum(one.seconds for one in done)
    return {
        "episodes": len(done), "errors": sum(one.ended == "error" for one in done), "steps": len(steps),
        "step_ms": round(1000 * statistics.mean(steps), 1),
        "steps_per_second": round(len(steps) / seconds, 1),
        "without_resets": round(len(steps) / (seconds * share), 1),
    }  # fmt: skip


def measure_miniwob(sizes: Sizes, beside: bool) -> dict:
    params = load_params("demo").params
    policy, rows = RandomPolicy(params.policy), []
    with MiniWoB() as suite:
        tasks = [task for name in MINIWOB for task in suite.draw(name, "train", 0, sizes.seeds)]
        for contexts in CONTEXTS:
            run = walk(suite, policy, tasks, params, contexts=contexts, most=MINIWOB_STEPS)
            done, seconds, executable = asyncio.run(run)
            rows.append({"contexts": contexts, **rate(done, seconds)})
        result = {"steps_per_second": {row["contexts"]: row["steps_per_second"] for row in rows}, "rows": rows}
        if beside:
            folder = asyncio.run(suite.visit(tasks[0])).url.rpartition("/")[0] + "/"
            job = {"url": folder, "tasks": MINIWOB, "seed": 1, "steps": sizes.steps_browsergym}
            given = {"chromium": executable, "viewport": reading.VIEWPORT, "pages": [], "miniwob": job}
            theirs = browsergym(given)["miniwob"]
            for key, waits in (("ratio_to_browsergym", "shipped"), ("ratio_without_its_waits", "no_waits")):
                result[key] = round(theirs[waits]["step_ms"] / rows[0]["step_ms"], 1)
            result["browsergym"] = theirs
    return {"miniwob": result}


def measure_sites(sizes: Sizes, beside: bool) -> dict:
    try:
        world()
    except SitesError as problem:
        print(f"sites: left out: {problem}")
        return {"sites": []}
    # the suite's own observation, as the oracle of the tests has it: a small profile cuts the names it reads
    params, rows = load_params("study", {"collect": {"suite": "sites"}}).params, []
    with Sites() as suite:
        every = suite.tasks()
        for site in sorted({task.site for task in every}):
            there = [task for task in every if task.site == site]
            tasks = there[:: max(1, len(there) // sizes.site_tasks)][: sizes.site_tasks]  # of all its templates
            done, seconds, _ = asyncio.run(walk(suite, Oracle(), tasks, params, contexts=2, most=SITE_STEPS))
            solved = sum(one.final.reward == 1 for one in done)
            rows.append({"site": site, "contexts": 2, "solved": solved, **rate(done, seconds)})
    return {"sites": rows}


# -- memory


async def load_pages(suite: Pages, names: list[str], loads: int) -> list[tuple[int, float]]:
    """(loads so far, MB of the browser), ten times on the way, always on the last page; a load is one reset."""
    params, found = reading.page_params(), []
    async with Chromium(params.browser) as chromium:
        env = BrowserEnv(chromium, suite, params.browser, params.observation)
        for number in range(loads):
            await env.reset(Task(suite=suite.name, name=names[number % len(names)], seed=number))
            if (number + 1) % (loads // 10) == 0:
                found.append((number + 1, round(browser_mb(), 1)))
        await env.close()
    return found


def browser_mb() -> float:
    """Resident memory of everything that Playwright's driver has started."""
    total = 0
    for process in [below for driver in psutil.Process().children() for below in driver.children(recursive=True)]:
        try:
            total += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue  # it has ended meanwhile
    return total / 2**20


def measure_memory(sizes: Sizes, beside: bool) -> dict:
    names = ["generated-200", "generated-2000"]
    with Pages() as suite:
        for name in names:
            suite.put(name, generate(int(name.removeprefix("generated-"))).html)
        found = asyncio.run(load_pages(suite, names, sizes.loads))
    loads, mb = zip(*[one for one in found if one[0] > sizes.loads / 5], strict=True)  # the caches fill first
    slope = round(float(numpy.polyfit(loads, mb, 1)[0]) * 100, 2)
    return {"memory": {"loads": sizes.loads, "slope_mb_per_100_loads": slope, "mb": found}}


# -- what is printed


def table(rows: list[dict], columns: dict[str, str]) -> str:
    """Rows as aligned text; `columns` maps keys to headings."""
    lines = [list(columns.values()), *([shown(row.get(key)) for key in columns] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.rjust, line, widths)) for line in lines)


def shown(value: str | float | None) -> str:
    if value is None or isinstance(value, str):
        return value or "-"
    return f"{value:,.3f}" if isinstance(value, float) and value <= 1 else f"{value:,}"


def report(part: str, result: dict) -> str:
    """A part as text."""
    if part == "observation":
        rows, grown = result["observation"], result["times_for_4_times_the_elements"]
        keys = "page elements ms characters controls recall ms_browsergym characters_browsergym recall_browsergym"
        columns = {key: key.replace("_browsergym", " BG") for key in keys.split()}
        columns |= {"ratio_to_browsergym": "ratio", "ratio_without_screenshot": "w/o shot"}
        there = {key: name for key, name in columns.items() if key in rows[0]}
        return f"{table(rows, there)}\n20,000 elements cost {grown} times what 5,000 cost (aim: at most 5)"
    if part == "memory":
        memory = result["memory"]
        way = ", ".join(f"{loads}: {mb:,}" for loads, mb in memory["mb"])
        return f"MB after so many loads: {way}\nslope: {memory['slope_mb_per_100_loads']} MB per 100 loads"
    rows = result["miniwob"]["rows"] if part == "miniwob" else result["sites"]
    lines = [table(rows, {key: key.replace("_", " ") for key in rows[0]})] if rows else []
    if part == "miniwob" and "browsergym" in result["miniwob"]:
        told = result["miniwob"]
        for waits, one in told["browsergym"].items():
            lines.append(f"BrowserGym, {waits}: step {one['step_ms']:,} ms, reset {one['reset_ms']:,} ms")
        lines.append(f"ratio {told['ratio_to_browsergym']}, without its waits {told['ratio_without_its_waits']}")
    return "\n".join(lines)


def machine() -> dict:
    told = subprocess.run(["lscpu"], capture_output=True, text=True).stdout if sys.platform == "linux" else ""
    names = [line.partition(":")[2].strip() for line in told.splitlines() if line.startswith("Model name")]
    return {
        "cpu": names[0] if names else platform.processor(), "cores": psutil.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30, 1), "system": platform.platform(),
        "load_before": round(psutil.getloadavg()[0], 2),
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-browsergym", dest="beside", action="store_false", help="our side alone")
    parser.add_argument("--quick", action="store_true", help="few repetitions: to see that it runs, not for the record")
    parser.add_argument("--only", choices=PARTS, help="one part; the file then holds this part alone")
    asked = parser.parse_args()
    sizes = QUICK if asked.quick else FULL
    measures = {"miniwob": measure_miniwob, "sites": measure_sites, "memory": measure_memory}
    result = {"measured": datetime.now(UTC).isoformat(timespec="seconds"), "quick": asked.quick, "machine": machine()}
    try:
        for part in [asked.only] if asked.only else PARTS:
            if part == "observation":
                counts = {"repeats": sizes.repeats, "repeats_browsergym": sizes.repeats_browsergym * asked.beside}
                found = reading.measure(**counts)
            else:
                found = measures[part](sizes, asked.beside)
            result |= found
            write_json(RESULTS, result | {"versions": provenance()})  # what is measured is kept if a later part fails
            print(f"{part}\n{report(part, found)}\n", flush=True)
    except (BrowserGymMissing, SitesError) as problem:
        raise SystemExit(str(problem)) from None
    print(f"written: {RESULTS}")


if __name__ == "__main__":
    main()
