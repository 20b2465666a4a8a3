"""A recorded episode done again with the network off: the same actions, and is every page the same?

Reads a trajectory and the traffic of its episode (har.py). Used by `wevo replay`.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from wevo_nb.browser import BrowserEnv
from wevo_nb.chromium import Chromium
from wevo_nb.observation import changes
from wevo_nb.params import Params
from wevo_nb.policies import Replay
from wevo_nb.rollout import rollout
from wevo_nb.schema import Observation, Trajectory
from wevo_nb.tasks import Suite


class PageCheck(NamedTuple):
    """One page of the episode: where it was, and how it differs from the recorded one ("" where it does not)."""

    number: int
    url: str
    difference: str


async def replay(trajectory: Trajectory, folder: Path, suite: Suite, params: Params) -> list[PageCheck]:
    """Every page of `trajectory` compared with the one that its actions lead to again.

    `folder` is the stage's, `params` those of its run, `suite` is open. Raises StageError where
    the episode was not recorded, and what the browser raises where a page is not in the recording.
    """
    offline = params.browser.model_copy(update={"har": "replay"})
    steps = len(trajectory.steps)
    async with Chromium(offline) as chromium:
        environment = BrowserEnv(chromium, suite, offline, params.observation, folder)
        try:
            again = await rollout(
                Replay([trajectory]), environment, trajectory.task, max_steps=steps, max_repeats=steps + 1
            )
        finally:
            await environment.close()
    found = _pages(again) + [None] * (steps - len(again.steps))
    return [
        PageCheck(number, page.url, _differs(page, seen))
        for number, (page, seen) in enumerate(zip(_pages(trajectory), found, strict=True), start=1)
    ]


def _pages(trajectory: Trajectory) -> list[Observation]:
    return [*(step.observation for step in trajectory.steps), trajectory.final]


def _differs(page: Observation, seen: Observation | None) -> str:
    if seen is None:
        return "the episode ended before this page"
    lines = [
        f"{field}: {getattr(page, field)!r} became {getattr(seen, field)!r}"
        for field in ("url", "title")
        if getattr(page, field) != getattr(seen, field)
    ]
    return "\n".join(lines + changes(page.text, seen.text))
