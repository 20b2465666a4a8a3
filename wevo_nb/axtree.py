"""Format v0: the accessibility tree as the official release shows it, to compare data and prompts with theirs.

One line a node of Chromium's own tree, `[k] role 'name' prop: value`, names unescaped, at most 300
nodes, only what lies at least half in the window; under one line a tab. Reads the page by CDP, two
calls for all nodes instead of two a node. Source: the official release's serialisation, stated
in CONTRIBUTING.md. Used by browser.py, and by tests as the truth about roles and names.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from playwright.async_api import CDPSession, Error, Page

from wevo_nb.frames import Element, NoAnswer, Reading

MOST_RAW, MOST_SHOWN, LEAST_SHARE = 20_000, 300, 0.5  # nodes read, nodes shown, share of a node in the window
DROPPED = frozenset(
    "focusable editable readonly level settable multiline invalid hiddenRoot hidden controls labelledby "
    "describedby url".split()
)
REPEATING = frozenset("StaticText heading image generic".split())  # left out where the parent's name says the same
ADOPT = """function (generation) {
  window.__wevo.adopt(generation, [this.nodeType === Node.TEXT_NODE ? this.parentElement : this]);
}"""


class Node(NamedTuple):
    """A node of Chromium's tree: its name as computed, where it is in the DOM, and its box or None."""

    id: str
    role: str
    name: str
    properties: dict[str, object]
    children: tuple[str, ...]
    backend: int
    box: tuple[float, float, float, float] | None  # x, y, width, height in the window


async def read_tree(page: Page, most: int = MOST_RAW) -> dict[str, Node]:
    """The first `most` nodes of the main frame's tree that are in the DOM, by id, the root first."""
    session = await page.context.new_cdp_session(page)
    raw = (await session.send("Accessibility.getFullAXTree"))["nodes"][:most]
    boxes = await _boxes(session)
    await session.detach()  # not where the page hangs: that would wait for it, too; the context ends it
    nodes = {}
    for node in raw:
        if "backendDOMNodeId" not in node:
            continue
        properties = {p["name"]: p["value"].get("value") for p in node.get("properties", ())}
        name = str(node.get("name", {}).get("value", ""))
        role = node.get("role", {}).get("value", "")
        children = tuple(node.get("childIds", ()))
        backend = node["backendDOMNodeId"]
        nodes[node["nodeId"]] = Node(node["nodeId"], role, name, properties, children, backend, boxes.get(backend))
    return nodes


async def read_window(page: Page, seconds: float) -> tuple[str, Reading]:
    """The text of the tree, and its nodes with their backend ids as `local`. Raises NoAnswer."""
    try:
        async with asyncio.timeout(seconds * 2):
            nodes = await read_tree(page)
            title = await page.title()
    except TimeoutError:
        raise NoAnswer(f"the page does not answer within {seconds * 2:.1f} s") from None
    except Error as problem:
        raise NoAnswer(problem.message.splitlines()[0][:120]) from problem
    size = page.viewport_size
    shown = format_tree(nodes, size["width"], size["height"])
    lines = [{"role": node.role, "name": node.name, "depth": 0, "properties": {}} for _, node in shown]
    elements = [Element(line, page.main_frame, node.backend) for line, (_, node) in zip(lines, shown, strict=True)]
    return "\n".join(text for text, _ in shown), Reading(elements, page.url, title, 0, 0)


def format_tree(nodes: dict[str, Node], width: int, height: int) -> list[tuple[str, Node]]:
    """The lines with their nodes, depth first, ids from 1."""
    out: list[tuple[str, Node]] = []

    waiting = [(next(iter(nodes.values())), 0, "", True)] if nodes else []  # no recursion: pages may be deep
    while waiting and len(out) < MOST_SHOWN:
        node, depth, above, root = waiting.pop()
        name = node.name.strip()
        kept = root or _share(node.box, width, height) >= LEAST_SHARE
        if kept and name and node.role != "gridcell" and not (node.role in REPEATING and name in above):
            tail = "".join(f" {key}: {_value(value)}" for key, value in node.properties.items() if key not in DROPPED)
            out.append((f"{chr(9) * depth}[{len(out) + 1}] {node.role} '{node.name}'{tail}", node))
            depth, above = depth + 1, name
        waiting += [(nodes[child], depth, above, False) for child in reversed(node.children) if child in nodes]
    return out


async def adopt(page: Page, generation: int, backend: int):
    """Makes a node the only element of the reading `generation` in the page, so that actor.js can act on it."""
    session = await page.context.new_cdp_session(page)
    try:
        node = await session.send("DOM.resolveNode", {"backendNodeId": backend})
        call = {"objectId": node["object"]["objectId"], "functionDeclaration": ADOPT}
        await session.send("Runtime.callFunctionOn", call | {"arguments": [{"value": generation}]})
    finally:
        await session.detach()


def envelope(titles: list[str], current: int) -> str:
    """One line a tab, and an empty one."""
    return "".join(f"Tab {i}{' (current)' if i == current else ''}: {t}\n" for i, t in enumerate(titles)) + "\n"


async def _boxes(session: CDPSession) -> dict[int, tuple[float, float, float, float]]:
    """Boxes of the main document's nodes by backend id, in the window."""
    document = (await session.send("DOMSnapshot.captureSnapshot", {"computedStyles": []}))["documents"][0]
    left, top = document.get("scrollOffsetX", 0), document.get("scrollOffsetY", 0)
    backends, layout = document["nodes"]["backendNodeId"], document["layout"]
    boxes = zip(layout["nodeIndex"], layout["bounds"], strict=True)
    return {backends[index]: (x - left, y - top, w, h) for index, (x, y, w, h) in boxes}


def _share(box, width: int, height: int) -> float:
    """Which part of a box lies in the window; 0 without a box."""
    if box is None or box[2] <= 0 or box[3] <= 0:
        return 0.0
    x, y, w, h = box
    across, down = min(x + w, width) - max(x, 0), min(y + h, height) - max(y, 0)
    return max(across, 0) * max(down, 0) / (w * h)


def _value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
