"""`wevo report`: one HTML file about a run, for people who have no Python and no network.

Reads manifests, params, the tables and figures of notebook 06, and names of files; runs nothing.
Writes `outputs/<run>/report.html`, which holds its figures, its style and its script, and links by
relative addresses to the executed notebooks and the files of trajectories beside it. What is not
there is told. Paper: section 4, whose tables and figures notebook 06 lays beside ours.
"""

from __future__ import annotations

import csv
import hashlib
import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from wevo_nb import calibration, chain, markup
from wevo_nb.index import LEFT_OUT, Index
from wevo_nb.metrics import PAIRED_COLUMNS, SUCCESS_COLUMNS
from wevo_nb.runs import flatten, read_json, run_folder, signature

NAME = "report.html"
ANALYSIS = "06_analysis"
FIRST_FIGURES = ("success_by_arm", "paired_differences", "stall")  # then the others by name
FIRST_TABLES = ("success", "paired")
SHARED = ("git_commit", "git_dirty", "python", "machine", "gpu", "browser", "packages")  # of provenance


class Table(NamedTuple):
    """A table to read: its name, its file below the run's folder, headings and cells as text."""

    name: str
    file: str
    headings: list[str]
    rows: list[list[str]]
    caption: str = ""


class Figure(NamedTuple):
    """A saved figure: its picture as base64, its caption, and its vector form below the run's folder."""

    name: str
    caption: str
    png: str
    vector: str


def write_report(run: str) -> Path:
    """Writes the report of a run and returns its path. Raises StageError where there is no such run."""
    told = gather(run)
    script = markup.style("pages.js")
    text = markup.render(
        "report.html", script_hash=_csp_hash(f"\n{script}"), script=script, address=address, minute=minute, **told
    )
    path = run_folder(run) / NAME
    temporary = path.with_name(f".{NAME}")
    temporary.write_text(text)
    return temporary.replace(path)


def gather(run: str) -> dict:
    """All that the report says, as plain values."""
    profile, overrides = chain.made_with(run)
    folder = run_folder(run)
    planned = [part for step in chain.plan(profile, overrides) for part in step.parts]
    index = Index(folder)
    stages = [stage_of(folder, name, index) for name in stage_names(folder, planned)]
    figures, tables = figures_of(folder), tables_of(folder)
    manifests = {one["name"]: one["manifest"] for one in stages if one["manifest"]}
    return {
        "run": run, "profile": profile, "made": read_json(folder / "run.json"), "overrides": flatten(overrides),
        "written": datetime.now(UTC).isoformat(timespec="seconds"), "stages": stages,
        "figures": {figure.name: figure for figure in figures}, "tables": {table.name: table for table in tables},
        "funnel": funnels(folder, manifests), "cost": cost(manifests), "shared": shared(manifests),
        "takeaways": (read_json(folder / ANALYSIS / "metrics.json") or {}).get("takeaways", []),
        "judged": calibration.behind(run), "trajectories": len(index.entries),
        "missing": missing(run, stages, planned, figures, tables, index),
    }  # fmt: skip


def stage_names(folder: Path, planned: Sequence[str]) -> list[str]:
    """The stages that the profile plans, in order, and then those that are there beside them."""
    there = [
        str(path.parent.relative_to(folder))
        for path in sorted(folder.glob("**/params.json"))
        if not any(LEFT_OUT.match(part) for part in path.relative_to(folder).parts)
    ]
    return [*planned, *(name for name in there if name not in planned)]


def stage_of(folder: Path, name: str, index: Index) -> dict:
    """What is known of one stage: its state, its manifest, its files."""
    place = folder / name
    manifest = read_json(place / "manifest.json")
    begun = manifest or read_json(place / "params.json")
    spec = read_json(place / "params.json") or {}
    counted: dict[str, int] = {}
    for entry in index.entries:
        if entry.file.rpartition("/")[0] == name:
            counted[entry.file] = counted.get(entry.file, 0) + 1
    notebook = place / "notebook.ipynb"
    if not notebook.exists() and name.startswith("05_wmla/"):
        notebook = place.parent / "notebook.ipynb"  # one for all arms
    return {
        "name": name, "state": "done" if manifest else "begun" if begun else "not begun", "manifest": manifest,
        "seed": spec.get("params", {}).get("seed"), "params": flatten(spec.get("params", {})),
        "notebook": str(notebook.relative_to(folder)) if notebook.exists() else "", "files": counted,
    }  # fmt: skip


def figures_of(folder: Path) -> list[Figure]:
    """The figures of notebook 06, the main ones first."""
    found = []
    for path in (folder / ANALYSIS / "figures").glob("*.png"):
        caption = (read_json(path.with_suffix(".json")) or {}).get("caption", "")
        vectors = [other for end in (".pdf", ".svg") if (other := path.with_suffix(end)).exists()]
        vector = str((vectors or [path])[0].relative_to(folder))
        found.append(Figure(path.stem, caption, b64encode(path.read_bytes()).decode(), vector))
    return sorted(found, key=lambda figure: _place(figure.name, FIRST_FIGURES))


def tables_of(folder: Path) -> list[Table]:
    """The tables of notebook 06, the main ones first and in words."""
    found = []
    for path in (folder / ANALYSIS / "tables").glob("*.csv"):
        with path.open(newline="") as file:
            headings, *rows = list(csv.reader(file)) or [[]]
        caption = (read_json(path.with_suffix(".json")) or {}).get("caption", "")
        found.append(in_words(Table(path.stem, str(path.relative_to(folder)), headings, rows, caption)))
    return sorted(found, key=lambda table: _place(table.name, FIRST_TABLES))


def in_words(table: Table) -> Table:
    """`success` and `paired` with rates in percent beside their n and interval; any other with shorter numbers.

    `success` has one row an arm and one column a split.
    """
    columns = {name: table.headings.index(name) for name in table.headings}
    records = [{name: row[place] for name, place in columns.items()} for row in table.rows]
    if table.name == "success" and columns.keys() >= set(SUCCESS_COLUMNS):
        arms, splits = (list(dict.fromkeys(one[key] for one in records)) for key in ("arm", "split"))
        cells = {(one["arm"], one["split"]): _success(one) for one in records}
        rows = [[arm, *(cells.get((arm, split), "") for split in splits)] for arm in arms]
        return table._replace(headings=["arm", *splits], rows=rows)
    if table.name == "paired" and columns.keys() >= set(PAIRED_COLUMNS):
        headings = ["arm", "against", "split", "difference in points, 95% interval", "won, lost, of n", "p"]
        headings += ["p, Holm"] if "p_holm" in columns else []
        return table._replace(headings=headings, rows=[_paired(one) for one in records])
    return table._replace(rows=[[_short(cell) for cell in row] for row in table.rows])


def funnels(folder: Path, manifests: Mapping[str, dict]) -> list[tuple[str, list[tuple[str, int, int]]]]:
    """(stage, [(step, kept, of)]) of every finished stage that counted what its filters left.

    `of` is what came in: the first step, or the first one of the same part (`real: ...`, `imagined: ...`).
    """
    found = []
    for name in manifests:
        funnel = (read_json(folder / name / "metrics.json") or {}).get("funnel", [])
        first: dict[str, int] = {}
        steps = []
        for row in funnel:
            part = row["step"].partition(": ")[0] if ": " in row["step"] else ""
            steps.append((row["step"], row["kept"], first.setdefault(part, row["kept"])))
        found += [(name, steps)] if steps and name != ANALYSIS else []
    return found


def cost(manifests: Mapping[str, dict]) -> list[list[str]]:
    """A row a finished stage: name, time, peak memory, calls, prompt and completion tokens; a last one of the sums."""
    counts = ("calls", "prompt_tokens", "completion_tokens")
    rows, sums = [], [0.0, 0, 0, 0]
    for name, manifest in manifests.items():
        used = [sum(role.get(count, 0) for role in manifest["usage"].values()) for count in counts]
        memory = manifest["peak_memory_mb"]
        rows.append([name, chain.clock(manifest["seconds"]), f"{memory:,}", *(f"{count:,}" for count in used)])
        sums = [a + b for a, b in zip(sums, [manifest["seconds"], *used], strict=True)]
    most = max((manifest["peak_memory_mb"] for manifest in manifests.values()), default=0)
    return [*rows, ["together", chain.clock(sums[0]), f"{most:,} at most", *(f"{count:,}" for count in sums[1:])]]


def shared(manifests: Mapping[str, dict]) -> list[tuple[dict, list[str]]]:
    """What stages were made with (commit, versions, machine), each set once, with the stages that it made."""
    groups: dict[str, tuple[dict, list[str]]] = {}
    for name, manifest in manifests.items():
        made = {key: manifest["provenance"][key] for key in SHARED if key in manifest["provenance"]}
        alike = json.dumps({key: value for key, value in made.items() if key != "browser"}, sort_keys=True)
        known, names = groups.setdefault(alike, ({}, []))
        known.update(flatten(made))
        names.append(name)
    return list(groups.values())


def missing(
    run: str, stages: Sequence[dict], planned: Sequence[str], figures: Sequence[Figure], tables: Sequence[Table],
    index: Index,
) -> list[str]:  # fmt: skip
    """What is not there, or not as it should be, a sentence each."""
    by_name = {one["name"]: one for one in stages}
    said = [
        f"{name} is {by_name[name]['state']}: wevo run --run {run}" for name in planned if not by_name[name]["manifest"]
    ]
    said += [f"{one['name']} has no executed notebook" for one in stages if one["manifest"] and not one["notebook"]]
    analysis = by_name.get(ANALYSIS, {}).get("manifest")
    if analysis:
        for name, then in analysis["inputs"].items():
            if not by_name.get(name, {}).get("manifest"):
                said.append(f"{ANALYSIS} has read {name}, which is not there any more")
            elif signature(run, name) != then:
                said.append(f"{name} was made anew since {ANALYSIS} read it: wevo run --run {run} --only 06")
        new = [n for n, one in by_name.items() if one["manifest"] and n != ANALYSIS and n not in analysis["inputs"]]
        said += [f"{ANALYSIS} was made before {name} was done: wevo run --run {run} --only 06" for name in new]
    if not figures or not any(table.name == "success" for table in tables):
        said.append(f"there are no tables and figures of notebook 06: wevo run --run {run} --only 06")
    dirty = [one["name"] for one in stages if one["manifest"] and one["manifest"]["provenance"].get("git_dirty")]
    said += [f"made from a checkout with changes that are not committed: {', '.join(dirty)}"] if dirty else []
    unscored = sum(entry.outcome == "unscored" for entry in index.entries)
    said += [f"trajectories that could not be scored, and are in no rate: {unscored:,}"] if unscored else []
    return said + [f"{file}: {problem}" for file, problem in index.problems.items()]


def address(path: str) -> str:
    """A path below the run's folder as a relative address."""
    return quote(path)


def minute(stamp: str) -> str:
    """An ISO time as `2026-11-30 08:20`."""
    return stamp[:16].replace("T", " ")


def _success(row: Mapping[str, str]) -> str:
    """Rate, interval and counts; where episodes were not scored, what it were had all of them failed or succeeded."""
    interval = f"{_percent(row['rate'])}% [{_percent(row['low'])}, {_percent(row['high'])}]" if row["rate"] else "-"
    told = f"{interval}, {_count(row['successes'])} of {_count(row['n'])}".replace(
        " of ", "\N{NO-BREAK SPACE}of\N{NO-BREAK SPACE}"
    )
    if not float(row.get("unscored") or 0):
        return told
    bounds = f"{_percent(row['low_bound'])} to {_percent(row['high_bound'])}%"
    return f"{told}; {_count(row['unscored'])} unscored, so {bounds}"


def _paired(row: Mapping[str, str]) -> list[str]:
    points = [f"{100 * float(row[key]):+.0f}" if row[key] else "" for key in ("difference", "low", "high")]
    told = f"{points[0]} [{points[1]}, {points[2]}]" if points[0] else ""
    won = f"{_count(row['won'])}, {_count(row['lost'])}, {_count(row['n'])}"
    tests = [_p(row[key]) for key in ("p", "p_holm") if key in row]
    if row.get("same_policy") == "True":
        tests[-1] = "same policy, not counted"
    return [row["arm_b"], row["arm_a"], row["split"], told, won, *tests]


def _p(text: str) -> str:
    return text and ("< 0.001" if float(text) < 0.001 else f"{float(text):.3f}")


def _percent(text: str) -> str:
    return f"{100 * float(text):.0f}" if text else ""


def _count(text: str) -> str:
    return f"{float(text):,.0f}" if text else ""


def _short(cell: str) -> str:
    """A number with three decimals at most; any other text as it is."""
    try:
        number = float(cell)
    except ValueError:
        return cell
    return (
        cell
        if "." not in cell
        else f"{number:.3f}".rstrip("0").rstrip(".")
        if abs(number) >= 0.001
        else f"{number:.1e}"
    )


def _place(name: str, first: Sequence[str]) -> tuple[int, str]:
    return (first.index(name) if name in first else len(first)), name


def _csp_hash(text: str) -> str:
    return "sha256-" + b64encode(hashlib.sha256(text.encode()).digest()).decode()
