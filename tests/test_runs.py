"""Stages on disk: torn files, refusals, locks, full disks. Processes and the full disk are real."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stand_ins import task

from wevo_nb.llm import Usage
from wevo_nb.params import load_params
from wevo_nb.provenance import gpus
from wevo_nb.runs import (
    JSONL,
    StageError,
    link_tree,
    open_stage,
    read_json,
    require_space,
    run_folder,
    same_rows,
    set_aside,
    twins,
    write_json,
)
from wevo_nb.schema import Observation, Trajectory

SMOKE = load_params("smoke")


@pytest.fixture(autouse=True)
def outputs(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("WEVO_OUTPUTS", str(tmp_path / "outputs"))
    return tmp_path / "outputs"


def episode(seed: int, title: str = "") -> Trajectory:
    final = Observation(text="[1] button 'A'", title=title)
    return Trajectory(task=task(seed=seed), policy="p", environment="browser", steps=(), final=final, ended="done")


def collect(overrides=None, *, inputs=(), sections=("tasks",), version=1):
    resolved = load_params("smoke", overrides or {})
    return open_stage("r", "01_collect", resolved, sections=sections, inputs=inputs, version=version)


# -- records


def test_reading_leaves_the_collector_as_it_was(tmp_path):
    path = tmp_path / "trajectories.jsonl"
    path.write_text("no record\n")
    with pytest.raises(ValueError, match="Invalid JSON"):
        JSONL(path, Trajectory)
    assert gc.isenabled()
    path.write_text(episode(1).model_dump_json() + "\n")
    gc.disable()
    try:
        assert len(JSONL(path, Trajectory)) == 1 and not gc.isenabled()
    finally:
        gc.enable()


def test_a_torn_last_line_is_dropped_and_the_file_cut(tmp_path):
    path = tmp_path / "t.jsonl"
    first = JSONL(path, Trajectory)
    first.append(episode(1))
    whole = path.read_bytes()
    first.append(episode(2))
    path.write_bytes(path.read_bytes()[:-7])  # killed while writing
    again = JSONL(path, Trajectory)
    assert len(again) == 1 and path.read_bytes() == whole
    again.append(episode(2))
    assert JSONL(path, Trajectory).values() == [episode(1), episode(2)]


def test_one_key_is_written_once(tmp_path):
    sink = JSONL(tmp_path / "t.jsonl", Trajectory)
    sink.append(episode(1))
    sink.append(episode(1, title="another"))
    assert (tmp_path / "t.jsonl").read_text().count("\n") == 1
    assert "miniwob/click-button/1/p/0" in sink and sink.values() == [episode(1)]


def test_records_come_back_sorted_whatever_the_order_of_writing(tmp_path):
    sink = JSONL(tmp_path / "t.jsonl", Trajectory)
    for seed in (3, 1, 2):
        sink.append(episode(seed))
    assert [t.task.seed for t in JSONL(tmp_path / "t.jsonl", Trajectory).values()] == [1, 2, 3]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(titles=st.lists(st.text(max_size=5), min_size=1, max_size=3))
def test_a_record_of_any_text_reads_back(tmp_path, titles):
    """A title may hold line separators that are no line end of the file, such as U+2028."""
    path = tmp_path / "t.jsonl"
    path.unlink(missing_ok=True)
    written = [episode(i, title) for i, title in enumerate([*titles, "a\u2028b\x85c\x1cd"])]
    sink = JSONL(path, Trajectory)
    for one in written:
        sink.append(one)
    assert JSONL(path, Trajectory).values() == written


# -- stages


def test_a_finished_stage_is_loaded_with_what_it_cost(outputs):
    stage = collect()
    write_json(stage.path("rows.json"), [1, 2])
    write_json(stage.path("figures", "plot.json"), [3])
    used = Usage(calls=4, prompt_tokens=30)
    stage.track(policy=used)
    stage.finish(metrics={"success": 0.5}, browser="Chromium 1")
    again = collect()
    assert again.done and str(again).startswith("finished before, will be loaded")
    assert read_json(again.folder / "metrics.json") == {"success": 0.5}
    assert sorted(again.manifest["outputs"]) == ["metrics.json", "rows.json"]
    assert again.manifest["usage"] == {"policy": used.model_dump()} and again.manifest["peak_memory_mb"] > 10
    assert again.manifest["provenance"]["browser"] == "Chromium 1"
    assert again.manifest["provenance"]["packages"]["miniwob"] == "1.1.0"
    assert not (again.folder / "progress.json").exists()
    assert read_json(outputs / "r" / "run.json")["profile"] == "smoke"


def test_an_unfinished_stage_goes_on_and_counts_its_earlier_time_and_usage():
    stage = collect()
    stage.track(policy=Usage(calls=4, seconds=1.5))
    stage.note_progress("collect", 3, 10)
    noted = read_json(stage.folder / "progress.json")
    assert (noted["label"], noted["n"], noted["total"], noted["pid"]) == ("collect", 3, 10, os.getpid())
    write_json(stage.folder / "progress.json", noted | {"seconds": 100.0})
    stage.close()
    again = collect()
    assert not again.done and 100 <= again.seconds() < 110
    again.track(policy=Usage(calls=1, seconds=0.25), judge=Usage(calls=7))
    counted = {role: (used["calls"], used["seconds"]) for role, used in again.usage().items()}
    assert counted == {"policy": (5, 1.75), "judge": (7, 0.0)}


def test_other_params_are_refused_with_the_difference_and_no_other_line():
    collect().close()
    with pytest.raises(StageError) as caught:
        collect({"tasks.max_steps": 9, "wmla.k": 7})  # wmla is not read by this stage
    lines = str(caught.value).split("\n")
    assert lines[0].endswith("r/01_collect was made with other params or inputs:")
    assert lines[1] == "  params.tasks.max_steps: 4 there, 9 now"
    assert lines[2].startswith("take another run name, or 'wevo run --fresh'")


def test_another_seed_and_another_version_are_refused():
    collect().close()
    with pytest.raises(StageError, match="params.seed: 0 there, 1 now"):
        collect({"seed": 1})
    with pytest.raises(StageError, match="version: 1 there, 2 now"):
        collect(version=2)


def test_params_that_a_stage_does_not_read_do_not_matter():
    collect().finish(metrics={})
    assert collect({"wmla.k": 7}).done


def test_what_is_kept_beside_the_episodes_does_not_matter():
    """Where they run and whether pictures are kept; a stage made before there was such a param goes on as well."""
    both = ("browser", "collect")
    stage = collect(sections=both)
    assert stage.spec["params"]["browser"].keys() == SMOKE.params.browser.model_dump().keys() - {"screenshots"}
    write_json(stage.path("screenshots", "a.png"), "a picture")
    stage.finish(metrics={})
    assert list(stage.manifest["outputs"]) == ["metrics.json"]
    assert collect({"browser.screenshots": True, "collect.workers": 7}, sections=both).done
    with pytest.raises(StageError, match="params.browser.quiet_ms"):
        collect({"browser.quiet_ms": 999}, sections=both)


def test_how_a_model_is_quantized_matters_where_a_role_is_served():
    served = {"roles.judge.engine": "vllm"}
    collect(served, sections=("roles",))
    assert collect(served | {"serve.max_adapters": 8}, sections=("roles",)).name == "01_collect"
    with pytest.raises(StageError, match="serve.quantization"):
        collect(served | {"serve.quantization": "fp8"}, sections=("roles",))


@pytest.mark.parametrize(
    ("served", "sections"), [({}, ("roles",)), ({"roles.judge.engine": "vllm"}, ("roles.policy",))]
)
def test_how_a_model_is_quantized_does_not_matter_where_none_that_is_read_is_served(served, sections):
    collect(served, sections=sections)
    assert collect(served | {"serve.quantization": "fp8"}, sections=sections).name == "01_collect"


def test_a_stage_goes_on_with_another_model_in_a_role_that_it_does_not_ask():
    collect(sections=("roles.policy",)).finish(metrics={})
    assert collect({"roles.evaluator.base": "other"}, sections=("roles.policy",)).done
    with pytest.raises(StageError, match=r"roles.policy.base"):
        collect({"roles.policy.base": "other"}, sections=("roles.policy",))


def test_a_missing_input_is_named_and_nothing_is_made(outputs):
    with pytest.raises(StageError, match="needs iter-1/02_wm_train of run 'r', and it is not done: run its notebook"):
        collect(inputs=("iter-1/02_wm_train",))
    assert not outputs.exists()


def test_a_model_is_asked_as_it_was_taught():
    taught = load_params("smoke", {"world_model.history": 1})
    open_stage("r", "02", taught, sections=("world_model",)).finish(metrics={})
    open_stage("r", "01", SMOKE, sections=("collect",)).finish(metrics={})  # did not read them: no matter
    opened = dict(sections=(), inputs=("01", "02"), must_match=("world_model.target", "world_model.history"))
    told = r"^02 of run 'r' was made otherwise than it would be used:\n  world_model.history: 1 there, 3 now\nset these"
    with pytest.raises(StageError, match=told):
        open_stage("r", "03", load_params("smoke", {"world_model.history": 3}), **opened)
    assert not (run_folder("r") / "03").exists()
    assert not open_stage("r", "03", taught, **opened).done


def test_an_input_made_anew_is_refused_with_its_name():
    def first(value):
        set_aside("r", "00_first")
        stage = open_stage("r", "00_first", SMOKE, sections=())
        write_json(stage.path("rows.json"), value)
        stage.finish(metrics={})

    first(1)
    collect(inputs=("00_first",)).finish(metrics={})
    first(1)
    assert collect(inputs=("00_first",)).done  # the same outputs again
    first(2)
    with pytest.raises(StageError, match="inputs.00_first: [0-9a-f]{16} there, [0-9a-f]{16} now"):
        collect(inputs=("00_first",))


def test_set_aside_moves_and_deletes_nothing(outputs):
    assert set_aside("r", "01_collect") is None
    for value in (1, 2):
        stage = collect()
        write_json(stage.path("rows.json"), value)
        stage.close()
        assert set_aside("r", "01_collect") == outputs / "r" / f"01_collect.old-{value}"
    assert [read_json(outputs / "r" / f"01_collect.old-{i}" / "rows.json") for i in (1, 2)] == [1, 2]
    assert not (outputs / "r" / "01_collect").exists()


@pytest.mark.parametrize("run", ["a/b", "/tmp/x", "..", ".", "", "a b", "a\n"])
def test_a_run_name_that_is_no_folder_name_is_refused(run):
    with pytest.raises(StageError, match="is no folder name: use letters, digits"):
        run_folder(run)


# -- two processes

HOLD = """
import sys, time
from wevo_nb.params import load_params
from wevo_nb.runs import open_stage
stage = open_stage("r", "01_collect", load_params("smoke"), sections=("tasks",))
print("open", flush=True)
time.sleep(60)
"""


def test_a_second_process_is_refused_until_the_first_is_gone_even_by_kill_9():
    holder = subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(StageError, match="another process works on .*01_collect: wait for it, or stop it"):
            collect()
    finally:
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
        holder.stdout.close()
    assert not collect().done


# -- disk


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 64 kB, filled up to the last page. Needs root."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], capture_output=True)
    if made.returncode:
        pytest.skip(f"cannot mount a tmpfs: {made.stderr.decode().strip()}")
    (folder / "filler").write_bytes(b"x" * (56 * 1024))
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_is_told_and_nothing_written_is_lost(small_disk):
    """The write that fails may leave half a line; a later one must not go on behind it."""
    sink = JSONL(small_disk / "t.jsonl", Trajectory)
    sink.append(episode(1))
    with pytest.raises(StageError, match="the disk is full, .*t.jsonl could not grow: make room and run the same"):
        sink.append(episode(2, title="x" * 20_000))
    with pytest.raises(StageError, match="the disk is full, .*metrics.json could not grow"):
        write_json(small_disk / "metrics.json", "x" * 20_000)
    (small_disk / "filler").unlink()
    sink.append(episode(3))
    assert [t.task.seed for t in JSONL(small_disk / "t.jsonl", Trajectory).values()] == [1, 3]


def test_a_device_without_room_is_a_full_disk_too(tmp_path):
    sink = JSONL(tmp_path / "t.jsonl", Trajectory)
    (tmp_path / "t.jsonl").symlink_to("/dev/full")
    with pytest.raises(StageError, match="the disk is full"):
        sink.append(episode(1))
    assert len(sink) == 0


def test_room_is_asked_for_before_the_work(tmp_path):
    require_space(tmp_path, 0.0001)
    with pytest.raises(StageError, match="GB free and this stage needs 9000000.0 GB: make room, or set WEVO_OUTPUTS"):
        require_space(tmp_path, 9_000_000)


def test_json_is_replaced_whole_and_progress_moves_with_the_bar(tmp_path):
    write_json(tmp_path / "a.json", {"x": 1})
    write_json(tmp_path / "a.json", {"x": 2})
    assert json.loads((tmp_path / "a.json").read_text()) == {"x": 2} and len(list(tmp_path.iterdir())) == 1
    assert read_json(tmp_path / "b.json") is None
    stage = collect()
    bar = stage.progress(total=10, label="collect", initial=2)
    bar.update(3)
    bar.close()
    assert read_json(stage.folder / "progress.json")["n"] == 5


def trained(name: str, rows: list, **overrides):
    """A stage of notebook 04 that has written its rows."""
    stage = open_stage("r", name, load_params("smoke", overrides).without("sft.arms"), sections=("sft", "llm"))
    write_json(stage.path("rows.json"), rows)
    return stage


def test_the_same_rows_trained_the_same_way_are_found_and_others_are_not(outputs):
    """What differs: the rows, the epochs, or that it is not finished. The arm itself is no difference."""
    first = trained("iter-1/04_self_improve", ["a", "b"])
    assert same_rows(trained("04_webevolver", ["a", "b"], **{"sft.arm": "webevolver"})) is None  # not finished
    first.finish(metrics={})
    assert same_rows(trained("04_mixed", ["a", "b"], **{"sft.arm": "mixed"})) == first.folder
    assert same_rows(trained("04_explorer", ["b", "a"], **{"sft.arm": "explorer"})) is None
    assert same_rows(trained("04_more_real", ["a", "b"], **{"sft.arm": "more_real", "sft.epochs": 9})) is None
    assert same_rows(first) is None


def test_policies_of_the_same_rows_are_named_as_one(outputs):
    for name, rows in (("iter-2/04_self_improve", ["b"]), ("iter-1/04_self_improve", ["a"]), ("04_webevolver", ["a"])):
        trained(name, rows).finish(metrics={})
    trained("04_mixed", ["a"])  # not finished
    assert twins(outputs / "r") == [("self_improve_1", "webevolver")]


def test_a_linked_folder_shares_its_weights_and_nothing_else(tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    for name in ("model.safetensors", "config.json", ".lock"):
        (model / name).write_text(name)
    link_tree(model, tmp_path / "taken" / "model")
    taken = tmp_path / "taken" / "model"
    assert sorted(path.name for path in taken.iterdir()) == ["config.json", "model.safetensors"]
    assert (taken / "model.safetensors").samefile(model / "model.safetensors")
    assert not (taken / "config.json").samefile(model / "config.json")


def test_the_gpus_of_a_machine_are_noted(tmp_path, monkeypatch):
    """As nvidia-smi says them; nothing where there is none."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpus() == []
    said = tmp_path / "nvidia-smi"
    said.write_text("#!/bin/sh\necho 'NVIDIA H100, 580.1, 81559 MiB'\n")
    said.chmod(0o755)
    assert gpus() == ["NVIDIA H100, 580.1, 81559 MiB"]
    said.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed'\nexit 9\n")
    assert gpus() == []
