"""Training over many devices and hosts: by `accelerate launch`, with the same rows and the same code.

A job file says all of a training; every process of the launch reads it and runs sft.train. The
first writes its progress to a file, which the notebook reads. Within a Slurm job of enough nodes the
other hosts are started by srun; elsewhere by whoever runs the lines of `described` there. Where the
rows of an epoch do not divide by what all processes take at once, accelerate fills its last step
with rows of its first. Used by notebooks 02 and 04.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from wevo_nb import lifeline, sft
from wevo_nb.params import ROOT
from wevo_nb.runs import write_json
from wevo_nb.sections import LaunchParams, LLMParams, SFTParams
from wevo_nb.sft import StepDone
from wevo_nb.targets import Row
from wevo_nb.training_checks import TrainingError, check_optimizer, check_packages

POLL_S = 0.5
LOG_LINES = 25  # of a failed launch, shown


def launch_command(
    launch: LaunchParams, job: Path, *, rank: int = 0, cpu: bool = False, precision: str = "bf16"
) -> list[str]:
    """What starts host `rank` of a training in `precision` bf16 or no; `job` lies where every host can read it.

    On a CPU accelerate starts several processes only by a config that says so: a copy beside the job.
    """
    many = launch.hosts > 1
    config = job.with_name("accelerate.yaml") if cpu else ROOT / "params" / "accelerate" / f"{launch.sharding}.yaml"
    return [
        sys.executable, "-m", "accelerate.commands.launch",
        "--config_file", str(config),
        "--mixed_precision", precision,
        "--num_processes", str(launch.hosts * launch.processes),
        "--num_machines", str(launch.hosts),
        *(["--machine_rank", str(rank), "--main_process_ip", launch.main_host] if many else []),
        "--main_process_port", str(launch.main_port),
        "-m", "wevo_nb.launch", str(job),
    ]  # fmt: skip


def slurm_nodes(launch: LaunchParams) -> list[str]:
    """The nodes of the Slurm job that this runs in, the first being this host; none where there are too few of them."""
    named = os.environ.get("SLURM_JOB_NODELIST", "")
    if launch.hosts == 1 or not named or not (shutil.which("scontrol") and shutil.which("srun")):
        return []
    told = subprocess.run(["scontrol", "show", "hostnames", named], capture_output=True, text=True)
    nodes = told.stdout.split()
    return nodes[: launch.hosts] if told.returncode == 0 and len(nodes) >= launch.hosts else []


def host_commands(launch: LaunchParams, job: Path, **how) -> list[list[str]]:
    """What starts each host of a training, in order. Within a Slurm job its first node stands for launch.main_host."""
    nodes = slurm_nodes(launch)
    if nodes:
        launch = launch.model_copy(update={"main_host": nodes[0]})
    commands = [launch_command(launch, job, rank=rank, **how) for rank in range(launch.hosts)]
    srun = ["srun", "--nodes=1", "--ntasks=1", "--overlap", "-w"]
    return commands[:1] + [[*srun * bool(nodes), *nodes[r : r + 1], *commands[r]] for r in range(1, launch.hosts)]


def described(launch: LaunchParams, llm: LLMParams, folder: Path) -> str:
    """What a training is run by: this process, or a line for each host, of which the notebook runs the first.

    Within a Slurm job it runs them all.
    """
    if launch.hosts * launch.processes == 1:
        return "trained in this process"
    commands = host_commands(launch, folder / "job.json", cpu=not sft.has_gpu(), precision=sft.precision(llm))
    lines = map(shlex.join, commands)
    return "\n".join(f"host {r}{' (this one)' * (r == 0)}: {line}" for r, line in enumerate(lines))


def train(
    rows: Sequence[Row],
    folder: Path,
    *,
    params: SFTParams,
    on_step: Callable[[StepDone], None] | None = None,
    **how,
) -> str:
    """sft.train with the same arguments, in this process or over those that `params.launch` names.

    This host is the first one; on the others, but within a Slurm job, the lines of `described` are to be run. A
    training that fails raises TrainingError with the end of its log. Returns what it ran over.
    """
    launch = params.launch
    if launch.hosts * launch.processes == 1:
        return sft.train(rows, folder, params=params, on_step=on_step, **how)
    check_packages(params)
    check_optimizer(params)
    folder.mkdir(parents=True, exist_ok=True)
    job, steps, log = folder / "job.json", folder / "steps.jsonl", folder / "launch.log"
    asked = {key: value.model_dump() if isinstance(value, LLMParams) else value for key, value in how.items()}
    said = {
        "params": params.model_dump(include=set(SFTParams.model_fields)),
        **asked,
        "rows": [row._asdict() for row in rows],
    }
    write_json(job, said)
    steps.unlink(missing_ok=True)
    if cpu := not sft.has_gpu():
        config = (ROOT / "params" / "accelerate" / f"{launch.sharding}.yaml").read_text()
        job.with_name("accelerate.yaml").write_text(f"{config}use_cpu: true\n")
    commands = host_commands(launch, job, cpu=cpu, precision=sft.precision(how["llm"]))
    ours = commands if slurm_nodes(launch) else commands[:1]
    with log.open("w") as out:
        how = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": subprocess.STDOUT, "start_new_session": True}
        outlived = [sys.executable, "-P", lifeline.__file__, str(os.getpid())]
        running = [subprocess.Popen([*outlived, *command], cwd=ROOT, **how) for command in ours]
        try:
            _watch(running, steps, on_step)
        finally:
            for one in running:
                lifeline.end_session(one.pid)
                one.wait()
    told = [json.loads(line) for line in steps.read_text().splitlines()] if steps.exists() else []
    if any(one.returncode for one in running):
        causes = [line["failed"] for line in told if "failed" in line]
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-LOG_LINES:])
        why = f" {causes[0]} (all of it: {log})" if causes else f"\n{tail}"
        raise TrainingError(f"the training over {launch.hosts * launch.processes} processes failed:{why}")
    ran = told[-1]["ran"]
    job.unlink()
    steps.unlink()
    return ran


def _watch(running: Sequence[subprocess.Popen], steps: Path, on_step: Callable[[StepDone], None] | None):
    """Hands on the lines that the first process writes, until every host has ended, or one that failed."""
    read = 0
    while True:
        codes = [one.poll() for one in running]
        text = steps.read_text() if steps.exists() else ""
        whole = text[read : text.rfind("\n") + 1]
        read += len(whole)
        for line in map(json.loads, whole.splitlines()):
            if on_step and "step" in line:
                on_step(StepDone(**line))
        if None not in codes or any(codes):
            return
        time.sleep(POLL_S)


def main(job: Path):
    """One process of a launch."""
    said = json.loads(job.read_text())
    rows = [Row(**row) for row in said.pop("rows")]
    steps = job.with_name("steps.jsonl")
    note = lambda **line: steps.open("a").write(json.dumps(line) + "\n")  # noqa: E731
    said |= {"params": SFTParams(**said["params"]), "llm": LLMParams(**said["llm"])}
    try:
        ran = sft.train(rows, job.parent, on_step=lambda done: note(**done._asdict()), **said)
    except Exception as problem:
        note(failed=f"{type(problem).__name__}: {problem}")
        raise
    if os.environ.get("RANK", "0") == "0":
        note(ran=ran)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
