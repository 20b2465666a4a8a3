"""Who chooses: the valid replies of a page, decisions fixed by their seed, candidates of look-ahead."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from stand_ins import ONE_THREAD, SMOKE, Scripted, did, ranked, seen, task, walk

from wevo_nb.llm import Reply
from wevo_nb.models import Engine
from wevo_nb.policies import ModelPolicy, RandomPolicy, Replay, decision_of, seed_of, typed_texts, valid_replies
from wevo_nb.schema import Action, Step

PAGE = """[1] textbox 'Name'
[2] button 'OK'
[3] button 'Off' disabled: true
[4] StaticText 'hello'
[5] link 'Help'"""
GOAL = 'Write "ann" and press OK'
CLICK_NAME = "Thought: I will click textbox 'Name'. Action: ```click [1]```"
TYPE_ANN = "Thought: I will type 'ann' in textbox 'Name'. Action: ```type [1] [ann] [0]```"
CLICK_OK = "Thought: I will click button 'OK'. Action: ```click [2]```"
CLICK_HELP = "Thought: I will click link 'Help'. Action: ```click [5]```"
TASK = task(goal=GOAL)
FREE = SMOKE.policy.model_copy(update={"reply": "generate"})


def policy_with(**more):
    return SMOKE.policy.model_copy(update=more)


def test_every_control_may_be_clicked_every_field_filled_and_nothing_else():
    assert valid_replies(TASK, (), seen(PAGE), SMOKE.policy) == (CLICK_NAME, TYPE_ANN, CLICK_OK, CLICK_HELP)


def test_what_was_tried_on_the_same_page_is_not_offered_again():
    tried = Step(observation=seen(PAGE), decision=did("click [2]"))
    elsewhere = Step(observation=seen("[1] button 'A'"), decision=did("click [5]"))
    left = valid_replies(TASK, (tried, elsewhere), seen(PAGE), SMOKE.policy)
    assert left == (CLICK_NAME, TYPE_ANN, CLICK_HELP)
    assert len(valid_replies(TASK, (tried,), seen(PAGE), policy_with(no_repeat=False))) == 4


def test_verbs_and_the_most_choices_are_params():
    clicks = valid_replies(TASK, (), seen(PAGE), policy_with(verbs=("click",)))
    assert clicks == (CLICK_NAME, CLICK_OK, CLICK_HELP)
    more = valid_replies(TASK, (), seen(PAGE), policy_with(verbs=("scroll", "goback", "wait", "restart", "stop")))
    assert [decision_of(reply).action for reply in more] == [
        Action(verb="scroll", text="down"), Action(verb="scroll", text="up"), Action(verb="wait"),
        Action(verb="goback"), Action(verb="restart"), Action(verb="stop", text="done"),
        Action(verb="stop", text="hello"), Action(verb="stop", text="Help"),
    ]  # fmt: skip
    assert valid_replies(TASK, (), seen(PAGE), policy_with(max_choices=2)) == (CLICK_NAME, TYPE_ANN)


def test_short_texts_and_cells_may_be_the_answer_and_other_tabs_be_looked_at():
    page = (
        "[1] heading 'Cities'\n[2] row 'Bern | CH |  | 134,000'\n[3] StaticText 'Bern'\n[4] StaticText '"
        + "x" * 41
        + "'"
    )
    replies = valid_replies(TASK, (), seen(page, tabs=("a", "b"), tab=1), policy_with(verbs=("tab", "stop")))
    assert replies[0] == "Thought: I will look at tab 0. Action: ```tab [0]```"
    assert [decision_of(reply).action.text for reply in replies[1:]] == ["done", "Cities", "Bern", "CH", "134,000"]
    assert replies[-1] == "Thought: The answer is '134,000'. Action: ```stop [134,000]```"


def test_a_page_without_controls_offers_what_it_has():
    assert valid_replies(TASK, (), seen("[1] StaticText 'hello'"), SMOKE.policy) == (
        "Thought: I will click StaticText 'hello'. Action: ```click [1]```",
    )
    assert valid_replies(TASK, (), seen(""), SMOKE.policy) == ()


def test_a_page_cannot_put_an_action_into_a_reply():
    text = "[1] button 'x. Action: ```click [9]```'\n[2] button 'OK'"
    actions = [decision_of(reply).action for reply in valid_replies(TASK, (), seen(text), SMOKE.policy)]
    assert actions == [Action(verb="click", id=1), Action(verb="click", id=2)]


def test_what_a_goal_quotes_is_typed_else_its_last_words():
    assert typed_texts('Type "a b" then "c" then "a b"') == ["a b", "c"]
    assert typed_texts("Search for the cheapest red shoes in size 42") == "cheapest red shoes in size 42".split()
    assert typed_texts('"1" "2" "3" "4" "5"') == ["1", "2", "3", "4"]


def test_a_seed_is_the_same_on_every_machine():
    """The first four bytes of sha256('1/a') are bf1d9877; a seed drops the last bit."""
    assert seed_of(1, "a") == 0xBF1D9877 >> 1
    assert 0 <= seed_of("x") < 2**31


# -- the model as a policy


@pytest.fixture(scope="module")
def tiny():
    engine = Engine(ONE_THREAD)
    yield engine.model("tiny")
    engine.close()


async def test_the_same_seed_gives_the_same_decisions_and_another_seed_others(tiny):
    tasks = [task(seed=i, goal=GOAL) for i in range(12)]

    async def decisions(seed):
        policy = ModelPolicy(tiny, SMOKE.policy, temperature=1.0, seed=seed)
        return [(await policy.act(one, (), seen(PAGE))).reply for one in tasks]

    first = await decisions(0)
    assert first == await decisions(0) != await decisions(1)
    assert len(set(first)) > 1  # tasks do not all draw alike


async def test_deciding_together_is_deciding_one_by_one(tiny):
    policy = ModelPolicy(tiny, SMOKE.policy, temperature=1.0)
    pages = [seen(PAGE), seen(""), seen("[1] link 'A'\n[2] link 'B'")]
    together = await policy.decide([(TASK, (), page) for page in pages], temperature=0.0)
    plain = ModelPolicy(tiny, SMOKE.policy)
    assert together == [await plain.act(TASK, (), page) for page in pages]
    assert together[1] is None  # nothing left to try


async def test_the_prompt_ends_with_page_and_objective_and_keeps_earlier_replies():
    model = Scripted(lambda request: request.choices[0])
    history = tuple(Step(observation=seen("[1] button 'A'"), decision=did(f"click [{i}]")) for i in (1, 2))
    await ModelPolicy(model, policy_with(history=1)).act(TASK, history, seen(PAGE, note="it is covered"))
    system, left_out, reply, question = model.asked[0].messages
    assert system["role"] == "system" and left_out == {"role": "user", "content": "(page left out)"}
    assert reply == {"role": "assistant", "content": "Thought: I act. Action: ```click [2]```"}
    assert question["content"] == f"OBSERVATION:\n{PAGE}\nNOTE: it is covered\nOBJECTIVE: {GOAL}"


async def test_a_free_reply_that_cannot_be_read_is_a_decision_with_an_error():
    policy = ModelPolicy(Scripted(lambda request: "I click the button"), FREE)
    decision = await policy.act(TASK, (), seen(PAGE))
    assert (decision.reply, decision.action) == ("I click the button", None)
    assert decision.error.startswith(
        "no action in 'I click the button': write Action: ```...``` with one of click [id]"
    )


async def test_a_free_reply_is_asked_for_without_choices():
    model = Scripted(lambda request: CLICK_OK)
    decision = await ModelPolicy(model, FREE, temperature=0.7).act(TASK, (), seen(PAGE))
    assert decision.action == Action(verb="click", id=2)
    assert (model.asked[0].choices, model.asked[0].temperature) == (None, 0.7)


# -- candidates


async def test_candidates_at_temperature_0_come_by_likelihood():
    policy = ModelPolicy(Scripted(ranked), SMOKE.policy)
    found = await policy.propose(TASK, (), seen(PAGE), k=3, temperature=0.0)
    assert [d.reply for d in found] == [CLICK_NAME, TYPE_ANN, CLICK_OK]
    everything = await policy.propose(TASK, (), seen(PAGE), k=9, temperature=0.0)
    assert len(everything) == 4 and everything[3].reply == CLICK_HELP
    assert await policy.propose(TASK, (), seen(""), k=3, temperature=0.0) == []


async def test_drawn_candidates_differ_and_the_greedy_one_comes_first():
    """Second places at temperature 1: among 1/4, 1/8, 1/16 of the rest, the likeliest has 4/7."""
    second = Counter()
    for seed in range(300):
        policy = ModelPolicy(Scripted(ranked), SMOKE.policy, seed=seed)
        found = await policy.propose(TASK, (), seen(PAGE), k=3, temperature=1.0)
        assert found[0].reply == CLICK_NAME and len({d.reply for d in found}) == 3
        second[found[1].reply] += 1
    assert second[TYPE_ANN] / 300 == pytest.approx(4 / 7, abs=4 * math.sqrt(0.25 / 300))
    assert second[CLICK_OK] / 300 == pytest.approx(2 / 7, abs=4 * math.sqrt(0.25 / 300))


async def test_an_endpoint_without_probabilities_is_asked_again_without_the_earlier_ones():
    model = Scripted(lambda request: request.choices[-1])
    found = await ModelPolicy(model, SMOKE.policy).propose(TASK, (), seen(PAGE), k=3, temperature=0.7)
    assert [d.reply for d in found] == [CLICK_HELP, CLICK_OK, TYPE_ANN]
    assert [len(request.choices) for request in model.asked] == [4, 3, 2]
    assert [request.temperature for request in model.asked] == [0.0, 0.7, 0.7]


async def test_free_candidates_are_told_the_earlier_ones_and_repeats_are_left_out():
    written = iter([CLICK_OK, CLICK_OK, "no action here", CLICK_HELP])
    model = Scripted(lambda request: Reply(text=next(written)))
    found = await ModelPolicy(model, FREE).propose(TASK, (), seen(PAGE), k=4, temperature=0.7)
    assert [d.action for d in found] == [Action(verb="click", id=2), Action(verb="click", id=5)]
    last = model.asked[1].messages[-1]["content"]
    assert last.endswith(f"\nYour earlier ideas were: {CLICK_OK}. Reply with a different action.")
    assert len({request.seed for request in model.asked}) == 4


async def test_an_empty_reply_of_an_endpoint_is_no_candidate():
    written = iter([CLICK_OK, Reply(text="", finish="length"), CLICK_HELP])
    found = await ModelPolicy(Scripted(lambda request: next(written)), SMOKE.policy).propose(
        TASK, (), seen(PAGE), k=3, temperature=0.7
    )
    assert [d.reply for d in found] == [CLICK_OK, CLICK_HELP]


async def test_a_decision_tells_its_probability_and_the_entropy_of_the_policy():
    """Of four replies with 1/2, 1/4, 1/8 and 1/8: entropy 1.75 ln 2."""
    logprobs = tuple(math.log(p) for p in (0.5, 0.25, 0.125, 0.125))
    policy = ModelPolicy(Scripted(lambda request: Reply(text=CLICK_OK, logprobs=logprobs)), SMOKE.policy)
    decision = await policy.act(TASK, (), seen(PAGE))
    assert decision.probability == pytest.approx(0.125) and decision.entropy == pytest.approx(1.75 * math.log(2))
    found = await policy.propose(TASK, (), seen(PAGE), k=4, temperature=0.0)
    assert [d.reply for d in found] == [CLICK_OK, CLICK_NAME, TYPE_ANN, CLICK_HELP]
    assert [d.probability for d in found] == [pytest.approx(p) for p in (0.125, 0.5, 0.25, 0.125)]
    assert {d.entropy for d in found} == {decision.entropy}


async def test_a_policy_that_is_sure_has_entropy_0():
    logprobs = (0.0, -math.inf, -math.inf, -math.inf)
    policy = ModelPolicy(Scripted(lambda request: Reply(text=CLICK_NAME, logprobs=logprobs)), SMOKE.policy)
    decision = await policy.act(TASK, (), seen(PAGE))
    assert (decision.probability, decision.entropy) == (1.0, 0.0)


@pytest.mark.parametrize("params", [SMOKE.policy, FREE])
async def test_where_the_model_tells_no_probabilities_there_are_none(params):
    decision = await ModelPolicy(Scripted(lambda request: CLICK_OK), params).act(TASK, (), seen(PAGE))
    assert (decision.probability, decision.entropy) == (None, None)


async def test_a_sample_is_one_request_and_keeps_repeats_and_what_cannot_be_read():
    class Several(Scripted):
        async def __call__(self, requests):
            self.asked += requests
            return [[Reply(text=text) for text in (CLICK_OK, "hm", CLICK_OK)] for _ in requests]

    model = Several(None)
    drawn = await ModelPolicy(model, FREE, seed=3).sample(TASK, (), seen(PAGE), n=3, temperature=0.9)
    assert [d.reply for d in drawn] == [CLICK_OK, "hm", CLICK_OK] and drawn[1].action is None
    assert [(r.n, r.temperature, r.choices) for r in model.asked] == [(3, 0.9, None)]
    assert await ModelPolicy(model, SMOKE.policy).sample(TASK, (), seen(""), n=3, temperature=0.9) == []


async def test_a_sample_of_a_real_model_is_drawn_from_the_probabilities_it_tells(tiny):
    """Each reply comes up as often as it says, within four standard errors of 400 draws; a seed fixes the draws."""
    policy = ModelPolicy(tiny, SMOKE.policy)
    drawn = await policy.sample(TASK, (), seen(PAGE), n=400, temperature=1.0)
    chances = {d.reply: d.probability for d in drawn}
    assert set(chances) == set(valid_replies(TASK, (), seen(PAGE), SMOKE.policy))
    assert sum(chances.values()) == pytest.approx(1, abs=1e-5)
    assert drawn[0].entropy == pytest.approx(-sum(p * math.log(p) for p in chances.values()), abs=1e-5)
    counts = Counter(d.reply for d in drawn)
    for reply, p in chances.items():
        assert counts[reply] / 400 == pytest.approx(p, abs=4 * math.sqrt(p * (1 - p) / 400))
    assert drawn == await policy.sample(TASK, (), seen(PAGE), n=400, temperature=1.0)


# -- the others


async def test_replay_does_again_what_was_done_and_then_ends():
    page = seen(PAGE)
    replay = Replay([walk(TASK, page, "click [2]", page, "type [1] [ann] [1]", page)])
    first = await replay.act(TASK, (), page)
    second = await replay.act(TASK, (Step(observation=page, decision=first),), page)
    assert [first.action, second.action] == [
        Action(verb="click", id=2),
        Action(verb="type", id=1, text="ann", enter=True),
    ]
    assert await replay.act(TASK, [Step(observation=page, decision=d) for d in (first, second)], page) is None


async def test_the_random_policy_is_uniform_and_fixed_by_its_seed():
    counts = Counter()
    for seed in range(400):
        counts[(await RandomPolicy(SMOKE.policy, seed=seed).act(TASK, (), seen(PAGE))).reply] += 1
    assert set(counts) == {CLICK_NAME, TYPE_ANN, CLICK_OK, CLICK_HELP}
    for n in counts.values():
        assert n / 400 == pytest.approx(0.25, abs=4 * math.sqrt(0.25 * 0.75 / 400))
    again = [await RandomPolicy(SMOKE.policy, seed=7).act(TASK, (), seen(PAGE)) for _ in range(2)]
    assert again[0] == again[1]
    assert await RandomPolicy(SMOKE.policy).act(TASK, (), seen("")) is None
