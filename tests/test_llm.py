"""Any OpenAI-compatible URL, against a local server that keeps what it was asked: constraints, usage, errors."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable
from http.server import ThreadingHTTPServer

import pytest
from json_handler import JsonHandler
from stand_ins import SMOKE, task, walk

from wevo_nb.endpoint import EndpointModel
from wevo_nb.judge import Asked, LLMJudge
from wevo_nb.llm import CallFailed, CallRefused, ModelError, Request, Usage, ask, metered, object_schema
from wevo_nb.sections import RoleParams

QUICK = SMOKE.llm.model_copy(update={"retries": 0, "timeout_s": 10})
HELLO = ({"role": "user", "content": "hello"},)


class Server:
    """A model server: `reply(body)` gives the text, `served` are its models, `asked` what came in."""

    def __init__(self):
        self.reply: Callable[[dict], str] = lambda body: "hello"
        self.served, self.asked, self.keys = ["m"], [], []
        self.finish, self.status, self.html = "stop", 200, False
        outer = self

        class Handler(JsonHandler):
            def do_GET(self):
                self.say({"object": "list", "data": [{"id": name, "object": "model"} for name in outer.served]})

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.asked.append(body)
                outer.keys.append(self.headers["Authorization"])
                try:
                    message = {"role": "assistant", "content": outer.reply(body)}
                except ValueError:
                    return self.send_error(400)
                choices = [
                    {"index": i, "message": message, "finish_reason": outer.finish} for i in range(body.get("n") or 1)
                ]
                usage = {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16}
                return self.say({"id": "1", "object": "chat.completion", "choices": choices, "usage": usage})

            def say(self, value):
                if outer.html:
                    return self.send(outer.status, b"<html>A web site</html>", "text/html")
                return self.answer(outer.status, value)

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/v1"

    def model(self, constraint: str = "structured_outputs", **more) -> EndpointModel:
        role = RoleParams(engine="openai", base="m", url=self.url, constraint=constraint, **more)
        return EndpointModel(role, QUICK)


@pytest.fixture
def server():
    one = Server()
    threading.Thread(target=one.http.serve_forever, args=(0.01,), daemon=True).start()
    yield one
    one.http.shutdown()
    one.http.server_close()


async def test_a_request_is_sent_as_it_is_and_its_cost_is_counted(server):
    model = server.model()
    request = Request(messages=HELLO, n=2, temperature=0.7, max_tokens=9, stop=("END",), seed=4)
    [replies] = await model([request])
    assert [(r.text, r.finish, r.logprobs) for r in replies] == [("hello", "stop", None)] * 2
    [body] = server.asked
    assert body == {
        "model": "m", "messages": list(HELLO), "n": 2, "temperature": 0.7, "max_tokens": 9, "stop": ["END"], "seed": 4,
    }  # fmt: skip
    assert (model.usage.calls, model.usage.prompt_tokens, model.usage.completion_tokens) == (1, 11, 5)


async def test_replies_come_in_the_order_of_the_requests(server):
    server.reply = lambda body: body["messages"][0]["content"].upper()
    model = server.model()
    asked = [Request(messages=({"role": "user", "content": word},)) for word in ("a", "b", "c")]
    assert [replies[0].text for replies in await model(asked)] == ["A", "B", "C"]
    assert model.usage.calls == 3 and model.usage.prompt_tokens == 33


async def test_no_more_requests_are_under_way_than_the_params_say(server):
    """A report card asks hundreds: what a server cannot begin on would run into the timeout while it waits."""
    lock, under_way, most = threading.Lock(), 0, 0

    def reply(body):
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        time.sleep(0.05)
        with lock:
            under_way -= 1
        return "hello"

    server.reply, model = reply, server.model()
    assert model.params.batch == 8
    assert len(await model([Request(messages=HELLO)] * 40)) == 40 and 2 <= most <= 8


@pytest.mark.parametrize(
    ("constraint", "sent"),
    [
        ("structured_outputs", {"structured_outputs": {"choice": ["click [1]", 'say "hi"']}}),
        ("grammar", {"grammar": r'root ::= "click [1]" | "say \"hi\""'}),
    ],
)
async def test_choices_are_sent_in_the_words_of_the_server(server, constraint, sent):
    server.reply = lambda body: "click [1]"
    reply = await ask(server.model(constraint), Request(messages=HELLO, choices=("click [1]", 'say "hi"')))
    assert reply.text == "click [1]"
    assert {key: server.asked[-1][key] for key in sent} == sent


async def test_choices_as_a_json_schema_are_unwrapped(server):
    server.reply = lambda body: '{"reply": "b"}'
    reply = await ask(server.model("json_schema"), Request(messages=HELLO, choices=("a", "b")))
    assert reply.text == "b"
    form = server.asked[0]["response_format"]
    assert form["type"] == "json_schema" and form["json_schema"]["strict"] is True
    assert form["json_schema"]["schema"] == object_schema(reply={"type": "string", "enum": ["a", "b"]})
    assert form["json_schema"]["schema"]["additionalProperties"] is False  # strict servers refuse it otherwise


@pytest.mark.parametrize(
    ("constraint", "sent"),
    [
        ("structured_outputs", {"structured_outputs": {"json": object_schema(a={"type": "string"})}}),
        ("json_schema", "response_format"),
        ("grammar", "response_format"),
        ("none", {}),
    ],
)
async def test_a_json_schema_is_sent_where_the_server_can_be_bound_and_the_reply_left_to_the_reader(
    server, constraint, sent
):
    schema = object_schema(a={"type": "string"})
    if sent == "response_format":
        sent = {sent: {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema, "strict": True}}}
    server.reply = lambda body: "Sure: I would say b."
    reply = await ask(server.model(constraint), Request(messages=HELLO, json_schema=schema))
    assert reply.text == "Sure: I would say b."
    plain = {"model", "messages", "n", "temperature", "max_tokens", "seed"}
    assert {key: value for key, value in server.asked[0].items() if key not in plain} == sent


async def test_a_reply_that_the_endpoint_filtered_says_so(server):
    server.finish = "content_filter"
    assert (await ask(server.model(), Request(messages=HELLO))).finish == "filtered"


async def test_a_judge_over_an_endpoint_asks_again_where_a_whole_looking_reply_was_cut_off(server):
    """The endpoint says `length`, so its success is not believed; the second reply is, and both are paid for."""

    def reply(body):
        first = len(server.asked) == 1
        server.finish = "length" if first else "stop"
        return json.dumps({"reason": "r", "verdict": "success" if first else "failure"})

    server.reply = reply
    judge = LLMJudge(Asked(server.model("json_schema"), "m", fixed=False, max_tokens=300), SMOKE.judge)
    verdict = await judge.judge(walk(task(goal="g"), "[1] button 'a'", "click [1]", "[1] button 'b'", ended="limit"))
    assert (verdict.outcome, verdict.cost.calls, verdict.cost.tokens) == ("failure", 2, 32)
    assert len(verdict.replies) == 2
    first, second = server.asked
    assert first["max_tokens"] == 300 and first["response_format"] == second["response_format"]
    assert second["messages"][-1]["content"].endswith("Be brief: an earlier reply was empty or too long.")


@pytest.mark.parametrize(("status", "refused"), [(400, True), (413, True), (422, True), (401, False), (503, False)])
async def test_a_request_that_is_refused_is_told_from_a_server_that_fails(server, status, refused):
    model = server.model()
    await model.check()
    server.status = status
    with pytest.raises(CallFailed) as problem:
        await ask(model, Request(messages=HELLO))
    assert isinstance(problem.value, CallRefused) is refused


async def test_a_grammar_is_passed_on(server):
    await ask(server.model(), Request(messages=HELLO, grammar="root ::= [0-9]+"))
    await ask(server.model("grammar"), Request(messages=HELLO, grammar="root ::= [0-9]+"))
    assert server.asked[0]["structured_outputs"] == {"grammar": "root ::= [0-9]+"}
    assert server.asked[1]["grammar"] == "root ::= [0-9]+"


async def test_the_beginning_of_a_reply_is_gone_on_with(server):
    await ask(server.model(), Request(messages=(*HELLO, {"role": "assistant", "content": "changed\n"})))
    assert server.asked[0]["continue_final_message"] is True and server.asked[0]["add_generation_prompt"] is False


@pytest.mark.parametrize("constraint", ["structured_outputs", "grammar", "json_schema"])
async def test_a_server_that_ignores_the_constraint_is_an_error_with_the_cure(server, constraint):
    server.reply = lambda body: "I would say a."
    with pytest.raises(ModelError, match="m ignored .*'I would say a.'.*: set roles.* to what the server obeys"):
        await ask(server.model(constraint), Request(messages=HELLO, choices=("a", "b")))


async def test_without_a_constraint_nothing_is_asked_that_needs_one(server):
    with pytest.raises(ModelError, match="constraint is none: it cannot bind .* or policy.reply: generate"):
        await ask(server.model("none"), Request(messages=HELLO, choices=("a", "b")))
    assert server.asked == []
    assert (await ask(server.model("none"), Request(messages=HELLO))).text == "hello"


async def test_a_reply_that_is_cut_off_says_so(server):
    server.finish = "length"
    assert (await ask(server.model(), Request(messages=HELLO))).finish == "length"


@pytest.mark.parametrize("constraint", ["structured_outputs", "grammar", "json_schema"])
@pytest.mark.parametrize(
    ("content", "finish", "text"),
    [("", "stop", ""), (None, "stop", ""), (" \n", "stop", " \n"), ("cli", "length", "cli"), ("a", "length", "a")],
)
async def test_an_empty_or_cut_off_choice_is_left_to_the_reader(server, constraint, content, finish, text):
    """It is no fault of the constraint: look-ahead and judges leave it unscored. Other text is (above)."""
    server.reply, server.finish = lambda body: content, finish
    reply = await ask(server.model(constraint), Request(messages=HELLO, choices=("a", "b")))
    assert (reply.text, reply.finish) == (text, "length")


async def test_the_key_is_read_from_the_variable_that_the_role_names(server, monkeypatch):
    monkeypatch.setenv("MY_KEY", "secret")
    monkeypatch.setenv("OPENAI_API_KEY", "not this one")
    await ask(server.model(api_key_env="MY_KEY"), Request(messages=HELLO))
    assert server.keys == ["Bearer secret"]


async def test_a_server_of_other_models_is_refused(server):
    await server.model().check()
    server.served = ["llama", "qwen"]
    with pytest.raises(ModelError, match=f"{server.url} serves llama, qwen, not m: is it another's server"):
        await server.model().check()


async def test_an_adapter_is_asked_for_by_its_name(server):
    server.served = ["m", "policy-2"]
    await ask(server.model(adapter="policy-2"), Request(messages=HELLO))
    assert server.asked[0]["model"] == "policy-2"


async def test_a_web_site_is_no_model_server(server):
    server.html = True
    with pytest.raises(ModelError, match=f"{server.url}"):
        await server.model().check()


async def test_a_server_error_names_model_and_url(server):
    model = server.model()
    await model.check()
    server.status = 500
    with pytest.raises(CallFailed, match=f"m at {server.url}: .*500"):
        await ask(model, Request(messages=HELLO))


async def test_of_several_calls_one_may_fail_and_then_only_its_replies_are_missing(server):
    """An unanswered call is nobody's 0 and nobody else's loss; if every call fails, that is an error."""
    refused = []

    def reply(body):
        if body["messages"][0]["content"] in refused:
            raise ValueError("refused")
        return body["messages"][0]["content"].upper()

    server.reply, model = reply, server.model()
    await model.check()
    asked = [Request(messages=({"role": "user", "content": word},), n=2) for word in "ab"]
    refused[:] = "a"
    assert [[(r.text, r.finish) for r in replies] for replies in await model(asked)] == [
        [("", "failed")] * 2,
        [("B", "stop")] * 2,
    ]
    refused[:] = "ab"
    with pytest.raises(CallFailed, match="400"):
        await model(asked)


@pytest.mark.parametrize(("key", "status", "told"), [("", 401, "is not set"), ("wrong", 403, "is not taken")])
async def test_a_key_that_is_missing_or_wrong_is_no_missing_server(server, monkeypatch, key, status, told):
    monkeypatch.setenv("SOME_KEY", key)
    server.status = status
    with pytest.raises(
        ModelError, match=f"^{server.url} wants a key, and SOME_KEY {told} .*: export SOME_KEY="
    ) as wrong:
        await ask(server.model(api_key_env="SOME_KEY"), Request(messages=HELLO))
    assert not isinstance(wrong.value, CallFailed)


async def test_no_server_is_told_with_the_cure():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: nobody answers there
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        model = EndpointModel(RoleParams(engine="openai", base="m", url=url), QUICK)
        with pytest.raises(ModelError, match=f"no model server answers at {url} .*: start it, or set the role's url"):
            await model.check()
        with pytest.raises(ModelError, match=url) as away:
            await ask(model, Request(messages=HELLO))
        assert not isinstance(away.value, CallFailed)  # which look-ahead would take for a single failed call


# -- what a block costs


def spend(usage: Usage, calls: int):
    usage.add(calls=calls, prompt=10 * calls, completion=calls, seconds=0.25 * calls)


def test_a_meter_counts_every_model_within_its_block_and_none_after():
    one, other = Usage(), Usage()
    spend(one, 1)
    with metered() as outer:
        spend(one, 2)
        with metered() as inner:
            spend(other, 3)
        spend(one, 4)
    spend(other, 5)
    assert (inner.calls, outer.calls) == (3, 2 + 3 + 4)
    assert (outer.prompt_tokens, outer.completion_tokens, outer.seconds) == (90, 9, 2.25)
    assert (one.calls, other.calls) == (1 + 2 + 4, 3 + 5)


def test_a_meter_ends_with_its_block_whatever_happens():
    usage = Usage()
    with pytest.raises(KeyError), metered() as meter:
        raise KeyError
    spend(usage, 1)
    assert meter.calls == 0


async def test_a_meter_counts_the_tasks_its_block_starts_and_not_those_beside_it():
    """Three at once spend 1, 2 and 3 calls, each call in a task of its own, turn by turn."""
    usage = Usage()

    async def part():
        for _ in range(3):
            await asyncio.sleep(0)
        spend(usage, 1)

    async def work(n: int) -> int:
        with metered() as meter:
            await asyncio.gather(*(part() for _ in range(n)))
        return meter.calls

    assert await asyncio.gather(*map(work, (1, 2, 3))) == [1, 2, 3] and usage.calls == 6


async def test_a_meter_counts_the_calls_of_an_endpoint(server):
    model = server.model()
    with metered() as meter:
        await model([Request(messages=HELLO)] * 2)
    await model([Request(messages=HELLO)])
    assert (meter.calls, meter.prompt_tokens, meter.completion_tokens) == (2, 22, 10)
    assert model.usage.calls == 3
