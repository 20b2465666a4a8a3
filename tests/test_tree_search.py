"""Tree search in an environment whose pages are written down: what is tried, found, and what it costs.

The environment is a world model with written answers; tests/test_presets.py searches real pages.
"""

from __future__ import annotations

import pytest
from stand_ins import SMOKE, Scripted, did, outcome_reply, ranked, seen, task

from wevo_nb.llm import CallFailed, ModelError, Reply
from wevo_nb.lookahead import LookAhead
from wevo_nb.policies import ModelPolicy
from wevo_nb.schema import Step
from wevo_nb.scorers import ModelScorer
from wevo_nb.tree_search import TreeSearch
from wevo_nb.world_model import WorldModelEnv

PAGE = "[1] button 'wrong'\n[2] button 'right'"
OPENED = "[1] button 'next'\n[2] button 'wrong'\n[3] button 'right'"
TASK = task(goal="Press right, then next")
OUTCOMES = {"wrong": "failure", "right": "changed", "next": "success"}
SCORES = {"wrong": "0", "right": "0.5", "next": "1"}


def pressed(request) -> str:
    """The name of the button that a question is about."""
    return request.messages[1]["content"].split("ACTION: ")[1].split("button '")[1].split("'")[0]


class Pages:
    """Makes environments in which `right` brings a button `next`, and keeps them."""

    def __init__(self):
        self.made, self.closed = [], 0

    def __call__(self):
        answer = lambda r: outcome_reply(OUTCOMES[pressed(r)]) if r.choices else "+[0] button 'next'"  # noqa: E731
        environment = WorldModelEnv(Scripted(answer), SMOKE.world_model, {TASK.key: seen(PAGE)})
        environment.close = self.close
        self.made.append(environment)
        return environment

    async def close(self):
        self.closed += 1


def search(scores, *, policy=None, **different) -> tuple[TreeSearch, Pages]:
    """Tree search with a scorer by the name of the button; candidates by likelihood, from the top of the page."""
    how = SMOKE.wmla.preset("tree_search").model_copy(
        update={"candidates": "different", "temperature": 0.0} | different
    )
    judge = scores if isinstance(scores, Scripted) else Scripted(lambda request: scores[pressed(request)])
    policy = ModelPolicy(policy or Scripted(ranked), SMOKE.policy)
    pages = Pages()
    ahead = LookAhead(policy, None, ModelScorer(judge, "llm", how), how, SMOKE.world_model, name="tree")
    return TreeSearch(ahead, pages), pages


async def tried(found: TreeSearch, history=(), page=PAGE):
    """(element pressed, [(actions of a path, its score)], decision)."""
    decision = await found.act(TASK, history, seen(page))
    paths = [([int(part.split("]")[0]) for part in c.reply.split("click [")[1:]], c.score) for c in decision.candidates]
    return decision.action.id, paths, decision


async def test_the_best_page_is_gone_on_from_and_the_first_action_towards_it_is_done():
    """wrong (1 action), right (1), right > next (2, done again from the start): 4 actions in 3 environments."""
    found, pages = search(SCORES)
    action, paths, decision = await tried(found)
    assert (action, paths) == (2, [([1], 0.0), ([2], 0.5), ([2, 1], 1.0)])
    assert decision.candidates[1].imagined == (OPENED,) and decision.fell_back == ""
    assert decision.cost.steps == 4 and (len(pages.made), pages.closed) == (3, 3)


async def test_an_end_is_shown_to_the_scorer_without_its_reward():
    judge = Scripted(lambda request: SCORES[pressed(request)])
    _, _, decision = await tried(search(judge)[0])
    assert [c.imagined for c in decision.candidates][::2] == [("(the episode ends)",)] * 2
    assert [r.messages[1]["content"].endswith("(the episode ends)") for r in judge.asked] == [True, False, True]


async def test_what_was_done_so_far_is_done_again_first():
    """`next` is the first to be tried and is enough: right, next."""
    history = [Step(observation=seen(PAGE), decision=did("click [2]"))]
    found, pages = search(SCORES)
    action, paths, decision = await tried(found, history, OPENED)
    assert (action, paths, decision.cost.steps, len(pages.made)) == (1, [([1], 1.0)], 2, 1)


async def test_calls_are_counted_beside_the_actions():
    """Two pages proposed from, three scored; the imagined environment asks once an end and twice a changed page."""
    _, _, decision = await tried(search(SCORES)[0])
    assert decision.cost.calls == 2 + 3 + (1 + 2 + 3)


@pytest.mark.parametrize(
    ("different", "paths"),
    [
        ({"budget": 2}, [([1], 0.0), ([2], 0.5)]),
        ({"budget": 1}, [([1], 0.0)]),
        ({"depth": 0}, [([1], 0.0), ([2], 0.5)]),
        ({"k": 2, "depth": 1}, [([1], 0.0), ([2], 0.5), ([2, 1], 1.0)]),
    ],
)
async def test_budget_and_depth_bound_the_search(different, paths):
    assert (await tried(search(SCORES, **different)[0]))[1] == paths


async def test_a_tie_goes_to_the_policys_own_choice():
    action, paths, _ = await tried(search({"wrong": "0.5", "right": "0.5"}, depth=0)[0])
    assert (action, paths) == (1, [([1], 0.5), ([2], 0.5)])


@pytest.mark.parametrize("reply", ["", "good", Reply(text="1", finish="length")])
async def test_nothing_scored_does_what_the_policy_would_and_says_why(reply):
    action, paths, decision = await tried(search(Scripted(lambda request: reply))[0])
    assert (action, paths) == (1, [([1], None), ([2], None)])
    assert decision.fell_back == "no candidate could be scored" and decision.cost.steps == 2


async def test_a_call_that_fails_is_unscored():
    def answer(request):
        raise CallFailed("m at u: 500")

    action, paths, decision = await tried(search(Scripted(answer))[0])
    assert (action, paths) == (1, [([1], None), ([2], None)])
    assert decision.fell_back == "no candidate could be scored: m at u: 500"


async def test_an_unscored_choice_of_the_policy_is_overruled_by_a_1_alone():
    action, paths, decision = await tried(search({"wrong": "", "right": "0.5"}, depth=0)[0])
    assert (action, paths) == (1, [([1], None), ([2], 0.5)])
    assert decision.fell_back == "the policy's own candidate could not be scored"
    action, paths, decision = await tried(search({"wrong": "", "right": "1"}, depth=0)[0])
    assert (action, paths, decision.fell_back) == (2, [([1], None), ([2], 1.0)], "")


async def test_where_no_frequent_candidate_is_scored_the_greedy_one_is_done():
    """`right` is drawn twice of three times, and `wrong` is the likeliest."""

    class Sampled(Scripted):
        async def __call__(self, requests):
            last = lambda r: [Reply(text=r.choices[i]) for i in (1, 1, 0)]  # noqa: E731
            return [last(r) if r.n > 1 else [self.answer(r)] for r in requests]

    how = {"policy": Sampled(ranked), "candidates": "frequent", "samples": 3}
    action, paths, _ = await tried(search({"wrong": "", "right": ""}, **how)[0])
    assert (action, paths) == (1, [([2], None), ([1], None)])


async def test_a_missing_server_is_raised_and_every_environment_closed():
    def answer(request):
        raise ModelError("no model server answers at u")

    found, pages = search(Scripted(answer))
    with pytest.raises(ModelError, match="no model server answers at u"):
        await tried(found)
    assert (len(pages.made), pages.closed) == (1, 1)


async def test_a_single_candidate_is_done_untried():
    found, pages = search(SCORES)
    decision = await found.act(TASK, (), seen("[1] button 'only'"))
    assert (decision.action.id, decision.candidates, decision.cost.steps, pages.made) == (1, (), 0, [])
    assert await found.act(TASK, (), seen("")) is None


async def test_in_the_first_steps_it_does_not_search_where_it_is_told_so():
    found, pages = search(SCORES, skip_steps=1)
    decision = await found.act(TASK, (), seen(PAGE))
    assert decision.action.id == 1 and decision.candidates == () and pages.made == []
