"""How long a run takes, what it costs and how much disk it fills, from its workload and the hardware section.

Arithmetic on estimates: operations over what the devices reach, weights read once a token, and the
assumptions below. Browser, models and training are taken one after the other. Used by `wevo plan`.
Paper: none; it reports no hours and no cost.
"""

from __future__ import annotations

from collections.abc import Sequence

from wevo_nb.chain import Planned
from wevo_nb.machine import roles_of
from wevo_nb.memory import BYTES, GB, Form, adapter_parameters, shape_of, trained_parameters, weight_bytes
from wevo_nb.params import Params
from wevo_nb.sections import SFTParams
from wevo_nb.sft import KEPT_CHECKPOINTS
from wevo_nb.tasks import LIVE
from wevo_nb.workload import CHARS_A_TOKEN, Load, Work, sizes

BANDWIDTH_SHARE = 0.6  # assumed: of a memory's bandwidth that writing tokens reaches
LIVE_STEP_S, LOCAL_STEP_S = 5.0, 0.2  # assumed: of the browser, beside its quiet time
LOAD_GB_S = 1.0  # assumed: weights read from the disk
START_S = 60.0  # assumed: of a server, beside its weights
HOSTED_CALL_S = 3.0  # assumed: of a hosted model


def form_of(params: Params, engine: str) -> Form:
    """In which form weights answer."""
    if engine == "vllm":
        return {None: "bfloat16", "bitsandbytes": "nf4", "fp8": "fp8"}[params.serve.quantization]
    return "float32" if params.llm.dtype == "float32" else "bfloat16"


def limits_of(params: Params, role: str) -> SFTParams:
    """The training of the policy or of the world model."""
    return params.world_model_sft if role == "world_model" else params.sft


def trained_role(step: Planned) -> str | None:
    """Whose training a notebook holds; None where there is none."""
    return {"02_wm_train": "world_model", "04_final_sft": "policy"}.get(step.notebook)


def hours(params: Params, step: Planned, load: Load, loaded: Sequence[tuple[str, str]]) -> float:
    """Of one stage. `loaded`: engine and base of each model that it opens."""
    seconds = 0.0
    if role := trained_role(step):
        seconds += _training_s(params, roles_of(params)[role].base, limits_of(params, role), load)
    of_a_step = (LIVE_STEP_S if params.collect.suite in LIVE else LOCAL_STEP_S) + params.browser.quiet_ms / 1000
    seconds += (load.steps + load.episodes) * of_a_step / params.browser.contexts
    at_once = params.llm.batch if step.notebook in ("02_wm_train", "03_synthesize") else params.browser.contexts
    seconds += sum(_answering_s(params, work, at_once) for work in load.work)
    for engine, base in loaded:
        seconds += weight_bytes(shape_of(base), form_of(params, engine)) / GB / LOAD_GB_S
        seconds += START_S if engine == "vllm" else 0
    return seconds / 3600


def _training_s(params: Params, base: str, limits: SFTParams, load: Load) -> float:
    """Operations over what the devices reach: two a weight forward, four backward, two to compute again.

    An adapter's training needs no gradient of the weights under it: two backward. Frozen blocks have none.
    """
    shape = shape_of(base)
    frozen = limits.freeze_layers / shape.layers if limits.method == "full" and limits.freeze_embeddings else 0.0
    a_weight = 2 + (4 if limits.method == "full" else 2) * (1 - frozen) + 2 * limits.gradient_checkpointing
    operations = load.trained_tokens * a_weight * shape.layers * shape.block_linear
    devices = limits.launch.hosts * limits.launch.processes
    return operations / (devices * params.hardware.tflops * 1e12 * params.hardware.efficiency)


def _answering_s(params: Params, work: Work, at_once: int) -> float:
    """Prompts by operations, replies by reading the weights once a token for all requests at once."""
    role, hardware = roles_of(params)[work.role], params.hardware
    if role.engine == "openai":
        return work.calls * HOSTED_CALL_S / at_once
    shape = shape_of(role.base)
    served = role.engine == "vllm"
    devices = params.serve.tensor_parallel * params.serve.pipeline_parallel if served else 1
    prompts = work.prompt * 2 * shape.layers * shape.block_linear
    read = weight_bytes(shape, form_of(params, role.engine)) * work.completion / at_once
    chosen = not served and params.policy.reply == "choose" and work.role == "policy"
    seconds = prompts / (hardware.tflops * 1e12 * hardware.efficiency)
    seconds += 0 if chosen else read / (hardware.bandwidth_gb * GB * BANDWIDTH_SHARE)
    return seconds / devices


def cost(params: Params, hours: float, work: dict[str, Work]) -> dict[str, float]:
    """US dollars: every GPU of the hardware section for the whole time, and the tokens of hosted models."""
    hardware, known = params.hardware, params.hardware.prices
    tokens = 0.0
    for name, one in work.items():
        role = roles_of(params)[name]
        if role.engine == "openai" and role.base in known:
            price = known[role.base]
            tokens += (one.prompt * price.prompt + one.completion * price.completion) / 1e6
    return {"gpus": hours * hardware.hosts * hardware.gpus * hardware.usd_hour, "hosted": tokens}


def disk_gb(params: Params, steps: Sequence[Planned], loads: Sequence[Load]) -> float:
    """Bases that a hub gives, what each training keeps, its checkpoints, and the episodes as text.

    A training keeps its newest KEPT_CHECKPOINTS, and for a moment the one before them; they go when it ends.
    """
    bases = {role.base for role in roles_of(params).values() if role.engine != "openai"}
    used = sum(weight_bytes(shape_of(base), "bfloat16") for base in bases)
    largest = 0.0
    for step in steps:
        if (role := trained_role(step)) is None:
            continue
        shape, limits = shape_of(roles_of(params)[role].base), limits_of(params, role)
        adapter = adapter_parameters(shape, limits.lora_rank) * BYTES["float32"]
        full = limits.method == "full"
        used += weight_bytes(shape, "bfloat16") if full else adapter
        used += weight_bytes(shape, "bfloat16") if limits.merge and not full else 0
        kept = weight_bytes(shape, "float32") if full else adapter
        at_once = min(KEPT_CHECKPOINTS, limits.checkpoints) + 1
        largest = max(largest, at_once * (kept + 8 * trained_parameters(shape, limits)))
    text = sum(load.steps for load in loads) * sizes(params).page * CHARS_A_TOKEN
    return (used + largest + text) / GB
