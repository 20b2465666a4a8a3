"""Which arms are compared with which, and how a comparison is told: what it shows, or what it could have shown.

Reads the tables of metrics.py, returns pairs of names, tables and sentences; writes nothing. Notebooks 05 and 06.
Paper: Table 1, whose steps these pairs are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

from wevo_nb.intervals import ALPHA, FEW_CLUSTERS, NAN, detectable, holm
from wevo_nb.metrics import Clusters, iteration_of, main_split
from wevo_nb.sections import EQUAL, FINAL_ARMS

if TYPE_CHECKING:
    import pandas as pd

    from wevo_nb.schema import Trajectory

SAME = "same actions"  # the result of a pair that did the very same: one policy under two names, or nothing overruled
PAIRS_COLUMNS = ["arm", "against", "n", "won", "lost", "points", "low", "high", "p", "result"]
KINDS = {"family": "task families", "site": "sites"}  # of clusters, in a sentence
SETTLED, LEANING, OPEN, TWIN, NOTHING = "settled", "leaning", "open", "same policy", "no episode"  # of a pair
ASKED = ("Does self-improvement help?", "Do dreams help?", "Does look-ahead help?")  # the three claims of the paper


# -- which pairs


def reported(arms: Sequence[str]) -> list[tuple[str, str]]:
    """The pairs (a, b) the notebooks report, b against a, among the arms that are there.

    Every arm against zero_shot; each iteration against the one before; each final policy against
    the first and the last iteration, and webevolver against every other of them; those of equal size
    against one another; each look-ahead arm against its own policy, and against its control (`control_of`).
    """
    improved = sorted((a for a in arms if iteration_of(a)), key=iteration_of)
    wanted = [("zero_shot", arm) for arm in arms]
    wanted += [(f"self_improve_{iteration_of(arm) - 1}", arm) for arm in improved]
    final = [arm for arm in arms if arm in FINAL_ARMS]
    wanted += [(arm, last) for last in final for arm in (*improved[:1], *improved[-1:])]
    wanted += [(arm, "webevolver") for arm in final]
    wanted += combinations((arm for arm in EQUAL if arm in final), 2)
    for arm in arms:
        policy, plus, preset = arm.partition("+")
        if plus:
            wanted += [(policy, arm), *((f"{policy}+{control}", arm) for control in filter(None, [control_of(preset)]))]
    there = [(a, b) for a, b in wanted if a != b and a in arms and b in arms]
    return list(dict.fromkeys(there))


def control_of(preset: str) -> str:
    """The preset with as many candidates and the same scorer that imagines nothing; empty where there is none.

    None asks for a value of what was not imagined; one that names its k has a control of that k only by luck; tree
    search imagines nothing itself.
    Source: the presets of params/base.yaml.
    """
    if re.fullmatch(r"wmla_d\d", preset):
        return "best_of_k"
    if preset in ("expected", "veto", "likelihood"):
        return f"best_of_k_{preset}"
    return "best_of_k_llm" if preset in ("webdreamer", "paper", "released_code") else ""


def mark_twins(paired: pd.DataFrame, alike: Sequence[tuple[str, str]]) -> pd.DataFrame:
    """A `paired_table` with a last column same_policy, and p_holm corrected for the other rows alone.

    `alike` are pairs of arms (the earlier, the later) that are one policy under two names (`noise.same_policy`).
    A row is marked where it compares a policy with itself, and where it repeats another row under the later name:
    neither is a comparison of its own, and Holm's correction asks more of every row that it counts. p_holm of a
    marked row is nan.
    """
    first = {later: earlier for earlier, later in alike}
    pairs = list(dict.fromkeys(zip(paired["arm_a"], paired["arm_b"], strict=True)))
    seen, marked = {frozenset(pair) for pair in pairs}, set()
    for pair in pairs:
        same = frozenset(first.get(arm, arm) for arm in pair)
        if len(same) == 1 or (same != frozenset(pair) and same in seen):
            marked.add(pair)
        seen.add(same)
    same_policy = [pair in marked for pair in zip(paired["arm_a"], paired["arm_b"], strict=True)]
    p_holm = holm([NAN if same else p for p, same in zip(paired["p"], same_policy, strict=True)])
    return paired.assign(p_holm=p_holm, same_policy=same_policy).astype({"same_policy": bool, "p_holm": float})


def learned_from(policy: str) -> str:
    """What a policy learned from, in words, e.g. of `self_improve_2`."""
    iteration = iteration_of(policy)
    if iteration is None:
        return FINAL_ARMS.get(policy, "nothing: it acts at random")
    if iteration > 1:
        return f"real successes of iterations 1 to {iteration}"
    return "D_1, the real successes of iteration 1" if iteration else "nothing: the base model as it came"


def arms_table(arms: Sequence[str], alike: Sequence[tuple[str, str]] = ()) -> pd.DataFrame:
    """One row an arm: what its policy learned from, what it decides by. `alike` as in `mark_twins`."""
    import pandas as pd

    first = {later: earlier for earlier, later in alike}
    rows = []
    for arm in arms:
        policy, _, preset = arm.partition("+")
        twin = f"; the same rows as {first[arm]}: one policy" if arm in first else ""
        imagined = "nothing imagined" if preset.startswith("best_of_k") else preset
        how = f"the best of its candidates, {imagined}" if preset else "its likeliest action"
        rows.append((arm, learned_from(policy) + twin, how))
    return pd.DataFrame(rows, columns=["arm", "learned from", "decides by"]).set_index("arm")


# -- in words


def describe_clusters(table: pd.DataFrame, clusters: Clusters = "family") -> list[str]:
    """What drawing whole clusters does to the intervals of a `success_table` or `paired_table`: a sentence a split."""
    said = []
    for split, rows in table[table["n"] > 0].groupby("split", sort=False):
        least, most = int(rows["clusters"].min()), int(rows["clusters"].max())
        count = f"{least} to {most}" if least < most else f"{most}"
        wide = (rows["cluster_high"] - rows["cluster_low"]) / (rows["high"] - rows["low"])
        change = f"the intervals are {wide.median():.1f} times as wide (median)" if most > 1 else "there is no interval"
        few = f"; fewer than {FEW_CLUSTERS}, so these are too narrow even then" if 1 < most < FEW_CLUSTERS else ""
        said.append(f"{split}: over {count} {KINDS[clusters]} instead of episodes {change}{few}.")
    return said


def pairs_table(
    paired: pd.DataFrame, trajectories_by_arm: Mapping[str, Sequence[Trajectory]], split: str
) -> pd.DataFrame:
    """The rows of a `paired_table` on one split, PAIRS_COLUMNS: points and their interval in percentage points.

    result: better or worse where the interval is off 0, else open; SAME where both arms took the very same actions
    in every episode. A pair that shares no scored episode is left out. p is not corrected for the number of rows.
    """
    import pandas as pd

    rows = []
    for row in paired[(paired["split"] == split) & (paired["n"] > 0)].to_dict("records"):
        a, b = (trajectories_by_arm[row[key]] for key in ("arm_a", "arm_b"))
        points = {key: 100 * row[name] for key, name in (("points", "difference"), ("low", "low"), ("high", "high"))}
        result = "better" if row["low"] > 0 else "worse" if row["high"] < 0 else "open"
        if not row["won"] + row["lost"] and same_actions(a, b, split):
            result = SAME
        rows.append(row | points | {"arm": row["arm_b"], "against": row["arm_a"], "result": result})
    return pd.DataFrame(rows, columns=PAIRS_COLUMNS)


def same_actions(a: Iterable[Trajectory], b: Iterable[Trajectory], split: str) -> bool:
    """Whether two arms took the same actions, step by step, in every episode of a split; False where one has none."""
    done = [
        {(t.task.key, t.attempt): [s.decision.action for s in t.steps] for t in arm if t.task.split == split}
        for arm in (a, b)
    ]
    return bool(done[0]) and done[0] == done[1]


def told(row: Mapping[str, Any]) -> str:
    """A row of `pairs_table` in the shortest words, in percentage points."""
    if row["result"] == SAME:
        return f"{row['arm']} and {row['against']} (n = {row['n']})"
    return _counted(row["arm"], row["against"], _span(row["points"], row["low"], row["high"]), row)


def verdict(row: Mapping[str, Any]) -> str:
    """How sure a row of `paired_table` is, in a word.

    SETTLED: its interval leaves out 0 and p_holm is below ALPHA, so it stands among all comparisons of the table.
    LEANING: its interval alone leaves out 0. OPEN: the interval holds 0. TWIN: marked by `mark_twins`, it compares
    nothing new. NOTHING: no shared episode.
    """
    if row.get("same_policy"):
        return TWIN
    if not row["n"]:
        return NOTHING
    if row["low"] <= 0 <= row["high"]:
        return OPEN
    return SETTLED if row["p_holm"] < ALPHA else LEANING


def points(row: Mapping[str, Any]) -> str:
    """A difference with its interval in percentage points, e.g. `+23 [+16, +30]`; empty where n is 0."""
    if not row["n"]:
        return ""
    return _span(*(100 * row[key] for key in ("difference", "low", "high")))


def in_words(paired: pd.DataFrame) -> pd.DataFrame:
    """A table after `mark_twins` with the columns points (see `points`) and verdict (see `verdict`)."""
    rows = paired.to_dict("records")
    return paired.assign(points=[points(row) for row in rows], verdict=[verdict(row) for row in rows])


def brief(row: Mapping[str, Any], clusters: Clusters = "family") -> str:
    """A row of `mark_twins` in short: points, won, lost, n, the verdict; where it is open, what it misses."""
    said = verdict(row)
    if said in (TWIN, NOTHING):
        return f"{row['arm_b']} against {row['arm_a']}: {said}"
    told = f"{_counted(row['arm_b'], row['arm_a'], points(row), row)}: {said}"
    if said != OPEN:
        return told + _held_by_clusters(row, KINDS[clusters])
    least = 100 * detectable(*(int(row[key]) for key in ("won", "lost", "n")))
    return f"{told}, below {least:.0f} points mostly missed" if least == least else f"{told}, nothing could show"


def claims(
    paired: pd.DataFrame, alike: Sequence[tuple[str, str]], dreams: str, clusters: Clusters = "family"
) -> dict[str, str]:
    """ASKED, each with what the pairs on the main split say of it, from a `paired_table` after `mark_twins`.

    `dreams` is `describe_dreams`. Where webevolver is a twin, its pairs say nothing about dreams, and that is said.
    """
    own_rows = paired[(paired["split"] == main_split(paired["split"])) & ~paired["same_policy"]]
    rows = {(row["arm_a"], row["arm_b"]): row for row in own_rows.to_dict("records")}
    first = {later: earlier for earlier, later in alike}
    step = lambda a, b: None not in (i := (iteration_of(a), iteration_of(b))) and i[1] == i[0] + 1  # noqa: E731
    ahead = lambda b: "+" in b and not b.partition("+")[2].startswith("best_of_k")  # noqa: E731
    own = lambda a, b: a.partition("+")[0] == b.partition("+")[0]  # noqa: E731
    plain = lambda a, b: "+" not in a + b and "zero_shot" not in (a, b)  # noqa: E731
    chosen = {
        ASKED[0]: [pair for pair in rows if step(*pair)],
        ASKED[1]: [pair for pair in rows if pair[1] in ("webevolver", "true_dreams") and plain(*pair)],
        ASKED[2]: sorted((pair for pair in rows if ahead(pair[1]) and own(*pair)), key=lambda pair: pair[1]),
    }
    said = {asked: [brief(rows[pair], clusters) for pair in pairs] for asked, pairs in chosen.items()}
    if "webevolver" in first:
        told = f"webevolver is {first['webevolver']} under another name, so this run says nothing about dreams"
        said[ASKED[1]] = [told]
    said[ASKED[1]] = [dreams, *said[ASKED[1]]]
    return {
        asked: f"{'; '.join(filter(None, told)) or 'no pair of these arms is finished'}."
        for asked, told in said.items()
    }


def survivors(paired: pd.DataFrame, *, named: bool = True) -> str:
    """How many comparisons of a table after `mark_twins` survive Holm's correction, and where `named`, which."""
    family = paired[paired["p_holm"].notna()]
    kept = [f"{row.arm_b} against {row.arm_a} ({row.split})" for row in family[family["p_holm"] < ALPHA].itertuples()]
    which = f": {', '.join(kept) or 'none'}" if named else ""
    return f"{len(kept)} of {len(family)} comparisons survive Holm's correction{which}."


def describe_dreams(ledger: pd.DataFrame) -> str:
    """How many dreams there were, how many were accepted, how many of these are true: from `metrics.ledger_table`."""
    imagined = ledger[ledger["counted"] == "imagined"]
    total, accepted = (int(rows["n"].sum()) for rows in (imagined, imagined[imagined["outcome"] == "accepted"]))
    if not total:
        return "no dream in this run"
    told = f"{total} dreams, {accepted} accepted"
    for row in ledger[ledger["counted"] == "replayed"].itertuples():
        span = f"95% interval {100 * row.low:.0f} to {100 * row.high:.0f}%"
        return f"{told}; of {row.of} replayed, {row.n} are true in the real page ({span})"
    return f"{told}; none was replayed: there is no truth rate" if accepted else f"{told}: there is no truth rate"


def unsolved(tasks: pd.DataFrame) -> list[str]:
    """Which kinds of task no arm of a `metrics.task_table` solved, and which no plain policy did, a sentence each."""
    solved = lambda rows: rows.groupby("task", sort=False)["successes"].sum()  # noqa: E731
    every, plain = solved(tasks), solved(tasks[~tasks["arm"].str.contains("+", regex=False)])
    never = [kind for kind, count in every.items() if not count]
    said = [f"{len(never)} of {len(every)} kinds were solved by no arm: {', '.join(never) or 'none'}."]
    for kind in (kind for kind, count in plain.items() if not count and every[kind]):
        rows = tasks[(tasks["task"] == kind) & (tasks["successes"] > 0)].itertuples()
        by = ", ".join(f"{row.arm} {row.successes} of {row.n}" for row in rows)
        said.append(f"{kind} was solved by no plain policy, but by {by}.")
    return said if len(every) else []


def price_table(lookahead: pd.DataFrame, paired: pd.DataFrame, episodes: Mapping[str, int]) -> pd.DataFrame:
    """What looking ahead bought and what it cost, one row an arm, on the main split.

    arm, n, success %, points over its plain policy and over best-of-k (`points`), then means an episode:
    decisions, calls, tokens, seconds (of model work) and steps (tried in real pages); then the shares of decisions
    overruled and fell back, in %.
    `lookahead` is a `lookahead_table`, `episodes` how many each arm met there. Without a known cost: nan.
    """
    import pandas as pd

    split = main_split(lookahead["split"])
    pairs = {(row["arm_a"], row["arm_b"]): row for row in paired[paired["split"] == split].to_dict("records")}
    over = lambda a, b: points(pairs[a, b]) if (a, b) in pairs else ""  # noqa: E731
    rows = []
    for row in lookahead[lookahead["split"] == split].to_dict("records"):
        policy, preset = row["policy"], row["preset"]
        arm = f"{policy}+{preset}" if preset else policy
        each = row["decisions"] / episodes[arm]
        control = over(f"{policy}+{control_of(preset)}", arm) if control_of(preset) else ""
        spent = {"calls": "calls", "tokens": "tokens", "seconds": "model_seconds", "steps": "steps"}
        rows.append(
            {"arm": arm, "n": int(row["n"]), "success %": 100 * row["rate"]}
            | {"over plain": over(policy, arm) if preset else "", "over best-of-k": control, "decisions": each}
            | {name: row[key] * each for name, key in spent.items()}
            | {f"{key} %": 100 * row[key] / (row["decisions"] or NAN) for key in ("overruled", "fell_back")}
        )
    columns = ["n", "success %", "over plain", "over best-of-k", "decisions", "calls", "tokens", "seconds", "steps"]
    return pd.DataFrame(rows, columns=["arm", *columns, "overruled %", "fell_back %"]).set_index("arm").round(1)


def _counted(arm: str, against: str, points: str, row: Mapping[str, Any]) -> str:
    """e.g. `b against a +23 [+16, +30] (53 won, 7 lost, n = 200)`."""
    return f"{arm} against {against} {points} ({row['won']:.0f} won, {row['lost']:.0f} lost, n = {row['n']:.0f})"


def _span(value: float, low: float, high: float) -> str:
    return f"{_signed(value)} [{_signed(low)}, {_signed(high)}]"


def _signed(value: float) -> str:
    """A whole number with its sign; 0 has none."""
    return f"{round(value):+d}" if round(value) else "0"


def _held_by_clusters(row: Mapping[str, Any], kind: str) -> str:
    """Whether a pair that is off 0 over episodes stays so over whole clusters; nothing where it does."""
    if row.get("clusters", 0) == 1:
        return f", but all of it in one of the {kind}"
    low, high = (100 * row.get(key, NAN) for key in ("cluster_low", "cluster_high"))
    if not low <= 0 <= high:
        return ""
    return f", but over {row['clusters']:.0f} {kind} [{_signed(low)}, {_signed(high)}]"
