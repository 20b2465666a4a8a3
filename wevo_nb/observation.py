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
NEW_PAGE = "new page"  # the first line of a difference that tells the whole next page
ALIKE = 0.6  # names of at least this likeness (difflib's ratio) may be one element that was updated
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


def element_of(text: str, number: int | None) -> Element | None:
    """The first element of a page with that id, read without the others; None where there is none."""
    if number is None:
        return None
    lines = re.finditer(rf"^\t*\[0*{number}\] .*$", text, re.M)
    return next((element for line in lines for element in parse_page(line[0])), None)


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

    `~[id] body` updates element id of the page before, `-[id]` deletes it and `+[id] body`
    adds an element behind it (`+[0]` at the top). Where that takes more lines than the next page
    has, `new page` and its elements stand instead: a navigation. Empty where the pages are alike.
    """
    old, new = bodies_of(before), bodies_of(after)
    opcodes = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    stretches = [where for op, *where in opcodes if op != "equal"]
    anew = [NEW_PAGE, *after.split("\n")] if new else []
    if anew and sum(max(i2 - i1, j2 - j1) for i1, i2, j1, j2 in stretches) > len(anew):
        return anew
    out = []
    for i1, i2, j1, j2 in stretches:
        i, j = i1, j1  # the first elements that are not told yet
        for paired, partner in [*_updated(old[i1:i2], new[j1:j2]), (i2 - i1, j2 - j1)]:
            out += [f"-[{n + 1}]" for n in range(i, i1 + paired)]
            out += [f"+[{i1 + paired}] {body}" for body in new[j : j1 + partner]]
            if i1 + paired < i2:
                out.append(f"~[{i1 + paired + 1}] {new[j1 + partner]}")
            i, j = i1 + paired + 1, j1 + partner + 1
    return anew if anew and len(out) > len(anew) else out


def _updated(old: list[str], new: list[str]) -> list[tuple[int, int]]:
    """Positions (old, new) of the elements that stayed and were updated, in the order of the page.

    Only elements of one role are paired: best of the same name, then of a like name, then of the
    same place where both stretches are equally long. No pair is forced, unlike in WMA's matching,
    which pairs as many as it can: what has no partner went, or came.
    """
    likeness = [
        [_likeness(a, b, i == j and len(old) == len(new)) for j, b in enumerate(new)] for i, a in enumerate(old)
    ]
    best = [[0.0] * (len(new) + 1) for _ in range(len(old) + 1)]
    for i in reversed(range(len(old))):
        for j in reversed(range(len(new))):
            paired = best[i + 1][j + 1] + likeness[i][j] if likeness[i][j] else 0.0
            best[i][j] = max(paired, best[i + 1][j], best[i][j + 1])
    pairs, i, j = [], 0, 0
    while i < len(old) and j < len(new):
        if likeness[i][j] and best[i][j] == best[i + 1][j + 1] + likeness[i][j]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            i += 1
        else:
            j += 1
    return pairs


def _likeness(old: str, new: str, same_place: bool) -> float:
    """How likely two elements are one: 0 never; a name in common is worth more than a place."""
    (role, name), (other, other_name) = (_role_and_name(body) for body in (old, new))
    if role != other:
        return 0.0
    alike = 1.0 if name == other_name else difflib.SequenceMatcher(None, name, other_name, autojunk=False).ratio()
    return (2.0 * alike if alike >= ALIKE else 0.0) + (1.0 if same_place else 0.0)


def _role_and_name(body: str) -> tuple[str, str]:
    found = re.match(rf"\t*(\w+)(?: ({NAME}))?", body)
    return (found[1], found[2] or "") if found else (body, "")


def apply_changes(before: str, lines: list[str]) -> tuple[str, bool]:
    """The page after `lines`, and whether every one of them could be read and applied."""
    if lines[:1] == [NEW_PAGE]:
        after = "\n".join(lines[1:])
        return (after, True) if is_page(after) else (before, False)
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
