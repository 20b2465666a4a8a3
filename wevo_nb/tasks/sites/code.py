"""The site `code`: klaus over one small git repository, read-only; held out from training.

The repository is synthetic, from a fixed seed: people, files and commits with fixed dates. Some
commits name a ticket of the site `issues`.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

from wevo_nb.tasks.sites.issues import COMPONENTS, PEOPLE, PLACES, tickets

REPOSITORY = "planner"
SETTINGS = ("timeout_s", "retries", "cache_mb", "page_size", "threads", "log_lines", "history_days", "queue_length")
FIRST_COMMIT = datetime(2025, 9, 1, 9, tzinfo=UTC)
COMMITS = 48
VERBS = ("Tune", "Adjust", "Raise the limits of", "Relax", "Review")
README = "# Planner\n\nA small planner. Every component has its settings in the folder `config`.\n"


def commits() -> list[dict]:
    """Oldest first: author, date, message, and {path: text} of the files that it leaves behind."""
    rng = random.Random("code")
    files = {"README.md": README}
    values = {name: {key: rng.randint(2, 90) for key in SETTINGS} for name in COMPONENTS}
    for name in COMPONENTS:
        files[f"config/{name}.py"] = settings_file(name, values[name])
    out = [_commit("alice", 0, "Begin with the settings of every component", files, "", 0)]
    subjects = [f"{verb} the {place}" for verb in VERBS for place in PLACES]
    rng.shuffle(subjects)
    closed = [number for number, ticket in enumerate(tickets(), start=1) if not ticket["book"]]
    rng.shuffle(closed)
    for number in range(1, COMMITS):
        name, key = rng.choice(COMPONENTS), rng.choice(SETTINGS)
        values[name][key] += rng.randint(1, 9)
        path = f"config/{name}.py"
        files = {**files, path: settings_file(name, values[name])}
        ticket = closed.pop() if number % 2 else 0
        message = subjects.pop() + (f" (closes #{ticket})" if ticket else "")
        out.append(_commit(rng.choice(PEOPLE), number, message, files, path, ticket))
    return out


def settings_file(component: str, values: dict[str, int]) -> str:
    lines = [f'"""Settings of the {component}."""', "", *(f"{key.upper()} = {value}" for key, value in values.items())]
    return "\n".join(lines) + "\n"


def build(folder: Path):
    """Writes a bare repository."""
    from dulwich.objects import Blob, Commit, Tree
    from dulwich.repo import Repo

    repository = Repo.init_bare(str(folder / f"{REPOSITORY}.git"), mkdir=True)
    (folder / f"{REPOSITORY}.git" / "description").write_text("The settings of a small planner\n")
    parent = None
    for values in commits():
        tree, config = Tree(), Tree()
        for path, text in values["files"].items():
            blob = Blob.from_string(text.encode())
            repository.object_store.add_object(blob)
            directory, _, name = path.rpartition("/")
            (config if directory else tree).add(name.encode(), 0o100644, blob.id)
        repository.object_store.add_object(config)
        tree.add(b"config", 0o040000, config.id)
        repository.object_store.add_object(tree)
        commit = Commit()
        commit.tree, commit.parents = tree.id, [parent] if parent else []
        commit.author = commit.committer = f"{values['author']} <{values['author']}@example.org>".encode()
        commit.author_time = commit.commit_time = int(values["date"].timestamp())
        commit.author_timezone = commit.commit_timezone = 0
        commit.encoding, commit.message = b"UTF-8", f"{values['message']}\n".encode()
        repository.object_store.add_object(commit)
        parent = commit.id
    repository.refs[b"refs/heads/main"] = parent
    repository.refs.set_symbolic_ref(b"HEAD", b"refs/heads/main")


def application(folder: Path):
    """The WSGI application."""
    import klaus

    return klaus.make_app([str(folder / f"{REPOSITORY}.git")], "Code")


def _commit(author: str, number: int, message: str, files: dict, changed: str, ticket: int) -> dict:
    date = FIRST_COMMIT + timedelta(days=5 * number, hours=number % 7)
    return {
        "author": author, "date": date, "message": message, "files": files, "changed": changed, "ticket": ticket,
    }  # fmt: skip
