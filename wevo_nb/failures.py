"""Where failed episodes were lost: the environment, an unread reply, no progress, the wrong action, or too few steps.

Reads trajectories, returns a count of each cause; writes nothing. Notebook 01.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from wevo_nb.schema import Trajectory

LOSSES = ("wrong action", "unread reply", "no progress", "out of steps", "environment")


def cause_of_loss(trajectory: Trajectory) -> str | None:
    """Where a judged episode was lost, one of LOSSES; None where it was not.

    environment: the site or the browser broke off or shut the agent out. unread reply: at least
    half of the replies held no action. no progress: at least half of the actions changed nothing
    or could not be done. wrong action: the page or the answer said so. out of steps: none of these.
    """
    if trajectory.broken:
        return "environment"
    if trajectory.verdict is None or trajectory.verdict.outcome != "failure":
        return None
    transitions = trajectory.transitions()
    unread = sum(step.decision.action is None for _, step, _ in transitions)
    idle = sum(not s.valid or (s.observation.text == after.text and not after.done) for _, s, after in transitions)
    if 2 * unread >= max(1, len(transitions)):
        return "unread reply"
    if trajectory.final.done:
        return "wrong action"
    return "no progress" if 2 * idle >= len(transitions) or trajectory.ended == "stuck" else "out of steps"


def losses(trajectories: Iterable[Trajectory]) -> pd.DataFrame:
    """How many episodes were lost in which way: cause, episodes, share of all episodes."""
    import pandas as pd

    everything = list(trajectories)
    causes = [cause_of_loss(t) for t in everything]
    rows = [{"cause": cause, "episodes": causes.count(cause)} for cause in LOSSES]
    table = pd.DataFrame(rows)
    return table.assign(share=table["episodes"] / max(1, len(everything)))
