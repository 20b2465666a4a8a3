"""Templates over two sites: what is read on the one leads on at the other, by way of the portal."""

from __future__ import annotations

import re

from wevo_nb.tasks.sites.issues import teams
from wevo_nb.tasks.sites.shop_tasks import in_basket
from wevo_nb.tasks.sites.tables_tasks import DATA, LONE_CITIES
from wevo_nb.tasks.sites.templates import DONE, World, template

ORDER = re.compile(r"Please order (\d+) copies of (.+)\.")


@template(
    "multi-team-city",
    'The wiki of Issues names the city of the team "{team}". What is its {column} in the table cities of Tables?',
    "issues",
    "tables",
    start="",
    kind="multi-hop",
)
def team_city(world: World):
    lone = {name for name, _ in world.query(DATA, LONE_CITIES)}
    for team in teams():
        if team["city"] in lone:
            for column in ("population", "country", "timezone"):
                [(value,)] = world.query(DATA, f"select {column} from cities where name = ?", team["city"])
                yield {"team": team["team"], "column": column}, value


@template(
    "multi-order",
    f'Do in the Shop what the ticket "#{{number}}" of Issues asks for: put the books into the basket, '
    f"and nothing else. {DONE}",
    "issues",
    "shop",
    start="",
    held_out=True,
    kind="multi-hop",
)
def order(world: World):
    sql = "select id, description from ticket where description like 'Please order %'"
    for number, description in world.query("issues/env/db/trac.db", sql):
        copies, title = ORDER.fullmatch(description).groups()
        yield {"number": number}, in_basket({title: int(copies)})
