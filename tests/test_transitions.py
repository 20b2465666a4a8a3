"""What a world model learns from: carried-out steps, each kind once, first pages, and what was seen before."""

from __future__ import annotations

from collections import Counter

import pytest
from stand_ins import CHECK, CHECKED, FORM, GOAL, PRESS, did, seen, task, walk

from wevo_nb.schema import Decision, Step, Trajectory
from wevo_nb.transitions import first_pages, memory_of, openings, outcome_counts, outcome_of, transitions


def good(seed: int = 0, **more) -> Trajectory:
    """Checks the box, presses OK, full reward."""
    return walk(task(seed=seed, goal=GOAL), FORM, "click [1]", CHECKED, "click [2]", "", reward=1.0, **more)


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


def test_a_stop_that_was_graded_is_a_transition():
    right = walk(task(goal=GOAL), FORM, "stop [42]", seen(FORM, done=True, reward=1.0), ended="stop")
    wrong = walk(task(goal=GOAL), FORM, "stop [41]", seen(FORM, done=True, reward=0.0), ended="stop")
    assert [(t.situation.action.text, t.outcome) for t in transitions([right, wrong])] == [
        ("42", "success"),
        ("41", "failure"),
    ]


def test_first_pages_are_those_of_real_visits():
    broken = Trajectory(
        task=task(seed=2), policy="p", environment="browser", steps=(), final=seen(""), ended="error", error="gone"
    )
    at_once = Trajectory(task=task(seed=3), policy="p", environment="browser", steps=(), final=seen(FORM), ended="done")
    assert first_pages([good(), broken, at_once]) == {
        "miniwob/click-button/0": seen(FORM),
        "miniwob/click-button/3": seen(FORM),
    }


def test_an_episode_without_a_step_teaches_nothing():
    """Ended before anything was done: nothing left to try, or an environment that broke off."""
    at_once = good().model_copy(update={"steps": (), "final": seen(FORM), "ended": "dead_end"})
    assert at_once.transitions() == [] == transitions([at_once])


def test_an_opening_is_the_first_page_after_no_page():
    [opening] = openings([good(), good()])
    assert (opening.situation.observation.text, opening.situation.action.verb) == ("", "restart")
    assert (opening.following, opening.outcome) == (seen(FORM), "changed")


def test_the_start_of_a_transition_is_the_page_its_episode_began_on():
    """Whatever port it was served from; a task that tells no URL stands for itself."""
    first = seen(FORM, url="http://localhost:40123/forms/news?x=1")
    found = transitions([walk(task(goal=GOAL), first, "click [1]", CHECKED, "click [2]", "", reward=1.0)])
    assert [t.start for t in found] == ["localhost/forms/news", "localhost/forms/news"]
    assert {t.start for t in transitions([good()])} == {"click-button"}


def test_memory_holds_what_is_gone_newest_page_first_and_no_more_than_fits():
    pages = ["[1] heading 'Inbox'\n[2] link 'Ann'", "[1] heading 'Mail'\n[2] link 'Ann'\n[3] button 'Reply'"]
    history = [Step(observation=seen(page), decision=did("click [1]")) for page in pages]
    now = seen("[1] textbox\n[2] button 'Reply'")
    assert memory_of(history, now, 100) == ["heading 'Mail'", "link 'Ann'", "heading 'Inbox'"]
    assert memory_of(history, now, 30) == ["heading 'Mail'", "link 'Ann'"]
    assert memory_of(history, now, 0) == [] == memory_of([], now, 100)


def test_an_element_in_another_state_is_no_memory():
    """A radio that is checked now, and one that was and is gone: of two states of this the newer is kept."""
    pages = [f"[1] radio 'Ann'\n[2] radio 'Bob'{state}" for state in ("", " checked: true")]
    history = [Step(observation=seen(page), decision=did("click [2]")) for page in pages]
    assert memory_of(history, seen("[1] radio 'Ann' checked: true"), 100) == ["radio 'Bob' checked: true"]
