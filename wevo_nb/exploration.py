"""Why self-improvement stalls: what the collections of each iteration still hold that is new.

Reads the trajectories of the iterations (schema.py), returns a table with one row an iteration and
metric, and the sentences that read it; writes nothing. A policy that is trained on its own
successes meets the same pages, does the same there and solves the same tasks. Used by notebook 06.
Paper: section 4, self-improvement over iterations.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from wevo_nb.intervals import NAN, Z95, wilson
from wevo_nb.metrics import paired_table
from wevo_nb.observation import element_of
from wevo_nb.schema import Task, Trajectory

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ["arm", "iteration", "metric", "value", "n", "low", "high"]
SPOKEN = {  # metric: its name in a sentence, the format of its values
    "acceptance": ("acceptance", "{:.0%}"),
    "entropy": ("entropy", "{:.2f} nats"),
    "pages_per_episode": ("the number of different pages an episode", "{:.2f}"),
    "actions_per_page": ("the number of different actions a page", "{:.2f}"),
    "similarity": ("similarity to the iteration before", "{:.2f}"),
}
Estimate = tuple[float, int, float, float]  # value, n, and the ends of its 95% interval
Act = tuple[str, str, str]  # role and name of what it was done to, and its verb
Postings = dict[Act, dict[int, list[frozenset[Act]]]]  # act, size: the sets of that size which hold it


def stall_table(collections: Mapping[int, Sequence[Trajectory]], *, arm: str) -> pd.DataFrame:
    """One row an iteration and metric: arm, iteration, metric, value, n, low, high.

    `collections` maps iterations to the trajectories collected in them, judged (judge_all):
    acceptance and new_tasks read the verdicts. One that its environment broke off is left out.
    low and high are a 95% interval, nan where `value` is a count or comes from one episode or page
    alone; `value` is nan where n is 0.

    - distinct_pages: different page texts seen; n episodes
    - pages_per_episode: the same an episode, in as many episodes as the smallest iteration has
    - actions_per_page: different actions done on a page on which several were done; n pages
    - similarity: of a trajectory to the most similar one of the iteration before and the same kind
      of task, 0 to 1; n trajectories that have one to be compared with
    - entropy: of the policy, in nats; n decisions that tell it
    - acceptance: share of the scored episodes that succeeded; n scored episodes
    - new_tasks: kinds of task solved that no earlier iteration solved; n kinds that were tried
    """
    import pandas as pd

    whole = {i: [t for t in collections[i] if not t.broken] for i in sorted(collections)}
    fewest = min((len(group) for group in whole.values()), default=0)
    rows, earlier, before = [], [], []
    for iteration, group in whole.items():
        found = {
            "distinct_pages": (float(len(_pages_seen(group))), len(group), NAN, NAN),
            "pages_per_episode": _rarefied(group, fewest),
            "actions_per_page": _mean([[len(done)] for done in _actions_by_page(group)]),
            "similarity": _similarity(group, before),
            "entropy": _mean([[e for s in t.steps if (e := s.decision.entropy) is not None] for t in group]),
            "acceptance": _acceptance(group),
            "new_tasks": _new_tasks(group, earlier),
        }
        rows += [(arm, iteration, metric, *estimate) for metric, estimate in found.items()]
        earlier, before = earlier + group, group
    return pd.DataFrame(rows, columns=COLUMNS)


def describe_stall(table: pd.DataFrame, tests: Mapping[str, Mapping[int, Sequence[Trajectory]]] | None = None) -> str:
    """What changes from the first iteration to the last: a heading an arm, a line a measure, with values and n.

    `table` holds one `stall_table` or several on top of one another. A metric is level where the
    95% interval of its change holds 0; without an interval it moves, which says nothing. `tests` are the
    trajectories of arms that met the same tasks in every iteration: their acceptance is compared in pairs.
    """
    said = []
    for arm, rows in table.groupby("arm", sort=False):
        by_metric = {metric: part.dropna(subset="value") for metric, part in rows.groupby("metric")}
        said.append(f"{arm}, iterations {rows['iteration'].min()} to {rows['iteration'].max()}:")
        for metric in (m for m in SPOKEN if m in by_metric and len(by_metric[m])):
            groups = (tests or {}).get(arm, {}) if metric == "acceptance" else {}
            said.append(f"  {_change(by_metric[metric], *SPOKEN[metric], way=_paired_way(groups))}")
        new = by_metric.get("new_tasks")
        if new is not None and len(new):
            counts, tried = (", ".join(f"{value:.0f}" for value in new[key]) for key in ("value", "n"))
            said.append(f"  kinds solved that no earlier iteration solved: {counts} (of {tried} that were tried)")
    return "\n".join([*said, "Level: the 95% interval of the change holds 0."] if said else ["No iteration yet."])


def kind(task: Task) -> tuple[str, str, str]:
    """What makes tasks of different seeds the same task: every iteration draws seeds of its own."""
    return task.suite, task.name, task.site


def done_in(trajectory: Trajectory) -> frozenset[Act]:
    """The actions of a trajectory as (role, name, verb) of what they were done to, texts left aside."""
    found = set()
    for step in trajectory.steps:
        if (action := step.decision.action) is not None:
            element = element_of(step.observation.text, action.id)
            found.add((element.role if element else "", element.name if element else "", action.verb))
    return frozenset(found)


def _pages_seen(group: Sequence[Trajectory]) -> Counter[str]:
    """The pages by text, with the number of episodes that saw each."""
    return Counter(
        page for t in group for page in {o.text for o in (*(s.observation for s in t.steps), t.final)} if page
    )


def _rarefied(group: Sequence[Trajectory], episodes: int) -> Estimate:
    """Different pages an episode, expected in `episodes` of the group's episodes drawn without replacement.

    More episodes see fewer new pages each, so numbers must be alike to compare. A page is missed
    where none of the episodes that saw it is drawn. The interval is for episodes drawn anew, with
    Chao's estimate of the pages that nobody saw. Source: rarefaction of incidences, Colwell et al.
    2012, Journal of Plant Ecology 5(1).
    """
    seen, total = _pages_seen(group), len(group)
    if not episodes or not seen:
        return (0.0 if episodes else NAN), total, NAN, NAN
    met = [1 - math.comb(total - times, episodes) / math.comb(total, episodes) for times in seen.values()]
    once, twice = (list(seen.values()).count(times) for times in (1, 2))
    unseen = (total - 1) / total * once * (once - 1) / (2 * (twice + 1))
    variance = sum(chance**2 for chance in met) - sum(met) ** 2 / (len(seen) + unseen)
    half = Z95 * math.sqrt(max(variance, 0.0))
    low, high = ((sum(met) + way * half) / episodes for way in (-1, 1))
    return sum(met) / episodes, total, max(low, 0.0), high


def _actions_by_page(group: Sequence[Trajectory]) -> list[set]:
    """The different actions done on each page on which at least two were done, in how many episodes ever."""
    done: dict[str, list] = {}
    for step in (step for t in group for step in t.steps if step.decision.action is not None):
        done.setdefault(step.observation.text, []).append(step.decision.action)
    return [set(actions) for actions in done.values() if len(actions) > 1]


def _similarity(group: Sequence[Trajectory], earlier: Sequence[Trajectory]) -> Estimate:
    """Mean over the group of the largest Jaccard index of `done_in` with an earlier trajectory of the kind.

    A trajectory without any action is compared with none.
    """
    ours, theirs = (Counter((kind(t.task), done_in(t)) for t in some) for some in (group, earlier))
    known: dict[tuple, Postings] = {}
    for task, done in theirs:
        for action in done:
            known.setdefault(task, {}).setdefault(action, {}).setdefault(len(done), []).append(done)
    largest: list[list[float]] = []
    for (task, done), times in ours.items():
        if done and task in known:
            largest += [[_largest_jaccard(done, known[task])]] * times
    return _mean(largest, most=1.0)


def _largest_jaccard(done: frozenset, known: Postings) -> float:
    """The largest Jaccard index of `done` with a set of `known`: exact, and few of the sets are looked at.

    The rarest action of `done` first: a set that has none of the actions before shares at most the
    `left` others, and a set of another size shares still less. Source: Bayardo et al. 2007, WWW,
    Scaling up all pairs similarity search.
    """
    jaccard: Callable[[int, int], float] = lambda shared, size: shared / (len(done) + size - shared)  # noqa: E731
    rarest = sorted(done, key=lambda action: sum(map(len, known.get(action, {}).values())))
    best = 0.0
    for left, action in zip(range(len(done), 0, -1), rarest, strict=True):
        most = {size: jaccard(min(left, size), size) for size in known.get(action, {})}
        for size in sorted(most, key=most.__getitem__, reverse=True):
            for other in known[action][size]:
                if best >= most[size]:
                    break
                best = max(best, jaccard(len(done & other), size))
    return best


def _acceptance(group: Sequence[Trajectory]) -> Estimate:
    scored = [t.verdict.success for t in group if t.verdict and t.verdict.outcome != "unscored"]
    rate, low, high = wilson(sum(scored), len(scored))
    return rate, len(scored), low, high


def _new_tasks(group: Sequence[Trajectory], earlier: Sequence[Trajectory]) -> Estimate:
    solved, before = ({kind(t.task) for t in some if t.verdict and t.verdict.success} for some in (group, earlier))
    return float(len(solved - before)), len({kind(t.task) for t in group}), NAN, NAN


def _mean(groups: Sequence[Sequence[float]], *, most: float = math.inf) -> Estimate:
    """The mean of values from 0 to `most`, their number, and a 95% interval that takes each group as one draw.

    The interval is that of a ratio of sums over groups (Cochran 1977, Sampling Techniques, 6.4), so
    that the decisions of one episode do not count as independent; nan with fewer than two groups.
    """
    groups = [values for values in groups if values]
    n = sum(map(len, groups))
    if not n:
        return NAN, 0, NAN, NAN
    mean = sum(map(sum, groups)) / n
    if len(groups) < 2:
        return mean, n, NAN, NAN
    spread = sum((sum(values) - mean * len(values)) ** 2 for values in groups)
    half = Z95 * math.sqrt(spread * len(groups) / (len(groups) - 1)) / n
    return mean, n, max(mean - half, 0.0), min(mean + half, most)


def _paired_way(groups: Mapping[int, Sequence[Trajectory]]) -> str:
    """rises, falls or is level, with the paired difference from the first to the last group; nothing of fewer."""
    if len(groups) < 2:
        return ""
    first, last = (groups[end(groups)] for end in (min, max))
    rows = paired_table({"first": first, "last": last}, [("first", "last")])
    row = rows.loc[rows["n"].idxmax()] if len(rows) else {"n": 0}
    if not row["n"]:
        return ""
    points, low, high = (round(100 * row[key]) for key in ("difference", "low", "high"))
    way = "is level" if row["low"] <= 0 <= row["high"] else "rises" if points > 0 else "falls"
    return f"{way} ({points:+d} points [{low:+d}, {high:+d}] on the same episodes)"


def _change(rows: pd.DataFrame, name: str, form: str, way: str = "") -> str:
    """How a metric moved, e.g. `entropy falls, 1.20 nats to 0.40 nats (n = 30, 28)`; `way` where that is known."""
    first, last = rows.iloc[0], rows.iloc[-1]
    if len(rows) == 1:
        return f"{name} is {form.format(last['value'])} in iteration {last['iteration']} alone (n = {last['n']})"
    values = f"{form.format(first['value'])} to {form.format(last['value'])}"
    return f"{name} {way or _way(first, last)}, {values} (n = {first['n']}, {last['n']})"


def _way(first: Mapping, last: Mapping) -> str:
    """falls, rises, is level; moves where an interval is missing. That of a change is made of the two values' own.

    Source: Newcombe 1998, Statistics in Medicine 17, 873-890 (method 10; MOVER for means).
    """
    change = last["value"] - first["value"]
    near, far = ("high", "low") if change > 0 else ("low", "high")  # the ends that face one another
    within = math.hypot(first[near] - first["value"], last[far] - last["value"])
    if math.isnan(within):
        return "moves"
    if abs(change) <= within:
        return "is level"
    return "rises" if change > 0 else "falls"
