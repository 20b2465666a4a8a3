"""The world model: predictions out of replies, and the environment they make."""

from __future__ import annotations

import pytest
from stand_ins import (
    CHANGE,
    CHECK,
    CHECKED,
    FORM,
    GOAL,
    PRESS,
    SMOKE,
    Scripted,
    outcome_reply,
    seen,
    task,
    training_rows,
    walk,
)

from wevo_nb.judge import RewardJudge
from wevo_nb.llm import CallFailed, Reply
from wevo_nb.policies import Replay
from wevo_nb.rollout import rollout
from wevo_nb.schema import Action, Effect, Trajectory
from wevo_nb.transitions import Situation, first_pages, transitions
from wevo_nb.world_model import UNREAD, WorldModelEnv, predict

PARAMS = SMOKE.world_model
PAGES = PARAMS.model_copy(update={"target": "page"})
AT_FORM = Situation(task(goal=GOAL), (), seen(FORM), CHECK)


def good(seed: int = 0, **more) -> Trajectory:
    """Checks the box, presses OK, full reward."""
    return walk(task(seed=seed, goal=GOAL), FORM, "click [1]", CHECKED, "click [2]", "", reward=1.0, **more)


# -- one prompt for both


async def test_the_served_prompt_is_the_trained_one_byte_for_byte():
    """What the environment asks while it is walked through is what the rows of that walk were trained with."""
    shown = [seen(text, goal=GOAL) for text in (FORM, CHECKED, "")]
    real = walk(task(goal=GOAL), shown[0], "click [1]", shown[1], "click [2]", shown[2], reward=1.0)
    rows, _ = training_rows(transitions([real]), PARAMS, seed=0)
    trained = {row.outcome: row.messages for row in rows}
    replies = iter([outcome_reply("changed"), Reply(text=CHANGE), outcome_reply("success")])
    model = Scripted(lambda request: next(replies))
    await rollout(Replay([real]), WorldModelEnv(model, PARAMS, first_pages([real])), real.task, max_steps=5)
    first, drawn, second = model.asked
    assert first.messages == trained["changed"] and second.messages == trained["success"]
    assert drawn.messages == (*trained["changed"], {"role": "assistant", "content": "changed\n"})
    assert second.messages[1]["content"] == (
        f"OBSERVATION:\n{CHECKED}\nOBJECTIVE: {GOAL}\nEARLIER: click [1] checkbox 'News'\nACTION: click [2] button 'OK'"
    )


# -- predictions


def script(outcome: str, page: str | Reply = "", **probabilities) -> Scripted:
    """Chooses `outcome`, and writes `page` where it is asked for one."""
    return Scripted(lambda request: outcome_reply(outcome, **probabilities) if request.choices else page)


async def one(model, params=PARAMS, **how):
    [prediction] = await predict(model, [AT_FORM], params, **how)
    return prediction


@pytest.mark.parametrize(("outcome", "likely"), [("success", 0.7), ("failure", 0.2)])
async def test_an_imagined_end_has_no_page_and_the_reward_p_success(outcome, likely):
    model = script(outcome, success=likely, failure=0.9 - likely, changed=0.1)
    found = await one(model)
    assert found.outcome == outcome and found.readable and found.probabilities["success"] == pytest.approx(likely)
    assert (found.observation.text, found.observation.done) == ("", True)
    assert found.observation.reward == pytest.approx(likely / 0.9)  # against failure alone
    assert len(model.asked) == 1


async def test_an_end_of_which_nothing_is_known_has_no_reward():
    """An endpoint that says `changed` to a `stop`, without probabilities: neither a success nor a failure."""
    env = WorldModelEnv(script("changed"), PARAMS, {"miniwob/click-button/0": seen(FORM, goal=GOAL)})
    stopping = walk(task(goal=GOAL), FORM, "stop [42]", FORM, ended="stop")
    found = await rollout(Replay([stopping]), env, task(), max_steps=7)
    assert found.final.done and found.final.reward is None
    assert (await RewardJudge().judge(found)).outcome == "unscored"


async def test_no_change_leaves_the_page():
    found = await one(script("same"))
    assert found.observation == seen(FORM) and found.readable and found.outcome == "same"


@pytest.mark.parametrize(
    ("params", "reply"), [(PARAMS, CHANGE), (PARAMS, f"{CHANGE}\n"), (PAGES, CHECKED), (PAGES, f"{CHECKED}\n")]
)
async def test_a_change_is_drawn(params, reply):
    found = await one(script("changed", reply), params)
    assert found.observation == seen(CHECKED) and found.readable


@pytest.mark.parametrize(
    ("params", "reply"),
    [
        (PARAMS, "the box is checked"),
        (PARAMS, f"{CHANGE}\nand so on"),
        (PARAMS, "~[7] button 'OK'"),
        (PARAMS, ""),
        (PAGES, "[2] button 'OK'"),
        (PAGES, "a page"),
        (PARAMS, Reply(text=CHANGE, finish="length")),
        (PAGES, Reply(text=CHECKED, finish="length")),
    ],
)
async def test_a_page_that_cannot_be_read_or_was_cut_off_leaves_the_page_with_a_note(params, reply):
    found = await one(script("changed", reply), params)
    assert found.observation == seen(FORM, note=UNREAD, effect=Effect(problem="unreadable"))
    assert not found.readable and found.outcome == "changed"


async def test_outcomes_alone_draw_no_page():
    model = script("changed")
    found = await one(model, pages=False)
    assert found.observation == seen("(the page changes)") and found.readable and len(model.asked) == 1


async def test_an_endpoint_without_probabilities_is_sure():
    found = await one(Scripted(lambda request: "done fail"))
    assert found.probabilities == {"success": 0.0, "failure": 1.0, "changed": 0.0, "same": 0.0}


@pytest.mark.parametrize("part", ["outcome", "page", "rationale"])
async def test_a_call_without_an_answer_is_no_prediction_for_who_must_have_one(part):
    """One call of several came to nothing: a decision goes on without it, a report card must not count it as wrong."""
    params = PARAMS.model_copy(update={"rationale": True})
    kinds = lambda request: "outcome" if request.choices else "rationale" if request.stop else "page"  # noqa: E731
    answers = {"outcome": outcome_reply("changed"), "page": CHANGE, "rationale": "It is a box."}
    told = answers | {part: Reply(text="", finish="failed")}
    model = Scripted(lambda request: told[kinds(request)])
    assert not (await one(model, params)).readable
    with pytest.raises(CallFailed, match="^1 of 1 questions got no answer: the same command asks again$"):
        await one(model, params, must_answer=True)


async def test_many_situations_are_asked_in_two_calls_in_order():
    outcomes = iter(["changed", "same", "changed"])
    model = Scripted(lambda request: outcome_reply(next(outcomes)) if request.choices else CHANGE)
    found = await predict(model, [AT_FORM] * 3, PARAMS, temperature=0.5, seed=7)
    assert [p.observation.text for p in found] == [CHECKED, FORM, CHECKED]
    assert [request.seed for request in model.asked] == [7, 8, 9, 7, 9]
    assert {request.temperature for request in model.asked} == {0.5}


# -- the environment


async def test_a_walk_in_the_world_model_ends_where_it_imagines_the_end():
    replies = iter([outcome_reply("changed"), Reply(text=CHANGE), outcome_reply("success", success=0.75, failure=0.25)])
    env = WorldModelEnv(
        Scripted(lambda request: next(replies)), PARAMS, {"miniwob/click-button/0": seen(FORM, goal=GOAL)}
    )
    found = await rollout(Replay([good()]), env, task(), max_steps=7)
    assert (found.ended, found.environment, found.task.goal) == ("done", "scripted", GOAL)
    assert [s.observation.text for s in found.steps] == [FORM, CHECKED]
    assert (found.final.done, found.final.reward) == (True, pytest.approx(0.75))


async def test_an_unreadable_page_is_a_step_that_could_not_be_carried_out():
    env = WorldModelEnv(script("changed", "no page"), PARAMS, {"miniwob/click-button/0": seen(FORM, goal=GOAL)})
    found = await rollout(Replay([good()]), env, task(), max_steps=1)
    assert [s.valid for s in found.steps] == [False] and found.final.note == UNREAD and found.ended == "limit"


async def test_a_stop_in_imagination_is_worth_success_against_failure():
    env = WorldModelEnv(
        script("same", success=0.3, failure=0.1, changed=0.1, same=0.5),
        PARAMS, {"miniwob/click-button/0": seen(FORM, goal=GOAL)},
    )  # fmt: skip
    stopping = walk(task(goal=GOAL), FORM, "stop [42]", FORM, ended="stop")
    found = await rollout(Replay([stopping]), env, task(), max_steps=7)
    assert (found.ended, found.final.text, found.final.done) == ("stop", FORM, True)
    assert found.final.reward == pytest.approx(0.75)
    assert env.model.asked[-1].messages[1]["content"].endswith("ACTION: stop [42]")


async def test_an_imagined_walk_begins_anew_after_reset():
    env = WorldModelEnv(script("same"), PARAMS, {"miniwob/click-button/0": seen(FORM, goal=GOAL)})
    await env.reset(task())
    await env.step(CHECK)
    assert await env.reset(task()) == seen(FORM, goal=GOAL)
    await env.step(PRESS)
    assert "EARLIER" not in env.model.asked[-1].messages[1]["content"]


async def test_a_goal_that_only_the_task_states_is_kept():
    env = WorldModelEnv(script("same"), PARAMS, {"miniwob/click-button/0": seen(FORM)})
    await env.reset(task(goal=GOAL))
    await env.step(CHECK)
    assert f"OBJECTIVE: {GOAL}\n" in env.model.asked[0].messages[1]["content"]


async def test_a_task_without_a_first_page_is_refused_with_the_cure():
    env = WorldModelEnv(script("same"), PARAMS, {})
    with pytest.raises(KeyError, match="no first page of miniwob/click-button/3 is known: collect it in notebook 01"):
        await env.reset(task(seed=3))


async def test_an_action_on_an_element_that_is_not_there_is_a_step_as_in_a_real_episode():
    """It stands among the earlier actions, as in the rows that were learned, and it counts for the hint of step 3."""
    model = script("same")
    env = WorldModelEnv(model, PARAMS, {"miniwob/click-button/0": seen(FORM, goal=GOAL)}, hint_at=3)
    await env.reset(task())
    first = await env.step(Action(verb="click", id=9))
    assert (first.text, first.note) == (FORM, "there is no element [9] on the page") and not model.asked
    await env.step(Action(verb="click", id=1))
    await env.step(Action(verb="click", id=1))
    second, third = [request.messages[1]["content"] for request in model.asked]
    assert "EARLIER: click [9]" in second and "HINT:" not in second
    assert "HINT:" in third
