"""Look-ahead with a world model and a policy whose answers are written down: what is done is known beforehand."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from stand_ins import SMOKE, Scripted, did, outcome_reply, ranked, seen, task

from wevo_nb.llm import CallFailed, ModelError, Reply
from wevo_nb.lookahead import LookAhead, best_of, most_frequent
from wevo_nb.policies import ModelPolicy
from wevo_nb.schema import Action, Step
from wevo_nb.scorers import ModelScorer, PredictionScorer

PAGE = "[1] button 'wrong'\n[2] button 'right'\n[3] button 'other'"
TASK = task(goal="Press right")
FREE = SMOKE.policy.model_copy(update={"reply": "generate"})
ALL = ("wrong", "right", "other")


def world(outcomes: dict[str, str], pages: dict[str, str | Reply] | None = None) -> Scripted:
    """A world model that knows what follows a click on a button, by the button's name."""

    def answer(request):
        question = request.messages[1]["content"]
        name = question.rpartition("button '")[2].rstrip("'")
        return outcome_reply(outcomes[name]) if request.choices else pages[name]

    return Scripted(answer, "world")


def how_to(preset: str = "wmla_d1", **different):
    return SMOKE.wmla.preset(preset).model_copy(update={"temperature": 0.0} | different)


def look_ahead(imaginer, scorer=None, *, policy=None, params=SMOKE.policy, seed=0, **different) -> LookAhead:
    policy = ModelPolicy(policy or Scripted(ranked), params)
    how = how_to(**different)
    return LookAhead(
        policy, imaginer, scorer or PredictionScorer("outcome"), how, SMOKE.world_model, name="wmla", seed=seed
    )


async def choose(lookahead: LookAhead):
    decision = await lookahead.act(TASK, (), seen(PAGE))
    return decision.action.id, [c.score for c in decision.candidates]


# -- what is chosen


async def test_an_imagined_success_overrules_the_greedy_choice():
    model = world({"wrong": "failure", "right": "success", "other": "same"})
    assert await choose(look_ahead(model)) == (2, [0.0, 1.0, 0.0])


async def test_the_candidates_tell_what_was_imagined_after_each():
    model = world({"wrong": "changed", "right": "success", "other": "failure"})
    decision = await look_ahead(model).act(TASK, (), seen(PAGE))
    assert [c.imagined for c in decision.candidates] == [
        ("(the page changes)",),
        ("(the episode ends, P(success) = 1.00)",),
        ("(the episode ends, P(success) = 0.00)",),
    ]
    assert decision.reply == decision.candidates[1].reply and decision.fell_back == ""
    assert [c.likeliest for c in decision.candidates] == ["changed", "success", "failure"]
    assert decision.candidates[0].chances == {"success": 0, "failure": 0, "changed": 1, "same": 0}


async def test_another_seed_draws_other_candidates_of_the_same_policy():
    """Two of three candidates are imagined, the greedy one and one that is drawn: over seeds both others are."""
    ahead = look_ahead(world(dict.fromkeys(ALL, "same")), k=2, temperature=5.0)
    drawn = {}
    for seed in range(8):
        decision = await ahead.with_seed(seed).act(TASK, (), seen(PAGE))
        again = await ahead.with_seed(seed).act(TASK, (), seen(PAGE))
        assert [c.reply for c in decision.candidates] == [c.reply for c in again.candidates]
        drawn[seed] = decision.candidates[1].reply
    assert len(set(drawn.values())) == 2


async def test_a_tie_keeps_the_greedy_choice():
    assert await choose(look_ahead(world({"wrong": "same", "right": "failure", "other": "same"}))) == (1, [0.0] * 3)


async def test_a_change_is_worth_more_than_none_and_less_than_success():
    assert await choose(look_ahead(world({"wrong": "same", "right": "same", "other": "changed"}))) == (3, [0, 0, 0.5])


@pytest.mark.parametrize(
    ("scores", "best"),
    [
        ([0.0, 0.5, 1.0], 2),
        ([0.5, 1.0, 1.0], 1),
        ([0.5, 0.5], 0),
        ([0.0, None, None], 0),  # unscored never beats a score
        ([None, None, None], 0),  # nothing known: the greedy one
        ([None, 0.0, 0.5], 0),  # the greedy one is overruled where a success is foreseen, and only there
        ([None, 0.5, 1.0], 2),
    ],
)
def test_the_best_is_the_highest_scored_then_the_first(scores, best):
    assert best_of(scores) == best


@pytest.mark.parametrize(
    ("scores", "best"),
    [
        ([0.5, 0.75, 0.7], 1),  # by the margin itself
        ([0.5, 0.7, 0.6], 0),  # by less
        ([0.0, None, 0.25], 2),
        ([None, 0.9], 0),  # an unscored one is overruled by a success alone, with a margin or without
        ([None, 1.0], 1),
    ],
)
def test_the_first_candidate_is_overruled_by_a_margin(scores, best):
    assert best_of(scores, margin=0.25) == best


async def test_an_unscored_first_candidate_stands_where_a_score_of_1_is_no_success():
    """By `veto` 1 says that nothing speaks against an action; the policy's own page could not be read."""
    assert best_of([None, 1.0], sure=False) == 0 and best_of([0.0, 1.0], sure=False) == 1
    outcomes = {"wrong": "hm", "right": "changed", "other": "changed"}

    def answer(request):
        name = request.messages[1]["content"].rpartition("button '")[2].rstrip("'")
        return Reply(text="hm") if outcomes[name] == "hm" else outcome_reply(outcomes[name])

    veto = look_ahead(Scripted(answer), PredictionScorer("veto"), preset="veto")
    assert await choose(veto) == (1, [None, 1.0, 1.0])


async def test_a_margin_of_the_params_holds_back_a_decision():
    """A change is worth half a point more than none: by a margin of a half it overrules, by more it does not."""
    assert best_of([0.2, 0.3], margin=0.1) == 1  # although 0.3 - 0.2 < 0.1 in floats
    model = world({"wrong": "same", "right": "same", "other": "changed"})
    assert (await choose(look_ahead(model, margin=0.5)))[0] == 3
    assert (await choose(look_ahead(model, margin=0.6)))[0] == 1


def test_a_random_tie_is_drawn_among_the_best_by_the_seed():
    """Two of four are best: each comes up in half of 200 seeds, within four standard errors."""
    drawn = Counter(best_of([0.5, 1.0, None, 1.0], tie="random", seed=seed) for seed in range(200))
    assert set(drawn) == {1, 3} and drawn[1] / 200 == pytest.approx(0.5, abs=4 * (0.25 / 200) ** 0.5)
    assert best_of([0.5, 0.0], tie="random") == 0
    assert best_of([None, 0.5, 0.5], tie="random") == 0  # nor does a draw overrule an unscored greedy one


# -- what cannot be told


async def test_what_cannot_be_read_is_unscored_and_beats_nothing():
    """Depth 2: the page after one click is gibberish, so that click has no score; where the others have 0, it loses."""
    model = world({"wrong": "failure", "right": "changed", "other": "failure"}, {"right": "gibberish"})
    assert await choose(look_ahead(model, depth=2)) == (1, [0.0, None, 0.0])
    model = world({"wrong": "changed", "right": "failure", "other": "success"}, {"wrong": "gibberish"})
    assert await choose(look_ahead(model, depth=2)) == (3, [None, 0.0, 1.0])


async def test_nothing_scored_does_what_the_policy_would_and_says_why():
    model = world(dict.fromkeys(ALL, "changed"), dict.fromkeys(ALL, "gibberish"))
    decision = await look_ahead(model, depth=2).act(TASK, (), seen(PAGE))
    assert (decision.action.id, [c.score for c in decision.candidates]) == (1, [None, None, None])
    assert decision.fell_back == "no candidate could be scored: an imagined page cannot be read"


async def test_an_unscored_greedy_choice_that_stays_says_why():
    model = world({"wrong": "changed", "right": "failure", "other": "failure"}, {"wrong": "gibberish"})
    decision = await look_ahead(model, depth=2).act(TASK, (), seen(PAGE))
    assert (decision.action.id, [c.score for c in decision.candidates]) == (1, [None, 0.0, 0.0])
    assert decision.fell_back == "the policy's own candidate could not be scored: an imagined page cannot be read"


def failing(problem: Exception) -> Scripted:
    def answer(request):
        raise problem

    return Scripted(answer)


async def test_a_call_that_fails_leaves_the_choice_to_the_policy_and_keeps_what_was_imagined():
    decision = await look_ahead(failing(CallFailed("m at u: 500"))).act(TASK, (), seen(PAGE))
    assert (decision.action.id, decision.fell_back) == (1, "m at u: 500")
    assert [(c.score, c.imagined) for c in decision.candidates] == [(None, ())] * 3
    scorer = ModelScorer(failing(CallFailed("m at u: timeout")), "llm", how_to("paper"))
    decision = await look_ahead(world(dict.fromkeys(ALL, "same")), scorer).act(TASK, (), seen(PAGE))
    assert (decision.action.id, decision.fell_back) == (1, "m at u: timeout")
    assert [(c.score, c.imagined) for c in decision.candidates] == [(None, (PAGE,))] * 3


@pytest.mark.parametrize("problem", [ModelError("no model server answers at u"), ValueError("a fault of ours")])
async def test_a_missing_server_or_a_fault_of_ours_is_not_swallowed(problem):
    with pytest.raises(type(problem), match=str(problem)):
        await look_ahead(failing(problem)).act(TASK, (), seen(PAGE))


async def test_the_policys_own_failure_is_raised():
    with pytest.raises(CallFailed, match="the policy is away"):
        await look_ahead(world({}), policy=failing(CallFailed("the policy is away"))).act(TASK, (), seen(PAGE))


async def test_unread_free_replies_fall_back_to_the_policy_and_say_so():
    lookahead = look_ahead(world({}), policy=Scripted(lambda request: "hm"), params=FREE)
    decision = await lookahead.act(TASK, (), seen(PAGE))
    assert decision.action is None and "no action in 'hm" in decision.error
    assert decision.fell_back == "the policy gave no candidate that can be read"


# -- how far it is imagined


async def test_depth_2_imagines_the_policys_own_next_step():
    """After `right` the page shows one more button; pressing that is imagined as success."""
    model = world(
        {"wrong": "same", "right": "changed", "other": "same", "next": "success"}, {"right": "+[0] button 'next'"}
    )
    decision = await look_ahead(model, depth=2).act(TASK, (), seen(PAGE))
    assert decision.action.id == 2
    assert decision.candidates[1].imagined == (
        "[1] button 'next'\n[2] button 'wrong'\n[3] button 'right'\n[4] button 'other'",
        "(the episode ends, P(success) = 1.00)",
    )
    assert decision.candidates[1].likeliest == "success"  # of the last step, not of the first
    # after `wrong` and `other` the page is as it was: the policy tries its likeliest reply that is left
    assert [len(c.imagined) for c in decision.candidates] == [2, 2, 2]
    asked = [r.messages[1]["content"] for r in model.asked if r.choices]
    assert len(asked) == 6 and "EARLIER: click [2] button 'right'\nACTION: click [1] button 'next'" in asked[4]


async def test_a_policy_that_cannot_be_read_in_the_imagined_page_leaves_that_candidate_unscored():
    """Not scored by the step that could be imagined: the others are compared two steps deep."""
    written = iter(["Action: ```click [1]```", "Action: ```click [2]```", "hm", "Action: ```click [3]```"])
    model = world(dict.fromkeys(ALL, "changed"), {"wrong": "-[2]", "right": "~[1] button 'again'"})
    lookahead = look_ahead(model, policy=Scripted(lambda request: next(written)), params=FREE, depth=2, k=2)
    decision = await lookahead.act(TASK, (), seen(PAGE))
    assert [c.score for c in decision.candidates] == [None, 0.5] and decision.action.id == 1
    assert decision.fell_back == (
        "the policy's own candidate could not be scored: the policy's reply in an imagined page cannot be read"
    )


async def test_depth_3_goes_on_from_page_to_page():
    """right -> next -> last: each click adds the next button on top, which the policy likes best."""
    model = world(
        {"wrong": "failure", "right": "changed", "other": "failure", "next": "changed", "last": "success"},
        {"right": "+[0] button 'next'", "next": "+[0] button 'last'"},
    )
    assert await choose(look_ahead(model, depth=2)) == (2, [0.0, 0.5, 0.0])
    decision = await look_ahead(model, depth=3).act(TASK, (), seen(PAGE))
    assert [c.score for c in decision.candidates] == [0.0, 1.0, 0.0]
    assert [text.split("\n")[0] for text in decision.candidates[1].imagined] == [
        "[1] button 'next'", "[1] button 'last'", "(the episode ends, P(success) = 1.00)",
    ]  # fmt: skip


async def test_an_imagined_end_is_not_walked_beyond():
    model = world({"wrong": "failure", "right": "success", "other": "failure"})
    await look_ahead(model, depth=3).act(TASK, (), seen(PAGE))
    assert len(model.asked) == 3


async def test_the_page_of_the_last_step_is_drawn_for_a_scorer_that_reads_it_alone():
    model = world(dict.fromkeys(ALL, "changed"), dict.fromkeys(ALL, "-[3]"))
    await look_ahead(model).act(TASK, (), seen(PAGE))
    assert len(model.asked) == 3
    await look_ahead(model, ModelScorer(Scripted(lambda request: "0"), "llm", how_to("paper"))).act(
        TASK, (), seen(PAGE)
    )
    assert len(model.asked) == 3 + 6


async def test_what_is_imagined_with_a_temperature_is_drawn_by_the_seed_of_the_run():
    seeds = {}
    for seed in (0, 1):
        model = world(dict.fromkeys(ALL, "same"))
        await look_ahead(model, seed=seed, imagination_temperature=0.7).act(TASK, (), seen(PAGE))
        seeds[seed] = [request.seed for request in model.asked]
        assert {request.temperature for request in model.asked} == {0.7}
    assert not set(seeds[0]) & set(seeds[1])


async def test_look_ahead_begins_after_the_steps_it_skips():
    model = world({"wrong": "failure", "right": "success", "other": "same"})
    lookahead = look_ahead(model, skip_steps=2)
    before = [Step(observation=seen("[1] link 'A'"), decision=did("click [1]"))] * 2
    first = await lookahead.act(TASK, before[:1], seen(PAGE))
    assert (first.action.id, first.candidates, first.cost, model.asked) == (1, (), None, [])
    third = await lookahead.act(TASK, before, seen(PAGE))
    assert third.action.id == 2 and len(model.asked) == 3


# -- a stop


def ending(**chances: float) -> Scripted:
    """A world model that gives a stop these chances, and every click a failure."""

    def answer(request):
        stops = "ACTION: stop" in request.messages[1]["content"]
        return outcome_reply(max(chances, key=chances.get), **chances) if stops else outcome_reply("failure")

    return Scripted(answer)


@pytest.mark.parametrize("preset", ["wmla_d1", "best_of_k"])
@pytest.mark.parametrize(
    ("chances", "score"),
    [
        ({"success": 0.4, "failure": 0.3, "changed": 0.3}, 1.0),
        ({"success": 0.2, "failure": 0.1, "changed": 0.7}, 1.0),  # a stop changes no page: it ends one way or the other
        ({"success": 0.3, "failure": 0.3, "changed": 0.4}, 0.0),
        ({"success": 0.1, "failure": 0.2, "same": 0.7}, 0.0),
    ],
)
async def test_a_stop_is_asked_about_and_wins_only_where_success_is_likelier_than_failure(preset, chances, score):
    written = iter(["Action: ```click [1]```", "Action: ```stop [42]```"] * 2)
    lookahead = look_ahead(
        ending(**chances), policy=Scripted(lambda request: next(written)), params=FREE, preset=preset, k=2
    )
    decision = await lookahead.act(TASK, (), seen(PAGE))
    assert [c.score for c in decision.candidates] == [0.0, score]
    assert decision.action == (Action(verb="stop", text="42") if score else Action(verb="click", id=1))


async def test_an_imagined_stop_shows_its_chance_and_ends_the_walk():
    """P(success) of a stop is 0.6 / (0.6 + 0.2)."""
    written = iter(["Action: ```click [1]```", "Action: ```stop [42]```"])
    model = ending(success=0.6, failure=0.2, changed=0.2)
    lookahead = look_ahead(model, policy=Scripted(lambda request: next(written)), params=FREE, depth=2, k=2)
    decision = await lookahead.act(TASK, (), seen(PAGE))
    assert decision.candidates[1].imagined == ("(the episode ends, P(success) = 0.75)",) and len(model.asked) == 2


async def test_a_stop_that_the_world_model_cannot_judge_is_unscored():
    written = iter(["Action: ```stop [42]```", "Action: ```click [1]```"])
    model = Scripted(lambda request: "hm")
    lookahead = look_ahead(model, policy=Scripted(lambda request: next(written)), params=FREE, k=2)
    decision = await lookahead.act(TASK, (), seen(PAGE))
    assert [c.score for c in decision.candidates] == [None, None] and decision.action.verb == "stop"
    assert decision.candidates[0].imagined == (PAGE,)  # and no chance of success, which was not told
    assert [(c.chances, c.likeliest) for c in decision.candidates] == [({}, "")] * 2


@pytest.mark.parametrize(("kind", "score"), [("veto", 1.0), ("likelihood", 0.5 * 0.75)])
async def test_the_other_scorers_read_a_stop_as_an_end_too(kind, score):
    """P(success) is 0.3 / (0.3 + 0.1) = 0.75; the page that `changed` with 0.6 never comes."""
    params = SMOKE.policy.model_copy(update={"verbs": ("stop",)})
    policy = Scripted(lambda r: Reply(text=r.choices[0], logprobs=(-0.6931471805599453,) * 2))
    model = ending(success=0.3, failure=0.1, changed=0.6)
    lookahead = look_ahead(model, PredictionScorer(kind), policy=policy, params=params)
    decision = await lookahead.act(TASK, (), seen("[1] StaticText '42'"))
    assert [c.score for c in decision.candidates] == [pytest.approx(score)] * 2


# -- candidates


def test_the_most_frequent_actions_come_first_and_on_a_tie_the_one_drawn_first():
    """B three times, then A and C twice each, D once; the two that cannot be read are none."""
    drawn = [did(text) for text in ("click [1]", "click [2]", "hm", "click [3]", "click [2]", "click [2]")]
    drawn += [did(text) for text in ("click [3]", "hm", "click [1]", "click [4]")]
    assert [d.action.id for d in most_frequent(drawn, 3)] == [2, 1, 3]
    assert [d.action.id for d in most_frequent(drawn, 9)] == [2, 1, 3, 4]
    assert most_frequent([did("hm")] * 3, 3) == most_frequent([], 3) == []


def test_one_action_in_other_words_is_one_candidate_with_the_words_that_came_first():
    first = did("click [1]").model_copy(update={"reply": "first words"})
    assert most_frequent([first, did("click [1]"), did("click [2]")], 3) == [first, did("click [2]")]


class Sampled(Scripted):
    """A policy that likes the first choice best; where n are drawn, the i-th comes up `shares[i]` times."""

    def __init__(self, *shares: int):
        super().__init__(ranked)
        self.shares = shares

    async def __call__(self, requests):
        self.asked += requests
        drawn = [i for i, share in enumerate(self.shares) for _ in range(share)]
        return [[Reply(text=r.choices[i]) for i in drawn[: r.n]] if r.n > 1 else [self.answer(r)] for r in requests]


async def test_frequent_candidates_are_drawn_in_one_call_and_the_best_of_them_is_done():
    policy = Sampled(1, 3, 6)
    model = world({"wrong": "success", "right": "success", "other": "failure"})
    found = look_ahead(model, policy=policy, candidates="frequent", samples=10, temperature=1.0, k=2)
    decision = await found.act(TASK, (), seen(PAGE))
    assert decision.action.id == 2 and [c.score for c in decision.candidates] == [0.0, 1.0]
    assert [(r.n, r.temperature) for r in policy.asked] == [(10, 1.0)]


async def test_where_no_frequent_candidate_is_scored_the_greedy_one_is_done():
    policy = Sampled(1, 3, 6)  # the most frequent is `other`, the greedy one `wrong`
    found = look_ahead(
        Scripted(lambda request: ""), policy=policy, candidates="frequent", samples=10, temperature=1.0, k=2
    )
    decision = await found.act(TASK, (), seen(PAGE))
    assert decision.action.id == 1 and [c.score for c in decision.candidates] == [None, None]
    assert decision.fell_back == "no candidate could be scored: an imagined page cannot be read"


async def test_where_the_most_frequent_candidate_is_unscored_and_no_other_is_sure_the_greedy_one_is_done():
    """`other`, drawn six times, is unscored; `right` is imagined to change the page (0.5), which overrules nothing."""
    knows = world({"right": "changed"})
    of_other = lambda request: request.messages[1]["content"].endswith("button 'other'")  # noqa: E731
    model = Scripted(lambda request: "" if of_other(request) else knows.answer(request), "world")
    found = look_ahead(model, policy=Sampled(1, 3, 6), candidates="frequent", samples=10, temperature=1.0, k=2)
    decision = await found.act(TASK, (), seen(PAGE))
    assert decision.action.id == 1 and [c.score for c in decision.candidates] == [None, 0.5]
    assert "cannot be read" in decision.fell_back


async def test_every_valid_action_may_be_a_candidate():
    model = world({"wrong": "same", "right": "same", "other": "success"})
    assert await choose(look_ahead(model, candidates="valid", k=2)) == (3, [0.0, 0.0, 1.0])
    assert await choose(look_ahead(model, k=2)) == (1, [0.0, 0.0])
    with pytest.raises(ValueError, match="candidates valid are those that policy.reply: choose chooses among"):
        look_ahead(model, params=FREE, candidates="valid")


async def test_a_single_candidate_is_done_unimagined():
    model = world({})
    decision = await look_ahead(model).act(TASK, (), seen("[1] button 'only'"))
    assert decision.action.id == 1 and decision.candidates == () and model.asked == []
    assert await look_ahead(model).act(TASK, (), seen("")) is None


# -- without a world model


async def test_best_of_k_asks_the_scorers_question_and_no_world_model():
    untrained = world({"wrong": "same", "right": "success", "other": "same"})
    decision = await look_ahead(untrained, preset="best_of_k").act(TASK, (), seen(PAGE))
    assert decision.action.id == 2 and [c.imagined for c in decision.candidates] == [(), (), ()]
    assert len(untrained.asked) == 3
    judge = Scripted(lambda request: "1" if "'right'" in request.messages[1]["content"].split("ACTION")[1] else "0")
    scorer = ModelScorer(judge, "llm", how_to("best_of_k"))
    assert await choose(look_ahead(None, scorer, preset="best_of_k")) == (2, [0.0, 1.0, 0.0])


@pytest.mark.parametrize("preset", ["wmla_d1", "webdreamer"])
def test_what_imagines_needs_a_model(preset):
    imagination = SMOKE.wmla.preset(preset).imagination
    with pytest.raises(ValueError, match=f"imagination {imagination} needs a model that imagines; none needs none"):
        look_ahead(None, preset=preset)


async def test_outcomes_in_words_are_read_by_the_scorer_and_a_stop_has_none():
    written = iter([f"Action: ```{action}```" for action in ("click [1]", "click [2]", "stop [42]")])
    dreamer = Scripted(lambda r: " It is done. " if "ACTION: click [2]" in r.messages[1]["content"] else "Nothing.")
    judge = Scripted(lambda request: "1" if "It is done." in request.messages[1]["content"] else "0")
    lookahead = look_ahead(
        dreamer,
        ModelScorer(judge, "llm", how_to("paper")),
        policy=Scripted(lambda request: next(written)),
        params=FREE,
        preset="webdreamer",
    )
    decision = await lookahead.act(TASK, (), seen(PAGE))
    assert decision.action.id == 2
    assert [(c.imagined, c.score) for c in decision.candidates] == [
        (("Nothing.",), 0.0), (("It is done.",), 1.0), ((), 0.0),
    ]  # fmt: skip
    assert (len(dreamer.asked), len(judge.asked)) == (2, 3)
    assert judge.asked[2].messages[1]["content"].endswith("ACTION: stop [42]")


# -- a language model as the scorer


async def test_an_llm_scores_what_was_imagined_and_skips_what_cannot_be_read():
    model = world(
        {"wrong": "changed", "right": "changed", "other": "success"},
        {"wrong": "gibberish", "right": "~[2] button 'pressed'"},
    )
    judge = Scripted(lambda request: "1" if "pressed" in request.messages[1]["content"] else "0")
    assert await choose(look_ahead(model, ModelScorer(judge, "llm", how_to("paper")))) == (2, [None, 1.0, 0.0])
    assert len(judge.asked) == 2 and judge.asked[0].choices == ("1", "0.5", "0")
    assert judge.asked[0].messages[1]["content"] == (
        f"OBSERVATION:\n{PAGE}\nOBJECTIVE: Press right\nACTION: click [2] button 'right'\n"
        "PREDICTED PAGE 1:\n[1] button 'wrong'\n[2] button 'pressed'\n[3] button 'other'"
    )
    assert judge.asked[1].messages[1]["content"].endswith("PREDICTED PAGE 1:\n(the episode ends, P(success) = 1.00)")


# -- what it costs


class Counted(Scripted):
    """Counts 10 tokens in and 1 out a request, and lets the others go first while it answers."""

    async def __call__(self, requests):
        await asyncio.sleep(0)
        replies = [[self.answer(request)] for request in requests]
        for _ in requests:
            self.usage.add(calls=1, prompt=10, completion=1, seconds=0)
            await asyncio.sleep(0)
        return replies


async def test_a_decision_counts_its_own_calls_and_tokens_while_others_decide():
    """Pages of 2, 3 and 4 buttons: one call of the policy and one a candidate, 11 tokens each."""
    policy, model = Counted(ranked), Counted(lambda request: outcome_reply("same"))
    lookahead = look_ahead(model, policy=policy, k=4)
    pages = ["\n".join(f"[{i}] button '{i}'" for i in range(1, n + 1)) for n in (2, 3, 4)]
    decisions = await asyncio.gather(*(lookahead.act(TASK, (), seen(page)) for page in pages))
    assert [(d.cost.calls, d.cost.tokens, d.cost.steps) for d in decisions] == [(3, 33, 0), (4, 44, 0), (5, 55, 0)]
    assert all(d.cost.seconds >= 0 for d in decisions)
    assert policy.usage.calls + model.usage.calls == 12


async def test_a_single_candidate_costs_the_call_of_the_policy():
    policy = Counted(ranked)
    decision = await look_ahead(world({}), policy=policy).act(TASK, (), seen("[1] button 'only'"))
    assert (decision.cost.calls, decision.cost.tokens) == (1, 11)
