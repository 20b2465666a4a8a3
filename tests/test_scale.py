"""What a GPU host would do, small and on a CPU: `pytest -m scale` (minutes).

The launch path of the full profile over two processes, weights split by FSDP2, adapters over the
small model in full and in 4 bit, kills in the middle, and the notebooks with 4-bit training.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pandas as pd
import psutil
import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from stand_ins import ONE_THREAD
from test_sft import PARAMS, ROWS

from wevo_nb import launch, sft
from wevo_nb.llm import Request
from wevo_nb.models import Engine, find_model, load_tokenizer, load_weights
from wevo_nb.params import ROOT, load_params
from wevo_nb.sections import SFTParams
from wevo_nb.targets import Row

pytestmark = pytest.mark.scale
TINY = {"base": "tiny", "llm": ONE_THREAD, "seed": 0}
HERE = Path(__file__).parent


def losses_of(folder: Path) -> list[float]:
    return pd.read_csv(folder / "loss.csv").loss.tolist()


# -- over processes


def of_paper(**different):
    """The training of paper_70b, at the size of eight short rows: full weights, FSDP2."""
    paper = load_params("paper_70b").params.sft
    small = {"batch": 4, "accumulate": 1, "epochs": 2, "learning_rate": 1e-2, "checkpoints": 1, "freeze_layers": 0}
    small |= {"attention": "sdpa", "optimizer": "adamw_torch"}  # the profile's need a GPU
    one = paper.launch.model_copy(update={"hosts": 1, "processes": 1, "sharding": "none"})
    return paper.model_copy(update=small | {"launch": one} | different), paper


def test_the_launch_of_the_full_profile_trains_as_one_process_does(tmp_path):
    """In float32 the losses of four steps agree to 1e-5 and the weights to 1e-4: sums are taken in another order."""
    alone, paper = of_paper()
    assert launch.train(ROWS, tmp_path / "one", params=alone, **TINY) == "1 process on cpu"
    two = alone.launch.model_copy(update={"processes": 2, "sharding": paper.launch.sharding})
    seen = []
    ran = launch.train(
        ROWS, tmp_path / "two", params=alone.model_copy(update={"batch": 2, "launch": two}), on_step=seen.append, **TINY
    )
    assert ran == (
        "2 processes on cpu (MULTI_CPU): plain data parallel, for accelerate splits no weights on a CPU; "
        "with GPUs it is FSDP2"
    )
    assert losses_of(tmp_path / "two") == pytest.approx(losses_of(tmp_path / "one"), abs=1e-5)
    assert [one.step for one in seen] == [1, 2, 3, 4] and seen[-1].steps == 4 and seen[-1].tokens_per_second > 0
    one, two = (load_weights(str(tmp_path / x / "model"), torch.float32).state_dict() for x in ("one", "two"))
    assert one.keys() == two.keys()
    assert max((one[name] - two[name]).abs().max() for name in one) < 1e-4
    assert not (tmp_path / "two" / "checkpoints").exists() and not (tmp_path / "two" / "job.json").exists()


@pytest.fixture
def slurm_job(tmp_path, monkeypatch) -> Path:
    """A Slurm job of two nodes that are both this host; what its srun was asked stands in the file."""
    (tools := tmp_path / "slurm").mkdir()
    asked = tmp_path / "srun.txt"
    scripts = {
        "scontrol": '[ "$*" = "show hostnames node[1-2]" ] && printf "localhost\\nlocalhost\\n"',
        "srun": f'echo "$1 $2 $3 $4 $5" >> {asked}; shift 5; exec "$@"',
    }
    for name, script in scripts.items():
        (tools / name).write_text(f"#!/bin/sh\n{script}\n")
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "node[1-2]")
    return asked


def test_a_training_over_the_nodes_of_a_slurm_job_starts_them_all(tmp_path, slurm_job):
    """Two hosts of one process each, the second by srun, the job's first node as main_host: the losses of one."""
    alone, _ = of_paper()
    launch.train(ROWS, tmp_path / "one", params=alone, **TINY)
    hosts = alone.launch.model_copy(update={"hosts": 2, "main_host": "host-0"})
    params = alone.model_copy(update={"batch": 2, "launch": hosts})
    ran = launch.train(ROWS, tmp_path / "two", params=params, **TINY)
    assert ran.startswith("2 processes on cpu (MULTI_CPU)")
    assert losses_of(tmp_path / "two") == pytest.approx(losses_of(tmp_path / "one"), abs=1e-5)
    assert slurm_job.read_text() == "--nodes=1 --ntasks=1 --overlap -w localhost\n"
    first, second = launch.described(hosts, ONE_THREAD, tmp_path).splitlines()
    assert "--machine_rank 0 --main_process_ip localhost" in first and "srun" not in first
    assert second.startswith("host 1: srun --nodes=1 --ntasks=1 --overlap -w localhost ")
    three = hosts.model_copy(update={"hosts": 3})  # more than the job has: by hand, at the address of the params
    assert "srun" not in (told := launch.described(three, ONE_THREAD, tmp_path)) and "--main_process_ip host-0" in told


def test_a_host_that_fails_ends_the_training_on_all(tmp_path, slurm_job):
    alone, _ = of_paper(freeze_layers=7)
    hosts = alone.launch.model_copy(update={"hosts": 2})
    with pytest.raises(launch.TrainingError, match="freeze_layers is 7, and the model has 3 blocks"):
        launch.train(ROWS, tmp_path / "out", params=alone.model_copy(update={"launch": hosts}), **TINY)


def test_a_failed_launch_tells_its_cause(tmp_path):
    alone, _ = of_paper()
    two = alone.launch.model_copy(update={"processes": 2})
    params = alone.model_copy(update={"launch": two, "freeze_layers": 7})
    with pytest.raises(launch.TrainingError, match="freeze_layers is 7, and the model has 3 blocks"):
        launch.train(ROWS, tmp_path, params=params, **TINY)


def test_weights_split_by_fsdp2_train_as_whole_ones_do(tmp_path):
    """torch's fully_shard over two gloo processes, wrapped block by block: losses to 1e-5, weights to 1e-4."""
    tokenizer = load_tokenizer(find_model("tiny"))
    job = tmp_path / "job.json"
    job.write_text(json.dumps([batch_of(rows, tokenizer) for rows in (ROWS[:4], ROWS[4:])]))
    worker = str(HERE / "fsdp_worker.py")
    subprocess.run([sys.executable, worker, str(job)], check=True)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    subprocess.run([*torchrun, worker, str(job)], check=True)
    one, two = (json.loads((tmp_path / f"told-{n}.json").read_text()) for n in (1, 2))
    assert one["split"] == 0 and two["split"] == two["parameters"] > 20
    assert one["blocks"] == 0 and two["blocks"] == 3  # each block of the tiny model by itself, as fsdp2.yaml says
    assert two["losses"] == pytest.approx(one["losses"], abs=1e-5) and one["losses"][1] < one["losses"][0]
    assert one["reloads"] and two["reloads"]
    one, two = (load_file(tmp_path / f"weights-{n}.safetensors") for n in (1, 2))
    assert one.keys() == two.keys() and max((one[name] - two[name]).abs().max() for name in one) < 1e-4


def split_in_4_bit(folder: Path, optimizer: str, processes: int) -> dict:
    """What tests/fsdp_4bit_worker.py tells of the tiny model in nf4, over so many processes."""
    launch_of = PARAMS.launch.model_copy(update={"processes": 2, "sharding": "fsdp2"})
    how = {"method": "qlora", "lora_rank": 4, "launch": launch_of, "gradient_checkpointing": True}
    params = PARAMS.model_copy(update=how)
    asked = {"params": params.model_dump(include=set(SFTParams.model_fields)), "optimizer": optimizer}
    ids = load_tokenizer(find_model("tiny"))("Press the red button, then the blue one.")["input_ids"]
    (job := folder / f"{optimizer}-{processes}.json").write_text(json.dumps(asked | {"input_ids": [ids]}))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(processes)]
    subprocess.run([*torchrun, str(HERE / "fsdp_4bit_worker.py"), str(job)], check=True)
    return json.loads((folder / f"told-{optimizer}-{processes}.json").read_text())


def test_4_bit_weights_split_by_fsdp2_compute_what_whole_ones_do(tmp_path):
    """Their bytes travel as bfloat16 numbers (bnb_4bit_quant_storage): not one of them may change on the way."""
    one, two = (split_in_4_bit(tmp_path, "adamw", n) for n in (1, 2))
    assert two["split"] == two["of"] == 21 and two["apart"] == one["apart"] == 0.0
    assert two["losses"] == pytest.approx(one["losses"], abs=1e-4) and two["losses"][1] < two["losses"][0]
    assert two["adapter"] == 42 and not two["problem"]


def test_a_paged_optimizer_cannot_step_what_fsdp2_splits(tmp_path):
    """Why training_checks.check_optimizer refuses it: where this begins to pass, the refusal can go."""
    told = split_in_4_bit(tmp_path, "paged", 2)
    assert told["losses"] == [] and "does not have a sharding strategy registered" in told["problem"]


def batch_of(rows: list[Row], tokenizer) -> dict:
    """Token ids, and labels of the reply alone, padded on the right to one length."""
    ids, labels = [], []
    for row in rows:
        prompt = tokenizer.apply_chat_template(list(row.messages), add_generation_prompt=True, return_dict=False)
        chat = [*row.messages, {"role": "assistant", "content": row.reply}]
        whole = tokenizer.apply_chat_template(chat, return_dict=False)
        ids.append(whole)
        labels.append([-100] * len(prompt) + whole[len(prompt) :])
    width = max(map(len, ids))
    pad = lambda rows, value: [row + [value] * (width - len(row)) for row in rows]  # noqa: E731
    return {"input_ids": pad(ids, tokenizer.pad_token_id), "labels": pad(labels, -100)}


# -- kills


KILLED = """
import json, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_scale import TINY, killed_params
from test_sft import ROWS
from wevo_nb import launch
launch.train(ROWS, Path({folder!r}), params=killed_params(), on_step=lambda s: print(s.step, flush=True), **TINY)
"""


def killed_params():
    """Over two processes, 40 steps, four an epoch, with a checkpoint after every seventh: inside an epoch."""
    alone, _ = of_paper(epochs=10, batch=1, checkpoints=5, learning_rate=1e-3)
    return alone.model_copy(update={"launch": alone.launch.model_copy(update={"processes": 2})})


def test_a_training_over_processes_that_is_killed_goes_on_to_the_same_step(tmp_path):
    """kill -9 to the one that started it: its processes end too, and the same call ends in the same weights."""
    launch.train(ROWS, tmp_path / "straight", params=killed_params(), **TINY)
    folder = tmp_path / "killed"
    script = KILLED.format(tests=str(HERE), folder=str(folder))
    running = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    for line in running.stdout:
        if int(line) >= 12:
            break
    started = psutil.Process(running.pid).children(recursive=True)
    assert len(started) >= 3  # the launcher and its two processes
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    assert not psutil.wait_procs(started, timeout=20)[1]
    assert not (folder / "loss.csv").exists() and list((folder / "checkpoints").glob("checkpoint-*"))
    again = []
    launch.train(ROWS, folder, params=killed_params(), on_step=again.append, **TINY)
    assert again[0].step in (8, 15, 22, 29, 36) and again[-1].step == 40  # after one of the checkpoints
    assert losses_of(folder) == losses_of(tmp_path / "straight") and len(losses_of(folder)) == 40
    one, two = (load_weights(str(tmp_path / x / "model"), torch.float32).state_dict() for x in ("straight", "killed"))
    assert all(torch.equal(one[name], two[name]) for name in one)


# -- adapters over the small model


SIXTEEN = [
    Row(
        ({"role": "system", "content": "Say which button to press."}, {"role": "user", "content": f"Room {n}."}),
        f"Press button {(n * 7) % 16}.",
        "rooms",
    )
    for n in range(16)
]


def logits_of(model, ids: list[int]) -> torch.Tensor:
    """Over one text, as in training: on a CPU 4-bit weights that only answer are laid out otherwise."""
    with torch.no_grad():
        return model.train()(input_ids=torch.tensor([ids])).logits


@pytest.mark.parametrize("method", ["lora", "qlora"])
def test_an_adapter_over_the_small_model_learns_sixteen_rows_by_heart(tmp_path, monkeypatch, method):
    """Sixteen rooms, a button each: known by heart after training, in the served answers too, and not before.

    The adapter learns in float32, over weights in float32 or, for qlora, in 4 bit. Loaded anew over such weights it
    has the logits that it had in memory. It is served over the base in float32.
    """
    seen, save, ids = {}, sft.save, load_tokenizer(find_model("smollm2-135m"))("Room 3.")["input_ids"]

    def look(trainer, *more, **how):
        seen["dtypes"] = {value.dtype for value in trainer.model.parameters() if value.requires_grad}
        seen["logits"] = logits_of(trainer.model, ids)
        save(trainer, *more, **how)

    monkeypatch.setattr(sft, "save", look)
    params = PARAMS.model_copy(
        update={"method": method, "batch": 8, "epochs": 25, "lora_learning_rate": 2e-3, "merge": method == "lora"}
    )
    llm = ONE_THREAD.model_copy(update={"threads": 2})
    launch.train(SIXTEEN, tmp_path, base="smollm2-135m", params=params, llm=llm, seed=0)
    losses = losses_of(tmp_path)
    assert len(losses) == 50 and sum(losses[-2:]) / 2 < 0.1 < losses[0]
    adapter = tmp_path / "model"
    assert seen["dtypes"] == {torch.float32}
    assert json.loads((adapter / "adapter_config.json").read_text())["base_model_name_or_path"] == "smollm2-135m"
    weights = sft.load_to_train(find_model("smollm2-135m"), params, torch.float32)
    again = logits_of(PeftModel.from_pretrained(weights, str(adapter)), ids)
    assert (again - seen["logits"]).abs().max() < 1e-4
    engine = Engine(llm)
    replies = tuple(row.reply for row in SIXTEEN)
    asked = [Request(messages=row.messages, choices=replies) for row in SIXTEEN]
    right = lambda model: sum(  # noqa: E731
        answer[0].text == row.reply for answer, row in zip(model.answer(asked), SIXTEEN, strict=True)
    )
    before = right(engine.model("smollm2-135m"))
    after = right(engine.model("smollm2-135m", str(adapter)))
    assert before <= 4 and after == 16
    if params.merge:
        assert right(engine.model(str(tmp_path / "merged"))) == 16
    engine.close()


# -- the notebooks


@pytest.mark.parametrize(("notebook", "stage"), [("02_wm_train", "02_wm_train"), ("04_final_sft", "04_self_improve")])
def test_a_notebook_trains_in_4_bit_headless(smoke_run, tmp_path, notebook, stage):
    shutil.copytree(smoke_run, tmp_path / "mine")
    section = "world_model_sft" if stage == "02_wm_train" else "sft"
    overrides = {section: {"method": "qlora"}}
    given = {"profile": "smoke", "run": "mine", "iteration": 1, "overrides": overrides}
    words = ["-m", "papermill", str(ROOT / "notebooks" / f"{notebook}.ipynb"), "out.ipynb", "-y", json.dumps(given)]
    environment = os.environ | {"WEVO_OUTPUTS": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, *words], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    folder = tmp_path / "mine" / "iter-1" / stage
    assert (folder / "manifest.json").exists() and (folder / "model" / "adapter_model.safetensors").exists()
    losses = losses_of(folder)
    assert losses[-1] < losses[0]


@pytest.fixture(scope="module")
def smoke_run(tmp_path_factory) -> Path:
    """Iteration 1 of a smoke run, collected."""
    outputs = tmp_path_factory.mktemp("scale")
    words = ["-m", "wevo_nb.cli", "run", "--profile", "smoke", "--only", "01", "--iteration", "1"]
    environment = os.environ | {"WEVO_OUTPUTS": str(outputs), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return outputs / "smoke"
