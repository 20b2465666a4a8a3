"""What a world model learns from: a page, an action, and the page that really followed.

Every carried-out step of every trajectory, successes and failures, each kind once. An episode's
first page is one as well: what `restart` leads to from no page. Used by notebooks 02 and 03.
Paper: section 3.2 (world model).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from wevo_nb.observation import parse_page, quote
from wevo_nb.schema import Action, Observation, Step, Task, Trajectory

FULL_REWARD = 1.0
NO_PAGE = Observation(text="")
OPEN = Action(verb="restart")  # from no page: the first page of an episode


class Situation(NamedTuple):
    """What a world model is asked: the task, the steps before this page, the page, the action."""

    task: Task
    history: Sequence[Step]
    observation: Observation
    action: Action


class Transition(NamedTuple):
    """A situation with the page that really followed and its outcome."""

    situation: Situation
    following: Observation
    outcome: str

    @property
    def start(self) -> str:
        """Host and path of the page where the episode began, or the task's kind where it tells none."""
        situation = self.situation
        first = situation.history[0].observation if situation.history else situation.observation
        url = urlsplit(first.url)
        return f"{url.hostname or ''}{url.path}" or situation.task.name


def outcome_of(before: Observation, after: Observation) -> str:
    """success (full reward), failure, same or changed."""
    if after.done:
        return "success" if (after.reward or 0.0) >= FULL_REWARD else "failure"
    return "same" if after.text == before.text else "changed"


def transitions(trajectories: Sequence[Trajectory]) -> list[Transition]:
    """Every carried-out step with the page that followed; repeats of the same are left out.

    A `stop` is one where its reward is known: success or failure.
    """
    found = {}
    for trajectory in trajectories:
        for i, step, following in trajectory.transitions():
            action = step.decision.action
            if action is None or not step.valid or (action.verb == "stop" and not following.done):
                continue
            situation = Situation(trajectory.task, trajectory.steps[:i], step.observation, action)
            transition = Transition(situation, following, outcome_of(step.observation, following))
            found.setdefault(content(transition), transition)
    return list(found.values())


def content(transition: Transition) -> tuple:
    """What makes two transitions one: goal, page, action, and what came of it."""
    task, _, page, action = transition.situation
    after = transition.following
    return (task.goal, page.text, action, after.text, after.done, after.reward)


def openings(trajectories: Sequence[Trajectory]) -> list[Transition]:
    """The first page of every task that was really visited, as what `restart` leads to from no page."""
    tasks = {t.task.key: t.task for t in trajectories}
    pages = first_pages(trajectories)
    return [Transition(Situation(tasks[key], (), NO_PAGE, OPEN), page, "changed") for key, page in pages.items()]


def first_pages(trajectories: Sequence[Trajectory]) -> dict[str, Observation]:
    """The first page of every task that was really visited, by task key."""
    return {t.task.key: (t.steps[0].observation if t.steps else t.final) for t in trajectories if t.ended != "error"}


def outcome_counts(found: Sequence[Transition]) -> Counter:
    return Counter(transition.outcome for transition in found)


def memory_of(history: Sequence[Step], observation: Observation, chars: int) -> list[str]:
    """What earlier pages showed and this one does not: elements without ids, newest page first.

    As many as fit into `chars` characters: the short state that keeps a longer imagined walk from
    inventing anew what it has seen. An element is told by role and name: in another state it is the same.
    """
    seen = {(element.role, element.name) for element in parse_page(observation.text)}
    kept: list[str] = []
    for step in reversed(history):
        for element in parse_page(step.observation.text):
            if (element.role, element.name) in seen or not element.name:
                continue
            seen.add((element.role, element.name))
            body = f"{element.role} {quote(element.name)}" + (f" {element.properties}" if element.properties else "")
            chars -= len(body) + 2
            if chars < 0:
                return kept
            kept.append(body)
    return kept
