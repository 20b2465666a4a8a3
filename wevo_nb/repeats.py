"""Several runs of one experiment: read, held to differ in the seed alone, set side by side, added up.

Another training seed moves all episodes of a run at once. An interval over episodes cannot know that;
the spread between runs does. Reads the finished arms of notebook 05 below `outputs/`, writes nothing.
Rates and differences are fractions. Notebook 06. Paper: its numbers are means of two runs (Table 1).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

from wevo_nb.intervals import NAN, holm, mean_interval, paired, wilson
from wevo_nb.metrics import Clusters, paired_table, success_table
from wevo_nb.params import defaults, flatten
from wevo_nb.runs import JSONL, StageError, read_json, run_folder, signature
from wevo_nb.schema import Trajectory

if TYPE_CHECKING:
    import pandas as pd

ARM, PAIR = ["arm", "split"], ["arm_a", "arm_b", "split"]  # what a row of a table by run is about
MISSING = "-"  # a param that a run did not note
NO_MATTER = ("seed", "synthesize.replay")  # what may differ: no arm learns from how many dreams were checked
BY_RUN = ["run", "seed", "n"]
RUN_COLUMNS = [*ARM, *BY_RUN, "successes", "rate", "low", "high", "unscored", "low_bound", "high_bound"]
PAIRED_RUN_COLUMNS = [*PAIR, *BY_RUN, "won", "lost", "difference", "low", "high", "p", "unscored"]
SPREAD_COLUMNS = ["runs", "mean", "sd", "least", "most", "low", "high", "episode_sd"]


class Repeats(NamedTuple):
    """Runs whose `found` arms (run, then arm: episodes) were made alike but for the seed.

    `left_out` names each arm that was not, and how; `remarks` say what else a reader should know.
    """

    seeds: dict[str, int]
    found: dict[str, dict[str, list[Trajectory]]]
    left_out: dict[str, str]
    remarks: list[str]


def read(
    runs: Sequence[str],
    order: Sequence[str] = (),
    loaded: Mapping[str, Mapping[str, list[Trajectory]]] | None = None,
) -> Repeats:
    """The finished arms of these runs, those of `order` first and in it, without those that two runs made otherwise.

    `loaded` are episodes (run, then arm) that need not be read again. An arm is compared by the params that it and
    every stage behind it noted, the seed apart, whatever the profile says today. Raises StageError for a run without
    a finished arm, for two runs of one seed, and where no arm was made alike in all runs that have it.
    """
    place = {arm: i for i, arm in enumerate(order)}
    arms = {run: sorted(finished_arms(run), key=lambda arm: place.get(arm, len(place))) for run in dict.fromkeys(runs)}
    seeds = {run: seed_of(run) for run in arms}
    for a, b in combinations(seeds, 2):
        if seeds[a] == seeds[b]:
            raise StageError(
                f"{a} and {b} both have seed {seeds[a]}: the second is no further evidence. Leave one out of "
                f"analysis.runs, or make another: wevo run --run {b}-other --set seed={seeds[b] + 1}"
            )
    every = list(dict.fromkeys(arm for names in arms.values() for arm in names))
    left_out = {arm: said for arm in every if (said := differing([run for run in arms if arm in arms[run]], arm))}
    if every and len(left_out) == len(every):
        raise StageError(
            f"{', '.join(arms)} differ in more than the seed, in every arm; {every[0]}: {left_out[every[0]]}. "
            "Take runs of one profile and the same --set, but for seed"
        )
    known = loaded or {}
    found = {
        run: {arm: known.get(run, {}).get(arm) or _episodes(run, arm) for arm in names if arm not in left_out}
        for run, names in arms.items()
    }
    return Repeats(seeds, found, left_out, _remarks(arms))


def inputs(repeats: Repeats) -> dict[str, str]:
    """The hash of what each arm put out, by `<run>/05_wmla/<arm>`: what a figure over several runs was made of."""
    stages = [(run, f"05_wmla/{arm}") for run, found in repeats.found.items() for arm in found]
    return {f"{run}/{stage}": signature(run, stage) for run, stage in stages}


def finished_arms(run: str) -> list[str]:
    """The finished arms of notebook 05 in a run, by name. Raises StageError where there is none."""
    folder = run_folder(run) / "05_wmla"
    arms = sorted(path.parent.name for path in folder.glob("*/manifest.json") if ".old-" not in path.parent.name)
    if not arms:
        raise StageError(f"no finished arm in {folder}: run notebook 05, or 'wevo run --run {run}'")
    return arms


def seed_of(run: str) -> int:
    """The seed of a run, as the first of its finished arms noted it."""
    return read_json(run_folder(run) / "05_wmla" / finished_arms(run)[0] / "params.json")["params"]["seed"]


def noted(run: str, stage: str) -> dict[str, Any]:
    """The params that a stage of a run and every stage behind it noted, by `<stage> <key>`, but for NO_MATTER."""
    found: dict[str, Any] = {}
    waiting, seen = [stage], set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        spec = read_json(run_folder(run) / name / "params.json")
        if spec is None:
            raise StageError(f"{run_folder(run) / name} is gone, and {stage} of run '{run}' was made of it: restore it")
        found |= {f"{name} {key}": value for key, value in flatten(spec["params"]).items() if key not in NO_MATTER}
        waiting += spec["inputs"]
    return found


def differing(runs: Sequence[str], arm: str) -> str:
    """What an arm was made with otherwise in a later of these runs than in the first; nothing if in none.

    A param that a stage did not note, as code from before the param was there does not, counts as its default.
    """
    if not runs:
        return ""
    made = {run: noted(run, f"05_wmla/{arm}") for run in runs}
    told = lambda run, key: f"{made[run].get(key, MISSING)} in {run}"  # noqa: E731
    for run in runs[1:]:
        first, other = _filled(made[runs[0]], made[run]), _filled(made[run], made[runs[0]])
        keys = sorted(key for key in first | other if first.get(key, MISSING) != other.get(key, MISSING))
        said = [f"{key} {told(runs[0], key)}, {told(run, key)}" for key in keys[:3]]
        if keys:
            return "; ".join(said) + (f"; and {len(keys) - 3} more" if len(keys) > 3 else "")
    return ""


def _filled(noted: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """With the defaults of what `other` noted beside it of the same stages."""
    default, stages = defaults(), {key.partition(" ")[0] for key in noted}
    parts = ((key, *key.partition(" ")[::2]) for key in other if key not in noted)
    return noted | {key: default[param] for key, stage, param in parts if stage in stages and param in default}


def _remarks(arms: Mapping[str, Sequence[str]]) -> list[str]:
    """Arms that some runs do not have, and code that is not the same."""
    every = list(dict.fromkeys(arm for names in arms.values() for arm in names))
    gaps = {run: [arm for arm in every if arm not in names] for run, names in arms.items()}
    said = [f"{run} has no {', '.join(missing)}" for run, missing in gaps.items() if missing]
    commit = lambda run, arm: read_json(run_folder(run) / "05_wmla" / arm / "manifest.json")["provenance"]["git_commit"]  # noqa: E731
    made_by = {run: sorted({commit(run, arm)[:10] for arm in names}) for run, names in arms.items()}
    if len({tuple(commits) for commits in made_by.values()}) > 1:
        said.append("made by different code: " + ", ".join(f"{run} by {' and '.join(c)}" for run, c in made_by.items()))
    return said


def _episodes(run: str, arm: str) -> list[Trajectory]:
    return JSONL(run_folder(run) / "05_wmla" / arm / "trajectories.jsonl", Trajectory).values()


# -- side by side


def runs_table(repeats: Repeats, clusters: Clusters = "family") -> pd.DataFrame:
    """One row an arm, split and run: RUN_COLUMNS, as in `metrics.success_table`."""
    tables = [success_table(found, clusters).assign(run=run) for run, found in repeats.found.items()]
    return _by_run(tables, repeats, RUN_COLUMNS)


def paired_runs_table(repeats: Repeats, pairs: Iterable[tuple[str, str]]) -> pd.DataFrame:
    """One row a pair, split and run that has both arms: PAIRED_RUN_COLUMNS, as in `metrics.paired_table`."""
    pairs = list(pairs)
    there = {run: [pair for pair in pairs if set(pair) <= set(found)] for run, found in repeats.found.items()}
    tables = [paired_table(repeats.found[run], mine).assign(run=run) for run, mine in there.items()]
    return _by_run(tables, repeats, PAIRED_RUN_COLUMNS)


def _by_run(tables: Sequence[pd.DataFrame], repeats: Repeats, columns: list[str]) -> pd.DataFrame:
    import pandas as pd

    filled = [table for table in tables if len(table)]
    if not filled:
        return pd.DataFrame(columns=columns)
    whole = pd.concat(filled, ignore_index=True).assign(seed=lambda table: table["run"].map(repeats.seeds))
    together = whole.groupby(columns[: columns.index("run")], sort=False).ngroup()  # the runs of one arm or pair
    return whole.iloc[together.argsort(kind="stable")][columns].reset_index(drop=True)


def spread_table(by_run: pd.DataFrame) -> pd.DataFrame:
    """One row an arm (of `runs_table`) or a pair (of `paired_runs_table`) and split: SPREAD_COLUMNS.

    mean and sd of the runs' rates or differences, least and most of them, and low and high of Student's interval of
    the mean, from three runs on. episode_sd is the sd that drawing so many episodes anew would give by itself:
    where sd is no larger, the training seed has not shown.
    """
    import pandas as pd

    about = PAIR if "difference" in by_run else ARM
    value, floor = ("difference", -1.0) if about is PAIR else ("rate", 0.0)
    rows = []
    for names, group in by_run[by_run["n"] > 0].groupby(about, sort=False):
        told = mean_interval(group[value].tolist())
        told |= {"low": max(told["low"], floor), "high": min(told["high"], 1.0)} if told["runs"] > 2 else {}
        variances = [episode_variance(row) for row in group.to_dict("records")]
        rows.append(dict(zip(about, names, strict=True)) | told | {"episode_sd": root_mean(variances)})
    return pd.DataFrame(rows, columns=[*about, *SPREAD_COLUMNS])


def episode_variance(row: Mapping[str, Any]) -> float:
    """The variance of a rate, or of a paired difference, over n episodes drawn anew."""
    square = (row["won"] + row["lost"]) / row["n"] if "won" in row else row["rate"]
    return (square - row["difference" if "won" in row else "rate"] ** 2) / row["n"]


def root_mean(squares: Sequence[float]) -> float:
    """The root of the mean of squares or variances; nan of none."""
    return (sum(squares) / len(squares)) ** 0.5 if squares else NAN


# -- added up


def same_episodes(repeats: Repeats) -> bool:
    """Whether the runs were tested on episodes that they share, as on a live suite, whose tasks no seed draws."""
    met = [
        {(t.task.suite, t.task.name, t.task.seed) for arm in found.values() for t in arm}
        for found in repeats.found.values()
    ]
    return any(a & b for a, b in combinations(met, 2))


def added_rates(by_run: pd.DataFrame, about: Sequence[str] = ARM) -> pd.DataFrame:
    """Successes and n of all runs added up: the columns `about`, n, successes, and rate, low, high by `wilson`.

    Only for runs that met different episodes, see `same_episodes`.
    """
    total = by_run.groupby([*about], sort=False)[["n", "successes"]].sum().reset_index()
    bounds = [wilson(row.successes, row.n) for row in total.itertuples()]
    return total.assign(**{name: [row[i] for row in bounds] for i, name in enumerate(("rate", "low", "high"))})


def added_pairs(by_run: pd.DataFrame) -> pd.DataFrame:
    """Won, lost and n of all runs added up: PAIR, n, won, lost, and difference, low, high, p by `intervals.paired`.

    p_holm is corrected for the rows of this table. Only for runs that met different episodes, see `same_episodes`.
    """
    total = by_run.groupby(PAIR, sort=False)[["n", "won", "lost"]].sum().reset_index()
    rest = [paired(row.won, row.lost, row.n) for row in total.itertuples()]
    table = total.assign(**{name: [row[name] for row in rest] for name in ("difference", "low", "high", "p")})
    return table.assign(p_holm=holm(table["p"]))


# -- in words


def describe(repeats: Repeats) -> list[str]:
    """Which runs these are, which arms are left out of every table and why, and what else to know."""
    named = ", ".join(f"{run} (seed {seed})" for run, seed in repeats.seeds.items())
    said = [f"runs: {named or 'none'}"]
    for why in dict.fromkeys(repeats.left_out.values()):
        arms = [arm for arm, reason in repeats.left_out.items() if reason == why]
        said.append(f"left out, for they differ in more than the seed: {', '.join(arms)} ({why})")
    if same_episodes(repeats):
        said.append("the runs met the same episodes: they are compared and averaged, but not added up")
    return said + repeats.remarks


def describe_spread(row: Mapping[str, Any]) -> str:
    """A row of `spread_table` as a sentence: percent for an arm, points for a pair."""
    pair = "arm_a" in row
    name = f"{row['arm_b']} against {row['arm_a']}" if pair else row["arm"]
    unit = " points" if pair else "%"
    mean, least, most, low, high = (f"{100 * row[key]:.0f}" for key in ("mean", "least", "most", "low", "high"))
    said = f"{name}, {row['split']}: {mean}{unit}"
    if row["runs"] < 2:
        return f"{said} in one run: what another seed gives is not known."
    said += f" in the mean of {row['runs']:.0f} runs, {least} to {most}"
    if row["runs"] == 2:
        return f"{said}; two runs are a distance, no interval."
    wider = "more" if row["sd"] > row["episode_sd"] else "no more"
    return (
        f"{said} (95% interval of the mean {low} to {high}, sd {100 * row['sd']:.1f}, "
        f"{wider} than the {100 * row['episode_sd']:.1f} that other episodes give by themselves)."
    )


def describe_signs(by_run: pd.DataFrame, split: str) -> str:
    """Which differences of `paired_runs_table` have one sign in every run, of those that two runs or more have."""
    kept, several = [], 0
    for (a, b), rows in by_run[(by_run["split"] == split) & (by_run["n"] > 0)].groupby(["arm_a", "arm_b"], sort=False):
        signs = {(gap > 0) - (gap < 0) for gap in rows["difference"]}
        several += len(rows) > 1
        if len(rows) > 1 and len(signs) == 1 and 0 not in signs:
            kept.append(f"{b} {'above' if 1 in signs else 'below'} {a}")
    return f"{len(kept)} of {several} differences on {split} have one sign in every run: {', '.join(kept) or 'none'}."
