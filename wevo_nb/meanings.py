"""What each param means: the comments of params/base.yaml, by dotted key.

Reads that file and writes nothing. A comment stands on the line of its key and goes on over the lines below
that hold a comment alone. Used by show.params_table, and so by notebooks 01 to 05.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

import yaml

from wevo_nb.params import ROOT

COMMENT = re.compile(r"(?:^|\s)#\s*(.*)$")  # YAML takes # for a comment at the begin of a line or after a space
SUITES = "suites"  # values laid over the other sections, and no section of their own


@functools.cache
def meanings(path: Path = ROOT / "params" / "base.yaml") -> dict[str, str]:
    """Dotted key -> its comment, of sections too; without those that have none.

    What is taken over by an anchor (`*model`, `<<: *training`) has the comments that stand there, and
    what is written in one line with the mapping that holds it has the comment of that line.
    """
    text = path.read_text()
    found: dict[str, str] = {}
    _read(yaml.compose(text), "", -1, text.splitlines(), found)
    return found


def meaning_of(key: str) -> str:
    """The comment of a dotted key, else of the nearest mapping below a section that holds it; empty where none has."""
    parts = key.split(".")
    named = [".".join(parts[:n]) for n in range(len(parts), 0, -1) if n > 1 or len(parts) == 1]
    return next((said for name in named if (said := meanings().get(name))), "")


def _read(node: yaml.MappingNode, prefix: str, above: int, lines: list[str], found: dict[str, str]):
    """The comments of a mapping's keys; `above` is the line of the key that holds it."""
    for key, value in sorted(node.value, key=lambda pair: pair[0].value != "<<"):  # what is merged gives way
        if key.value == "<<":
            _read(value, prefix, above, lines, found)
            continue
        name, line = prefix + key.value, key.start_mark.line
        if name == SUITES:
            continue
        if (said := _comment(lines, line)) and (line != above or name not in found):
            found[name] = said
        if isinstance(value, yaml.MappingNode):
            _read(value, f"{name}.", line, lines, found)


def _comment(lines: list[str], line: int) -> str:
    """What is said at the end of a line and in the lines of comment alone below it."""
    said = COMMENT.search(lines[line])
    if not said:
        return ""
    parts = [said[1]]
    for further in lines[line + 1 :]:
        if not re.match(r"\s+#", further):
            break
        parts.append(COMMENT.search(further)[1])
    return " ".join(parts).strip()
