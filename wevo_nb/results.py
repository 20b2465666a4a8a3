"""What finished runs measured, read from their analyses: the tables of one run or of several, and these added up.

Reads `06_analysis/tables/*.csv`, writes nothing. Every table gets a column `run`. Runs that differ
in their seed alone are added up into further rows: counts are added, so n and intervals are over
episodes; the rows by run stay beside them, since another training seed moves all episodes of a
run at once. Used by notebook 06 and `wevo figures`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from wevo_nb import calibration
from wevo_nb.intervals import wilson
from wevo_nb.metrics import LOOKAHEAD_COLUMNS, SUCCESS_COLUMNS
from wevo_nb.repeats import added_rates, differing, finished_arms, seed_of
from wevo_nb.report_card import COLUMNS as CARD_COLUMNS
from wevo_nb.runs import StageError, read_json, run_folder, sha256

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = {  # of the tables that are read, as the notebooks write them
    "success": SUCCESS_COLUMNS,
    "tasks": ["task", *SUCCESS_COLUMNS],
    "lookahead": LOOKAHEAD_COLUMNS,
    "report_card": [*CARD_COLUMNS],
    "ledger": ["arm", "family", "outcome", "n"],
    "stall": ["arm", "iteration", "metric", "value", "n", "low", "high"],
    "cost": ["stage", "seconds", "peak_memory_mb", "calls", "prompt_tokens", "completion_tokens"],
}
DRAWN = ("miniwob", "sites")  # suites whose test episodes another seed draws anew; others have the same tasks again
MEANS = ("calls", "tokens", "seconds", "model_seconds", "steps")  # of a look-ahead table, a decision
SPENT = ("seconds", "calls", "prompt_tokens", "completion_tokens")  # by stage, in a table of costs


class Results(NamedTuple):
    """`tables` by name, each with a column `run`; `suites` and the hashes of what was read, by run.

    `together` names the rows of all runs added up, which are last; empty where there are none.
    `apart` says why several runs are not added up. `judged` says what judged the episodes of each and what it is worth.
    """

    tables: Mapping[str, pd.DataFrame]
    suites: Mapping[str, str]
    inputs: Mapping[str, str]
    together: str = ""
    apart: str = ""
    judged: Mapping[str, str] = {}

    @property
    def shown(self) -> list[str]:
        """The runs that a printed table shows: all of them together, or each where they are not added up."""
        return [self.together] if self.together else [*self.suites]


def read(names: Sequence[str], wanted: Sequence[str] = tuple(COLUMNS)) -> Results:
    """The results of these runs; of none, tables without rows. A table that a run does not have gives no rows.

    `wanted`: only these tables are read, the others have no rows; for an analysis that is not done yet.
    Raises StageError for a run without an analysis, and for one that is named twice.
    """
    import pandas as pd

    names = list(names)
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise StageError(f"run {', '.join(twice)} is named twice: it would count twice; name each run once")
    parts: dict[str, list] = {table: [] for table in COLUMNS}
    suites, inputs = {}, {}
    for name in names:
        folder = run_folder(name) / "06_analysis" / "tables"
        if not (folder / "success.csv").exists():
            raise StageError(f"run '{name}' has no analysis in {folder}: 'wevo run --run {name} --only 06' makes it")
        suites[name] = suite_of(name)
        for table in wanted:
            if (path := folder / f"{table}.csv").exists():
                found = pd.read_csv(path).assign(run=name)
                plain = (
                    {"preset": found["preset"].fillna("")} if table == "lookahead" else {}
                )  # of a plain policy empty
                parts[table].append(found.assign(**plain))
                inputs[f"{name}/06_analysis/tables/{table}.csv"] = sha256(path)
    apart = why_apart(names, suites)
    together = f"{len(names)} runs" if len(names) > 1 and not apart else ""
    tables = {}
    for table, columns in COLUMNS.items():
        frame = pd.concat(parts[table], ignore_index=True) if parts[table] else pd.DataFrame(columns=[*columns, "run"])
        if together and table in ADDED and len(frame):
            frame = pd.concat([frame, ADDED[table](frame).assign(run=together)], ignore_index=True)
        tables[table] = frame
    return Results(tables, suites, inputs, together, apart, {name: calibration.behind(name) for name in names})


def suite_of(run: str) -> str:
    """The suite that the arms of a run were tested on, as the first of them noted it; empty where none did.

    OpenWebVoyager with none but WebVoyager's queries held out is tested on WebVoyager.
    """
    for path in sorted((run_folder(run) / "05_wmla").glob("*/params.json")):
        params = read_json(path)["params"]
        suite = str(params.get("collect.suite", ""))
        only = suite == "openwebvoyager" and params.get("tasks", {}).get("held_out") == ["webvoyager"]
        return "webvoyager" if only else suite
    return ""


def why_apart(names: Sequence[str], suites: Mapping[str, str]) -> str:
    """Why runs are not added up, in words; nothing where they may be: they differ in their seed and nothing else."""
    if len(names) < 2:
        return ""
    arms = {name: finished_arms(name) for name in names}
    for arm in sorted({arm for found in arms.values() for arm in found}):
        if said := differing([name for name in names if arm in arms[name]], arm):
            return f"differ in more than their seed ({arm}: {said})"
    if len({seed_of(name) for name in names}) < len(names):
        return "have a seed in common, and the second of them is no further evidence"
    if suites[names[0]] not in DRAWN:
        return f"met the same tasks, since a seed draws none in suite '{suites[names[0]]}'"
    return ""


def added_lookahead(frame: pd.DataFrame) -> pd.DataFrame:
    """Successes added up, what a decision cost as the mean over all decisions whose cost is known."""
    keys = ["policy", "preset", "k", "depth", "split"]
    rates = added_rates(frame.assign(successes=(frame["rate"] * frame["n"]).round()), keys)
    counts = ["decisions", "overruled", "fell_back"]
    known = {f"known {key}": frame["decisions"].where(frame[key].notna()) for key in MEANS}
    weighed = frame.assign(**{key: frame[key] * frame["decisions"] for key in MEANS}, **known)
    sums = weighed.groupby(keys, sort=False)[[*counts, *MEANS, *known]].sum(min_count=1).reset_index()
    sums = sums.assign(**{key: sums[key] / sums[f"known {key}"] for key in MEANS}).drop(columns=[*known])
    return rates.drop(columns="successes").merge(sums, on=keys)


def added_card(frame: pd.DataFrame, keys: Sequence[str] = ("model", "target", "depth", "metric")) -> pd.DataFrame:
    """Values of a report card over all runs, weighted by n.

    Where every part is a share of whole counts (its interval is Wilson's), counts are added.
    Others, such as F1, get the normal interval of a weighted mean of independent parts: the root of the
    summed squares of their half widths, each by its share of n.
    """
    import pandas as pd

    rows = []
    for key, part in frame[frame["value"].notna()].groupby(list(keys), sort=False):
        n = part["n"].sum()
        counts = part["value"] * part["n"]
        value = counts.sum() / n
        whole = [_is_share(*row) for row in part[["value", "n", "low", "high"]].to_numpy(float)]
        if all(whole):
            low, high = wilson(round(counts.sum()), n)[1:]
        else:
            halves = (part["high"] - part["low"]) / 2 * part["n"] / n
            half = float((halves**2).sum(skipna=False)) ** 0.5
            low, high = max(value - half, min(0.0, part["low"].min())), min(value + half, 1.0)
        rows.append((*key, n, value, low, high))
    return pd.DataFrame(rows, columns=[*keys, "n", "value", "low", "high"])


def _is_share(value: float, n: float, low: float, high: float) -> bool:
    count = round(value * n)
    _, least, most = wilson(count, n) if 0 <= count <= n else (0, 2, 2)
    return abs(value * n - count) < 1e-6 and abs(least - low) < 1e-6 and abs(most - high) < 1e-6


ADDED = {
    "success": lambda frame: added_rates(frame, ["arm", "split"]),
    "tasks": lambda frame: added_rates(frame, ["task", "arm", "split"]),
    "lookahead": added_lookahead,
    "report_card": added_card,
    "ledger": lambda frame: frame.groupby(["arm", "family", "outcome"], sort=False)["n"].sum().reset_index(),
    "cost": lambda frame: frame.groupby("stage", sort=False)[[*SPENT]].sum().reset_index(),
}
