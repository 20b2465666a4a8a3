"""Whether an answer is the right one: a number or a text, said in any usual way; a date, a quantity or a list.

Thousands separators, case, accents, punctuation, currency signs and words of the question
around it do no harm. A longer name that merely contains the right one is wrong, and so is an
answer that also names another candidate. GAIA's own rule stands beside ours. Used by the task
suites and the judge `answer`.
"""

from __future__ import annotations

import math
import re
import string
import unicodedata
from collections import Counter

NUMBER = re.compile(r"(?<![\w.])[-−]?(?:\d{1,3}(?:[,\u00a0\u2009\u202f]\d{3})+|\d+)(?:\.\d+)?(?!\d|\.\d)")
FILLER = frozenset(
    "a an the it its is are was were be has have had with of in on at by to for from and there that this "
    "answer result value total called named".split()
)
MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
MONTH = rf"(?P<month>{'|'.join(MONTHS)})[a-z]*\.?"
DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
YEAR = r"(?P<year>\d{4})"
DATES = [  # days in figures alone, as 3/5/2024, are no date: nobody knows which is the month
    re.compile(rf"(?<![\w-]){form}(?![\w-])", re.I)
    for form in (
        r"(?P<year>\d{4})-(?P<month>\d{2})-(?P<day>\d{2})",
        rf"{DAY}(?: of)? {MONTH},? {YEAR}",
        rf"{MONTH} {DAY},? {YEAR}",
        rf"{MONTH},? {YEAR}",
    )
]
SIGNS = {"$": "usd", "€": "eur", "£": "gbp", "%": "percent", "°": ""}
UNITS = {  # ways to say one unit; other words are units as they stand, without a plural's s
    "dollar": "usd", "euro": "eur", "percentage": "percent", "kilometer": "km", "kilometre": "km", "meter": "m",
    "metre": "m", "centimeter": "cm", "centimetre": "cm", "mile": "mi", "foot": "ft", "feet": "ft", "kilogram": "kg",
    "gram": "g", "hour": "h", "hr": "h", "minute": "min", "second": "s", "sec": "s", "yr": "year", "celsius": "c",
    "fahrenheit": "f", "degree": "",
}  # fmt: skip
MANY = {"thousand": 1e3, "million": 1e6, "billion": 1e9}


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


def same_answer(given: str, reference: str, question: str = "") -> bool:
    """Whether `given` says what a published answer says, which may be a date, a quantity, a text or a list of them.

    A quantity may leave its unit out, not change it: nothing is converted. The order of a list does
    not count, its length does. Whatever cannot be told is no match.
    """
    dates, rest = _dates(reference)
    if dates and not rest:
        said, around = _dates(given)
        return set(said) == set(dates) and _idle(around, question)
    wanted = _quantity(reference)
    if wanted is not None:
        said = _quantity(given, question)
        units = {"", wanted[1]} if wanted[1] else {"", *map(_unit, words(question))}
        return said is not None and math.isclose(said[0], wanted[0], rel_tol=1e-9) and said[1] in units
    reference = re.sub(r"^\s*(?:the|an?)\s+(?=\S)", "", reference, flags=re.I)
    signs = lambda text: re.findall(r"[+#]", text)  # noqa: E731  (C is neither C++ nor C#)
    if _says(given, reference, question) and signs(given) == signs(reference):
        return True
    parts, told = _listed(reference), _listed(given)
    if len(parts) < 2 or len(parts) != len(told):
        return False
    fits = [{i for i, one in enumerate(told) if same_answer(one, part, question)} for part in parts]
    return Counter(map(len, fits)) == {1: len(parts)} and len(set.union(*fits)) == len(parts)


def quasi_exact(given: str, reference: str) -> bool:
    """GAIA's rule: a number without $, % and commas; a list in its order; else the letters without spaces and marks.

    Source: the scorer of GAIA's leaderboard (arXiv 2311.12983). One thing is stricter: no infinite number is one.
    """
    parts, told = re.split("[,;]", reference), re.split("[,;]", given)
    if _float(reference) is None and len(parts) > 1:
        return len(parts) == len(told) and all(map(_quasi_same, told, parts, [""] * len(parts)))
    return _quasi_same(given, reference, string.punctuation)


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


def _idle(said: list[str], question: str) -> bool:
    """Whether these words say nothing of their own."""
    allowed = FILLER | set(words(question))
    return all(word in allowed for word in said)


def _dates(text: str) -> tuple[list[tuple], list[str]]:
    """Every date as (year, month, day or None), and the words beside them."""
    found = []

    def read(match: re.Match) -> str:
        told = match.groupdict()
        month = told["month"].casefold()
        number = int(month) if month.isdigit() else MONTHS.index(month[:3]) + 1
        found.append((int(told["year"]), number, int(told["day"]) if told.get("day") else None))
        return " "

    for form in DATES:
        text = form.sub(read, text)
    return found, words(text)


def _quantity(text: str, question: str = "") -> tuple[float, str] | None:
    """(number, unit or "") where the text is one number with at most a unit beside idle words; else None."""
    for sign, unit in SIGNS.items():
        text = text.replace(sign, f" {unit} ")
    found = numbers(text)
    if len(found) != 1:
        return None
    beside = words(NUMBER.sub(" ", text))
    value = found[0] * math.prod(MANY.get(word, 1) for word in beside)
    idle = lambda word: _unit(word) not in UNITS.values() and _idle([word], question)  # noqa: E731
    units = [_unit(word) for word in beside if word not in MANY and _unit(word) and not idle(word)]
    return (value, units[0] if units else "") if len(units) < 2 else None


def _unit(word: str) -> str:
    one = word if word in UNITS else word.removesuffix("s") or word
    return UNITS.get(one, one)


def _listed(text: str) -> list[str]:
    text = re.sub(r"(?<=\d),(?=\d{3}\b)", "", text)
    return [part for part in re.split(r"[,;\n]|\band\b|&", text) if part.strip()]


def _float(text: str) -> float | None:
    try:
        return value if math.isfinite(value := float(text)) else None
    except ValueError:
        return None


def _quasi_same(given: str, reference: str, marks: str) -> bool:
    number = _float(reference)
    if number is not None:
        return _float(re.sub("[$%,]", "", given)) == number
    bare = str.maketrans("", "", marks)
    return "".join(given.split()).lower().translate(bare) == "".join(reference.split()).lower().translate(bare)
