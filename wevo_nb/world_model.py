"""The world model: a language model that predicts the next page, and the environment it makes.

Its reply begins with the outcome (changed, same, done success, done fail); after `changed`
comes what differs (`change`) or the whole next page (`page`, the paper's). One builder makes
the rows it learns from and the prompts it is asked with. Used by notebooks 02, 03 and 05.
Paper: section 3.2 (world model), 3.3 (synthesis); the change target follows WMA.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from wevo_nb.llm import Model, Request
from wevo_nb.observation import apply_changes, changes, is_page
from wevo_nb.params import WorldModelParams
from wevo_nb.prompts import Messages, world_model_messages
from wevo_nb.schema import Action, Decision, Effect, Observation, Step, Task, Trajectory

WORDS = {"success": "done success", "failure": "done fail", "changed": "changed", "same": "same"}
UNREAD = "the predicted page cannot be read"
FULL_REWARD = 1.0


class Situation(NamedTuple):
    """What a world model is asked: the task, the steps before this page, the page, the action."""

    task: Task
    history: Sequence[Step]
    observation: Observation
    action: Action


class Prediction(NamedTuple):
    """P of each outcome, the likeliest or drawn one, the page that follows, whether it reads."""

    probabilities: dict[str, float]
    outcome: str
    observation: Observation
    readable: bool


class Row(NamedTuple):
    """A training example: messages in, reply out, and what it is about."""

    messages: Messages
    reply: str
    task: str
    outcome: str = ""


class Transition(NamedTuple):
    """A situation with the page that really followed and its outcome."""

    situation: Situation
    following: Observation
    outcome: str


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
            key = (
                trajectory.task.goal,
                step.observation.text,
                action,
                following.text,
                following.done,
                following.reward,
            )
            found.setdefault(key, Transition(situation, following, outcome_of(step.observation, following)))
    return list(found.values())


def messages_for(situation: Situation, params: WorldModelParams) -> Messages:
    """The prompt: the same for training and for asking."""
    return world_model_messages(*situation, target=params.target, keep=params.history)


def target_text(transition: Transition, params: WorldModelParams) -> str:
    """The reply to learn: the outcome, and after `changed` the changes or the next page."""
    word = WORDS[transition.outcome]
    if transition.outcome != "changed":
        return word
    before, after = transition.situation.observation.text, transition.following.text
    body = "\n".join(changes(before, after)) if params.target == "change" else after
    return f"{word}\n{body}"


def training_rows(found: Sequence[Transition], params: WorldModelParams, *, seed: int) -> tuple[list[Row], list[dict]]:
    """Rows balanced over outcomes and, within one, over tasks; drawn without replacement.

    Returns the rows, shuffled, and a ledger (outcome, found, taken).
    """
    rng = random.Random(seed)
    rows, ledger = [], []
    for outcome, quota in params.outcome_rows.items():
        by_task: dict[str, list[Transition]] = {}
        for transition in found:
            if transition.outcome == outcome:
                by_task.setdefault(transition.situation.task.name, []).append(transition)
        taken = take_evenly(by_task, quota, rng)
        rows += [
            Row(messages_for(t.situation, params), target_text(t, params), t.situation.task.name, outcome)
            for t in taken
        ]
        ledger.append({"outcome": outcome, "found": sum(t.outcome == outcome for t in found), "taken": len(taken)})
    rng.shuffle(rows)
    return rows, ledger


def take_evenly(groups: Mapping[str, Sequence], quota: int, rng: random.Random) -> list:
    """Up to `quota` items, one from each group in turn, each group in random order."""
    piles = {name: rng.sample(list(items), len(items)) for name, items in sorted(groups.items())}
    taken = []
    while len(taken) < quota and any(piles.values()):
        for pile in piles.values():
            if pile and len(taken) < quota:
                taken.append(pile.pop())
    return taken


async def predict(
    model: Model,
    situations: Sequence[Situation],
    params: WorldModelParams,
    *,
    pages: bool = True,
    temperature: float = 0.0,
    seed: int = 0,
) -> list[Prediction]:
    """What follows each situation, in two calls: the outcomes, then the pages that change.

    `pages=False` leaves changed pages undrawn, for a reader of outcomes alone. An endpoint that
    tells no probabilities gives its chosen outcome the probability 1.
    """
    prompts = [messages_for(situation, params) for situation in situations]
    asked = [
        Request(messages=m, choices=tuple(WORDS.values()), temperature=temperature, seed=seed + i)
        for i, m in enumerate(prompts)
    ]
    answers = [replies[0] for replies in await model(asked)]
    chosen = [next(o for o, word in WORDS.items() if word == answer.text) for answer in answers]
    drawn = [i for i, outcome in enumerate(chosen) if outcome == "changed" and pages]
    begun = {"role": "assistant", "content": f"{WORDS['changed']}\n"}
    texts = await model(
        [
            Request(messages=(*prompts[i], begun), max_tokens=params.max_tokens, temperature=temperature, seed=seed + i)
            for i in drawn
        ]
    )
    replies = {i: reply[0] for i, reply in zip(drawn, texts, strict=True)}
    out = []
    for i, (situation, answer, outcome) in enumerate(zip(situations, answers, chosen, strict=True)):
        logprobs = answer.logprobs or tuple(0.0 if word == answer.text else -math.inf for word in WORDS.values())
        probabilities = dict(zip(WORDS, map(math.exp, logprobs), strict=True))
        text, readable = situation.observation.text, True
        if i in replies:
            text, readable = read_page(situation.observation.text, replies[i].text, params.target)
            readable = readable and replies[i].finish == "stop"
        done = outcome in ("success", "failure")
        following = Observation(
            text=_drawn(situation.observation.text, text, outcome, readable, pages),
            done=done,
            reward=probabilities["success"] if done else None,
            note="" if readable else UNREAD,
            effect=None if readable else Effect(problem="unreadable"),
        )
        out.append(Prediction(probabilities, outcome, following, readable))
    return out


def _drawn(before: str, text: str, outcome: str, readable: bool, pages: bool) -> str:
    if outcome in ("success", "failure"):
        return ""
    if outcome == "same" or not readable:
        return before
    return text if pages else "(the page changes)"


def read_page(before: str, reply: str, target: str) -> tuple[str, bool]:
    """The next page out of what followed `changed`, and whether all of it could be read."""
    body = reply.strip("\n")
    return apply_changes(before, body.split("\n")) if target == "change" else (body, is_page(body))


class WorldModelEnv:
    """An Environment that a world model imagines. Its first pages are those of the real tasks.

    The reward of an imagined end is P(success), after a `stop` against P(failure) alone; a page
    that cannot be read leaves the page as it was, with a note.
    """

    errors: tuple[type[Exception], ...] = ()

    def __init__(
        self, model: Model, params: WorldModelParams, first_pages: Mapping[str, Observation], *, seed: int = 0
    ):
        self.name = model.name
        self.model, self.params, self.first_pages, self.seed = model, params, first_pages, seed
        self.task: Task | None = None
        self.history: list[Step] = []
        self.observation = Observation(text="")

    async def reset(self, task: Task) -> Observation:
        if task.key not in self.first_pages:
            raise KeyError(f"no first page of {task.key} is known: collect it in notebook 01 first")
        self.observation = self.first_pages[task.key]
        self.task = task.model_copy(update={"goal": self.observation.goal or task.goal})
        self.history = []
        return self.observation

    async def step(self, action: Action) -> Observation:
        situation = Situation(self.task, tuple(self.history), self.observation, action)
        if action.verb == "stop":
            [prediction] = await predict(self.model, [situation], self.params, pages=False, seed=self.seed)
            won, lost = (prediction.probabilities[outcome] for outcome in ("success", "failure"))
            reward = won / (won + lost) if won + lost else 0.0
            return self.observation.model_copy(update={"done": True, "reward": reward, "note": "", "effect": None})
        [prediction] = await predict(self.model, [situation], self.params, seed=self.seed)
        self.history.append(Step(observation=self.observation, decision=Decision(reply="", action=action)))
        self.observation = prediction.observation
        return self.observation

    async def close(self):
        """Nothing to close: the model outlives its episodes."""


def first_pages(trajectories: Sequence[Trajectory]) -> dict[str, Observation]:
    """The first page of every task that was really visited, by task key."""
    return {t.task.key: (t.steps[0].observation if t.steps else t.final) for t in trajectories if t.ended != "error"}


def outcome_counts(found: Sequence[Transition]) -> Counter:
    return Counter(transition.outcome for transition in found)
