"""Answering in this process: exact choices, prompts that match the trained rows, clear errors. Model: `tiny`."""

from __future__ import annotations

import asyncio
import json
import math
import shutil
from pathlib import Path

import pytest
import torch
from stand_ins import ONE_THREAD, SMOKE, did, seen, task
from transformers import AutoTokenizer

from wevo_nb.llm import ModelError, Request
from wevo_nb.models import (
    Engine,
    LocalModel,
    find_dtype,
    find_model,
    load_tokenizer,
    load_weights,
    open_model,
)
from wevo_nb.prompts import SCORER_REPLIES, policy_messages
from wevo_nb.schema import Step
from wevo_nb.targets import WORDS, messages_for, target_text
from wevo_nb.token_tree import token_tree
from wevo_nb.transitions import Situation, Transition

CHOICES = ("Thought: I will click button 'OK'. Action: ```click [1]```", "done success", "done fail", "changed", "same")
PAGE = "\n".join(f"[{i}] button 'choice number {i}'" for i in range(1, 13))
LINKS = "\n".join(f"[{i}] link 'go to {i * 7}' value: 'x{i}'" for i in range(1, 12))


@pytest.fixture(scope="module")
def engine():
    engine = Engine(ONE_THREAD)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def model(engine):
    return engine.model("tiny")


def about(page: str, question: str = "Which one?", **more) -> Request:
    """The page comes first, so that nothing but a same page is shared."""
    messages = ({"role": "user", "content": f"{page}\n{question}"},)
    return Request(messages=messages, **{"choices": CHOICES} | more)


def brute_force(model, request: Request) -> list[float]:
    """P of each choice: at every token the model's weights of those tokens that some choice still allows.

    A choice is followed by the end of the turn, which is how a constrained sampler tells `0` from `0.5`.
    """
    end = model.tokenizer.eos_token_id
    paths = [model.encode(choice) + [end] for choice in request.choices]
    prompt, out = model.prompt_ids(request), []
    for path in paths:
        logprob = 0.0
        for i, token in enumerate(path):
            allowed = sorted({other[i] for other in paths if other[:i] == path[:i] and len(other) > i})
            if len(allowed) > 1:
                with torch.inference_mode():
                    logits = model.weights(torch.tensor([prompt + path[:i]])).logits[0, -1, allowed]
                logprob += logits.log_softmax(0)[allowed.index(token)].item()
        out.append(math.exp(logprob))
    return out


def chosen(model, *requests: Request) -> list[list[float]]:
    return [[math.exp(value) for value in reply.logprobs] for [reply] in model.answer(list(requests))]


def test_a_choice_has_the_probabilities_of_constrained_sampling(model):
    [found] = chosen(model, about(PAGE))
    assert found == pytest.approx(brute_force(model, about(PAGE)), abs=1e-4)
    assert sum(found) == pytest.approx(1, abs=1e-5)


def test_requests_that_share_a_prompt_have_them_too(model):
    requests = [
        about(PAGE, "Which?"),
        about(PAGE, "Which of them is it?"),
        about(PAGE, "Which of them?", choices=("changed", "change it", "same")),
    ]
    for request, found in zip(requests, chosen(model, *requests), strict=True):
        assert found == pytest.approx(brute_force(model, request), abs=1e-4)


@pytest.mark.parametrize("choices", [SCORER_REPLIES, ("click [1]", "click [1] twice", "wait")])
def test_a_choice_that_begins_another_keeps_its_own_probability(model, choices):
    """`0` begins `0.5`: where one reply ends and another goes on, the end is a choice as well."""
    request = about(PAGE, choices=choices)
    [found] = chosen(model, request)
    assert sum(found) == pytest.approx(1, abs=1e-5)
    assert found == pytest.approx(brute_force(model, request), abs=1e-4)


def test_an_answer_does_not_depend_on_its_company_where_pages_differ(engine):
    """Other pages are computed apart, which the tokens that were computed tell; the same page is computed once."""
    model = engine.model("tiny")

    def cost(*requests):
        before = model.usage.prompt_tokens
        replies = model.answer(list(requests))
        return [reply.logprobs for [reply] in replies], model.usage.prompt_tokens - before

    one, other = about(PAGE), about(LINKS)
    [alone], one_cost = cost(one)
    [_], other_cost = cost(other)
    [first, _, third], together = cost(one, other, one)
    assert first == alone == third and together == 2 * one_cost + other_cost
    assert cost(one, about(PAGE, "Which of them?"))[1] < 1.5 * one_cost


def test_what_is_written_freely_does_not_depend_on_its_company(model):
    free = [about(page, choices=None, max_tokens=8) for page in (PAGE, LINKS, PAGE)]
    assert [r[0].text for r in model.answer(free)] == [model.answer([r])[0][0].text for r in free]


def test_a_sample_depends_on_its_own_seed_alone(model):
    requests = [about(PAGE, choices=None, max_tokens=8, temperature=1.0, seed=seed) for seed in (1, 2, 1)]
    first, second, third = (replies[0].text for replies in model.answer(requests))
    assert first != second
    assert [first, second, third] == [model.answer([r])[0][0].text for r in requests]


def test_a_single_choice_is_sure_and_temperature_0_takes_the_likeliest(model):
    assert chosen(model, about(PAGE, choices=("wait",))) == [[1.0]]
    [[reply]] = model.answer([about(PAGE)])
    assert reply.text == CHOICES[max(range(5), key=lambda i: reply.logprobs[i])]


def test_samples_of_a_choice_follow_its_probabilities_and_its_seed(model):
    request = about(PAGE, temperature=1.0, n=400, seed=3)
    [replies] = model.answer([request])
    expected = brute_force(model, request)
    for choice, probability in zip(CHOICES, expected, strict=True):
        share = sum(r.text == choice for r in replies) / 400
        assert share == pytest.approx(probability, abs=4 * math.sqrt(0.25 / 400))  # four standard errors
    assert [r.text for r in replies] == [r.text for r in model.answer([request])[0]]


def test_a_small_token_tree_by_hand():
    """Prompt rest 5, replies 1 2 3, 1 2 4 and 1 6 3: they part after 5 1 and after 5 1 2, no later token counts."""
    tree = token_tree([([5], [[1, 2, 3], [1, 2, 4], [1, 6, 3]])])
    assert (tree.tokens, tree.parents) == ([5, 1, 2], [-1, 0, 1])
    [(branches, paths)] = tree.questions
    assert branches == {1: [2, 6], 2: [3, 4]}
    assert paths == [[(1, 2), (2, 3)], [(1, 2), (2, 4)], [(1, 6)]]


def test_two_questions_share_what_they_begin_with():
    tree = token_tree([([7], [[1], [2]]), ([7, 8], [[1], [2]])])
    assert (tree.tokens, tree.parents) == ([7, 8], [-1, 0])
    assert [branches for branches, _ in tree.questions] == [{0: [1, 2]}, {1: [1, 2]}]


# -- prompts and trained rows


def rows_of_real_shape():
    before = "[1] textbox 'Name'\n[2] checkbox 'News'\n[3] button 'It\\'s OK'"
    after = "[1] textbox 'Name'\n[2] checkbox 'News' checked: true\n[3] button 'It\\'s OK'\n[4] link '5 more…'"
    of, page = task(goal='Check "News" and press OK'), seen(before)
    history = (Step(observation=seen(before), decision=did("type [1] [zoë 12] [0]")),)
    yield policy_messages(of, (), page, prompt="short", keep=3), did("click [2]").reply
    yield policy_messages(of, history, page, prompt="full", keep=3), did("type [1] [a b] [1]").reply
    for target in ("change", "page"):
        params = SMOKE.world_model.model_copy(update={"target": target})
        situation = Situation(of, history, page, did("click [2]").action)
        for outcome in WORDS:
            transition = Transition(situation, seen(after, done=outcome in ("success", "failure")), outcome)
            yield messages_for(situation, params), target_text(transition, params)


@pytest.mark.parametrize("base", ["tiny", "smollm2-135m"])
def test_what_is_served_is_the_beginning_of_the_trained_row(engine, base):
    """prompt + reply, encoded apart as in serving, are the tokens of the whole chat, as in training."""
    served = LocalModel(engine, None, load_tokenizer(find_model(base)), {}, None, name=base, source="")
    for messages, reply in rows_of_real_shape():
        whole = served.tokenizer.apply_chat_template(
            [*messages, {"role": "assistant", "content": reply}], return_dict=False
        )
        tokens = served.prompt_ids(Request(messages=messages)) + served.encode(reply)
        assert tokens == whole[: len(tokens)]
        assert served.tokenizer.decode(whole[len(tokens) :]) == "<|im_end|>\n"
        word, line_end, _ = reply.partition("\n")
        if line_end:  # the page is drawn behind `changed`
            begun = (*messages, {"role": "assistant", "content": word + line_end})
            prompt = served.prompt_ids(Request(messages=begun))
            assert prompt == whole[: len(prompt)]
            assert served.tokenizer.decode(prompt).endswith("<|im_start|>assistant\nchanged\n")


def test_generation_goes_on_where_an_assistant_prefix_ends(model):
    """Token by token what the model finds likeliest behind the prefix, and the prefix is not repeated."""
    plain = about(PAGE, choices=None, max_tokens=6)
    ids = model.prompt_ids(plain) + model.encode("changed\n")
    begins = len(ids)
    with torch.inference_mode():
        for _ in range(6):
            ids.append(int(model.weights(torch.tensor([ids])).logits[0, -1].argmax()))
    begun = (*plain.messages, {"role": "assistant", "content": "changed\n"})
    [[reply]] = model.answer([plain.model_copy(update={"messages": begun})])
    assert reply.text == model.tokenizer.decode(ids[begins:], skip_special_tokens=True)


def test_a_base_without_a_token_to_pad_with_pads_with_its_end(engine, model, tmp_path):
    """As Llama 3: two prompts of other lengths are answered side by side, as by the same base with such a token."""
    folder = shutil.copytree(find_model("tiny"), tmp_path / "base")
    told = json.loads((config := folder / "tokenizer_config.json").read_text())
    config.write_text(json.dumps({k: v for k, v in told.items() if k != "pad_token"}))
    assert "pad_token" not in AutoTokenizer.from_pretrained(str(folder)).special_tokens_map
    without = engine.model(str(folder))
    assert without.tokenizer.pad_token == "<|im_end|>"
    free = [about(page, choices=None, max_tokens=8) for page in (PAGE, LINKS)]
    assert len({len(without.prompt_ids(request)) for request in free}) == 2
    assert without.answer(free) == model.answer(free)


def test_a_reply_that_is_cut_off_says_so_and_its_tokens_are_counted(engine):
    model = engine.model("tiny")
    [[reply]] = model.answer([about(PAGE, choices=None, max_tokens=4)])
    assert reply.finish == "length"
    used = model.usage
    assert (used.calls, used.prompt_tokens) == (1, len(model.prompt_ids(about(PAGE))))
    assert used.completion_tokens == 4
    [[stopped]] = model.answer([about(PAGE, choices=None, max_tokens=4, stop=(reply.text[-1],))])
    assert stopped.finish == "stop" and reply.text[-1] not in stopped.text


# -- merging


async def test_a_merging_engine_chooses_like_a_plain_one(engine):
    """Six callers at once, on two pages: their calls are run together, their answers stay their own."""
    merging = Engine(ONE_THREAD, merge=True)
    requests = [about(page, question) for page in (PAGE, LINKS) for question in ("Which?", "What now?", "And?")]
    try:
        model = merging.model("tiny")
        merged = await asyncio.gather(*(model([r]) for r in requests))
    finally:
        merging.close()
    for request, [[reply]] in zip(requests, merged, strict=True):
        [[alone]] = await engine.model("tiny")([request])
        assert reply.text == alone.text
        assert reply.logprobs == pytest.approx(alone.logprobs, abs=1e-4)
    assert len({reply.logprobs for [[reply]] in merged}) == 6


async def test_every_caller_that_waits_hears_of_a_failure():
    engine = Engine(ONE_THREAD, merge=True)
    model = engine.model("tiny")
    calls = [model([about(PAGE)]), model([about(PAGE, grammar="root ::= x", choices=None)])]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    engine.close()
    assert [type(a) for a in answers] == [ModelError, ModelError]
    assert "knows no grammar" in str(answers[1])


async def test_no_request_no_answer(model):
    assert await model([]) == []


# -- what is missing


def test_what_is_missing_is_named(engine, tmp_path):
    with pytest.raises(ModelError, match="there is no model folder /nowhere/model: has its training stage finished"):
        find_model("/nowhere/model")
    with pytest.raises(ModelError, match=f"{tmp_path} holds no config.json"):
        find_model(str(tmp_path))
    with pytest.raises(ModelError, match=f"{tmp_path} holds no adapter_config.json"):
        engine.model("tiny", str(tmp_path))
    with pytest.raises(ModelError, match="engine transformers needs an Engine"):
        open_model(SMOKE.roles.policy, None, ONE_THREAD)


def test_a_model_that_is_not_at_hand_is_named():
    with pytest.raises(ModelError, match="model nobody/nothing cannot be loaded"):
        load_weights("nobody/nothing", torch.float32)


def test_a_folder_with_torn_weights_is_named(tmp_path):
    """A disk that was full while saving leaves a config and half of the weights."""
    source = Path(find_model("tiny"))
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((source / name).read_bytes()[: 5000 if name != "config.json" else None])
    with pytest.raises(ModelError, match=f"model {tmp_path} cannot be loaded"):
        load_weights(find_model(str(tmp_path)), torch.float32)


def test_dtypes():
    assert find_dtype("float32") is torch.float32 and find_dtype("bfloat16") is torch.bfloat16
    assert find_dtype("auto") in (torch.float32, torch.bfloat16)
