"""BrowserEnv: a real Chromium as an Environment, one fresh context an episode.

Reads the window through frames.py (or, as format v0, axtree.py) and acts by mouse and keyboard at
a point that really belongs to the element. What cannot be carried out, and what else an action
did, comes back as the note and the effect of the next observation. Used by notebooks 01, 03
and 05. Paper: section 3 (web environment).
"""

from __future__ import annotations

import asyncio
import difflib
import hashlib
import time
from pathlib import Path
from urllib.parse import urlsplit

from playwright.async_api import Error, Page

from wevo_nb import axtree, frames
from wevo_nb.chromium import BrowserMissing, Chromium, to_the_end
from wevo_nb.frames import NoAnswer, ask
from wevo_nb.har import open_context
from wevo_nb.hosts import block_pattern, challenge, is_allowed, shown_url
from wevo_nb.observation import format_page, quote
from wevo_nb.schema import Action, Effect, Observation, Task
from wevo_nb.sections import BrowserParams, ObservationParams
from wevo_nb.tasks import Suite, Visit
from wevo_nb.traffic import Traffic

POLL_S = 0.02
TOLD = 5  # dialogs, and hosts, that a note names
WAIT_S = 1.0  # how long `wait` waits for a change


class EnvironmentBroken(RuntimeError):
    """The browser or the site failed, not the agent."""


class NotDone(Exception):
    """An action that was not carried out: which kind of problem, and its text for the policy."""

    def __init__(self, problem: str, text: str):
        super().__init__(text)
        self.problem = problem


class BrowserEnv:
    """One episode in a context of its own. `suite` knows where a task starts and what it is worth.

    `folder` is the stage's, for recordings of the traffic (har.py).
    """

    name = "browser"
    errors = (Error, EnvironmentBroken, BrowserMissing)

    def __init__(
        self,
        chromium: Chromium,
        suite: Suite,
        params: BrowserParams,
        observation: ObservationParams,
        folder: Path | None = None,
    ):
        self.chromium, self.suite, self.params, self.format = chromium, suite, params, observation
        self.folder = folder
        self.context = None
        self.page: Page | None = None
        self.visit: Visit | None = None
        self.traffic: Traffic | None = None
        self.goal = ""
        self.generation = 0
        self.elements: list[frames.Element] = []
        self.pictures: list[bytes] | None = None  # a list: gets a screenshot of every observation
        self.seen: Observation | None = None

    async def reset(self, task: Task) -> Observation:
        """Opens the task's start page in a fresh context.

        Raises EnvironmentBroken or playwright's Error where the page is not there.
        """
        await self.close()
        width, height = self.params.viewport
        self.seen = None
        self.visit = await self.suite.visit(task)
        window = {"viewport": {"width": width, "height": height}, "service_workers": "block"}
        self.context, self.visit = await open_context(
            self.chromium, self.params.har, self.folder, task, self.visit, **window
        )
        self.context.set_default_timeout(self.params.navigation_ms)
        self.traffic = Traffic(self.context, self.params.dialogs)
        for source in frames.SCRIPTS:
            await self.context.add_init_script(source)
        pattern = block_pattern(self.visit.hosts)
        await self.context.route(pattern, self.traffic.refuse)
        await self.context.route_web_socket(pattern, self.traffic.refuse_socket)
        self.page = await self.context.new_page()
        self.traffic.begin()
        await self._open()
        partial = await self._settle()
        return await self._observe(Effect(partial=partial))

    async def step(self, action: Action, thought: str = "") -> Observation:
        """Carries `action` out, waits until the page is quiet, and reads it.

        Raises EnvironmentBroken where the page or the browser crashed.
        """
        if action.verb == "stop":
            return await self._stop(action)
        self.traffic.begin()
        problem, note, partial = None, "", False
        try:
            async with asyncio.timeout(self._seconds * 2):
                note = await self._act(action) or ""
        except NotDone as refused:
            problem, note = refused.problem, str(refused)
        except NoAnswer as silent:
            problem, note = "refused", str(silent)
        except TimeoutError:
            partial, note = True, f"the page did not answer within {self._seconds * 2:.1f} s"
        except Error as refused:
            self._raise_if_crashed()
            problem, note = "refused", f"the browser refused it: {refused.message.splitlines()[0][:120]}"
        partial = await self._settle() or partial
        return await self._observe(Effect(problem=problem, partial=partial), note)

    async def close(self):
        context, self.context, self.page = self.context, None, None
        visit, self.visit = self.visit, None
        try:
            if context is not None:
                await to_the_end(context.close())
        except Error:  # the browser has gone, and the context with it
            pass
        finally:
            if visit is not None:
                await to_the_end(visit.close())

    async def screenshot(self) -> bytes:
        """The window as png."""
        return await self.page.screenshot()

    async def boxes(self) -> dict[int, tuple[float, float, float, float]]:
        """Where the elements of the last observation are in the window: id -> left, top, width, height in pixels."""
        found = {}
        for frame in {element.frame for element in self.elements}:
            boxes = await ask(frame, "boxes", seconds=self._seconds)
            left, top = await frames.corner(frame)
            for number, element in enumerate(self.elements, start=1):
                if element.frame is frame and element.line["role"] != "note":
                    x, y, width, height = boxes[element.local - 1]
                    found[number] = (x + left, y + top, width, height)
        return dict(sorted(found.items()))

    # -- opening, waiting and reading

    @property
    def _seconds(self) -> float:
        return self.params.deadline_ms / 1000

    async def _open(self):
        response = await self.page.goto(self.visit.url, wait_until="domcontentloaded")
        if response is not None and response.status >= 400:
            raise EnvironmentBroken(
                f"the start page {shown_url(self.visit.url, self.visit.hosts)} answers HTTP {response.status}"
            )
        try:
            await self.page.wait_for_load_state("load", timeout=self.params.deadline_ms)
        except Error:  # some pages never have everything
            self._raise_if_crashed()
        self.goal = await self.visit.start(self.page)

    async def _settle(self) -> bool:
        """Waits until the current page is quiet; returns whether the deadline came first."""
        end = time.perf_counter() + self._seconds
        page = None
        while (left := end - time.perf_counter()) > 0:
            page = self._current()
            try:
                quiet = await ask(page, "settled", self.params.quiet_ms, left * 1000, seconds=left + POLL_S)
            except NoAnswer:  # it is going to another page
                self._raise_if_crashed()
                await asyncio.sleep(POLL_S)
                continue
            if not quiet:
                return True
            if page is self._current() and not self.traffic.waiting():
                return False
            await asyncio.sleep(POLL_S)
        return True

    def _current(self) -> Page:
        """The tab in front: one that was just opened, or the last that is left."""
        self._raise_if_crashed()
        if opened := [page for page in self.traffic.opened if not page.is_closed()]:
            self.page = opened[-1]
        if self.page.is_closed():
            if not self.context.pages:
                raise EnvironmentBroken("the page closed itself, and no other tab is open")
            self.page = self.context.pages[-1]
        return self.page

    def _raise_if_crashed(self):
        if self.traffic.crashed or not self.chromium.browser.is_connected():
            raise EnvironmentBroken("the browser has crashed" if not self.traffic.crashed else "the page has crashed")

    async def _observe(self, effect: Effect, note: str = "") -> Observation:
        page = self._current()
        await self._leave_forbidden(page)
        text, reading = await self._read(page)
        if self.pictures is not None:
            self.pictures.append(await page.screenshot(timeout=self.params.navigation_ms))
        screenshot = await self._keep_picture(page) if self.params.screenshots and self.folder else ""
        done, reward = await self._state(page)
        traffic, hosts = self.traffic, self.visit.hosts
        tabs = [await frames.title(p) if p is not page else reading.title for p in self.context.pages]
        at = self.context.pages.index(page)
        url = shown_url(reading.url, hosts)
        before, self.seen = self.seen, None
        changed = before is None or (before.text, before.url, before.tab) != (text, url, at)
        effect = effect.model_copy(
            update={
                "changed": changed,
                "navigated": traffic.navigated,
                "opened": len(traffic.opened),
                "dialogs": tuple(traffic.dialogs),
                "download": traffic.download,
                "blocked": tuple(sorted(traffic.blocked)),
            }
        )
        self.seen = Observation(
            text=text,
            url=url,
            title=reading.title,
            tabs=tuple(tabs) if self.format.header and self.format.format == "wevo" else (),
            tab=at,
            above=reading.above,
            below=reading.below,
            goal=self.goal,
            note="; ".join([*filter(None, [note]), *_told(effect, traffic.document)]),
            effect=effect,
            done=done,
            reward=reward,
            blocked=challenge(traffic.status, reading.title, text, [frame.url for frame in page.frames]),
            screenshot=screenshot,
        )
        return self.seen

    async def _keep_picture(self, page: Page) -> str:
        """Name of the picture, which is the hash of what it shows; empty where the page gives none in time."""
        try:
            picture = await page.screenshot(timeout=self.params.deadline_ms)
        except Error:
            self._raise_if_crashed()
            return ""
        path = self.folder / "screenshots" / f"{hashlib.sha256(picture).hexdigest()[:16]}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_bytes(picture)
        return path.name

    async def _read(self, page: Page) -> tuple[str, frames.Reading]:
        try:
            text, reading = await self._read_now(page)
        except NoAnswer as first:
            self._raise_if_crashed()
            try:
                if await self._settle():
                    raise first
                text, reading = await self._read_now(self._current())  # it was going to another page
            except NoAnswer as problem:
                before = self.seen
                if before and self.traffic.page_on_its_way():  # Chromium answers nothing about the old page meanwhile
                    return before.text, frames.Reading([], page.url, before.title, before.above, before.below)
                reading = frames.Reading([], page.url, "", 0, 0)
                text = f"[1] note {quote(f'this page cannot be read: {self.traffic.failure or problem}')}"
        self.elements = reading.elements
        return text, reading

    async def _read_now(self, page: Page) -> tuple[str, frames.Reading]:
        """The page as text, and its elements. Raises NoAnswer."""
        self.generation += 1
        limits = self.format
        if limits.format == "v0":
            text, reading = await axtree.read_window(page, self._seconds)
            titles = [await frames.title(p) for p in self.context.pages]
            return axtree.envelope(titles, self.context.pages.index(page)) + text, reading
        reading = await frames.read_window(page, self.generation, limits.name_chars, self._seconds)
        if reading.url.startswith("chrome-error:"):
            raise NoAnswer("it did not come")
        budget = limits.model_dump(include={"max_elements", "max_chars", "name_chars", "indent"})
        return format_page([element.line for element in reading.elements], **budget), reading

    async def _state(self, page: Page) -> tuple[bool, float | None]:
        try:
            async with asyncio.timeout(self._seconds):
                return await self.visit.state(page)
        except TimeoutError:
            return False, None
        except Error:  # it is going to another page
            self._raise_if_crashed()
            return False, None

    async def _leave_forbidden(self, page: Page):
        """A redirect can lead where a request may not go: back to the page before."""
        led = [(url, of_page) for url, of_page in self.traffic.redirects if not is_allowed(url, self.visit.hosts)]
        self.traffic.blocked.update(urlsplit(url).netloc for url, _ in led)
        if any(of_page for _, of_page in led) and not is_allowed(page.url, self.visit.hosts):
            await page.go_back(wait_until="commit")
            await self._settle()

    async def _stop(self, action: Action) -> Observation:
        reward = await self.visit.answer(self._current(), action.text)
        seen = self.seen or Observation(text="", goal=self.goal)
        return seen.model_copy(update={"note": "", "effect": Effect(), "done": reward is not None, "reward": reward})

    # -- acting

    async def _act(self, action: Action) -> str | None:
        """Raises NotDone; returns what the policy should know where it is done."""
        match action.verb:
            case "click":
                await self._click(action.id)
            case "type":
                await self._type(action)
            case "select":
                await self._select(action)
            case "scroll":
                return await self._scroll(action)
            case "wait":
                await ask(self.page, "changed", WAIT_S * 1000, seconds=WAIT_S * 2)
            case "goback":
                return await self._go_back()
            case "restart":
                before = self.context.pages
                self.page = await self.context.new_page()  # the old one may hang
                for page in before:
                    await page.close()
                self.traffic.begin()
                await self._open()
            case "goto":
                await self._go_to(action.text)
            case "tab":
                pages = self.context.pages
                if not 0 <= action.id < len(pages):
                    raise NotDone("no_element", f"there is no tab {action.id}: there are 0 to {len(pages) - 1}")
                self.page = pages[action.id]
                await self.page.bring_to_front()
        return None

    async def _element(self, number: int) -> frames.Element:
        """Element `number` of the last observation. Raises NotDone."""
        if number is None or not 1 <= number <= len(self.elements):
            raise NotDone("no_element", f"there is no element [{number}] on the page")
        element = self.elements[number - 1]
        if self.format.format == "v0":
            try:
                await axtree.adopt(self.page, self.generation, element.local)
            except Error:
                raise NotDone("stale", f"element [{number}] is no longer on the page") from None
            element = element._replace(local=1)
        return element

    async def _place(self, number: int) -> tuple[frames.Element, dict]:
        element = await self._element(number)
        where = await self._ask(element, "place")
        if where.get("stale") or where.get("gone") or where.get("unknown"):
            raise NotDone("stale", f"element [{number}] is no longer on the page")
        if "changed" in where:
            raise NotDone("stale", f"element [{number}] has changed in the meantime: it is now {where['changed'][:80]}")
        if where.get("disabled"):
            raise NotDone("not_usable", f"element [{number}] is disabled")
        if where.get("file"):
            raise NotDone("not_usable", f"element [{number}] takes a file of this machine: none is given away")
        if "covered" in where:
            raise NotDone("not_usable", f"element [{number}] is covered by {where['covered']}")
        return element, where

    async def _ask(self, element: frames.Element, call: str, *more):
        return await ask(element.frame, call, self.generation, element.local, *more, seconds=self._seconds)

    async def _click(self, number: int):
        element, where = await self._place(number)
        if where.get("option"):
            await self._ask(element, "choose")
            return
        point = await frames.on_page(element.frame, where["x"], where["y"])
        if point is None:
            raise NotDone("not_usable", f"element [{number}] is covered by something over its frame")
        await self.page.mouse.click(*point)

    async def _type(self, action: Action):
        element = await self._element(action.id)
        kind = await self._ask(element, "fieldKind")
        if kind in ("none", "readonly"):
            await self._place(action.id)  # what else is wrong is said first
            what = (
                "is read-only" if kind == "readonly" else f"is a {element.line['role']}, nothing can be typed into it"
            )
            raise NotDone("not_usable", f"element [{action.id}] {what}")
        if kind == "picker":
            await self._place(action.id)
            if not await self._ask(element, "fill", action.text):
                raise NotDone(
                    "not_usable",
                    f"element [{action.id}] does not take {action.text!r}: dates are 2024-01-31, times 13:45",
                )
        else:
            await self._click(action.id)
            await self._ask(element, "focusField")
            await self._insert(action.text)
        if action.enter:
            await self.page.keyboard.press("Enter")

    async def _insert(self, text: str):
        """Replaces what is selected; the last character comes by a key, as listeners for keys expect."""
        keyboard = self.page.keyboard
        if not text:
            await keyboard.press("Delete")
        elif text[-1].isspace():
            await keyboard.insert_text(text)
        else:
            if text[:-1]:
                await keyboard.insert_text(text[:-1])
            await keyboard.type(text[-1])

    async def _select(self, action: Action):
        element, _ = await self._place(action.id)
        answer = await self._ask(element, "select", action.text)
        if answer.get("notASelect"):
            raise NotDone("not_usable", f"element [{action.id}] is no list of options: click it")
        if "options" in answer:
            near = difflib.get_close_matches(action.text, answer["options"], n=5, cutoff=0.3) or answer["options"][:5]
            raise NotDone(
                "not_usable", f"element [{action.id}] has no option {action.text!r}; it has {', '.join(near)}"
            )

    async def _scroll(self, action: Action) -> str:
        sign = 1 if action.text == "down" else -1
        if action.id is None:
            answer = await ask(self.page, "scroll", self.generation, None, sign, seconds=self._seconds)
        else:
            answer = await self._ask(await self._element(action.id), "scroll", sign)
        if "moved" not in answer:
            raise NotDone("stale", f"element [{action.id}] is no longer on the page")
        return "" if answer["moved"] else f"nothing to scroll {action.text}: this is the {'end' if sign > 0 else 'top'}"

    async def _go_back(self) -> str | None:
        session = await self.context.new_cdp_session(self.page)
        history = await session.send("Page.getNavigationHistory")
        before = [entry for entry in history["entries"][: history["currentIndex"]] if entry["url"] != "about:blank"]
        if before:
            await session.send("Page.navigateToHistoryEntry", {"entryId": before[-1]["id"]})
            return None
        if len(self.context.pages) > 1:
            await self.page.close()
            return "the tab was closed: it had no page to go back to"
        await self._open()
        raise NotDone("refused", "there is no page to go back to: the task was opened again")

    async def _go_to(self, url: str):
        if not self.params.goto:
            raise NotDone("refused", "goto is not allowed here: use the links of the page")
        whole = url if "://" in url else f"http://{url}"
        host = whole.partition("://")[2].partition("/")[0]
        address = next((address for address, name in self.visit.hosts.items() if name == host), host)
        whole = whole.replace(host, address, 1)
        if not is_allowed(whole, self.visit.hosts):
            raise NotDone("refused", f"{url[:80]!r} is not an address that may be visited in this task")
        await self.page.goto(whole, wait_until="commit", timeout=self.params.deadline_ms)


def _told(effect: Effect, document: str) -> list[str]:
    """What an action did beside the page, in words for the policy."""
    told = [f"the page showed {dialog}" for dialog in effect.dialogs[:TOLD]]
    if len(effect.dialogs) > TOLD:
        told.append(f"and {len(effect.dialogs) - TOLD} more dialogs")
    if effect.opened:
        told.append("a new tab was opened and is shown")
    if effect.download:
        told.append(f"the file {quote(effect.download)} was offered for download; it was not kept")
    if document:
        told.append(f"a document of type {document} was opened")
    if effect.blocked:
        more = f" and {len(effect.blocked) - TOLD} more" if len(effect.blocked) > TOLD else ""
        told.append(f"not allowed in this task, and not loaded: {', '.join(effect.blocked[:TOLD])}{more}")
    if effect.partial:
        told.append("the page is still loading: this may be a part of it, or the page before")
    return told
