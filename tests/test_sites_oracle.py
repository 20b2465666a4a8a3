"""Every task of the sites can be solved through the observation alone: a script does it, in a real Chromium.

It answers what it read on the pages. Prints the tasks solved per template and split.
"""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest

from wevo_nb.browser import BrowserEnv
from wevo_nb.judge import RewardJudge
from wevo_nb.params import load_params
from wevo_nb.rollout import rollout_many
from wevo_nb.runs import JSONL
from wevo_nb.schema import Task, Trajectory
from wevo_nb.tasks.sites import Sites
from wevo_nb.tasks.sites.oracle import Oracle
from wevo_nb.tasks.sites.templates import Opened

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]
PARAMS = load_params("study", {"collect.suite": "sites"}).params  # the whole window, as base.yaml has it for the sites
FEWEST, MOST = 3, 12  # steps, but for the warm-up tasks, which are over after a click or two


def every_task() -> list[Task]:
    with Sites() as suite:  # builds the sites where they are not yet
        return [item.task for item in suite.items.values()]


async def test_the_oracle_solves_tasks_of_every_template_and_split(chromium, tmp_path, capsys):
    """The first two of each; all of them: `pytest -m oracle`, ten minutes."""
    first = defaultdict(list)
    for task in every_task():
        first[task.name, task.split].append(task)
    two = [task for found in first.values() for task in found[:2]]
    unsolved, odd = await solve(two, chromium, tmp_path, capsys)
    assert not unsolved, "\n".join(unsolved)
    assert not odd, "\n".join(odd)


@pytest.mark.oracle
async def test_the_oracle_solves_every_task_through_the_observation_alone(chromium, tmp_path, capsys):
    unsolved, odd = await solve(every_task(), chromium, tmp_path, capsys)
    assert not unsolved, "\n".join(unsolved)
    assert not odd, "\n".join(odd)


async def solve(tasks, chromium, tmp_path, capsys) -> tuple[list[str], list[str]]:
    """What was not solved, and the templates that took fewer or more steps than a task of theirs should."""
    with Sites() as suite:
        jobs = [(task, 0) for task in tasks]
        found = await rollout_many(
            Oracle(),
            lambda: BrowserEnv(chromium, suite, PARAMS.browser, PARAMS.observation),
            jobs,
            JSONL(tmp_path / "oracle.jsonl", Trajectory),
            max_steps=MOST + 6,  # waits for a page that is slow to come are no steps of the task
            concurrency=2,
            judge=RewardJudge(),
        )
    solved, total, steps = Counter(), Counter(), defaultdict(list)
    for trajectory in found:
        kind = trajectory.task.name, trajectory.task.split
        total[kind] += 1
        solved[kind] += trajectory.verdict.success
        steps[trajectory.task.name].append(sum(step.decision.action.verb != "wait" for step in trajectory.steps))
    with capsys.disabled():
        print()
        for kind in sorted(total):
            print(f"{kind[0]:24} {kind[1]:10} {solved[kind]:3} of {total[kind]:3}")
        print(f"solved {solved.total()} of {total.total()}")
    unsolved = [f"{t.task.key}: {t.ended} {t.error}{t.final.url} {t.steps[-1].decision.reply if t.steps else ''}"
                for t in found if not t.verdict.success]  # fmt: skip
    fewest = lambda name: 1 if isinstance(suite.items[name, 0].wanted, Opened) else FEWEST  # noqa: E731 - a warm-up
    odd = [
        f"{name}: {sorted(numbers)} steps"
        for name, numbers in steps.items()
        if min(numbers) < fewest(name) or max(numbers) > MOST
    ]
    return unsolved, odd
