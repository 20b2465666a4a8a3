"""Templates over the site `code`; the answers come from what its repository was made of."""

from __future__ import annotations

import re
from itertools import pairwise

from wevo_nb.tasks.sites.code import commits
from wevo_nb.tasks.sites.issues_tasks import tickets
from wevo_nb.tasks.sites.templates import World, template

EARLIER = slice(-36, -10)  # commits on the pages two to four of the history
SETTING = re.compile(r"^([A-Z_]+) = (\d+)$", re.M)


@template("code-author", 'Who made the commit "{message}" of the repository planner?', "code", kind="lookup")
def author(world: World):
    for commit in commits()[EARLIER]:
        yield {"message": commit["message"]}, commit["author"]


@template(
    "code-setting",
    'What is the value of "{setting}" in the file config/{component}.py of the repository planner?',
    "code",
    kind="lookup",
)
def setting(world: World):
    for path, text in commits()[-1]["files"].items():
        for name, value in SETTING.findall(text):
            yield {"setting": name, "component": path[len("config/") : -len(".py")]}, int(value)


@template(
    "code-change", 'Which setting did the commit "{message}" of the repository planner change?', "code", kind="lookup"
)
def change(world: World):
    for before, after in pairwise(commits()[EARLIER]):
        texts = [dict(SETTING.findall(commit["files"][after["changed"]])) for commit in (before, after)]
        [changed] = [name for name, value in texts[1].items() if texts[0][name] != value]
        yield {"message": after["message"]}, [changed, *(name for name in texts[1] if name != changed)]


@template(
    "code-new-value",
    'To which value did the commit "{message}" set {setting} in the repository planner?',
    "code",
    kind="lookup",
)
def new_value(world: World):
    for before, after in pairwise(commits()[EARLIER]):
        texts = [dict(SETTING.findall(commit["files"][after["changed"]])) for commit in (before, after)]
        [changed] = [name for name, value in texts[1].items() if texts[0][name] != value]
        yield {"message": after["message"], "setting": changed}, int(texts[1][changed])


@template(
    "multi-commit-ticket",
    'The commit "{message}" of the repository planner in Code closes a ticket of Issues. What '
    "is the {field} of that ticket?",
    "code",
    "issues",
    start="",
    kind="multi-hop",
)
def commit_ticket(world: World):
    found = {ticket["id"]: ticket for ticket in tickets(world)}
    for commit in commits()[EARLIER]:
        if commit["ticket"]:
            subject = commit["message"].partition(" (")[0]
            for field in ("priority", "milestone"):
                yield {"message": subject, "field": field}, found[commit["ticket"]][field]
