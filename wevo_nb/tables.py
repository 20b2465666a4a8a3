"""A tidy frame as a table to print: LaTeX (booktabs), Markdown and CSV.

Takes rows with paper.COLUMNS, reported ones and ours, and lays them side by side. What is empty
stands as a dash. `write` puts down four files; the CSV holds the tidy frame, with every interval
and source. LaTeX is written by pandas with jinja2, which nbconvert brings along. Used by exhibits.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from wevo_nb import runs
from wevo_nb.paper import NOT_GIVEN, ONLY_DRAWN

if TYPE_CHECKING:
    import pandas as pd

EMPTY = "–"
SHORT = {ONLY_DRAWN: "drawn only", NOT_GIVEN: "not given"}  # in a cell; other notes are settings in words
WIDE = 8  # more columns: cells of one run are counts, headings stand upright, so that a page holds them
LABELS = {  # what the files call it: how it is printed
    "webvoyager": "WebVoyager", "mind2web_live": "Mind2Web-Live", "gaia_web_l1": "GAIA-web, level 1",
    "gaia_web_l2": "GAIA-web, level 2", "gaia_web_l3": "GAIA-web, level 3", "simpleqa": "SimpleQA",
    "test_seeds": "held-out seeds", "test_tasks": "held-out tasks", "test_sites": "held-out sites",
    "visualwebarena": "VisualWebArena", "online_mind2web": "Online-Mind2Web",
    "STR": "structure (STR)", "Sim": "similarity (Sim)", "OA": "overall (OA)",
    "EA": "element accuracy (EA)", "AF1": "action F1 (AF1)", "step_SR": "step success", "SR": "success",
    "usd": "USD", "max_actions": "most actions", "awm": "AWM", "awm_wma": "AWM + WMA", "wma": "WMA",
    "webdreamer": "WebDreamer", "no_next_state": "no next state", "full": "full",
    "untrained_world_model": "untrained world model", "full_tree_target": "full tree as target",
    "prompted_gpt4o_mini": "prompted GPT-4o-mini", "finetuned_8b": "fine-tuned 8B",
    "tree_search": "tree search", "exact_match": "exact match", "outcome_accuracy": "outcome accuracy",
    "element_f1": "element F1", "hallucinated_facts": "invented facts",
}  # fmt: skip
LATEX = str.maketrans({c: f"\\{c}" for c in "&%$#_{}"} | {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "\\": r"\textbackslash{}", "<": r"\textless{}", ">": r"\textgreater{}", EMPTY: "--"})  # fmt: skip


def label(name: str) -> str:
    """How a row, column or panel of the files is printed."""
    return LABELS.get(name, name)


def who(row) -> str:
    """The heading under which a row of a tidy frame stands."""
    return "reported" if row.reported else row.run or "our runs"


def wide(frame: pd.DataFrame) -> pd.DataFrame:
    """A tidy frame as strings, side by side: reported columns, then those of each run.

    Where the frame has panels, each is a block of rows. Reported numbers have the decimals that
    the paper gives in most of a column; ours one, and their interval. n stands in the heading where all of a
    column share one. From WIDE columns a run on, a rate of ours is successes/n.
    """
    import pandas as pd

    if frame.empty:
        return pd.DataFrame([["nothing yet"]], index=[""], columns=[""])
    frame = frame.assign(who=[who(row) for row in frame.itertuples()])
    panels = frame["panel"].ne("").any()
    block = ["who", "panel"] if panels else ["who", "column"]  # what shares decimals, and without panels n
    parts = dict(list(frame.groupby(block, sort=False)))
    digits = {key: _decimals(part["value"].dropna()) for key, part in parts.items()}
    shared = {key: None if panels else _shared(part) for key, part in parts.items()}
    many = {name for name, part in frame[~frame["reported"]].groupby("who") if part["column"].nunique() > WIDE}
    rank = lambda values: {value: i for i, value in enumerate(dict.fromkeys(values))}  # noqa: E731
    whose, blocks, across, places = rank(frame["who"]), rank(frame["panel"]), rank(frame["column"]), row_places(frame)
    cells, rows, columns = {}, {}, {}
    for row in frame.itertuples():
        key = (row.who, row.panel if panels else row.column)
        head = label(row.column) + (f" (n = {shared[key]:.0f})" if shared[key] else "")
        index = (f"{row.who}: {label(row.panel)}", label(row.row)) if panels else (label(row.row),)
        column = (head,) if panels else (row.who, head)
        rows[index] = (whose[row.who], blocks[row.panel], places[row.row]) if panels else (places[row.row],)
        columns[column] = (across[row.column],) if panels else (whose[row.who], across[row.column])
        cells[index, column] = cell(row, digits[key], counted=bool(shared[key]), compact=row.who in many)
    rows, columns = sorted(rows, key=rows.get), sorted(columns, key=columns.get)
    names = lambda keys: pd.MultiIndex.from_tuples(keys) if len(keys[0]) > 1 else [name for (name,) in keys]  # noqa: E731
    texts = [[cells.get((index, column), EMPTY) for column in columns] for index in rows]
    return pd.DataFrame(texts, index=names(rows), columns=names(columns))


def row_places(frame: pd.DataFrame) -> dict[str, int]:
    """The place of each row of a tidy frame: as they first come, one that is another and a colon below that."""
    names = list(dict.fromkeys(frame["row"]))
    above = {name: name.partition(":")[0] for name in names}
    return {name: names.index(above[name] if above[name] in names else name) for name in names}


def cell(row, digits: int | None, *, counted: bool, compact: bool) -> str:
    """The text of one number: as reported, or ours with interval, and with n unless the heading has it (`counted`)."""
    if row.value != row.value:
        return SHORT.get(row.note, row.note) if row.reported and row.note else EMPTY
    if row.reported:
        return f"{row.value:g}" if digits is None or row.unit == "" else f"{row.value:.{digits}f}"
    if compact and row.unit == "%":
        return f"{row.value * row.n / 100:.0f}/{row.n:.0f}"
    share = row.unit.startswith("%") or row.low == row.low
    text = f"{row.value:.1f}" if share else f"{row.value:.3g}" if row.value < 1000 else f"{row.value:,.0f}"
    if row.low == row.low:
        text += f" [{row.low:.1f}, {row.high:.1f}]"
    return text if counted or row.n != row.n else f"{text} (n = {row.n:.0f})"


def _decimals(values: pd.Series) -> int | None:
    """How many decimals the paper gives in a column; None, each as it is, where most are whole numbers."""
    given = [len(f"{value:.6f}".rstrip("0").partition(".")[2]) for value in values]
    return None if 2 * given.count(0) > len(given) or not given else max(given)


def _shared(part: pd.DataFrame) -> float | None:
    """The n that all numbers of a column share; None where they share none."""
    n = part[part["value"].notna()]["n"].unique()
    return float(n[0]) if len(n) == 1 and n[0] == n[0] else None


def markdown(frame: pd.DataFrame) -> str:
    """`wide` as a Markdown table. Panels become rows of their own in bold."""
    table = wide(frame)
    heads = [f"{head[0]}: {head[1]}" if isinstance(head, tuple) else head for head in table.columns]
    lines = ["| | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
    last = None
    for index, row in zip(table.index, table.to_numpy(), strict=True):
        block, name = index if isinstance(index, tuple) else (None, index)
        if block != last:
            lines.append(f"| **{block}** |" + " |" * len(heads))
            last = block
        lines.append(f"| {name} | " + " | ".join(row) + " |")
    return "\n".join(line.replace("<", "&lt;") for line in lines) + "\n"


def latex(frame: pd.DataFrame, caption: str, name: str) -> str:
    """`wide` as a LaTeX table over the width of a page; needs booktabs, graphicx and multirow.

    From WIDE columns on their headings stand upright, so that the numbers stay legible.
    """
    table = wide(frame).map(escaped)
    table.columns, table.index = _escaped_axis(table.columns), _escaped_axis(table.index)
    if len(table.columns) > WIDE and table.columns.nlevels == 1:
        table.columns = [f"\\rotatebox{{90}}{{{head}}}" for head in table.columns]
    body = table.style.to_latex(
        hrules=True,
        column_format="l" * table.index.nlevels + "r" * len(table.columns),
        multicol_align="c",
        multirow_align="t",
        clines="skip-last;data" if table.index.nlevels > 1 else None,
    ).strip()
    line = f"\\cline{{1-{table.index.nlevels + len(table.columns)}}}\n"
    body = body.replace(f"{line}\\bottomrule", "\\bottomrule").replace(line, "\\midrule\n")
    return (
        "% \\usepackage{booktabs,graphicx,multirow}\n\\begin{table*}[t]\n\\centering\\small\n"
        f"\\caption{{{escaped(caption)}}}\n\\label{{tab:{name.replace('_', '-')}}}\n"
        f"\\resizebox{{\\ifdim\\width>\\textwidth \\textwidth\\else\\width\\fi}}{{!}}{{%\n{body}}}\n\\end{{table*}}\n"
    )


def escaped(text: str) -> str:
    """Text as LaTeX prints it."""
    return text.translate(LATEX)


def _escaped_axis(axis):
    import pandas as pd

    if isinstance(axis, pd.MultiIndex):
        return pd.MultiIndex.from_tuples([tuple(map(escaped, key)) for key in axis])
    return axis.map(escaped)


def write(frame: pd.DataFrame, shown: pd.DataFrame, folder: Path, name: str, caption: str, inputs: dict) -> Path:
    """Writes <name>.csv (`frame`, tidy), .md and .tex (`shown` of it) and .json (caption, inputs, hash of the csv).

    Returns the path of the csv.
    """
    path = folder / f"{name}.csv"
    runs.write_csv(path, frame)
    path.with_suffix(".md").write_text(f"{markdown(shown)}\n{caption}\n")
    path.with_suffix(".tex").write_text(latex(shown, caption, name))
    runs.write_json(path.with_suffix(".json"), {"caption": caption, "inputs": inputs, "csv": runs.sha256(path)})
    return path
