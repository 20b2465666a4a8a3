"""Task templates of the sites: a goal with slots, where it starts, and the answers from the data.

A template is a function from the world (what was built) to (slots, answer) pairs, under the
decorator `template`. An answer is a number, a text, or a `Reached` state of the application's
own database. Ties are left out by the templates; at most CAP of each are kept, chosen by a
fixed hash, which also holds back a part of the entities as the split test_seeds.
"""

from __future__ import annotations

import hashlib
import re
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from wevo_nb.answers import matches
from wevo_nb.schema import Split, Task

CAP = 16
HELD_OUT_SITES = ("code", "docs")
HELD_BACK = 0.3  # of a training template's entities
DONE = 'Then answer "done".'
SLOT = re.compile(r"\{(\w+)\}")


class Reached(NamedTuple):
    """The state that a task asks for: `holds` reads it from the application's database."""

    holds: Callable[[Path], bool]  # of the site's folder


class Opened(NamedTuple):
    """The page that a task asks for, by path and query, and a state that must have been reached, if any.

    Such a task is over when the page is open; nothing has to be answered.
    """

    address: str
    state: Reached | None = None


@dataclass(frozen=True)
class Template:
    name: str
    goal: str  # with {slots}; what may have to be typed stands in double quotes
    sites: tuple[str, ...]  # what may be reached; the first one is where it starts unless `start` is the portal
    start: str  # path on the first site, may have slots; "" is the portal
    held_out: bool
    kind: str  # lookup, filter, extreme, count, compare, multi-hop, state or navigation
    make: Callable[[World], Iterable[tuple[dict, object]]]

    @property
    def site(self) -> str:
        return "+".join(self.sites)

    def slots(self, goal: str) -> dict[str, str]:
        """What stands in the slots of a goal, by this template's wording alone."""
        parts = SLOT.split(self.goal)
        pattern = "".join(f"(?P<{p}>.+?)" if i % 2 else re.escape(p) for i, p in enumerate(parts))
        found = re.fullmatch(pattern, goal)
        if found is None:
            raise ValueError(f"{goal!r} is no goal of the template {self.name}: {self.goal!r}")
        return found.groupdict()


class Item(NamedTuple):
    """A task with where it begins and what makes it right."""

    task: Task
    template: Template
    start: str
    wanted: object
    others: tuple[str, ...] = ()

    def right(self, answer: str, url: str, folders: Mapping[str, Path]) -> bool:
        """Whether `stop [answer]` on the page `url` is a success; `folders` are what the episode's sites work on."""
        if isinstance(self.wanted, Opened):
            return self.opened(url, folders)
        if isinstance(self.wanted, Reached):
            return self.wanted.holds(folders[self.template.sites[-1]])
        return matches(answer, self.wanted, self.task.goal, self.others)

    def opened(self, url: str, folders: Mapping[str, Path]) -> bool:
        """Whether the task asks for the page `url`, and all else that it asks for is done."""
        if not isinstance(self.wanted, Opened):
            return False
        parts = urlsplit(url)
        there = self.wanted.address == parts.path + ("?" + parts.query if parts.query else "")
        return there and (self.wanted.state is None or self.wanted.state.holds(folders[self.template.sites[-1]]))


class World:
    """The built folder, as the templates read it."""

    def __init__(self, folder: Path):
        self.folder = folder

    def query(self, file: str, sql: str, *values) -> list[tuple]:
        return query(self.folder / file, sql, *values)


def query(file: Path, sql: str, *values) -> list[tuple]:
    """Rows of a database that is only read."""
    database = sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=10)
    try:
        return database.execute(sql, values).fetchall()
    finally:
        database.close()


TEMPLATES: dict[str, Template] = {}


def template(name: str, goal: str, *sites: str, start: str = "/", kind: str, held_out: bool = False):
    """Registers the decorated function as a template."""

    def register(make):
        TEMPLATES[name] = Template(name, goal, sites, start, held_out, kind, make)
        return make

    return register


def items(world: World) -> dict[tuple[str, int], Item]:
    """Every task by template and number."""
    out = {}
    for one in TEMPLATES.values():
        made = {one.goal.format(**slots): (slots, wanted) for slots, wanted in one.make(world) if _sayable(slots)}
        kept = sorted(made, key=lambda goal: _share(one.name, goal))[:CAP]
        for number, goal in enumerate(kept):
            slots, wanted = made[goal]
            task = Task(suite="sites", name=one.name, seed=number, goal=goal, site=one.site, split=_split(one, slots))
            wanted, *others = wanted if isinstance(wanted, list) else [wanted]
            out[one.name, number] = Item(task, one, one.start.format(**slots), wanted, tuple(others))
    return out


def _split(one: Template, slots: dict) -> Split:
    if set(one.sites) & set(HELD_OUT_SITES):
        return "test_sites"
    if one.held_out:
        return "test_tasks"
    entity = str(next(iter(slots.values())))
    return "test_seeds" if _share("held back", entity) < HELD_BACK else "train"


def _share(*parts: str) -> float:
    """A fixed number in [0, 1)."""
    return int.from_bytes(hashlib.sha256("/".join(parts).encode()).digest()[:6], "big") / 2**48


def _sayable(slots: dict) -> bool:
    """Texts that can stand in double quotes and be typed."""
    return all(text and text == " ".join(str(text).split()) and '"' not in text for text in map(str, slots.values()))
