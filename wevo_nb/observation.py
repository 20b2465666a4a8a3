"""The text form of a page, and the difference of two pages.

A page is a header (tabs, URL, how much lies outside the window) and one line an element,
`[id] role 'name' property: value`, indented by tabs, ids counted from 1 and valid for that page
alone. The difference (`changes`) lists what an action altered, line by line; `apply_changes`
rebuilds the next page from it. Used by every notebook.
Source: the accessibility-tree observation of WebEvolver and the change abstraction of WMA.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from typing import NamedTuple

from wevo_nb.schema import Observation

NAME = r"'(?:[^'\\]|\\.)*'"
LINE = re.compile(rf"^(\t*)\[(\d+)\] (\w+)(?: ({NAME}))?((?: \w+: (?:{NAME}|\w+))*)$")
BODY = re.compile(rf"^\t*\w+(?: {NAME})?(?: \w+: (?:{NAME}|\w+))*$")
CHANGE = re.compile(r"^([~+-])\[(\d+)\](?: (.*))?$")
CLICKABLE = frozenset(
    "button link checkbox radio clickable tab menuitem menuitemcheckbox menuitemradio option slider combobox treeitem "
    "textbox searchbox spinbutton switch".split()
)
TITLE_CHARS, URL_CHARS = 200, 300  # of the header; the rest is cut off
TYPEABLE = frozenset("textbox searchbox spinbutton".split())


class Element(NamedTuple):
    """One line of a page. `name` is plain text, `properties` as written."""

    id: int
    role: str
    name: str
    properties: str = ""
    depth: int = 0


def quote(text: str) -> str:
    """A name in quotes, on one line, so that any text reads back."""
    text = re.sub(r"\s+", " ", text).strip()
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def unquote(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1])


def parse_page(text: str) -> list[Element]:
    """The elements of a page; lines that are no element are left out."""
    found = (LINE.match(line) for line in text.split("\n"))
    return [Element(int(m[2]), m[3], unquote(m[4]) if m[4] else "", m[5].strip(), len(m[1])) for m in found if m]


def is_page(text: str) -> bool:
    """Whether every line is an element and the ids are 1..n."""
    lines = [LINE.match(line) for line in text.split("\n")]
    return all(lines) and [int(m[2]) for m in lines] == list(range(1, len(lines) + 1))


def format_page(elements: list[dict], *, max_elements: int, max_chars: int, name_chars: int, indent: bool) -> str:
    """Text of what observer.js returned: dicts of role, name, depth and properties.

    Elements beyond `max_elements`, or beyond `max_chars` in all, are left out; a last line says how many.
    """
    bodies, chars = [], 0
    for element in elements[:max_elements]:
        name = element["name"]
        name = name if len(name) <= name_chars else name[: name_chars - 1].rstrip() + "…"
        properties = "".join(f" {k}: {_value(v, name_chars)}" for k, v in element["properties"].items())
        tabs = "\t" * element["depth"] if indent else ""
        body = f"{tabs}{element['role']}" + (f" {quote(name)}" if name else "") + properties
        chars += len(body) + len(f"[{len(bodies) + 1}] \n")
        if chars > max_chars:
            break
        bodies.append(body)
    left = len(elements) - len(bodies)
    if left > 0:
        bodies.append(f"note {quote(f'… {left} more elements below')}")
    return number(bodies)


def header(observation: Observation) -> str:
    """The lines above the elements: tabs, URL, and pixels of the page outside the window. Empty without tabs.

    Titles and URLs stand in quotes on one line, like names: page text cannot start a line.
    """
    if not observation.tabs:
        return ""
    tabs = [
        f"Tab {i}{' (current)' if i == observation.tab else ''}: {quote(title[:TITLE_CHARS])}"
        for i, title in enumerate(observation.tabs)
    ]
    where = f"Window: {observation.above} px above, {observation.below} px below"
    return "\n".join([*tabs, f"URL: {quote(observation.url[:URL_CHARS])}", where]) + "\n"


def number(bodies: list[str]) -> str:
    """Bodies (`\\trole 'name' ...`) with ids counted from 1."""
    return "\n".join(_with_id(body, i) for i, body in enumerate(bodies, start=1))


def bodies_of(text: str) -> list[str]:
    """The lines of a page without their ids."""
    return [re.sub(r"^(\t*)\[\d+\] ", r"\1", line) for line in text.split("\n")] if text else []


def changes(before: str, after: str) -> list[str]:
    """What turned page `before` into page `after`, one line a change.

    `~[id] body` replaces element id of the page before, `-[id]` deletes it and `+[id] body`
    adds an element behind it (`+[0]` at the top). Empty where the pages are alike.
    """
    old, new = bodies_of(before), bodies_of(after)
    out = []
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for op, i1, i2, j1, j2 in matcher.get_opcodes():
        if op == "equal":
            continue
        common = min(i2 - i1, j2 - j1)
        out += [f"~[{i1 + k + 1}] {new[j1 + k]}" for k in range(common)]
        out += [f"-[{i + 1}]" for i in range(i1 + common, i2)]
        out += [f"+[{i1 + common}] {new[j]}" for j in range(j1 + common, j2)]
    return out


def apply_changes(before: str, lines: list[str]) -> tuple[str, bool]:
    """The page after `lines`, and whether every one of them could be read and applied."""
    old = bodies_of(before)
    replaced: dict[int, str] = {}
    deleted: set[int] = set()
    added: dict[int, list[str]] = {}
    clean = True
    for line in lines:
        found = CHANGE.match(line)
        if not found or not (0 if found[1] == "+" else 1) <= int(found[2]) <= len(old):
            clean = False
        elif found[1] == "-":
            deleted.add(int(found[2]))
        elif not BODY.match(found[3] or ""):
            clean = False
        elif found[1] == "~":
            replaced[int(found[2])] = found[3]
        else:
            added.setdefault(int(found[2]), []).append(found[3])
    out = list(added.get(0, []))
    for i, body in enumerate(old, start=1):
        if i not in deleted:
            out.append(replaced.get(i, body))
        out += added.get(i, [])
    return number(out), clean


def changed_bodies(before: str, after: str) -> Counter:
    """Elements that came (`+ body`) or went (`- body`), with how often: the unit of the F1."""
    old, new = Counter(bodies_of(before)), Counter(bodies_of(after))
    came = Counter({f"+ {body}": n for body, n in (new - old).items()})
    return came + Counter({f"- {body}": n for body, n in (old - new).items()})


def _with_id(body: str, i: int) -> str:
    tabs = len(body) - len(body.lstrip("\t"))
    return f"{body[:tabs]}[{i}] {body[tabs:]}"


def _value(value: object, name_chars: int) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return quote(str(value)[:name_chars])
