"""The oracle's scripts for tasks over two sites."""

from __future__ import annotations

import re

from wevo_nb.schema import Action
from wevo_nb.tasks.sites import oracle_code, oracle_issues, oracle_shop, oracle_tables
from wevo_nb.tasks.sites.oracle import Page, Script, click, script


def site(page: Page, name: str, back: bool = False) -> Script:
    """From the portal to a site; `back` goes to the portal first."""
    if back:
        yield Action(verb="restart")
    yield from click(page, "link", f"{name}:.*")
    return ""


@script("multi-team-city")
def team_city(page: Page, team: str, column: str) -> Script:
    yield from site(page, "Issues")
    yield from click(page, "link", f"Team {team}")
    city = yield from oracle_issues.value(page, "City")
    yield from site(page, "Tables", back=True)
    yield from oracle_tables.table(page, "cities")
    yield from oracle_tables.search(page, city)
    return oracle_tables.record(page, "name", city)[column]


@script("multi-order")
def order(page: Page, number: str) -> Script:
    yield from site(page, "Issues")
    yield from oracle_issues.search(page, f"#{number}")
    copies, title = re.search(r"Please order (\d+) copies of ([^.]+)\.", oracle_code.text(page)).groups()
    yield from site(page, "Shop", back=True)
    return (yield from oracle_shop.basket_copies(page, title, copies))


@script("multi-commit-ticket")
def commit_ticket(page: Page, message: str, field: str) -> Script:
    yield from site(page, "Code")
    name = yield from oracle_code.commit(page, message)
    number = re.search(r"closes #(\d+)", name)[1]
    yield from site(page, "Issues", back=True)
    yield from oracle_issues.search(page, f"#{number}")
    return (yield from oracle_issues.value(page, field.capitalize()))
