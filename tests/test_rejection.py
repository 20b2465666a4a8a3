"""Rejection sampling with every number counted by hand."""

from __future__ import annotations

from collections import Counter

import pytest
from stand_ins import CHECKED, FORM, SMOKE, seen, task, walk

from wevo_nb.rejection import NothingToLearnFrom, balance, keep_successes, policy_rows
from wevo_nb.schema import Decision, Step, Trajectory
from wevo_nb.targets import Row

POLICY = SMOKE.policy.model_copy(update={"history": 3})


def pressed(reward: float | None, *, ended: str = "done", **more) -> Trajectory:
    return walk(task(**more), FORM, "click [2]", "", ended=ended, reward=reward)


def episode(name: str, seed: int, steps: int, verdict: str | None) -> Trajectory:
    pages_and_actions = [FORM, "click [1]"] * steps + [FORM]
    return walk(task(name, seed), *pages_and_actions, reward=1.0, success=verdict)


def test_successes_are_kept_shortest_first_and_every_filter_is_counted():
    """Seven episodes, one not judged, one unscored, one failure; of the four successes the cap takes one of a's."""
    found = [
        episode("b", 0, 1, "success"),
        episode("a", 0, 3, "success"),
        episode("a", 1, 1, "success"),
        episode("a", 2, 2, "success"),
        episode("a", 3, 1, "failure"),
        episode("b", 1, 1, "unscored"),
        episode("b", 2, 1, None),
    ]
    kept, funnel = keep_successes(found, cap=2, seed=0)
    assert [(t.task.name, t.task.seed) for t in kept] == [("a", 1), ("a", 2), ("b", 0)]
    assert funnel == [
        {"step": "episodes", "kept": 7},
        {"step": "scored", "kept": 5},
        {"step": "successes", "kept": 4},
        {"step": "at most 2 a kind", "kept": 3},
    ]


def test_ties_are_broken_by_the_seed_alone():
    found = [episode("a", i, 1, "success") for i in range(20)]
    first, _ = keep_successes(found, cap=3, seed=0)
    assert first == keep_successes(found, cap=3, seed=0)[0] != keep_successes(found, cap=3, seed=1)[0]
    assert keep_successes([], cap=3, seed=0)[1][-1] == {"step": "at most 3 a kind", "kept": 0}


def test_steps_that_changed_nothing_are_left_out_of_rows_and_of_later_histories():
    """Of six steps: one does nothing, one is not valid, one is unread; the ends count though no page follows."""
    noted = seen(FORM, note="element [2] is covered by div")
    walked = walk(
        task(goal="Check News"),
        FORM, "click [2]", FORM, "click [2]", noted, "click [1]", CHECKED, "click [2]", "", reward=1.0,
    )  # fmt: skip
    unread = Step(observation=seen(FORM), decision=Decision(reply="?", action=None, error="unread"))
    walked = walked.model_copy(update={"steps": (unread, *walked.steps)})
    rows, funnel = policy_rows([walked], POLICY)
    assert [row.reply.partition("Action: ")[2] for row in rows] == ["```click [1]```", "```click [2]```"]
    assert [turn["role"] for turn in rows[0].messages] == ["system", "user"]
    assert [turn["content"] for turn in rows[1].messages[1:3]] == ["(page left out)", rows[0].reply]
    assert len(rows[1].messages) == 4
    assert funnel == [
        {"step": "steps of kept episodes", "kept": 5},
        {"step": "steps that changed something", "kept": 2},
        {"step": "without duplicates", "kept": 2},
    ]


def test_the_same_row_twice_is_one_and_a_stop_is_learned():
    stopped = walk(task(goal="Say done"), CHECKED, "stop [done]", CHECKED, ended="stop")
    rows, funnel = policy_rows([pressed(1.0), pressed(1.0, seed=1), stopped], POLICY)
    assert [row.reply.partition("Action: ")[2] for row in rows] == ["```click [2]```", "```stop [done]```"]
    assert [step["kept"] for step in funnel] == [3, 3, 2]


def rows_of(**counts: int) -> list[Row]:
    told = [(name, {"role": "user", "content": f"{name} {i}"}) for name, n in counts.items() for i in range(n)]
    return [Row((message,), "r", name) for name, message in told]


def test_rows_are_brought_to_the_same_number_a_task_repeated_at_most_so_often():
    """a has 9 rows of 6 wanted, b 2 repeated to 6, c 1 repeated 4 times and no more."""
    rows, funnel = balance(rows_of(a=9, b=2, c=1), per_task=6, max_repeat=4, seed=0)
    assert Counter(row.task for row in rows) == Counter(a=6, b=6, c=4)
    repeats = Counter(row.messages[0]["content"] for row in rows)
    assert sorted(n for text, n in repeats.items() if text[0] == "a") == [1] * 6
    assert {text: n for text, n in repeats.items() if text[0] != "a"} == {"b 0": 3, "b 1": 3, "c 0": 4}
    assert funnel == [{"step": "balanced to 6 a kind", "kept": 16}]


def test_nothing_to_learn_from_is_an_error_with_the_cure():
    with pytest.raises(NothingToLearnFrom, match="raise tasks.train_seeds or .*collect.explorer_episodes: 60"):
        balance([], per_task=6, max_repeat=4, seed=0)
