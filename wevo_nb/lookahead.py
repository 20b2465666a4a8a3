"""Look-ahead at inference (WMLA): imagine what each candidate action leads to, do the best.

LookAhead is a Policy around a policy. Its parts are the candidates (the policy's), imagination
(a world model, d steps; none for the best-of-k control), and a scorer that gives 1, 0.5 or 0.
What cannot be imagined or scored is unscored, never 0. Used by notebook 05. Paper: section 3.4.
"""

from __future__ import annotations

from collections.abc import Sequence

from wevo_nb.llm import Model, Request
from wevo_nb.params import WorldModelParams
from wevo_nb.policies import ModelPolicy, seed_of
from wevo_nb.prompts import SCORER_REPLIES, imagined_text, scorer_messages
from wevo_nb.schema import Candidate, Decision, Observation, Step, Task
from wevo_nb.world_model import Prediction, Situation, predict

VALUE = {"success": 1.0, "changed": 0.5, "same": 0.0, "failure": 0.0}  # the paper's scale


class LookAhead:
    """The policy's candidates, imagined `depth` steps ahead and scored. depth 0: best-of-k."""

    def __init__(
        self,
        policy: ModelPolicy,
        world_model: Model | None,
        scorer: OutcomeScorer | LLMScorer,
        params: WorldModelParams,
        *,
        k: int,
        depth: int,
        temperature: float,
        name: str,
    ):
        if depth and world_model is None:
            raise ValueError(f"look-ahead of depth {depth} needs a world model; depth 0 needs none")
        self.policy, self.world_model, self.scorer, self.params = policy, world_model, scorer, params
        self.k, self.depth, self.temperature, self.name = k, depth, temperature, name

    async def act(self, task: Task, history: Sequence[Step], observation: Observation) -> Decision | None:
        """The best candidate; the greedy one on a tie, or where nothing could be scored."""
        candidates = await self.policy.propose(task, history, observation, k=self.k, temperature=self.temperature)
        if not candidates:
            return await self.policy.act(task, history, observation)
        if len(candidates) == 1:
            return candidates[0]
        futures = await self.imagine(task, history, observation, candidates)
        scores = await self.scorer.score(task, history, observation, candidates, futures)
        considered = tuple(
            Candidate(reply=c.reply, imagined=tuple(imagined_text(p.observation) for p in f), score=s)
            for c, f, s in zip(candidates, futures, scores, strict=True)
        )
        return candidates[best_of(scores)].model_copy(update={"candidates": considered})

    async def imagine(
        self, task: Task, history: Sequence[Step], observation: Observation, candidates: Sequence[Decision]
    ) -> list[list[Prediction]]:
        """For each candidate the pages imagined after it, all candidates side by side.

        After the first step the policy itself acts in the imagined page. An end, a stop or a
        page that cannot be read ends a candidate's future.
        """
        futures: list[list[Prediction]] = [[] for _ in candidates]
        pasts = [list(history) for _ in candidates]
        pages = [observation] * len(candidates)
        decisions: list[Decision | None] = list(candidates)
        for depth in range(self.depth):
            live = [
                i for i, d in enumerate(decisions) if d is not None and d.action is not None and d.action.verb != "stop"
            ]
            asked = [Situation(task, tuple(pasts[i]), pages[i], decisions[i].action) for i in live]
            drawn = self.scorer.reads_pages or depth + 1 < self.depth
            seed = seed_of(self.name, task.key, len(history), depth)
            predictions = await predict(self.world_model, asked, self.params, pages=drawn, seed=seed)
            decisions = [None] * len(candidates)
            for i, situation, prediction in zip(live, asked, predictions, strict=True):
                pasts[i].append(Step(observation=pages[i], decision=Decision(reply="", action=situation.action)))
                pages[i] = prediction.observation
                futures[i].append(prediction)
            alive = [i for i in live if not pages[i].done and not pages[i].note]
            if depth + 1 < self.depth:
                following = await self.policy.decide([(task, pasts[i], pages[i]) for i in alive], temperature=0.0)
                for i, decision in zip(alive, following, strict=True):
                    decisions[i] = decision
        return futures


class OutcomeScorer:
    """Scores by the predicted outcome: success 1, a changed page 0.5, failure or no change 0.

    After imagination it reads the last imagined outcome. With a `model` (best-of-k) it asks that
    model the same question about the action itself: asked of the untrained base, that is the
    control which has candidates and a scorer and no world model.
    """

    reads_pages = False

    def __init__(self, params: WorldModelParams, model: Model | None = None):
        self.params, self.model = params, model

    async def score(self, task, history, observation, candidates, futures) -> list[float | None]:
        if self.model is None:
            return [imagined_value(future) for future in futures]
        asked = [
            (i, Situation(task, tuple(history), observation, c.action)) for i, c in enumerate(candidates) if c.action
        ]
        predictions = await predict(self.model, [s for _, s in asked], self.params, pages=False)
        values = {i: VALUE[p.outcome] for (i, _), p in zip(asked, predictions, strict=True)}
        return [values.get(i) for i in range(len(candidates))]


class LLMScorer:
    """A language model reads the action and what was imagined after it, if anything."""

    reads_pages = True

    def __init__(self, model: Model):
        self.model = model

    async def score(self, task, history, observation, candidates, futures) -> list[float | None]:
        asked = [
            (
                i,
                Request(
                    messages=scorer_messages(task, observation, c.action, [p.observation for p in future]),
                    choices=SCORER_REPLIES,
                ),
            )
            for i, (c, future) in enumerate(zip(candidates, futures, strict=True))
            if c.action and all(p.readable for p in future)
        ]
        replies = await self.model([request for _, request in asked])
        values = {i: float(reply[0].text) for (i, _), reply in zip(asked, replies, strict=True)}
        return [values.get(i) for i in range(len(candidates))]


def imagined_value(future: Sequence[Prediction]) -> float | None:
    """The value of a future by its last page; None where there is none or it cannot be read."""
    if not future or not future[-1].readable:
        return None
    last = future[-1].outcome
    if last in ("success", "failure"):
        return VALUE[last]
    return VALUE["changed"] if any(p.outcome == "changed" for p in future) else VALUE["same"]


def best_of(scores: Sequence[float | None]) -> int:
    """Position of the highest score, the first on a tie.

    Unscored is no number: an unscored greedy candidate (position 0) is overruled by a predicted
    success alone.
    """
    scored = [(-score, i) for i, score in enumerate(scores) if score is not None]
    if not scored or (scores[0] is None and -min(scored)[0] < VALUE["success"]):
        return 0
    return min(scored)[1]
