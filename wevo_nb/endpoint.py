"""Any OpenAI-compatible URL as a model: constraints in the words of the server, errors with their cure, chances.

Used by notebooks 01 to 05, for roles of engine openai, and by serve.py for servers of our own.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import math
import os
import time
from collections.abc import Sequence

from wevo_nb.chances import MOST_CHOICES, TOP, Path, Seen, choice_chances, pick
from wevo_nb.llm import CallFailed, CallRefused, ModelError, Reply, Request, Usage, object_schema
from wevo_nb.sections import LLMParams, RoleParams

PROBE = ("zq-417-violet", "zq-902-indigo")
SKY = Request(messages=({"role": "user", "content": "Is the sky blue? Answer yes or no."},), choices=("yes", "no"))
COLD, HOT = 0.5, 2.0  # temperatures at which the same chances must be told
UNKNOWN = (400, 404, 405, 422)  # what a server answers that does not know a key or a route
ROUNDS, LOOKS = 3, 4  # of further calls for the chances of one request, and calls in each
MOST_PATHS = 50_000  # choices whose tokens are remembered


class EndpointModel:
    """A model behind an OpenAI-compatible URL: vLLM, llama.cpp, a hosted one.

    The key is read from the environment variable that the role names. Unknown request keys
    are ignored by many servers, so a reply outside `choices` is an error, not a guess. That check
    costs nothing; `probe`, which costs a call, is for servers of our own (serve.py).

    Chances. Where a server tells them (vLLM; llama.cpp has the same routes and was not tried), up to MOST_CHOICES
    choices have `logprobs`, at temperature 1 whatever the request's, and the reply is picked by them as models.py
    picks it. They are those of the choices as the server's tokenizer cuts them: exact where the choices differ in
    their first token, and to within chances.OPEN where they part later (`done success`, `done fail`); there what
    was not written is asked for by at most ROUNDS x LOOKS short calls, which count as calls. The server itself
    draws from another distribution: a sampler bound to choices may spell them by other tokens, s and ame, and a
    model that knows nothing of the choices likes such beginnings. `logprobs` is None, and the reply the server's
    own, with more choices; a constraint that wraps them (json_schema); a server that cannot tokenize, tells no
    chances, or tells them after the temperature, which two questions find out at the first choice; and where too
    much lies beyond the TOP tokens of a place.
    """

    source: str | None = None  # of its weights: the server's own affair

    def __init__(self, role: RoleParams, params: LLMParams, *, key: str | None = None):
        """`key`: of a server on this machine that has one of its own; it is reached past any proxy."""
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient

        self.name = role.adapter or role.base
        self.role, self.params, self.key = role, params, key
        self.usage = Usage()
        self.tells_chances: bool | None = None  # None: not tried
        self._paths: dict[str, Path] = {}  # token ids of choices
        self._checked = False
        how = dict(base_url=role.url, max_retries=params.retries, timeout=params.timeout_s)
        if key is None:
            self.client = AsyncOpenAI(api_key=os.environ.get(role.api_key_env) or "none", **how)
        else:
            self.client = AsyncOpenAI(api_key=key, http_client=DefaultAsyncHttpxClient(trust_env=False), **how)

    def about(self) -> dict:
        """For the manifest: where it answers, and whether it tells chances."""
        return {"url": self.role.url, "tells_chances": self.tells_chances}

    async def __call__(self, requests: Sequence[Request]) -> list[list[Reply]]:
        """Replies, in order; `llm.batch` requests are under way at once. Raises ModelError."""
        if not self._checked:
            await self.check()
        if self.tells_chances is None and any(map(self._may_tell, requests)):
            await self._try_chances()
        limit = asyncio.Semaphore(self.params.batch)  # what waits in a server's queue runs into timeout_s

        async def answer(request: Request) -> list[Reply]:
            async with limit:
                return await self._answer(request)

        answers = await asyncio.gather(*map(answer, requests), return_exceptions=True)
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
        from openai import AuthenticationError, OpenAIError, PermissionDeniedError

        try:
            served = [model.id for model in (await self.client.models.list()).data]
        except (AuthenticationError, PermissionDeniedError) as problem:
            name = self.role.api_key_env
            is_set = "is not taken" if os.environ.get(name) else "is not set"
            raise ModelError(
                f"{self.role.url} wants a key, and {name} {is_set} ({problem}): export {name}=..., "
                "or name the variable that holds it in the role's api_key_env"
            ) from None
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
        await self.check()
        [reply] = await self._answer(Request(messages=said, choices=PROBE, max_tokens=32))
        if reply.text not in PROBE:  # an empty or cut off reply is no error elsewhere
            raise self._disobeys(reply.text)

    async def probe_chances(self) -> bool:
        """Whether the server tells the chances of choices, and the same ones whatever the temperature."""
        self._checked, self.tells_chances = True, True
        told = []
        for temperature in (COLD, HOT):
            try:
                [reply] = await self._answer(SKY.model_copy(update={"temperature": temperature}))
            except CallFailed as failed:
                if getattr(failed.__cause__, "status_code", 0) in UNKNOWN:
                    return False
                raise
            except ModelError:
                return False  # it does not bind its reply, as the question itself will show
            told.append(reply.logprobs and reply.logprobs[0] - reply.logprobs[1])
        if None in told or not all(map(math.isfinite, told)):
            return False
        return math.isclose(*told, rel_tol=0.25, abs_tol=0.5)  # after the temperature one is four times the other

    async def _try_chances(self):
        """By a model of its own, so that it is nobody's cost."""
        other = EndpointModel(self.role, self.params, key=self.key)
        try:
            trying = asyncio.create_task(other.probe_chances(), context=contextvars.Context())
            self.tells_chances = await trying
        except CallFailed:
            pass  # tried again at the next question; this one fails for itself, or comes without chances
        finally:
            await other.client.close()

    def _may_tell(self, request: Request) -> bool:
        bound = self.role.constraint in ("structured_outputs", "grammar")
        return bound and 0 < len(request.choices or ()) <= MOST_CHOICES

    async def _answer(self, request: Request) -> list[Reply]:
        telling = bool(self.tells_chances) and self._may_tell(request)
        written = await self._ask(request, telling=telling)
        replies = [self._read(request, choice) for choice in written]
        if not telling or any(reply.finish != "stop" for reply in replies):
            return replies
        seen = Seen(await asyncio.gather(*map(self._path, request.choices)))
        for choice in written:
            seen.add(_tokens(choice))
        logprobs = await self._chances(request, seen)
        if logprobs is None:
            return replies
        picked = pick(logprobs, temperature=request.temperature, n=request.n, seed=request.seed)
        return [Reply(text=request.choices[i], logprobs=logprobs) for i in picked]

    async def _chances(self, request: Request, seen: Seen) -> tuple[float, ...] | None:
        """Of the choices, after asking for what `seen` does not hold."""
        asked: set[Path] = set()
        for _ in range(ROUNDS):
            told = choice_chances(seen)
            beginnings = [begun for begun in told.open if begun and begun not in asked][:LOOKS]
            if not beginnings:
                return told.logprobs
            asked.update(beginnings)
            await asyncio.gather(*(self._look(request, begun, seen) for begun in beginnings))
        return choice_chances(seen).logprobs

    async def _look(self, request: Request, begun: Path, seen: Seen):
        """How a reply that begins so goes on. A call that fails tells nothing."""
        try:
            told = await self._post("detokenize", {"tokens": list(begun)})
            text = told.get("prompt", told.get("content", ""))
            if not text or text != text.rstrip():  # a chat template may strip it
                return
            *before, last = request.messages
            if last["role"] == "assistant":
                messages = (*before, last | {"content": last["content"] + text})
            else:
                messages = (*request.messages, {"role": "assistant", "content": text})
            left = tuple(choice.removeprefix(text) for choice in request.choices if choice.startswith(text))
            how = {"messages": messages, "choices": left, "n": 1, "temperature": 0.0}
            [choice] = await self._ask(request.model_copy(update=how), telling=True)
        except CallFailed:
            return
        seen.add(_tokens(choice), begun)

    async def _path(self, choice: str) -> Path:
        """The token ids of a choice, as vLLM and llama.cpp tell them. Raises CallFailed."""
        if choice not in self._paths:
            if len(self._paths) > MOST_PATHS:
                self._paths.clear()
            body = {"prompt": choice, "add_special_tokens": False, "content": choice, "add_special": False}
            self._paths[choice] = tuple((await self._post("tokenize", body))["tokens"])
        return self._paths[choice]

    async def _post(self, route: str, body: dict) -> dict:
        """A route beside the API. Raises CallFailed."""
        from openai import OpenAIError

        url = f"{self.role.url.rstrip('/').removesuffix('/v1')}/{route}"
        try:
            return await self.client.post(url, cast_to=object, body={"model": self.name} | body)
        except OpenAIError as problem:
            raise CallFailed(f"{self.name} at {url}: {problem}") from problem

    async def _ask(self, request: Request, *, telling: bool) -> list:
        """One call: what a chat completion has under `choices`. Counts its cost. Raises CallFailed."""
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
        if telling:
            body |= {"logprobs": True, "top_logprobs": TOP, "return_tokens_as_token_ids": True}
        try:
            # The body as it is: the typed call spends a third of its own time on looking at every key.
            answer = await self.client.post("/chat/completions", cast_to=ChatCompletion, body=body)
        except OpenAIError as problem:
            kind = CallRefused if getattr(problem, "status_code", None) in (400, 413, 422) else CallFailed
            raise kind(f"{self.name} at {self.role.url}: {problem}") from problem
        if not answer.choices:
            raise CallFailed(f"{self.name} at {self.role.url}: an answer without a choice")
        used = answer.usage
        self.usage.add(
            calls=1,
            prompt=used.prompt_tokens if used else 0,
            completion=used.completion_tokens if used else 0,
            seconds=time.perf_counter() - started,
        )
        return answer.choices

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
                    f"{self.name}; take another kind (of a model in world_model.beside: its own constraint), "
                    "or policy.reply: generate"
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


def _tokens(choice) -> list:
    """What a choice of a chat completion tells of its tokens; empty where nothing."""
    return getattr(getattr(choice, "logprobs", None), "content", None) or []
