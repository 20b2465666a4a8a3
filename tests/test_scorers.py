"""The scorers of look-ahead by hand-worked values; what cannot be read is unscored, which is not 0."""

from __future__ import annotations

import json
import math

import pytest
from stand_ins import SMOKE, Scripted, did, seen, task

from wevo_nb.llm import Reply
from wevo_nb.prompts import SCORER, SCORER_JSON, SCORER_REPLIES, VALUE, VALUE_REPLIES
from wevo_nb.schema import Step
from wevo_nb.scorers import Future, ModelScorer, PredictionScorer, read_score
from wevo_nb.world_model import Prediction

PAGE = "[1] button 'A'\n[2] button 'B'"
TASK = task(goal="Press B")
A, B = did("click [1]"), did("click [2]")
WMLA = SMOKE.wmla


def prediction(outcome: str, readable: bool = True, **chances: float) -> Prediction:
    """An outcome with given chances, the others 0."""
    given = chances or {outcome: 1.0}
    return Prediction(
        {o: given.get(o, 0.0) for o in ("success", "failure", "changed", "same")}, outcome, seen(PAGE), readable
    )


async def by_prediction(kind: str, *predictions: Prediction, probability: float | None = None) -> float | None:
    candidate = A.model_copy(update={"probability": probability})
    [score] = await PredictionScorer(kind).score(TASK, (), seen(PAGE), [candidate], [Future(predictions)])
    return score


# -- by what the world model predicts


@pytest.mark.parametrize(
    ("predictions", "score"),
    [
        ([prediction("success", success=0.4, failure=0.3, same=0.3)], 1.0),  # the likeliest, however likely
        ([prediction("failure")], 0.0),
        ([prediction("changed")], 0.5),
        ([prediction("same")], 0.0),
        ([prediction("same"), prediction("failure")], 0.0),
        ([prediction("changed"), prediction("same")], 0.5),
        ([prediction("same"), prediction("same")], 0.0),
        ([prediction("changed"), prediction("success")], 1.0),
        ([prediction("changed"), prediction("failure")], 0.0),
    ],
)
async def test_the_outcome_is_worth_1_a_half_or_0(predictions, score):
    assert await by_prediction("outcome", *predictions) == score


@pytest.mark.parametrize(
    ("predictions", "score"),
    [
        ([prediction("failure", failure=0.3, same=0.21, success=0.49)], 0.0),  # 0.51 of no use
        ([prediction("success", failure=0.25, same=0.25, success=0.5)], 1.0),  # 0.5 is not likelier than not
        ([prediction("changed", failure=0.1, changed=0.9)], 1.0),
        ([prediction("same"), prediction("success")], 0.0),  # the action itself is what is vetoed
        ([prediction("changed"), prediction("failure")], 1.0),
    ],
)
async def test_a_veto_is_for_an_action_that_is_likelier_of_no_use_than_not(predictions, score):
    assert await by_prediction("veto", *predictions) == score


@pytest.mark.parametrize(
    ("chances", "probability", "score"),
    [
        ({"success": 0.5, "changed": 0.2, "failure": 0.3}, 0.5, 0.5 * (0.5 + 0.1)),
        ({"failure": 0.6, "same": 0.4}, 0.9, 0.0),
        ({"success": 1.0}, 0.25, 0.25),
        ({"success": 1.0}, None, None),  # an endpoint that tells no probabilities: unscored
    ],
)
async def test_likelihood_is_p_action_times_the_expected_worth(chances, probability, score):
    found = await by_prediction("likelihood", prediction("success", **chances), probability=probability)
    assert found == (None if score is None else pytest.approx(score))


@pytest.mark.parametrize(
    ("predictions", "score"),
    [
        ([prediction("failure", success=0.3, changed=0.2, failure=0.4, same=0.1)], 0.3 + 0.1),
        ([prediction("same")], 0.0),
        ([prediction("changed"), prediction("success", success=0.6, failure=0.4)], 0.6),  # the last that is imagined
    ],
)
async def test_expected_is_the_mean_worth_over_the_chances(predictions, score):
    assert await by_prediction("expected", *predictions) == pytest.approx(score)


@pytest.mark.parametrize("kind", ["outcome", "expected", "veto", "likelihood"])
@pytest.mark.parametrize(
    "future",
    [
        Future(),
        Future((prediction("success", readable=False),)),
        Future((prediction("changed"), prediction("changed", readable=False))),
        Future((prediction("success"),), problem="an imagined page cannot be read"),
    ],
)
async def test_what_was_not_imagined_is_unscored_by_every_kind(kind, future):
    candidates = [d.model_copy(update={"probability": 0.5}) for d in (A, B)]
    read = Future((prediction("success"),))
    scores = await PredictionScorer(kind).score(TASK, (), seen(PAGE), candidates, [future, read])
    assert scores == [None, 0.5 if kind == "likelihood" else 1.0]


# -- by a model


class Several(Scripted):
    """A model whose answer is the list of its n replies."""

    async def __call__(self, requests):
        self.asked += requests
        return [[r if isinstance(r, Reply) else Reply(text=r) for r in self.answer(request)] for request in requests]


async def by_model(model, kind="llm", *, history=(), futures=None, candidates=(A, B), seed=0, free=False, **how):
    scorer = ModelScorer(model, kind, WMLA.preset("paper").model_copy(update=how), seed=seed, free=free)
    return await scorer.score(TASK, history, seen(PAGE), candidates, futures or [Future()] * len(candidates))


async def test_a_model_is_asked_once_for_each_candidate_with_what_was_imagined():
    model = Scripted(lambda request: "1" if "pressed" in request.messages[1]["content"] else "0.5")
    futures = [Future(texts=("[1] button 'A'", "[1] button 'pressed'")), Future()]
    assert await by_model(model, futures=futures, scorer_temperature=0.9) == [1.0, 0.5]  # a single score is not drawn
    first, second = model.asked
    assert first.messages[1]["content"] == (
        f"OBSERVATION:\n{PAGE}\nOBJECTIVE: Press B\nACTION: click [1] button 'A'\n"
        "PREDICTED PAGE 1:\n[1] button 'A'\nPREDICTED PAGE 2:\n[1] button 'pressed'"
    )
    assert second.messages[1]["content"].endswith("ACTION: click [2] button 'B'")
    assert [(r.messages[0]["content"], r.choices, r.n, r.temperature) for r in model.asked] == [
        (SCORER, SCORER_REPLIES, 1, 0.0)
    ] * 2


async def test_a_candidate_without_an_action_or_a_future_is_not_asked_about():
    model = Scripted(lambda request: "1")
    futures = [Future(problem="an imagined page cannot be read"), Future(), Future()]
    assert await by_model(model, candidates=(A, did("hm"), B), futures=futures) == [None, None, 1.0]
    assert len(model.asked) == 1


@pytest.mark.parametrize(
    ("replies", "score"),
    [
        (["1", "0.5", "0", "0"], 0.375),
        (["1", "good", "", "0.5"], 0.75),  # the mean of the two that can be read, not of four
        ([Reply(text="1", finish="length"), "0", "0", "0"], 0.0),
        (["good", "", Reply(text="0.", finish="length"), "2"], None),
    ],
)
async def test_m_scores_are_averaged_over_those_that_can_be_read(replies, score):
    model = Several(lambda request: replies)
    history = [Step(observation=seen(PAGE), decision=B)] * 3
    found = await by_model(model, candidates=(A,), scores=4, scorer_temperature=0.9, history=history, seed=40)
    assert found == [score]
    assert [(r.n, r.temperature, r.seed) for r in model.asked] == [(4, 0.9, 43)]


async def test_a_value_is_the_expectation_over_the_five_numbers():
    """0.25 x 0.3 + 0.5 x 0.2 + 0.75 x 0.2 + 1 x 0.2 = 0.525, where the likeliest alone says 0.25."""
    spread = tuple(map(math.log, (0.1, 0.3, 0.2, 0.2, 0.2)))
    model = Scripted(lambda request: Reply(text="0.25", logprobs=spread))
    assert await by_model(model, "value") == [pytest.approx(0.525)] * 2
    assert [(r.messages[0]["content"], r.choices, r.n) for r in model.asked] == [(VALUE, VALUE_REPLIES, 1)] * 2


@pytest.mark.parametrize(
    ("reply", "score"), [("0.75", 0.75), ("", None), ("far", None), (Reply(text="0.75", finish="length"), None)]
)
async def test_without_chances_a_value_is_the_number_or_unscored(reply, score):
    assert await by_model(Scripted(lambda request: reply), "value", candidates=(A,)) == [score]


async def test_a_free_scorer_is_asked_for_json_without_choices():
    model = Scripted(lambda request: '```json\n{"why": "B was asked for", "score": 0.5}\n```')
    assert await by_model(model, free=True, candidates=(A,)) == [0.5]
    assert (model.asked[0].messages[0]["content"], model.asked[0].choices) == (SCORER_JSON, None)


# -- a number out of a reply


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("1", 1.0),
        ("0", 0.0),
        (" 0.5\n", 0.5),
        ("5e-1", 0.5),
        ('{"score": 0.5}', 0.5),
        ('{"why": "it is {right}", "score": 1}', 1.0),
        ('```json\n{"score": 0}\n```', 0.0),
        ('```\n{"score": 0.25}```', 0.25),
        ("```0.5```", 0.5),
        ("", None),
        ("50%", None),
        ("0.5/1", None),
        ("Score: 0.5", None),
        ("0.5 because it helps", None),
        ("half", None),
        ("true", None),
        ('{"score": true}', None),
        ('{"score": "0.5"}', None),
        ('{"score": null}', None),
        ('{"why": "no score"}', None),
        ('{"score": 0.5', None),
        ("[0.5]", None),
        ("1.5", None),
        ("-0.1", None),
        ("NaN", None),
        ("Infinity", None),
        ('{"score": NaN}', None),
        ("1e999", None),
        ("[" * 100_000, None),
    ],
)
def test_a_score_is_a_number_from_0_to_1_alone_or_in_json(text, score):
    found = read_score(Reply(text=text))
    assert found == score and type(found) is type(score)


def test_a_reply_that_was_cut_off_is_unscored_even_where_a_number_stands():
    assert read_score(Reply(text="1", finish="length")) is None
    assert read_score(Reply(text=json.dumps({"score": 1}), finish="length")) is None
