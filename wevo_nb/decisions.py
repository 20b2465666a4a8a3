"""What looking ahead did: how episodes ended, how often it chose otherwise and what for, what that cost, in words too.

Reads trajectories and the tables of metrics.py, returns tables and sentences; writes nothing. Notebook 05.
Paper: section 3.4, which reports neither endings nor cost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from wevo_nb.comparisons import SAME, told
from wevo_nb.metrics import different

if TYPE_CHECKING:
    import pandas as pd

    from wevo_nb.schema import Candidate, Decision, Trajectory

ENDINGS = ("success", "wrong end", "out of steps", "other", "unscored")
OUTCOMES = ("success", "changed", "same", "failure")  # the best first, as the outcome scorer sees them
ENDINGS_COLUMNS = ["arm", "n", *ENDINGS]
CHOICE_COLUMNS = [
    "arm", "decisions", "overruled", "overruled %", "tied %", *(f"{outcome} %" for outcome in OUTCOMES), "calls",
    "tokens", "seconds", "seconds an episode",
]  # fmt: skip
QUESTIONS = {  # of the pairs that `takeaways` puts together
    "training": "Did training help",
    "more": "Did later rounds, or dreams, add to it",
    "ahead": "Did looking ahead help",
    "world model": "Was it the world model (against best-of-k)",
    "control": "Did best-of-k itself help",
}


def ending(one: Trajectory) -> str:
    """One of ENDINGS: wrong end, a failure that the page or a `stop` ended; other: stuck or without a valid action."""
    if one.verdict is None or one.verdict.outcome == "unscored":
        return "unscored"
    if one.verdict.success:
        return "success"
    return {"done": "wrong end", "stop": "wrong end", "limit": "out of steps"}.get(one.ended, "other")


def endings_table(trajectories_by_arm: Mapping[str, Iterable[Trajectory]], split: str) -> pd.DataFrame:
    """How the episodes of each arm ended on one split, ENDINGS_COLUMNS, as counts; n as in `metrics.success_table`."""
    import pandas as pd

    rows = []
    for arm, trajectories in trajectories_by_arm.items():
        ended = Counter(ending(t) for t in different(trajectories) if t.task.split == split)
        rows.append({"arm": arm, "n": ended.total() - ended["unscored"]} | {kind: ended[kind] for kind in ENDINGS})
    return pd.DataFrame(rows, columns=ENDINGS_COLUMNS)


def chosen(decision: Decision) -> Candidate | None:
    """The candidate that was done; None where there were none."""
    return next((c for c in decision.candidates if c.reply.startswith(decision.reply)), None)


def tied(decision: Decision) -> bool | None:
    """Whether several candidates share the best score; None where none was scored."""
    scores = [candidate.score for candidate in decision.candidates if candidate.score is not None]
    return scores.count(max(scores)) > 1 if scores else None


def choices_table(
    lookahead: pd.DataFrame, trajectories_by_arm: Mapping[str, Iterable[Trajectory]], split: str
) -> pd.DataFrame:
    """What each arm decided on one split and what that cost, CHOICE_COLUMNS.

    `lookahead` is a `metrics.lookahead_table` of the same episodes. `success %` and so on: of the decisions with a
    predicted outcome those in which it was the likeliest of the candidate that was done (nan where none was
    predicted). `tied %`: of the decisions with scores those in which several candidates share the best one, so that
    the scores do not choose. calls, tokens and seconds are means a decision.
    """
    import pandas as pd

    rows = []
    for row in lookahead[lookahead["split"] == split].to_dict("records"):
        arm = f"{row['policy']}+{row['preset']}" if row["preset"] else row["policy"]
        episodes = [t for t in trajectories_by_arm[arm] if t.task.split == split]
        decisions = [step.decision for one in episodes for step in one.steps]
        done = [chosen(decision) for decision in decisions]
        ties = [told for decision in decisions if (told := tied(decision)) is not None]
        likeliest = Counter(c.likeliest for c in done if c is not None and c.likeliest)
        share = lambda part, whole: 100 * part / whole if whole else float("nan")  # noqa: E731
        row |= {"arm": arm, "overruled %": share(row["overruled"], row["decisions"])}
        row |= {"tied %": share(sum(ties), len(ties))}
        row |= {f"{outcome} %": share(likeliest[outcome], likeliest.total()) for outcome in OUTCOMES}
        row["seconds an episode"] = row["seconds"] * row["decisions"] / len(episodes)
        rows.append(row)
    return pd.DataFrame(rows, columns=CHOICE_COLUMNS)


def takeaways(pairs: pd.DataFrame, new_kinds: pd.DataFrame, endings: pd.DataFrame, choices: pd.DataFrame) -> list[str]:
    """What the tables say, a sentence or two a question; arms and questions without a row are left out.

    pairs, new_kinds: `comparisons.pairs_table` of the held-out seeds and of the held-out kinds; endings and choices:
    the tables above, of the held-out seeds.
    """
    said = []
    for kind, question in QUESTIONS.items():
        rows = [row for row in pairs.to_dict("records") if kind_of(row["arm"], row["against"]) == kind]
        if rows:
            said.append(f"{question}? {_by_result(rows)}")
    by_arm, ended = ({row["arm"]: row for row in table.to_dict("records")} for table in (choices, endings))
    did = [_did(arm, by_arm, ended) for arm in by_arm if "+" in arm]
    if did:
        said.append(f"What did looking ahead do? {' '.join(did)}")
    if len(new_kinds):
        settled = new_kinds[new_kinds["result"].isin(["better", "worse"])].to_dict("records")
        counted = f"{len(settled)} of {len(new_kinds)} pairs (n = {new_kinds['n'].max()} at most) are off 0."
        said.append(f"Does it hold for kinds never trained on? {counted} {_by_result(settled)}".strip())
    return said


def kind_of(arm: str, against: str) -> str:
    """What a pair asks about, a key of QUESTIONS; empty where two things differ."""
    policy, plus, preset = arm.partition("+")
    if not plus:
        return "training" if against == "zero_shot" else "more"
    control = preset.startswith("best_of_k")
    if against == policy:
        return "control" if control else "ahead"
    return "world model" if not control and against.startswith(f"{policy}+best_of_k") else ""


def _by_result(rows: Sequence[Mapping]) -> str:
    """The pairs by what they show, as one sentence a result."""
    heads = {"better": "Better", "worse": "Worse", "open": "Open (the interval holds 0)", SAME: "The very same actions"}
    groups = {head: [told(row) for row in rows if row["result"] == result] for result, head in heads.items()}
    return " ".join(f"{head}: {'; '.join(some)}." for head, some in groups.items() if some)


def _did(arm: str, choices: Mapping[str, Mapping], endings: Mapping[str, Mapping]) -> str:
    """How often an arm overruled its policy, what for, how its episodes ended, and its price; rows by arm."""
    row, (policy, _, preset) = choices[arm], arm.partition("+")
    said = f"{arm} overruled {row['overruled']} of {row['decisions']} decisions"
    if preset.startswith("best_of_k"):
        return f"{said}."
    if row["success %"] == row["success %"]:
        said += f" and found success the likeliest outcome of what it did in {row['success %']:.0f}%"
    said += f"; {endings[arm]['out of steps']} of {endings[arm]['n']} episodes ran out of steps"
    price = f"{row['calls']:.1f} calls and {row['seconds']:.1f} s a decision"
    if policy not in choices:
        return f"{said}; {price}."
    own = choices[policy]
    said += f", {endings[policy]['out of steps']} of {endings[policy]['n']} without looking ahead"
    return f"{said}; {price} in place of {own['calls']:.1f} and {own['seconds']:.1f} s."
