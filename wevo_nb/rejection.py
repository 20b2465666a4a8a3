"""Rejection sampling: the trajectories that are kept to learn from, and the policy's rows out of them.

Reads judged trajectories (judge.py). Every filter is a counted step. Used by notebooks 01, 03 and 04.
Paper: section 3.1.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from wevo_nb.prompts import policy_messages
from wevo_nb.schema import Step, Trajectory
from wevo_nb.sections import PolicyParams
from wevo_nb.targets import Row


class NothingToLearnFrom(RuntimeError):
    """Rejection sampling left no trajectory."""


def keep_successes(trajectories: Sequence[Trajectory], *, cap: int, seed: int) -> tuple[list[Trajectory], list[dict]]:
    """Judged trajectories -> the kept ones and a funnel of (step, kept).

    Shortest first, at most `cap` a kind of task, ties in an order fixed by `seed`.
    """
    funnel = [{"step": "episodes", "kept": len(trajectories)}]
    scored = [t for t in trajectories if t.verdict and t.verdict.outcome != "unscored"]
    funnel.append({"step": "scored", "kept": len(scored)})
    good = [t for t in scored if t.verdict.success]
    funnel.append({"step": "successes", "kept": len(good)})
    random.Random(seed).shuffle(good)
    by_task: dict[str, list[Trajectory]] = {}
    for trajectory in sorted(good, key=lambda t: len(t.steps)):
        by_task.setdefault(trajectory.task.name, []).append(trajectory)
    kept = [t for name in sorted(by_task) for t in by_task[name][:cap]]
    funnel.append({"step": f"at most {cap} a kind", "kept": len(kept)})
    return kept, funnel


def policy_rows(trajectories: Sequence[Trajectory], params: PolicyParams) -> tuple[list[Row], list[dict]]:
    """One row a step of successful trajectories: the policy's prompt and the reply it gave.

    Left out, and from later histories too: actions that failed or changed nothing. The same
    row twice is one. Returns rows and a funnel of (step, kept).
    """
    rows: dict[tuple, Row] = {}
    total = changing = 0
    for trajectory in trajectories:
        history: list[Step] = []
        for _, step, following in trajectory.transitions():
            total += 1
            ends = following.done or (step.decision.action is not None and step.decision.action.verb == "stop")
            if step.decision.action is None or not step.valid or (following.text == step.observation.text and not ends):
                continue
            changing += 1
            messages = policy_messages(
                trajectory.task, history, step.observation, prompt=params.prompt, keep=params.history
            )
            row = Row(messages, step.decision.reply, trajectory.task.name, source=trajectory.task.key)
            rows.setdefault((str(messages), row.reply), row)
            history.append(step)
    funnel = [
        {"step": "steps of kept episodes", "kept": total},
        {"step": "steps that changed something", "kept": changing},
        {"step": "without duplicates", "kept": len(rows)},
    ]
    return list(rows.values()), funnel


def balance(rows: Sequence[Row], *, per_task: int, max_repeat: int, seed: int) -> tuple[list[Row], list[dict]]:
    """Rows brought to `per_task` a kind of task: more are left out, fewer repeated up to `max_repeat` times.

    Raises NothingToLearnFrom on an empty set.
    """
    if not rows:
        raise NothingToLearnFrom(
            "no successful trajectory to learn from: raise tasks.train_seeds or collect.temperature, take easier "
            "tasks, or let a random explorer help (collect.explorer_episodes: 60)"
        )
    rng = random.Random(seed)
    by_task: dict[str, list[Row]] = {}
    for row in rows:
        by_task.setdefault(row.task, []).append(row)
    out = []
    for name in sorted(by_task):
        pile = rng.sample(by_task[name], len(by_task[name]))
        wanted = min(per_task, len(pile) * max_repeat)
        out += [pile[i % len(pile)] for i in range(wanted)]
    rng.shuffle(out)
    return out, [{"step": f"balanced to {per_task} a kind", "kept": len(out)}]
