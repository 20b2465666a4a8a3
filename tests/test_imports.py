"""Importing the package costs milliseconds, and modules import only what stands above them in the reading order."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LIGHT = (
    "schema",
    "actions",
    "observation",
    "params",
    "llm",
    "serve",
    "world_model",
    "replies",
    "answers",
    "judge",
    "calibration",
    "lookahead",
    "metrics",
    "chain",
    "index",
    "view",
    "report",
    "cli",
)
HEAVY = {"torch", "transformers", "playwright", "pandas", "openai"}


def test_importing_the_package_takes_less_than_a_fifth_of_a_second():
    command = [sys.executable, "-X", "importtime", "-c", "import wevo_nb"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    last = done.stderr.strip().splitlines()[-1]  # import time: self [us] | cumulative | imported package
    _, cumulative, name = last.split("|")
    assert name.strip() == "wevo_nb"
    assert int(cumulative) < 200_000


@pytest.mark.parametrize("module", LIGHT)
def test_light_modules_load_nothing_heavy(module):
    code = f"import sys, wevo_nb.{module}; print(*{HEAVY} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_the_order_of_imports_is_held():
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache", "--no-logo"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 kept, 0 broken" in done.stdout
