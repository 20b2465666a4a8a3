"""Tree search: best-first in the real environment, by reset and replay. Also a Policy.

Where look-ahead imagines, this one tries: each page it considers is reached by opening the task
anew and doing again what led there. It shows what a perfect world model would be worth, and what
trying costs; on a live site it would order, post and delete. Used by notebook 05 (preset
tree_search). Source: tree search for language model agents (search-agents); facts 11.3.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from wevo_nb.actions import thought_of
from wevo_nb.llm import CallFailed, cost_of, metered
from wevo_nb.lookahead import LookAhead, unscored
from wevo_nb.prompts import ENDED
from wevo_nb.schema import Candidate, Decision, Environment, Observation, Step, Task
from wevo_nb.scorers import Future

ENOUGH = 1.0  # the score at which the search ends


class Node(NamedTuple):
    """A page that was tried: the decisions that lead there, what it looked like, its score."""

    path: tuple[Decision, ...]
    steps: tuple[Step, ...]
    observation: Observation
    score: float | None


class TreeSearch:
    """Expands the best page first, `budget` real pages a decision, at most `depth` + 1 actions deep."""

    def __init__(self, ahead: LookAhead, make_environment: Callable[[], Environment]):
        self.ahead, self.make_environment, self.name = ahead, make_environment, ahead.name

    async def act(self, task: Task, history: Sequence[Step], observation: Observation) -> Decision | None:
        """The first action of the best path that was found; the policy's own where nothing could be scored."""
        if len(history) < self.ahead.how.skip_steps:
            return await self.ahead.policy.act(task, history, observation)
        started = time.perf_counter()
        with metered() as used:
            decision, steps = await self._search(task, history, observation)
        if decision is None:
            return None
        return decision.model_copy(update={"cost": cost_of(used, time.perf_counter() - started, steps)})

    async def _search(self, task, history, observation) -> tuple[Decision | None, int]:
        """The decision, and how many actions were done in real environments to find it."""
        how = self.ahead.how
        root = Node((), tuple(history), observation, None)
        frontier: list[tuple[float, int, Node]] = [(0.0, 0, root)]
        tried: list[Node] = []
        problem, done = "", 0
        while frontier and len(tried) < how.budget and not (tried and tried[-1].score == ENOUGH):
            _, _, node = heapq.heappop(frontier)
            candidates = await self.ahead.propose(task, node.steps, node.observation)
            if node is root and len(candidates) < 2:
                only = candidates[0] if candidates else await self.ahead.policy.act(task, history, observation)
                return only, done
            for candidate in candidates[: how.budget - len(tried)]:
                following, steps = await self._try(task, node.steps, candidate)
                done += steps
                step = Step(observation=node.observation, decision=candidate, valid=following.problem is None)
                try:
                    score = await self._score(task, node, candidate, following)
                except CallFailed as failure:
                    score, problem = None, str(failure)
                child = Node((*node.path, candidate), (*node.steps, step), following, score)
                tried.append(child)
                ended = following.done or candidate.action is None or candidate.action.verb == "stop"
                if score is not None and not ended and len(child.path) <= how.depth:
                    heapq.heappush(frontier, (-score, len(tried), child))
                if score == ENOUGH:
                    break
        considered = tuple(_considered(node) for node in tried)
        ordered = sorted(tried, key=lambda node: len(node.path))  # on a tie the shorter path, then the earlier
        scores = [node.score for node in ordered]
        best = ordered[self.ahead.choose(scores, task, history)]
        chosen, fell_back = best.path[0], unscored(scores, problem) if best.score is None else ""
        if best.score is None:
            chosen = await self.ahead.policy.act(task, history, observation)
        return chosen.model_copy(update={"candidates": considered, "fell_back": fell_back}), done

    async def _try(self, task: Task, steps: Sequence[Step], candidate: Decision) -> tuple[Observation, int]:
        """The real page after doing again `steps` and then the candidate, and how many actions that took."""
        environment, done = self.make_environment(), 0
        try:
            observation = await environment.reset(task)
            for decision in [*(step.decision for step in steps), candidate]:
                if decision.action is not None and not observation.done:
                    observation = await environment.step(decision.action, thought_of(decision.reply))
                    done += 1
            return observation, done
        finally:
            await environment.close()

    async def _score(self, task, node: Node, candidate: Decision, following: Observation) -> float | None:
        future = Future(texts=(_shown(following),))
        [score] = await self.ahead.scorer.score(task, node.steps, node.observation, [candidate], [future])
        return score


def _considered(node: Node) -> Candidate:
    path = " > ".join(decision.reply for decision in node.path)
    return Candidate(reply=path, imagined=(_shown(node.observation),), score=node.score)


def _shown(observation: Observation) -> str:
    return ENDED if observation.done else observation.text
