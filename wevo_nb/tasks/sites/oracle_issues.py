"""The oracle's scripts for the site `issues`."""

from __future__ import annotations

import re

from wevo_nb.schema import Action
from wevo_nb.tasks.sites.oracle import Lost, Page, Script, choose, click, exactly, fill, script, seek


def search(page: Page, text: str) -> Script:
    """By the search box; `#12` leads to that ticket at once."""
    yield from fill(page, "textbox|searchbox", "Search:?", text)
    yield from click(page, "button", "Search")
    return ""


def value(page: Page, label: str) -> Script:
    """The cell behind a label in the table of properties, or of a wiki page."""
    row = yield from seek(page, "row", rf"(.*\| *)?{label}:? *\|.*")
    cells = re.split(r" *\| *", row.name)
    return next(after for cell, after in zip(cells, cells[1:], strict=False) if cell.rstrip(":") == label)


def matches(page: Page) -> str:
    """The number in `Custom Query (7 matches)`."""
    found = page.texts(r"Custom Query \((\d+|No) match(?:es)?\)")
    if not found:
        raise Lost(f"no count of matches on {page.seen.title!r}")
    return found[0][1]


def custom_query(page: Page, **conditions: str) -> Script:
    """Opens a query for tickets that are not closed, and adds conditions; owner is a text, the others lists."""
    yield from click(page, "link", "View Tickets")
    yield from click(page, "link", "New Custom Query")
    for name, wanted in conditions.items():
        yield from choose(page, "And", name.capitalize())
        row = yield from seek(page, "row", rf"\W*{name.capitalize()} ?\|.*")
        if name == "owner":
            yield Action(verb="type", id=page.after(row, "textbox").id, text=wanted)
        else:
            option = next(e for e in page.elements if e.id > row.id and e.role == "option" and e.name == wanted)
            box = next(e for e in reversed(page.elements) if e.id < option.id and e.role == "combobox")
            yield Action(verb="select", id=box.id, text=wanted)
    yield from click(page, "button", "Update")
    return ""


def modify(page: Page, number: str) -> Script:
    """To the form of a ticket."""
    yield from search(page, f"#{number}")
    yield from click(page, "link", "Modify")
    return ""


@script("issues-owner")
def owner(page: Page, number: str) -> Script:
    yield from search(page, f"#{number}")
    return (yield from value(page, "Owned by"))


@script("issues-field")
def field(page: Page, summary: str, field: str) -> Script:
    yield from search(page, summary)
    yield from click(page, "link", rf"#\d+: .*{re.escape(summary)}.*")
    return (yield from value(page, field.capitalize()))


@script("issues-team")
def team(page: Page, team: str, what: str) -> Script:
    yield from click(page, "link", "Wiki")
    yield from click(page, "link", f"Team {team}")
    return (yield from value(page, what.capitalize()))


@script("issues-page")
def page_of(page: Page, team: str) -> Script:
    yield from click(page, "link", f"Team {team}")
    return "done"


@script("issues-history")
def history(page: Page, team: str) -> Script:
    yield from click(page, "link", f"Team {team}")
    yield from click(page, "link", "History")
    return "done"


@script("issues-edit")
def edit(page: Page, team: str) -> Script:
    yield from click(page, "link", f"Team {team}")
    yield from click(page, "button", "Edit this page")
    return "done"


@script("issues-count")
def count(page: Page, component: str, owner: str) -> Script:
    yield from custom_query(page, component=component, owner=owner)
    return matches(page)


@script("issues-new")
def new(page: Page, summary: str, kind: str, priority: str, component: str) -> Script:
    yield from click(page, "link", "New Ticket")
    yield from fill(page, "textbox", "Summary:?", summary)
    for label, option in (("Type", kind), ("Priority", priority), ("Component", component)):
        yield from choose(page, f"{label}:?", option)
    yield from click(page, "button", "Create ticket")
    return "done"


@script("issues-priority")
def priority(page: Page, number: str, priority: str) -> Script:
    yield from modify(page, number)
    yield from choose(page, "Priority:?", priority)
    yield from click(page, "button", "Submit changes")
    return "done"


@script("issues-close")
def close(page: Page, number: str, resolution: str) -> Script:
    yield from modify(page, number)
    yield from click(page, "radio", "resolve.*")
    option = yield from seek(page, "option", exactly(resolution))
    box = next(e for e in reversed(page.elements) if e.id < option.id and e.role == "combobox")
    yield Action(verb="select", id=box.id, text=resolution)
    yield from click(page, "button", "Submit changes")
    return "done"


@script("issues-comment")
def comment(page: Page, comment: str, number: str) -> Script:
    yield from search(page, f"#{number}")
    button = yield from seek(page, "button", "Submit changes")
    box = [e for e in page.elements if e.role == "textbox" and e.id < button.id][-1]
    yield Action(verb="type", id=box.id, text=comment)
    yield from click(page, "button", "Submit changes")
    return "done"


@script("issues-oldest")
def oldest(page: Page, priority: str, owner: str) -> Script:
    yield from custom_query(page, priority=priority, owner=owner)
    yield from click(page, "link", "Ticket")
    row = yield from seek(page, "row", r"\W*#\d+ \|.*")
    return re.split(r" *\| *", row.name.lstrip("| "))[1]


@script("issues-active")
def active(page: Page, milestone: str, priority: str) -> Script:
    yield from custom_query(page, milestone=milestone, priority=priority)
    return matches(page)
