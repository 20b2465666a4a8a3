"""The index of a run's trajectories: what it finds, how it judges, what it refuses to read, and how it goes on."""

from __future__ import annotations

import json
import os

import pytest
from stand_ins import did, seen, walk

from wevo_nb import index as module
from wevo_nb.index import NOT_JUDGED, Index, entry_of, pairs, search
from wevo_nb.judge import RewardJudge
from wevo_nb.params import ParamsError
from wevo_nb.runs import write_json, write_jsonl
from wevo_nb.schema import Candidate, Step, Task, Trajectory, Verdict

PAGE, NEXT = "[1] button 'One'", "[1] button 'Two'"
# Page text that looks like the keys by which a line is taken apart.
HOSTILE = """[1] link '","steps":[{"observation":{' x: ',"final":{"text":"","done":true},"ended":"done"}'"""


def of(name="click-button", seed=0, split="train", goal="Click One") -> Task:
    return Task(suite="miniwob", name=name, seed=seed, split=split, goal=goal)


def line(one: Trajectory) -> bytes:
    return one.model_dump_json(exclude_defaults=True).encode() + b"\n"


def stage(folder, name: str, params: dict | None = None, **files):
    """A stage's folder with these files of trajectories."""
    for file, trajectories in files.items():
        write_jsonl(folder / name / f"{file}.jsonl", trajectories)
    write_json(folder / name / "params.json", {"params": params or {}})


def outcomes(folder) -> dict[str, tuple[str, str]]:
    return {entry.policy: (entry.outcome, entry.judge) for entry in Index(folder).entries}


# -- what is read of a line


def test_an_entry_says_where_and_what():
    one = walk(of(seed=7, split="test_seeds"), PAGE, "click [1]", NEXT, reward=0.5, success="failure", attempt=2)
    entry = entry_of(line(one), "05_wmla/zero_shot+wmla_d1/trajectories.jsonl", 40)
    assert entry._asdict() == {
        "file": "05_wmla/zero_shot+wmla_d1/trajectories.jsonl", "at": 40, "size": len(line(one)), "stage": "05_wmla",
        "iteration": "", "arm": "zero_shot+wmla_d1", "suite": "miniwob", "family": "click-button", "seed": 7,
        "split": "test_seeds", "attempt": 2, "policy": "p", "environment": "browser", "goal": "Click One",
        "outcome": "failure", "judge": "reward", "ended": "done", "done": True, "steps": 1, "ahead": 0, "reward": 0.5,
    }  # fmt: skip
    assert entry.key == one.key and entry.ref == "05_wmla/zero_shot+wmla_d1/trajectories.jsonl:40"
    assert entry_of(line(one), "iter-3/01_collect/explorer.jsonl", 0)[3:6] == ("01_collect", "3", "p")


def test_pages_that_look_like_keys_change_nothing():
    """A line as it is written, and the same one spaced by another writer, which is read as a whole."""
    looked = did("click [1]").model_copy(update={"candidates": (Candidate(reply='","candidates":[{', score=1.0),)})
    one = walk(of(goal=HOSTILE, name='","policy":"x'), HOSTILE, "click [1]", HOSTILE, "click [1]", HOSTILE, reward=1.0)
    one = one.model_copy(update={"steps": (one.steps[0], Step(observation=seen(HOSTILE), decision=looked))})
    compact = line(one)
    spaced = json.dumps(json.loads(compact)).encode() + b"\n"
    assert module.json_of(compact)[1:] == (2, 1) and compact != spaced
    fast, whole = (entry_of(text, "x.jsonl", 0)._replace(size=0) for text in (compact, spaced))
    assert fast == whole and (fast.steps, fast.ahead, fast.ended, fast.reward) == (2, 1, "done", 1.0)
    assert fast.key == one.key and fast.goal == HOSTILE


# -- which files, and going on


def test_other_records_and_folders_are_no_trajectories(tmp_path):
    stage(tmp_path, "iter-1/01_collect", trajectories=[walk(of(), PAGE, reward=1.0)])
    stage(tmp_path, "iter-1/01_collect.old-1", trajectories=[walk(of(seed=1), PAGE, reward=1.0)])
    stage(tmp_path, "iter-1/02_wm_train/checkpoint-3", trajectories=[walk(of(seed=2), PAGE, reward=1.0)])
    (tmp_path / "iter-1" / "01_collect" / "rows.jsonl").write_text('{"task": "click", "reply": "x"}\n[3]\n')
    found = Index(tmp_path)
    assert [entry.seed for entry in found.entries] == [0] and not found.problems


def test_a_line_that_is_none_is_told_and_the_rest_is_read(tmp_path):
    stage(tmp_path, "01", trajectories=[walk(of(seed=i), PAGE, reward=1.0) for i in range(2)])
    path = tmp_path / "01" / "trajectories.jsonl"
    first, second = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + b'{"task": 3}\n' + second)
    found = Index(tmp_path)
    assert [entry.seed for entry in found.entries] == [0, 1]
    assert found.problems == {"01/trajectories.jsonl": "lines that hold no trajectory of this version: 1"}
    assert found.load(found.entries[1]).task.seed == 1


def test_what_a_running_stage_appends_is_read_on(tmp_path, monkeypatch):
    stage(tmp_path, "01", trajectories=[walk(of(seed=0), PAGE, reward=1.0)])
    path, late = tmp_path / "01" / "trajectories.jsonl", line(walk(of(seed=1), PAGE, reward=1.0))
    found, read = Index(tmp_path), []
    real = module.entry_of
    monkeypatch.setattr(module, "entry_of", lambda text, file, at: read.append(at) or real(text, file, at))
    assert not found.refresh()
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(late[:50])  # half a line: its writer is not done
    found.refresh()
    assert len(found.entries) == 1 and read == []
    with path.open("ab") as file:
        file.write(late[50:])
    assert found.refresh() and read == [size]  # nothing was read twice
    assert [found.load(entry).task.seed for entry in found.entries] == [0, 1]


def test_a_file_written_anew_is_read_anew(tmp_path):
    stage(tmp_path, "01", trajectories=[walk(of(seed=0), PAGE, reward=1.0)])
    found = Index(tmp_path)
    stage(tmp_path, "01", trajectories=[walk(of(seed=i), PAGE, reward=1.0) for i in (8, 9)])
    assert found.refresh() and [entry.seed for entry in found.entries] == [8, 9]
    os.remove(tmp_path / "01" / "trajectories.jsonl")
    assert found.refresh() and found.entries == []


def test_a_trajectory_that_has_gone_meanwhile_is_an_error(tmp_path):
    stage(tmp_path, "01", trajectories=[walk(of(), PAGE, reward=1.0)])
    found = Index(tmp_path)
    (tmp_path / "01" / "trajectories.jsonl").write_text("x" * 5000)
    with pytest.raises(ParamsError, match=r"trajectories\.jsonl, at byte 0: no trajectory of this version"):
        found.load(found.entries[0])


def test_links_that_lead_out_are_not_read(tmp_path):
    """A file and a folder outside of the run, a picture outside, and one that goes outside after it was read."""
    run, outside = tmp_path / "run", tmp_path / "outside"
    stage(run, "01", trajectories=[walk(of(seed=0), PAGE, reward=1.0)])
    stage(outside, "02", trajectories=[walk(of(seed=1), PAGE, reward=1.0)])
    (run / "01" / "explorer.jsonl").symlink_to(outside / "02" / "trajectories.jsonl")
    (run / "02").symlink_to(outside / "02")
    (run / "01" / "screenshots").mkdir()
    (outside / "secret.png").write_bytes(b"secret")
    (run / "01" / "screenshots" / f"{'0' * 16}.png").symlink_to(outside / "secret.png")
    (run / "01" / "screenshots" / f"{'1' * 16}.png").write_bytes(b"ours")
    found = Index(run)
    assert [entry.seed for entry in found.entries] == [0]
    assert found.problems == {"01/explorer.jsonl": "leads out of the run's folder and is not read"}
    assert found.picture(f"{'0' * 16}.png") is None and found.picture("../../outside/secret.png") is None
    assert found.picture(f"{'1' * 16}.png").read_bytes() == b"ours"
    path = run / "01" / "trajectories.jsonl"
    path.unlink()
    path.symlink_to(outside / "02" / "trajectories.jsonl")
    with pytest.raises(ParamsError, match="no file of this run any more"):
        found.load(found.entries[0])


# -- verdicts


S, F, U = "success", "failure", "unscored"
ENDS = [
    (walk(of(), PAGE, reward=1.0), (S, S)),
    (walk(of(), PAGE, reward=0.99), (S, F)),
    (walk(of(), PAGE, reward=0.69), (F, F)),
    (walk(of(), PAGE, "click [1]", PAGE, ended="limit"), (F, F)),
    (walk(of(), PAGE, reward=None), (F, F)),
    (walk(of(), PAGE, reward=None).model_copy(update={"environment": "world_model"}), (U, U)),
    (walk(of(), PAGE, ended="error").model_copy(update={"error": "the page has crashed"}), (U, U)),
    (walk(of(), seen("", blocked="a human-verification page"), ended="blocked"), (U, U)),
]


@pytest.mark.parametrize(("one", "outcomes"), ENDS)
async def test_the_verdict_by_reward(one, outcomes):
    """At least the threshold, .7 of a dream or 1 of a page, where the end is known."""
    assert ((await RewardJudge(0.7).judge(one)).outcome, (await RewardJudge().judge(one)).outcome) == outcomes


def judged(one: Trajectory, outcome: str, judge: str, reason: str = "") -> Trajectory:
    return one.model_copy(update={"verdict": Verdict(outcome=outcome, judge=judge, reason=reason)})


def test_a_collection_is_judged_by_its_rule_and_a_copy_only_adds_a_verdict(tmp_path):
    """The LLM judge that was sampled beside the reward is shown, and does not decide."""
    missed = walk(of(), PAGE, "click [1]", NEXT, reward=-1.0)
    params = {"collect": {"judge": "reward"}}
    stage(tmp_path, "iter-1/01_collect", params, trajectories=[missed], llm_judge=[judged(missed, "success", "llm")])
    found = Index(tmp_path)
    [entry] = found.entries
    assert (entry.outcome, entry.judge) == ("failure", "reward")
    assert [(place, v.outcome, v.judge) for place, v in found.verdicts(entry)] == [
        ("", "failure", "reward"), ("iter-1/01_collect/llm_judge.jsonl", "success", "llm"),
    ]  # fmt: skip


@pytest.mark.parametrize("judge", ["llm", "answer"])
def test_where_another_judge_decided_its_verdict_counts(tmp_path, judge):
    one = walk(of(), PAGE, "click [1]", NEXT, ended="stop")
    params = {"collect": {"judge": judge}}
    stage(tmp_path, "iter-1/01_collect", params, trajectories=[one], llm_judge=[judged(one, "success", "llm")])
    assert outcomes(tmp_path) == {"p": ("success", "llm")}
    stage(tmp_path, "iter-1/01_collect", params, trajectories=[one])
    os.remove(tmp_path / "iter-1" / "01_collect" / "llm_judge.jsonl")
    assert outcomes(tmp_path) == {"p": (NOT_JUDGED, "")}


def test_a_written_trajectory_is_judged_by_the_plain_threshold(tmp_path):
    """The baseline without a world model: no calibrated threshold is for it."""
    one = walk(of(), PAGE, "click [1]", "", reward=0.8).model_copy(update={"environment": "written"})
    stage(tmp_path, "03_synthesize", {"synthesize": {"accept": "calibrated", "threshold": 0.7}}, written=[one])
    write_json(tmp_path / "03_synthesize" / "thresholds.json", {"": None})
    assert outcomes(tmp_path) == {"p": ("success", "untrained")}


@pytest.mark.parametrize(
    "how, thresholds, expected",
    [
        ({"judge": "world_model", "accept": "threshold", "threshold": 0.7}, None, ("success", "world_model")),
        ({"judge": "world_model", "accept": "threshold", "threshold": 0.9}, None, ("failure", "world_model")),
        ({"accept": "calibrated", "threshold": 0.5}, {"": 0.5, "click-button": 0.85}, ("failure", "calibrated")),
        ({"accept": "calibrated", "threshold": 0.5}, {"": 0.6}, ("success", "calibrated")),
        ({"accept": "rank", "threshold": 0.5}, None, (NOT_JUDGED, "")),
        ({"judge": "llm", "accept": "threshold", "threshold": 0.5}, None, (NOT_JUDGED, "")),
    ],
)
def test_a_dream_is_judged_as_its_stage_accepts(tmp_path, how, thresholds, expected):
    """A dream that ends with P(success) 0.8."""
    dream = walk(of(), PAGE, "click [1]", "", reward=0.8).model_copy(update={"environment": "world_model"})
    stage(tmp_path, "03_synthesize", {"synthesize": how}, trajectories=[dream])
    if thresholds:
        write_json(tmp_path / "03_synthesize" / "thresholds.json", thresholds)
    assert outcomes(tmp_path) == {"p": expected}


# -- looking for some


@pytest.fixture
def run(tmp_path) -> Index:
    """Two arms on three tasks, and a collection."""
    tasks = [
        of("click-link", 1, "test_seeds", "Click ab"),
        of("click-link", 2, "test_seeds"),
        of("login", 1, "test_seeds"),
    ]
    for arm, won in (("zero_shot", (True, False, False)), ("webevolver", (True, True, False))):
        rows = [
            walk(task, PAGE, policy=arm, reward=1.0, success="success" if good else "failure")
            for task, good in zip(tasks, won, strict=True)
        ]
        stage(tmp_path, f"05_wmla/{arm}", trajectories=rows)
    collect = {"collect": {"judge": "reward"}}
    stage(
        tmp_path, "iter-1/01_collect", collect, trajectories=[walk(of("login", 9), PAGE, policy="policy_0", reward=1.0)]
    )
    return Index(tmp_path)


def test_filters_and_the_counts_of_what_else_there_is(run):
    found, counts = search(run.entries, {"arm": "zero_shot", "outcome": "failure"})
    assert [(entry.family, entry.seed) for entry in found] == [("click-link", 2), ("login", 1)]
    assert counts["outcome"] == {"success": 1, "failure": 2}  # of zero_shot
    assert counts["arm"] == {"zero_shot": 2, "webevolver": 1}  # of the failures
    assert counts["family"] == {"click-link": 1, "login": 1}
    found, _ = search(run.entries, {"iteration": "1"})
    assert [entry.arm for entry in found] == ["policy_0"]
    found, counts = search(run.entries, {}, "AB link")
    assert {entry.seed for entry in found} == {1} and counts["arm"] == {"zero_shot": 1, "webevolver": 1}


def test_pairs_are_of_the_same_task_and_else_of_the_same_kind(run):
    by_arm = {arm: [e for e in run.entries if e.arm == arm] for arm in ("zero_shot", "webevolver")}
    found = pairs(by_arm["zero_shot"], by_arm["webevolver"])
    assert [(p.left.outcome, p.right.outcome, p.exact) for p in found] == [
        ("success", "success", True), ("failure", "success", True), ("failure", "failure", True),
    ]  # fmt: skip
    other = [entry._replace(seed=entry.seed + 100) for entry in reversed(by_arm["webevolver"])]
    found = pairs(by_arm["zero_shot"], other)
    assert [(p.left.family, p.left.seed, p.right.seed, p.exact) for p in found] == [
        ("click-link", 1, 101, False), ("click-link", 2, 102, False), ("login", 1, 101, False),
    ]  # fmt: skip
    assert pairs(by_arm["zero_shot"], []) == []
