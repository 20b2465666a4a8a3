"""What finished runs measured, read from their analyses: the tables of one run or of several, and these added up.

Reads `06_analysis/tables/*.csv`, writes nothing. Every table gets a column `run`. Runs that differ
in their seed alone are added up into further rows: counts are added, so n and intervals are over
episodes; the rows by run stay beside them, since another training seed moves all episodes of a
run at once. Used by notebook 06 and `wevo figures`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from wevo_nb.metrics import LOOKAHEAD_COLUMNS, SUCCESS_COLUMNS, wilson
from wevo_nb.params import flatten
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
OWN = ("seed",)  # what runs that are added up may differ in


class Results(NamedTuple):
    """`tables` by name, each with a column `run`; `suites` and the hashes of what was read, by run.

    `together` names the rows of all runs added up, which are last; empty where there are none.
    `apart` says why several runs are not added up.
    """

    tables: Mapping[str, pd.DataFrame]
    suites: Mapping[str, str]
    inputs: Mapping[str, str]
    together: str = ""
    apart: str = ""

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
    return Results(tables, suites, inputs, together, apart)


def suite_of(run: str) -> str:
    """The suite that the arms of a run were tested on, as the first of them noted it; empty where none did."""
    for path in sorted((run_folder(run) / "05_wmla").glob("*/params.json")):
        return str(read_json(path)["params"].get("collect.suite", ""))
    return ""


def why_apart(names: Sequence[str], suites: Mapping[str, str]) -> str:
    """Why runs are not added up, in words; nothing where they may be: they differ in their seed and nothing else."""
    noted = [_noted(name) for name in names]
    keys = sorted({key for other in noted[1:] for key in noted[0] | other if noted[0].get(key) != other.get(key)})
    if keys:
        return f"differ in more than their seed ({', '.join(keys[:3])}{' and more' * (len(keys) > 3)})"
    seeds = [_seed(name) for name in names]
    if len(set(seeds)) < len(seeds):
        return "have a seed in common, and the second of them is no further evidence"
    if len(names) > 1 and suites[names[0]] not in DRAWN:
        return f"met the same tasks, since a seed draws none in suite '{suites[names[0]]}'"
    return ""


def _seed(run: str) -> int | None:
    """The seed that the first stage of a run noted."""
    found = sorted(run_folder(run).glob("**/params.json"))
    return read_json(found[0])["params"].get("seed") if found else None


def _noted(run: str) -> dict:
    """The params of each stage of a run by `<stage> <key>`; how it was analysed does not make it another run."""
    found = {}
    for path in sorted(run_folder(run).glob("**/params.json")):
        stage = path.parent.relative_to(run_folder(run)).as_posix()
        made = ".old-" not in stage and stage != "06_analysis"
        values = flatten(read_json(path)["params"]) if made else {}
        found |= {f"{stage} {key}": value for key, value in values.items() if key not in OWN}
    return found


def added_rates(frame: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Successes and n of all runs added up by `keys`, with the Wilson interval."""
    total = frame.groupby(keys, sort=False)[["n", "successes"]].sum().reset_index()
    bounds = [wilson(row.successes, row.n) for row in total.itertuples()]
    return total.assign(**dict(zip(("rate", "low", "high"), zip(*bounds, strict=True), strict=True)))


def added_lookahead(frame: pd.DataFrame) -> pd.DataFrame:
    """Successes added up, what a decision cost as the mean over all decisions."""
    keys = ["policy", "preset", "k", "depth", "split"]
    rates = added_rates(frame.assign(successes=(frame["rate"] * frame["n"]).round()), keys)
    counts = ["decisions", "overruled", "fell_back"]
    weighed = frame.assign(**{key: frame[key] * frame["decisions"] for key in MEANS})
    sums = weighed.groupby(keys, sort=False)[[*counts, *MEANS]].sum(min_count=1).reset_index()
    sums[[*MEANS]] = sums[[*MEANS]].div(sums["decisions"], axis=0)
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
