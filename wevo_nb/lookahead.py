"""Look-ahead at inference (WMLA): imagine what each candidate action leads to, do the best.

LookAhead is a Policy around a policy. Its parts combine freely (params `wmla`): candidates,
imagination, a scorer (scorers.py), and a choice with a stated tie rule. What cannot be imagined
or scored is unscored, never 0, and a decision says so where it fell back to the policy's own.
Used by notebook 05. Paper: section 3.4; WMA and WebDreamer are presets of the same parts.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Sequence

from wevo_nb.llm import CallFailed, Model, Request, cost_of, metered
from wevo_nb.policies import ModelPolicy, seed_of
from wevo_nb.prompts import dreamer_messages, imagined_text
from wevo_nb.schema import Action, Candidate, Decision, Observation, Step, Task
from wevo_nb.scorers import Future, Scorer
from wevo_nb.sections import LookAheadParams, WorldModelParams
from wevo_nb.transitions import Situation
from wevo_nb.world_model import Prediction, chance_of_success, predict

SENTENCE_TOKENS = 120  # of an outcome in words
ROUNDING = 1e-9  # of a difference of scores


class LookAhead:
    """A policy that looks ahead: the policy's candidates, imagined and scored, the best done.

    `imaginer` is the world model, or the model that tells outcomes in words. Best-of-k, the control,
    imagines nothing: it has None, or the untrained model to ask the question of a scorer that reads
    predicted outcomes.
    """

    def __init__(
        self,
        policy: ModelPolicy,
        imaginer: Model | None,
        scorer: Scorer,
        how: LookAheadParams,
        params: WorldModelParams,
        *,
        name: str,
        seed: int = 0,
    ):
        if how.imagination != "none" and imaginer is None:
            raise ValueError(f"imagination {how.imagination} needs a model that imagines; none needs none")
        if how.candidates == "valid" and policy.params.reply != "choose":
            raise ValueError("candidates valid are those that policy.reply: choose chooses among: take different")
        self.policy, self.imaginer, self.scorer = policy, imaginer, scorer
        self.how, self.params, self.name, self.seed = how, params, name, seed

    def with_seed(self, seed: int) -> LookAhead:
        """The same with another seed for what is sampled."""
        policy, how = self.policy.with_seed(seed), (self.how, self.params)
        return LookAhead(policy, self.imaginer, self.scorer, *how, name=self.name, seed=seed)

    async def act(self, task: Task, history: Sequence[Step], observation: Observation) -> Decision | None:
        """The best candidate; the policy's greedy one where look-ahead has not begun or could not tell."""
        if len(history) < self.how.skip_steps:
            return await self.policy.act(task, history, observation)
        started = time.perf_counter()
        with metered() as used:
            decision = await self._decide(task, history, observation)
        if decision is None:
            return None
        return decision.model_copy(update={"cost": cost_of(used, time.perf_counter() - started)})

    async def _decide(self, task, history, observation) -> Decision | None:
        candidates = await self.propose(task, history, observation)
        if not candidates:
            own = await self.policy.act(task, history, observation)
            return own and own.model_copy(update={"fell_back": "the policy gave no candidate that can be read"})
        if len(candidates) == 1:
            return candidates[0]
        problem = ""
        futures: list[Future] = [Future()] * len(candidates)
        scores: list[float | None] = [None] * len(candidates)
        try:
            futures = await self.imagine(task, history, observation, candidates)
            scores = await self.scorer.score(task, history, observation, candidates, futures)
        except CallFailed as failure:
            problem = str(failure)
        best = self.choose(scores, task, history)
        chosen = candidates[best]
        if scores[best] is None:
            problem = problem or unscored(scores, futures[best].problem)
        if self.how.candidates == "frequent" and scores[best] is None:  # the most frequent need not be the greedy one
            chosen = await self.policy.act(task, history, observation)
        considered = tuple(
            Candidate(reply=c.reply, imagined=f.texts, score=s, chances=f.chances)
            for c, f, s in zip(candidates, futures, scores, strict=True)
        )
        return chosen.model_copy(update={"candidates": considered, "fell_back": problem})

    def choose(self, scores: Sequence[float | None], task: Task, history: Sequence[Step]) -> int:
        """The position of the score that decides, by the tie rule and the margin of the params."""
        seed = seed_of(self.seed, self.name, task.key, len(history))
        sure = self.how.scorer != "veto"
        return best_of(scores, tie=self.how.tie, margin=self.how.margin, seed=seed, sure=sure)

    async def propose(self, task: Task, history: Sequence[Step], observation: Observation) -> list[Decision]:
        """Up to k different candidates, or every valid one. The first is the greedy one, or the most frequent."""
        how = self.how
        if how.candidates == "frequent":
            drawn = await self.policy.sample(task, history, observation, n=how.samples, temperature=how.temperature)
            return most_frequent(drawn, how.k)
        valid = {"k": self.policy.params.max_choices, "temperature": 0.0}
        which = valid if how.candidates == "valid" else {"k": how.k, "temperature": how.temperature}
        return await self.policy.propose(task, history, observation, **which)

    async def imagine(
        self, task: Task, history: Sequence[Step], observation: Observation, candidates: Sequence[Decision]
    ) -> list[Future]:
        """What each candidate is imagined to lead to, all of them side by side."""
        if self.how.imagination == "none":
            return await self._outcomes(task, history, observation, candidates)
        if self.how.imagination == "free_text":
            return await self._tell(task, observation, candidates, len(history))
        return await self._walk(task, history, observation, candidates)

    async def _outcomes(self, task, history, observation, candidates) -> list[Future]:
        if self.imaginer is None:
            return [Future()] * len(candidates)
        asked = [i for i, c in enumerate(candidates) if c.action]
        situations = [Situation(task, tuple(history), observation, candidates[i].action) for i in asked]
        predictions = await predict(self.imaginer, situations, self.params, pages=False)
        known = {i: stopped(p, candidates[i].action) for i, p in zip(asked, predictions, strict=True)}
        return [Future((known[i],)) if i in known else Future() for i in range(len(candidates))]

    async def _tell(self, task, observation, candidates, step: int) -> list[Future]:
        """Outcomes in words, one a candidate. A `stop` has none: the scorer judges the answer."""
        asked = [i for i, c in enumerate(candidates) if c.action and c.action.verb != "stop"]
        replies = await self.imaginer(
            [
                Request(
                    messages=dreamer_messages(task, observation, candidates[i].action, steps=self.how.depth),
                    max_tokens=SENTENCE_TOKENS,
                    temperature=self.how.imagination_temperature,
                    seed=seed_of(self.seed, task.key, step, i),
                )
                for i in asked
            ]
        )
        told = {i: reply for i, [reply, *_] in zip(asked, replies, strict=True)}
        whole = lambda reply: reply.text.strip() and reply.finish == "stop"  # noqa: E731
        return [
            Future()
            if i not in told
            else Future(texts=(told[i].text.strip(),))
            if whole(told[i])
            else Future(problem="the outcome in words is empty or cut off")
            for i in range(len(candidates))
        ]

    async def _walk(self, task, history, observation, candidates) -> list[Future]:
        """`depth` steps in the world model; after the first the policy itself acts in the imagined page.

        An end, a stop or a page that cannot be read ends a future. A stop is asked as well: whether
        it is more likely to end in success than in failure.
        """
        walked: list[list[Prediction]] = [[] for _ in candidates]
        pasts = [list(history) for _ in candidates]
        pages = [observation] * len(candidates)
        decisions: list[Decision | None] = list(candidates)
        problems = [""] * len(candidates)
        for depth in range(self.how.depth):
            live = [i for i, d in enumerate(decisions) if d is not None and d.action is not None]
            asked = [Situation(task, tuple(pasts[i]), pages[i], decisions[i].action) for i in live]
            drawn = self.scorer.reads_pages or depth + 1 < self.how.depth
            how = {"seed": seed_of(self.seed, self.name, task.key, len(history), depth), "pages": drawn}
            how["temperature"] = self.how.imagination_temperature
            predictions = await predict(self.imaginer, asked, self.params, **how)
            acted, decisions = decisions, [None] * len(candidates)
            for i, situation, prediction in zip(live, asked, predictions, strict=True):
                pasts[i].append(Step(observation=pages[i], decision=acted[i]))
                prediction = stopped(prediction, situation.action)
                pages[i] = prediction.observation
                walked[i].append(prediction)
                if not prediction.readable:
                    problems[i] = "an imagined page cannot be read"
            alive = [i for i in live if not pages[i].done and walked[i][-1].readable]
            if depth + 1 < self.how.depth:
                following = await self.policy.decide([(task, pasts[i], pages[i]) for i in alive], temperature=0.0)
                for i, decision in zip(alive, following, strict=True):
                    decisions[i] = decision
                    if decision is not None and decision.action is None:
                        problems[i] = "the policy's reply in an imagined page cannot be read"
        return [
            Future(tuple(predictions), tuple(imagined_text(p.observation) for p in predictions), problem)
            for predictions, problem in zip(walked, problems, strict=True)
        ]


def stopped(prediction: Prediction, action: Action) -> Prediction:
    """What is predicted of a `stop`: an end, and success where that is likelier than failure. Others stay."""
    if action.verb != "stop" or not prediction.readable:
        return prediction
    reward = chance_of_success(prediction.probabilities)
    if reward is None:
        return prediction._replace(readable=False)
    chances = dict.fromkeys(prediction.probabilities, 0.0) | {"success": reward, "failure": 1.0 - reward}
    end = Observation(text="", done=True, reward=reward)
    return prediction._replace(probabilities=chances, outcome="success" if reward > 0.5 else "failure", observation=end)


def most_frequent(drawn: Sequence[Decision], k: int) -> list[Decision]:
    """The k most frequent actions, the one drawn first on a tie; what could not be read is no candidate."""
    counts = Counter(decision.action for decision in drawn if decision.action is not None)
    first = {decision.action: decision for decision in reversed(drawn) if decision.action is not None}
    return [first[action] for action, _ in counts.most_common(k)]


def unscored(scores: Sequence[float | None], problem: str) -> str:
    """Why the choice is left to the policy, where its own candidate has no score."""
    nothing = set(scores) == {None}
    told = "no candidate could be scored" if nothing else "the policy's own candidate could not be scored"
    return f"{told}: {problem}" if problem else told


def best_of(
    scores: Sequence[float | None], *, tie: str = "first", seed: int = 0, margin: float = 0.0, sure: bool = True
) -> int:
    """Position of the highest score; on a tie the first, or one drawn by `seed`.

    With a `margin` the first candidate is overruled only by a score that beats its own by so much.
    Unscored is no number: an unscored first candidate is overruled by a score of 1 alone, and by none where
    1 does not tell success (not `sure`: scorer veto).
    """
    scored = [score for score in scores if score is not None]
    if not scored or (scores[0] is None and not (sure and max(scored) == 1.0)):
        return 0
    if scores[0] is not None and max(scored) - scores[0] < margin - ROUNDING:
        return 0
    best = [i for i, score in enumerate(scores) if score == max(scored)]
    return best[0] if tie == "first" else random.Random(seed).choice(best)
