"""How many of the controls that a person sees in the window does an observation name?

The truth comes from a small script of its own, which shares nothing with wevo_nb/observer.js: a
control counts where the middle of one of its boxes (of a checkbox also its label's) lies in the
window and what is drawn there belongs to it. Each system is asked for the controls of the window
that it reads, by name: letter case and spaces do not matter, and a name that stands there twice
has to be named twice.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable

from wevo_nb.observation import parse_page

# [{id, text}] of the controls in the window. `shown` alone decides; `text` is for pages that were not generated.
VISIBLE = """selector => {
  const shown = (part, control) => part.checkVisibility({opacityProperty: true, visibilityProperty: true})
    && [...part.getClientRects()].some((box) => {
      const hit = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
      return hit && (part.contains(hit) || control.contains(hit));
    });
  const textOf = (e) =>
    e.getAttribute("aria-label") || e.innerText || e.labels?.[0]?.innerText || e.placeholder || e.value || "";
  const boxes = (e) => (/^(checkbox|radio)$/.test(e.type) ? [e, ...e.labels] : [e]);  // often only the label is drawn
  return [...document.querySelectorAll(selector)]
    .filter((e) => boxes(e).some((part) => shown(part, e)))
    .map((e) => ({id: e.id, text: textOf(e)}));
}"""
CONTROLS = "a[href], button, input:not([type=hidden]), select, textarea, summary"
ROLES = frozenset(
    "link button checkbox radio textbox searchbox spinbutton slider combobox listbox option tab menuitem treeitem "
    "switch clickable DisclosureTriangle".split()
)
AX_LINE = re.compile(r"""^(\t*)(\[\w+\] )?(\w+)(?: ('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"))?(.*)$""")


def plain(name: str) -> str:
    return " ".join(name.split()).casefold()


def expected(visible: list[dict], controls: dict[str, str] | None) -> Counter[str]:
    """Names of the visible controls: the generator's where it made the page, else their text."""
    names = [controls[one["id"]] if controls else one["text"] for one in visible]
    return Counter(filter(None, map(plain, names)))


def named(text: str) -> Counter[str]:
    """Names of the controls in an observation of ours."""
    return Counter(plain(e.name) for e in parse_page(text) if e.role in ROLES)


def named_by_axtree(text: str) -> Counter[str]:
    """Names of the controls in BrowserGym's flattened accessibility tree (with_clickable=True).

    A line is a control where it has a bid and a control's role or the mark `clickable`; one
    without a name of its own bears the text beneath it.
    """
    names: Counter[str] = Counter()
    nameless: list[int] = []  # depths of the open controls without a name
    for line in text.split("\n"):
        tabs, bid, role, quoted, rest = AX_LINE.match(line).groups()
        name = plain(ast.literal_eval(quoted)) if quoted else ""
        nameless = [depth for depth in nameless if depth < len(tabs)]
        if bid and (role in ROLES or "clickable" in rest.replace(",", " ").split()):
            names[name] += bool(name)
            nameless += [] if name else [len(tabs)]
        elif role == "StaticText" and nameless:
            names[name] += 1
    return names


def found(truth: Counter[str], names: Counter[str]) -> int:
    """How many of the controls of `truth` are named."""
    return (truth & names).total()


def missed(truth: Counter[str], names: Counter[str]) -> list[str]:
    """Those that are not, in the order of the page."""
    return list((truth - names).elements())


def shown_hidden(hidden: Iterable[str], names: Counter[str]) -> list[str]:
    """Controls that nobody can see and that are named all the same."""
    return [name for name in map(plain, sorted(hidden)) if name in names]
