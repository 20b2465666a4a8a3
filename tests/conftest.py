"""What modules of tests share: a browser, `chromium`, and a finished smoke run, `unbroken`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import pytest_asyncio
from stand_ins import SMOKE

from wevo_nb.chromium import Chromium


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chromium():
    async with Chromium(SMOKE.browser) as browser:
        yield browser


def environment(outputs: Path) -> dict:
    return os.environ | {"WEVO_OUTPUTS": str(outputs), "HF_HUB_OFFLINE": "1"}


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "wevo_nb.cli", "run", "--profile", "smoke", *words]


@pytest.fixture(scope="session")
def unbroken(tmp_path_factory) -> Path:
    """A finished smoke run, by the command (`-m notebook`: a minute or two). No test changes what is in it."""
    outputs = tmp_path_factory.mktemp("unbroken")
    done = subprocess.run(command(), env=environment(outputs), capture_output=True, text=True, cwd="/")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "06_analysis/tables/success.csv" in done.stdout.replace("\n", "")
    return outputs / "smoke"
