"""One interface for every model: requests in, replies out, and what they cost.

A request may be constrained to a fixed set of replies (`choices`) or to a grammar. Two engines
answer it: any OpenAI-compatible URL (endpoint.py), also of a vLLM that serve.py starts, and
transformers in this process (models.py). Used by notebooks 01 to 05.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, Protocol

from pydantic import BaseModel

from wevo_nb.schema import Cost, Record


class Request(Record):
    """One question. A last message of the role `assistant` is the beginning of the reply."""

    messages: tuple[dict[str, str], ...]
    choices: tuple[str, ...] | None = None  # the reply is one of these
    grammar: str | None = None  # GBNF or EBNF, as the endpoint reads it
    json_schema: dict | None = None  # of a JSON reply; where the engine cannot be bound, for the reader to check
    n: int = 1
    temperature: float = 0.0
    max_tokens: int = 256
    stop: tuple[str, ...] = ()
    seed: int = 0


class Reply(Record):
    """One answer. `logprobs`: of each choice, normalised over them, where the engine knows it."""

    text: str
    # filtered: by the endpoint's own rules; failed: one of several calls, the others came through
    finish: Literal["stop", "length", "filtered", "failed"] = "stop"
    logprobs: tuple[float, ...] | None = None


class Usage(BaseModel):
    """What a role has cost so far. Tokens are what the engine processed, padding apart."""

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0

    def reset(self):
        self.calls = self.prompt_tokens = self.completion_tokens = 0
        self.seconds = 0.0

    def add(self, *, calls: int, prompt: int, completion: int, seconds: float):
        for usage in (self, *_meters.get()):
            usage.calls += calls
            usage.prompt_tokens += prompt
            usage.completion_tokens += completion
            usage.seconds = round(usage.seconds + seconds, 3)


def cost_of(used: Usage, seconds: float, steps: int = 0) -> Cost:
    """What a meter counted, over `seconds` of wall time, as the cost of a decision."""
    return Cost(
        calls=used.calls,
        tokens=used.prompt_tokens + used.completion_tokens,
        seconds=round(seconds, 3),
        model_seconds=used.seconds,
        steps=steps,
    )


_meters: ContextVar[tuple[Usage, ...]] = ContextVar("meters", default=())


@contextmanager
def metered() -> Iterator[Usage]:
    """Counts what every model costs within the block, in this task and those it starts, and no other."""
    meter = Usage()
    token = _meters.set((*_meters.get(), meter))
    try:
        yield meter
    finally:
        _meters.reset(token)


class Model(Protocol):
    """Answers requests: for each request a list of its n replies, in order."""

    name: str
    usage: Usage

    async def __call__(self, requests: Sequence[Request]) -> list[list[Reply]]: ...


class ModelError(RuntimeError):
    """A model that is missing, does not answer, or does not obey."""


class CallFailed(ModelError):
    """One call that a model which is there did not answer, retries included."""


class CallRefused(CallFailed):
    """A call that a server will not take as it is: too long for its model, or against its rules."""


def object_schema(**properties: dict) -> dict:
    """The JSON schema of an object with just these properties, in the form that strict servers ask for."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


async def ask(model: Model, request: Request) -> Reply:
    """The first reply to one request."""
    [[reply, *_]] = await model([request])
    return reply
