"""Numbers with their uncertainty: success rates, paired comparisons.

Reads trajectories and verdicts (schema.py), returns tables; writes nothing. A rate is a fraction
in 0..1 and never stands without its n and its 95% interval. Two arms are compared on the same
task and seed, never by their two rates. Notebooks 01, 02, 05 and 06. Paper: section 4, Table 1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from wevo_nb.params import FINAL_ARMS

if TYPE_CHECKING:
    import pandas as pd

    from wevo_nb.params import Arm
    from wevo_nb.schema import Trajectory

SPLITS = ("test_seeds", "test_tasks", "test_sites")  # the order of every table; other splits follow
SUCCESS_COLUMNS = ["arm", "split", "n", "successes", "rate", "low", "high"]
PAIRED_COLUMNS = ["arm_a", "arm_b", "split", "n", "won", "lost", "difference", "low", "high", "p"]
LOOKAHEAD_COLUMNS = [
    "policy", "preset", "k", "depth", "split", "n", "rate", "low", "high", "calls", "tokens", "seconds",
    "model_seconds", "steps", "decisions", "overruled", "fell_back",
]  # fmt: skip
GRID_COLUMNS = ["source", "axis", "series", "x", "n", "rate", "low", "high"]
NAN = float("nan")
Z95 = 1.959964  # standard normal quantile of a two-sided 95% interval


def wilson(successes: float, n: float) -> tuple[float, float, float]:
    """(rate, low, high), fractions: the Wilson 95% interval of `successes` out of `n`; nan where n is 0.

    Source: Wilson 1927; advised at every n, 0 and n successes included, by Brown, Cai and
    DasGupta 2001, Statistical Science 16(2). Raises ValueError unless 0 <= successes <= n.
    """
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} successes out of {n}: give a count between 0 and n")
    if n == 0:
        return NAN, NAN, NAN
    from statsmodels.stats.proportion import proportion_confint

    low, high = proportion_confint(successes, n, alpha=0.05, method="wilson")
    rate = successes / n
    return rate, min(max(float(low), 0.0), rate), max(min(float(high), 1.0), rate)


def paired(won: int, lost: int, n: int) -> dict[str, float]:
    """How much better b is than a on the same n episodes: difference, low, high (fractions), p.

    `won` episodes succeed with b alone, `lost` ones with a alone. The interval is the adjusted
    Wald one (half an episode added to each cell of the 2 x 2 table) of Agresti and Min 2005,
    Statistics in Medicine 24(5); p is the exact, two-sided McNemar test: under no difference an
    episode that only one of the two solves is a fair coin. All nan where n is 0.
    Raises ValueError where the counts do not fit n.
    """
    if min(won, lost) < 0 or won + lost > n:
        raise ValueError(f"won {won} and lost {lost} of {n}: both are counts, and together at most n")
    if n == 0:
        return {"difference": NAN, "low": NAN, "high": NAN, "p": NAN}
    from scipy.stats import binomtest

    b, c, total = won + 0.5, lost + 0.5, n + 2
    centre = (b - c) / total
    half = Z95 * (b + c - (b - c) ** 2 / total) ** 0.5 / total
    p = float(binomtest(won, won + lost, 0.5).pvalue) if won + lost else 1.0
    return {"difference": (won - lost) / n, "low": max(centre - half, -1.0), "high": min(centre + half, 1.0), "p": p}


def success_table(trajectories_by_arm: Mapping[str, Iterable[Trajectory]]) -> pd.DataFrame:
    """One row an arm and split: arm, split, n, successes, rate, low, high (rates are fractions).

    An episode without a verdict, or with an unscored one, is no failure: it is left out of n
    and counted by `unscored_count`.
    """
    return _rates(trajectories_by_arm, lambda t: t.task.split, "split")[SUCCESS_COLUMNS]


def task_table(trajectories_by_arm: Mapping[str, Iterable[Trajectory]]) -> pd.DataFrame:
    """One row a task and arm: task, arm, split, n, successes, rate, low, high."""
    table = _rates(trajectories_by_arm, lambda t: (t.task.split, t.task.name), "key")
    table["split"] = [key[0] for key in table["key"]]
    table["task"] = [key[1] for key in table["key"]]
    return table[["task", *SUCCESS_COLUMNS]]


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


def unscored_count(trajectories_by_arm: Mapping[str, Iterable[Trajectory]]) -> pd.DataFrame:
    """One row an arm and split: arm, split, episodes, unscored (left out of every rate)."""
    import pandas as pd

    rows = []
    for arm, trajectories in trajectories_by_arm.items():
        for split, group in _grouped(different(trajectories), lambda t: t.task.split).items():
            unscored = sum(_succeeded(t) is None for t in group)
            rows.append({"arm": arm, "split": split, "episodes": len(group), "unscored": unscored})
    return pd.DataFrame(rows, columns=["arm", "split", "episodes", "unscored"])


def paired_table(
    trajectories_by_arm: Mapping[str, Iterable[Trajectory]], pairs: Iterable[tuple[str, str]]
) -> pd.DataFrame:
    """One row a pair (a, b) and split, b against a: arm_a, arm_b, split, n, won, lost, difference, low, high, p.

    n counts the (task name, seed) that both arms ran and scored; `won`: b succeeded where a
    failed. p is not adjusted for the number of pairs. Raises ValueError for an arm that is not
    there, and where an arm holds the same task and seed twice.
    """
    import pandas as pd

    pairs = list(pairs)
    absent = sorted({arm for pair in pairs for arm in pair} - set(trajectories_by_arm))
    if absent:
        raise ValueError(f"no trajectories of {', '.join(absent)}; there are {', '.join(trajectories_by_arm)}")
    outcomes = {arm: _outcomes(arm, trajectories_by_arm[arm]) for arm in {arm for pair in pairs for arm in pair}}
    rows = []
    for a, b in pairs:
        for split in _ordered({split for arm in (a, b) for split in outcomes[arm]}):
            of_a, of_b = outcomes[a].get(split, {}), outcomes[b].get(split, {})
            both = [(of_a[key], of_b[key]) for key in of_a.keys() & of_b.keys()]
            won, lost = both.count((False, True)), both.count((True, False))
            counts = {"arm_a": a, "arm_b": b, "split": split, "n": len(both), "won": won, "lost": lost}
            rows.append(counts | paired(won, lost, len(both)))
    return pd.DataFrame(rows, columns=PAIRED_COLUMNS)


def lookahead_table(trajectories_by_arm: Mapping[str, Iterable[Trajectory]], arms: Iterable[Arm]) -> pd.DataFrame:
    """One row an arm and split, LOOKAHEAD_COLUMNS: success, and what a decision cost on average.

    preset is empty and depth 0 for a plain policy. calls, tokens and seconds are means over the
    decisions whose cost is known (seconds with the waiting of episodes side by side, model_seconds
    without), steps those of real pages tried; overruled counts decisions that
    differ from the policy's own first candidate, fell_back those that could not be scored.
    """
    import pandas as pd

    success = success_table(trajectories_by_arm).set_index(["arm", "split"])
    rows = []
    for arm in arms:
        for split, group in _grouped(trajectories_by_arm.get(arm.name, ()), lambda t: t.task.split).items():
            decisions = [step.decision for one in group for step in one.steps]
            costs = [d.cost for d in decisions if d.cost]
            mean = lambda key, costs=costs: sum(getattr(c, key) for c in costs) / len(costs) if costs else NAN  # noqa: E731
            row = {"policy": arm.policy, "preset": arm.preset, "split": split}
            row |= {"k": arm.ahead.k if arm.ahead else 1, "depth": arm.ahead.depth if arm.ahead else 0}
            row |= success.loc[(arm.name, split), ["n", "rate", "low", "high"]].to_dict()
            row |= {key: mean(key) for key in ("calls", "tokens", "seconds", "model_seconds", "steps")}
            ahead = [d for d in decisions if d.candidates]
            row["decisions"] = len(decisions)
            row["overruled"] = sum(not d.fell_back and not d.candidates[0].reply.startswith(d.reply) for d in ahead)
            row["fell_back"] = sum(bool(d.fell_back) for d in decisions)
            rows.append(row)
    return pd.DataFrame(rows, columns=LOOKAHEAD_COLUMNS)


def grid_table(lookahead: pd.DataFrame, split: str, *, source: str = "this run") -> pd.DataFrame:
    """Success by width and by depth, in the form of `paper.grids`: GRID_COLUMNS.

    `lookahead` is a `lookahead_table`. A series holds what stays: the policy and the depth along k,
    the policy and k along the depth, where a plain policy stands at depth 0 of every k. Only
    `wmla` presets are on a grid, and a series of one point is none.
    """
    import pandas as pd

    rows = []
    here = lookahead[lookahead["split"] == split]
    wmla = here[here["preset"].str.startswith("wmla")]
    for row in wmla.to_dict("records"):
        rows.append({"axis": "k", "series": f"{row['policy']}+wmla_d{row['depth']}", "x": row["k"]} | row)
        rows.append({"axis": "depth", "series": f"{row['policy']}+wmla k={row['k']}", "x": row["depth"]} | row)
    for row in here[here["preset"] == ""].to_dict("records"):
        for k in sorted(set(wmla["k"][wmla["policy"] == row["policy"]])):
            rows.append({"axis": "depth", "series": f"{row['policy']}+wmla k={k}", "x": 0} | row)
    table = pd.DataFrame(rows, columns=[*GRID_COLUMNS[1:]]).assign(source=source)[GRID_COLUMNS]
    several = table.groupby(["axis", "series"])["x"].transform("nunique") > 1
    return table[several].drop_duplicates(["axis", "series", "x"]).reset_index(drop=True)


def comparisons(arms: Sequence[str]) -> list[tuple[str, str]]:
    """The pairs (a, b) the notebooks report, b against a, among the arms that are there.

    Every arm against zero_shot; each iteration against the one before; each final policy against
    the first and the last iteration, and webevolver against every other of them; each look-ahead
    arm against its own policy, and against best-of-k with the same scorer, which imagines nothing.
    """
    improved = sorted((a for a in arms if iteration_of(a)), key=iteration_of)
    wanted = [("zero_shot", arm) for arm in arms]
    wanted += [(f"self_improve_{iteration_of(arm) - 1}", arm) for arm in improved]
    final = [arm for arm in arms if arm in FINAL_ARMS]
    wanted += [(arm, last) for last in final for arm in (*improved[:1], *improved[-1:])]
    wanted += [(arm, "webevolver") for arm in final]
    for arm in arms:
        policy, plus, preset = arm.partition("+")
        if plus:
            wanted += [(policy, arm), (f"{policy}+{control_of(preset)}", arm)]
    there = [(a, b) for a, b in wanted if a != b and a in arms and b in arms]
    return list(dict.fromkeys(there))


def control_of(preset: str) -> str:
    """The preset with the same scorer that imagines nothing. Source: the presets of params/base.yaml."""
    by_model = ("webdreamer", "paper", "released_code")
    return (
        f"best_of_k_{preset}"
        if preset in ("expected", "veto", "likelihood")
        else "best_of_k_llm"
        if preset in by_model
        else "best_of_k"
    )


def iteration_of(arm: str) -> int | None:
    """The iteration of a plain policy: 0 of zero_shot, i of self_improve_<i>, None of any other arm."""
    if arm == "zero_shot":
        return 0
    match = re.fullmatch(r"self_improve_(\d+)", arm)
    return int(match[1]) if match else None


def iteration_table(success: pd.DataFrame) -> pd.DataFrame:
    """`success_table` in the form of `paper.figure_3`: success over iterations, in percent.

    Columns method, benchmark (the split), iteration, n, success_percent, low, high (percent),
    reported (False), source. Arms that are no iteration stand one step after the last.
    """
    table = success[success["arm"] != "random"].copy()
    iterations = [iteration_of(arm) for arm in table["arm"]]
    after = max((i for i in iterations if i is not None), default=0) + 1
    table["iteration"] = [after if i is None else i for i in iterations]
    table[["success_percent", "low", "high"]] = 100 * table[["rate", "low", "high"]].astype(float)
    table = table.rename(columns={"arm": "method", "split": "benchmark"}).assign(reported=False, source="this run")
    columns = ["method", "benchmark", "iteration", "n", "success_percent", "low", "high", "reported", "source"]
    return table[columns].reset_index(drop=True)


def ledger_table(ledger: pd.DataFrame, truth: Mapping[str, int] | None) -> pd.DataFrame:
    """What became of the imagined rollouts: counted, outcome, n, of, rate, low, high (fractions).

    `ledger` has the columns of `synthesis.ledger`; `truth` its counts {replayed, true}.
    The rows of `counted` = imagined are shares of all rollouts; the one of `counted` = replayed
    is the truth rate: accepted rollouts whose actions succeed in the real page.
    """
    import pandas as pd

    counts = ledger.groupby("outcome", sort=False)["n"].sum().sort_values(ascending=False, kind="stable")
    rows = [("imagined", str(outcome), int(n), int(counts.sum())) for outcome, n in counts.items()]
    if truth and truth["replayed"]:
        rows.append(("replayed", "true in the real page", int(truth["true"]), int(truth["replayed"])))
    columns = ["counted", "outcome", "n", "of", "rate", "low", "high"]
    return pd.DataFrame([(*row, *wilson(*row[2:])) for row in rows], columns=columns)


def describe_pair(row: Mapping[str, Any]) -> str:
    """A row of `paired_table` as a sentence, in percentage points."""
    if not row["n"]:
        return f"{row['arm_b']} and {row['arm_a']} share no scored episode of {row['split']}."
    points = 100 * row["difference"]
    how_far = f"{abs(points):.0f} points {'above' if points > 0 else 'below'}" if row["difference"] else "level with"
    p = "p < 0.001" if row["p"] < 0.001 else f"p = {row['p']:.3f}"
    settled = "" if row["low"] > 0 or row["high"] < 0 else "; the interval holds 0, the sign is open"
    return (
        f"{row['arm_b']} is {how_far} {row['arm_a']} on {row['n']} held-out episodes of {row['split']} "
        f"(95% interval {100 * row['low']:.0f} to {100 * row['high']:.0f}, "
        f"won {row['won']}, lost {row['lost']}, {p}){settled}."
    )


def _succeeded(trajectory: Trajectory) -> bool | None:
    """None: not scored."""
    verdict = trajectory.verdict
    return None if verdict is None or verdict.outcome == "unscored" else verdict.success


def different(trajectories: Iterable[Trajectory]) -> list[Trajectory]:
    """The episodes without repeats: of those with the same kind, goal and first page the one of the lowest seed.

    Some kinds of task have few different pages. Their seeds are no further evidence: a greedy policy
    does the same on the same page, and one decision would count many times.
    """
    kept: dict[tuple, Trajectory] = {}
    for one in sorted(trajectories, key=lambda t: t.task.seed):
        first = one.steps[0].observation if one.steps else one.final
        told = (one.task.goal, first.text) if first.text and one.task.goal else (one.task.seed,)
        kept.setdefault((one.task.split, one.task.name, one.attempt, *told), one)
    return list(kept.values())


def _grouped(trajectories: Iterable[Trajectory], key) -> dict:
    """Trajectories by key, where the split is the key or the first part of it, in the order of SPLITS."""
    groups: dict = {}
    for trajectory in trajectories:
        groups.setdefault(key(trajectory), []).append(trajectory)
    return {k: groups[k] for k in _ordered(groups)}


def _ordered(keys: Iterable) -> list:
    """By split in the order of SPLITS, then by name."""
    first = lambda key: key if isinstance(key, str) else key[0]  # noqa: E731
    return sorted(keys, key=lambda key: (SPLITS.index(first(key)) if first(key) in SPLITS else len(SPLITS), key))


def _rates(trajectories_by_arm: Mapping[str, Iterable[Trajectory]], key, name: str) -> pd.DataFrame:
    """One row an arm and key, with the rate of success over the scored episodes."""
    import pandas as pd

    rows = []
    for arm, trajectories in trajectories_by_arm.items():
        for value, group in _grouped(different(trajectories), key).items():
            scored = [outcome for t in group if (outcome := _succeeded(t)) is not None]
            rows.append((arm, value, len(scored), sum(scored), *wilson(sum(scored), len(scored))))
    return pd.DataFrame(rows, columns=["arm", name, *SUCCESS_COLUMNS[2:]])


def _outcomes(arm: str, trajectories: Iterable[Trajectory]) -> dict[str, dict[tuple[str, int], bool]]:
    """Success by split, then by (task name, seed); repeats and unscored episodes left out."""
    outcomes: dict[str, dict[tuple[str, int], bool]] = {}
    everything, seen = list(trajectories), set()
    for key in ((t.task.name, t.task.seed) for t in everything):
        if key in seen:
            raise ValueError(f"{arm} holds {key[0]}, seed {key[1]}, twice: keep one episode a task and seed to pair it")
        seen.add(key)
    for trajectory in different(everything):
        succeeded = _succeeded(trajectory)
        if succeeded is not None:
            key = (trajectory.task.name, trajectory.task.seed)
            outcomes.setdefault(trajectory.task.split, {})[key] = succeeded
    return outcomes
