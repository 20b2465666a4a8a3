"""`wevo tasks`: suites with counts, the tasks of one as table and JSON; and the suite that CONTRIBUTING.md adds."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from stand_ins import SMOKE, did

from wevo_nb import tasks
from wevo_nb.browser import BrowserEnv
from wevo_nb.chromium import Chromium
from wevo_nb.judge import RewardJudge
from wevo_nb.observation import parse_page
from wevo_nb.params import ParamsError
from wevo_nb.rollout import rollout
from wevo_nb.schema import Task
from wevo_nb.tasks import listing

ROOT = Path(__file__).parent.parent
ROWS = "metadata,problem,answer\n" + "".join(f'"{{}}",Who is number {i}?,Number {i}\n' for i in range(3))


@pytest.fixture
def wevo(tmp_path):
    """`wevo tasks ...` in a process of its own: exit status, output, errors. Downloads go to an empty folder."""

    def run(*words: str) -> tuple[int, str, str]:
        environment = {**os.environ, "WEVO_CACHE": str(tmp_path), "COLUMNS": "200"}
        command = [sys.executable, "-m", "wevo_nb.cli", "tasks", *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout, done.stderr

    return run


def test_the_suites_are_listed_with_their_counts_or_how_to_get_them(wevo):
    status, said, _ = wevo()
    assert status == 0
    assert re.search(r"^ ?miniwob +130 +train 130 +MiniWoB\+\+ of the Farama Foundation, MIT", said, re.M)
    assert "webvoyager: WebVoyager_test.jsonl of suite 'webvoyager' is not here yet" in said
    assert set(tasks.SUITES) <= set(re.findall(r"^ ?(\w+) ", said, re.M))


def test_a_suite_is_listed_as_a_table_with_group_reason_and_totals(wevo):
    status, said, _ = wevo("miniwob", "--limit", "3")
    lines = said.splitlines()
    assert status == 0 and lines[0].startswith("miniwob: MiniWoB++ of the Farama Foundation, MIT")
    assert lines[2].split() == ["id", "suite", "template", "split", "group", "random", "reason"]  # none that is empty
    assert re.search(r"^ ?miniwob/bisect-angle/0 +miniwob +bisect-angle +train +excluded +a point on", said, re.M)
    assert re.search(r"^ ?miniwob/book-flight/0 +miniwob +book-flight +train +target +0/20", said, re.M)
    assert lines[-1] == "3 of 130 shown; in all 130: train 130"


def test_the_same_as_json(wevo, tmp_path):
    (tmp_path / "live").mkdir()
    (tmp_path / "live" / "simple_qa_test_set.csv").write_text(ROWS)
    shown = json.loads(wevo("simpleqa", "--split", "test_tasks", "--limit", "2", "--json")[1])
    goal = "Who is number 1? Begin at https://www.bing.com/, search the web, and stop with a short answer."
    assert shown["tasks"][1] == {
        "id": "simpleqa/bing/1", "suite": "simpleqa", "site": "bing.com", "template": "bing", "split": "test_tasks",
        "group": "simpleqa", "goal": goal,
    }  # fmt: skip
    assert (shown["total"], shown["chosen"], len(shown["tasks"]), shown["splits"]) == (3, 3, 2, {"test_tasks": 3})
    assert json.loads(wevo("simpleqa", "--split", "train", "--json")[1])["tasks"] == []
    overview = {one["suite"]: one for one in json.loads(wevo("--json")[1])}
    assert overview["simpleqa"]["total"] == 3 and overview["webvoyager"]["total"] is None
    assert overview["webvoyager"]["missing"].splitlines()[1].endswith("/data_for_test/WebVoyager_test.jsonl")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["webvoyagr"], "no suite 'webvoyagr': did you mean webvoyager?"),
        (["miniwob", "--download"], "suite 'miniwob' has nothing to download"),
        (["--download"], "--download, --split and --limit go with a suite"),
        (["mind2web"], "wevo tasks mind2web --download"),
        (["miniwob", "--split", "held_out"], "'held_out' is not one of"),
    ],
)
def test_what_cannot_be_listed_is_one_message_and_status_2(wevo, words, message):
    status, said, errors = wevo(*words)
    assert status == 2 and message in " ".join(errors.split()) and "Traceback" not in errors


def test_a_download_says_of_each_file_where_it_came_from(tmp_path, monkeypatch):
    monkeypatch.setenv("WEVO_CACHE", str(tmp_path))
    (tmp_path / "live").mkdir()
    (tmp_path / "live" / "simple_qa_test_set.csv").write_text(ROWS)
    [row] = listing.download("simpleqa")
    assert row["file"] == "simple_qa_test_set.csv" and row["address"].startswith("https://openaipublic.blob.core")
    assert row["checksum"] == "checksum unknown: recorded at first download"


# -- the example of CONTRIBUTING.md


@pytest.fixture(scope="module")
def sums() -> dict:
    text = (ROOT / "CONTRIBUTING.md").read_text().partition("## Adding a task suite")[2]
    code = text.partition("```python\n")[2].partition("```")[0]
    assert len([line for line in code.splitlines() if line.strip()]) <= 45
    names: dict = {}
    exec(compile(code, "CONTRIBUTING.md", "exec"), names)
    return names


class Adds:
    """Enters the sum of the goal's numbers plus `off`."""

    def __init__(self, off: int):
        self.name, self.off = f"off by {off}", off

    async def act(self, task, history, observation):
        ids = {element.role: element.id for element in parse_page(observation.text)}
        total = sum(map(int, re.findall(r"\d+", task.goal))) + self.off
        return did(f"type [{ids['textbox']}] [{total}]" if not history else f"click [{ids['button']}]")


@pytest.mark.browser
async def test_the_suite_that_contributing_shows_works(sums):
    with sums["Sums"]() as suite:
        [task] = suite.tasks()
        assert task == Task(suite="sums", name="small", seed=0)
        with pytest.raises(ParamsError, match="sums has no task 'big': take small"):
            suite.draw("big", "train", 0, 1)
        outcomes = {}
        async with Chromium(SMOKE.browser) as chromium:
            for off in (0, 1):
                environment = BrowserEnv(chromium, suite, SMOKE.browser, SMOKE.observation)
                trajectory = await rollout(Adds(off), environment, task, max_steps=4)
                await environment.close()
                outcomes[off] = (await RewardJudge().judge(trajectory)).outcome
                assert trajectory.final.url == "http://sums/" and trajectory.ended == "done"
    assert outcomes == {0: "success", 1: "failure"}
