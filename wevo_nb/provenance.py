"""What made a result: the commit, the packages, Python, the machine and its GPUs. Stands in every manifest."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata

from wevo_nb.params import ROOT

PACKAGES = ("torch", "transformers", "trl", "peft", "playwright", "papermill", "openai", "miniwob")


def provenance() -> dict:
    """The commit and whether files differ from it, Python, machine, GPUs, versions of the packages (None: not here)."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = None
    git = lambda *words: subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True).stdout.strip()  # noqa: E731
    return {
        "git_commit": git("rev-parse", "HEAD"),
        "git_dirty": bool(git("status", "--porcelain")),
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "gpu": gpus(),
        "packages": versions,
    }


def gpus() -> list[str]:
    """Name, driver and memory of each NVIDIA GPU of this machine, as nvidia-smi tells them."""
    command = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        told = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        return []
    return told.stdout.strip().splitlines() if told.returncode == 0 else []
