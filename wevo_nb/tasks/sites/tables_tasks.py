"""Templates over the site `tables`; the answers come from its database by SQL."""

from __future__ import annotations

from wevo_nb.tasks.sites.templates import Opened, World, template

DATA = "tables/data.db"
LONE_CITIES = "select name, population from cities group by name having count(*) = 1"


@template(
    "tables-capital",
    'What is the capital of "{country}"? Look it up in the table countries.',
    "tables",
    start="/data",
    kind="lookup",
)
def capital(world: World):
    for name, found in world.query(DATA, "select name, capital from countries where capital <> ''"):
        yield {"country": name}, found


@template(
    "tables-sort",
    'Open the table "{table}" and sort its rows by "{column}".',
    "tables",
    start="/data",
    kind="navigation",
)
def sort(world: World):
    for (table,) in world.query(DATA, "select name from sqlite_master where type = 'table' and name not like '%fts%'"):
        for _, column, *_ in world.query(DATA, f"pragma table_info({table})"):
            if column != "id":
                yield {"column": column, "table": table}, Opened(f"/data/{table}?_sort={column}")


@template(
    "tables-city-population",
    'What is the population of the city "{city}"? Look it up in the table cities.',
    "tables",
    start="/data",
    kind="lookup",
)
def city_population(world: World):
    for name, population in world.query(DATA, LONE_CITIES):
        yield {"city": name}, population


@template(
    "tables-largest-city",
    'In the table cities, which city of "{country}" has the largest population?',
    "tables",
    kind="extreme",
)
def largest_city(world: World):
    for country, cities in _ranked(world).items():
        if len(cities) > 2 and cities[0][0] > cities[1][0]:
            yield {"country": country}, cities[0][1]


@template(
    "tables-count-cities",
    'How many cities of "{country}" are in the table cities?',
    "tables",
    start="/data",
    kind="count",
)
def count_cities(world: World):
    for country, cities in _ranked(world).items():
        if len(cities) > 1:
            yield {"country": country}, len(cities)


@template(
    "tables-weather",
    'In the table weather, what was the {column} on "{date}"?',
    "tables",
    start="/data/weather",
    kind="filter",
)
def weather(world: World):
    for column in ("precipitation", "temp_max", "temp_min", "wind"):
        for date, value in world.query(DATA, f"select date, {column} from weather where date like '%-_7'"):
            yield {"date": date, "column": column}, value


@template(
    "tables-strongest-car",
    'Of the cars of {year} with {cylinders} cylinders from "{origin}" in the table cars, '
    "which has the most horsepower?",
    "tables",
    start="/data/cars",
    kind="extreme",
)
def strongest_car(world: World):
    found: dict[tuple, list] = {}
    sql = "select year, cylinders, origin, horsepower, name from cars where horsepower is not null order by 4 desc"
    for year, cylinders, origin, power, name in world.query(DATA, sql):
        found.setdefault((year, cylinders, origin), []).append((power, name))
    for (year, cylinders, origin), cars in found.items():
        if len(cars) > 1 and cars[0][0] > cars[1][0]:
            yield {"year": year, "cylinders": cylinders, "origin": origin}, cars[0][1]


@template(
    "tables-compare-cities",
    'Which city has more inhabitants in the table cities, "{one}" or "{two}"?',
    "tables",
    start="/data/cities",
    kind="compare",
)
def compare_cities(world: World):
    cities = sorted(world.query(DATA, f"{LONE_CITIES} and population > 900000"), key=lambda city: city[0][::-1])
    for (one, many), (two, more) in zip(cities, cities[1:], strict=False):
        if many != more:
            yield {"one": one, "two": two}, [one, two] if many > more else [two, one]


@template(
    "tables-second-city",
    'In the table cities, which city of "{country}" has the second largest population?',
    "tables",
    held_out=True,
    kind="extreme",
)
def second_city(world: World):
    for country, cities in _ranked(world).items():
        if len(cities) > 3 and cities[0][0] > cities[1][0] > cities[2][0]:
            yield {"country": country}, cities[1][1]


@template(
    "tables-count-airports",
    'How many airports of the state "{state}" are in the table airports?',
    "tables",
    start="/data",
    held_out=True,
    kind="count",
)
def count_airports(world: World):
    for state, count in world.query(DATA, "select state, count(*) from airports group by state"):
        yield {"state": state}, count


@template(
    "tables-stock-peak",
    'In the table stocks, in which month of "{year}" was the price of "{symbol}" the highest?',
    "tables",
    start="/data/stocks",
    held_out=True,
    kind="extreme",
)
def stock_peak(world: World):
    found: dict[tuple, list] = {}
    for symbol, month, price in world.query(DATA, "select symbol, month, price from stocks order by price desc"):
        found.setdefault((month[:4], symbol), []).append((price, month))
    for (year, symbol), prices in found.items():
        if len(prices) > 1 and prices[0][0] > prices[1][0]:
            yield {"year": year, "symbol": symbol}, prices[0][1]


@template(
    "tables-count-days",
    'In the table weather, how many days of the month "{month}" have the weather "{weather}"?',
    "tables",
    start="/data/weather",
    held_out=True,
    kind="count",
)
def count_days(world: World):
    sql = "select substr(date, 1, 7), weather, count(*) from weather group by 1, 2"
    for month, kind, count in world.query(DATA, sql):
        yield {"month": month, "weather": kind}, count


def _ranked(world: World) -> dict[str, list[tuple[int, str]]]:
    """Country -> (population, city), the largest first."""
    out: dict[str, list] = {}
    for country, name, population in world.query(DATA, "select country, name, population from cities order by 3 desc"):
        out.setdefault(country, []).append((population, name))
    return out
