"""Templates over the site `docs`; the answers are read from the pages of the manual."""

from __future__ import annotations

import html
import re
from collections import defaultdict
from collections.abc import Iterator

from wevo_nb.tasks.sites.templates import World, template

OBJECT = re.compile(
    r'<dt class="sig sig-object py" id="(sqlalchemy\.[\w.]+)">(.*?)</dt>\s*<dd>(.*?)(?=<dt |</dd>)', re.S
)
RETURNS = re.compile(r"\u2192\s*([A-Za-z_]+)\s*¶?$")
ADDED = re.compile(r'class="versionmodified added">(?:Added|New) in version ([\d.]+\d)')
RELEASED = re.compile(r'<section id="change-([\d.]+)">(?:(?!<section ).)*?Released: (\w+ \d+, \d{4})', re.S)
PAGES = ("core/*.html", "orm/*.html", "orm/extensions/*.html", "dialects/*.html")


@template("docs-release", "On which date was the version {version} of SQLAlchemy released?", "docs", kind="lookup")
def release(world: World):
    for path in sorted((world.folder / "docs" / "changelog").glob("changelog_*.html")):
        versions = path.read_text().partition('<section id="change-')
        if found := RELEASED.match("".join(versions[1:])):  # the latest of its series, which the page begins with
            yield {"version": found[1]}, found[2]


@template(
    "docs-returns",
    'What does the method "{method}" return, according to its signature in the manual?',
    "docs",
    kind="lookup",
)
def returns(world: World):
    for name, signature, _ in _objects(world):
        if found := RETURNS.search(signature):
            yield {"method": name}, found[1]


@template(
    "docs-class",
    'Which class of SQLAlchemy has the method "{method}"? Answer with the name of the class alone.',
    "docs",
    kind="lookup",
)
def owner(world: World):
    found = defaultdict(set)
    for name, signature, _ in _objects(world):
        *_, of, method = name.split(".")
        if signature.startswith(("method", "async method")):
            found[method.lower()].add((method, of))
    for owners in found.values():
        [(method, of), *others] = sorted(owners)
        if not others and of[0].isupper() and len(method) > 8 and not method.startswith("_"):
            yield {"method": method}, of


@template("docs-added", 'In which version of SQLAlchemy was the method "{method}" added?', "docs", kind="lookup")
def added(world: World):
    for name, signature, text in _objects(world):
        found = ADDED.findall(text)
        if len(found) == 1 and signature.startswith("method") and len(text) < 3000:
            yield {"method": name}, found[0]


def _objects(world: World) -> Iterator[tuple[str, str, str]]:
    """(dotted name, signature as text, the html of what is said) of what is documented once."""
    found: dict[str, list] = {}
    for pattern in PAGES:
        for path in sorted((world.folder / "docs").glob(pattern)):
            for name, signature, text in OBJECT.findall(path.read_text()):
                found.setdefault(name, []).append((name, _text(signature), text))
    yield from (many[0] for many in found.values() if len(many) == 1)


def _text(markup: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", "", markup)).split())
