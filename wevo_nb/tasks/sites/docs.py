"""The site `docs`: the manual of SQLAlchemy, served as files; read-only and held out from training.

SQLAlchemy ships its built manual in the source archive of the package index, which is fetched
once, when the site is built. Links that lead off the site lose their address.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from wevo_nb.tasks.sites.files import serve_file

ARCHIVE = "sqlalchemy==2.0.44"
OUTSIDE = re.compile(rb' href="https?://[^"]*"')
FONT = re.compile(rb"url\(https?://[^)]*\)")
LEFT_OUT = ("doc/build", "doc/_modules")  # the sources of the manual and of the package
START = "index.html"


def build(folder: Path):
    """Fetches the archive with pip and unpacks the manual. Raises RuntimeError without an index."""
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-qq", "--no-deps"]
        command += ["--no-binary", ":all:", "--no-build-isolation", "--dest", scratch, ARCHIVE]
        answer = subprocess.run(command, capture_output=True, text=True)
        found = list(Path(scratch).glob("*.tar.gz"))
        if answer.returncode or not found:
            raise RuntimeError(
                f"the manual comes with {ARCHIVE}, which pip could not download: build the sites once with a package "
                f"index in reach (wevo sites up); pip said:\n{answer.stderr.strip()[-800:]}"
            )
        with tarfile.open(found[0]) as archive:
            for member in archive.getmembers():
                _unpack(archive, member, folder)


def application(folder: Path):
    """The WSGI application: files, and the first page for `/`."""

    def serve(environ: dict, start_response):
        return serve_file(folder, environ["PATH_INFO"].strip("/") or START, start_response)

    return serve


def _unpack(archive: tarfile.TarFile, member: tarfile.TarInfo, folder: Path):
    inner = member.name.partition("/")[2]
    if not member.isfile() or not inner.startswith("doc/") or inner.startswith(LEFT_OUT):
        return
    target = folder / inner.removeprefix("doc/")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(_inward(target.name, archive.extractfile(member).read()))


def _inward(name: str, content: bytes) -> bytes:
    """A file without what leads off the site; a search neither loads every page that it finds nor marks words there."""
    if name.endswith(".html"):
        content = OUTSIDE.sub(b"", content)
    if name.endswith(".css"):
        content = FONT.sub(b"local('sans-serif')", content)
    for option in (b"SHOW_SEARCH_SUMMARY: ", b"SPHINX_HIGHLIGHT_ENABLED = "):
        content = content.replace(option + b"true", option + b"false")
    return content
