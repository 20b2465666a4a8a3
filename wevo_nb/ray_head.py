"""A Ray of this host: started as on any cluster, guarded, and ended with this process.

By `ray start` below lifeline.py and not by `ray.init`, because it has to end with a notebook that is
killed. Used by cluster.py, where `collect.address` names no Ray that runs.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from wevo_nb import lifeline
from wevo_nb.params import ROOT

START_S, POLL_S = 120.0, 0.2  # for it to start; between looks
GRACE_S = 1.0  # of a Ray that is ended; its workers have closed their browsers by then
STORE_BYTES = 200_000_000  # of shared memory: what crosses it is text
ADDRESS_FILE = "ray_current_cluster"  # Ray writes its address there, in its temporary folder


class ClusterError(RuntimeError):
    """No Ray, none at the address, too few CPUs, or an episode that ends its workers."""


class RayHead:
    """A Ray of this host, started at once; it ends with `close`, with this process, and when this process is killed.

    `address` is what ray.init takes. Raises ClusterError where it does not start.
    """

    def __init__(self, cpus: int):
        remove_leftovers()
        self.folder = folder_of(os.getpid())
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(mode=0o700)
        log = self.folder / "start.log"
        kept = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        outlived = [sys.executable, "-P", lifeline.__file__, str(os.getpid())]
        with log.open("w") as out:
            self.process = subprocess.Popen(
                [*outlived, *ray_command(cpus, self.folder)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=kept | {"PYTHONPATH": path, "RAY_USAGE_STATS_ENABLED": "0"},
            )
        try:
            self.address = self._started(log)
        except BaseException:
            self.close()
            raise

    def _started(self, log: Path) -> str:
        address, deadline = self.folder / ADDRESS_FILE, time.monotonic() + START_S
        while "Ray runtime started" not in log.read_text(errors="replace") or not address.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                tail = "\n".join(log.read_text(errors="replace").splitlines()[-12:])
                raise ClusterError(
                    f"Ray did not start on this host within {START_S:.0f} s; the end of its log:\n{tail}"
                )
            time.sleep(POLL_S)
        return address.read_text().strip()

    def close(self):
        """Ends it and what it started, and removes its files."""
        lifeline.end_session(self.process.pid, grace_s=GRACE_S)  # Ray alone takes 20 s, and has nothing to save
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def guard_ray():
    """A Ray started here answers only to those who know a token: its ports are open to the network.

    Ray reads the two variables once, when it is first imported; what the user has set, stays.
    """
    if "ray" not in sys.modules:
        os.environ.setdefault("RAY_AUTH_MODE", "token")
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))


def require_ray():
    """The package. Raises ClusterError where it is not installed."""
    try:
        import ray
    except ImportError as problem:
        raise ClusterError(
            f"collect.backend is ray, and it is not installed ({problem}): pip install 'ray>=2.60,<3' here and on "
            "every host of the cluster, or set collect.backend=local"
        ) from None
    return ray


def ray_command(cpus: int, folder: Path) -> list[str]:
    """What starts Ray on this host, in the foreground, with a free port and without its web page."""
    return [
        sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block",
        "--node-ip-address=127.0.0.1", "--port=0", "--dashboard-port=0", "--include-dashboard=false",
        "--include-log-monitor=false", "--disable-usage-stats",
        f"--num-cpus={cpus}", "--num-gpus=0", f"--object-store-memory={STORE_BYTES}", f"--temp-dir={folder}",
    ]  # fmt: skip


def folder_of(pid: int) -> Path:
    """Where the Ray that the process `pid` started keeps its files; a short path, for sockets lie in it."""
    return Path(tempfile.gettempdir()) / f"wevo-ray-{os.getuid()}-{pid}"


def remove_leftovers():
    """Removes the files of Rays whose process has ended without doing so."""
    for path in folder_of(0).parent.glob(f"wevo-ray-{os.getuid()}-*"):
        if not psutil.pid_exists(int(path.name.rpartition("-")[2])):
            shutil.rmtree(path, ignore_errors=True)
