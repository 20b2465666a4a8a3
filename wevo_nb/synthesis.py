"""Imagined trajectories: why each was accepted or refused, and the baseline without a world model.

Every trajectory has one cause in the ledger. Acceptance is by a threshold, by rank within a task,
or by a threshold for each kind of task that real held-out ends have set. The baseline lets the
model write a whole trajectory in one go. Used by notebook 03. Paper: section 3.3, Table 1
(Synthetic Traj.); the paper reports no acceptance rate.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from wevo_nb.actions import FENCE
from wevo_nb.llm import Model, Reply, Request
from wevo_nb.observation import is_page
from wevo_nb.policies import decision_of, seed_of
from wevo_nb.prompts import writer_messages
from wevo_nb.runs import JSONL
from wevo_nb.schema import Observation, Step, Task, Trajectory, Verdict
from wevo_nb.sections import WorldModelParams
from wevo_nb.transitions import Situation, Transition, content, transitions
from wevo_nb.world_model import Prediction, chance_of_success, predict

CAUSES = (
    "accepted", "judge no", "unscored", "unparsed", "invented id", "unreadable page", "looped", "horizon",
    "nothing left",
)  # fmt: skip
FEWEST_ENDS = 5  # real ends above a threshold on which it may rest
THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
TRUTH_COLUMNS = ("threshold", "n", "true", "rate", "low", "high")
WRITTEN_PAGE = "PAGE:"
WRITTEN_TOKENS = 200  # a step of a written trajectory


def cause_of(trajectory: Trajectory) -> str:
    """One of CAUSES: what became of a judged imagined trajectory.

    The first that fits: the judge accepted it; it could not be judged; its last reply held no
    action; an action named an element that was not there; a page could not be read; the judge
    said no to an end; the same was done again and again; no action was left; the steps ran out.
    """
    verdict = trajectory.verdict
    if verdict is None or verdict.outcome == "unscored":
        return "unscored"
    if verdict.success:
        return "accepted"
    problems = [o.problem for _, _, o in trajectory.transitions()]
    if trajectory.steps and trajectory.steps[-1].decision.action is None:
        return "unparsed"
    if "no_element" in problems:
        return "invented id"
    if "unreadable" in problems:
        return "unreadable page"
    if trajectory.final.done or trajectory.ended == "stop":
        return "judge no"
    return {"stuck": "looped", "dead_end": "nothing left"}.get(trajectory.ended, "horizon")


def ledger(trajectories: Sequence[Trajectory], *, arm: str) -> list[dict]:
    """Rows of arm, family (the kind of task), outcome (a cause), n."""
    counts: dict[tuple[str, str], int] = {}
    for one in trajectories:
        key = (one.task.name, cause_of(one))
        counts[key] = counts.get(key, 0) + 1
    order = lambda key: (key[0], CAUSES.index(key[1]))  # noqa: E731
    return [{"arm": arm, "family": f, "outcome": c, "n": counts[f, c]} for f, c in sorted(counts, key=order)]


# -- acceptance


class End(NamedTuple):
    """A real end that was predicted: the kind of task, P(success) among the ends, and what it was."""

    family: str
    chance: float
    success: bool


async def real_ends(
    model: Model, kept_back: Sequence[Trajectory], learned: Sequence[Trajectory], params: WorldModelParams
) -> list[End]:
    """The ends of real episodes that were kept back, with the chance of success that the world model gives them.

    Those that are the same in what it learned, page for page, say nothing and are left out.
    """
    known = set(map(content, transitions(learned)))
    ended = [t for t in transitions(kept_back) if t.following.done and content(t) not in known]
    return ends_of(ended, await predict(model, [t.situation for t in ended], params, pages=False))


def ends_of(ended: Sequence[Transition], predictions: Sequence[Prediction]) -> list[End]:
    """Real ends beside what was predicted of them. A dream ends only where an end is predicted, or with a
    `stop`: ends that were not foreseen say nothing about it.
    """
    found = []
    for t, p in zip(ended, predictions, strict=True):
        chance = chance_of_success(p.probabilities)
        if chance is not None and (p.observation.done or t.situation.action.verb == "stop"):
            found.append(End(t.situation.task.name, chance, t.outcome == "success"))
    return found


def calibrate(ends: Sequence[End], *, precision: float, least: float) -> dict[str, float | None]:
    """For each kind of task the lowest threshold, at least `least`, above which the share of real
    successes is `precision` or more; under "" the one of all together, for kinds with few ends above `least`.

    None: no threshold reaches it, so nothing of that kind is accepted.
    """
    families = {family: [e for e in ends if e.family == family] for family in sorted({e.family for e in ends})}
    believed = lambda found: [e for e in found if e.chance >= least]  # noqa: E731
    enough = {family: found for family, found in families.items() if len(believed(found)) >= FEWEST_ENDS}
    return {name: _lowest(found, precision, least) for name, found in {"": list(ends), **enough}.items()}


def _lowest(ends: Sequence[End], precision: float, least: float) -> float | None:
    for threshold in sorted({least, *(e.chance for e in ends if e.chance > least)}):
        above = [e.success for e in ends if e.chance >= threshold]
        if len(above) >= FEWEST_ENDS and sum(above) / len(above) >= precision:
            return threshold
    return None


def accept_calibrated(trajectories: Sequence[Trajectory], thresholds: Mapping[str, float | None]) -> list[Trajectory]:
    """The trajectories with the verdict that the threshold of their kind gives; without an end they keep theirs."""
    out = []
    for one in trajectories:
        threshold = thresholds.get(one.task.name, thresholds.get(""))
        if one.final.reward is not None:
            good = threshold is not None and one.final.reward >= threshold
            told = "no threshold is precise enough" if threshold is None else f"threshold {threshold:.2f}"
            reason = f"reward {one.final.reward:.2f}, {told}"
            verdict = Verdict(outcome="success" if good else "failure", judge="calibrated", reason=reason)
            one = one.model_copy(update={"verdict": verdict})
        out.append(one)
    return out


def accept_by_rank(trajectories: Sequence[Trajectory], rank: int, *, least: float) -> list[Trajectory]:
    """The `rank` surest ends of each task (a page with a seed) are accepted, from P(success) `least` on."""
    by_task: dict[str, list[Trajectory]] = {}
    for one in trajectories:
        if one.final.reward is not None and one.final.reward >= least:
            by_task.setdefault(one.task.key, []).append(one)
    best = {
        one.key
        for found in by_task.values()
        for one in sorted(found, key=lambda t: (-t.final.reward, len(t.steps), t.key))[:rank]
    }
    verdict = lambda one: Verdict(  # noqa: E731
        outcome="success" if one.key in best else "failure", judge="rank", reason=f"rank {rank} of its task"
    )
    return [
        one if one.final.reward is None else one.model_copy(update={"verdict": verdict(one)}) for one in trajectories
    ]


def truth_by_threshold(replayed: Sequence[tuple[float, bool]]) -> list[dict]:
    """For each threshold of P(success): how many replayed trajectories reach it, how many of them were true.

    Columns TRUTH_COLUMNS; `rate` with its 95% interval is a fraction.
    """
    from wevo_nb.intervals import wilson

    rows = []
    for threshold in THRESHOLDS:
        above = [true for chance, true in replayed if chance >= threshold]
        values = (threshold, len(above), sum(above), *wilson(sum(above), len(above)))
        rows.append(dict(zip(TRUTH_COLUMNS, values, strict=True)))
    return rows


def surest(trajectories: Sequence[Trajectory]) -> list[Trajectory]:
    """Of each task the accepted trajectory that the judge is surest of; the shorter one on a tie."""
    best: dict[str, Trajectory] = {}
    for one in sorted(trajectories, key=lambda t: (-(t.final.reward or 0), len(t.steps), t.key)):
        if one.verdict and one.verdict.success:
            best.setdefault(one.task.key, one)
    return list(best.values())


# -- without a world model


async def write_trajectories(
    model: Model,
    judge: Model,
    tasks: Sequence[tuple[Task, Observation]],
    params: WorldModelParams,
    *,
    horizon: int,
    temperature: float,
    seed: int,
) -> list[Trajectory]:
    """For each task and its first page a trajectory that `model` writes whole, its end rewarded by `judge`.

    The judge is a model that is asked for the outcome of the last action: the untrained base, for
    there is no world model here. What cannot be read ends the trajectory where it stands.
    """
    how = {"max_tokens": WRITTEN_TOKENS * horizon, "temperature": temperature}
    asked = [Request(messages=writer_messages(task, page), seed=seed_of(seed, task.key), **how) for task, page in tasks]
    replies = await model(asked)
    found = [read_written(t, page, reply[0], horizon) for (t, page), reply in zip(tasks, replies, strict=True)]
    ends = [one for one in found if one.ended == "done"]
    last = [Situation(t.task, t.steps[:-1], t.steps[-1].observation, t.steps[-1].decision.action) for t in ends]
    rewards = iter([chance_of_success(p.probabilities) for p in await predict(judge, last, params, pages=False)])
    rewarded = lambda one: one.final.model_copy(update={"done": True, "reward": next(rewards)})  # noqa: E731
    return [one.model_copy(update={"final": rewarded(one)}) if one.ended == "done" else one for one in found]


async def write_missing(
    model: Model,
    tasks: Sequence[tuple[Task, Observation]],
    params: WorldModelParams,
    sink: JSONL,
    *,
    batch: int,
    bar,
    **how: float,
):
    """`write_trajectories` of the tasks that are not in `sink` yet, `batch` at a time, each put there at once.

    The model judges its own ends: it is the untrained one. `how`: horizon, temperature, seed.
    """
    there = {one.task.key for one in sink.values()}
    waiting = [(task, page) for task, page in tasks if task.key not in there]
    for start in range(0, len(waiting), batch):
        for one in await write_trajectories(model, model, waiting[start : start + batch], params, **how):
            sink.append(one)
            bar.update()


def read_written(task: Task, page: Observation, reply: Reply, horizon: int) -> Trajectory:
    """The trajectory in a reply: actions in fences, each followed by PAGE: and the elements, or by the end."""
    steps: list[Step] = []
    seen = page
    ended = "limit"
    parts = re.split(r"(?m)^ACTION:", reply.text)[1:] or [reply.text]  # none: a reply without an action
    for i, part in enumerate(parts[:horizon]):
        said, _, shown = part.partition(WRITTEN_PAGE)
        fence = FENCE.search(said)
        decision = decision_of(f"Action:{said.strip()}" if fence else said.strip())
        steps.append(Step(observation=seen, decision=decision, valid=decision.action is not None))
        if decision.action is None:
            break
        text = shown.strip()
        if i == len(parts) - 1 and not text and reply.finish == "stop":
            ended = "done"
            seen = Observation(text="")
            break
        if not is_page(text):
            seen = seen.model_copy(update={"effect": None, "note": "the written page cannot be read"})
            break
        seen = Observation(text=text)
    return Trajectory(task=task, policy="writer", environment="written", steps=tuple(steps), final=seen, ended=ended)
