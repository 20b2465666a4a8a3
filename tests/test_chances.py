"""The chances of fixed replies over HTTP: values by hand, whatever the server masks; None where they are not known."""

from __future__ import annotations

import json
import math
import threading
from http.server import ThreadingHTTPServer

import pytest
import toy_tokens
from json_handler import JsonHandler
from stand_ins import SMOKE, seen, task

from wevo_nb.endpoint import EndpointModel
from wevo_nb.llm import Reply, Request, ask, metered
from wevo_nb.schema import Action
from wevo_nb.sections import RoleParams
from wevo_nb.targets import WORDS
from wevo_nb.transitions import Situation
from wevo_nb.world_model import chance_of_success, predict

QUICK = SMOKE.llm.model_copy(update={"retries": 0, "timeout_s": 10})
OUTCOMES = tuple(WORDS.values())
# Of 0.4 that is on their paths changed has 0.2, same 0.05 and done 0.15; after it of 0.5 success has 0.4. The server
# writes `same`, spelled s and ame, which it likes best of what fits.
BY_HAND = {"done success": 0.375 * 0.8, "done fail": 0.375 * 0.2, "changed": 0.5, "same": 0.125}
WHICH = Request(messages=({"role": "user", "content": "What follows?"},), choices=OUTCOMES)


class Server:
    """Answers choices by toy_tokens with `how`; `told` may change the tokens that it tells, `status` refuses them."""

    def __init__(self):
        self.how: dict = {}
        self.asked: list[dict] = []
        self.told = lambda content: content
        self.status, self.tempered, self.tokenizes = 200, False, True
        outer = self

        class Handler(JsonHandler):
            def do_GET(self):
                self.answer(200, {"object": "list", "data": [{"id": "m", "object": "model"}]})

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if self.path.endswith("tokenize") and outer.tokenizes:
                    to, of = toy_tokens.tokenize, toy_tokens.detokenize
                    told = {"tokens": to(body["prompt"])} if "prompt" in body else {"prompt": of(body["tokens"])}
                    return self.answer(200, told)
                if not self.path.endswith("completions"):
                    return self.answer(404, {"detail": "Not Found"})
                outer.asked.append(body)
                if "logprobs" in body and outer.status != 200:
                    return self.answer(outer.status, {"error": {"message": "no such key"}})
                how = outer.how | ({"divide": body["temperature"] or 1.0} if outer.tempered else {})
                text, content = toy_tokens.answer(body, **how)
                choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
                if body.get("logprobs"):
                    choice["logprobs"] = {"content": outer.told(content)}
                choices = [choice | {"index": i} for i in range(body["n"])]
                usage = {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16}
                self.answer(200, {"id": "1", "object": "chat.completion", "choices": choices, "usage": usage})

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/v1"

    def model(self, constraint: str = "structured_outputs") -> EndpointModel:
        return EndpointModel(RoleParams(engine="openai", base="m", url=self.url, constraint=constraint), QUICK)


@pytest.fixture
def server():
    one = Server()
    threading.Thread(target=one.http.serve_forever, args=(0.01,), daemon=True).start()
    yield one
    one.http.shutdown()
    one.http.server_close()


def chances(reply, choices=OUTCOMES) -> dict[str, float]:
    return dict(zip(choices, map(math.exp, reply.logprobs), strict=True))


@pytest.mark.parametrize("masked", [True, False])
async def test_chances_are_those_of_the_choices_as_the_tokenizer_cuts_them(server, masked):
    """How `done` goes on is asked for. What the server wrote, cut otherwise, is not what is likeliest."""
    server.how = {"masked": masked}
    model = server.model()
    reply = await ask(model, WHICH)
    assert reply.text == "changed" and chances(reply) == pytest.approx(BY_HAND, abs=1e-9)
    begun = [body["messages"][-1]["content"] for body in server.asked if body["messages"][-1]["role"] == "assistant"]
    assert begun == ["done"] and model.usage.calls == 2 and model.usage.prompt_tokens == 22
    assert model.about() == {"url": server.url, "tells_chances": True}


async def test_two_calls_find_out_once_and_are_nobodys_cost(server):
    model = server.model()
    with metered() as meter:
        await ask(model, WHICH.model_copy(update={"choices": ("changed", "same")}))
        await ask(model, WHICH.model_copy(update={"choices": ("changed", "same")}))
    assert [body["temperature"] for body in server.asked] == [0.5, 2.0, 0.0, 0.0]
    assert meter.calls == model.usage.calls == 2


async def test_what_the_beginning_of_a_reply_already_says_is_gone_on_with(server):
    """As the world model asks after a rationale: the text to look behind stands after it."""
    server.how = {"masked": False}
    begun = ({"role": "user", "content": "What follows?"}, {"role": "assistant", "content": "done"})
    reply = await ask(server.model(), Request(messages=begun, choices=(" success", " fail")))
    assert chances(reply, (" success", " fail")) == pytest.approx({" success": 0.8, " fail": 0.2}, abs=1e-9)


async def test_replies_are_drawn_from_the_chances_by_seed(server):
    """As models.py draws: 400 at temperature 2, where square roots of the chances count, are within four deviations."""
    hot = WHICH.model_copy(update={"temperature": 2.0, "n": 400})
    [replies] = await server.model()([hot])
    assert all(chances(reply) == pytest.approx(BY_HAND, abs=1e-9) for reply in replies)
    roots = {word: math.sqrt(p) for word, p in BY_HAND.items()}
    for word, root in roots.items():
        p = root / sum(roots.values())
        assert abs(sum(reply.text == word for reply in replies) / 400 - p) < 4 * math.sqrt(p * (1 - p) / 400)
    assert await server.model()([hot]) == [replies]
    assert await server.model()([hot.model_copy(update={"seed": 1})]) != [replies]


async def test_p_of_success_comes_from_a_served_world_model(server):
    """Before it was 1 or 0: here of the ends four in five are successes."""
    situation = Situation(task(), (), seen("[1] button 'OK'"), Action(verb="click", id=1))
    [prediction] = await predict(server.model(), [situation], SMOKE.world_model, pages=False)
    told = dict(zip(WORDS, BY_HAND.values(), strict=True))
    assert prediction.outcome == "changed" and prediction.probabilities == pytest.approx(told, abs=1e-9)
    assert chance_of_success(prediction.probabilities) == pytest.approx(0.8)


NUMBER = Request(messages=({"role": "user", "content": "Which number?"},), choices=("1", "0.5", "0"))


@pytest.mark.parametrize("masked", [True, False])
async def test_a_choice_that_begins_another_is_told_where_ends_are(server, masked):
    """0 or 0.5: after 0, of 0.75 that fit, an end has 0.25. 1 has 0.3 of 0.9."""
    server.how = {"masked": masked}
    reply = await ask(server.model(), NUMBER)
    expected = {"1": 1 / 3, "0.5": 2 / 3 * 2 / 3, "0": 2 / 3 * 1 / 3}
    assert chances(reply, NUMBER.choices) == pytest.approx(expected, abs=1e-9)
    server.how["ends"] = False
    assert (await ask(server.model(), NUMBER)).logprobs is None


@pytest.mark.parametrize("status", [400, 422])
async def test_a_server_that_refuses_to_tell_is_asked_once(server, status):
    server.status = status
    model = server.model()
    for _ in range(2):
        assert await ask(model, WHICH) == (await ask(model, WHICH)).model_copy(update={"logprobs": None})
    assert [("logprobs" in body) for body in server.asked] == [True] + [False] * 4
    assert model.about()["tells_chances"] is False


@pytest.mark.parametrize("status", [429, 500])
async def test_a_server_that_is_out_of_order_for_a_moment_is_tried_again(server, status):
    server.status = status
    model = server.model()
    assert (await ask(model, WHICH)).logprobs is None and model.tells_chances is None
    server.status = 200
    assert chances(await ask(model, WHICH)) == pytest.approx(BY_HAND, abs=1e-9)


async def test_a_server_that_tells_after_the_temperature_is_not_believed(server):
    server.tempered = True
    model = server.model()
    assert (await ask(model, WHICH)).logprobs is None and model.tells_chances is False


async def test_a_server_that_cannot_tokenize_tells_nothing(server):
    server.tokenizes = False
    model = server.model()
    assert await ask(model, WHICH) == Reply(text="same") and model.tells_chances is False


async def test_a_server_that_ignores_the_key_tells_nothing(server):
    server.told = lambda content: None
    assert await ask(server.model(), WHICH) == Reply(text="same")


def beyond(content: list[dict], word: str, unseen: float) -> list[dict]:
    """Without `word` among the tokens that are told, and these made up for to leave `unseen`."""
    hidden = f"token_id:{toy_tokens.number(word)}"
    for one in content:
        one["top_logprobs"] = [other for other in one["top_logprobs"] if other["token"] != hidden]
        left = math.log((1 - unseen) / sum(math.exp(other["logprob"]) for other in one["top_logprobs"]))
        for other in (*one["top_logprobs"], one):
            other["logprob"] += left
    return content


async def test_what_lies_beyond_the_tokens_that_are_told_may_be_little(server):
    """A tenth is too much not to know; of four in ten thousand both choices get their half."""
    model = server.model()
    await ask(model, WHICH)
    server.told = lambda content: beyond(content, "changed", 0.1)
    assert (await ask(model, WHICH)).logprobs is None
    server.told = lambda content: beyond(content, "done", 0.0004)
    two = WHICH.model_copy(update={"choices": ("changed", "done fail")})
    assert chances(await ask(model, two), two.choices) == pytest.approx({"changed": 0.9998, "done fail": 0.0002})


async def test_of_many_choices_and_of_wrapped_ones_nothing_is_asked(server):
    many = WHICH.model_copy(update={"choices": (*OUTCOMES, *"abcde")})
    assert (await ask(server.model(), many)).logprobs is None
    assert not any("logprobs" in body for body in server.asked)
