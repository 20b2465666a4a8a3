"""Runs and stages on disk: what is done, what fits, where a broken stage goes on.

A stage declares its params and its inputs and writes one folder. Its manifest is written last
and means "done". The same params and inputs again: a finished stage is loaded, an unfinished
one goes on item by item. Others: refused with the difference. Used by every notebook.
"""

from __future__ import annotations

import errno
import fcntl
import gc
import hashlib
import json
import os
import re
import shutil
import sys
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from wevo_nb.params import ROOT, Resolved, flatten
from wevo_nb.provenance import provenance

NOTE_EVERY_S, WEIGH_EVERY_S, BAR_EVERY_S = 0.2, 2.0, 15.0  # between notes of progress, looks at memory, lines of a bar
NO_RESULT = {  # by section: where episodes run and what is kept of them beside their text, which changes no result
    "collect": ("backend", "workers", "address"), "browser": ("screenshots",),
}  # fmt: skip
UNHASHED = ("manifest.json", "params.json", "progress.json", "notebook.ipynb", ".lock")


class StageError(RuntimeError):
    """A stage that cannot run: of other params, without its inputs, busy, or out of disk."""


class Stage:
    """One folder of a run, opened for work. Close it, or use it as a context manager."""

    def __init__(self, run: str, name: str, spec: dict):
        self.run, self.name, self.spec = run, name, spec
        self.folder = run_folder(run) / name
        self.done = (self.folder / "manifest.json").exists()
        before = {} if self.done else read_json(self.folder / "progress.json") or {}
        self._earlier = before.get("seconds", 0.0)
        self._earlier_usage: dict[str, dict] = before.get("usage", {})
        self._peak = before.get("peak_memory_mb", 0)
        self._usage: dict = {}
        self._noted = self._weighed = 0.0
        self.begin()

    def __str__(self) -> str:
        return f"{'finished before, will be loaded' if self.done else 'to do'}: {self.folder}"

    @property
    def manifest(self) -> dict:
        return read_json(self.folder / "manifest.json") or {}

    def path(self, *parts: str) -> Path:
        """A path below the stage's folder, whose parent exists."""
        path = self.folder.joinpath(*parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def begin(self):
        """The work begins now: earlier waiting is not counted."""
        self._started = time.time()

    def track(self, **usage):
        """Counts what these models cost (role=Usage), earlier attempts at the stage included."""
        self._usage |= usage

    def usage(self) -> dict[str, dict]:
        """Calls, tokens and seconds by role, of all attempts together."""
        now = {role: used.model_dump() for role, used in self._usage.items()}
        roles = [*self._earlier_usage, *(role for role in now if role not in self._earlier_usage)]
        add = lambda a, b: {key: round(a.get(key, 0) + b.get(key, 0), 3) for key in a | b}  # noqa: E731
        return {role: add(self._earlier_usage.get(role, {}), now.get(role, {})) for role in roles}

    def seconds(self) -> float:
        """Time spent in this stage, earlier attempts included."""
        return self._earlier + time.time() - self._started

    def progress(self, *, total: int, label: str, initial: int = 0):
        """A tqdm bar that also keeps progress.json for `wevo run` and `wevo status`."""
        from tqdm import tqdm

        stage = self

        class Bar(tqdm):
            def update(self, n=1):
                stage.note_progress(label, self.n + n, self.total)
                return super().update(n)

            def close(self):
                stage._noted = 0.0
                stage.note_progress(label, self.n, self.total)
                super().close()

        self.note_progress(label, initial, total)
        return Bar(
            total=total, desc=label, initial=initial, mininterval=BAR_EVERY_S, ascii=" =", ncols=90, file=sys.stdout
        )

    def step_of(self, bar):
        """A callback for training (sft.StepDone) that moves a bar."""

        def on_step(now):
            bar.total = now.steps
            memory = f", {now.gpu_gb:.1f} GB of GPU" if now.gpu_gb else ""
            said = f"loss {now.loss:.2f}, {now.tokens_per_second:.0f} tokens/s{memory}"
            bar.set_postfix_str(said, refresh=False)
            bar.update(now.step - bar.n)

        return on_step

    def note_progress(self, label: str, n: int, total: int):
        """Writes progress.json, at most every NOTE_EVERY_S seconds."""
        now = time.time()
        if self.done or (now - self._noted < NOTE_EVERY_S and 0 < n < total):
            return
        if now - self._weighed > WEIGH_EVERY_S:
            self._peak, self._weighed = max(self._peak, memory_mb()), now
        self._noted = now
        state = {"label": label, "n": n, "total": total, "seconds": round(self.seconds(), 1), "pid": os.getpid()}
        write_json(self.path("progress.json"), state | {"usage": self.usage(), "peak_memory_mb": self._peak})

    def finish(self, *, metrics: dict, models: dict | None = None, browser: str = "") -> dict:
        """Writes metrics.json and, last, the manifest. Returns the manifest."""
        write_json(self.path("metrics.json"), metrics)
        manifest = {
            "stage": self.name,
            "fingerprint": fingerprint(self.spec),
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": round(self.seconds(), 1),
            "peak_memory_mb": max(self._peak, memory_mb()),
            "usage": self.usage(),
            "models": models or {},
            "inputs": self.spec["inputs"],
            "outputs": {str(p.relative_to(self.folder)): sha256(p) for p in outputs_of(self.folder)},
            "provenance": provenance() | ({"browser": browser} if browser else {}),
        }
        write_json(self.path("manifest.json"), manifest)
        (self.folder / "progress.json").unlink(missing_ok=True)
        self.done = True
        self.close()
        return manifest

    def close(self):
        if (held := _locks.pop(self.folder, None)) is not None:
            held.close()

    def lock(self):
        """Keeps other processes out of the folder; ends with the process, however it ends."""
        self.close()  # this process may open its stage again
        held = open(self.path(".lock"), "w")  # noqa: SIM115 - held until close()
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            held.close()
            raise StageError(
                f"another process works on {self.folder}: wait for it, or stop it (another open notebook?)"
            ) from None
        _locks[self.folder] = held


_locks: dict[Path, TextIO] = {}  # the stages that this process works on


def memory_mb() -> int:
    """Memory of this process and its children now, in MB; what they share is counted once."""
    import psutil

    total = 0
    for process in [(me := psutil.Process()), *me.children(recursive=True)]:
        try:
            used = process.memory_full_info()
        except psutil.Error:
            continue  # it has ended meanwhile
        total += getattr(used, "pss", used.rss)
    return round(total / 2**20)


def run_folder(run: str) -> Path:
    if not re.fullmatch(r"[\w-][\w.-]*", run):
        raise StageError(f"run '{run}' is no folder name: use letters, digits, '.', '-' and '_'")
    return Path(os.environ.get("WEVO_OUTPUTS", ROOT / "outputs")) / run


def open_stage(
    run: str,
    name: str,
    resolved: Resolved,
    *,
    sections: tuple[str, ...],
    inputs: tuple[str, ...] = (),
    must_match: tuple[str, ...] = (),
    version: int = 1,
) -> Stage:
    """The stage `name` of `run`, which reads `sections` of the params and the finished stages `inputs`.

    A section may be one key of one: `collect.suite`. `must_match` are keys that an input which read
    them must have been made with: a model is asked as it was taught.

    Raises StageError where an input is not done or does not match, the folder holds other params, or
    another process works in it.
    """
    everything = resolved.params.model_dump(mode="json")
    read = [name for name in everything["roles"] if {"roles", f"roles.{name}"} & set(sections)]
    if any(everything["roles"][name]["engine"] == "vllm" for name in read):
        sections += ("serve.quantization",)  # of all that serve says, what a result depends on
    spec = {
        "version": version,
        "params": {"seed": everything["seed"]} | {section: section_of(everything, section) for section in sections},
        "inputs": {other: signature(run, other) for other in inputs},
    }
    for other in inputs:
        if different := mismatches(run, other, must_match, resolved):
            raise StageError(
                f"{other} of run '{run}' was made otherwise than it would be used:\n  " + "\n  ".join(different) + "\n"
                "set these as they are there, or make it anew under another run name"
            )
    stage = Stage(run, name, spec)
    before = read_json(stage.folder / "params.json")
    if before is not None and fingerprint(before) != fingerprint(spec):
        raise StageError(_difference(stage, before))
    if stage.done:
        return stage
    stage.lock()
    if before is None:
        write_json(stage.path("params.json"), spec)
        made = {"profile": resolved.profile, "created": datetime.now(UTC).isoformat(timespec="seconds")}
        if not (run_folder(run) / "run.json").exists():
            write_json(run_folder(run) / "run.json", made)
    return stage


def mismatches(run: str, name: str, keys: tuple[str, ...], resolved: Resolved) -> list[str]:
    """`key: value there, value now` for each of `keys` that a stage read and had another value of."""
    there = (read_json(run_folder(run) / name / "params.json") or {}).get("params", {})
    now = resolved.params.model_dump(mode="json")
    return [
        f"{key}: {section_of(there, key)} there, {section_of(now, key)} now"
        for key in keys
        if key.split(".")[0] in there and section_of(there, key) != section_of(now, key)
    ]


def section_of(params: dict, name: str) -> object:
    """What a stage notes of a section, or of a `section.key`: all that a result depends on."""
    section, _, key = name.partition(".")
    if key:
        return params[section][key]
    if section not in NO_RESULT:
        return params[section]
    return {k: v for k, v in params[section].items() if k not in NO_RESULT[section]}


def signature(run: str, name: str) -> str:
    """What a finished stage put out, in one hash. Raises StageError where it is not done."""
    manifest = read_json(run_folder(run) / name / "manifest.json")
    if manifest is None:
        raise StageError(
            f"needs {name} of run '{run}', and it is not done: run its notebook first, or 'wevo run --run {run}'"
        )
    return fingerprint(manifest["outputs"])


def set_aside(run: str, name: str) -> Path | None:
    """Moves a stage's folder out of the way, deleting nothing. Returns where it went."""
    folder = run_folder(run) / name
    if not folder.exists():
        return None
    number = 1
    while (aside := folder.with_name(f"{folder.name}.old-{number}")).exists():
        number += 1
    return folder.rename(aside)


@contextmanager
def uncollected():
    """Without Python's collector of cycles, which while much is made that stays goes through all of it again and again.

    Reading 100,000 trajectories takes a fifth of the time so (benchmarks/analysis.py).
    """
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


class JSONL:
    """Records in a file, one a line, keyed; a torn last line of a killed writer is dropped."""

    def __init__(self, path: Path, record):
        self.path, self.record = path, record
        self.records = {}
        if path.exists():
            whole = 0
            with path.open("rb") as file, uncollected():
                for line in file:
                    if line.endswith(b"\n"):
                        item = record.model_validate_json(line)
                        self.records[item.key] = item
                        whole += len(line)
            if whole < path.stat().st_size:
                os.truncate(path, whole)

    def __contains__(self, key: str) -> bool:
        return key in self.records

    def __len__(self) -> int:
        return len(self.records)

    def append(self, item):
        """Writes one record through to the system, once a key. Raises StageError on a full disk."""
        if item.key in self.records:
            return
        size = self.path.stat().st_size if self.path.exists() else 0
        try:
            with self.path.open("a") as file:
                file.write(item.model_dump_json(exclude_defaults=True) + "\n")
        except OSError as problem:
            if self.path.is_file():
                os.truncate(self.path, size)  # half a line must not stand before a later record
            raise _readable_disk(problem, self.path) from problem
        self.records[item.key] = item

    def values(self) -> list:
        """The records, sorted by key: the same whatever the order of writing."""
        return [self.records[key] for key in sorted(self.records)]


def link_tree(source: Path, target: Path):
    """Copies a folder; weights are linked, for they are large and never written twice."""

    def link(old: str, new: str):
        Path(new).unlink(missing_ok=True)  # of an attempt that was killed
        (os.link if old.endswith(".safetensors") else shutil.copy2)(old, new)

    shutil.copytree(source, target, copy_function=link, ignore=shutil.ignore_patterns(".lock"), dirs_exist_ok=True)


def same_rows(stage: Stage) -> Path | None:
    """The folder of a finished stage of this run that trained on the very same rows in the very same way.

    Rows are compared by `rows.json`, the way by the params of both stages, `sft.arm` apart: where an
    arm has nothing of its own, its policy is one that is there already.
    """
    way = lambda spec: {**spec["params"], "sft": {**spec["params"]["sft"], "arm": ""}}  # noqa: E731
    for path in sorted(run_folder(stage.run).glob("**/04_*/manifest.json")):
        folder, spec = path.parent, read_json(path.parent / "params.json")
        mine, other = stage.folder / "rows.json", folder / "rows.json"
        if folder == stage.folder or ".old-" in str(folder) or not other.exists() or way(spec) != way(stage.spec):
            continue
        if sha256(mine) == sha256(other):
            return folder
    return None


def twins(folder: Path) -> list[tuple[str, str]]:
    """Pairs of policies (the earlier, the later) of a run that learned from the very same rows."""
    seen: dict[str, str] = {}
    pairs = []
    for path in sorted(folder.glob("**/04_*/rows.json"), key=lambda p: (len(p.parts) == len(folder.parts) + 2, p)):
        name = path.parent.name.removeprefix("04_")
        name += f"_{path.parent.parent.name.removeprefix('iter-')}" if name == "self_improve" else ""
        if ".old-" not in str(path) and (path.parent / "manifest.json").exists():
            first = seen.setdefault(sha256(path), name)
            pairs += [(first, name)] if first != name else []
    return pairs


def require_space(folder: Path, gigabytes: float):
    """Raises StageError where the disk has no room for what a stage will write."""
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free / 1e9
    if free < gigabytes:
        raise StageError(
            f"{folder} has {free:.1f} GB free and this stage needs {gigabytes:.1f} GB: "
            "make room, or set WEVO_OUTPUTS to a folder on another disk"
        )


def write_json(path: Path, value):
    """Atomic: the file is the old one or the new one, never half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(json.dumps(value, indent=1, ensure_ascii=False, default=str))
    except OSError as problem:
        raise _readable_disk(problem, path) from problem
    temporary.replace(path)


def write_csv(path: Path, frame):
    """A pandas frame as csv, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    frame.to_csv(temporary, index=False)
    temporary.replace(path)


def write_jsonl(path: Path, items):
    """Records, one a line, whole and atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text("".join(item.model_dump_json(exclude_defaults=True) + "\n" for item in items))
    temporary.replace(path)


def read_json(path: Path):
    """The value, or None where there is no such file."""
    return json.loads(path.read_text()) if path.exists() else None


def fingerprint(value) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def outputs_of(folder: Path) -> list[Path]:
    """The files that later stages may read: no notebook, no figure, no screenshot, no hidden file."""
    files = (p for p in folder.rglob("*") if p.is_file())
    inner = lambda p: p.relative_to(folder)  # noqa: E731
    return sorted(
        p
        for p in files
        if p.name not in UNHASHED
        and inner(p).parts[0] not in ("figures", "screenshots")
        and not any(x.startswith(".") for x in inner(p).parts)
    )


def _difference(stage: Stage, before: dict) -> str:
    old, new = flatten(before), flatten(stage.spec)
    lines = [
        f"  {key}: {old.get(key, '-')} there, {new.get(key, '-')} now"
        for key in sorted(old | new)
        if old.get(key) != new.get(key)
    ]
    return (
        f"{stage.folder} was made with other params or inputs:\n" + "\n".join(lines) + "\n"
        "take another run name, or 'wevo run --fresh' to move the old folder aside"
    )


def _readable_disk(problem: OSError, path: Path) -> OSError | StageError:
    if problem.errno == errno.ENOSPC:
        return StageError(
            f"the disk is full, {path} could not grow: make room and run the same command "
            "again; nothing written is lost"
        )
    return problem
