"""Each cause of a lost episode is found, and all are counted."""

import pytest
from stand_ins import did

from wevo_nb import failures
from wevo_nb.schema import Decision, Observation, Step, Task, Trajectory, Verdict


def lost(*actions: str, ended="limit", text="page", final="page", done=False, outcome="failure") -> Trajectory:
    """An episode of these actions ("" = unread), all on one page."""
    steps = tuple(
        Step(observation=Observation(text=text), decision=did(action) if action else Decision(reply="?", action=None))
        for action in actions
    )
    verdict = Verdict(outcome=outcome, judge="reward")
    end = Observation(text=final, done=done, reward=0.0 if done else None)
    one = Task(suite="miniwob", name="a", seed=0)
    return Trajectory(task=one, policy="p", environment="e", steps=steps, final=end, ended=ended, verdict=verdict)


@pytest.mark.parametrize(
    ("trajectory", "cause"),
    [
        (lost("click [1]", ended="done", final="", done=True), "wrong action"),
        (lost("click [1]", "stop [41]", ended="stop", done=True), "wrong action"),
        (lost("", "click [1]"), "unread reply"),
        (lost("click [1]", "click [2]", "click [3]"), "no progress"),
        (lost("click [1]", ended="stuck", final="other"), "no progress"),
        (lost("click [1]", final="other"), "out of steps"),
        (lost(ended="error", outcome="unscored"), "environment"),
        (lost("click [1]", ended="blocked", outcome="unscored"), "environment"),
        (lost("click [1]", ended="done", done=True, outcome="success"), None),
    ],
)
def test_where_an_episode_was_lost(trajectory, cause):
    assert failures.cause_of_loss(trajectory) == cause


def test_losses_are_counted_over_all_episodes():
    table = failures.losses([lost(""), lost("click [1]"), lost("click [2]"), lost("click [1]", outcome="success")])
    assert list(table["cause"]) == ["wrong action", "unread reply", "no progress", "out of steps", "environment"]
    assert list(table["episodes"]) == [0, 1, 2, 0, 0] and list(table["share"]) == [0, 0.25, 0.5, 0, 0]
