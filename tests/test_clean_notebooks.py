"""Every notebook in git is source: no outputs, no counts, the four parameters, more prose than code."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import nbformat
import pytest

from wevo_nb.params import load_params

FOLDER = Path(__file__).resolve().parent.parent / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
PARAMETERS = ["profile", "run", "iteration", "overrides"]
LONGEST_CELL = 25


def code(notebook) -> list:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def notebook(request):
    found = nbformat.read(request.param, as_version=4)
    nbformat.validate(found)
    return found


def test_there_are_notebooks():
    assert NOTEBOOKS, f"no notebooks in {FOLDER}"


def test_no_outputs_and_no_counts(notebook):
    assert [cell.id for cell in code(notebook) if cell.outputs or cell.execution_count is not None] == []


def test_one_parameters_cell_with_exactly_the_four_names(notebook):
    tagged = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]
    assert len(tagged) == 1
    assigned = [target.id for node in ast.parse(tagged[0].source).body for target in node.targets]
    assert assigned == PARAMETERS


def test_no_code_cell_is_longer_than_a_screen(notebook):
    assert {cell.id: n for cell in code(notebook) if (n := len(cell.source.splitlines())) > LONGEST_CELL} == {}


def test_at_least_as_much_prose_as_code(notebook):
    assert sum(cell.cell_type == "markdown" for cell in notebook.cells) >= len(code(notebook))


def sizes(profile: str) -> dict[str, str]:
    """What the slow cell of each notebook has to do."""
    params = load_params(profile).params
    tasks, rows, sft = params.tasks, sum(params.world_model.outcome_rows.values()), params.sft
    tested = len(tasks.train) * tasks.test_seeds + len(tasks.held_out) * tasks.held_out_seeds
    return {
        "01_collect": f"{len(tasks.train) * tasks.train_seeds}",
        "02_wm_train": f"up to {rows} x {params.world_model_sft.epochs:g}",
        "03_synthesize": f"up to {params.synthesize.tasks * params.synthesize.attempts}",
        "04_final_sft": f"up to {len(tasks.train) * sft.rows_per_task} x {sft.epochs:g}",
        "05_wmla": f"{len(params.arms())} x {tested}",
    }


@pytest.mark.parametrize("profile", ["smoke", "demo", "study"])
def test_a_slow_cell_says_how_much_there_is_to_do(profile):
    for name, size in sizes(profile).items():
        text = "\n".join(cell.source for cell in nbformat.read(FOLDER / f"{name}.ipynb", as_version=4).cells)
        assert re.findall(rf"^\| {profile} \| (.+?) \| .+ \|$", text, re.M) == [size], name


def test_cell_ids_are_unique(notebook):
    ids = [cell.id for cell in notebook.cells]
    assert len(ids) == len(set(ids))
