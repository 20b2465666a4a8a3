"""The oracle's scripts for the site `tables`."""

from __future__ import annotations

from collections.abc import Iterator

from wevo_nb.answers import numbers
from wevo_nb.observation import Element
from wevo_nb.schema import Action
from wevo_nb.tasks.sites.oracle import Lost, Page, Script, click, exactly, fill, script


def table(page: Page, name: str) -> Script:
    """From the first page, or from the list of tables, to a table."""
    if page.all("link", "data"):
        yield from click(page, "link", "data")
    yield from click(page, "link", name)
    return ""


def search(page: Page, text: str) -> Script:
    yield from fill(page, "searchbox", "", f'"{text}"', enter=True)
    return ""


def narrow(page: Page, column: str, value: str, operation: str = "=") -> Script:
    """Adds a condition by the form above the rows."""
    yield Action(verb="select", id=free_condition(page).id, text=column)
    if operation != "=":
        operations = page.after(free_condition(page), "combobox")
        yield Action(verb="select", id=operations.id, text=operation)
    yield Action(verb="type", id=page.after(free_condition(page), "textbox").id, text=value, enter=True)
    return ""


def free_condition(page: Page) -> Element:
    """The column box of the condition that is still empty (until a column is chosen, then the last one)."""
    unset = [e for e in page.all("option", "- column -")]
    if not unset:
        raise Lost(f"no empty condition on {page.seen.title!r}")
    return next(e for e in reversed(page.elements) if e.role == "combobox" and e.id < unset[0].id)


def descending(page: Page, column: str) -> Script:
    """Sorts by a column, the largest first: a click, and once more."""
    yield from click(page, "link", exactly(column))
    yield from click(page, "link", f"{column} ▲|{column} ▼|{column}")
    return ""


def facet(page: Page, column: str, value: str) -> Script:
    """Clicks a value in the list of a column's values."""
    begin = next((e for e in page.elements if e.role == "StaticText" and e.name == column), None)
    if begin is None:
        raise Lost(f"no list of {column} on {page.seen.title!r}")
    link = next((e for e in page.elements if e.id > begin.id and e.role == "link" and e.name == value), None)
    if link is None:
        raise Lost(f"no {value!r} in the list of {column}")
    yield Action(verb="click", id=link.id)
    return ""


def records(page: Page) -> Iterator[dict[str, str]]:
    """The rows in the window as column -> cell."""
    heading: list[str] = []
    for cells in page.rows():
        names = [cell.removesuffix(" ▼").removesuffix(" ▲") for cell in cells]
        if names[0] == "id":
            heading = names
        elif heading and len(cells) == len(heading):
            yield dict(zip(heading, cells, strict=True))


def first(page: Page, number: int = 0) -> dict[str, str]:
    found = list(records(page))
    if len(found) <= number:
        raise Lost(f"{len(found)} rows on {page.seen.title!r}")
    return found[number]


def record(page: Page, column: str, value: str) -> dict[str, str]:
    for found in records(page):
        if found[column] == value:
            return found
    raise Lost(f"no row with {column} {value!r} on {page.seen.title!r}")


def count(page: Page) -> str:
    """The number in `1,234 rows where ...`."""
    found = page.texts(r"([\d,]+) rows?( where.*)?")
    if not found:
        raise Lost(f"no count of rows on {page.seen.title!r}")
    return found[0][1]


@script("tables-capital")
def capital(page: Page, country: str) -> Script:
    yield from table(page, "countries")
    yield from search(page, country)
    return record(page, "name", country)["capital"]


@script("tables-sort")
def sort(page: Page, table: str, column: str) -> Script:
    yield from click(page, "link", table)
    yield from click(page, "link", column)
    return "done"


@script("tables-city-population")
def city_population(page: Page, city: str) -> Script:
    yield from table(page, "cities")
    yield from search(page, city)
    return record(page, "name", city)["population"]


@script("tables-largest-city")
def largest_city(page: Page, country: str) -> Script:
    yield from table(page, "cities")
    yield from narrow(page, "country", country)
    yield from descending(page, "population")
    return first(page)["name"]


@script("tables-count-cities")
def count_cities(page: Page, country: str) -> Script:
    yield from table(page, "cities")
    yield from narrow(page, "country", country)
    return count(page)


@script("tables-weather")
def weather(page: Page, column: str, date: str) -> Script:
    yield from narrow(page, "date", date)
    return first(page)[column]


@script("tables-strongest-car")
def strongest_car(page: Page, year: str, cylinders: str, origin: str) -> Script:
    yield from facet(page, "origin", origin)
    yield from facet(page, "cylinders", cylinders)
    yield from narrow(page, "year", year)
    yield from descending(page, "horsepower")
    return first(page)["name"]


@script("tables-compare-cities")
def compare_cities(page: Page, one: str, two: str) -> Script:
    inhabitants = {}
    for city in (one, two):
        yield from search(page, city)
        inhabitants[city] = numbers(record(page, "name", city)["population"])[0]
    return max(inhabitants, key=inhabitants.get)


@script("tables-second-city")
def second_city(page: Page, country: str) -> Script:
    yield from table(page, "cities")
    yield from narrow(page, "country", country)
    yield from descending(page, "population")
    return first(page, 1)["name"]


@script("tables-count-airports")
def count_airports(page: Page, state: str) -> Script:
    yield from table(page, "airports")
    yield from narrow(page, "state", state)
    return count(page)


@script("tables-stock-peak")
def stock_peak(page: Page, year: str, symbol: str) -> Script:
    yield from facet(page, "symbol", symbol)
    yield from narrow(page, "month", year, "starts with")
    yield from descending(page, "price")
    return first(page)["month"]


@script("tables-count-days")
def count_days(page: Page, month: str, weather: str) -> Script:
    yield from facet(page, "weather", weather)
    yield from narrow(page, "date", month, "starts with")
    return count(page)
