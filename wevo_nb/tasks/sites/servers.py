"""The processes that serve the sites: started together, reset between episodes, ended with their children.

Each is recorded by its process id and start time, with its owner's, below the cache; what a
killed owner left behind is ended by that record alone. Servers of `wevo sites up` have no owner:
they stay until `wevo sites down`.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Iterable
from pathlib import Path

import psutil

from wevo_nb.tasks.sites.build import SitesError, cache
from wevo_nb.tasks.sites.serve import CHANGING

DEADLINE_S = 60  # to start; a machine at work takes 2 to 10
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # no proxy on the way to this machine


class Server:
    """A running site. `changing` ones work on a copy of their folder, which `reset` makes anew."""

    def __init__(self, site: str, folder: Path, changing: bool, stays: bool = False):
        self.site, self.changing = site, changing
        self.scratch = Path(tempfile.mkdtemp(prefix=f"wevo-{site}-"))
        self.folder = self.scratch / site if changing else folder
        if changing:
            shutil.copytree(folder, self.folder)
        command = [sys.executable, "-m", "wevo_nb.tasks.sites", "stay" if stays else "serve", site, str(self.folder)]
        with (self.scratch / "log").open("w") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
            )
        self.record = _record(self.process.pid, site, self.scratch, stays)
        self.port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def wait(self):
        """Returns when it answers. Raises SitesError with the end of its log."""
        self.port = int(self._line("ready"))
        try:
            with DIRECT.open(f"http://{self.address}/", timeout=DEADLINE_S) as page:
                if not page.read():
                    raise SitesError(f"the site '{self.site}' serves an empty first page:\n{self.log()}")
        except (urllib.error.URLError, TimeoutError) as problem:
            raise SitesError(
                f"the site '{self.site}' does not serve its first page ({problem}):\n{self.log()}"
            ) from None

    def reset(self):
        """Everything as it was when built."""
        self.process.stdin.write("reset\n")
        self.process.stdin.flush()
        self._line("reset")

    def close(self):
        """Ends it, and removes what it worked on. Closing twice does no harm."""
        if self.alive:
            _end(self.process.pid, psutil.Process(self.process.pid).create_time())
        self.process.wait()
        with contextlib.suppress(BrokenPipeError):  # a command that it no longer read
            self.process.stdin.close()
        self.process.stdout.close()
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.record.unlink(missing_ok=True)

    def log(self) -> str:
        return (self.scratch / "log").read_text()[-2000:].strip() or "(it wrote nothing)"

    def _line(self, word: str) -> str:
        """What it says after `word`; a server that is silent too long is ended. Raises SitesError."""
        timer = threading.Timer(DEADLINE_S, self.process.kill)
        timer.start()
        try:
            for line in self.process.stdout:
                if line.startswith(word):
                    return line.removeprefix(word).strip()
        finally:
            timer.cancel()
        self.process.wait()
        raise SitesError(
            f"the site '{self.site}' ended before it said '{word}' (status {self.process.returncode}):\n{self.log()}"
        )


def start(sites: Iterable[str], folder: Path, stays: bool = False) -> list[Server]:
    """Starts sites of a built folder all at once. Raises SitesError; then none is left running."""
    servers = []
    try:
        for site in sites:
            servers.append(Server(site, folder / site, site in CHANGING, stays))
        for server in servers:
            server.wait()
            if stays:
                _add(server.record, address=server.address)
    except BaseException:
        for server in servers:
            server.close()
        raise
    return servers


def end_leftovers() -> int:
    """Ends the servers whose owner is gone; returns how many there were."""
    gone = [one for one in _records() if one["owner"] and not _lives(*one["owner"])]
    return sum(_clear(one) for one in gone)


def standing() -> list[dict]:
    """Servers of `wevo sites up` that run: site, address, pid, megabytes."""
    out = []
    for one in _records():
        if not one["owner"] and _lives(*one["server"]):
            memory = psutil.Process(one["server"][0]).memory_info().rss
            out.append({**one, "pid": one["server"][0], "megabytes": round(memory / 2**20)})
    return sorted(out, key=lambda one: one["site"])


def end_standing() -> int:
    """Ends the servers of `wevo sites up`; returns how many were running."""
    return sum(_clear(one) for one in _records() if not one["owner"])


def _clear(record: dict) -> bool:
    ended = _end(*record["server"])
    shutil.rmtree(record["scratch"], ignore_errors=True)
    Path(record["path"]).unlink(missing_ok=True)
    return ended


def _records() -> list[dict]:
    out = []
    for path in sorted((cache() / "running").glob("*.json")):
        try:
            out.append({**json.loads(path.read_text()), "path": str(path)})
        except FileNotFoundError:  # another process has just taken it away
            continue
    return out


def _record(pid: int, site: str, scratch: Path, stays: bool) -> Path:
    """Notes a server and its owner, so that a later run finds it."""
    path = cache() / "running" / f"{pid}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    owner = None if stays else [os.getpid(), psutil.Process().create_time()]
    server = [pid, psutil.Process(pid).create_time()]
    _write(path, {"site": site, "owner": owner, "server": server, "scratch": str(scratch)})
    return path


def _add(path: Path, **values):
    _write(path, json.loads(path.read_text()) | values)


def _write(path: Path, values: dict):
    path.with_suffix(".new").write_text(json.dumps(values))
    path.with_suffix(".new").replace(path)


def _lives(pid: int, started: float) -> bool:
    try:
        return abs(psutil.Process(pid).create_time() - started) < 0.05
    except psutil.NoSuchProcess:
        return False


def _end(pid: int, started: float) -> bool:
    """Ends that very process and its children; False where it is gone already."""
    if not _lives(pid, started):
        return False
    family = [*psutil.Process(pid).children(recursive=True), psutil.Process(pid)]
    for process in family:
        process.terminate()
    for process in psutil.wait_procs(family, timeout=5)[1]:
        process.kill()
    return True
