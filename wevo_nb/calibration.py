"""What a judge is worth: its verdicts against the truth, where the page itself tells it.

Reads judged trajectories, returns tidy tables and sentences; writes nothing. The truth is the full
reward of a real page of MiniWoB++ or the sites; of a dream, what its replay in the real page earned.
Every rate has its n and its 95% interval. Notebooks 01, 03, 05 and 06, the report and `wevo figures`. No
table of the paper: it does not say what its judge is worth.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from wevo_nb.intervals import NAN, difference_of_rates, wilson
from wevo_nb.params import Params, flatten
from wevo_nb.runs import JSONL, read_json, run_folder
from wevo_nb.schema import Trajectory, Verdict
from wevo_nb.tasks import LIVE

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ["stage", "judge", "model", "prompt", "metric", "n", "value", "low", "high"]
EXPLORER = "random"  # the policy that no model has learned: whose episodes are nobody's own
UNKNOWN = "no truth is known here: run the same judge on miniwob or sites to see what it is worth"

SAID = {
    "accuracy": "right on",
    "precision": "precision",
    "recall": "recall",
    "false_success": "failures accepted",
    "false_success_own": "those of its own policy",
    "false_success_others": "those of others",
    "unscored": "unscored",
}
BY_RULE = {"reward": "judged by the pages' own reward, the truth", "answer": "judged by the published answers"}

Pair = tuple[Trajectory, bool | None]


def truth_of(trajectory: Trajectory) -> bool | None:
    """Whether an episode really met its goal; None where only a judge could tell, or its environment broke off."""
    if trajectory.environment != "browser" or trajectory.task.suite in LIVE or trajectory.broken:
        return None
    return (trajectory.final.reward or 0.0) >= 1.0


def with_truth(trajectories: Iterable[Trajectory]) -> list[Pair]:
    """Those whose truth is known, each with it."""
    return [(t, truth) for t in trajectories if (truth := truth_of(t)) is not None]


def to_judge(
    judge: str, trajectories: Sequence[Trajectory], explored: Sequence[Trajectory], params: Params
) -> list[Trajectory]:
    """What a judge reads of a collection: all that is learned from where collect.judge is this one.

    Else a sample of the policy's and one of the explorer's episodes, collect.llm_judge_sample of each,
    where their truth is known.
    """
    sample = lambda some: _spread([t for t, _ in with_truth(some)], params.collect.llm_judge_sample)  # noqa: E731
    if judge != params.collect.judge:
        return [*sample(trajectories), *sample(explored)]
    return [*trajectories, *(explored if "policy" in params.collect.explorer_teaches else sample(explored))]


def calibrate(pairs: Iterable[Pair], *, stage: str, base: str = "") -> list[dict]:
    """Rows of COLUMNS, one a judge and metric, of judged trajectories beside their truth; none of the reward's own.

    accuracy of what it scored; precision (of what it accepts, the share that is true), recall (of
    what is true, the share that it accepts), false_success (of what is false, the share that it accepts);
    false_success_own and _others: of what is false by policies that its own model, `base`, became, and by
    others (the explorer; where the judge's model is not `base`, all); own_bias: the difference of the two;
    unscored of all. A verdict that names no model, of an earlier version, is in neither of the two.
    """
    by_judge: dict[tuple, list[Pair]] = {}
    for one, true in pairs:
        if one.verdict is not None and one.verdict.judge != "reward":
            by_judge.setdefault((one.verdict.judge, one.verdict.model, one.verdict.prompt), []).append((one, true))
    rows = []
    for (judge, model, prompt), found in sorted(by_judge.items()):
        told = {"stage": stage, "judge": judge, "model": model, "prompt": prompt}
        rows += [told | row for row in _measured(found, own=model == base and bool(model))]
    return rows


def _measured(found: Sequence[Pair], *, own: bool) -> list[dict]:
    scored = [(t, t.verdict.success, true) for t, true in found if t.verdict.outcome != "unscored"]
    false = [(t, accepted) for t, accepted, true in scored if not true]
    mine = [accepted for t, accepted in false if own and t.policy != EXPLORER]
    others = [accepted for t, accepted in false if t.verdict.model and not (own and t.policy != EXPLORER)]
    return [
        _share("accuracy", [accepted == true for _, accepted, true in scored]),
        _share("precision", [true for _, accepted, true in scored if accepted]),
        _share("recall", [accepted for _, accepted, true in scored if true]),
        _share("false_success", [accepted for _, accepted in false]),
        _share("false_success_own", mine),
        _share("false_success_others", others),
        _difference("own_bias", mine, others),
        _share("unscored", [t.verdict.outcome == "unscored" for t, _ in found]),
    ]


def _share(metric: str, values: Sequence[bool]) -> dict:
    return _rate(metric, sum(values), len(values))


def _rate(metric: str, count: int, n: int) -> dict:
    value, low, high = wilson(count, n)
    return {"metric": metric, "n": n, "value": value, "low": low, "high": high}


def _difference(metric: str, a: Sequence[bool], b: Sequence[bool]) -> dict:
    """Of two shares of different episodes, a minus b."""
    row = {"metric": metric, "n": len(a) + len(b)}
    value, low, high = difference_of_rates(sum(b), len(b), sum(a), len(a))
    return row | {"value": value, "low": low, "high": high}


def of_run(folder: Path) -> pd.DataFrame:
    """COLUMNS of every judge that the finished stages of a run used, from their records alone.

    So it works for runs that are older than this module; their verdicts name no model and no prompt.
    """
    import pandas as pd

    rows = []
    for stage in sorted(folder.glob("iter-*/01_collect")):
        if (stage / "manifest.json").exists():
            judged = [t for path in sorted(stage.glob("*_judge.jsonl")) for t in JSONL(path, Trajectory).values()]
            name = f"{stage.parent.name}/{stage.name}"
            rows += calibrate(with_truth(judged), stage=name, base=_base_of(stage)) if judged else []
    dreams = folder / "03_synthesize"
    if (dreams / "manifest.json").exists():
        truth = json.loads((dreams / "metrics.json").read_text()).get("truth") or {"true": 0, "replayed": 0}
        rows += of_dreams(JSONL(dreams / "accepted.jsonl", Trajectory).values(), **truth)
    arms = [path.parent for path in sorted((folder / "05_wmla").glob("*/manifest.json")) if _by_a_model(path.parent)]
    tested = [t for arm in arms for t in JSONL(arm / "trajectories.jsonl", Trajectory).values()]
    rows += calibrate(with_truth(tested), stage="05_wmla", base=_base_of(arms[0])) if arms else []
    return pd.DataFrame(rows, columns=COLUMNS)


def behind(run: str) -> str:
    """What judged the held-out episodes of a run and what it is worth; empty where no arm is finished.

    A judge by a model that was asked about no held-out episode with a known truth is told by what it was worth in the
    run's other stages.
    """
    folder = run_folder(run)
    arms = sorted((folder / "05_wmla").glob("*/manifest.json"))
    noted = [read_json(arm.with_name("params.json"))["params"].get("collect.judge") for arm in arms]
    judges = [judge for judge in dict.fromkeys(noted) if judge]
    worth = of_run(folder).to_dict("records") if set(judges) - set(BY_RULE) else []
    return "; ".join(f"held-out episodes: {beside(judge, worth).rstrip('.')}" for judge in judges)


def _by_a_model(arm: Path) -> bool:
    """Whether its episodes were judged by more than the reward: as the first of them was."""
    with (arm / "trajectories.jsonl").open() as lines:
        first = next(lines, "")
    verdict = Trajectory.model_validate_json(first).verdict if first else None
    return verdict is not None and verdict.judge != "reward"


def of_dreams(accepted: Sequence[Trajectory], true: int, replayed: int) -> list[dict]:
    """The precision of whoever accepted dreams: `true` of `replayed` succeeded in the real page.

    Rows of COLUMNS; none where nothing was accepted. What the refused were worth: truth.by_cause.
    """
    by = {(t.verdict.judge, t.verdict.model, t.verdict.prompt) for t in accepted}
    return [
        {"stage": "03_synthesize", "judge": judge, "model": model, "prompt": prompt}
        | _rate("precision", true, replayed)
        for judge, model, prompt in by
    ]


def _base_of(stage: Path) -> str:
    """The model that a stage's policies were made of."""
    return flatten(json.loads((stage / "params.json").read_text())["params"])["roles.policy.base"]


def describe(rows: Sequence[Mapping]) -> str:
    """Each judge in a sentence, to stand beside the numbers that it made."""
    judges: dict[tuple, dict[str, Mapping]] = {}
    for row in rows:
        key = (row["stage"], row["judge"], row["model"], row["prompt"])
        judges.setdefault(key, {})[row["metric"]] = row
    return "\n".join(_sentence(key, found) for key, found in judges.items()) or UNKNOWN


def beside(judge: str, rows: Sequence[Mapping]) -> str:
    """What stands beside every number that a judge made: what it is worth."""
    return BY_RULE.get(judge) or describe([row for row in rows if row["judge"] == judge])


def tells(judge: str, rows: Sequence[Mapping]) -> str:
    """Whether a judge tells successes from failures: the shares of both that it accepts, and their difference.

    A sentence for each model and prompt of that name in `rows`; empty where it was not
    asked about both. The interval
    is Newcombe's, of two different groups of episodes.
    """
    found: dict[tuple, dict[str, Mapping]] = {}
    for row in rows:
        if row["judge"] == judge:
            found.setdefault((row["model"], row["prompt"]), {})[row["metric"]] = row
    return "\n".join(
        _told_apart(judge, one["recall"], one["false_success"]) for one in found.values() if "recall" in one
    )


def _told_apart(judge: str, recall: Mapping, false: Mapping) -> str:
    counts = [(round(row["value"] * row["n"]) if row["n"] else 0, row["n"]) for row in (recall, false)]
    (right, n_right), (wrong, n_wrong) = counts
    said = f"Judge {judge} calls {right} of {n_right} successes and {wrong} of {n_wrong} failures a success"
    if not (n_right and n_wrong):
        return f"{said}: too little to say whether it tells them apart."
    gap, low, high = difference_of_rates(wrong, n_wrong, right, n_right)
    ends = f"{100 * gap:+.0f} points [{100 * low:+.0f}, {100 * high:+.0f}]"
    if low <= 0 <= high:
        return f"{said}, {ends}: whether it tells them apart is open."
    return f"{said}, {ends}: it {'tells them apart' if low > 0 else 'takes one for the other'}."


def lives_on(judge: str, rows: Sequence[Mapping]) -> str:
    """The precision on which rejection sampling by this judge lives: what is missing to all of it is false data."""
    found = [row for row in rows if row["judge"] == judge and row["metric"] == "precision" and row["n"]]
    if judge in BY_RULE or not found:
        return f"Of what is kept: {beside(judge, [])}."
    return f"What is kept lives on the precision of judge {judge}: {'; '.join(map(_counted, found))} accepted are true."


def _sentence(key: tuple, found: Mapping[str, Mapping]) -> str:
    stage, judge, model, prompt = key
    n = lambda metric: found[metric]["n"] if metric in found else 0  # noqa: E731
    told = [m for m in SAID if n(m) and (not m.startswith("false_success_") or n("false_success_own"))]
    parts = [f"{SAID[metric]} {_counted(found[metric])}" for metric in told]
    bias = found.get("own_bias", {"value": NAN})
    if bias["value"] == bias["value"]:
        points = [round(100 * bias[k]) for k in ("value", "low", "high")]
        parts.append("bias for its own {:+d} points [{:+d}, {:+d}]".format(*points))
    worth = "; ".join(parts) or "none of its verdicts can be checked"
    by = Verdict(outcome="unscored", judge=judge, model=model, prompt=prompt).by
    return f"{stage}, judge {by}: {worth}."


def _counted(row: Mapping) -> str:
    return f"{round(row['value'] * row['n'])} of {row['n']} ({row['value']:.0%} [{row['low']:.0%}, {row['high']:.0%}])"


def _spread(items: Sequence[Trajectory], most: int) -> list[Trajectory]:
    """At most so many, evenly spread."""
    return list(items[:: max(1, len(items) // max(1, most))][:most])
