"""One observation of a page, of ours and of BrowserGym's: milliseconds, characters, recall of the visible controls.

Part of benchmarks/environment.py, whose help says what exactly is timed. A row is a page, seen in
two windows: at its top and further down.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import recall
from browsergym_side import browsergym
from pages import ARCHIVE, Page, Pages, fetch_docs, generate

from wevo_nb.browser import BrowserEnv
from wevo_nb.chromium import Chromium, find_chromium
from wevo_nb.params import Params, load_params
from wevo_nb.schema import Effect, Task

VIEWPORT = (1280, 720)
# page -> where its second window begins; 20k and 5k tell what four times the elements cost
WINDOWS = {
    "generated-200": "s6",
    "generated-2000": "s70",
    "generated-5000": "s180",
    "generated-20000": "s700",
    "orm/quickstart.html": "simple-select",
    "core/connections.html": "sqlalchemy.engine.Connection.execute",
}
NO_BUDGET = {"max_elements": 100_000, "max_chars": 100_000_000, "name_chars": 10_000}


class Window(NamedTuple):
    """What one system made of a window: ms of each reading, the last text, and the controls to be found in it."""

    ms: list[float]
    text: str
    truth: Counter[str]


def page_params() -> Params:
    """Those of the demo, with the window of a desktop and the whole of it told."""
    return load_params("demo", {"browser": {"viewport": VIEWPORT}, "observation": NO_BUDGET}).params


def measure(*, repeats: int, repeats_browsergym: int) -> dict:
    """Rows of all pages; `repeats_browsergym` 0 leaves BrowserGym out. Raises BrowserGymMissing."""
    made = {name: generate(int(name.removeprefix("generated-"))) for name in WINDOWS if name.startswith("generated-")}
    paths = [path for page, anchor in WINDOWS.items() for path in (page, f"{page}#{anchor}")]
    with Pages(fetch_docs()) as suite:
        for name, page in made.items():
            suite.put(name, page.html)
        ours, elements, executable = asyncio.run(read_all(suite, made, paths, repeats))
        theirs, screenshots = {}, {}
        if repeats_browsergym:
            looks = [[recall.VISIBLE, selector(made.get(path.partition("#")[0]))] for path in paths]
            jobs = [
                {"url": suite.url(path), "repeats": repeats_browsergym, "look": look}
                for path, look in zip(paths, looks, strict=True)
            ]
            answer = browsergym({"chromium": executable, "viewport": VIEWPORT, "pages": jobs, "miniwob": None})
            for path, seen in zip(paths, answer["pages"], strict=True):
                truth = expected(seen["visible"], made.get(path.partition("#")[0]))
                theirs[path], screenshots[path] = Window(seen["ms"], seen["text"], truth), seen["screenshot_ms"]
    rows = [row(page, made.get(page), elements[page], ours, theirs, screenshots) for page in WINDOWS]
    times = {one["page"]: one["ms"] for one in rows}
    grown = round(times["generated-20000"] / times["generated-5000"], 2)
    return {"documentation": ARCHIVE, "observation": rows, "times_for_4_times_the_elements": grown}


async def read_all(
    suite: Pages, made: dict[str, Page], paths: list[str], repeats: int
) -> tuple[dict[str, Window], dict[str, int], str]:
    """Our side: path -> window, page -> elements, and the executable of the browser."""
    params, windows, elements = page_params(), {}, {}
    async with Chromium(params.browser) as chromium:
        for path in paths:
            name = path.partition("#")[0]
            visible, elements[name] = await look(chromium, suite.url(path), selector(made.get(name)))
            ms, text = await read(chromium, suite, params, path, repeats)
            windows[path] = Window(ms, text, expected(visible, made.get(name)))
        own = chromium.playwright.chromium.executable_path
        return windows, elements, find_chromium(own, params.browser.executable)


async def read(chromium: Chromium, suite: Pages, params: Params, path: str, repeats: int) -> tuple[list[float], str]:
    """Milliseconds of each of `repeats` readings of the settled page, after the first at the reset; the last text."""
    env = BrowserEnv(chromium, suite, params.browser, params.observation)
    try:
        await env.reset(Task(suite=suite.name, name=path, seed=0))
        ms = []
        for _ in range(repeats):
            started = time.perf_counter()
            seen = await env._observe(Effect())
            ms.append(1000 * (time.perf_counter() - started))
        return ms, seen.text
    finally:
        await env.close()


async def look(chromium: Chromium, url: str, controls: str) -> tuple[list[dict], int]:
    """The controls that a person sees in the window, and the elements of the page; in a tab without our scripts."""
    context = await chromium.new_context(viewport=dict(zip(("width", "height"), VIEWPORT, strict=True)))
    try:
        tab = await context.new_page()
        await tab.goto(url)
        visible = await tab.evaluate(recall.VISIBLE, controls)
        return visible, await tab.evaluate("document.getElementsByTagName('*').length")
    finally:
        await context.close()


def selector(page: Page | None) -> str:
    """CSS of the controls: those that the generator made, or all by their tag."""
    return ", ".join(f"#{ident}" for ident in page.controls) if page else recall.CONTROLS


def expected(visible: list[dict], page: Page | None) -> Counter[str]:
    return recall.expected(visible, page.controls if page else None)


def row(
    page: str,
    made: Page | None,
    elements: int,
    ours: dict[str, Window],
    theirs: dict[str, Window],
    screenshots: dict[str, list[float]],
) -> dict:
    """Both windows of a page, of both systems where there are two."""
    paths = [path for path in ours if path.partition("#")[0] == page]
    hidden = made.hidden if made else ()
    result = {"page": page, "elements": elements, **side([ours[path] for path in paths], recall.named, hidden)}
    if theirs:
        their = side([theirs[path] for path in paths], recall.named_by_axtree, hidden)
        screenshot = statistics.median(ms for path in paths for ms in screenshots[path])
        result |= {f"{key}_browsergym": value for key, value in their.items()}
        result["ratio_to_browsergym"] = round(their["ms"] / result["ms"], 1)
        result["ratio_without_screenshot"] = round((their["ms"] - screenshot) / result["ms"], 1)
    return result


def side(windows: list[Window], named, hidden: Iterable[str]) -> dict:
    """One system on one page: what a reading costs and what it names; `missed` and `named_hidden` say what is wrong."""
    names = [named(window.text) for window in windows]
    pairs = [(window.truth, found) for window, found in zip(windows, names, strict=True)]
    visible = sum(truth.total() for truth, _ in pairs)
    return {
        "ms": round(statistics.median(ms for window in windows for ms in window.ms), 1),
        "characters": round(statistics.mean(len(window.text) for window in windows)),
        "controls": visible,
        "recall": round(sum(recall.found(*pair) for pair in pairs) / visible, 4),
        "missed": [name for pair in pairs for name in recall.missed(*pair)][:10],
        "named_hidden": [name for found in names for name in recall.shown_hidden(hidden, found)][:10],
    }
