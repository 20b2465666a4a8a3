"""What a run needs, before anything slow: stages, models, commands, calls, memory, disk, hours, cost.

Puts memory.py, workload.py, costs.py and machine.py together as plain data, from the params alone: no
weights are loaded or fetched and nothing is started. Of a base on the hub that model_shapes.json does
not know its config alone is fetched (memory.shape_of). Calls, hours and cost are estimates;
`assumptions` says on what. Used by `wevo plan`. Paper: none; it reports neither hardware nor hours.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from wevo_nb import chain, costs
from wevo_nb.costs import form_of, limits_of, trained_role
from wevo_nb.launch import launch_command
from wevo_nb.machine import find_weights, missing, roles_of
from wevo_nb.memory import GB, Footprint, host_bytes, serving, shape_of, training, weight_bytes
from wevo_nb.params import Params
from wevo_nb.runs import run_folder
from wevo_nb.sections import LORA_RANKS, SFTParams
from wevo_nb.sft import precision
from wevo_nb.training_checks import steps_split_weights
from wevo_nb.vllm_server import adapter_kind, servers_at_once, vllm_command
from wevo_nb.workload import ASSUMPTIONS, CHARS_A_TOKEN, Load, Work, by_role, count_tasks, load_of, sizes

FIRST_PORT = 8000
PLAYED = ("01_collect", "03_synthesize", "05_wmla")  # notebooks whose episodes workers may play
TRAININGS = {"sft": "policy", "world_model_sft": "world_model"}  # sections, and whose training they hold


class Served(NamedTuple):
    """A model with weights of its own that answers in a stage, and the adapters laid over it, by name."""

    engine: str
    base: str
    weights: str
    adapters: dict[str, str]


class Phase(NamedTuple):
    """A part of a run that fills devices: `answering` or `training`; which model, on how many of them, and how."""

    kind: str
    engine: str
    base: str
    model: str
    devices: int
    footprint: Footprint


def plan(profile: str, overrides: dict) -> dict:
    """Everything that `wevo plan` tells, as values that JSON holds. Raises ParamsError.

    `fits` is False where the hardware section cannot hold the run; `problems` then says by how much,
    with the cure. `missing` is what this machine lacks. Memory is GB on one device, at most: `weights_gb`,
    `kv_gb`, ... are each the largest of the phases, `per_gpu_gb` is that of the fullest phase.
    `host_gb` is the memory of the first host itself, as its trainings need it; on a CPU that is all there is.
    """
    steps = chain.plan(profile, overrides)
    params = steps[0].resolved.params
    tasks = count_tasks(params)
    loads = [load_of(step, tasks) for step in steps]
    servers = [served(profile, step, load) for step, load in zip(steps, loads, strict=True)]
    phases = phases_of(params, steps, servers)
    together = max(in_turns(profile, step, load) for step, load in zip(steps, loads, strict=True))
    problems = list(problems_of(params, phases, together))
    of_stage = [
        costs.hours(params, step, load, [(one.engine, one.base) for one in opened])
        for step, load, opened in zip(steps, loads, servers, strict=True)
    ]
    disk, total, roles = costs.disk_gb(params, steps, loads), sum(of_stage), by_role(loads)
    memory, cost = _memory(phases), costs.cost(params, total, roles)
    host = _host_gb(params) or memory["per_gpu_gb"]
    lacking = missing(params, profile=profile, memory_gb=host, disk_gb=disk, no_tasks=tasks.missing)
    return {
        "profile": profile,
        "fits": not problems,
        "problems": problems,
        "stages": [_stage(*row) for row in zip(steps, loads, of_stage, strict=True)],
        "models": _models(params),
        "commands": _commands(profile, params, steps, servers),
        "calls": {role: round(one.calls) for role, one in roles.items()},
        "tokens": {r: {"prompt": round(one.prompt), "completion": round(one.completion)} for r, one in roles.items()},
        "memory": memory,
        "host_gb": host,
        "phases": [_phase_row(phase) for phase in phases],
        "disk_gb": round(disk, 1),
        "hours": round(total, 2),
        "cost": round(sum(cost.values()), 2),
        "costs": {name: round(usd, 2) for name, usd in cost.items()},
        "missing": [one._asdict() for one in lacking],
        "assumptions": _assumptions(params),
    }


# -- what fills the devices


def served(profile: str, step: chain.Planned, load: Load) -> list[Served]:
    """The models with weights of their own that a stage asks; hosted ones are not among them.

    An adapter's training adds a name to its base; a full one is a model of its own. Notebook 05 takes one
    arm after the other, so of policies with weights of their own one at a time.
    """
    roles, params, found = roles_of(step.resolved.params), step.resolved.params, {}
    for work in load.work:
        role = roles[work.role]
        if role.engine == "openai" or not work.calls:
            continue
        key, folder, whole = _weights_of(profile, params, work)
        one = found.setdefault(key, Served(role.engine, role.base, key, {}))
        if laid := role.adapter if not folder else "" if whole else folder:
            one.adapters[f"{adapter_kind(Path(laid))}-<hash>"] = laid
    policies = [key for key in found if "/04_" in key] if step.notebook == "05_wmla" else []
    return [one for key, one in found.items() if key not in policies[1:]]


def in_turns(profile: str, step: chain.Planned, load: Load) -> int:
    """How many servers a stage asks in turns: one policy at a time, and what it is asked beside."""
    params, roles = step.resolved.params, roles_of(step.resolved.params)
    policies, others = set(), set()
    for work in load.work:
        if roles[work.role].engine == "vllm" and work.calls and not work.apart:
            (policies if work.role == "policy" else others).add(_weights_of(profile, params, work)[0])
    return len(others) + bool(policies - others)


def _weights_of(profile: str, params: Params, work: Work) -> tuple[str, str, bool]:
    """What a server is started with, the folder of the training if there was one, and whether that is a whole model."""
    folder = str(run_folder(profile) / work.trained / "model") if work.trained else ""
    whole = bool(folder) and limits_of(params, work.role).method == "full"
    return folder if whole else roles_of(params)[work.role].base, folder, whole


def phases_of(params: Params, steps: Sequence[chain.Planned], servers: Sequence[Sequence[Served]]) -> list[Phase]:
    """Answering, for each base the fullest, and both trainings."""
    found: dict[str, Phase] = {}
    for one in (one for opened in servers for one in opened if one.engine == "vllm"):
        phase = _server(params, one)
        if one.base not in found or phase.footprint.total > found[one.base].footprint.total:
            found[one.base] = phase
    here = [
        _together(params, opened, copies=copies_of(params, step))
        for step, opened in zip(steps, servers, strict=True)
        if any(one.engine != "vllm" for one in opened)
    ]
    fullest = sorted(here, key=lambda phase: phase.footprint.total)[-1:]
    return [*found.values(), *fullest, *(_training(params, role) for role in ("policy", "world_model"))]


def _server(params: Params, one: Served) -> Phase:
    serve = params.serve
    used = serving(
        shape_of(one.base),
        form_of(params, "vllm"),
        tokens=params.browser.contexts * serve.max_model_len,
        tensor=serve.tensor_parallel,
        pipeline=serve.pipeline_parallel,
        adapters=serve.max_adapters,
        rank=serve.max_lora_rank,
    )
    return Phase("answering", "vllm", one.base, one.base, serve.tensor_parallel * serve.pipeline_parallel, used)


def copies_of(params: Params, step: chain.Planned) -> int:
    """How often the models of a stage lie in memory: once, and once in each worker of a host (on its first GPU)."""
    how, hardware = params.collect, params.hardware
    alone = how.backend == "local" or step.notebook not in PLAYED
    return 1 if alone else 1 + math.ceil(how.workers / (hardware.hosts if how.address else 1))


def _together(params: Params, opened: Sequence[Served], *, copies: int) -> Phase:
    """The models of a stage that answer in one process lie side by side in its memory, in so many processes."""
    size, here = sizes(params), [one for one in opened if one.engine != "vllm"]
    tokens = round(params.llm.batch * (max(size.policy, size.world_model) + params.world_model.max_tokens))
    how = {"tokens": tokens, "rank": params.sft.lora_rank, "cpu": not params.hardware.gpus}
    form = form_of(params, "transformers")
    parts = [serving(shape_of(one.base), form, adapters=len(one.adapters), **how) for one in here]
    used = Footprint(*map(sum, zip(*parts, strict=True)))._replace(other=parts[0].other)
    used = Footprint(*(copies * part for part in used))
    names = ", ".join(sorted({one.base for one in here}))
    where = "in this process" if copies == 1 else f"in {copies} processes"
    return Phase("answering", "transformers", here[0].base, f"{names}, {where}", 1, used)


def _training(params: Params, role: str, limits: SFTParams | None = None) -> Phase:
    """The training of the policy or of the world model; `limits` in place of the profile's.

    Notebook 02 asks the untrained world model first: one that answers in its process stays in memory beside.
    """
    limits, asked = limits or limits_of(params, role), roles_of(params)[role]
    most = params.policy.max_tokens if role == "policy" else params.world_model.max_tokens
    if role == "world_model" and limits.gate.cut_off:  # lets replies through that are longer: up to a whole page
        most = max(most, math.ceil(params.observation.max_chars / CHARS_A_TOKEN))
    used = training(shape_of(asked.base), limits, supervised=most, cpu=not params.hardware.gpus)
    if role == "world_model" and asked.engine == "transformers":
        untrained = weight_bytes(shape_of(asked.base), form_of(params, "transformers"))
        used = used._replace(weights=used.weights + untrained)
    devices = limits.launch.hosts * limits.launch.processes
    return Phase("training", role, asked.base, f"{role.replace('_', ' ')}, {limits.method}", devices, used)


# -- does it fit


def problems_of(params: Params, phases: Sequence[Phase], together: int) -> Iterator[str]:
    """Why the hardware section cannot hold the run, each with the cure. Nothing is refused on a CPU but a server.

    `together`: servers that are asked in turns, at most.
    """
    hardware, serve = params.hardware, params.serve
    served = any(phase.engine == "vllm" for phase in phases)
    if not hardware.gpus:
        if served:
            yield "hardware.gpus is 0, and engine vllm needs one: set hardware.gpus and gpu_gb, or engine: transformers"
        return
    yield from _server_problems(params, together) if served else ()
    yield from _launch_problems(params)
    for phase in phases:
        room = hardware.gpu_gb * (serve.memory_share if phase.engine == "vllm" else 1)
        wanted = phase.footprint.total / GB
        if wanted > room:
            cure = _training_cure if phase.kind == "training" else _serving_cure
            yield (
                f"{phase.kind} ({phase.model}) takes {wanted:.1f} GB on each GPU, {wanted - room:.1f} GB more than "
                f"the {room:.1f} GB there are: {cure(params, phase, room)}"
            )


def _server_problems(params: Params, together: int) -> Iterator[str]:
    hardware, serve = params.hardware, params.serve
    at_once = servers_at_once(serve)
    if together > at_once:
        both = " (or a serve.memory_share of at most 0.5, where two fit)" if together == 2 else ""
        yield (
            f"{together} models answer in turns, and {at_once} may run at once by serve.memory_share "
            f"{serve.memory_share:g}: train adapters on one base{both}: --set sft.method=qlora "
            "--set world_model_sft.method=qlora"
        )
    over_ray = serve.hosts > 1  # which gives each server GPUs of its own; else they share those of the first host
    needed = serve.tensor_parallel * serve.pipeline_parallel * (min(together, at_once) if over_ray else 1)
    there = hardware.gpus * (hardware.hosts if over_ray else 1)
    if needed > there:
        yield (
            f"servers take {needed} GPUs, and there are {there}{' on a host' * (not over_ray)}: lower "
            "serve.tensor_parallel and serve.pipeline_parallel"
        )
    for key, role in TRAININGS.items():
        limits = limits_of(params, role)
        taken = [rank for rank in LORA_RANKS if rank >= limits.lora_rank]
        adapted = limits.method != "full" and roles_of(params)[role].engine == "vllm"
        if adapted and not serve.max_adapters:
            yield f"{key}.method is {limits.method}, and servers hold no adapter: --set serve.max_adapters=2"
        if adapted and limits.lora_rank > serve.max_lora_rank:
            yield (
                f"{key}.lora_rank is {limits.lora_rank}, and servers take adapters up to {serve.max_lora_rank}: "
                + (f"--set serve.max_lora_rank={min(taken)}" if taken else f"lower {key}.lora_rank")
            )


def _launch_problems(params: Params) -> Iterator[str]:
    hardware = params.hardware
    for key, role in TRAININGS.items():
        limits = limits_of(params, role)
        launch = limits.launch
        if not steps_split_weights(limits):
            yield (
                f"{key}.optimizer {limits.optimizer} cannot step weights that {key}.launch.sharding fsdp2 splits: "
                f"--set {key}.optimizer=adamw_torch_fused"
            )
        if launch.hosts > hardware.hosts or launch.processes > hardware.gpus:
            yield (
                f"{key}.launch asks for {launch.hosts} x {launch.processes} GPUs, and there are {hardware.hosts} x "
                f"{hardware.gpus}: lower {key}.launch.hosts and processes, or raise hardware"
            )


def _serving_cure(params: Params, phase: Phase, room: float) -> str:
    """The first change that makes a server fit: more GPUs that share a layer, 4 bit, fewer requests at once."""
    if phase.engine != "vllm":
        return "take a smaller base, or engine: vllm over more GPUs"
    shape, serve, contexts = shape_of(phase.base), params.serve, params.browser.contexts
    there = params.hardware.gpus * (params.hardware.hosts if serve.hosts > 1 else 1)
    for form, key in ((form_of(params, "vllm"), ""), ("nf4", "serve.quantization=bitsandbytes")):
        for at_once in (contexts, 1):
            for tensor in (n for n in (1, 2, 4, 8) if n <= there):
                how = {"tensor": tensor, "adapters": serve.max_adapters, "rank": serve.max_lora_rank}
                used = serving(shape, form, tokens=at_once * serve.max_model_len, **how).total / GB
                if used <= room:
                    fewer = "browser.contexts=1" if at_once < contexts else ""
                    changes = filter(None, (key, fewer, f"serve.tensor_parallel={tensor}"))
                    return f"{' '.join(f'--set {change}' for change in changes)} ({used:.1f} GB)"
    return (
        f"take a smaller base, or GPUs of more than {used / serve.memory_share:.1f} GB (in 4 bit, one request at once)"
    )


def _training_cure(params: Params, phase: Phase, room: float) -> str:
    """Changes, one after the other, until a training fits."""
    role, processes = phase.engine, params.hardware.gpus
    limits, key = limits_of(params, role), next(key for key, of in TRAININGS.items() if of == role)
    spread = limits.launch.model_copy(update={"processes": processes, "sharding": "fsdp2"})
    shared = (
        {"launch": spread, "optimizer": "adamw_torch_fused"},  # which steps what FSDP2 splits
        f"{key}.launch.processes={processes} {key}.launch.sharding=fsdp2 {key}.optimizer=adamw_torch_fused",
    )
    told: list[str] = []
    for changed, said in (
        ({"gradient_checkpointing": True}, f"{key}.gradient_checkpointing=true"),
        ({"batch": 1}, f"{key}.batch=1"),
        *([shared] if processes * limits.launch.hosts > 1 else []),
        ({"method": "qlora"}, f"{key}.method=qlora"),
        ({"max_length": limits.max_length // 2}, f"{key}.max_length={limits.max_length // 2}"),
    ):
        if all(getattr(limits, name) == value for name, value in changed.items()):
            continue
        limits = limits.model_copy(update=changed)
        told += [f"--set {setting}" for setting in said.split()]
        wanted = _training(params, role, limits).footprint.total / GB
        if wanted <= room:
            return f"{' '.join(told)} ({wanted:.1f} GB)"
    return f"take a smaller base, or GPUs of more than {wanted:.1f} GB (with {' '.join(told)})"


# -- as plain data


def _memory(phases: Sequence[Phase]) -> dict[str, float]:
    most = {f"{name}_gb": max(getattr(p.footprint, name) for p in phases) / GB for name in Footprint._fields}
    most.pop("other_gb")
    most["per_gpu_gb"] = max(p.footprint.total for p in phases) / GB
    return {name: round(value, 2) for name, value in most.items()}


def _host_gb(params: Params) -> float:
    """0 on a CPU, where all memory is the host's."""
    if not params.hardware.gpus:
        return 0.0
    trainings = [(shape_of(roles_of(params)[role].base), limits_of(params, role)) for role in TRAININGS.values()]
    return round(max(host_bytes(*one) for one in trainings) / GB, 2)


def _phase_row(phase: Phase) -> dict:
    parts = {f"{name}_gb": round(value / GB, 2) for name, value in phase.footprint._asdict().items()}
    of = {"kind": phase.kind, "model": phase.model, "base": phase.base, "devices": phase.devices}
    return of | parts | {"per_gpu_gb": round(phase.footprint.total / GB, 2)}


def _stage(step: chain.Planned, load: Load, hours: float) -> dict:
    counts = {
        "calls": sum(one.calls for one in load.work),
        "prompt_tokens": sum(one.prompt for one in load.work),
        "completion_tokens": sum(one.completion for one in load.work),
        "episodes": load.episodes,
        "steps": load.steps,
        "rows": load.rows,
        "trained_tokens": load.trained_tokens,
    }
    named = {"stage": step.stage, "notebook": step.notebook, "iteration": step.iteration}
    return named | {name: round(value) for name, value in counts.items()} | {"hours": round(hours, 3)}


def _models(params: Params) -> list[dict]:
    found = []
    for name, role in roles_of(params).items():
        told = {"revision": "as its host serves it", "parameters": None}
        if role.engine != "openai":
            told = {"revision": find_weights(role.base).revision, "parameters": shape_of(role.base).parameters}
        found.append({"role": name, "engine": role.engine, "base": role.base, "adapter": role.adapter} | told)
    return found


def _commands(
    profile: str, params: Params, steps: Sequence[chain.Planned], servers: Sequence[Sequence[Served]]
) -> list[dict]:
    """Servers and trainings of each stage as they are started; a training of one process is a sentence.

    Trainings as launch.py starts them on the hardware section's devices, which may be those of another machine.
    `number`: which server of the stage, or which host of the training. `adapters`: names of those that are laid on a
    server while it runs; their hashes are not known yet.
    """
    found, cpu = [], not params.hardware.gpus
    how = {"cpu": cpu, "precision": precision(params.llm) if cpu or params.llm.dtype != "auto" else "bf16"}
    for step, opened in zip(steps, servers, strict=True):
        for number, one in enumerate(one for one in opened if one.engine == "vllm"):
            command = vllm_command(params.serve, one.weights, port=FIRST_PORT + number)
            told = {"stage": step.stage, "what": "server", "number": number, "command": command}
            found.append(told | {"adapters": list(one.adapters)})
        if role := trained_role(step):
            launch, job = limits_of(params, role).launch, run_folder(profile) / step.stage / "job.json"
            alone = launch.hosts == launch.processes == 1
            for rank in range(launch.hosts):
                command = "in this process" if alone else launch_command(launch, job, rank=rank, **how)
                found.append({"stage": step.stage, "what": "training", "number": rank, "command": command})
    return found


def _assumptions(params: Params) -> list[str]:
    hardware = params.hardware
    told = [
        *ASSUMPTIONS,
        f"a training reaches {hardware.efficiency:.0%} of {hardware.tflops:g} TFLOPS a device, prompts are read at the "
        f"same rate, and replies are written at {costs.BANDWIDTH_SHARE:.0%} of {hardware.bandwidth_gb:g} GB/s",
        f"a step of a browser takes {costs.LIVE_STEP_S:g} s on the live web and {costs.LOCAL_STEP_S:g} s on localhost, "
        "beside its quiet time",
        "browser, models and training wait for each other; a server and a training are never in memory together",
        "memory is for rows of max_length and, of a server, browser.contexts requests of max_model_len at once: "
        "of more, as of llm.batch in 02 and 03 and of the futures in 05, the rest waits; "
        "activations are an estimate; 1 GB is 10^9 bytes",
    ]
    if params.collect.backend == "ray":
        told.append(
            "hours are those of one worker; a server's cache has room for the requests of one, those of others wait; "
            "models that answer in workers are on the first GPU of their host, where there is one"
        )
    if any(role.engine == "transformers" for role in roles_of(params).values()):
        told.append(f"weights that answer in this process are in {form_of(params, 'transformers')}")
    if hardware.gpus:
        there = hardware.hosts * hardware.gpus
        told.append(f"{there} GPU at {hardware.usd_hour:g} dollars an hour each, paid for the whole time")
    for base in sorted({role.base for role in roles_of(params).values() if role.engine == "openai"}):
        price = hardware.prices.get(base)
        told.append(
            f"{base}: {price.prompt:g} dollars a million prompt tokens, {price.completion:g} a million of replies"
            if price
            else f"{base} has no price in hardware.prices: its tokens are not in the cost"
        )
    return told
