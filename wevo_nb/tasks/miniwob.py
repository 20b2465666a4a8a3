"""MiniWoB++ (Liu et al. 2018) from the `miniwob` wheel: pages served on localhost, no Selenium.

A task's seed fixes its page and its goal. Success is the page's own reward, and only the full
one: some pages pay a part for pressing Submit on an empty form. Used by notebooks 01 and 05.
"""

from __future__ import annotations

import difflib
import functools
import http.server
import importlib.util
import threading
from pathlib import Path

from wevo_nb.params import ParamsError
from wevo_nb.schema import Split, Task
from wevo_nb.tasks.miniwob_groups import facts

HIDDEN = "#query,#reward-display,#click-canvas,#sync-task-cover{display:none!important}"
START = """seed => {
  Math.seedrandom(String(seed));
  core.EPISODE_MAX_TIME = 1e7;
  core.startEpisodeReal();
  const goal = core.getUtterance();
  return typeof goal === "string" ? goal : goal.utterance;
}"""
STATE = "() => [window.WOB_DONE_GLOBAL, window.WOB_RAW_REWARD_GLOBAL]"


class MiniWoB:
    """Serves the task pages while it is open: `with MiniWoB() as suite: ...`."""

    name = "miniwob"
    about = (
        "bootstrap: a random agent succeeds in 15 to 60% of the episodes; target: in fewer; easy: in more; "
        "excluded: not to be solved from text"
    )
    licence = "MiniWoB++ of the Farama Foundation, MIT; the pages come with the wheel `miniwob`"

    def __init__(self):
        self.folder = pages_folder()
        self.known = task_names()
        self.server: http.server.ThreadingHTTPServer | None = None

    def tasks(self) -> list[Task]:
        """Seed 0 of every page."""
        return [Task(suite=self.name, name=name, seed=0) for name in self.known]

    def note(self, task: Task) -> dict[str, str]:
        """Its group, how often a random agent succeeds, and why it is excluded."""
        known = facts()[task.name]
        chance = "" if known.episodes is None else f"{known.successes}/{known.episodes}"
        return {"group": known.group, "random": chance, "reason": known.reason}

    def draw(self, name: str, split: Split, start: int, count: int) -> list[Task]:
        """Seeds `start`, `start` + 1, ... of a page. Raises ParamsError where the wheel has no such page."""
        if name not in self.known:
            near = (
                ", ".join(difflib.get_close_matches(name, self.known, n=3))
                or f"{self.known[0]}, ... ({len(self.known)} tasks)"
            )
            raise ParamsError(f"miniwob has no task '{name}' (tasks.train, tasks.held_out): did you mean {near}?")
        return [Task(suite=self.name, name=name, seed=start + i, split=split) for i in range(count)]

    def __enter__(self) -> MiniWoB:
        handler = functools.partial(_QuietHandler, directory=str(self.folder))
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    async def visit(self, task: Task) -> MiniWoBVisit:
        return MiniWoBVisit(f"127.0.0.1:{self.server.server_address[1]}", task)


class MiniWoBVisit:
    """One page with one seed. Rewards are from -1 to 1; there is no answer to give."""

    def __init__(self, address: str, task: Task):
        self.task = task
        self.url = f"http://{address}/miniwob/{task.name}.html"
        self.hosts = {address: "miniwob"}

    async def start(self, page) -> str:
        await page.add_style_tag(content=HIDDEN)
        return " ".join((await page.evaluate(START, self.task.seed)).split())

    async def state(self, page) -> tuple[bool, float | None]:
        done, reward = await page.evaluate(STATE)
        return bool(done), float(reward) if done else None

    async def answer(self, page, text: str) -> float | None:
        return None

    async def close(self):
        """Nothing to give back: the pages are the same for all."""


def pages_folder() -> Path:
    """The `html` folder of the installed wheel. Raises ModuleNotFoundError with the cure."""
    spec = importlib.util.find_spec("miniwob")
    if spec is None:
        raise ModuleNotFoundError("the package 'miniwob' is missing: pip install miniwob==1.1.0")
    return Path(spec.origin).parent / "html"


def task_names() -> list[str]:
    """Every task page of the wheel."""
    return sorted(path.stem for path in (pages_folder() / "miniwob").glob("*.html"))


class _QuietHandler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        """Says nothing: a page that is closed while loading is no news."""

    def handle(self):
        try:
            super().handle()
        except ConnectionError:
            self.close_connection = True
