"""A site of small pages on localhost, and how a test visits it: nothing ever ends and nothing is rewarded.

`with LocalSite(pages) as site` serves `pages` (path -> html); `{here}` and `{other}` in a page
stand for this server and for another port, which is another origin; nobody answers at `{gone}`.
`Visit` opens one page in an environment.
"""

from __future__ import annotations

import http.server
import threading
import time
from urllib.parse import parse_qs, urlsplit

from stand_ins import SMOKE, did

from wevo_nb.browser import BrowserEnv
from wevo_nb.observation import parse_page
from wevo_nb.schema import Task
from wevo_nb.sections import BrowserParams, ObservationParams

PDF = (
    b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n"
    b"2 0 obj<</Type/Pages/Kids[]/Count 0>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF"
)


class Handler(http.server.BaseHTTPRequestHandler):
    """The pages, and paths that behave badly: /slow?ms=, /hang, /status?code=, /file, /pdf, /away?to=."""

    def do_GET(self):
        parts = urlsplit(self.path)
        given = {key: values[0] for key, values in parse_qs(parts.query).items()}
        name = parts.path.strip("/")
        self.site.asked.append(name)
        match name:
            case "slow":
                time.sleep(int(given["ms"]) / 1000)
                self.answer(b"<!doctype html><title>Slow</title><p>late</p>")
            case "hang":  # begins an answer and never ends it
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.end_headers()
                self.wfile.write(b"<!doctype html><title>Hang</title><p>first part</p>")
                self.wfile.flush()
                self.site.over.wait(20)
            case "poll":  # an answer that takes longer than any step
                self.site.over.wait(20)
                self.answer(b"news", "text/plain")
            case "status":
                self.answer(given.get("body", "<p>sorry</p>").encode(), status=int(given["code"]))
            case "file":
                self.answer(b"a,b\n1,2\n", "text/csv", **{"Content-Disposition": 'attachment; filename="table.csv"'})
            case "pdf":
                self.answer(PDF, "application/pdf")
            case "away":
                self.answer(b"", status=302, Location=given["to"])
            case _ if name in self.site.pages:
                html = self.site.pages[name].replace("{here}", self.site.address).replace("{other}", self.site.other)
                html = html.replace("{gone}", self.site.gone)
                self.answer(html.encode())
            case _:
                self.answer(b"<!doctype html><title>Not found</title><p>no such page</p>", status=404)

    def answer(self, body: bytes, kind: str = "text/html; charset=utf-8", status: int = 200, **headers: str):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def handle(self):
        try:
            super().handle()
        except ConnectionError:
            self.close_connection = True

    def log_message(self, *_):
        pass


class LocalSite:
    """Serves pages on two ports while it is open; `asked` lists the paths that were asked for."""

    name, licence = "site", "ours"

    def __init__(self, pages: dict[str, str], *, allow_other: bool = True):
        self.pages, self.allow_other = pages, allow_other
        self.asked: list[str] = []
        self.over = threading.Event()

    def __enter__(self) -> LocalSite:
        handler = type("SiteHandler", (Handler,), {"site": self})
        self.servers = [http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) for _ in range(3)]
        for server in self.servers:
            server.daemon_threads = True
            server.block_on_close = False
        for server in self.servers[:2]:
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        self.address, self.other, self.gone = (f"127.0.0.1:{server.server_address[1]}" for server in self.servers)
        self.servers.pop().server_close()
        return self

    def __exit__(self, *_):
        self.over.set()
        for server in self.servers:
            server.shutdown()
            server.server_close()

    async def visit(self, task: Task) -> SiteVisit:
        return SiteVisit(self, task)


class SiteVisit:
    closed = 0

    def __init__(self, site: LocalSite, task: Task):
        self.url = f"http://{site.address}/{task.name}"
        self.hosts = {site.address: "site"} | ({site.other: "other", site.gone: "gone"} if site.allow_other else {})

    async def start(self, page) -> str:
        return "look around"

    async def state(self, page) -> tuple[bool, float | None]:
        return False, None

    async def answer(self, page, text: str) -> float | None:
        return {"right": 1.0, "wrong": 0.0}.get(text)

    async def close(self):
        SiteVisit.closed += 1


class Visit:
    """An environment on one page, closed at the end: `async with Visit(chromium, site, "page") as (env, seen): ...`."""

    def __init__(self, chromium, suite, name: str, seed: int = 0, *, browser: dict | None = None, **observation):
        params: BrowserParams = SMOKE.browser.model_copy(
            update={"viewport": (800, 600), "quiet_ms": 60} | (browser or {})
        )
        form = {"max_elements": 500, "max_chars": 100_000, "name_chars": 300} | observation
        limits: ObservationParams = SMOKE.observation.model_copy(update=form)
        self.env = BrowserEnv(chromium, suite, params, limits)
        self.task = Task(suite="site", name=name, seed=seed)

    async def __aenter__(self):
        try:
            return self.env, await self.env.reset(self.task)
        except BaseException:
            await self.env.close()
            raise

    async def __aexit__(self, *_):
        await self.env.close()


def find(observation, name: str, role: str | None = None) -> int:
    """The id of the one element of that name."""
    [element] = [e for e in parse_page(observation.text) if e.name == name and role in (None, e.role)]
    return element.id


async def act(env, action: str):
    return await env.step(did(action).action)
