"""The only loop: a policy acts in an environment until the episode ends.

The environment may be a browser or a world model; the loop does not know. Finished episodes
go to a JSONL at once, so a killed run goes on with those that are missing. Used by notebooks
01, 03 and 05. Paper: section 3, trajectory sampling.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from wevo_nb.actions import thought_of
from wevo_nb.llm import cost_of, metered
from wevo_nb.runs import JSONL
from wevo_nb.schema import Effect, Environment, Judge, Observation, Policy, Step, Task, Trajectory

RETRIES = 1  # of an episode that its environment broke off


async def rollout(
    policy: Policy,
    environment: Environment,
    task: Task,
    *,
    max_steps: int,
    max_repeats: int = 3,
    attempt: int = 0,
) -> Trajectory:
    """One episode of at most `max_steps` actions. Raises what the environment raises.

    The same reply on the very same page `max_repeats` times in a row ends it as stuck.
    """
    started = time.perf_counter()
    observation = await environment.reset(task)
    if observation.goal:
        task = task.model_copy(update={"goal": observation.goal})
    steps: list[Step] = []
    ended = "blocked" if observation.blocked else "done" if observation.done else None
    while ended is None:
        deciding = time.perf_counter()
        with metered() as used:
            decision = await policy.act(task, steps, observation)
        acting = time.perf_counter()
        if decision is None:
            ended = "dead_end"
            break
        if decision.cost is None and used.calls:
            decision = decision.model_copy(update={"cost": cost_of(used, acting - deciding)})
        if decision.action is None:
            unread = {"note": decision.error, "effect": Effect(problem="unreadable")}
            following = observation.model_copy(update=unread)
        else:
            following = await environment.step(decision.action, thought_of(decision.reply))
        steps.append(
            Step(
                observation=observation,
                decision=decision,
                valid=following.problem is None,
                ms=round(1000 * (time.perf_counter() - acting)),
            )
        )
        if decision.action is not None and decision.action.verb == "stop":
            ended = "stop"
        elif following.blocked:
            ended = "blocked"
        elif following.done:
            ended = "done"
        elif repeats(steps) >= max_repeats:
            ended = "stuck"
        elif len(steps) >= max_steps:
            ended = "limit"
        observation = following
    return Trajectory(
        task=task,
        policy=policy.name,
        environment=environment.name,
        steps=tuple(steps),
        final=observation,
        ended=ended,
        attempt=attempt,
        seconds=round(time.perf_counter() - started, 3),
    )


def repeats(steps: Sequence[Step]) -> int:
    """How often the last step, page and action alike, was done in a row. Waiting is no repeat."""
    count = 0
    kind = lambda s: (s.observation.text, s.observation.url, s.decision.action or s.decision.reply)  # noqa: E731
    for step in reversed(steps):
        same = kind(step) == kind(steps[-1])
        if not same or (step.decision.action is not None and step.decision.action.verb == "wait"):
            break
        count += 1
    return count


async def rollout_many(
    policy: Policy,
    make_environment: Callable[[], Environment],
    jobs: Sequence[tuple[Task, int]],
    sink: JSONL,
    *,
    max_steps: int,
    max_repeats: int = 3,
    concurrency: int,
    judge: Judge | None = None,
    bar=None,
) -> list[Trajectory]:
    """Episodes for all (task, attempt) jobs, `concurrency` at once, each written to `sink`.

    Jobs whose trajectory is in `sink` are not run again. An episode that its environment breaks
    off is tried once more, then kept with `ended` "error". A `judge` gives its verdict before
    the trajectory is written.
    Returns the trajectories of all jobs, in the order of the jobs.
    """
    keys = [f"{task.key}/{policy.name}/{attempt}" for task, attempt in jobs]
    waiting = iter([(key, *job) for key, job in zip(keys, jobs, strict=True) if key not in sink])

    async def work():
        for _, task, attempt in waiting:
            one = await rollout_guarded(policy, make_environment, task, max_steps, max_repeats, attempt)
            sink.append(one.model_copy(update={"verdict": await judge.judge(one)}) if judge else one)
            if bar is not None:
                bar.update()

    workers = [asyncio.create_task(work()) for _ in range(concurrency)]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)  # each closes its environment first
    return [sink.records[key] for key in keys]


async def rollout_guarded(
    policy, make_environment, task: Task, max_steps: int, max_repeats: int, attempt: int
) -> Trajectory:
    """An episode in an environment of its own, which is closed whatever happens.

    One that its environment breaks off is tried once more, then told with `ended` "error".
    """
    problem: Exception | None = None
    for _ in range(RETRIES + 1):
        environment = make_environment()
        try:
            how = {"max_steps": max_steps, "max_repeats": max_repeats, "attempt": attempt}
            one = await rollout(policy, environment, task, **how)
            return one.model_copy(update={"error": f"tried again after {_said(problem)}"}) if problem else one
        except environment.errors as error:
            problem = error
        finally:
            await environment.close()
    return Trajectory(
        task=task,
        policy=policy.name,
        environment=environment.name,
        steps=(),
        final=Observation(text=""),
        ended="error",
        attempt=attempt,
        error=_said(problem),
    )


def _said(problem: Exception | None) -> str:
    return f"{type(problem).__name__}: {problem}"[:300]
