"""Task suites: lists of tasks with their splits. A suite serves its pages and knows what success is."""

from __future__ import annotations

import random

from wevo_nb.params import Params
from wevo_nb.schema import Task

# Seeds of one purpose never meet those of another, nor those of a run with another seed.
RUN_SEEDS, ITERATION_SEEDS, EXPLORER_SEEDS, TEST_SEEDS = 100_000, 1_000, 500, 50_000_000


def open_suite(params: Params):
    """The suite that `params.tasks.suite` names; a context manager that serves its pages."""
    from wevo_nb.tasks.miniwob import MiniWoB

    suites = {"miniwob": MiniWoB}
    return suites[params.tasks.suite](params.tasks.train + params.tasks.held_out)


def train_tasks(params: Params, iteration: int) -> list[Task]:
    """`train_seeds` tasks of each training name, with seeds of this iteration."""
    start = params.seed * RUN_SEEDS + iteration * ITERATION_SEEDS
    return _tasks(params, params.tasks.train, start, params.tasks.train_seeds, "train")


def explorer_tasks(params: Params, iteration: int, names: list[str]) -> list[Task]:
    """Tasks for the random explorer, with seeds that no other policy sees."""
    start = params.seed * RUN_SEEDS + iteration * ITERATION_SEEDS + EXPLORER_SEEDS
    return _tasks(params, names, start, params.collect.explorer_episodes, "train")


def test_tasks(params: Params) -> list[Task]:
    """Held-out seeds of the training names, then the held-out names."""
    start = TEST_SEEDS + params.seed * RUN_SEEDS
    seeds = _tasks(params, params.tasks.train, start, params.tasks.test_seeds, "test_seeds")
    return seeds + _tasks(params, params.tasks.held_out, start, params.tasks.held_out_seeds, "test_tasks")


def held_out(task: Task, share: float) -> bool:
    """Whether a training task is kept back for the world model's report card: that share of the seeds."""
    return random.Random(f"held out {task.seed}").random() < share


def _tasks(params: Params, names, start: int, count: int, split: str) -> list[Task]:
    suite = params.tasks.suite
    return [Task(suite=suite, name=name, seed=start + i, split=split) for name in names for i in range(count)]
