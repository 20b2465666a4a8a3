"""How good what was imagined is: the scorers of look-ahead.

Each gives a number from 0 to 1 for a candidate, or None where it could not be told: unscored is
no number. The paper's is a language model with 1, 0.5 or 0; WMA's is a value trained on how far
along an episode is; beside them stand the world model's own prediction and the policy's
likelihood. Used by notebook 05. Paper: section 3.4.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from wevo_nb.llm import Model, Reply, Request
from wevo_nb.prompts import ENDED, SCORER, SCORER_JSON, SCORER_REPLIES, VALUE, VALUE_REPLIES, scorer_messages
from wevo_nb.replies import read_json
from wevo_nb.schema import Decision, Observation, Step, Task
from wevo_nb.sections import LookAheadParams
from wevo_nb.world_model import Prediction

WORTH = {"success": 1.0, "changed": 0.5, "same": 0.0, "failure": 0.0}  # the paper's scale
VETO = 0.5  # of P(failure) + P(same), from which an action is not done


class Future(NamedTuple):
    """What was imagined after a candidate: predictions of a world model, or pages and words as text.

    `problem` says why it could not be imagined.
    """

    predictions: tuple[Prediction, ...] = ()
    texts: tuple[str, ...] = ()
    problem: str = ""

    @property
    def chances(self) -> dict[str, float]:
        """Of each outcome after the last imagined step; empty where none was predicted or none could be read."""
        return self.predictions[-1].probabilities if self.predictions and self.predictions[-1].readable else {}


class Scorer(Protocol):
    """Scores of all candidates of one decision, in order. `reads_pages`: whether it needs them drawn."""

    reads_pages: bool

    async def score(
        self,
        task: Task,
        history: Sequence[Step],
        observation: Observation,
        candidates: Sequence[Decision],
        futures: Sequence[Future],
    ) -> list[float | None]: ...


class PredictionScorer:
    """By what the world model predicts: the last outcome, or a veto on the first.

    outcome: success 1, a changed page 0.5, failure or no change 0. expected: P(success) + P(changed) / 2.
    likelihood: P(action) x expected. veto: 0 where failure or no change is likelier than not, else 1.
    """

    reads_pages = False

    def __init__(self, kind: str):
        self.kind = kind

    async def score(self, task, history, observation, candidates, futures) -> list[float | None]:
        return [self._value(c, f) for c, f in zip(candidates, futures, strict=True)]

    def _value(self, candidate: Decision, future: Future) -> float | None:
        if future.problem or not future.predictions or not future.predictions[-1].readable:
            return None
        last, chance = future.predictions[-1], future.predictions[-1].probabilities
        match self.kind:
            case "veto":
                first = future.predictions[0].probabilities
                return float(first["failure"] + first["same"] <= VETO)
            case "expected":
                return expected(chance)
            case "likelihood":
                return None if candidate.probability is None else candidate.probability * expected(chance)
            case _:
                if last.outcome in ("success", "failure"):
                    return WORTH[last.outcome]
                changed = any(p.outcome == "changed" for p in future.predictions)
                return WORTH["changed" if changed else "same"]


def expected(chances: Mapping[str, float]) -> float:
    """The mean worth of an outcome, from 0 to 1."""
    return sum(WORTH[outcome] * p for outcome, p in chances.items())


class ModelScorer:
    """A model reads the page, the action and what was imagined, and chooses a number.

    `value`: the world model itself, taught how far along an episode is. `llm`: any model, as an
    exact choice, or (`free`) in JSON that is read afterwards; `scores` replies are averaged.
    """

    reads_pages = True

    def __init__(self, model: Model, kind: str, how: LookAheadParams, *, free: bool = False, seed: int = 0):
        self.model, self.kind, self.how, self.free, self.seed = model, kind, how, free, seed

    async def score(self, task, history, observation, candidates, futures) -> list[float | None]:
        asked = [
            (i, self._request(task, history, observation, candidate, future))
            for i, (candidate, future) in enumerate(zip(candidates, futures, strict=True))
            if candidate.action and not future.problem
        ]
        replies = await self.model([request for _, request in asked])
        values = {i: self._read(request, answer) for (i, request), answer in zip(asked, replies, strict=True)}
        return [values.get(i) for i in range(len(candidates))]

    def _request(self, task, history, observation, candidate: Decision, future: Future) -> Request:
        if self.kind == "value":
            ends = [p.observation.done for p in future.predictions] or [False] * len(future.texts)
            shown = [ENDED if end else text for end, text in zip(ends, future.texts, strict=True)]
            messages = scorer_messages(task, observation, candidate.action, shown, system=VALUE)
            return Request(messages=messages, choices=VALUE_REPLIES)
        several = self.how.scores > 1
        how = {
            "n": self.how.scores,
            "temperature": self.how.scorer_temperature if several else 0.0,
            "seed": self.seed + len(history),
        }
        if self.free:
            messages = scorer_messages(task, observation, candidate.action, future.texts, system=SCORER_JSON)
            return Request(messages=messages, **how)
        messages = scorer_messages(task, observation, candidate.action, future.texts, system=SCORER)
        return Request(messages=messages, choices=SCORER_REPLIES, **how)

    def _read(self, request: Request, replies: Sequence[Reply]) -> float | None:
        """The mean of the scores that can be read. A value is the expectation, where chances are known."""
        if self.kind == "value" and replies[0].logprobs:
            return sum(float(c) * math.exp(p) for c, p in zip(request.choices, replies[0].logprobs, strict=True))
        values = [value for reply in replies if (value := read_score(reply)) is not None]
        return sum(values) / len(values) if values else None


def read_score(reply: Reply) -> float | None:
    """A number from 0 to 1 out of a reply: alone, or under `score` in JSON, fenced or not. None: unscored."""
    found = read_json(reply)
    if isinstance(found, dict):
        found = found.get("score")
    if isinstance(found, bool) or not isinstance(found, (int, float)) or not 0 <= found <= 1:
        return None
    return float(found)
