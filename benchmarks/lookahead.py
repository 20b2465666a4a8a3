"""What look-ahead costs in time: decisions and episodes over what the model's latency allows, seconds a predicted page.

Prints tables and writes what was measured to benchmarks/results/lookahead.json. Needs a quiet machine;
the part `pages` also a Chromium and the small model.

What is timed:
- decisions: one decision of LookAhead with the paper's parts (free replies, each candidate asked to differ
  from the earlier ones, pages imagined, a model that scores) for k candidates and depth d, through EndpointModel,
  against a server on this machine that takes exactly LATENCY a call, however many come at once. Over the critical
  path: the wall time (median) by the calls that must follow one another times LATENCY. k = 1 is the plain policy:
  one call, which shows what a bare call adds. Aim: at most 1.15.
- episodes: EPISODES episodes at once in a scripted environment that takes no time, by the same look-ahead;
  share of the ideal is their calls that must follow one another times LATENCY, by the wall time. Aim: at least 0.9.
- pages: what a predicted page costs with a model in this process, target `page` against `change`, on real
  transitions of MiniWoB++ (a random walk). The model is made to write as many tokens as the true reply has, since
  what a reply costs depends on its length and an untrained model would go on to the limit with either target.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from environment import machine, table, walk
from model_server import MODEL, model_server, room

from wevo_nb.endpoint import EndpointModel
from wevo_nb.llm import Model, ModelError, Reply, Request
from wevo_nb.lookahead import LookAhead
from wevo_nb.params import ROOT, load_params
from wevo_nb.policies import ModelPolicy, RandomPolicy
from wevo_nb.provenance import provenance
from wevo_nb.rollout import rollout_many
from wevo_nb.runs import JSONL, write_json
from wevo_nb.schema import Action, Decision, Observation, Policy, Task, Trajectory
from wevo_nb.scorers import ModelScorer
from wevo_nb.sections import RoleParams, WorldModelParams
from wevo_nb.targets import WORDS, target_text
from wevo_nb.tasks.miniwob import MiniWoB
from wevo_nb.transitions import Transition, transitions
from wevo_nb.world_model import predict

RESULTS = ROOT / "benchmarks" / "results" / "lookahead.json"
PARTS = ("decisions", "episodes", "pages")
LATENCY = 0.1  # seconds a call of the server
WIDTHS, DEPTHS = (2, 3, 5), (1, 2, 3)  # k and d
EPISODES, STEPS = 8, 5  # at once, and actions of each
TASKS = (  # of MiniWoB++, in which an action changes the page without ending the episode
    "navigate-tree", "click-tab-2", "choose-list", "email-inbox", "click-checkboxes", "click-collapsible-2",
    "login-user", "social-media",
)  # fmt: skip
PARAMS = {"policy": {"reply": "generate", "prompt": "full"}, "world_model": {"target": "page", "rationale": False}}


class Sizes(NamedTuple):
    """How often each thing is done."""

    decisions: int  # of each k and depth
    episodes: int  # rounds of EPISODES
    seeds: int  # episodes of each MiniWoB task
    pages: int


FULL, QUICK = Sizes(7, 5, 2, 24), Sizes(1, 1, 1, 3)


# -- decisions and episodes


class Rooms:
    """A scripted environment: every action leads to the next room, the last one ends the episode. It takes no time."""

    name, errors = "rooms", ()

    async def reset(self, task: Task) -> Observation:
        self.number = 0
        return Observation(text=room(0), goal=task.goal)

    async def step(self, action: Action, thought: str = "") -> Observation:
        self.number += 1
        done = self.number == STEPS
        return Observation(text=room(self.number), done=done, reward=float(done) if done else None)

    async def close(self):
        pass


def critical_path(k: int, depth: int) -> int:
    """Calls of one decision that must follow one another; k = 1 is the plain policy, with one.

    Each of the k candidates is asked to differ from the earlier ones. What comes after is done for
    all of them side by side: an imagined step is its outcome and then its page, between two of them
    the policy chooses, and at the end stands the score.
    """
    return 1 if k == 1 else k + 2 * depth + (depth - 1) + 1


@contextlib.asynccontextmanager
async def looking_ahead(url: str, k: int, depth: int):
    """A policy that looks ahead, with a client for each role, as in an arm; the plain one where k is 1."""
    params = load_params("demo", PARAMS).params
    role = RoleParams(engine="openai", base=MODEL, url=url)
    acts, imagines, scores = models = [EndpointModel(role, params.llm) for _ in range(3)]
    policy: Policy = ModelPolicy(acts, params.policy)
    if k > 1:
        how = params.wmla.preset("paper").model_copy(update={"k": k, "depth": depth})
        policy = LookAhead(policy, imagines, ModelScorer(scores, "llm", how), how, params.world_model, name="ahead")
    try:
        yield policy
    finally:
        for model in models:
            await model.client.close()


def check(decision: Decision, k: int, depth: int):
    """Raises RuntimeError where less was done than is timed."""
    done = [len(candidate.imagined) for candidate in decision.candidates]
    if k > 1 and (decision.fell_back or done != [depth] * k):
        raise RuntimeError(f"k {k}, depth {depth}: imagined {done} steps; {decision.fell_back or 'no problem told'}")


async def decide(url: str, k: int, depth: int, repeats: int) -> dict:
    """The row of one k and depth; the first decision, which opens the connections, is not timed."""
    task, seconds = Task(suite="rooms", name="rooms", seed=0, goal="Find the exit."), []
    async with looking_ahead(url, k, depth) as policy:
        for _ in range(repeats + 1):
            started = time.perf_counter()
            check(await policy.act(task, (), Observation(text=room(0))), k, depth)
            seconds.append(time.perf_counter() - started)
    wall, calls = statistics.median(seconds[1:]), critical_path(k, depth)
    over = round(wall / (calls * LATENCY), 3)
    return {"k": k, "depth": depth, "calls_in_a_row": calls, "seconds": round(wall, 3), "over_critical_path": over}


async def measure_decisions(url: str, sizes: Sizes) -> dict:
    asked = [(1, 0), *((k, depth) for k in WIDTHS for depth in DEPTHS)]
    return {"decisions": [await decide(url, k, depth, sizes.decisions) for k, depth in asked]}


async def measure_episodes(url: str, sizes: Sizes, k: int = 3, depth: int = 1) -> dict:
    """Rounds of EPISODES episodes at once, the median; the first round opens the connections."""
    ideal, rounds = STEPS * critical_path(k, depth) * LATENCY, []
    tasks = [Task(suite="rooms", name="rooms", seed=i, goal="Find the exit.") for i in range(EPISODES)]
    async with looking_ahead(url, k, depth) as policy:
        with tempfile.TemporaryDirectory() as folder:
            sink = JSONL(Path(folder) / "trajectories.jsonl", Trajectory)
            for attempt in range(sizes.episodes + 1):
                jobs, before = [(task, attempt) for task in tasks], (time.perf_counter(), time.process_time())
                done = await rollout_many(policy, Rooms, jobs, sink, max_steps=STEPS, concurrency=EPISODES)
                rounds.append((time.perf_counter() - before[0], time.process_time() - before[1]))
                for step in (step for one in done for step in one.steps):
                    check(step.decision, k, depth)
    wall, computing = map(statistics.median, zip(*rounds[1:], strict=True))
    return {"episodes": {
        "episodes": EPISODES, "steps": STEPS, "k": k, "depth": depth, "seconds": round(wall, 3),
        "ideal_seconds": round(ideal, 3), "own_cpu_seconds": round(computing, 3),
        "share_of_ideal": round(ideal / wall, 3),
    }}  # fmt: skip


# -- predicted pages


class Dictated:
    """A model in this process that says `changed` and then writes exactly `length` tokens, whatever it has learned."""

    def __init__(self, model: Model):
        self.model, self.name, self.usage, self.length = model, model.name, model.usage, 1

    async def __call__(self, requests: Sequence[Request]) -> list[list[Reply]]:
        if requests and requests[0].choices:
            replies = await self.model(requests)
            return [[reply.model_copy(update={"text": WORDS["changed"]})] for [reply] in replies]
        self.model.weights.generation_config.min_new_tokens = self.length
        return await self.model([request.model_copy(update={"max_tokens": self.length}) for request in requests])


async def cost_of_pages(model: Model, found: Sequence[Transition], params: WorldModelParams) -> list[dict]:
    """A row a target. Both predict a transition before the next one comes; the first, a warm-up, is left out."""
    dictated, spent = Dictated(model), {"page": [], "change": []}
    for transition in [found[0], *found]:
        for target, rows in spent.items():
            how = params.model_copy(update={"target": target, "rationale": False})
            _, _, reply = target_text(transition, how).partition("\n")
            dictated.length = len(model.encode(reply)) + 1  # and the end
            model.usage.reset()
            started = time.perf_counter()
            await predict(dictated, [transition.situation], how)
            used = model.usage
            tokens = used.prompt_tokens + used.completion_tokens
            rows.append((time.perf_counter() - started, tokens, used.completion_tokens))
    rows = []
    for target, costs in spent.items():
        seconds, tokens, written = (statistics.mean(column) for column in zip(*costs[1:], strict=True))
        cut = sum(one[2] > params.max_tokens for one in costs[1:])
        rows.append({
            "target": target, "pages": len(found), "seconds_per_page": round(seconds, 3),
            "tokens_per_page": round(tokens, 1), "written_per_page": round(written, 1), "over_max_tokens": cut,
        })  # fmt: skip
    return rows


def changed_pages(sizes: Sizes) -> list[Transition]:
    """Real transitions that change the page, spread over TASKS, as a random walk meets them."""
    params = load_params("demo").params
    with MiniWoB() as suite:
        tasks = [t for name in TASKS for t in suite.draw(name, "train", 0, sizes.seeds)]
        run = walk(suite, RandomPolicy(params.policy), tasks, params, contexts=2, most=params.tasks.max_steps)
        trajectories, _, _ = asyncio.run(run)
    found = [one for one in transitions(trajectories) if one.outcome == "changed"]
    return found[:: max(1, len(found) // sizes.pages)][: sizes.pages]


def measure_pages(sizes: Sizes, name: str) -> dict:
    from wevo_nb.models import Engine

    params, found = load_params("demo").params, changed_pages(sizes)
    engine = Engine(params.llm)
    try:
        return {"pages": asyncio.run(cost_of_pages(engine.model(name), found, params.world_model))}
    finally:
        engine.close()


# -- what is printed


def report(part: str, result: dict) -> str:
    """A part as text."""
    rows = result[part] if isinstance(result[part], list) else [result[part]]
    lines = [table(rows, {key: key.replace("_", " ") for key in rows[0]})]
    if part == "decisions":
        worst = max(row["over_critical_path"] for row in rows)
        lines.append(f"at most {worst} times the critical path (aim: at most 1.15)")
    elif part == "episodes":
        lines.append(f"{rows[0]['share_of_ideal']:.1%} of the ideal (aim: at least 90%)")
    else:
        page, change = rows
        ratios = [page[key] / change[key] for key in ("seconds_per_page", "tokens_per_page", "written_per_page")]
        lines.append(
            "page over change: {:.1f} times the seconds, {:.1f} the tokens, {:.1f} those written".format(*ratios)
        )
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few repetitions: to see that it runs, not for the record")
    parser.add_argument("--only", choices=PARTS, help="one part; the file then holds this part alone")
    parser.add_argument("--model", default="smollm2-135m", help="of the part pages (default: smollm2-135m)")
    asked = parser.parse_args()
    sizes = QUICK if asked.quick else FULL
    result = {"measured": datetime.now(UTC).isoformat(timespec="seconds"), "quick": asked.quick, "machine": machine()}
    result |= {"latency_seconds": LATENCY, "model": asked.model}
    for part in [asked.only] if asked.only else PARTS:
        if part == "pages":
            try:
                found = measure_pages(sizes, asked.model)
            except ModelError as problem:
                raise SystemExit(str(problem)) from None
        else:
            measure = {"decisions": measure_decisions, "episodes": measure_episodes}[part]
            with model_server(LATENCY) as url:
                found = asyncio.run(measure(url, sizes))
        result |= found
        write_json(RESULTS, result | {"versions": provenance()})  # what is measured is kept if a later part fails
        print(f"{part}\n{report(part, found)}\n", flush=True)
    print(f"written: {RESULTS}")


if __name__ == "__main__":
    main()
