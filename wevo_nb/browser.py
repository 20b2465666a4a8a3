"""BrowserEnv: a real Chromium as an Environment, one fresh context an episode.

Reads the window through observer.js (2-10 ms a page, against 15-50 ms for the accessibility
trees of Chromium and Playwright on a page of 200 elements), and acts by mouse and keyboard at
a point that really belongs to the element. What cannot be carried out comes back as the note
of the next observation. Used by notebooks 01 and 05. Paper: section 3 (web environment).
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from playwright.async_api import Browser, Error, Page, async_playwright

from wevo_nb.observation import format_page
from wevo_nb.params import BrowserParams, ObservationParams
from wevo_nb.schema import Action, Observation, Task
from wevo_nb.tasks import Visit

FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()
OBSERVER = Path(__file__).with_name("observer.js")
SYSTEM_BROWSERS = ("/usr/bin/chromium-headless-shell", "/usr/bin/chromium")


class BrowserMissing(RuntimeError):
    """No Chromium where one was looked for."""


class NotCarriedOut(Exception):
    """An action that the page did not allow; its text goes back to the policy."""


class Chromium:
    """A running browser: `async with Chromium(params) as browser: ...`."""

    def __init__(self, params: BrowserParams):
        self.params = params

    async def __aenter__(self) -> Browser:
        self.playwright = await async_playwright().start()
        try:
            path = find_chromium(self.playwright.chromium.executable_path, self.params.executable)
            self.browser = await self.playwright.chromium.launch(executable_path=path, args=FLAGS)
        except BaseException:
            await self.playwright.stop()
            raise
        return self.browser

    async def __aexit__(self, *_):
        await self.browser.close()
        await self.playwright.stop()


def find_chromium(own: str | None = None, configured: str | None = None) -> str:
    """Path of the executable: params or WEVO_CHROMIUM, Playwright's own, Debian's.

    Raises BrowserMissing that lists the places and the cure.
    """
    wanted = configured or os.environ.get("WEVO_CHROMIUM")
    if wanted:
        if not Path(wanted).is_file():
            raise BrowserMissing(f"browser.executable / WEVO_CHROMIUM names {wanted}, and there is no such file")
        return wanted
    shells = sorted(Path(own).parents[2].glob("chromium_headless_shell-*/*/*headless*shell")) if own else []
    places = [*map(str, shells[-1:]), *([own] if own else []), *SYSTEM_BROWSERS]
    for place in places:
        if os.access(place, os.X_OK) and Path(place).is_file():
            return place
    raise BrowserMissing(
        f"no Chromium in {', '.join(places)}: run 'make browser', or 'playwright install chromium', "
        "or 'apt-get install chromium-headless-shell' as root, or set WEVO_CHROMIUM to one"
    )


class BrowserEnv:
    """One episode in a context of its own. `suite` knows where a task starts and ends."""

    name = "browser"
    errors = (Error,)

    def __init__(self, browser: Browser, suite, params: BrowserParams, observation: ObservationParams):
        self.browser, self.suite, self.params, self.format = browser, suite, params, observation
        self.context = None
        self.page: Page | None = None
        self.visit: Visit | None = None
        self.goal = ""

    async def reset(self, task: Task) -> Observation:
        """Opens the task's start page in a fresh context. Raises playwright Error if it is not there."""
        if not self.browser.is_connected():
            raise BrowserMissing("the browser has ended: run the same command again, it goes on where it was")
        await self.close()
        width, height = self.params.viewport
        self.visit = await self.suite.visit(task)
        self.context = await self.browser.new_context(viewport={"width": width, "height": height})
        self.context.set_default_timeout(self.params.deadline_ms * 5)
        await self.context.add_init_script(path=OBSERVER)
        self.page = await self.context.new_page()
        return await self._open()

    async def step(self, action: Action) -> Observation:
        """Carries `action` out and reads the page that follows."""
        note = ""
        try:
            await self._act(action)
            await self._settle()
        except NotCarriedOut as problem:
            note = str(problem)
        except Error as problem:
            note = f"the browser refused it: {problem.message.splitlines()[0][:120]}"
        return await self._observe(note)

    async def close(self):
        if self.context is not None:
            await self.context.close()
            self.context = self.page = None
        if self.visit is not None:
            await self.visit.close()
            self.visit = None

    async def screenshot(self) -> bytes:
        """The window as png."""
        return await self.page.screenshot()

    async def _open(self) -> Observation:
        await self.page.goto(self.visit.url, wait_until="load")
        self.goal = await self.visit.start(self.page)
        await self._settle()
        return await self._observe("")

    async def _observe(self, note: str) -> Observation:
        done, reward = await self.visit.state(self.page)
        seen = await self.page.evaluate("() => window.__wevo.observe()")
        limits = self.format
        text = format_page(
            seen["elements"], max_elements=limits.max_elements, name_chars=limits.name_chars, indent=limits.indent
        )
        return Observation(
            text=text, url=seen["url"], title=seen["title"], goal=self.goal, note=note, done=done, reward=reward
        )

    async def _settle(self):
        """Waits until the page is quiet, at most the deadline of a step."""
        await self.page.wait_for_load_state("domcontentloaded")
        await self.page.evaluate(
            "([quiet, deadline]) => window.__wevo.settled(quiet, deadline)",
            [self.params.quiet_ms, self.params.deadline_ms],
        )

    async def _act(self, action: Action):
        match action.verb:
            case "click":
                await self._click(action.id)
            case "type":
                await self._click(action.id)
                await self.page.keyboard.press("Control+A")
                await self.page.keyboard.insert_text(action.text)
                if action.enter:
                    await self.page.keyboard.press("Enter")
            case "scroll":
                sign = 1 if action.text == "down" else -1
                await self.page.evaluate("sign => scrollBy(0, sign * innerHeight)", sign)
            case "wait":
                await asyncio.sleep(self.params.quiet_ms * 10 / 1000)
            case "goback":
                nowhere = (self.page.url, "about:blank")
                response = await self.page.go_back(wait_until="domcontentloaded")
                if response is None and self.page.url in nowhere:  # a step within the page has no response either
                    await self._open()
                    raise NotCarriedOut("there is no page to go back to: the task was opened again")
            case "restart":
                await self._open()

    async def _click(self, element: int):
        where = await self.page.evaluate("id => window.__wevo.target(id)", element)
        if where.get("gone"):
            raise NotCarriedOut(f"there is no element [{element}] on the page")
        if where.get("disabled"):
            raise NotCarriedOut(f"element [{element}] is disabled")
        if "covered" in where:
            raise NotCarriedOut(f"element [{element}] is covered by {where['covered']}")
        if where.get("option"):
            await self.page.evaluate("id => window.__wevo.choose(id)", element)
        else:
            await self.page.mouse.click(where["x"], where["y"])
