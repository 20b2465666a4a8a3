"""Facts on a page: numbers, prices and names in what is read, and which of them could be known.

A world model cannot know what a page has not shown yet. What it writes in spite of that is
invented; a training target can hold a placeholder there instead. Controls are told apart: a
button is no fact. Used by notebook 02 (masked targets, share of hallucinated facts).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from wevo_nb.observation import CLICKABLE, LINE, parse_page, quote, unquote

FACTS = re.compile(
    r"(?P<price>[$€£]\s?\d(?:[\d.,]*\d)?)"
    r"|(?P<number>\d(?:[\d.,:/%-]*[\d%])?)"
    r"|(?P<name>\b[A-Z](?:[\w'-]*\w)?(?: [A-Z](?:[\w'-]*\w)?)*)"
)


def facts_of(text: str) -> set[str]:
    """The numbers, prices and capitalised names in running text."""
    return {found[0] for found in FACTS.finditer(text)}


def with_parts(facts: set[str]) -> set[str]:
    """With a name its parts: `Bob` is told by a goal that says `Pay Bob`."""
    words = [fact.split(" ") for fact in facts]
    return {" ".join(w[i:j]) for w in words for i in range(len(w)) for j in range(i + 1, len(w) + 1)}


def facts_on(page: str) -> set[str]:
    """The facts of a page: of everything but its controls and our own notes on it."""
    return set().union(*(facts_of(unquote(name)) for name in _told(page)))


def facts_shown(page: str) -> set[str]:
    """The facts that a page tells in any way: in text, in a control, in a value."""
    return facts_of("\n".join(f"{e.name}\n{e.properties}" for e in parse_page(page)))


def mask(page: str, known: Iterable[str]) -> str:
    """The page with `<price>`, `<number>` or `<name>` for every fact that `known` does not hold."""
    known = set(known)
    hide: Callable[[re.Match], str] = lambda found: found[0] if found[0] in known else f"<{found.lastgroup}>"  # noqa: E731
    lines = []
    for line in page.split("\n"):
        found = LINE.match(line)
        if found and found[4] and found[3] not in CLICKABLE:
            start, end = found.span(4)
            line = line[:start] + quote(FACTS.sub(hide, unquote(found[4]))) + line[end:]
        lines.append(line)
    return "\n".join(lines)


def _told(page: str) -> list[str]:
    """The quoted names of the elements that are no control."""
    found = (LINE.match(line) for line in page.split("\n"))
    return [m[4] for m in found if m and m[4] and m[3] not in CLICKABLE and m[3] != "note"]
