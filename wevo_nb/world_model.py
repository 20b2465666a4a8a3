"""The world model: a language model that predicts the next page, and the environment it makes.

It is asked with the prompts it was trained with (targets.py), in up to three calls: a rationale
where it gives one, the outcome as an exact choice among four, the page where it changes. Used by
notebooks 02, 03 and 05. Paper: section 3.2 (world model), 3.3 (synthesis).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from wevo_nb.llm import CallFailed, Model, Reply, Request
from wevo_nb.observation import bodies_of
from wevo_nb.schema import Action, Decision, Effect, Observation, Step, Task
from wevo_nb.sections import WorldModelParams
from wevo_nb.targets import SENTENCE_TOKENS, WORDS, messages_for, read_page
from wevo_nb.transitions import NO_PAGE, OPEN, Situation

UNREAD = "the predicted page cannot be read"


class Prediction(NamedTuple):
    """P of each outcome, the likeliest or drawn one, the page that follows, whether it reads, the reply."""

    probabilities: dict[str, float]
    outcome: str
    observation: Observation
    readable: bool
    reply: str = ""


async def predict(
    model: Model,
    situations: Sequence[Situation],
    params: WorldModelParams,
    *,
    pages: bool = True,
    temperature: float = 0.0,
    seed: int = 0,
    hint: bool = False,
    must_answer: bool = False,
) -> list[Prediction]:
    """What follows each situation: the outcomes, then the pages that change, side by side.

    `pages=False` leaves changed pages undrawn, for a reader of outcomes alone. An endpoint that
    tells no probabilities gives its chosen outcome the probability 1. A call that came to nothing
    makes its prediction unreadable; with `must_answer` it raises CallFailed, for it says nothing of the model.
    """
    heard = _answered if must_answer else lambda replies: replies
    prompts = [messages_for(situation, params, hint=hint) for situation in situations]
    seeds = [seed + i for i in range(len(prompts))]
    begun = [""] * len(prompts)
    if params.rationale:
        asked = [
            Request(messages=m, max_tokens=SENTENCE_TOKENS, stop=("\n",), temperature=temperature, seed=s)
            for m, s in zip(prompts, seeds, strict=True)
        ]
        begun = [f"{replies[0].text.strip()}\n" for replies in heard(await model(asked))]
    silent = [text == "\n" for text in begun]  # a rationale that came to nothing
    asked = [
        Request(messages=_begin(m, text), choices=tuple(WORDS.values()), temperature=temperature, seed=s)
        for m, text, s in zip(prompts, begun, seeds, strict=True)
    ]
    answers = [replies[0] for replies in heard(await model(asked))]
    outcomes = {word: outcome for outcome, word in WORDS.items()}
    chosen = [
        outcomes.get(answer.text) if answer.finish == "stop" and not mute else None
        for answer, mute in zip(answers, silent, strict=True)
    ]
    drawn = [i for i, outcome in enumerate(chosen) if outcome == "changed" and pages]
    texts = await model(
        [
            Request(
                messages=_begin(prompts[i], f"{begun[i]}{WORDS['changed']}\n"),
                max_tokens=params.max_tokens,
                temperature=temperature,
                seed=seeds[i],
            )
            for i in drawn
        ]
    )
    replies = {i: reply[0] for i, reply in zip(drawn, heard(texts), strict=True)}
    return [
        _prediction(situation, answer, outcome, replies.get(i), params, pages=pages)
        for i, (situation, answer, outcome) in enumerate(zip(situations, answers, chosen, strict=True))
    ]


def _answered(replies: Sequence[Sequence[Reply]]) -> Sequence[Sequence[Reply]]:
    failed = sum(one.finish == "failed" for one, *_ in replies)
    if failed:
        raise CallFailed(f"{failed} of {len(replies)} questions got no answer: the same command asks again")
    return replies


def _begin(messages, reply: str):
    return (*messages, {"role": "assistant", "content": reply}) if reply else messages


def _prediction(situation, answer, outcome, page, params: WorldModelParams, *, pages: bool) -> Prediction:
    before = situation.observation.text
    if outcome is None:  # no outcome at all: nothing is known
        note = {"note": UNREAD, "effect": Effect(problem="unreadable")}
        return Prediction(dict.fromkeys(WORDS, 0.0), "same", Observation(text=before, **note), False, answer.text)
    logprobs = answer.logprobs or tuple(0.0 if word == answer.text else -math.inf for word in WORDS.values())
    probabilities = dict(zip(WORDS, map(math.exp, logprobs), strict=True))
    text, readable = before, True
    if page is not None:
        text, readable = read_page(before, page.text, params.target)
        readable = readable and page.finish == "stop"
    done = outcome in ("success", "failure")
    following = Observation(
        text=_drawn(before, text, outcome, readable, pages),
        done=done,
        reward=chance_of_success(probabilities) if done else None,
        note="" if readable else UNREAD,
        effect=None if readable else Effect(problem="unreadable"),
    )
    reply = answer.text if page is None else f"{answer.text}\n{page.text}"
    return Prediction(probabilities, outcome, following, readable, reply)


def _drawn(before: str, text: str, outcome: str, readable: bool, pages: bool) -> str:
    if outcome in ("success", "failure"):
        return ""
    if outcome == "same" or not readable:
        return before
    return text if pages else "(the page changes)"


def chance_of_success(probabilities: Mapping[str, float]) -> float | None:
    """P(success) of an episode that ends here: against P(failure) alone. None where nothing is known of either."""
    won, lost = probabilities["success"], probabilities["failure"]
    return won / (won + lost) if won + lost else None


class WorldModelEnv:
    """An Environment that a world model imagines.

    Its first pages are those of the real tasks in `first_pages`, or imagined from the task where
    `imagine_first`. The reward of an imagined end is P(success) against P(failure) alone, None where
    nothing is known of either; a page that cannot be read leaves the page as it was, with a note. `hint_at`: the step,
    counted from 1, whose page is asked to hold the answer, as the official release does at its last.
    """

    errors: tuple[type[Exception], ...] = ()

    def __init__(
        self,
        model: Model,
        params: WorldModelParams,
        first_pages: Mapping[str, Observation],
        *,
        seed: int = 0,
        temperature: float = 0.0,
        imagine_first: bool = False,
        hint_at: int | None = None,
    ):
        self.name = model.name if hint_at is None else f"{model.name} hinted at step {hint_at}"
        self.model, self.params, self.first_pages, self.seed = model, params, first_pages, seed
        self.temperature, self.imagine_first, self.hint_at = temperature, imagine_first, hint_at
        self.task: Task | None = None
        self.history: list[Step] = []
        self.observation = NO_PAGE

    async def reset(self, task: Task) -> Observation:
        self.task, self.history = task, []
        if self.imagine_first:
            prediction = await self._predict(NO_PAGE, OPEN)
            self.observation = prediction.observation
            return self.observation
        if task.key not in self.first_pages:
            raise KeyError(f"no first page of {task.key} is known: collect it in notebook 01 first")
        self.observation = self.first_pages[task.key]
        self.task = task.model_copy(update={"goal": self.observation.goal or task.goal})
        return self.observation

    async def step(self, action: Action, thought: str = "") -> Observation:
        if action.verb == "stop":
            prediction = await self._predict(self.observation, action, pages=False)
            end = {"done": True, "reward": chance_of_success(prediction.probabilities), "note": "", "effect": None}
            return self.observation.model_copy(update=end)
        if action.id is not None and action.verb != "tab" and action.id > len(bodies_of(self.observation.text)):
            note = f"there is no element [{action.id}] on the page"
            following = self.observation.model_copy(update={"note": note, "effect": Effect(problem="no_element")})
        else:
            following = (await self._predict(self.observation, action)).observation
        decision = Decision(reply=f"Thought: {thought}" if thought else "", action=action)
        self.history.append(Step(observation=self.observation, decision=decision))
        self.observation = following
        return following

    async def _predict(self, page: Observation, action: Action, **how) -> Prediction:
        situation = Situation(self.task, tuple(self.history), page, action)
        how |= {"seed": self.seed + len(self.history), "temperature": self.temperature}
        [prediction] = await predict(
            self.model, [situation], self.params, **how, hint=self.hint_at == len(self.history) + 1
        )
        return prediction

    async def close(self):
        """Nothing to close: the model outlives its episodes."""
