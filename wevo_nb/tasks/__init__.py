"""Task suites: tasks with their splits, their pages and their rule of success, one file a suite.

Which suite is used is `collect.suite`. A suite is opened like a file, lists its tasks, and
gives every episode a `Visit`: where it begins, what it may reach, and what it was worth.
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Iterable, Mapping
from typing import Protocol

from wevo_nb.params import Params
from wevo_nb.schema import Split, Task

# Seeds of one purpose never meet those of another, nor those of a run with another seed.
RUN_SEEDS, ITERATION_SEEDS, EXPLORER_SEEDS, TEST_SEEDS = 100_000, 1_000, 500, 50_000_000
LIVE = ("webvoyager", "mind2web", "openwebvoyager", "gaia_web", "simpleqa")
SUITES = {"miniwob": "miniwob:MiniWoB", "sites": "sites:Sites"} | {name: f"live:{name}" for name in LIVE}


class Visit(Protocol):
    """One episode's share of a suite."""

    url: str  # where it begins
    hosts: Mapping[str, str]  # what may be reached: "127.0.0.1:4711" or "*.example.org" -> how it is shown

    async def start(self, page) -> str:
        """Begins the task on the loaded Playwright page; returns the goal."""
        ...

    async def state(self, page) -> tuple[bool, float | None]:
        """Whether the episode is over, and then its reward."""
        ...

    async def answer(self, page, text: str) -> float | None:
        """The reward of `stop [text]`; None where the suite cannot tell."""
        ...

    async def close(self) -> None:
        """Gives back what the episode used."""
        ...


class Suite(Protocol):
    """Opened by `with`: serves its pages while it is open."""

    name: str
    licence: str  # of the pages and the tasks, in a sentence

    def tasks(self) -> list[Task]:
        """Every task it knows (of endless ones the first seed), for `wevo tasks`."""
        ...

    def draw(self, name: str, split: Split, start: int, count: int) -> list[Task]:
        """Up to `count` tasks of one kind; `start` shifts which. Raises ParamsError on an unknown name."""
        ...

    async def visit(self, task: Task) -> Visit: ...


def open_suite(params: Params) -> Suite:
    """The suite that `collect.suite` names; a context manager that serves its pages.

    Raises ParamsError where tasks.train or tasks.held_out name what it does not have.
    """
    suite = suite_named(params.collect.suite)
    for name in params.tasks.train + params.tasks.held_out:
        suite.draw(name, "train", 0, 1)
    return suite


def suite_named(name: str) -> Suite:
    """A suite, not open yet."""
    module, _, kind = SUITES[name].partition(":")
    return getattr(importlib.import_module(f"wevo_nb.tasks.{module}"), kind)()


def train_tasks(suite: Suite, params: Params, iteration: int) -> list[Task]:
    """`train_seeds` tasks of each training name, with seeds of this iteration."""
    start = params.seed * RUN_SEEDS + iteration * ITERATION_SEEDS
    return _drawn(suite, params.tasks.train, "train", start, params.tasks.train_seeds)


def explorer_tasks(suite: Suite, params: Params, iteration: int, names: list[str]) -> list[Task]:
    """Tasks for the random explorer, with seeds that no other policy sees."""
    start = params.seed * RUN_SEEDS + iteration * ITERATION_SEEDS + EXPLORER_SEEDS
    return _drawn(suite, names, "train", start, params.collect.explorer_episodes)


def test_tasks(suite: Suite, params: Params) -> list[Task]:
    """Held-out seeds of the training names, then the held-out names."""
    start = TEST_SEEDS + params.seed * RUN_SEEDS
    seeds = _drawn(suite, params.tasks.train, "test_seeds", start, params.tasks.test_seeds)
    return seeds + _drawn(suite, params.tasks.held_out, "test_tasks", start, params.tasks.held_out_seeds)


def held_out_seeds(tasks: Iterable[Task], share: float) -> set[int]:
    """The seeds of training tasks that are kept back for the world model's report card.

    Each with the probability `share`, whatever else is among `tasks`; where that leaves none, the one nearest to it.
    """
    drawn = {task.seed: random.Random(f"held out {task.seed}").random() for task in tasks}
    kept = {seed for seed, place in drawn.items() if place < share}
    return kept or set(sorted(drawn, key=lambda seed: drawn[seed])[:1])


def _drawn(suite: Suite, names, split: Split, start: int, count: int) -> list[Task]:
    return [task for name in names for task in suite.draw(name, split, start, count)]
