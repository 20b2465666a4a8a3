"""What there is to do, as `wevo tasks` shows it: the suites with counts, or the tasks of one.

Reads a suite's tasks and three things that a suite may have beside what every suite has: `about`
(a remark), `note(task)` (further columns) and `download()` with its `downloads`.
"""

from __future__ import annotations

import difflib
from collections import Counter

from wevo_nb.params import ParamsError
from wevo_nb.runs import StageError
from wevo_nb.schema import Split, Task
from wevo_nb.tasks import SUITES, Suite, suite_named


def overview() -> list[dict]:
    """Each suite with its licence, its tasks by split, or why they cannot be listed yet."""
    return [_summary(suite_named(name)) for name in SUITES]


def listing(name: str, split: Split | None = None, limit: int | None = None) -> dict:
    """A suite's tasks (at most `limit`, all of a split or of every one) with the totals. Raises ParamsError."""
    suite = known_suite(name)
    tasks = suite.tasks()
    chosen = [task for task in tasks if split in (None, task.split)]
    summary = _about(suite)
    counts = {"total": len(tasks), "splits": dict(Counter(task.split for task in tasks)), "chosen": len(chosen)}
    return summary | counts | {"tasks": [_row(suite, task) for task in chosen[:limit]]}


def download(name: str) -> list[dict]:
    """Fetches a suite's files; says of each where it came from. Raises ParamsError, DownloadError."""
    suite = known_suite(name)
    if not hasattr(suite, "download"):
        raise ParamsError(f"suite '{name}' has nothing to download: it comes with installed packages")
    suite.download()
    return _about(suite)["files"]


def known_suite(name: str) -> Suite:
    if name not in SUITES:
        near = difflib.get_close_matches(name, SUITES, n=1) or [", ".join(SUITES)]
        raise ParamsError(f"no suite '{name}': did you mean {near[0]}?")
    return suite_named(name)


def _summary(suite: Suite) -> dict:
    summary = _about(suite)
    try:
        counts = Counter(task.split for task in suite.tasks())
    except (StageError, ModuleNotFoundError) as problem:
        return summary | {"total": None, "splits": {}, "missing": str(problem)}
    return summary | {"total": sum(counts.values()), "splits": dict(counts), "missing": ""}


def _about(suite: Suite) -> dict:
    files = [
        {"file": one.file, "address": one.url, "checksum": one.checksum} for one in getattr(suite, "downloads", [])
    ]
    return {"suite": suite.name, "licence": suite.licence, "about": getattr(suite, "about", ""), "files": files}


def _row(suite: Suite, task: Task) -> dict:
    row = {"id": task.key, "suite": task.suite, "site": task.site, "template": task.name, "split": task.split}
    note = suite.note(task) if hasattr(suite, "note") else {}
    return row | note | {"goal": task.goal}
