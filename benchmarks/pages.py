"""The pages of benchmarks/environment.py: generated ones, and real documentation, served on localhost.

A generated page is the same for the same size on every machine: headings, text, links, buttons,
form controls, lists and tables, some far below the window, some beside it, some hidden in the
ways of the real web. Each control has an id and a name of its own, so that who reads the page
can be asked which of them it named. The documentation is that of the site `docs`: SQLAlchemy's
manual, fetched by pip into the cache on first use.
"""

from __future__ import annotations

import functools
import html
import http.server
import os
import random
import tempfile
import threading
from pathlib import Path
from typing import NamedTuple

from wevo_nb.schema import Task
from wevo_nb.tasks.sites.docs import ARCHIVE, build

ADJECTIVES = "amber brisk copper dusty early faint golden humble ivory jolly keen lively mellow narrow olive".split()
NOUNS = "anchor basket candle drawer engine feather garden hammer island jacket kettle ladder market needle".split()
FILLER = "the report of last month lists what was ordered and who has paid for it so that nothing is sent twice".split()
STYLE = """body{font:12px/1.35 sans-serif;margin:8px}.blocks{display:flex;flex-wrap:wrap;gap:8px}
section{width:280px;border:1px solid #ccc;padding:4px}h1,h2{font-size:14px;margin:2px 0}p,ul{margin:2px 0}
.switch input{position:absolute;opacity:0;width:0;height:0}.switch span{padding:1px 8px;background:#ddd}
.aside{position:absolute;left:-9999px}.upper{text-transform:uppercase}td{padding:0 4px}"""
LISTEN = 'for (const e of document.querySelectorAll(".listens")) e.addEventListener("click", () => {});'


class Page(NamedTuple):
    """A generated page: its controls as id -> name, and the names of those that nobody can see."""

    html: str
    controls: dict[str, str]
    hidden: frozenset[str]


class Generator:
    """Writes one page and keeps what it made."""

    def __init__(self, seed: int):
        self.rng, self.parts, self.elements = random.Random(seed), [], 0
        self.controls: dict[str, str] = {}
        self.hidden: set[str] = set()

    def add(self, markup: str, elements: int):
        """Markup with that many elements in it."""
        self.parts.append(markup)
        self.elements += elements

    def control(self, verb: str = "") -> tuple[str, str]:
        """(id, name) of a new control; no other bears this name."""
        number = len(self.controls)
        words = (verb, self.rng.choice(ADJECTIVES), self.rng.choice(NOUNS), str(number))
        ident, name = f"c-{number}", " ".join(filter(None, words))
        self.controls[ident] = name
        return ident, name

    def link(self, attributes: str = "") -> str:
        ident, name = self.control()
        return f'<a id="{ident}" href="#{ident}"{attributes}>{name}</a>'

    def button(self, verb: str, attributes: str = "") -> str:
        ident, name = self.control(verb)
        return f'<button id="{ident}"{attributes}>{name}</button>'

    def text(self, words: int) -> str:
        return " ".join(self.rng.choices(FILLER, k=words))

    # -- blocks, each a section

    def prose(self):
        self.add(f"<p>{self.text(14)} {self.link()} {self.text(9)} <b>{self.text(2)}</b> {self.link()}.</p>", 4)
        self.add(f"<ul>{''.join(f'<li>{self.link()}</li>' for _ in range(4))}</ul>", 9)

    def form(self):
        ident, name = self.control("Your")
        self.add(f'<p><label for="{ident}">{name}</label> <input id="{ident}" value="{self.text(2)}"></p>', 3)
        ident, name = self.control("Search")
        self.add(f'<p><input id="{ident}" type="search" placeholder="{name}"></p>', 2)
        ident, name = self.control("Choose")
        self.add(f'<p><label>{name} <select id="{ident}">', 3)
        self.add("".join(f"<option>{noun}</option>" for noun in self.rng.sample(NOUNS, 4)), 4)
        self.add("</select></label></p>", 0)
        ident, name = self.control("Agree")
        self.add(f'<p><label><input id="{ident}" type="checkbox"> {name}</label></p>', 3)
        ident, name = self.control("Enable")  # the box itself is not drawn, its label is
        self.add(f'<p><label class="switch"><input id="{ident}" type="checkbox"><span>{name}</span></label></p>', 4)
        ident, name = self.control("Note")
        self.add(f'<p><textarea id="{ident}" rows="1" aria-label="{name}"></textarea></p>', 2)
        self.add(f"<p>{self.button('Send')} {self.button('Reset', ' disabled')}</p>", 3)

    def table(self):
        self.add("<table><tr><th>What</th><th>Count</th><th></th></tr>", 5)
        for _ in range(4):
            row = f"<tr><td>{self.link()}</td><td>{self.rng.randint(1, 999)}</td><td>{self.button('Buy')}</td></tr>"
            self.add(row, 6)
        self.add("</table>", 0)

    def panel(self):
        ident, name = self.control("Close")
        self.add(f'<p><button id="{ident}" aria-label="{name}"><span>x</span></button></p>', 3)
        ident, name = self.control("Open")  # a control by its listener alone
        self.add(f'<div id="{ident}" class="listens" style="cursor:pointer">{name}</div>', 1)
        ident, name = self.control("Tab")
        self.add(f'<div role="tablist"><span id="{ident}" role="tab" tabindex="0">{name}</span></div>', 2)
        ident, name = self.control("Editor")
        self.add(f'<div id="{ident}" contenteditable role="textbox" aria-label="{name}">{self.text(3)}</div>', 1)
        ident, name = self.control("More")
        self.add(f'<details><summary id="{ident}">{name}</summary><p>{self.link()}</p></details>', 4)
        self.hidden.add(list(self.controls.values())[-1])
        self.add(f"<p>{self.link(' class=upper')}</p>", 2)

    def unseen(self):
        """Controls that nobody sees."""
        before = set(self.controls)
        self.add(f'<div style="display:none"><ul><li>{self.link()}</li><li>{self.link()}</li></ul></div>', 6)
        self.add(f'<div style="visibility:hidden">{self.button("Ghost")}</div>', 2)
        self.add(f'<div class="aside">{self.link()} {self.button("Skip")}</div>', 3)
        self.hidden |= {name for ident, name in self.controls.items() if ident not in before}
        self.add(f"<p>{self.text(12)}</p>", 1)


def generate(elements: int) -> Page:
    """A page of at least so many elements, and a few more."""
    made = Generator(elements)
    made.add(f"<h1>Stock of {elements}</h1><nav>{' '.join(made.link() for _ in range(8))}</nav>", 10)
    made.add('<div class="blocks">', 1)
    kinds = (made.prose, made.form, made.table, made.panel, made.prose, made.table, made.unseen)
    number = 0
    while made.elements < elements - 6:  # html, head, title, two of style and script, body
        made.add(f'<section id="s{number}"><h2>Part {number}: {html.escape(made.text(2))}</h2>', 2)
        kinds[number % len(kinds)]()
        made.add("</section>", 0)
        number += 1
    head = f"<!doctype html><html lang=en><head><title>Stock of {elements}</title><style>{STYLE}</style></head>"
    page = f"{head}<body>{''.join(made.parts)}</div><script>{LISTEN}</script></body></html>"
    return Page(page, made.controls, frozenset(made.hidden))


def cache_folder() -> Path:
    """Where packages of the benchmarks are kept: $WEVO_CACHE or ~/.cache/wevo."""
    return Path(os.environ.get("WEVO_CACHE") or Path.home() / ".cache" / "wevo")


def fetch_docs() -> Path:
    """The folder of the manual, downloaded by pip on first use. Raises RuntimeError without a package index."""
    folder = cache_folder() / "docs" / ARCHIVE.replace("==", "-")
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(dir=folder.parent))
        build(unfinished)
        unfinished.rename(folder)  # last, so that a folder that is there is whole
    return folder


class Pages:
    """A suite of pages to read: nothing ends and nothing is rewarded. `with Pages(folder) as suite: ...`."""

    name, licence = "pages", "generated, and SQLAlchemy's documentation (MIT)"

    def __init__(self, folder: Path | None = None):
        self.folder, self.generated = folder, {}

    def __enter__(self) -> Pages:
        handler = functools.partial(Handler, directory=str(self.folder), generated=self.generated)
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def put(self, path: str, page: str):
        """Serves `page` under that path."""
        self.generated[f"/{path}"] = page

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/{path}"

    async def visit(self, task: Task) -> PageVisit:
        return PageVisit(self.url(task.name))


class PageVisit:
    """One page; the task's name is its path, with a fragment where it is scrolled to."""

    def __init__(self, url: str):
        self.url, self.hosts = url, {url.split("/")[2]: "pages"}

    async def start(self, page) -> str:
        return "look around"

    async def state(self, page) -> tuple[bool, float | None]:
        return False, None

    async def answer(self, page, text: str) -> float | None:
        return None

    async def close(self):
        """Nothing to give back."""


class Handler(http.server.SimpleHTTPRequestHandler):
    """Generated pages first, then files of the folder."""

    protocol_version = "HTTP/1.1"

    def __init__(self, *args, generated: dict[str, str], **kwargs):
        self.generated = generated
        super().__init__(*args, **kwargs)

    def do_GET(self):
        page = self.generated.get(self.path)
        if page is None:
            return super().do_GET()
        body = page.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Says nothing: a page that is closed while loading is no news."""
