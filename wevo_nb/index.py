"""The trajectories of a run: where each of them stands in its file, and what one can look for.

`Index` reads every JSONL of trajectories below a run's folder once, line by line, and keeps of each
line its place and a few fields, so that ten thousand open in a second and one is read when it is
asked for. Kept in memory alone; what a running stage appends is read on. Writes nothing. Reads
regular files below the folder alone: links that lead out of it are passed by and told. Used by
`wevo view` (view.py) and `wevo report` (report.py).
"""

from __future__ import annotations

import functools
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from wevo_nb.judge import by_reward
from wevo_nb.params import ParamsError
from wevo_nb.runs import read_json
from wevo_nb.schema import Observation, Task, Trajectory, Verdict
from wevo_nb.synthesis import accept_calibrated

LEFT_OUT = re.compile(r"model|checkpoint|figures$|tables$|har$|servers$|failed$|screenshots$|\.|.*\.old-")  # folders
FACETS = ("stage", "iteration", "arm", "suite", "family", "split", "outcome", "ended")
NOT_JUDGED = "not judged"
ORDER = ("success", "failure", "unscored", NOT_JUDGED)  # of outcomes; other values by name
PICTURE = re.compile(r"[0-9a-f]{16}\.png")


class Entry(NamedTuple):
    """A trajectory's place, `file` (below the run's folder) and `at` in bytes, and what it can be found by."""

    file: str
    at: int
    size: int
    stage: str
    iteration: str  # empty outside of an iteration
    arm: str  # the folder below 05_wmla, else the policy
    suite: str
    family: str  # the task's name: what tasks of different seeds have in common
    seed: int
    split: str
    attempt: int
    policy: str
    environment: str
    goal: str
    outcome: str
    judge: str
    ended: str
    done: bool
    steps: int
    ahead: int  # decisions that looked ahead
    reward: float | None

    @property
    def ref(self) -> str:
        """Names this trajectory within its run."""
        return f"{self.file}:{self.at}"

    @property
    def task(self) -> str:
        return f"{self.suite}/{self.family}/{self.seed}"

    @property
    def key(self) -> str:
        """Trajectory.key."""
        return f"{self.task}/{self.policy}/{self.attempt}"


class Index:
    """The trajectories below `folder`. `refresh` reads what is new; `entries` holds them in the order of the files."""

    def __init__(self, folder: Path):
        self.folder = folder.resolve()
        self.entries: list[Entry] = []
        self.copies: dict[str, list[tuple[str, int]]] = {}  # ref -> (file, at) of the same episode in other files
        self.problems: dict[str, str] = {}  # file -> what could not be read of it
        self._files: dict[str, _File] = {}
        self._pictures: list[Path] = []
        self.refresh()

    def refresh(self) -> bool:
        """Reads what was written since; returns whether anything was."""
        found, self._pictures = {}, []
        for path in self._walk():
            state = path.stat()
            found[str(path.relative_to(self.folder))] = (state.st_ino, state.st_size)
        grown = {name for name, now in found.items() if name not in self._files or self._files[name].state != now}
        gone = self._files.keys() - found.keys()
        if not grown and not gone:
            return False
        for name in gone:
            del self._files[name]
        for name in grown:
            old = self._files.get(name)
            if old is None or old.state[0] != found[name][0] or old.state[1] > found[name][1]:
                self._files[name] = old = _File()  # a new file, or another one under its name
            old.read(self.folder / name, name, found[name])
        self._merge()
        return True

    def find(self, ref: str) -> Entry | None:
        return self._by_ref.get(ref)

    def load(self, entry: Entry) -> Trajectory:
        """Raises ParamsError where the file has changed under the index."""
        return self._load(entry.file, entry.at, entry.size)

    def verdicts(self, entry: Entry) -> list[tuple[str, Verdict]]:
        """Every verdict on this episode with the file that holds it; empty: the one that the stage's rule gives."""
        places = [(entry.file, entry.at, entry.size)]
        places += [(file, at, self._files[file].sizes[at]) for file, at in self.copies.get(entry.ref, ())]
        loaded = [(file, self._load(file, at, size)) for file, at, size in places]
        found = [(file, one.verdict) for file, one in loaded if one.verdict]
        ruled = rule_of(self.folder / Path(entry.file).parent)(loaded[0][1]) if loaded[0][1].verdict is None else None
        alike = ruled and any(ruled.outcome == verdict.outcome and ruled.judge == verdict.judge for _, verdict in found)
        return found if alike or ruled is None else [("", ruled), *found]

    def picture(self, name: str) -> Path | None:
        """A kept screenshot by its file name; None where there is none below this folder."""
        if not PICTURE.fullmatch(name):
            return None
        return next((path for folder in self._pictures if self._inside(path := folder / name)), None)

    def _inside(self, path: Path) -> bool:
        return path.is_file() and path.resolve().is_relative_to(self.folder)

    def _walk(self) -> Iterator[Path]:
        """The JSONL files in order: iterations, then stages, `trajectories.jsonl` first in each."""
        for place, folders, files in os.walk(self.folder):
            if "screenshots" in folders:
                self._pictures.append(Path(place, "screenshots"))
            folders[:] = sorted((f for f in folders if not LEFT_OUT.match(f)), key=lambda f: (not f[:5] == "iter-", f))
            for name in sorted(files, key=lambda f: (f != "trajectories.jsonl", f)):
                path = Path(place, name)
                if not name.endswith(".jsonl") or name.startswith("."):
                    continue
                if self._inside(path):
                    yield path
                else:
                    self.problems[str(path.relative_to(self.folder))] = "leads out of the run's folder and is not read"

    def _load(self, file: str, at: int, size: int) -> Trajectory:
        path = self.folder / file
        if not self._inside(path):
            raise ParamsError(f"{path} is no file of this run any more: load the page again")
        with path.open("rb") as opened:
            opened.seek(at)
            line = opened.read(size)
        try:
            return Trajectory.model_validate_json(line)
        except ValueError as problem:
            first = str(problem).splitlines()[0]
            raise ParamsError(f"{path}, at byte {at}: no trajectory of this version ({first})") from None

    def _merge(self):
        """Entries in order; the second one of an episode within a stage's folder is a copy, with a verdict at most."""
        self.entries, self.copies = [], {}
        for folder, names in _by_folder(self._files).items():
            owners: dict[str, int] = {}
            judged: dict[str, Entry] = {}
            for name in names:
                file = self._files[name]
                if file.unread:
                    self.problems[name] = f"lines that hold no trajectory of this version: {file.unread}"
                for entry in file.entries:
                    if entry.key not in owners:
                        owners[entry.key] = len(self.entries)
                        self.entries.append(entry)
                        continue
                    self.copies.setdefault(self.entries[owners[entry.key]].ref, []).append((entry.file, entry.at))
                    if entry.outcome != NOT_JUDGED:
                        judged.setdefault(entry.key, entry)
            self._judge(self.folder / folder, owners.values(), judged)
        self._by_ref = {entry.ref: entry for entry in self.entries}

    def _judge(self, folder: Path, places: Iterable[int], judged: Mapping[str, Entry]):
        """Outcomes that the record itself does not hold: by the stage's rule, else as a copy has it."""
        waiting = [place for place in places if self.entries[place].outcome == NOT_JUDGED]
        rule = rule_of(folder) if waiting else None
        for place in waiting:
            one = self.entries[place]
            if verdict := rule(_outline(one)) or judged.get(one.key):
                self.entries[place] = one._replace(outcome=sys.intern(verdict.outcome), judge=sys.intern(verdict.judge))


class _File:
    """What is known of one file: its state when it was read, and its entries."""

    def __init__(self):
        self.state, self.end, self.unread = (0, 0), 0, 0
        self.entries: list[Entry] = []
        self.sizes: dict[int, int] = {}
        self.other = False  # records of another kind

    def read(self, path: Path, name: str, state: tuple[int, int]):
        """Reads the whole lines from where it ended before."""
        self.state = state
        with path.open("rb") as file:
            file.seek(self.end)
            for line in file:
                if not line.endswith(b"\n"):
                    break  # its writer is not done with it, or was killed
                at, self.end = self.end, self.end + len(line)
                if self.other:
                    continue
                try:
                    entry = entry_of(line, name, at)
                except (ValueError, KeyError, TypeError, AttributeError):
                    self.other = at == 0
                    self.unread += not self.other
                    continue
                self.entries.append(entry)
                self.sizes[at] = len(line)


def entry_of(line: bytes, file: str, at: int) -> Entry:
    """A line of JSON of a Trajectory as an Entry. Raises ValueError or KeyError where it is none.

    The pages are by far the most of a line and are not decoded: in JSON a quote inside of a string
    is escaped, so `,"steps":` can only be a key, and `json_of` reads what stands before and after.
    """
    told, steps, ahead = json_of(line)
    task, final, verdict = told["task"], told["final"], told.get("verdict") or {}
    stage, iteration, arm = place_of(file)
    shared = sys.intern  # a few different values, in as many entries as there are trajectories
    return Entry(
        file=shared(file), at=at, size=len(line), stage=shared(stage), iteration=shared(iteration),
        arm=shared(arm or told["policy"]), suite=shared(task["suite"]), family=shared(task["name"]),
        seed=int(task["seed"]), split=shared(task.get("split", "train")), attempt=told.get("attempt", 0),
        policy=shared(told["policy"]), environment=shared(told["environment"]),
        goal=task.get("goal") or final.get("goal", ""), outcome=shared(verdict.get("outcome", NOT_JUDGED)),
        judge=shared(verdict.get("judge", "")), ended=shared(told["ended"]), done=final.get("done", False),
        steps=steps, ahead=ahead, reward=final.get("reward"),
    )  # fmt: skip


def json_of(line: bytes) -> tuple[dict, int, int]:
    """A trajectory without its steps, their number, and how many of their decisions have candidates."""
    steps, final = line.find(b',"steps":['), line.rfind(b',"final":{')
    if line.startswith(b'{"task":{') and 0 < steps < final:
        told = json.loads(line[:steps] + b"}") | json.loads(b"{" + line[final + 1 :])
        if told.keys() >= {"task", "policy", "environment", "final", "ended"}:
            return told, line.count(b'{"observation":{', steps, final), line.count(b',"candidates":[{', steps, final)
    told = json.loads(line)  # another writer's spacing, or another order
    return told, len(told["steps"]), sum(bool(step["decision"].get("candidates")) for step in told["steps"])


@functools.cache
def place_of(file: str) -> tuple[str, str, str]:
    """(stage, iteration, arm) of a file below a run's folder; empty where it has none."""
    parts = Path(file).parts[:-1]
    iteration = parts[0][5:] if parts and parts[0].startswith("iter-") else ""
    inner = parts[1:] if iteration else parts
    return (inner[0] if inner else ""), iteration, (inner[1] if len(inner) > 1 and inner[0] == "05_wmla" else "")


def rule_of(folder: Path) -> Callable[[Trajectory], Verdict | None]:
    """The verdict that a stage's own rule gives, as its notebook gave it without writing it down; None: no rule.

    Real episodes: the page's reward (judge.RewardJudge), unless the collection went by another judge.
    Dreams: P(success) against the threshold of the params, or against those of `thresholds.json`.
    """
    spec = (read_json(folder / "params.json") or {}).get("params", {})
    how, thresholds = spec.get("synthesize", {}), read_json(folder / "thresholds.json")

    def rule(one: Trajectory) -> Verdict | None:
        if one.environment == "browser":
            by_page = spec.get("collect", {}).get("judge", "reward") == "reward"
            return by_reward(one, 1.0, "reward") if by_page else None
        if "threshold" not in how:
            return None
        if one.environment == "written":  # without a world model: the untrained model tells P(success)
            return by_reward(one, how["threshold"], "untrained")
        if how.get("judge", "world_model") != "world_model" or how.get("accept") == "rank":
            return None
        verdict = by_reward(one, how["threshold"], "world_model")
        judged = one.model_copy(update={"verdict": verdict})
        return accept_calibrated([judged], thresholds)[0].verdict if thresholds else verdict

    return rule


def _outline(entry: Entry) -> Trajectory:
    """A trajectory without its steps: all that a rule reads."""
    final = Observation(text="", done=entry.done, reward=entry.reward)
    task = Task(suite=entry.suite, name=entry.family, seed=entry.seed)
    of = {"policy": entry.policy, "environment": entry.environment, "ended": entry.ended}
    return Trajectory(task=task, steps=(), final=final, **of)


def _by_folder(names) -> dict[str, list[str]]:
    """Files by the folder they stand in, in the order of `Index._walk`."""
    order = lambda n: (not n.startswith("iter-"), str(Path(n).parent), Path(n).name != "trajectories.jsonl", n)  # noqa: E731
    folders: dict[str, list[str]] = {}
    for name in sorted(names, key=order):
        folders.setdefault(str(Path(name).parent), []).append(name)
    return folders


# -- looking for some of them


def search(
    entries: Sequence[Entry], wanted: Mapping[str, str], text: str = ""
) -> tuple[list[Entry], dict[str, Counter]]:
    """The entries with these values of FACETS and `text` in task, goal or policy; and the counts of each facet.

    A facet's counts are of what its other values would find, all other wishes kept.
    """
    wanted = {facet: value for facet, value in wanted.items() if facet in FACETS}
    found, counts = [], {facet: Counter() for facet in FACETS}
    words = text.lower().split()
    for entry in entries:
        if words and not all(word in f"{entry.key} {entry.goal} {entry.arm}".lower() for word in words):
            continue
        missed = [facet for facet, value in wanted.items() if getattr(entry, facet) != value]
        if len(missed) > 1:
            continue
        if not missed:
            found.append(entry)
        for facet in missed or FACETS:
            counts[facet][getattr(entry, facet)] += 1
    return found, counts


def in_order(values, facet: str) -> list[str]:
    """Values of a facet as they are listed: outcomes from success on, iterations by number."""
    if facet == "outcome":
        return sorted(values, key=lambda v: (ORDER.index(v) if v in ORDER else len(ORDER), v))
    return (
        sorted(values, key=lambda v: (v == "", v.isdigit() and int(v), v)) if facet == "iteration" else sorted(values)
    )


class Pair(NamedTuple):
    """The same task on both sides; seeds differ where `exact` is False."""

    left: Entry
    right: Entry
    exact: bool


def pairs(left: Sequence[Entry], right: Sequence[Entry]) -> list[Pair]:
    """Episodes of the same task and attempt, side by side; without any, the i-th of each kind of task.

    Runs of different seeds have no task in common: their episodes are matched by suite, kind and
    split, in the order of seeds.
    """
    key = lambda e: (e.task, e.attempt)  # noqa: E731
    there = {key(entry): entry for entry in reversed(right)}
    found = [Pair(entry, there[key(entry)], True) for entry in left if key(entry) in there]
    if found:
        return found
    kind = lambda e: (e.suite, e.family, e.split)  # noqa: E731
    sides = []
    for side in (left, right):
        by_kind: dict[tuple, list[Entry]] = {}
        for entry in sorted(side, key=lambda e: (e.seed, e.attempt)):
            by_kind.setdefault(kind(entry), []).append(entry)
        sides.append(by_kind)
    ours, theirs = sides
    return [Pair(a, b, False) for of in ours if of in theirs for a, b in zip(ours[of], theirs[of], strict=False)]
