"""`wevo view`: a local page to look through the trajectories of one run or several.

Lists them by stage, task, arm and outcome, opens one page by page, and sets two side by side. Reads
below the runs' folders alone and only what the index knows (index.py): no path comes from a
request. Listens on 127.0.0.1 alone, answers no other Host (a page of the web whose name resolves
here gets nothing), and sends pages without scripts but its own: what a recorded page says is text.
Writes nothing. Served by tornado, which Jupyter brings.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
import webbrowser
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from urllib.parse import urlencode

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, HTTPError, RequestHandler

from wevo_nb import chain, markup
from wevo_nb.index import FACETS, Entry, Index, in_order, pairs, search
from wevo_nb.params import ParamsError
from wevo_nb.runs import StageError, run_folder

ADDRESS, PORT = "127.0.0.1", 8899
ROWS = 100  # of the list, a page
REFRESH_S = 2.0  # between two looks for new episodes
FILES = {"records.css": "text/css", "pages.css": "text/css", "pages.js": "text/javascript", "icon.svg": "image/svg+xml"}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
SHOWN = {"all": "all", "differ": "where they differ", "won": "right alone", "lost": "left alone"}


class Runs:
    """The indexes of the runs that are looked at, by name, in the order of the command."""

    def __init__(self, names: Sequence[str]):
        self.indexes: dict[str, Index] = {}
        for name in dict.fromkeys(names):
            chain.made_with(name)  # raises StageError where there is no such run
            self.indexes[name] = Index(run_folder(name))
        self._looked = time.monotonic()

    @property
    def first(self) -> str:
        return next(iter(self.indexes))

    def refresh(self):
        if time.monotonic() - self._looked > REFRESH_S:
            for index in self.indexes.values():
                index.refresh()
            self._looked = time.monotonic()

    def same_task(self, run: str, entry: Entry) -> list[tuple[str, Entry]]:
        """(run, episode) of every other episode of this task."""
        return [
            (name, other)
            for name, index in self.indexes.items()
            for other in index.entries
            if other.seed == entry.seed and other.task == entry.task and (name, other.ref) != (run, entry.ref)
        ]


class Page(RequestHandler):
    """What every answer has in common: who may ask, the headers, and how an error looks."""

    def initialize(self, runs: Runs):
        self.runs = runs

    def set_default_headers(self):
        for name, value in HEADERS.items():
            self.set_header(name, value)
        self.clear_header("Server")

    def prepare(self):
        """Answers this machine alone: another Host is a page of the web whose name was made to lead here."""
        if self.request.host not in self.settings["hosts"]:
            raise HTTPError(403, reason=f"Only {' and '.join(self.settings['hosts'])} are answered here")
        self.runs.refresh()

    def write_error(self, status_code: int, **more):
        problem = more.get("exc_info", (None, None, None))[1]
        said = str(problem) if isinstance(problem, ParamsError) else self._reason
        self.set_status(404 if isinstance(problem, ParamsError) else status_code)
        self.finish(self.text("message.html", title="Nothing here", said=said))

    def text(self, template: str, **values) -> str:
        known = {"runs": list(self.runs.indexes), "link": link, "run": self.runs.first, "query": {}}
        return markup.render(template, **known | values)

    def index_of(self, run: str) -> Index:
        if run not in self.runs.indexes:
            raise HTTPError(404, reason="No such run is open here")
        return self.runs.indexes[run]

    def entry_of(self, run: str, ref: str) -> Entry:
        entry = self.index_of(run).find(ref)
        if entry is None:
            raise HTTPError(404, reason="No such trajectory in this run")
        return entry

    def number(self, name: str, most: int) -> int:
        """A number from 0 to `most` of the request."""
        given = self.get_query_argument(name, "0")
        return min(int(given), most) if given.isascii() and given.isdigit() and len(given) < 10 else 0

    def asked(self) -> tuple[str, dict[str, str], str]:
        """Run, facets and words that the request looks for."""
        facets = {f: v for f in FACETS if (v := self.get_query_argument(f, None)) is not None and v != "*"}
        return self.get_query_argument("run", self.runs.first), facets, self.get_query_argument("q", "")


class ListPage(Page):
    """The trajectories that were asked for, ROWS at once, and what else there is."""

    def get(self):
        run, facets, words = self.asked()
        index = self.index_of(run)
        found, counts = search(index.entries, facets, words)
        first = self.number("first", max(0, len(found) - 1)) // ROWS * ROWS
        query = {"run": run, **facets} | ({"q": words} if words else {})
        values = {facet: [(v, counts[facet][v]) for v in in_order(counts[facet], facet)] for facet in FACETS}
        for facet, value in facets.items():  # what was asked for stays in its list
            if value not in counts[facet]:
                values[facet].append((value, 0))
        self.finish(
            self.text(
                "list.html", run=run, facets=facets, words=words, query=query, values=values, total=len(found),
                first=first, rows=found[first : first + ROWS], size=ROWS, everything=len(index.entries),
                outcomes=Counter(entry.outcome for entry in found), problems=index.problems,
            )
        )  # fmt: skip


class TrajectoryPage(Page):
    """One episode, with the ones before and after it in the list it was opened from."""

    def get(self):
        run, facets, words = self.asked()
        entry = self.entry_of(run, self.get_query_argument("ref", ""))
        index = self.index_of(run)
        found, _ = search(index.entries, facets, words)
        at = next((i for i, other in enumerate(found) if other.ref == entry.ref), None)
        near = (None, None) if at is None else (found[at - 1] if at else None, (found[at + 1 : at + 2] or [None])[0])
        query = {"run": run, **facets} | ({"q": words} if words else {})
        self.finish(
            self.text(
                "trajectory.html", run=run, query=query, entry=entry, one=index.load(entry), near=near, at=at,
                total=len(found), verdicts=index.verdicts(entry), picture=pictures(run, index),
                same=self.runs.same_task(run, entry), copies=index.copies.get(entry.ref, []),
                back=0 if at is None else at // ROWS * ROWS,
            )
        )  # fmt: skip


class ComparePage(Page):
    """Two episodes side by side, step by step."""

    def get(self):
        sides = []
        for name in ("left", "right"):
            run, _, ref = self.get_query_argument(name, "").partition("/")
            entry, index = self.entry_of(run, ref), self.index_of(run)
            sides.append(
                {
                    "run": run, "entry": entry, "one": index.load(entry), "verdicts": index.verdicts(entry),
                    "picture": pictures(run, index),
                }
            )  # fmt: skip
        self.finish(self.text("compare.html", sides=sides, run=sides[0]["run"]))


class PairsPage(Page):
    """Two arms, or one arm of two runs, on the same tasks: who solved what."""

    def get(self):
        sides = self.sides()
        names = list(sides)
        left = self.get_query_argument("left", _or_first(names, "zero_shot"))
        right = self.get_query_argument("right", _other(names, left))
        shown = self.get_query_argument("show", "all")
        if left not in sides or right not in sides or shown not in SHOWN:
            raise HTTPError(404, reason="No such arm in these runs")
        found = pairs(sides[left], sides[right])
        counts = Counter(_kind(pair) for pair in found)
        wanted = {"all": None, "differ": ("won", "lost"), "won": ("won",), "lost": ("lost",)}[shown]
        kept = [pair for pair in found if wanted is None or _kind(pair) in wanted]
        first = self.number("first", max(0, len(kept) - 1)) // ROWS * ROWS
        self.finish(
            self.text(
                "pairs.html", run="", sides=names, left=left, right=right, shown=shown, choices=SHOWN, counts=counts,
                total=len(kept), everything=len(found), exact=not found or found[0].exact, first=first, size=ROWS,
                rows=kept[first : first + ROWS], left_run=left.split("/")[0], right_run=right.split("/")[0],
            )
        )  # fmt: skip

    def sides(self) -> dict[str, list[Entry]]:
        """Episodes by `run/stage/iteration/arm`, tests first."""
        found: dict[str, list[Entry]] = {}
        for run, index in self.runs.indexes.items():
            for entry in index.entries:
                place = [run, entry.stage, *filter(None, [entry.iteration]), entry.arm]
                found.setdefault("/".join(place), []).append(entry)
        return dict(sorted(found.items(), key=lambda item: item[1][0].stage != "05_wmla"))


class PicturePage(Page):
    """A screenshot that was kept, by its name."""

    def get(self, name: str):
        path = self.index_of(self.get_query_argument("run", self.runs.first)).picture(name)
        if path is None:
            raise HTTPError(404, reason="No such picture was kept")
        self.set_header("Content-Type", "image/png")
        self.finish(path.read_bytes())


class FilePage(Page):
    """Style and script of the pages."""

    def get(self, name: str):
        self.set_header("Content-Type", f"{FILES[name]}; charset=utf-8")
        self.finish(markup.style(name))


class Nothing(Page):
    def get(self):
        raise HTTPError(404, reason="There is no such page")


def pictures(run: str, index: Index) -> Callable:
    """The address of a page's screenshot, empty where none was kept."""
    return lambda seen: link(f"/picture/{seen.screenshot}", run=run) if index.picture(seen.screenshot) else ""


def link(path: str, **query) -> str:
    """An address of this server."""
    return f"{path}?{urlencode(query)}" if query else path


def application(runs: Runs, port: int) -> Application:
    """The pages of these runs, for requests to `port`."""
    given = {"runs": runs}
    hosts = [f"{name}:{port}" if port != 80 else name for name in (ADDRESS, "localhost")]
    files = "|".join(name.replace(".", r"\.") for name in FILES)
    pages = [
        (r"/", ListPage), (r"/trajectory", TrajectoryPage), (r"/compare", ComparePage), (r"/pairs", PairsPage),
        (r"/picture/([0-9a-f]{16}\.png)", PicturePage), (rf"/({files})", FilePage), (r"/.*", Nothing),
    ]  # fmt: skip
    return Application([(path, page, given) for path, page in pages], hosts=hosts, log_function=lambda handler: None)


def serve(names: Sequence[str], port: int, say: Callable[[str], None], *, browser: bool):
    """Serves the runs until it is interrupted; `port` 0 takes a free one.

    Raises StageError where a run is not there or the port is taken.
    """
    began = time.perf_counter()
    runs = Runs(names)
    count = sum(len(index.entries) for index in runs.indexes.values())
    say(f"{count:,} trajectories of {', '.join(runs.indexes)} in {time.perf_counter() - began:.1f} s")
    for name, index in runs.indexes.items():
        for file, problem in index.problems.items():
            say(f"{name}/{file}: {problem}")
    try:
        sockets = bind_sockets(port, ADDRESS)
    except (OSError, OverflowError) as problem:
        raise StageError(f"port {port} cannot be taken ({problem}): another --port, or 0 for a free one") from None
    asyncio.run(_serve(runs, sockets, say, browser))


async def _serve(runs: Runs, sockets: list, say: Callable[[str], None], browser: bool):
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    port = sockets[0].getsockname()[1]
    server = HTTPServer(application(runs, port))
    server.add_sockets(sockets)
    address = f"http://{ADDRESS}:{port}/"
    say(f"open {address}  (Ctrl-C ends it)")
    if browser and (sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        with suppress(webbrowser.Error):  # the address stands above
            webbrowser.open(address)
    await stopped.wait()
    server.stop()
    await server.close_all_connections()


def _kind(pair) -> str:
    """won: the right one alone succeeded; lost: the left one alone; both, neither; open: not both are scored."""
    told = tuple(entry.outcome for entry in (pair.left, pair.right))
    scored = {("success", "success"): "both", ("failure", "failure"): "neither", ("failure", "success"): "won"}
    return (scored | {("success", "failure"): "lost"}).get(told, "open")


def _or_first(names: list[str], end: str) -> str:
    return next((name for name in names if name.endswith(f"/{end}")), names[0] if names else "")


def _other(names: list[str], left: str) -> str:
    """What to set beside it: the same arm of another run, else the next arm."""
    run, _, rest = left.partition("/")
    same = [name for name in names if name.partition("/")[2] == rest and name != left]
    return (same or [name for name in names if name != left] or [left])[0]
