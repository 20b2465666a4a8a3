"""The oracle's scripts for the sites `code` and `docs`."""

from __future__ import annotations

import re

from wevo_nb.schema import Action
from wevo_nb.tasks.sites.oracle import Lost, Page, Script, click, exactly, fill, script, seek

PAGES = 5  # most pages of the history
WAITS = 20  # most looks at a search that is still going on


def commit(page: Page, message: str) -> Script:
    """The link of a commit in the history, page by page; returns its whole name."""
    yield from click(page, "link", "planner.*")
    for _ in range(PAGES):
        try:
            found = yield from seek(page, "link", f"{exactly(message)}.*", ways=("down",))
            return found.name
        except Lost:
            yield from click(page, "link", "»»")
    raise Lost(f"no commit {message!r}")


def open_commit(page: Page, message: str) -> Script:
    name = yield from commit(page, message)
    yield from click(page, "link", exactly(name))
    return ""


def text(page: Page) -> str:
    """All that is in the window, as one line."""
    return " ".join(element.name for element in page.elements)


def in_text(page: Page, pattern: str) -> Script:
    """What the pattern's group takes in the window, or in one below it."""
    for _ in range(PAGES):
        if found := re.search(pattern, text(page)):
            return found[1]
        yield Action(verb="scroll", text="down")
    raise Lost(f"nothing like {pattern!r} on {page.seen.title!r}")


@script("code-author")
def author(page: Page, message: str) -> Script:
    name = yield from commit(page, message)
    return name.removeprefix(message).split()[0]


@script("code-setting")
def setting(page: Page, setting: str, component: str) -> Script:
    yield from click(page, "link", "planner.*")
    yield from click(page, "link", "config")
    yield from click(page, "link", rf"{component}\.py")
    return (yield from in_text(page, rf"\b{setting} = (\d+)"))


@script("code-change")
def change(page: Page, message: str) -> Script:
    yield from open_commit(page, message)
    return (yield from in_text(page, r"\b([A-Z_]+) = \d+\b.*?\b\1 = \d+"))


@script("code-new-value")
def new_value(page: Page, message: str, setting: str) -> Script:
    yield from open_commit(page, message)
    return (yield from in_text(page, rf"\b{setting} = \d+\b.*?\b{setting} = (\d+)"))


def search(page: Page, query: str) -> Script:
    """Searches the manual, and waits for what is found."""
    yield from fill(page, "textbox|searchbox", "Search terms:?", query)
    yield from click(page, "button", "Search")
    for _ in range(WAITS):
        if page.texts("Search finished.*"):
            return ""
        yield Action(verb="wait")
    raise Lost("the search does not end")


def described(page: Page, name: str) -> Script:
    """To where a method is described."""
    yield from search(page, name)
    yield from click(page, "link", exactly(name))
    for _ in range(WAITS):
        if "#" in page.seen.url and page.seen.above > 0:
            break
        yield Action(verb="wait")  # the page is long: it comes first, and goes to the place later
    return ""


@script("docs-release")
def release(page: Page, version: str) -> Script:
    series = ".".join(version.split(".")[:2])
    yield from click(page, "link", "Changelog catalog")
    yield from click(page, "link", exactly(f"{series} Changelog"))
    return (yield from in_text(page, rf"{exactly(version)} ?¶? Released: (\w+ \d+, \d{{4}})"))


@script("docs-returns")
def returns(page: Page, method: str) -> Script:
    yield from described(page, method)
    return (yield from in_text(page, rf"\b{method.split('.')[-1]}\b[^→]*→ ?(\w+)"))


@script("docs-class")
def owner(page: Page, method: str) -> Script:
    yield from search(page, method)
    found = yield from seek(page, "link", rf"sqlalchemy\..*\.{method}")
    return found.name.split(".")[-2]


@script("docs-added")
def added(page: Page, method: str) -> Script:
    yield from described(page, method)
    return (yield from in_text(page, r"(?:Added|New) in version ([\d.]+\d)"))
