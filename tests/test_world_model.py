"""The world model: rows it learns from, prompts it is asked with, predictions, and the environment it makes."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from stand_ins import SMOKE, Scripted, did, outcome_reply, seen, task, walk

from wevo_nb.llm import Reply
from wevo_nb.policies import Replay
from wevo_nb.rollout import rollout
from wevo_nb.schema import Decision, Effect, Step, Trajectory
from wevo_nb.world_model import (
    UNREAD,
    Situation,
    Transition,
    WorldModelEnv,
    first_pages,
    outcome_counts,
    outcome_of,
    predict,
    take_evenly,
    target_text,
    training_rows,
    transitions,
)

FORM = "[1] checkbox 'News'\n[2] button 'OK'"
CHECKED = "[1] checkbox 'News' checked: true\n[2] button 'OK'"
CHANGE = "~[1] checkbox 'News' checked: true"
GOAL = "Check News"
CHECK, PRESS = did("click [1]").action, did("click [2]").action
PARAMS = SMOKE.world_model
PAGES = PARAMS.model_copy(update={"target": "page"})
AT_FORM = Situation(task(goal=GOAL), (), seen(FORM), CHECK)


def good(seed: int = 0, **more) -> Trajectory:
    """Checks the box, presses OK, full reward."""
    return walk(task(seed=seed, goal=GOAL), FORM, "click [1]", CHECKED, "click [2]", "", reward=1.0, **more)


# -- transitions


@pytest.mark.parametrize(
    ("after", "outcome"),
    [
        (seen("", done=True, reward=1.0), "success"),
        (seen("", done=True, reward=0.5), "failure"),  # a part of the reward is no success
        (seen("", done=True, reward=-1.0), "failure"),
        (seen("", done=True), "failure"),
        (seen(FORM), "same"),
        (seen(FORM, note="it is covered"), "same"),
        (seen(CHECKED), "changed"),
    ],
)
def test_the_outcome_of_a_step(after, outcome):
    assert outcome_of(seen(FORM), after) == outcome


def test_transitions_are_the_carried_out_steps_each_kind_once():
    unread = Step(observation=seen(FORM), decision=Decision(reply="?", action=None, error="unread"))
    broken = walk(task(goal=GOAL), FORM, "click [9]", seen(FORM, note="there is no element [9]"), ended="limit")
    stopped = walk(task(goal=GOAL), FORM, "stop [done]", FORM, ended="stop")
    mixed = good().model_copy(update={"steps": (unread, *good().steps)})
    found = transitions([good(), good(seed=1), mixed, broken, stopped])
    assert [(t.situation.action, t.outcome) for t in found] == [(CHECK, "changed"), (PRESS, "success")]
    assert found[1].situation.history == good().steps[:1]
    assert outcome_counts(found) == Counter(changed=1, success=1)


def test_the_same_step_with_another_end_or_goal_is_another_transition():
    partly = walk(task(goal=GOAL), FORM, "click [2]", "", reward=0.5)
    fully = walk(task(goal=GOAL), FORM, "click [2]", "", reward=1.0)
    elsewhere = walk(task(goal="Leave it"), FORM, "click [2]", "", reward=1.0)
    assert [t.outcome for t in transitions([partly, fully, elsewhere])] == ["failure", "success", "success"]


# -- rows


@pytest.mark.parametrize(
    ("after", "params", "target"),
    [
        (seen(CHECKED), PARAMS, f"changed\n{CHANGE}"),
        (seen(CHECKED), PAGES, f"changed\n{CHECKED}"),
        (seen(FORM), PARAMS, "same"),
        (seen("", done=True, reward=1.0), PAGES, "done success"),
        (seen("", done=True, reward=0.2), PARAMS, "done fail"),
    ],
)
def test_what_is_learned_from_a_transition(after, params, target):
    assert target_text(Transition(AT_FORM, after, outcome_of(seen(FORM), after)), params) == target


def test_rows_are_balanced_over_outcomes_without_repeats():
    """5 changed and 5 success are there; quotas 3, 9 and 2 give 3, 5 and none."""
    found = [
        t for i in range(5)
        for t in transitions([walk(task(goal=f"g{i}"), FORM, "click [1]", CHECKED, "click [2]", "", reward=1.0)])
    ]  # fmt: skip
    params = PARAMS.model_copy(update={"outcome_rows": {"changed": 3, "success": 9, "failure": 2}})
    rows, ledger = training_rows(found, params, seed=0)
    assert ledger == [
        {"outcome": "changed", "found": 5, "taken": 3},
        {"outcome": "success", "found": 5, "taken": 5},
        {"outcome": "failure", "found": 0, "taken": 0},
    ]
    assert Counter(row.outcome for row in rows) == Counter(changed=3, success=5)
    assert len({(row.messages[1]["content"], row.reply) for row in rows}) == 8
    assert rows == training_rows(found, params, seed=0)[0] != training_rows(found, params, seed=1)[0]


def test_taking_evenly_takes_one_from_each_in_turn():
    taken = take_evenly({"a": [1, 2, 3, 4], "b": [5], "c": [6, 7]}, 5, random.Random(0))
    groups = Counter("a" if n < 5 else "b" if n == 5 else "c" for n in taken)
    assert groups == Counter(a=2, b=1, c=2) and len(set(taken)) == 5
    assert sorted(take_evenly({"a": [1, 2], "b": [5]}, 9, random.Random(0))) == [1, 2, 5]


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
    assert found.observation.reward == pytest.approx(likely)
    assert len(model.asked) == 1


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


def test_a_stop_that_was_graded_is_a_transition():
    right = walk(task(goal=GOAL), FORM, "stop [42]", seen(FORM, done=True, reward=1.0), ended="stop")
    wrong = walk(task(goal=GOAL), FORM, "stop [41]", seen(FORM, done=True, reward=0.0), ended="stop")
    assert [(t.situation.action.text, t.outcome) for t in transitions([right, wrong])] == [
        ("42", "success"),
        ("41", "failure"),
    ]


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


def test_first_pages_are_those_of_real_visits():
    broken = Trajectory(
        task=task(seed=2), policy="p", environment="browser", steps=(), final=seen(""), ended="error", error="gone"
    )
    at_once = Trajectory(task=task(seed=3), policy="p", environment="browser", steps=(), final=seen(FORM), ended="done")
    assert first_pages([good(), broken, at_once]) == {
        "miniwob/click-button/0": seen(FORM),
        "miniwob/click-button/3": seen(FORM),
    }
