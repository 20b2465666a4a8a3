"""Who chooses: the model as a policy, and a uniformly random explorer.

In `choose` mode the model picks among the valid replies of the page: every control may be
clicked, every field may be filled with what the goal quotes, every short text may be the answer.
In `generate` mode it writes freely and the reply is parsed. Used by notebooks 01, 03 and 05. Paper: section 3 (policy).
"""

from __future__ import annotations

import hashlib
import math
import random
import re
from collections.abc import Sequence

from wevo_nb.actions import ReplyError, alias_of, format_reply, parse_reply
from wevo_nb.llm import Model, Reply, Request
from wevo_nb.observation import CLICKABLE, TYPEABLE, Element, parse_page
from wevo_nb.prompts import policy_messages
from wevo_nb.schema import Action, Decision, Observation, Step, Task, Trajectory
from wevo_nb.sections import PolicyParams

QUOTED = re.compile(r'"([^"]+)"')
WORDS = re.compile(r"[\w@./-]+")
TYPED_TEXTS = 4  # most quoted texts of a goal that are offered for typing
TYPED_WORDS = 6  # last words of a goal that are offered where it quotes nothing
ANSWER_CHARS = 40  # a longer text of a page is not offered as an answer
ANOTHER = "Your earlier ideas were: {tried}. Reply with a different action."


class ModelPolicy:
    """A language model as a policy. The same task, step and seed give the same decision."""

    def __init__(self, model: Model, params: PolicyParams, *, temperature: float = 0.0, seed: int = 0, name: str = ""):
        self.model, self.params, self.temperature, self.seed = model, params, temperature, seed
        self.name = name or model.name

    def with_seed(self, seed: int) -> ModelPolicy:
        """The same policy with another seed for what it samples."""
        return ModelPolicy(self.model, self.params, temperature=self.temperature, seed=seed, name=self.name)

    async def act(self, task: Task, history: Sequence[Step], observation: Observation) -> Decision | None:
        [decision] = await self.decide([(task, history, observation)], temperature=self.temperature)
        return decision

    async def decide(
        self, situations: Sequence[tuple[Task, Sequence[Step], Observation]], *, temperature: float
    ) -> list[Decision | None]:
        """One decision for each situation, in one call of the model."""
        requests = [self._request(*situation, temperature) for situation in situations]
        replies = iter(await self.model([r for r in requests if r is not None]))
        return [None if r is None else _decided(r, next(replies)[0]) for r in requests]

    async def propose(
        self, task: Task, history: Sequence[Step], observation: Observation, *, k: int, temperature: float
    ) -> list[Decision]:
        """Up to k decisions with different actions, the greedy one first.

        In `choose` mode the others are drawn at `temperature` without replacement (at 0: the
        next likeliest); in `generate` mode the model is asked for an action unlike the earlier ones.
        Paper: section 3.4, candidates of look-ahead.
        """
        if self.params.reply == "choose":
            return await self._propose_choices(task, history, observation, k, temperature)
        found: list[Decision] = []
        for attempt in range(k):
            request = self._request(task, history, observation, temperature if attempt else 0.0)
            request = request.model_copy(update={"seed": request.seed + attempt})
            if found:
                tried = "; ".join(decision.reply for decision in found)
                last = request.messages[-1]
                asked = {"role": "user", "content": f"{last['content']}\n{ANOTHER.format(tried=tried)}"}
                request = request.model_copy(update={"messages": (*request.messages[:-1], asked)})
            [[reply]] = await self.model([request])
            decision = decision_of(reply.text)
            if decision.action is not None and decision.action not in [d.action for d in found]:
                found.append(decision)
        return found

    async def _propose_choices(self, task, history, observation, k, temperature) -> list[Decision]:
        request = self._request(task, history, observation, 0.0)
        if request is None:
            return []
        [[reply]] = await self.model([request])
        if reply.logprobs is None:  # an endpoint that does not tell: ask again without the earlier ones
            replies = [reply.text]
            while len(replies) < min(k, len(request.choices)):
                left = tuple(choice for choice in request.choices if choice not in replies)
                again = request.model_copy(
                    update={"choices": left, "temperature": temperature, "seed": request.seed + len(replies)}
                )
                [[reply]] = await self.model([again])
                replies.append(reply.text)
            return [decision_of(text) for text in replies if text in request.choices]  # not the empty, the cut off
        rng = random.Random(request.seed)
        keyed = [(p + temperature * _gumbel(rng), c) for p, c in zip(reply.logprobs, request.choices, strict=True)]
        others = [choice for _, choice in sorted(keyed, key=lambda pair: -pair[0]) if choice != reply.text]
        return [_decided(request, reply, text) for text in [reply.text, *others][:k]]

    async def sample(
        self, task: Task, history: Sequence[Step], observation: Observation, *, n: int, temperature: float
    ) -> list[Decision]:
        """n decisions drawn independently, repeats and unread ones included."""
        request = self._request(task, history, observation, temperature)
        if request is None:
            return []
        [replies] = await self.model([request.model_copy(update={"n": n})])
        return [_decided(request, reply) for reply in replies]

    def _request(
        self, task: Task, history: Sequence[Step], observation: Observation, temperature: float
    ) -> Request | None:
        params = self.params
        messages = policy_messages(task, history, observation, prompt=params.prompt, keep=params.history)
        seed = seed_of(self.seed, task.key, self.name, len(history))
        if params.reply == "generate":
            return Request(messages=messages, temperature=temperature, max_tokens=params.max_tokens, seed=seed)
        choices = valid_replies(task, history, observation, params)
        return Request(messages=messages, choices=choices, temperature=temperature, seed=seed) if choices else None


class Replay:
    """Does again what was done in given trajectories, one for each task: the same actions in order."""

    name = "replay"

    def __init__(self, trajectories: Sequence[Trajectory]):
        self.actions = {t.task.key: [s.decision.action for s in t.steps] for t in trajectories}

    async def act(self, task: Task, history: Sequence[Step], observation: Observation) -> Decision | None:
        """None where the recorded actions are used up."""
        left = self.actions[task.key][len(history) :]
        return Decision(reply="(replayed)", action=left[0]) if left else None


class RandomPolicy:
    """Uniform over the valid replies: the explorer, and the floor of every comparison."""

    name = "random"

    def __init__(self, params: PolicyParams, *, seed: int = 0):
        self.params, self.seed = params, seed

    async def act(self, task: Task, history: Sequence[Step], observation: Observation) -> Decision | None:
        choices = valid_replies(task, history, observation, self.params)
        rng = random.Random(seed_of(self.seed, task.key, self.name, len(history)))
        return decision_of(rng.choice(choices)) if choices else None


def valid_replies(
    task: Task, history: Sequence[Step], observation: Observation, params: PolicyParams
) -> tuple[str, ...]:
    """Every reply that fits the page: the element's name first, then its id, so that a model
    finds the element by name and copies the id. Empty where nothing is left to try.
    """
    tried = (
        {s.decision.action for s in history if s.observation.text == observation.text} if params.no_repeat else set()
    )
    replies = {}
    for thought, action in _options(task.goal, observation, params.verbs):
        if action not in tried:
            replies[format_reply(thought, action)] = None
    return tuple(replies)[: params.max_choices]


def decision_of(reply: str) -> Decision:
    """A reply with the action read from it, or with why none could be read."""
    try:
        return Decision(reply=reply, action=parse_reply(reply), alias=alias_of(reply))
    except ReplyError as problem:
        return Decision(reply=reply, action=None, error=str(problem))


def _decided(request: Request, reply: Reply, text: str | None = None) -> Decision:
    """The decision of a reply, or of another choice `text`, with its probability where that is known."""
    decision = decision_of(reply.text if text is None else text)
    if not reply.logprobs or not request.choices:
        return decision
    chances = dict(zip(request.choices, map(math.exp, reply.logprobs), strict=True))
    entropy = -sum(p * math.log(p) for p in chances.values() if p > 0)
    return decision.model_copy(update={"probability": chances.get(decision.reply), "entropy": entropy})


def seed_of(*parts: object) -> int:
    """A 31-bit seed from anything printable; the same on every machine."""
    return int.from_bytes(hashlib.sha256("/".join(map(str, parts)).encode()).digest()[:4], "big") >> 1


def _options(goal: str, observation: Observation, verbs: Sequence[str]):
    elements = parse_page(observation.text)
    usable = [e for e in elements if e.role in CLICKABLE and "disabled: true" not in e.properties] or elements
    for e in usable:
        named = f"{e.role} '{e.name}'"
        if "click" in verbs:
            yield f"I will click {named}.", Action(verb="click", id=e.id)
        if "type" in verbs and e.role in TYPEABLE:
            for text in typed_texts(goal):
                yield f"I will type '{text}' in {named}.", Action(verb="type", id=e.id, text=text)
    if "scroll" in verbs:
        for way in ("down", "up"):
            yield f"I will scroll {way}.", Action(verb="scroll", text=way)
    for verb in ("wait", "goback", "restart"):
        if verb in verbs:
            yield f"I will {verb}.", Action(verb=verb)
    if "tab" in verbs:
        for i in range(len(observation.tabs)):
            if i != observation.tab:
                yield f"I will look at tab {i}.", Action(verb="tab", id=i)
    if "stop" in verbs:
        yield "I am done.", Action(verb="stop", text="done")
        for text in answers(elements):
            yield f"The answer is '{text}'.", Action(verb="stop", text=text)


def answers(elements: Sequence[Element]) -> list[str]:
    """What may be answered: the short texts of the page, and the cells of its rows, each once."""
    told = [e.name for e in elements if e.role in ("StaticText", "heading", "link")]
    cells = [cell.strip() for e in elements if e.role == "row" for cell in e.name.split("|")]
    return list(dict.fromkeys(text for text in told + cells if text and len(text) <= ANSWER_CHARS))


def typed_texts(goal: str) -> list[str]:
    """What may be typed: the quoted texts of the goal, else its last words."""
    quoted = list(dict.fromkeys(QUOTED.findall(goal)))[:TYPED_TEXTS]
    return quoted or WORDS.findall(goal)[-TYPED_WORDS:]


def _gumbel(rng: random.Random) -> float:
    """Gumbel noise: the order of log-probabilities plus it is a draw without replacement."""
    return -math.log(rng.expovariate(1.0))
