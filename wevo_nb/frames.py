"""Reading the window of a page: every frame in its place, through observer.js.

An injected walker limited to the window was chosen by measurement. A prototype read pages of 206
/ 2k / 20k elements and one of 17k of real documentation in (ms): Chromium's accessibility tree 54
/ 428 / 5709 / 2548, Playwright's aria snapshot 15 / 77 / 944 / 614, a bare walker 4 / 9 / 32 / 30.
This one, whole, on two cores (benchmarks/environment.py): 15 / 21 / 64 on generated pages of 207 /
2,027 / 20,281, 14 / 34 on two pages of documentation of 1,938 / 21,148 elements, all controls
found; BrowserGym 0.14.3 beside it 207 / 867 / 11,440 and 991 / 12,804, recall .975 to 1.
The snapshot does not see closed shadow roots and shows what is aria-hidden; the walker must name
elements itself, so tests/test_names.py holds it against Chromium's tree. Used by browser.py.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import NamedTuple

from playwright.async_api import Error, Frame, Page

SCRIPTS = tuple(Path(__file__).with_name(name).read_text() for name in ("observer.js", "actor.js"))
PLACE = """e => {
  const box = e.getBoundingClientRect(), style = getComputedStyle(e), scale = box.width / e.offsetWidth || 1;
  const inset = (border, padding) => scale * (border + parseFloat(padding));
  return [box.left + inset(e.clientLeft, style.paddingLeft), box.top + inset(e.clientTop, style.paddingTop), scale];
}"""
IS_AT = "(e, [x, y]) => window.__wevo.elementAt(x, y) === e"
TITLE_S = 0.2
DEEPEST = 5  # frames in frames


class NoAnswer(Exception):
    """The page did not answer in time, or the frame went away."""


class Element(NamedTuple):
    """A line of the observation, and where its element is: a frame and its number there."""

    line: dict
    frame: Frame
    local: int


class Reading(NamedTuple):
    """The window: elements in document order, and pixels of the page above and below it."""

    elements: list[Element]
    url: str
    title: str
    above: int
    below: int


async def ask(frame: Frame | Page, call: str, *arguments, seconds: float):
    """`window.__wevo.<call>(*arguments)` in a frame. Raises NoAnswer."""
    script = f"given => window.__wevo ? window.__wevo.{call}(...given) : 'not there'"
    try:
        async with asyncio.timeout(seconds):
            answer = await frame.evaluate(script, list(arguments))
            if answer == "not there":  # a frame that was there before its scripts could be added
                for source in SCRIPTS:
                    await frame.evaluate(f"() => {{ {source} }}")
                answer = await frame.evaluate(script, list(arguments))
            return answer
    except TimeoutError:
        raise NoAnswer(f"the page does not answer within {seconds:.1f} s") from None
    except Error as problem:
        raise NoAnswer(problem.message.splitlines()[0][:120]) from problem


async def read_window(page: Page, generation: int, name_chars: int, seconds: float) -> Reading:
    """What a person sees of `page` now. Raises NoAnswer where the page itself cannot be read.

    A frame inside it that cannot be read is said in a note in its place.
    """
    elements, seen = await _read(page.main_frame, generation, name_chars, None, 0, seconds)
    return Reading(elements, seen["url"], seen["title"], seen["above"], seen["below"])


async def _read(frame: Frame, generation: int, name_chars: int, clip, depth: int, seconds: float):
    question = {"generation": generation, "clip": clip, "nameChars": name_chars}
    seen = await ask(frame, "observe", question, seconds=seconds)
    inner = {}
    if depth < DEEPEST and any("frame" in line for line in seen["elements"]):
        for child in frame.child_frames:
            if (local := await _number(child, seconds)) is not None:
                inner[local] = child
    elements = []
    for local, line in enumerate(seen["elements"], start=1):
        elements.append(Element(line, frame, local))
        if local in inner and "frame" in line:
            left, top = line["box"][:2]
            part = [line["clip"][0] - left, line["clip"][1] - top, line["clip"][2] - left, line["clip"][3] - top]
            try:
                found, _ = await _read(inner[local], generation, name_chars, part, depth + 1, seconds)
            except NoAnswer as problem:
                note = {"role": "note", "name": f"this frame cannot be read: {problem}", "depth": 0, "properties": {}}
                found = [Element(note, frame, local)]
            below = line["depth"] + 1
            elements += [one._replace(line=one.line | {"depth": one.line["depth"] + below}) for one in found]
    return elements, seen


async def _number(child: Frame, seconds: float) -> int | None:
    """The number of a frame's element in the reading of the frame around it; None where it is not seen."""
    try:
        async with asyncio.timeout(seconds):
            element = await child.frame_element()
            return await element.evaluate("e => window.__wevo.indexOf(e)") or None
    except (Error, TimeoutError):  # it went away in the meantime
        return None


async def title(page: Page) -> str:
    """A tab's title; its address where it does not answer at once."""
    try:
        async with asyncio.timeout(TITLE_S):
            return await page.title()
    except (Error, TimeoutError):  # it hangs, or goes to another page
        return page.url


async def corner(frame: Frame) -> tuple[float, float]:
    """Where a frame's window begins on the page."""
    x = y = 0.0
    while frame.parent_frame is not None:
        left, top, scale = await (await frame.frame_element()).evaluate(PLACE)
        x, y, frame = left + scale * x, top + scale * y, frame.parent_frame
    return x, y


async def on_page(frame: Frame, x: float, y: float) -> tuple[float, float] | None:
    """A point of a frame in the coordinates of the page; None where something lies over the frame there."""
    while frame.parent_frame is not None:
        element = await frame.frame_element()
        left, top, scale = await element.evaluate(PLACE)
        x, y = left + scale * x, top + scale * y
        if not await element.evaluate(IS_AT, [x, y]):
            return None
        frame = frame.parent_frame
    return x, y
