"""A process that lives no longer than the one that started it.

`python lifeline.py <pid> <command>` runs the command and ends it, with all that it started, when the
process <pid>, its parent, is gone: after a SIGKILL too, when nothing of the parent's own can run. It
has to begin a session, which is how what it started is found. Used by vllm_server.py,
launch.py and ray_head.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

import psutil

LOOK_EVERY_S, GRACE_S = 0.2, 20.0  # between looks; from SIGTERM to SIGKILL (vLLM frees its GPUs in between)


def alive(process: psutil.Process) -> bool:
    """Whether it runs; a zombie, which waits for somebody to read its exit code, does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def members(leader: int) -> set[psutil.Process]:
    """The processes of the session that `leader` began, and what they started, whatever its session."""
    found = set()
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == leader:
                found |= {process, *process.children(recursive=True)}
        except (psutil.NoSuchProcess, ProcessLookupError, PermissionError):
            continue
    return {process for process in found if alive(process)}


def end_session(leader: int, *, spare: int = 0, grace_s: float | None = None):
    """Ends the session of `leader` but for the process `spare`: SIGTERM, and SIGKILL `grace_s` (GRACE_S) later."""
    ending: set[psutil.Process] = set()  # kept, for a child of another session is not found once its parent is gone
    for end in (psutil.Process.terminate, psutil.Process.kill):
        ending = {process for process in ending | members(leader) if process.pid != spare and alive(process)}
        for process in ending:
            try:
                end(process)
            except psutil.NoSuchProcess:
                continue
        deadline = time.monotonic() + (GRACE_S if grace_s is None else grace_s)
        while any(map(alive, ending)) and time.monotonic() < deadline:
            time.sleep(LOOK_EVERY_S / 4)


def main(owner: int, command: list[str]) -> int:
    """Runs `command` until it or `owner` ends; returns its exit code."""
    running = subprocess.Popen(command)
    while running.poll() is None and os.getppid() == owner:
        time.sleep(LOOK_EVERY_S)
    end_session(os.getsid(0), spare=os.getpid())  # the owner has died, or the command has and left children behind
    code = running.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
