"""Files that others publish: fetched on request only, checked, and never shipped with this package.

They lie in `live` below WEVO_CACHE (else ~/.cache/wevo). A file whose checksum could not be known
beforehand is pinned as it was first seen, in `checksums.json` beside it. Used by the live suites.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import urllib.request
from pathlib import Path
from typing import NamedTuple

from wevo_nb.runs import StageError, read_json, write_json

TIMEOUT_S = 60
PINS = "checksums.json"


class DownloadError(StageError):
    """A file that is not there, could not be fetched, or is not the one that was published."""


class Download(NamedTuple):
    """A file at its owner's. sha256 None: unknown here, recorded at the first download."""

    file: str
    url: str
    sha256: str | None = None

    @property
    def checksum(self) -> str:
        """What `wevo tasks` says about it."""
        return self.sha256 or "checksum unknown: recorded at first download"


def live_folder() -> Path:
    return Path(os.environ.get("WEVO_CACHE", Path.home() / ".cache" / "wevo")) / "live"


def fetch(download: Download, suite: str) -> Path:
    """The file, from its owner where it is not here yet. Raises DownloadError; an older file is left as it is."""
    path = live_folder() / download.file
    if path.exists():
        return verified(download, suite)
    request = urllib.request.Request(download.url, headers={"User-Agent": "wevo_nb"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            content = answer.read()
    except (OSError, http.client.HTTPException) as problem:  # no network, an HTTP status, a broken connection
        reason = f"was not downloaded: {str(problem).strip('<>') or type(problem).__name__}"
        raise DownloadError(_message(download, suite, reason)) from problem
    _compare(download, suite, content)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary.write_bytes(content)
    temporary.replace(path)
    return path


def verified(download: Download, suite: str) -> Path:
    """The file that is here, however it came. Raises DownloadError where it is missing or another one."""
    path = live_folder() / download.file
    if not path.exists():
        raise DownloadError(_message(download, suite, "is not here yet, and nothing is downloaded unasked"))
    _compare(download, suite, path.read_bytes())
    return path


def _compare(download: Download, suite: str, content: bytes):
    """Refuses other bytes than the known ones, or those first seen."""
    pins = read_json(live_folder() / PINS) or {}
    seen = hashlib.sha256(content).hexdigest()
    known = download.sha256 or pins.get(download.file)
    if known is None:
        write_json(live_folder() / PINS, pins | {download.file: seen})
    elif seen != known:
        whose = "the published file" if download.sha256 else f"what was first downloaded ({live_folder() / PINS})"
        cure = "delete it and download again" if download.sha256 else "delete its line there to take the new one"
        reason = f"({len(content)} bytes) has SHA-256 {seen}, and {whose} has {known}: {cure}"
        raise DownloadError(_message(download, suite, reason))


def _message(download: Download, suite: str, reason: str) -> str:
    return (
        f"{download.file} of suite '{suite}' {reason}\n"
        f"  its owner's address: {download.url}\n"
        f"  the folder for it:   {live_folder()}\n"
        f"  its SHA-256:         {download.checksum}\n"
        f"With internet: wevo tasks {suite} --download. Without: put the file into that folder by other means."
    )
