"""Training over many devices and hosts: the command of `accelerate launch`, and its job.

A job is a file that says all of a training: rows, base, params. Every process of the launch reads
it and runs sft.train. Used by notebooks 02 and 04 where `launch` asks for more than one process.
"""

from __future__ import annotations

import sys
from pathlib import Path

from wevo_nb.params import ROOT, LaunchParams


def launch_command(launch: LaunchParams, job: Path, *, rank: int = 0, cpu: bool = False) -> list[str]:
    """What starts host `rank` of a training; `job` lies where every host can read it."""
    many = launch.hosts > 1
    return [
        sys.executable, "-m", "accelerate.commands.launch",
        "--config_file", str(ROOT / "params" / "accelerate" / f"{launch.sharding}.yaml"),
        "--num_processes", str(launch.hosts * launch.processes),
        "--num_machines", str(launch.hosts),
        *(["--machine_rank", str(rank), "--main_process_ip", launch.main_host] if many else []),
        "--main_process_port", str(launch.main_port),
        *(["--cpu"] if cpu else []),
        "-m", "wevo_nb.launch", str(job),
    ]  # fmt: skip
