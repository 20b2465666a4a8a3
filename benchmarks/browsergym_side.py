"""BrowserGym in an environment of its own: made on first use in the cache, then asked by JSON.

It pins a Playwright that this project cannot use, so browsergym_worker.py runs there as a process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

from pages import cache_folder

VERSION = "0.14.3"
PACKAGES = (f"browsergym-core=={VERSION}", f"browsergym-miniwob=={VERSION}")
WORKER = Path(__file__).with_name("browsergym_worker.py")


class BrowserGymMissing(RuntimeError):
    """BrowserGym cannot be installed or does not run here."""


def browsergym(job: dict) -> dict:
    """The worker's answer to a job (see browsergym_worker.py). Raises BrowserGymMissing."""
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [str(installed()), str(WORKER)]
    answer = subprocess.run(command, input=json.dumps(job), stdout=subprocess.PIPE, text=True, env=clean)
    if answer.returncode:
        raise BrowserGymMissing(f"the BrowserGym worker ended with {answer.returncode}, see above, or --no-browsergym")
    return json.loads(answer.stdout)


def installed() -> Path:
    """The Python of the environment, made now if need be (20 s, 250 MB). Raises BrowserGymMissing."""
    folder = cache_folder() / f"browsergym-{VERSION}"
    python, whole = folder / "bin" / "python", folder / "whole"
    if not whole.exists():
        print(f"installing BrowserGym {VERSION} into {folder}", file=sys.stderr)
        venv.create(folder, clear=True, with_pip=True)
        done = subprocess.run([str(python), "-m", "pip", "install", "-q", *PACKAGES])
        if done.returncode:
            raise BrowserGymMissing(f"pip could not install {', '.join(PACKAGES)}: see above, or --no-browsergym")
        whole.touch()
    return python
