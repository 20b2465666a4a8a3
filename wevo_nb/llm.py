"""One interface for every model: requests in, replies out, and what they cost.

A request may be constrained to a fixed set of replies (`choices`) or to a grammar. Two engines
answer it: any OpenAI-compatible URL (here), also of a vLLM that serve.py starts, and transformers
in this process (models.py).
Used by notebooks 01 to 05.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, Protocol

from pydantic import BaseModel

from wevo_nb.params import LLMParams, RoleParams
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


PROBE = ("zq-417-violet", "zq-902-indigo")


class EndpointModel:
    """A model behind an OpenAI-compatible URL: vLLM, llama.cpp, a hosted one.

    The key is read from the environment variable that the role names. Unknown request keys
    are ignored by many servers, so a reply outside `choices` is an error, not a guess. That check
    costs nothing; `probe`, which costs a call, is for servers of our own (serve.py).
    """

    source: str | None = None  # of its weights: the server's own affair

    def __init__(self, role: RoleParams, params: LLMParams, *, key: str | None = None):
        """`key`: of a server on this machine that has one of its own; it is reached past any proxy."""
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient

        self.name = role.adapter or role.base
        self.role = role
        self.usage = Usage()
        self._checked = False
        how = dict(base_url=role.url, max_retries=params.retries, timeout=params.timeout_s)
        if key is None:
            self.client = AsyncOpenAI(api_key=os.environ.get(role.api_key_env, "none"), **how)
        else:
            self.client = AsyncOpenAI(api_key=key, http_client=DefaultAsyncHttpxClient(trust_env=False), **how)

    def about(self) -> dict:
        """For the manifest: where it answers."""
        return {"url": self.role.url}

    async def __call__(self, requests: Sequence[Request]) -> list[list[Reply]]:
        if not self._checked:
            await self.check()
        answers = await asyncio.gather(*(self._answer(request) for request in requests), return_exceptions=True)
        problems = [answer for answer in answers if isinstance(answer, BaseException)]
        for problem in problems:
            if not isinstance(problem, CallFailed) or len(problems) == len(answers):
                raise problem
        failed = lambda request: [Reply(text="", finish="failed")] * request.n  # noqa: E731
        return [
            failed(request) if isinstance(answer, CallFailed) else answer
            for request, answer in zip(requests, answers, strict=True)
        ]

    async def check(self):
        """Raises ModelError where the server is away or serves other models than ours."""
        from openai import OpenAIError

        try:
            served = [model.id for model in (await self.client.models.list()).data]
        except OpenAIError as problem:
            raise ModelError(
                f"no model server answers at {self.role.url} ({problem}): start it, or set the role's url"
            ) from None
        except (AttributeError, TypeError):
            raise ModelError(
                f"what answers at {self.role.url} is no model server: set the role's url, e.g. http://localhost:8000/v1"
            ) from None
        if self.name not in served:
            raise ModelError(
                f"{self.role.url} serves {', '.join(served) or 'nothing'}, not {self.name}: is it another's server?"
            )
        self._checked = True

    async def probe(self):
        """Raises ModelError where the server does not bind replies to choices. No model gives these by itself."""
        said = ({"role": "user", "content": "Say hello."},)
        reply = await ask(self, Request(messages=said, choices=PROBE, max_tokens=32))
        if reply.text not in PROBE:  # an empty or cut off reply is no error elsewhere
            raise self._disobeys(reply.text)

    async def _answer(self, request: Request) -> list[Reply]:
        from openai import OpenAIError
        from openai.types.chat import ChatCompletion

        started = time.perf_counter()
        body = {
            "model": self.name,
            "messages": list(request.messages),
            "n": request.n,
            "temperature": request.temperature,
            "max_tokens": request.max_tokens,
            "seed": request.seed,
        } | self._constraint(request)
        if request.stop:
            body["stop"] = list(request.stop)
        try:
            # The body as it is: the typed call spends a third of its own time on looking at every key.
            answer = await self.client.post("/chat/completions", cast_to=ChatCompletion, body=body)
        except OpenAIError as problem:
            kind = CallRefused if getattr(problem, "status_code", None) in (400, 413, 422) else CallFailed
            raise kind(f"{self.name} at {self.role.url}: {problem}") from problem
        if not answer.choices:
            raise CallFailed(f"{self.name} at {self.role.url}: an answer without a choice")
        replies = [self._read(request, choice) for choice in answer.choices]
        used = answer.usage
        self.usage.add(
            calls=1,
            prompt=used.prompt_tokens if used else 0,
            completion=used.completion_tokens if used else 0,
            seconds=time.perf_counter() - started,
        )
        return replies

    def _constraint(self, request: Request) -> dict:
        """The extra keys that bind the reply, in the words of this kind of server."""
        extra: dict = {}
        if request.messages[-1]["role"] == "assistant":
            extra |= {"add_generation_prompt": False, "continue_final_message": True}
        if request.json_schema is not None:
            return extra | self._bound_to(request.json_schema)
        if request.choices is None and request.grammar is None:
            return extra
        match self.role.constraint:
            case "structured_outputs":
                bound = {"choice": list(request.choices)} if request.choices else {"grammar": request.grammar}
                return extra | {"structured_outputs": bound}
            case "grammar":
                rule = "root ::= " + " | ".join(json.dumps(c, ensure_ascii=False) for c in request.choices or ())
                return extra | {"grammar": request.grammar or rule}
            case "json_schema" if request.choices:
                return extra | self._bound_to(object_schema(reply={"type": "string", "enum": list(request.choices)}))
            case kind:
                raise ModelError(
                    f"roles.*.constraint is {kind}: it cannot bind the replies of "
                    f"{self.name}; take another kind, or policy.reply: generate"
                )

    def _bound_to(self, schema: dict) -> dict:
        match self.role.constraint:
            case "structured_outputs":
                return {"structured_outputs": {"json": schema}}
            case "json_schema" | "grammar":  # llama.cpp takes both
                form = {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema, "strict": True}}
                return {"response_format": form}
        return {}

    def _read(self, request: Request, choice) -> Reply:
        text = choice.message.content or ""
        if choice.finish_reason == "content_filter" or choice.message.refusal:
            return Reply(text=text or choice.message.refusal or "", finish="filtered")
        if not text.strip() or choice.finish_reason == "length":  # empty or cut off: for the reader to leave unscored
            return Reply(text=text, finish="length")
        if request.choices and self.role.constraint == "json_schema":
            try:
                text = json.loads(text)["reply"]
            except (ValueError, KeyError, TypeError):
                raise ModelError(
                    f"{self.name} ignored the JSON schema and wrote {text[:80]!r}: "
                    "set roles.*.constraint to what the server obeys"
                ) from None
        if request.choices and text not in request.choices:
            raise self._disobeys(text)
        return Reply(text=text)

    def _disobeys(self, text: str) -> ModelError:
        return ModelError(
            f"{self.name} ignored the constraint '{self.role.constraint}' and wrote {text[:80]!r}: "
            "set roles.*.constraint to what the server obeys"
        )
