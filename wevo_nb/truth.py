"""Dreams beside the real page: which are replayed, what came of them, and what the judge's word was worth.

Reads judged dreams and their replays, returns rows and sentences; writes nothing. A dream is true where its
actions, done in the real page, earn the full reward. Used by notebook 03. Paper: section 3.3; it reports
neither how many of the accepted are true nor how many of the refused would have been.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

from wevo_nb.calibration import Pair, truth_of
from wevo_nb.intervals import difference_of_rates, wilson
from wevo_nb.observation import parse_page
from wevo_nb.schema import Task, Trajectory
from wevo_nb.synthesis import CAUSES, THRESHOLDS, cause_of
from wevo_nb.transitions import Situation, Transition, outcome_of

CAUSE_COLUMNS = ("cause", "dreams", "replayed", "true", "rate", "low", "high")
KIND_COLUMNS = (
    "kind", "dreams", "accepted", "accepted_replayed", "accepted_true", "refused_replayed", "refused_true",
    "real_episodes", "real_successes",
)  # fmt: skip


def known_click(real: Sequence[Trajectory], tasks: Sequence[Task]) -> Transition | None:
    """A first step that was really taken, so that it is known what followed.

    Rather one on an element that the objective names, and of these rather one on `tasks`. None: there is no step.
    """
    keys = {task.key for task in tasks}
    firsts = [
        Transition(
            Situation(one.task, (), step.observation, step.decision.action), after, outcome_of(step.observation, after)
        )
        for one in real
        for _, step, after in one.transitions()[:1]
        if step.valid and step.decision.action is not None
    ]
    return min(firsts, key=lambda t: (_names_it(t), t.situation.task.key not in keys), default=None)


def _names_it(transition: Transition) -> int:
    """0: the action is on an element that the objective names; 1: on such a button, as ends a form; 2: on none."""
    task, _, page, action = transition.situation
    found = [e for e in parse_page(page.text) if e.id == action.id and e.name and e.name.lower() in task.goal.lower()]
    return (1 if found[0].role == "button" else 0) if found else 2


def to_replay(dreams: Sequence[Trajectory], how: Literal["none", "accepted", "all"]) -> list[Trajectory]:
    """The judged dreams that `synthesize.replay` wants done again.

    accepted: these, and every end from the first of THRESHOLDS on, for the curve; all: these and
    every other in which something was done, also those that were cut off without an end.
    """
    if how == "none":
        return []
    believed = lambda one: one.verdict.success or (one.final.reward or 0.0) >= THRESHOLDS[0]  # noqa: E731
    return [one for one in dreams if believed(one) or (how == "all" and one.steps)]


def with_truth(dreams: Sequence[Trajectory], replays: Iterable[Trajectory]) -> list[Pair]:
    """Each dream with whether it is true; None: not replayed, the replay broke off, or no page can tell."""
    found = {(one.task.key, one.attempt): truth_of(one) for one in replays}
    return [(one, found.get((one.task.key, one.attempt))) for one in dreams]


def of(pairs: Sequence[Pair], *, accepted: bool) -> list[bool]:
    """The truth of the accepted dreams, or of all others (the refused), as far as it is known."""
    return [true for one, true in pairs if true is not None and one.verdict.success == accepted]


def by_cause(pairs: Sequence[Pair]) -> list[dict]:
    """CAUSE_COLUMNS: for each cause in the order of CAUSES the dreams, those replayed, those true of these.

    `rate` with its 95% interval is a fraction; nan where none was replayed. `accepted` has always a row.
    """
    rows = []
    for cause in CAUSES:
        found = [true for one, true in pairs if cause_of(one) == cause]
        known = [true for true in found if true is not None]
        if found or cause == "accepted":
            values = (cause, len(found), len(known), sum(known), *wilson(sum(known), len(known)))
            rows.append(dict(zip(CAUSE_COLUMNS, values, strict=True)))
    return rows


def by_kind(pairs: Sequence[Pair], real: Sequence[Trajectory]) -> list[dict]:
    """KIND_COLUMNS, counts: the dreams of each kind, beside the real episodes of it that are in `real`."""
    rows = []
    for kind in sorted({one.task.name for one, _ in pairs}):
        mine = [pair for pair in pairs if pair[0].task.name == kind]
        yes, no = of(mine, accepted=True), of(mine, accepted=False)
        met = [true for one in real if one.task.name == kind and (true := truth_of(one)) is not None]
        accepted = sum(one.verdict.success for one, _ in mine)
        values = (kind, len(mine), accepted, len(yes), sum(yes), len(no), sum(no), len(met), sum(met))
        rows.append(dict(zip(KIND_COLUMNS, values, strict=True)))
    return rows


def examples(pairs: Sequence[Pair], most: int = 3) -> list[tuple[str, Trajectory, bool | None]]:
    """Of each cause up to `most` dreams, of different kinds before further ones of a kind, no task twice.

    Where the judge was wrong stands first.
    """
    told = []
    for cause in CAUSES:
        mine = [pair for pair in pairs if cause_of(pair[0]) == cause]
        once: dict[str, Pair] = {}
        for one, true in sorted(mine, key=lambda pair: pair[1] in (None, pair[0].verdict.success)):
            once.setdefault(one.task.key, (one, true))
        nth: Counter[str] = Counter()
        places = []
        for pair in once.values():
            places.append(nth[pair[0].task.name])
            nth[pair[0].task.name] += 1
        ranked = sorted(zip(places, once.values(), strict=True), key=lambda placed: placed[0])
        told += [(cause, *pair) for _, pair in ranked[:most]]
    return told


def without_copies(pairs: Sequence[Pair]) -> list[Pair]:
    """Of dreams with the same task, actions and verdict the first: the others come true, or do not, with it."""
    kept: dict[tuple, Pair] = {}
    for one, true in pairs:
        actions = tuple(step.decision.action for step in one.steps)
        kept.setdefault((one.task.key, actions, one.verdict is not None and one.verdict.success), (one, true))
    return list(kept.values())


# -- in words


def rate(count: int, n: int) -> str:
    """A count in words, e.g. `3 of 4 (75% [30, 95])`."""
    share, low, high = (100 * value for value in wilson(count, n))
    return f"{count} of {n} ({share:.0f}% [{low:.0f}, {high:.0f}])" if n else "0 of 0"


def takeaways(pairs: Sequence[Pair], kept: Sequence[Trajectory], real: Sequence[Trajectory], replay: str) -> list[str]:
    """What a run can say of its dreams and what it cannot, a sentence each.

    `kept`: the dreams that become D_w; `real`: the collected episodes; `replay`: synthesize.replay, for only
    where all were replayed is it known what the judge missed.
    """
    dreams = [one for one, _ in pairs]
    accepted = sum(one.verdict.success for one in dreams)
    kinds = len({one.task.name for one in dreams})
    once = without_copies(pairs)
    yes, no = of(once, accepted=True), of(once, accepted=False)
    said = [
        f"Accepted: {accepted} of {len(dreams)} dreams of {kinds} kinds. Without copies (same task and actions), as "
        f"all that follows: {rate(sum(one.verdict.success for one, _ in once), len(once))}.",
        _of_accepted(yes, of(pairs, accepted=True), accepted),
    ]
    if replay != "all":
        said.append(f"What the judge missed is open: the refused were not replayed (synthesize.replay: {replay}).")
    elif no:
        said += [_of_refused(yes, no), *([_difference(yes, no)] if yes else [])]
    return [*said, _of_kept(pairs, kept, real)]


def _of_accepted(yes: Sequence[bool], with_copies: Sequence[bool], accepted: int) -> str:
    if not yes:
        why = f"none of the {accepted} accepted was replayed" if accepted else "no dream was accepted"
        return f"Whether an accepted dream comes true is open: {why}."
    _, low, high = wilson(sum(yes), len(yes))
    words = "most come true" if low > 0.5 else "most do not" if high < 0.5 else "whether most come true is open"
    copies = f", with copies {sum(with_copies)} of {len(with_copies)}" if len(with_copies) > len(yes) else ""
    return f"True in the real page: {rate(sum(yes), len(yes))} of the accepted{copies}; {words}."


def _of_refused(yes: Sequence[bool], no: Sequence[bool]) -> str:
    every = sum(yes) + sum(no)
    found = f"of all true dreams {rate(sum(yes), every)} were accepted (recall)" if every else "no dream was true"
    return f"Of the refused {rate(sum(no), len(no))} would have been true; {found}."


def _difference(yes: Sequence[bool], no: Sequence[bool]) -> str:
    difference, low, high = difference_of_rates(sum(no), len(no), sum(yes), len(yes))
    words = "whether a success in imagination means anything is open"
    if low > 0 or high < 0:
        words = "a success in imagination means something" if low > 0 else "the judge does worse than chance"
    points = " [".join(f"{100 * value:+.0f}" for value in (difference, low))
    return f"True among the accepted minus true among the refused: {points}, {100 * high:+.0f}] points; {words}."


def _of_kept(pairs: Sequence[Pair], kept: Sequence[Trajectory], real: Sequence[Trajectory]) -> str:
    if not kept:
        return "D_w is empty: the webevolver policy of notebook 04 gets no imagined rows."
    found = {one.key: true for one, true in pairs if true is not None}
    known = [found[one.key] for one in kept if one.key in found]
    new = sorted({one.task.name for one in kept} - {one.task.name for one in real if truth_of(one)})
    news = f"no collected episode solved {', '.join(new)}" if new else "collected episodes solved all of its kinds"
    true = f", {sum(known)} of {len(known)} true" if known else ""
    return f"D_w holds {len(kept)} dreams, one a task{true}; {news}."
