"""Episodes recorded and done again with their server gone, in a real Chromium: same pages, or said which differ."""

from __future__ import annotations

import http.server
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from stand_ins import SMOKE, did

from wevo_nb.browser import BrowserEnv
from wevo_nb.har import har_file, open_context
from wevo_nb.observation import parse_page
from wevo_nb.replay import replay
from wevo_nb.rollout import rollout
from wevo_nb.runs import StageError, write_json, write_jsonl
from wevo_nb.schema import Task, Trajectory
from wevo_nb.tasks.miniwob import MiniWoB

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

FRONT = """<!doctype html><title>Shelf</title><link rel="stylesheet" href="/style.css"><h1>Shelf</h1>
<a href="/book?id=1">First book</a> <a href="/book?id=2">Second book</a> <p class="hidden">not for eyes</p>
<button onclick="fetch('/stock', {method: 'POST', body: 'first'}).then(r => r.text())
  .then(t => { document.querySelector('output').textContent = t; })">Ask</button><output>nothing asked</output>"""
BOOK = "<!doctype html><title>Book {0}</title><h1>Book {0}</h1><a href='/'>Back to the shelf</a>"
TASK = Task(suite="shelf", name="read & return/1", seed=3)


class Shelf:
    """A small site on localhost; `asked` are the paths that were asked for. `words` is what is in stock."""

    name = "shelf"

    def __init__(self, words: str = "7 in stock"):
        self.words, self.asked = words, []

    def __enter__(self) -> Shelf:
        site = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                site.asked.append(self.path)
                kind = "text/css" if self.path == "/style.css" else "text/html"
                body = ".hidden { display: none }" if kind == "text/css" else FRONT
                if self.path.startswith("/book"):
                    body = BOOK.format(self.path[-1])
                self.answer(body, kind)

            def do_POST(self):
                site.asked.append(self.path)
                self.rfile.read(int(self.headers["Content-Length"]))
                self.answer(f"{site.words}, asked {site.asked.count('/stock')} times", "text/plain")

            def answer(self, body: str, kind: str):
                self.send_response(200)
                self.send_header("Content-Type", f"{kind}; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *_):
                """Says nothing."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    async def visit(self, task: Task) -> ShelfVisit:
        return ShelfVisit(f"127.0.0.1:{self.server.server_address[1]}")


class ShelfVisit:
    def __init__(self, address: str):
        self.url, self.hosts = f"http://{address}/", {address: "shelf"}

    async def start(self, page) -> str:
        return "Read."

    async def state(self, page):
        return False, None

    async def answer(self, page, text: str):
        return None

    async def close(self):
        pass


class Clicks:
    """A policy that clicks the elements of these names, one after the other."""

    name = "clicks"

    def __init__(self, *names: str):
        self.names = names

    async def act(self, task, history, observation):
        if len(history) == len(self.names):
            return None
        [element] = [e for e in parse_page(observation.text) if e.name == self.names[len(history)]]
        return did(f"click [{element.id}]")


def with_har(mode: str | None):
    return SMOKE.browser.model_copy(update={"har": mode})


async def recorded(chromium, suite, folder: Path, policy, task: Task = TASK) -> Trajectory:
    """An episode with its traffic kept in `folder`."""
    environment = BrowserEnv(chromium, suite, with_har("record"), SMOKE.observation, folder)
    try:
        return await rollout(policy, environment, task, max_steps=6)
    finally:
        await environment.close()


async def test_pages_forms_and_styles_come_back_when_the_server_is_gone(chromium, tmp_path):
    policy = Clicks("Ask", "Second book", "Back to the shelf")
    with Shelf() as shelf:
        episode = await recorded(chromium, shelf, tmp_path, policy)
        port = shelf.server.server_address[1]
    assert "7 in stock" in episode.steps[1].observation.text and episode.steps[2].observation.title == "Book 2"
    assert har_file(tmp_path, TASK) == tmp_path / "har" / "shelf_read_return_1_3.zip"
    assert har_file(tmp_path, TASK).stat().st_size > 500
    with Shelf(words="none left") as another:
        assert another.server.server_address[1] != port
        checks = await replay(episode, tmp_path, another, SMOKE)
        assert another.asked == []
    assert [(c.number, c.url, c.difference) for c in checks] == [
        (1, "http://shelf/", ""),
        (2, "http://shelf/", ""),
        (3, "http://shelf/book?id=2", ""),
        (4, "http://shelf/", ""),
    ]


async def test_a_page_that_differs_is_told_with_what_differs(chromium, tmp_path):
    """The second page of the record is falsified: the replay finds just that one."""
    with Shelf() as shelf:
        episode = await recorded(chromium, shelf, tmp_path, Clicks("Second book"))
        false = episode.final.model_copy(update={"text": episode.final.text.replace("Book 2", "Book 9"), "title": "x"})
        checks = await replay(episode.model_copy(update={"final": false}), tmp_path, shelf, SMOKE)
    assert checks[0].difference == ""
    assert checks[1].difference.startswith("title: 'x' became 'Book 2'\n~[") and "Book 2" in checks[1].difference


async def test_a_site_that_changed_meanwhile_is_answered_as_at_first_and_that_is_told(chromium, tmp_path):
    """The same request twice, with another answer: the archive gives the first one again."""
    with Shelf() as shelf:
        episode = await recorded(chromium, shelf, tmp_path, Clicks("Ask", "Ask"))
        checks = await replay(episode, tmp_path, shelf, SMOKE)
    assert "asked 2 times" in episode.final.text
    assert [bool(check.difference) for check in checks] == [False, False, True]
    assert "asked 1 times" in checks[2].difference


async def test_what_was_not_recorded_is_not_fetched(chromium, tmp_path):
    """Another link than the recorded one, with the server still there: it is not asked."""
    with Shelf() as shelf:
        episode = await recorded(chromium, shelf, tmp_path, Clicks("Second book"))
        shelf.asked.clear()
        environment = BrowserEnv(chromium, shelf, with_har("replay"), SMOKE.observation, tmp_path)
        seen = await environment.reset(TASK)
        assert seen == episode.steps[0].observation.model_copy(update={"effect": seen.effect})
        [first] = [e.id for e in parse_page(seen.text) if e.name == "First book"]
        after = await environment.step(did(f"click [{first}]").action)
        await environment.close()
    assert shelf.asked == [] and "Book 1" not in after.text


async def test_a_second_episode_of_a_task_replaces_the_first(chromium, tmp_path):
    with Shelf(words="old") as shelf:
        await recorded(chromium, shelf, tmp_path, Clicks("Ask"))
    with Shelf(words="new") as shelf:
        episode = await recorded(chromium, shelf, tmp_path, Clicks("Ask"))
        checks = await replay(episode, tmp_path, shelf, SMOKE)
    assert "new" in episode.final.text and [c.difference for c in checks] == ["", ""]
    assert sorted(path.suffix for path in (tmp_path / "har").iterdir()) == [".json", ".zip"]


async def test_without_a_recording_or_a_folder_it_says_so(chromium, tmp_path):
    visit = ShelfVisit("127.0.0.1:1")
    with pytest.raises(StageError, match="was not recorded, there is no .*: make a run with --set browser.har=record"):
        await open_context(chromium, "replay", tmp_path, TASK, visit)
    with pytest.raises(StageError, match="browser.har is record, and this episode belongs to no stage folder"):
        await open_context(chromium, "record", None, TASK, visit)
    context, same = await open_context(chromium, None, None, TASK, visit)
    assert same is visit
    await context.close()


async def test_wevo_replay_compares_an_episode_of_a_run(chromium, tmp_path):
    """MiniWoB on a server of another port. Exit status 0 where all pages are the same, 1 where one is not."""
    stage = tmp_path / "mine" / "iter-1" / "01_collect"
    task = Task(suite="miniwob", name="click-test-2", seed=4)
    with MiniWoB() as suite:
        episode = await recorded(chromium, suite, stage, Clicks("ONE"), task)
    false = episode.model_copy(update={"policy": "false", "final": episode.final.model_copy(update={"title": "x"})})
    write_json(tmp_path / "mine" / "run.json", {"profile": "smoke", "overrides": {"browser": {"har": "record"}}})
    write_jsonl(stage / "trajectories.jsonl", [episode, false])

    def wevo_replay(number: int) -> tuple[int, str]:
        command = [sys.executable, "-m", "wevo_nb.cli", "replay", f"mine/iter-1/01_collect#{number}"]
        environment = {**os.environ, "WEVO_OUTPUTS": str(tmp_path)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout + done.stderr

    assert episode.final.reward == 1.0
    status, said = wevo_replay(0)
    assert (status, said.splitlines()[-1]) == (0, "2 of 2 pages are the same")
    status, said = wevo_replay(1)
    assert (status, said.splitlines()[-1]) == (1, "1 of 2 pages are the same") and "title: 'x' became" in said
