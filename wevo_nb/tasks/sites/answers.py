"""Whether an answer is the right one: a number or a text, said in any usual way.

Thousands separators, case, accents, punctuation, currency signs and words of the question
around it do no harm. A longer name that merely contains the right one is wrong, and so is an
answer that also names another candidate.
"""

from __future__ import annotations

import re
import unicodedata

NUMBER = re.compile(r"(?<![\w.])[-−]?(?:\d{1,3}(?:[,\u00a0\u2009\u202f]\d{3})+|\d+)(?:\.\d+)?(?!\d|\.\d)")
FILLER = frozenset(
    "a an the it its is are was were be has have had with of in on at by to for from and there that this "
    "answer result value total called named".split()
)


def matches(given: str, wanted: str | int | float, question: str = "", others: tuple[str, ...] = ()) -> bool:
    """Whether `given` answers `question` by `wanted`, and names none of `others`."""
    if isinstance(wanted, str):
        return _says(given, wanted, question) and not any(
            _within(words(other), words(given)) is not None for other in others
        )
    found = numbers(given)
    if len(found) > 1:
        asked = numbers(question)
        found = [number for number in found if number not in asked or number == wanted]
    return bool(found) and all(abs(number - wanted) < 1e-9 for number in found)


def numbers(text: str) -> list[float]:
    """Every number in `text`, without thousands separators."""
    return [float(re.sub(r"[^\d.-]", "", found.replace("−", "-"))) for found in NUMBER.findall(text)]


def words(text: str) -> list[str]:
    """Folded words without the punctuation around them."""
    plain = unicodedata.normalize("NFKD", text.casefold())
    plain = "".join(char for char in plain if not unicodedata.combining(char))
    return [word for word in (re.sub(r"^\W+|\W+$", "", part) for part in plain.split()) if word]


def _says(given: str, wanted: str, question: str) -> bool:
    said, right = words(given), words(wanted)
    if said == right:
        return True
    at = _within(right, said)
    if at is None:
        return False
    around = said[:at] + said[at + len(right) :]
    allowed = FILLER | set(words(question))
    return all(word in allowed for word in around)


def _within(part: list[str], whole: list[str]) -> int | None:
    """Where `part` stands in `whole`, word by word."""
    starts = range(len(whole) - len(part) + 1)
    return next((i for i in starts if whole[i : i + len(part)] == part), None)
