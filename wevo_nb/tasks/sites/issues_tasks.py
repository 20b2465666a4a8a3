"""Templates over the site `issues`; answers and states come from its database by SQL."""

from __future__ import annotations

import random
from pathlib import Path

from wevo_nb.tasks.sites.issues import (
    COMPONENTS,
    DATABASE,
    KINDS,
    PLACES,
    PRIORITIES,
    PRISTINE,
    RESOLUTIONS,
    TROUBLES,
    teams,
)
from wevo_nb.tasks.sites.templates import DONE, Opened, Reached, World, query, template

FIELDS = "id summary owner priority component milestone type status resolution".split()
TICKETS = f"select {', '.join(FIELDS)} from ticket order by id"
COMMENTS = "select ticket, newvalue from ticket_change where field = 'comment' and newvalue <> ''"


@template("issues-owner", 'Who owns the ticket "#{number}"?', "issues", kind="lookup")
def owner(world: World):
    for ticket in tickets(world):
        yield {"number": ticket["id"]}, ticket["owner"]


@template("issues-field", 'What is the {field} of the ticket "{summary}"?', "issues", kind="lookup")
def field(world: World):
    for number, ticket in enumerate(tickets(world)):
        name = ("priority", "component", "milestone")[number % 3]
        yield {"summary": ticket["summary"], "field": name}, ticket[name]


@template(
    "issues-team",
    'According to the wiki, what is the {what} of the team "{team}"?',
    "issues",
    start="/roadmap",
    kind="lookup",
)
def team(world: World):
    for values in teams():
        for what in ("lead", "room", "city"):
            yield {"team": values["team"], "what": what}, values[what]


@template(
    "issues-page",
    'Open the page of the team "{team}".',
    "issues",
    start="/wiki",
    kind="navigation",
)
def page(world: World):
    for values in teams():
        yield {"team": values["team"]}, Opened(f"/wiki/Team{values['team']}")


@template(
    "issues-history",
    'Open the page of the team "{team}" and then its history.',
    "issues",
    start="/wiki",
    kind="navigation",
)
def history(world: World):
    for values in teams():
        yield {"team": values["team"]}, Opened(f"/wiki/Team{values['team']}?action=history")


@template(
    "issues-edit",
    'Open the page of the team "{team}" and then the form to edit it.',
    "issues",
    start="/wiki",
    held_out=True,
    kind="navigation",
)
def edit(world: World):
    for values in teams():
        yield {"team": values["team"]}, Opened(f"/wiki/Team{values['team']}?action=edit")


@template(
    "issues-count",
    'How many tickets of the component "{component}" are owned by "{owner}" and not closed?',
    "issues",
    kind="count",
)
def count(world: World):
    for (component, owner), found in _open_by(world, "component", "owner").items():
        yield {"owner": owner, "component": component}, len(found)


@template(
    "issues-new",
    'Create a ticket with the summary "{summary}", the type "{kind}", the priority "{priority}" and '
    f'the component "{{component}}". {DONE}',
    "issues",
    kind="state",
)
def new(world: World):
    rng = random.Random("new tickets")
    for _ in range(60):
        values = {
            "summary": f"{rng.choice(TROUBLES)} after the update of the {rng.choice(PLACES)}",
            "kind": rng.choice(KINDS),
            "priority": rng.choice(PRIORITIES),
            "component": rng.choice(COMPONENTS),
        }
        wanted = {**values, "type": values["kind"], "status": "new"}
        wanted.pop("kind")
        yield values, one_new_ticket(wanted)


@template(
    "issues-priority",
    f'Change the priority of the ticket "#{{number}}" to "{{priority}}". {DONE}',
    "issues",
    kind="state",
)
def priority(world: World):
    for ticket in tickets(world):
        wanted = PRIORITIES[(PRIORITIES.index(ticket["priority"]) + 2) % 5]
        yield {"number": ticket["id"], "priority": wanted}, changed(ticket["id"], {"priority": wanted})


@template(
    "issues-close", f'Close the ticket "#{{number}}" as "{{resolution}}". {DONE}', "issues", held_out=True, kind="state"
)
def close(world: World):
    for ticket in tickets(world):
        if ticket["status"] != "closed":
            wanted = RESOLUTIONS[ticket["id"] % 3]
            yield (
                {"number": ticket["id"], "resolution": wanted},
                changed(ticket["id"], {"status": "closed", "resolution": wanted}),
            )


@template(
    "issues-comment",
    f'Add the comment "{{comment}}" to the ticket "#{{number}}". {DONE}',
    "issues",
    held_out=True,
    kind="state",
)
def comment(world: World):
    words = ("I see it too", "Not in the new version", "Please try again", "Waiting for the build")
    for ticket in tickets(world):
        text = words[ticket["id"] % 4]
        yield {"number": ticket["id"], "comment": text}, commented(ticket["id"], text)


@template(
    "issues-oldest",
    'Which ticket has the smallest number among those of the priority "{priority}" that are owned '
    'by "{owner}" and not closed? Answer with its summary.',
    "issues",
    held_out=True,
    kind="extreme",
)
def oldest(world: World):
    for (priority, owner), found in _open_by(world, "priority", "owner").items():
        if len(found) > 1:
            yield {"owner": owner, "priority": priority}, found[0]["summary"]


@template(
    "issues-active",
    'How many active tickets of the milestone "{milestone}" have the priority "{priority}"?',
    "issues",
    held_out=True,
    kind="count",
)
def active(world: World):
    for (milestone, priority), found in _open_by(world, "milestone", "priority").items():
        yield {"milestone": milestone, "priority": priority}, len(found)


def tickets(world: World) -> list[dict]:
    return [dict(zip(FIELDS, row, strict=True)) for row in world.query(f"issues/{DATABASE}", TICKETS)]


def one_new_ticket(wanted: dict) -> Reached:
    """One ticket more than before, with these values, and no other changed."""

    def holds(folder: Path) -> bool:
        before, after = _both(folder)
        added = [ticket for number, ticket in after.items() if number not in before]
        same = all(after.get(number) == ticket for number, ticket in before.items())
        return same and len(added) == 1 and wanted.items() <= added[0].items()

    return Reached(holds)


def changed(number: int, wanted: dict) -> Reached:
    """That ticket differs by these values alone, and no other does."""

    def holds(folder: Path) -> bool:
        before, after = _both(folder)
        return after == before | {number: before[number] | wanted}

    return Reached(holds)


def commented(number: int, text: str) -> Reached:
    """That comment alone was added, and no ticket changed."""

    def holds(folder: Path) -> bool:
        before, after = _both(folder)
        return before == after and query(folder / DATABASE, COMMENTS) == [(number, text)]

    return Reached(holds)


def _both(folder: Path) -> tuple[dict[int, dict], dict[int, dict]]:
    """The tickets by number, as built and as they are."""
    rows = (query(folder / name, TICKETS) for name in (PRISTINE, DATABASE))
    before, after = ({row[0]: dict(zip(FIELDS, row, strict=True)) for row in found} for found in rows)
    return before, after


def _open_by(world: World, *fields: str) -> dict[tuple, list[dict]]:
    """Tickets that are not closed, by the values of two fields, in the order of their number."""
    out: dict[tuple, list] = {}
    for ticket in tickets(world):
        if ticket["status"] != "closed":
            out.setdefault(tuple(ticket[name] for name in fields), []).append(ticket)
    return out
