"""The browser itself: found, started, started again after a crash, and cleaned up after a killed run.

`async with Chromium(params.browser) as chromium` gives fresh contexts, one an episode. What it
starts is written down by pid and start time in the folder for temporary files, and removed by the next start if this
process was killed. Used by notebooks 01, 03 and 05.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
from collections.abc import Awaitable
from pathlib import Path

import psutil
from playwright.async_api import Browser, BrowserContext, Error, async_playwright

from wevo_nb.sections import BrowserParams

FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --force-webrtc-ip-handling-policy=disable_non_proxied_udp"
).split()
ONLY_LOCALHOST = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1, EXCLUDE [::1]"
DRIVER_MB = 128  # heap of Playwright's driver: left alone it grows by 0.2 MB an episode before it cleans up
SYSTEM_BROWSERS = ("/usr/bin/chromium-headless-shell", "/usr/bin/chromium")


class BrowserMissing(RuntimeError):
    """No Chromium where one was looked for."""


class Chromium:
    """A running browser: `async with Chromium(params) as chromium: ...`."""

    def __init__(self, params: BrowserParams):
        self.params = params
        self.browser: Browser | None = None
        self.restarts = 0
        self.starting = asyncio.Lock()

    async def __aenter__(self) -> Chromium:
        remove_leftovers()
        self.others = {process.pid for process in psutil.Process().children(recursive=True)}
        given = os.environ.get("NODE_OPTIONS")
        os.environ["NODE_OPTIONS"] = f"{given or ''} --max-old-space-size={DRIVER_MB}".strip()
        try:
            self.playwright = await async_playwright().start()
        finally:
            os.environ.pop("NODE_OPTIONS") if given is None else os.environ.update(NODE_OPTIONS=given)
        try:
            await self._launch()
        except BaseException:
            await self.playwright.stop()
            raise
        return self

    async def __aexit__(self, *_):
        await self.browser.close()
        await self.playwright.stop()
        record_of(os.getpid()).unlink(missing_ok=True)

    @property
    def version(self) -> str:
        return self.browser.version

    @property
    def contexts(self) -> list[BrowserContext]:
        return self.browser.contexts

    async def new_context(self, **options) -> BrowserContext:
        """A fresh context, of a browser started anew where the last one has ended."""
        async with self.starting:
            if not self.browser.is_connected():
                self.restarts += 1
                await self._launch()
        making = asyncio.ensure_future(self.browser.new_context(**options))
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:  # of the caller: what is on its way must not be left behind
            await (await making).close()
            raise
        except Error:
            if self.browser.is_connected():
                raise
            return await self.new_context(**options)  # it ended in this very moment

    async def _launch(self):
        path = find_chromium(self.playwright.chromium.executable_path, self.params.executable)
        flags = [*FLAGS, ONLY_LOCALHOST] if self.params.offline else FLAGS
        self.browser = await self.playwright.chromium.launch(executable_path=path, args=flags)
        record_children(self.others)


async def to_the_end(work: Awaitable):
    """Awaits `work`; a cancellation of the caller waits until it is done."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise


def find_chromium(own: str | None = None, configured: str | None = None) -> str:
    """Path of the executable: params or WEVO_CHROMIUM, Playwright's own, Debian's.

    Raises BrowserMissing that lists the places and the cure.
    """
    wanted = configured or os.environ.get("WEVO_CHROMIUM")
    if wanted:
        if not Path(wanted).is_file():
            raise BrowserMissing(f"browser.executable / WEVO_CHROMIUM names {wanted}, and there is no such file")
        return wanted
    shells = sorted(Path(own).parents[2].glob("chromium_headless_shell-*/*/*headless*shell")) if own else []
    places = [*map(str, shells[-1:]), *([own] if own else []), *SYSTEM_BROWSERS]
    for place in places:
        if os.access(place, os.X_OK) and Path(place).is_file():
            return place
    raise BrowserMissing(
        f"no Chromium in {', '.join(places)}: run 'make browser', or 'playwright install chromium', "
        "or 'apt-get install chromium-headless-shell' as root, or set WEVO_CHROMIUM to one"
    )


# -- leftovers


def record_of(pid: int) -> Path:
    """Where the process `pid` writes down what it started."""
    return Path(tempfile.gettempdir()) / f"wevo-{os.getuid()}" / f"browsers-{pid}.json"


def record_children(others: set[int]):
    """Writes down the processes below this one but for `others`, with start times and the browsers' profile folders."""
    me = psutil.Process()
    found = [_started(process) for process in me.children(recursive=True) if process.pid not in others]
    record = {"owner": _started(me), "started": [started for started in found if started]}
    path = record_of(me.pid)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(json.dumps(record))
    new.replace(path)


def remove_leftovers() -> int:
    """Ends what dead processes had written down as theirs; returns how many processes that were.

    A process counts as the recorded one only if its start time is the same, too.
    """
    ended = 0
    for path in record_of(0).parent.glob("browsers-*.json"):
        try:
            record = json.loads(path.read_text())
        except FileNotFoundError:  # another start was faster, or its owner has just ended
            continue
        if _alive(record["owner"]):
            continue
        for started in record["started"]:
            if process := _alive(started):
                process.kill()
                ended += 1
            if Path(started["profile"]).name.startswith("playwright_"):
                shutil.rmtree(started["profile"], ignore_errors=True)
        path.unlink(missing_ok=True)
    return ended


def _started(process: psutil.Process) -> dict | None:
    try:
        words = process.cmdline()
        profile = next((w.partition("=")[2] for w in words if w.startswith("--user-data-dir=")), "")
        own = profile if Path(profile).name.startswith("playwright_") else ""
        return {"pid": process.pid, "created": process.create_time(), "profile": own}
    except psutil.NoSuchProcess:
        return None


def _alive(started: dict) -> psutil.Process | None:
    """The recorded process, if it still runs; a zombie does not."""
    try:
        process = psutil.Process(started["pid"])
        same = abs(process.create_time() - started["created"]) < 2  # the boot time it counts from may step by a second
        return process if same and process.status() != psutil.STATUS_ZOMBIE else None
    except psutil.NoSuchProcess:
        return None
