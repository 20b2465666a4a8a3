"""The notebooks as lessons: what each has to have, and that the numbers it quotes are those of the files.

The paper's are held against paper_numbers.json, our paired differences against the tables of docs/study.
"""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import nbformat
import pytest

from wevo_nb.metrics import paired
from wevo_nb.params import ROOT
from wevo_nb.sections import FINAL_ARMS

FOLDER = ROOT / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
PAGES = sorted((ROOT / "docs").rglob("*.md"))
SIZES = ("*Seconds.*", "*Minutes", "*An hour")
LINK = re.compile(r"\]\(([^)#]*)(?:#([^)]*))?\)")
SPAN = r"([+-]?\d+) \[([+-]?\d+), ([+-]?\d+)\]"
PAIR = re.compile(rf"([\w+]+) against ([\w+]+) {SPAN} \((\d+) won, (\d+) lost, n = (\d+)\)")


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def cells(request) -> list:
    return nbformat.read(request.param, as_version=4).cells


def texts(cells) -> list[str]:
    return [cell.source for cell in cells if cell.cell_type == "markdown"]


def part(text: str, begin: str) -> str:
    """The paragraph that begins with `begin`."""
    [found] = [paragraph for paragraph in text.split("\n\n") if paragraph.startswith(begin)]
    return found


def test_it_begins_with_the_question_the_papers_answer_and_ours(cells):
    assert cells[0].source.startswith("# ")
    for begin in ("**Question.**", "**The paper's answer.**", "**Ours"):
        assert part(cells[0].source, begin)
    [diagram] = re.findall(r"(?s)```\n(.+?)```", cells[1].source)  # of what flows where
    assert max(map(len, diagram.splitlines())) <= 88, "a wider one is wrapped in JupyterLab"
    assert "docs/TERMS.md" in cells[1].source


def test_it_asks_before_it_runs(cells):
    asked = [i for i, cell in enumerate(cells) if cell.cell_type == "markdown" and "**Before you run.**" in cell.source]
    assert len(asked) >= 3
    assert all(cells[i + 1].cell_type == "code" for i in asked)


def test_it_says_what_wrong_looks_like(cells):
    [table] = [text for text in texts(cells) if text.startswith("## When it looks wrong")]
    rows = [line for line in table.splitlines() if line.startswith("|")][2:]
    assert len(rows) >= 5 and all(line.count("|") == 4 for line in rows)


def test_exercises_of_three_sizes_with_a_solution_each(request, cells):
    name = request.node.callspec.id
    [text] = [text for text in texts(cells) if re.search(r"(?m)^\*\*Exercises\.\*\*|^## Exercises", text)]
    numbers = [int(n) for n in re.findall(r"(?m)^(\d)\. \*", text)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert all(size in text for size in SIZES)
    source = (ROOT / "docs" / "solutions" / f"{name}.py").read_text()
    assert f"docs/solutions/{name}.py" in text
    assert [int(n) for n in re.findall(r"def exercise_(\d)\(", source)] == numbers


def reported() -> set[float]:
    """Every number in the blocks of paper_numbers.json."""
    found = set()

    def walk(value):
        if isinstance(value, dict):
            for one in value.values():
                walk(one)
        elif isinstance(value, list):
            for one in value:
                walk(one)
        elif isinstance(value, str):
            found.update(map(float, re.findall(r"\d+(?:\.\d+)?", value)))
        elif value is not None:
            found.add(float(value))

    walk(json.loads((ROOT / "wevo_nb" / "paper_numbers.json").read_text()))
    return found


def test_the_papers_numbers_are_the_papers(cells):
    told = part(cells[0].source, "**The paper's answer.**")
    numbers = {float(n) for n in re.findall(r"\d+\.\d+", told)}
    assert len(numbers) >= 3
    assert numbers <= reported()


def test_the_page_on_reproducing_reports_the_papers_numbers():
    rows = [line.split("|") for line in (ROOT / "docs" / "REPRODUCING.md").read_text().splitlines() if line[:2] == "| "]
    claims = {row[1].strip(): row[2] for row in rows if len(row) > 5}
    numbers = {float(n) for told in claims.values() for n in re.findall(r"\d+\.\d+", told)}
    assert len(numbers) > 40
    assert numbers <= reported()


def counted() -> dict[tuple[str, str], list[tuple[int, int, int]]]:
    """(b, a) -> (won, lost, n) on the held-out seeds of each seed of the study."""
    found: dict = {}
    for path in sorted((ROOT / "docs" / "study").glob("seed-*/tables/paired.csv")):
        for row in csv.DictReader(path.open()):
            if row["split"] == "test_seeds":
                counts = tuple(int(row[key]) for key in ("won", "lost", "n"))
                found.setdefault((row["arm_b"], row["arm_a"]), []).append(counts)
    return found


def quoted() -> list[tuple[str, ...]]:
    """Every paired difference that a notebook or a page quotes in full, with where it stands."""
    every = [(path.name, cell.source) for path in NOTEBOOKS for cell in nbformat.read(path, as_version=4).cells]
    every += [(path.name, path.read_text()) for path in PAGES]
    return [(where, *found) for where, text in every for found in PAIR.findall(text)]


def test_differences_are_quoted():
    assert len(quoted()) >= 10


@pytest.mark.parametrize("quote", quoted(), ids=lambda quote: " ".join(quote[:3]))
def test_a_quoted_difference_is_that_of_the_study(quote):
    """Of one seed, or of all added up; of policies that learned from dreams, which each seed made otherwise, of one."""
    _, b, a, *numbers = quote
    points, low, high, won, lost, n = map(int, numbers)
    seeds = counted()[b, a]
    dreamt = {arm.partition("+")[0] for arm in (a, b)} & set(FINAL_ARMS)
    together = [] if dreamt else [tuple(map(sum, zip(*seeds, strict=True)))]
    assert (won, lost, n) in [*seeds, *together]
    told = paired(won, lost, n)
    assert (points, low, high) == tuple(round(100 * told[key]) for key in ("difference", "low", "high"))


def anchors(path: Path) -> set[str]:
    """The headings of a page as links name them."""
    titles = re.findall(r"(?m)^#+ (.+)$", path.read_text())
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", [*NOTEBOOKS, *PAGES, ROOT / "README.md"], ids=lambda path: path.name)
def test_every_link_leads_somewhere(path):
    text = path.read_text()
    if path.suffix == ".ipynb":
        text = "\n".join(texts(nbformat.read(path, as_version=4).cells))
    for target, anchor in LINK.findall(text):
        if target.startswith(("http://", "https://")):
            continue
        there = (path.parent / target).resolve() if target else path
        assert there.exists(), target
        assert not anchor or anchor in anchors(there), f"{target}#{anchor}"


def test_a_term_has_a_line_of_its_own_and_two_sentences_at_least():
    text = (ROOT / "docs" / "TERMS.md").read_text()
    terms = re.findall(r"(?m)^\*\*([^*]+)\.\*\* (.+)$", text)
    names = [name.lower() for told, _ in terms for name in told.split(", ")]
    assert len(names) == len(set(names)) > 50
    assert {told: said for told, said in terms if len(re.findall(r"[.:;?](?:\s|$)", said)) < 2} == {}
    used = {
        word.lower()
        for path in NOTEBOOKS
        for row in texts(nbformat.read(path, as_version=4).cells)[1].splitlines()
        if row.startswith("| **Words**")
        for word in re.findall(r"\*([\w -]+)\*", row.split("|")[2])
    }
    known = " ".join(names)
    assert used and {word for word in used if word not in known} == set()
