"""What a model's reply says: JSON, or one of a few values, read without guessing.

Fences and prose around JSON do no harm. What is cut off, says two different things, or gives its
value in passing (quoting its instructions or a page) is not read: a reader leaves it unscored.
Used by whatever asks a model to judge, score or grade.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from wevo_nb.llm import Reply

THOUGHT = re.compile(r"<think(?:ing)?>.*?</think(?:ing)?>", re.S)
# What may stand before a value on its line for the reply to mean it: marks of Markdown, and words that announce it.
LEAD = re.compile(
    r"[\s*_#`:\-]*(?:(?:here|is|it|this|the|my|so|final|overall|json|format|verdict|answer|judge?ment|evaluation|"
    r"grade|reply|result|output|in|as|of)\b[\s*_#`:\-']*)*",
    re.I,
)
# A line above that ends in a colon must announce a verdict, too, and not what a page or the question says.
ANNOUNCES = re.compile(
    r"\b(?:json|verdict|answer|judge?ment|evaluation|assessment|decision|conclu\w+|grade|therefore|thus|hence)\b", re.I
)
QUOTES = re.compile(r"\b(?:shows?|says?|said|reads?|instructions?|examples?|told|asked)\b", re.I)
MARKS = " \t\n\r*_#`.!\"'"


def read_json(reply: Reply) -> object:
    """What a reply says in JSON: alone, in a fence or within prose. None: cut off, none, or several that differ."""
    text = _whole(reply)
    if text is None:
        return None
    try:
        return json.loads(text.strip("` \n").removeprefix("json"))
    except (ValueError, RecursionError):  # the latter: brackets within brackets without end
        found = [value for value, _, _ in _objects(text)]
    return found[0] if found and all(value == found[0] and value is not None for value in found) else None


def read_choice(
    reply: Reply, key: str, values: Sequence[str], *, also: Mapping[str, str] | None = None, last: Sequence[str] = ()
) -> str | None:
    """The one of `values` that a reply gives: under `key` in JSON, on a line `key: value`, or alone.

    `also`: other words for a value. `last`: values that are believed only where nothing but a fence
    follows them, for a second thought may stand there, in any language. Every value that is given has
    to be the same one. None: it cannot be told.
    """
    text = _whole(reply)
    if text is None:
        return None
    words = {value: value for value in values} | dict(also or {})
    meant = lambda said: words.get(" ".join(str(said).casefold().strip(MARKS).split()))  # noqa: E731
    if alone := meant(text):
        return alone
    said = [(meant(v[key]) if isinstance(v, dict) and key in v else None, end) for v, _, end in _objects(text)]
    said += [(meant(line[1]), line.end()) for line in _line(key).finditer(text) if _announced(text, line.start())]
    given = {value for value, _ in said}
    if len(given) != 1 or None in given:
        return None
    [value] = given
    follows = text[max(end for _, end in said) :]
    return value if value not in last or not follows.strip(MARKS) else None


def _whole(reply: Reply) -> str | None:
    """The text without the thoughts of a reasoning model; None where either is cut off."""
    text = THOUGHT.sub("", reply.text)
    return text.strip() if reply.finish == "stop" and "<think" not in text else None


def _line(key: str) -> re.Pattern:
    """A line that gives nothing but the value of `key`, e.g. `**Verdict:** success`."""
    return re.compile(rf"^[ \t*_#\-]*(?:(?:my|the|final|overall)[ \t]+)*{key}[ \t*_]*[:=](.*)$", re.I | re.M)


def _objects(text: str) -> Iterator[tuple[object, int, int]]:
    """Each JSON object that stands for itself, as (value, start, end); its value is None where it is no JSON."""
    at = 0
    while (start := text.find("{", at)) >= 0:
        try:
            value, at = json.JSONDecoder(object_pairs_hook=_once).raw_decode(text, start)
        except ValueError:
            value, at = None, start + 1
        except RecursionError:
            value, at = None, len(text)
        if _stands(text, start):
            yield value, start, at


def _stands(text: str, start: int) -> bool:
    """Whether an object that begins at `start` is what the reply says, not what it speaks of."""
    line = text.rfind("\n", 0, start) + 1
    return bool(_announced(text, line) and LEAD.fullmatch(text, line, start))


def _announced(text: str, line: int) -> bool:
    """Whether what stands on the line that begins at `line` is not what the line above, up to a colon, quotes."""
    above = re.sub(r"\s*(?:```\w*)?\s*\Z", "", text[:line]).rpartition("\n")[2]
    return not above.endswith(":") or bool(ANNOUNCES.search(above) and not QUOTES.search(above))


def _once(pairs: list[tuple[str, object]]) -> dict:
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError("a key stands there twice")
    return dict(pairs)
