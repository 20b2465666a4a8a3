"""Look-ahead with a world model and a policy whose answers are written down: what is done is known beforehand."""

from __future__ import annotations

import pytest
from stand_ins import SMOKE, Scripted, outcome_reply, ranked, seen, task

from wevo_nb.llm import Reply
from wevo_nb.lookahead import LLMScorer, LookAhead, OutcomeScorer, best_of, imagined_value
from wevo_nb.policies import ModelPolicy
from wevo_nb.schema import Action
from wevo_nb.world_model import Prediction

PAGE = "[1] button 'wrong'\n[2] button 'right'\n[3] button 'other'"
TASK = task(goal="Press right")
WM = SMOKE.world_model
FREE = SMOKE.policy.model_copy(update={"reply": "generate"})


def world(outcomes: dict[str, str], pages: dict[str, str | Reply] | None = None) -> Scripted:
    """A world model that knows what follows a click on a button, by the button's name."""

    def answer(request):
        question = request.messages[1]["content"]
        name = question.rpartition("button '")[2].rstrip("'")
        return outcome_reply(outcomes[name]) if request.choices else pages[name]

    return Scripted(answer, "world")


def look_ahead(world_model, scorer=None, *, depth=1, k=3, policy=None, params=SMOKE.policy) -> LookAhead:
    policy = ModelPolicy(policy or Scripted(ranked), params)
    scorer = scorer or OutcomeScorer(WM)
    return LookAhead(policy, world_model if depth else None, scorer, WM, k=k, depth=depth, temperature=0.0, name="wmla")


async def choose(lookahead: LookAhead):
    decision = await lookahead.act(TASK, (), seen(PAGE))
    return decision.action.id, [c.score for c in decision.candidates]


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
    assert decision.reply == decision.candidates[1].reply


async def test_a_tie_keeps_the_greedy_choice():
    assert await choose(look_ahead(world({"wrong": "same", "right": "failure", "other": "same"}))) == (1, [0.0] * 3)


async def test_a_change_is_worth_more_than_none_and_less_than_success():
    assert await choose(look_ahead(world({"wrong": "same", "right": "same", "other": "changed"}))) == (3, [0, 0, 0.5])


def prediction(outcome: str, readable: bool = True) -> Prediction:
    return Prediction({}, outcome, seen(PAGE), readable)


@pytest.mark.parametrize(
    ("future", "value"),
    [
        ([], None),
        ([prediction("changed", readable=False)], None),
        ([prediction("changed"), prediction("changed", readable=False)], None),
        ([prediction("success")], 1.0),
        ([prediction("same"), prediction("failure")], 0.0),
        ([prediction("changed"), prediction("same")], 0.5),
        ([prediction("same"), prediction("same")], 0.0),
    ],
)
def test_the_value_of_a_future_and_unscored_is_not_0(future, value):
    assert imagined_value(future) is value or imagined_value(future) == value is not None


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


async def test_what_cannot_be_read_is_unscored_and_beats_nothing():
    """Depth 2: the page after one click is gibberish, so that click has no score; where the others have 0, it loses."""
    model = world({"wrong": "failure", "right": "changed", "other": "failure"}, {"right": "gibberish"})
    assert await choose(look_ahead(model, depth=2)) == (1, [0.0, None, 0.0])
    model = world({"wrong": "changed", "right": "failure", "other": "success"}, {"wrong": "gibberish"})
    assert await choose(look_ahead(model, depth=2)) == (3, [None, 0.0, 1.0])


async def test_nothing_scored_does_what_the_policy_would():
    everything = dict.fromkeys(("wrong", "right", "other"), "changed")
    model = world(everything, dict.fromkeys(everything, "gibberish"))
    assert await choose(look_ahead(model, depth=2)) == (1, [None, None, None])


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
    # after `wrong` and `other` the page is as it was: the policy tries its likeliest reply that is left
    assert [len(c.imagined) for c in decision.candidates] == [2, 2, 2]
    asked = [r.messages[1]["content"] for r in model.asked if r.choices]
    assert len(asked) == 6 and "EARLIER: click [2] button 'right'\nACTION: click [1] button 'next'" in asked[4]


async def test_an_imagined_end_is_not_walked_beyond():
    model = world({"wrong": "failure", "right": "success", "other": "failure"})
    await look_ahead(model, depth=3).act(TASK, (), seen(PAGE))
    assert len(model.asked) == 3


async def test_best_of_k_asks_no_world_model():
    scorer = world({"wrong": "same", "right": "success", "other": "same"})
    lookahead = look_ahead(None, OutcomeScorer(WM, scorer), depth=0)
    decision = await lookahead.act(TASK, (), seen(PAGE))
    assert decision.action.id == 2 and [c.imagined for c in decision.candidates] == [(), (), ()]
    assert len(scorer.asked) == 3 and lookahead.world_model is None
    with pytest.raises(ValueError, match="look-ahead of depth 1 needs a world model; depth 0 needs none"):
        LookAhead(lookahead.policy, None, lookahead.scorer, WM, k=3, depth=1, temperature=0.0, name="x")


async def test_a_single_candidate_is_done_unimagined():
    model = world({})
    decision = await look_ahead(model).act(TASK, (), seen("[1] button 'only'"))
    assert decision.action.id == 1 and decision.candidates == () and model.asked == []
    assert await look_ahead(model).act(TASK, (), seen("")) is None


async def test_a_stop_is_a_candidate_that_nothing_is_imagined_after():
    written = iter(["Action: ```stop [42]```", "Action: ```click [2]```", "Action: ```click [1]```"])
    model = world({"wrong": "failure", "right": "success"})
    lookahead = look_ahead(model, policy=Scripted(lambda request: next(written)), params=FREE)
    decision = await lookahead.act(TASK, (), seen(PAGE))
    assert [c.imagined for c in decision.candidates][0] == () and decision.candidates[0].score is None
    assert decision.action == Action(verb="click", id=2) and len(model.asked) == 2


async def test_unread_free_replies_fall_back_to_the_policy():
    lookahead = look_ahead(world({}), policy=Scripted(lambda request: "hm"), params=FREE)
    decision = await lookahead.act(TASK, (), seen(PAGE))
    assert decision.action is None and "no action in 'hm" in decision.error


# -- a language model as the scorer


async def test_an_llm_scores_what_was_imagined_and_skips_what_cannot_be_read():
    model = world(
        {"wrong": "changed", "right": "changed", "other": "success"},
        {"wrong": "gibberish", "right": "~[2] button 'pressed'"},
    )
    judge = Scripted(lambda request: "1" if "pressed" in request.messages[1]["content"] else "0")
    assert await choose(look_ahead(model, LLMScorer(judge))) == (2, [None, 1.0, 0.0])
    assert len(judge.asked) == 2 and judge.asked[0].choices == ("1", "0.5", "0")
    assert judge.asked[0].messages[1]["content"] == (
        f"OBSERVATION:\n{PAGE}\nOBJECTIVE: Press right\nACTION: click [2] button 'right'\n"
        "PREDICTED PAGE 1:\n[1] button 'wrong'\n[2] button 'pressed'\n[3] button 'other'"
    )
    assert judge.asked[1].messages[1]["content"].endswith("PREDICTED PAGE 1:\n(the episode ends, P(success) = 1.00)")
