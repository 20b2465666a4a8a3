"""A scripted policy that solves every task of the sites through what it reads on the pages.

Each template has a script: a generator that takes the page and the slots of the goal, yields
actions, and returns the answer it read. It knows the ways of the applications and the wording of
the goals, and nothing of the data. The test that every task can be solved runs it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence

from wevo_nb.actions import format_reply
from wevo_nb.observation import Element, parse_page
from wevo_nb.schema import Action, Decision, Observation, Step, Task
from wevo_nb.tasks.sites.templates import TEMPLATES

Script = Generator[Action, None, str]
SCRIPTS: dict[str, Callable[..., Script]] = {}
WAITS = 6  # most waits in a row for a page that is still loading
SCREENS = 12  # most windows to scroll down in search of an element


class Lost(Exception):
    """What the script looks for is not on the page."""


class Page:
    """The latest observation, and what can be found in it."""

    def __init__(self):
        self.seen = Observation(text="")
        self.elements: list[Element] = []

    def see(self, observation: Observation):
        self.seen, self.elements = observation, parse_page(observation.text)

    def all(self, role: str, name: str = "") -> list[Element]:
        """Elements of a role whose whole name fits the pattern `name`."""
        return [e for e in self.elements if re.fullmatch(role, e.role) and (not name or re.fullmatch(name, e.name))]

    def texts(self, pattern: str) -> list[re.Match]:
        """Where any element's whole name fits the pattern."""
        return [found for e in self.elements if (found := re.fullmatch(pattern, e.name))]

    def rows(self) -> list[list[str]]:
        """The cells of the table rows in the window."""
        return [re.split(r" *\| *", e.name) for e in self.all("row")]

    def after(self, element: Element, role: str) -> Element:
        """The next element of a role after `element`."""
        for other in self.elements:
            if other.id > element.id and re.fullmatch(role, other.role):
                return other
        raise Lost(f"no {role} after [{element.id}]")


class Oracle:
    """Runs the script of the task's template."""

    name = "oracle"

    def __init__(self):
        load_scripts()
        self.running: dict[str, tuple[Page, Script]] = {}

    async def act(self, task: Task, history: Sequence[Step], observation: Observation) -> Decision:
        if not history:
            page = Page()
            slots = TEMPLATES[task.name].slots(task.goal)
            self.running[task.key] = page, SCRIPTS[task.name](page, **slots)
        page, script = self.running[task.key]
        if _loading(history, observation):
            return _decision(history, Action(verb="wait"))
        page.see(observation)
        try:
            action = next(script)
        except StopIteration as ended:
            action = Action(verb="stop", text=str(ended.value))
        except Lost as problem:
            action = Action(verb="stop", text=f"lost: {problem}")
        return _decision(history, action)


def _decision(history: Sequence[Step], action: Action) -> Decision:
    return Decision(reply=format_reply(f"step {len(history) + 1}", action), action=action)


def _loading(history: Sequence[Step], observation: Observation) -> bool:
    """Whether the page is still coming (or nothing of it is there), and has not been waited for too often."""
    waited = [step.decision.action.verb for step in history[-WAITS:]].count("wait")
    partial = observation.effect is not None and observation.effect.partial
    return (partial or not parse_page(observation.text)) and waited < WAITS


def script(name: str):
    """Registers a script for the template of that name."""

    def register(function):
        SCRIPTS[name] = function
        return function

    return register


# -- steps that many scripts share


def seek(
    page: Page, role: str, name: str = "", number: int = 0, ways: Sequence[str] = ("down", "up")
) -> Generator[Action, None, Element]:
    """The element, looked for down the page and, as more may have come meanwhile, up again. Raises Lost."""
    for way in ways:
        for _ in range(SCREENS):
            found = page.all(role, name)
            if len(found) > number:
                return found[number]
            before = page.seen.text
            yield Action(verb="scroll", text=way)
            if page.seen.text == before:
                break
    raise Lost(f"no {role} {name!r} on {page.seen.title!r}")


def click(page: Page, role: str, name: str = "", number: int = 0) -> Script:
    """A click, and a second one where the first did nothing: the page may have moved under it."""
    for _ in range(2):
        element = yield from seek(page, role, name, number)
        yield Action(verb="click", id=element.id)
        if page.seen.effect is None or page.seen.effect.changed or page.seen.effect.navigated:
            break
    return ""


def fill(page: Page, role: str, name: str, text: str, enter: bool = False) -> Script:
    element = yield from seek(page, role, name)
    yield Action(verb="type", id=element.id, text=text, enter=enter)
    return ""


def choose(page: Page, name: str, option: str, number: int = 0) -> Script:
    """Selects an option of a native select."""
    element = yield from seek(page, "combobox", name, number)
    yield Action(verb="select", id=element.id, text=option)
    return ""


def exactly(text: str) -> str:
    """A pattern for this very text."""
    return re.escape(text)


def load_scripts():
    """Imports the modules that register the scripts."""
    from wevo_nb.tasks.sites import oracle_code, oracle_issues, oracle_multi, oracle_shop, oracle_tables  # noqa: F401
