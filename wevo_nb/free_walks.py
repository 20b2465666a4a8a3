"""Free walks: a world model that goes on from its own pages, beside what really followed.

From a real page of a real trajectory its real actions are predicted one after the other, each on
the page that was predicted before. Reads trajectories, asks a world model or a baseline, gives one
record a prediction for the report card. Used by notebook 02. Paper: Table 2, by depth.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Container, Sequence
from typing import NamedTuple

from wevo_nb.schema import Action, Observation, Trajectory
from wevo_nb.targets import WORDS
from wevo_nb.transitions import NO_PAGE, Situation, Transition, content, outcome_of
from wevo_nb.world_model import Prediction

Predict = Callable[[Sequence[Situation]], Awaitable[list[Prediction]]]
# Stands at every depth that a walk did not reach: it has no outcome, no page, and cannot be read.
NO_PREDICTION = Prediction(dict.fromkeys(WORDS, 0.0), "same", NO_PAGE, False)


class Walked(NamedTuple):
    """One depth of one walk. Depth 1 is made from the real page, the others from `before`, an imagined one."""

    depth: int
    transition: Transition  # the real one at this depth, with real pages alone
    prediction: Prediction  # NO_PREDICTION where the walk had broken off
    before: Observation  # the page that the prediction was made from; empty where the walk had broken off
    forced: Prediction  # teacher-forced: made from the real page at the same position
    next_action: Action | None  # what was really done on the page that followed, where anything was


async def walk_freely(
    predict_: Predict,
    trajectories: Sequence[Trajectory],
    depth: int,
    *,
    starts: int,
    seed: int,
    known: Container[tuple] = (),
) -> list[Walked]:
    """Walks of up to `depth` predictions, from at most `starts` real pages drawn by `seed`; sorted by depth.

    `known`: contents of transitions (transitions.content), as of those trained on; a walk with one of them is left out.

    A walk breaks off where a prediction ends the episode or cannot be read. It still has a record at
    every depth that the real trajectory has, with NO_PREDICTION: left out, only the walks that went
    well would be counted. It ends with the real trajectory, and before a step that was not carried
    out. `predict_` is called once with every real situation and once a further depth. An action
    keeps its id: on an imagined page with other ids it means another element, as for an agent.
    """
    walks = _draw(trajectories, depth, starts, seed, known)
    real = list(dict.fromkeys(t.situation for walk in walks for t in walk[:depth]))
    forced = dict(zip(real, await predict_(real), strict=True)) if real else {}
    now: list[Situation | None] = [walk[0].situation for walk in walks]  # None: broken off
    found = []
    for d in range(depth):
        here = [k for k, walk in enumerate(walks) if d < len(walk)]
        asked = {k: now[k] for k in here if now[k] is not None}
        answers = list(map(forced.get, asked.values())) if d == 0 else await _ask(predict_, list(asked.values()))
        told = dict(zip(asked, answers, strict=True))
        for k in here:
            following = walks[k][d + 1] if d + 1 < len(walks[k]) else None
            prediction = told.get(k, NO_PREDICTION)
            before = now[k].observation if k in told else NO_PAGE
            action = following.situation.action if following else None
            real_one = walks[k][d]
            found.append(Walked(d + 1, real_one, prediction, before, forced[real_one.situation], action))
            now[k] = _go_on(now[k], prediction, following)
    return found


def next_actions(transitions: Sequence[Transition], trajectories: Sequence[Trajectory]) -> list[Action | None]:
    """For each transition what was really done on the page that followed it, by goal and page; None where nothing was.

    Where several trajectories came to that page, the first one tells.
    """
    done: dict[tuple[str, str], Action] = {}
    for trajectory in trajectories:
        for stretch in _stretches(trajectory):
            for t in stretch:
                done.setdefault((trajectory.task.goal, t.situation.observation.text), t.situation.action)
    wanted = [(t.situation.task.goal, t.following.text) for t in transitions]
    return [None if t.following.done else done.get(key) for t, key in zip(transitions, wanted, strict=True)]


async def _ask(predict_: Predict, situations: list[Situation]) -> list[Prediction]:
    return await predict_(situations) if situations else []


def _go_on(now: Situation | None, prediction: Prediction, following: Transition | None) -> Situation | None:
    """The situation on the predicted page, where the next real action is taken."""
    if now is None or following is None or prediction.observation.done or not prediction.readable:
        return None
    step = following.situation.history[-1].model_copy(update={"observation": now.observation})
    return Situation(now.task, (*now.history, step), prediction.observation, following.situation.action)


def _draw(
    trajectories: Sequence[Trajectory], depth: int, starts: int, seed: int, known: Container[tuple]
) -> list[list[Transition]]:
    """Walks as their real transitions: up to `depth`, and one more where it tells the next action.

    One that can go no further than its first step says nothing about depth and is no start. The
    same walk in several trajectories is one.
    """
    found: dict[tuple, list[Transition]] = {}
    for stretch in (s for trajectory in trajectories for s in _stretches(trajectory)):
        for i in range(len(stretch) + 1 - min(depth, 2)):
            contents = tuple(map(content, stretch[i : i + depth]))
            if not any(one in known for one in contents):
                found.setdefault(contents, stretch[i : i + depth + 1])
    walks = list(found.values())
    return random.Random(seed).sample(walks, min(starts, len(walks)))


def _stretches(trajectory: Trajectory) -> list[list[Transition]]:
    """The carried-out steps of a trajectory, parted where one was not; a `stop` only where its reward is known."""
    stretches: list[list[Transition]] = [[]]
    for i, step, following in trajectory.transitions():
        action = step.decision.action
        if action is None or not step.valid or (action.verb == "stop" and not following.done):
            stretches.append([])
            continue
        situation = Situation(trajectory.task, trajectory.steps[:i], step.observation, action)
        stretches[-1].append(Transition(situation, following, outcome_of(step.observation, following)))
    return stretches
