"""Recordings of what an episode loaded, and episodes that live on a recording with the network off.

`browser.har: record` keeps the traffic of every episode in the stage's folder, one archive a task
(`har/<task>.zip`) and beside it where the episode began; a later episode of the same task replaces
both. `browser.har: replay` answers every request from there or not at all. The very same request
is always answered as the first time, also where the site had changed meanwhile. Used by browser.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from wevo_nb.runs import StageError, read_json, write_json
from wevo_nb.schema import Task
from wevo_nb.tasks import Visit


class RecordedVisit:
    """A visit that begins where the recorded one did: a server on this machine has another port every time."""

    def __init__(self, visit: Visit, url: str, hosts: Mapping[str, str]):
        self.visit, self.url, self.hosts = visit, url, hosts
        self.start, self.state = visit.start, visit.state
        self.answer, self.close = visit.answer, visit.close


def har_file(folder: Path, task: Task) -> Path:
    """The archive of a task below a stage's folder."""
    return folder / "har" / f"{re.sub(r'[^a-zA-Z0-9_.-]+', '_', task.key)}.zip"


async def open_context(chromium, mode: str | None, folder: Path | None, task: Task, visit: Visit, **options):
    """A fresh Playwright context for an episode, and the visit to make in it.

    Records into `folder`, or answers from there; mode None does neither. Add further routes to
    the context afterwards: they come before the recording. Raises StageError without a recording.
    """
    if mode is None:
        return await chromium.new_context(**options), visit
    if folder is None:
        raise StageError(f"browser.har is {mode}, and this episode belongs to no stage folder: set it to null")
    file = har_file(folder, task)
    began = file.with_suffix(".json")
    if mode == "record":
        file.unlink(missing_ok=True)
        write_json(began, {"url": visit.url, "hosts": dict(visit.hosts)})
        recording = {"record_har_path": file, "record_har_content": "attach", "record_har_mode": "minimal"}
        return await chromium.new_context(**options, **recording), visit
    if not (file.exists() and began.exists()):
        raise StageError(f"{task.key} was not recorded, there is no {file}: make a run with --set browser.har=record")
    context = await chromium.new_context(**options)
    try:
        await context.route_from_har(file, not_found="abort")
        await context.route_web_socket("**", lambda socket: socket.close())
    except BaseException:
        await context.close()
        raise
    return context, RecordedVisit(visit, **read_json(began))
