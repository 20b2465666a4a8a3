"""The rows a model is trained on: balanced, capped, counted, and checked before anything slow.

Every filter says how many came and how many went. The gate refuses rows that would lose their
reply to `max_length`, rows with nothing to learn, too many repeats, and rows of tasks that are
held out. Used by notebooks 02 and 04. Paper: section 3.2; the official release draws with
replacement and without a seed, and does not look at lengths.
"""

from __future__ import annotations

import random
import statistics
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

from wevo_nb.prompts import ENDED, VALUE, VALUE_REPLIES, scorer_messages
from wevo_nb.schema import Trajectory
from wevo_nb.sections import GateParams, WorldModelParams
from wevo_nb.targets import Row
from wevo_nb.transitions import Transition

NAMED = 3  # rows that a refusal names


class RowError(ValueError):
    """Rows that cannot be trained on."""


def draw_transitions(
    found: Sequence[Transition], params: WorldModelParams, *, seed: int, openings: Sequence[Transition] = ()
) -> tuple[list[Transition], list[dict]]:
    """Transitions to learn from, shuffled, and a ledger (outcome, found, per_start, per_verb, taken) of what is left.

    First at most `per_start` from one start page and `per_verb` of one verb; then, up to the quota
    of each outcome, evenly over the tasks. Without replacement, by `seed`. `openings` are the first
    pages, of which `opening_rows` are taken.
    """
    rng = random.Random(seed)
    pool = rng.sample(list(found), len(found))
    by_start = _at_most(pool, params.per_start, lambda t: t.start)
    by_verb = _at_most(by_start, params.per_verb, lambda t: t.situation.action.verb)
    left = {"found": pool, "per_start": by_start, "per_verb": by_verb}
    taken, ledger = [], []
    for outcome, quota in params.outcome_rows.items():
        chosen = take_evenly(_by_task([t for t in by_verb if t.outcome == outcome]), quota, rng)
        counts = {name: sum(t.outcome == outcome for t in some) for name, some in left.items()}
        ledger.append({"outcome": outcome, **counts, "taken": len(chosen)})
        taken += chosen
    if params.opening_rows:
        chosen = take_evenly(_by_task(openings), params.opening_rows, rng)
        ledger.append(unlimited("first page", len(openings), len(chosen)))
        taken += chosen
    rng.shuffle(taken)
    return taken, ledger


def unlimited(outcome: str, found: int, taken: int) -> dict:
    """A row of the ledger for what neither `per_start` nor `per_verb` limits."""
    return {"outcome": outcome} | dict.fromkeys(("found", "per_start", "per_verb"), found) | {"taken": taken}


def value_rows(trajectories: Sequence[Trajectory], quota: int, *, seed: int) -> list[Row]:
    """Rows that teach how far along an episode is: t / length on a success, 0 on a failure. Source: WMA, value.

    Each asks what look-ahead's scorer `value` asks, about the page that really followed.
    """
    rng = random.Random(seed)
    by_task: dict[str, list[Row]] = {}
    for one in trajectories:
        if one.verdict is None or one.verdict.outcome == "unscored":
            continue
        for i, step, following in one.transitions():
            if step.decision.action is None:
                continue
            value = (i + 1) / len(one.steps) if one.verdict.success else 0.0
            reply = min(VALUE_REPLIES, key=lambda text, v=value: abs(float(text) - v))
            shown = [ENDED if following.done else following.text]
            messages = scorer_messages(one.task, step.observation, step.decision.action, shown, system=VALUE)
            by_task.setdefault(one.task.name, []).append(Row(messages, reply, one.task.name, "value", one.task.key))
    return take_evenly(by_task, quota, rng)


def take_evenly(groups: Mapping[str, Sequence], quota: int, rng: random.Random) -> list:
    """Up to `quota` items, one from each group in turn, each group in random order."""
    piles = {name: rng.sample(list(items), len(items)) for name, items in sorted(groups.items())}
    taken = []
    while len(taken) < quota and any(piles.values()):
        for pile in piles.values():
            if pile and len(taken) < quota:
                taken.append(pile.pop())
    return taken


def gate(
    rows: Sequence[Row],
    lengths: Sequence[int],
    params: GateParams,
    *,
    max_length: int,
    held_out: Collection[str] = (),
    replies: Sequence[int] = (),
    max_tokens: int = 0,
) -> tuple[dict, list[dict]]:
    """Refuses rows that should not be trained on. Returns statistics and what each check found.

    `lengths` are tokens a row, prompt and reply; `held_out` are keys of tasks that are tested on.
    `replies` are tokens of the replies, where they are written under a limit of `max_tokens`.
    A check is (check, rows, share, limit). Raises RowError with the rows named and the cure.
    """
    counts = Counter((row.messages[-1]["content"], row.reply) for row in rows)
    seen: Counter = Counter()
    repeated = []
    for row in rows:
        key = (row.messages[-1]["content"], row.reply)
        seen[key] += 1
        repeated.append(counts[key] > 1 and seen[key] > 1)
    checks = [
        ("longer than max_length", [n > max_length for n in lengths], params.too_long,
         f"raise max_length above {max_length}, or lower observation.max_elements or the history"),
        ("without a reply", [not row.reply.strip() for row in rows], params.empty,
         "a transition without an outcome is a fault of the data: look at the rows"),
        ("longer in the reply than max_tokens", [n > max_tokens for n in replies] or [False] * len(rows),
         params.cut_off, f"raise world_model.max_tokens above {max_tokens}, or take target change"),
        ("repeated", repeated, params.repeated,
         "collect more episodes, or lower the quotas"),
        ("of a held-out task", [row.source in held_out and bool(row.source) for row in rows], params.held_out,
         "a task must not be trained on and tested on: look at tasks.held_out and held_out_share"),
    ]  # fmt: skip
    found = []
    for name, hits, limit, cure in checks:
        share = sum(hits) / max(1, len(rows))
        found.append({"check": name, "rows": sum(hits), "share": share, "limit": limit})
        if share > limit:
            bad = [(i, row, n) for i, (row, n, hit) in enumerate(zip(rows, lengths, hits, strict=True)) if hit]
            named = ", ".join(f"{i} ({row.source or row.task}, {n} tokens)" for i, row, n in bad[:NAMED])
            more = f" and {len(bad) - NAMED} more" if len(bad) > NAMED else ""
            raise RowError(f"{len(bad)} of {len(rows)} rows are {name}: rows {named}{more}: {cure}")
    return {
        "rows": len(rows),
        "median_tokens": statistics.median(lengths) if lengths else 0,
        "longest": max(lengths, default=0),
        "tokens": sum(lengths),
    }, found


def _at_most(pool: Sequence[Transition], limit: int | None, kind: Callable[[Transition], str]) -> list[Transition]:
    if limit is None:
        return list(pool)
    counts: Counter = Counter()
    kept = []
    for transition in pool:
        counts[kind(transition)] += 1
        if counts[kind(transition)] <= limit:
            kept.append(transition)
    return kept


def _by_task(found: Sequence[Transition]) -> dict[str, list[Transition]]:
    by_task: dict[str, list[Transition]] = {}
    for transition in found:
        by_task.setdefault(transition.situation.task.name, []).append(transition)
    return by_task
