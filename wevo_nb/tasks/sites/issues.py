"""The site `issues`: trac with tickets, reports, queries and a wiki that anybody may change.

Tickets, people and wiki pages are synthetic, from a fixed seed. Some tickets and wiki pages name
things of the other sites (a city, a book, a commit), so that a task may go on there.
"""

from __future__ import annotations

import importlib.resources
import random
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

from wevo_nb.tasks.sites.files import serve_file
from wevo_nb.tasks.sites.shop import books, restore

DATABASE = "env/db/trac.db"
PRISTINE = "pristine.db"
DRESS = "/htdocs/"  # trac's style sheets and scripts, which take it a tenth of a second each
TICKETS = 140
PEOPLE = "alice bob carol dave erin frank".split()
REPORTERS = "gina hugo iris jack".split()
COMPONENTS = "parser renderer network storage".split()
MILESTONES = "spring summer autumn".split()
PRIORITIES = "blocker critical major minor trivial".split()
KINDS = "defect enhancement task".split()
RESOLUTIONS = "fixed wontfix invalid".split()
TROUBLES = ("Crash", "Slow response", "Wrong output", "Missing option", "Typo", "Broken link", "Blank page")
PLACES = (
    "export", "import", "login page", "settings dialog", "tokenizer", "cache", "report view", "date picker",
    "side bar", "table of contents", "backup", "colour theme", "print view", "address book", "search box",
)  # fmt: skip
ROOMS = "Alder Birch Cedar Damson Elm Fir Ginkgo Hazel".split()
TEAMS = "Atlas Beacon Comet Delta Ember Falcon Glacier Harbor Iris Juniper Kestrel Lotus".split()
CITIES = "Lagos Berlin Madrid Rome Vienna Hamburg Bucharest Budapest Warsaw Barcelona Munich Milan".split()
PERMISSIONS = "TICKET_CREATE TICKET_MODIFY WIKI_CREATE WIKI_MODIFY"


def tickets() -> list[dict]:
    """Every ticket, in the order of its number."""
    rng = random.Random("issues")
    summaries = [f"{trouble} in the {place}" for trouble in TROUBLES for place in PLACES]
    rng.shuffle(summaries)
    wanted = [book for book in books() if book["stock"]]
    rng.shuffle(wanted)
    out = []
    for i in range(TICKETS):
        order = i % 4 == 3 and wanted
        book, copies = (wanted.pop(), rng.randint(2, 3)) if order else (None, 0)
        status = rng.choice(["new", "assigned", "closed"])
        out.append(
            {
                "summary": f"Order books for team {TEAMS[i // 4 % 12]} ({i + 1})" if order else summaries.pop(),
                "description": f"Please order {copies} copies of {book['title']}."
                if order
                else "It happens every day.",
                "book": (book["title"], copies) if order else None,
                "reporter": rng.choice(REPORTERS),
                "owner": rng.choice(PEOPLE),
                "component": rng.choice(COMPONENTS),
                "priority": rng.choice(PRIORITIES),
                "milestone": rng.choice(MILESTONES),
                "type": "task" if order else rng.choice(KINDS),
                "status": status,
                "resolution": rng.choice(RESOLUTIONS) if status == "closed" else "",
            }
        )
    return out


def teams() -> list[dict]:
    """A wiki page for each team."""
    rng = random.Random("teams")
    return [
        {"team": team, "lead": rng.choice(PEOPLE), "room": rng.choice(ROOMS), "city": city, "size": rng.randint(3, 14)}
        for team, city in zip(TEAMS, CITIES, strict=True)
    ]


def build(folder: Path):
    """Makes a trac environment with its tickets and pages, and a pristine copy of its database."""
    from trac.admin.console import TracAdmin
    from trac.env import open_environment

    admin = TracAdmin(str(folder / "env"))
    if admin.onecmd("initenv Tracker sqlite:db/trac.db"):
        raise RuntimeError("trac-admin initenv failed; its output stands above")
    for command in (f"permission add anonymous {PERMISSIONS}", "milestone remove milestone1"):
        admin.onecmd(command)
    shutil.copytree(Path(__file__).with_name("trac_templates"), folder / "env" / "templates", dirs_exist_ok=True)
    environment = open_environment(str(folder / "env"))
    _configure(environment)
    _fill(environment)
    environment.shutdown()
    shutil.copyfile(folder / DATABASE, folder / PRISTINE)


def application(folder: Path):
    """The WSGI application."""
    from trac.web.main import dispatch_request

    dress = Path(str(importlib.resources.files("trac") / "htdocs"))

    def serve(request: dict, start_response):
        if request["PATH_INFO"].startswith(DRESS):
            return serve_file(dress, request["PATH_INFO"].removeprefix(DRESS), start_response)
        request["trac.env_path"] = str(folder / "env")
        return dispatch_request(request, start_response)

    return serve


def reset(folder: Path):
    """The database as it was when built; what trac keeps in memory it holds against a number in there."""
    restore(folder / PRISTINE, folder / DATABASE)


def _configure(environment):
    config = environment.config
    for section, name, value in (
        ("project", "name", "Tracker"),
        ("project", "descr", "Tickets and wiki of a small project"),
        ("trac", "check_auth_ip", "false"),
        ("trac", "never_obfuscate_mailto", "true"),
        ("trac", "default_charset", "utf-8"),
        ("trac", "base_url", ""),
        ("trac", "htdocs_location", DRESS),
        ("trac", "use_base_url_for_redirect", "false"),
        ("trac", "auto_preview_timeout", "0"),
        ("trac", "use_chunked_encoding", "false"),
        ("ticket", "restrict_owner", "false"),
        ("ticket", "default_component", "parser"),
        ("ticket", "default_milestone", ""),
        ("query", "items_per_page", "20"),
        ("report", "items_per_page", "20"),
        ("logging", "log_type", "stderr"),
        ("logging", "log_level", "ERROR"),
        ("header_logo", "src", ""),
    ):
        config.set(section, name, value)
    config.save()


def _fill(environment):
    from trac.ticket.model import Component, Milestone, Version
    from trac.wiki.model import WikiPage

    for kind in (Component, Version):
        for found in list(kind.select(environment)):
            found.delete()
    for found in list(Milestone.select(environment)):
        found.delete()
    for kind, names in ((Component, COMPONENTS), (Milestone, MILESTONES)):
        for name in names:
            one = kind(environment)
            one.name = name
            one.insert()
    for number, values in enumerate(tickets()):
        _add(environment, number, values)
    pages = {"WikiStart": start_page()} | {f"Team{team['team']}": team_page(**team) for team in teams()}
    for name, text in pages.items():
        page = WikiPage(environment, name)
        page.text = text
        page.save("admin", "", t=datetime(2026, 1, 5, 9, tzinfo=UTC))


def _add(environment, number: int, values: dict):
    from trac.ticket.model import Ticket

    ticket = Ticket(environment)
    for name, value in values.items():
        if name != "book":
            ticket[name] = value
    ticket.insert(when=datetime(2026, 1, 5, 9, tzinfo=UTC) + timedelta(days=number))


def start_page() -> str:
    """The first page of the wiki, in trac's markup."""
    lines = [f" * [wiki:Team{team} Team {team}]" for team in TEAMS]
    return "\n".join(["= Tracker", "Tickets and wiki of a small project. The teams:", *lines])


def team_page(team: str, lead: str, room: str, city: str, size: int) -> str:
    rows = (("Lead", lead), ("Room", room), ("City", city), ("People", size))
    table = "\n".join(f"|| {name} || {value} ||" for name, value in rows)
    return f"= Team {team}\n||= About =||= Value =||\n{table}\n"
