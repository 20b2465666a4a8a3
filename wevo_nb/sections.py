"""What each section of a profile may say: its keys, their types and bounds, and what of one section excludes another.

The defaults stand in `params/base.yaml`, a whole profile in params.py.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from wevo_nb.schema import Verb

Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
Temperature = Annotated[float, Field(ge=0, le=5)]

LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # that vLLM makes room for

# What a final policy learns from, beside the real successes of the first round (notebook 04).
FINAL_ARMS = {
    "webevolver": "D_1 and the imagined successes (the paper's)",
    "true_dreams": "D_1 and those imagined successes that are successes in the real page too",
    "no_world_model": "D_1 and trajectories that the model wrote in one go, without a world model",
    "explorer": "D_1 and successes of a random explorer in the real pages",
    "more_real": "D_1 and as many rows of later real successes as there are imagined ones",
    "real_only": "D_1, cut to the size of the imagined rows",
    "synthetic_only": "the imagined rows alone, at that size",
    "mixed": "half of each, at that size",
}
EQUAL = ("real_only", "synthetic_only", "mixed")  # of these the arms of equal size, without all of D_1
WMLA = re.compile(r"wmla(?:_k([2-9]|\d\d))?_d([1-9])")


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TaskParams(Section):
    train: Annotated[tuple[str, ...], Field(min_length=1)]
    held_out: tuple[str, ...]
    train_seeds: Positive
    test_seeds: Positive
    held_out_seeds: Count
    max_steps: Positive
    max_repeats: Positive

    @model_validator(mode="after")
    def _held_out_means_held_out(self):
        both = sorted(set(self.train) & set(self.held_out))
        if both:
            raise ValueError(f"{', '.join(both)} stand in both train and held_out: take them out of one")
        return self


class BrowserParams(Section):
    executable: str | None
    contexts: Positive
    viewport: tuple[Positive, Positive]
    quiet_ms: Positive
    deadline_ms: Positive
    navigation_ms: Positive
    dialogs: Literal["accept", "dismiss"]
    goto: bool
    offline: bool
    har: Literal["record", "replay"] | None
    screenshots: bool


class ObservationParams(Section):
    format: Literal["wevo", "v0"]
    header: bool
    max_elements: Positive
    max_chars: Positive
    name_chars: Annotated[int, Field(ge=8)]
    indent: bool


class LLMParams(Section):
    dtype: Literal["auto", "bfloat16", "float32"]
    threads: Count
    batch: Positive
    retries: Count
    timeout_s: Positive


class RoleParams(Section):
    engine: Literal["transformers", "openai", "vllm"]
    base: str
    adapter: str | None = None
    url: str | None = None
    api_key_env: str = "OPENAI_API_KEY"
    constraint: Literal["structured_outputs", "grammar", "json_schema", "none"] = "structured_outputs"

    @model_validator(mode="after")
    def _a_url_for_openai(self):
        if self.engine == "openai" and not self.url:
            raise ValueError("engine openai needs a url, e.g. http://localhost:8000/v1")
        return self


class RolesParams(Section):
    policy: RoleParams
    world_model: RoleParams
    judge: RoleParams
    scorer: RoleParams
    evaluator: RoleParams


class ServeParams(Section):
    """How vLLM is started, for roles whose engine is vllm."""

    command: Annotated[tuple[str, ...], Field(min_length=1)]
    tensor_parallel: Positive
    pipeline_parallel: Positive
    hosts: Positive
    max_model_len: Positive
    memory_share: Annotated[float, Field(gt=0, le=1)]
    prefix_caching: bool
    max_adapters: Count
    max_lora_rank: Literal[LORA_RANKS]
    quantization: Literal["bitsandbytes", "fp8"] | None
    startup_s: Positive
    arguments: tuple[str, ...]


class Price(Section):
    """US dollars for a million tokens."""

    prompt: Annotated[float, Field(ge=0)]
    completion: Annotated[float, Field(ge=0)]


class HardwareParams(Section):
    """What `wevo plan` calculates with. Nothing else reads it."""

    hosts: Positive
    gpus: Count
    gpu_gb: Annotated[float, Field(ge=0)]
    tflops: Annotated[float, Field(gt=0)]
    bandwidth_gb: Annotated[float, Field(gt=0)]
    efficiency: Annotated[float, Field(gt=0, le=1)]
    usd_hour: Annotated[float, Field(ge=0)]
    prices: dict[str, Price]


class PolicyParams(Section):
    reply: Literal["choose", "generate"]
    prompt: Literal["short", "full"]
    history: Count
    verbs: Annotated[tuple[Verb, ...], Field(min_length=1)]
    no_repeat: bool
    max_choices: Positive
    max_tokens: Positive


class CollectParams(Section):
    suite: Literal["miniwob", "sites", "webvoyager", "mind2web", "openwebvoyager", "gaia_web", "simpleqa"]
    temperature: Temperature
    explorer_episodes: Annotated[int, Field(ge=0, le=500)]
    judge: Literal["reward", "answer", "llm", "key_points"]
    llm_judge_sample: Count
    cap_per_task: Positive
    explorer_below: Count
    explorer_teaches: tuple[Literal["policy", "world_model"], ...]
    backend: Literal["local", "ray"]
    workers: Positive
    address: Annotated[str, Field(pattern=r"^[^/\s]+:\d+$")] | None


class JudgeParams(Section):
    """How a language model judges."""

    pages: Positive
    actions: bool
    relevant: Annotated[int, Field(ge=1, le=5)]
    max_tokens: Positive


class WorldModelParams(Section):
    target: Literal["page", "change", "change_described"]
    first_iteration: Positive
    history: Count
    thoughts: bool
    memory_chars: Count
    rationale: bool
    mask_facts: bool
    outcome_rows: dict[Literal["success", "failure", "changed", "same"], Count]
    opening_rows: Count
    per_start: Positive | None
    per_verb: Positive | None
    value_rows: Count
    beside: dict[str, RoleParams]
    held_out_share: Annotated[float, Field(gt=0, le=0.5)]
    outcome_weight: Annotated[float, Field(ge=0, lt=1)]
    max_tokens: Positive
    report_rows: Positive
    report_depth: Positive
    report_walks: Count
    graded_rows: Count


class SynthesizeParams(Section):
    policy_iteration: Positive
    world_model_iteration: Positive | None
    first_page: Literal["real", "imagined"]
    horizon: Positive
    tasks: Positive
    attempts: Positive
    temperature: Temperature
    look_ahead: str | None
    world_model_temperature: Temperature
    hint: bool
    judge: Literal["world_model", "llm", "key_points"]
    accept: Literal["threshold", "rank", "calibrated"]
    threshold: Annotated[float, Field(ge=0, le=1)]
    rank: Positive
    precision: Annotated[float, Field(ge=0, le=1)]
    replay: Literal["none", "accepted", "all"]
    written: Count


class GateParams(Section):
    """Shares of the rows, each the most that is let through."""

    too_long: Annotated[float, Field(ge=0, le=1)]
    empty: Annotated[float, Field(ge=0, le=1)]
    repeated: Annotated[float, Field(ge=0, le=1)]
    cut_off: Annotated[float, Field(ge=0, le=1)]
    held_out: Annotated[float, Field(ge=0, le=1)]


class LaunchParams(Section):
    """Over which devices a training runs; one process of one host is this process itself."""

    hosts: Positive
    processes: Positive
    sharding: Literal["none", "fsdp2", "deepspeed"]
    main_host: str
    main_port: Annotated[int, Field(ge=1, lt=65536)]

    @model_validator(mode="after")
    def _what_is_shared_has_sharers(self):
        if self.sharding != "none" and self.hosts * self.processes == 1:
            raise ValueError(f"sharding {self.sharding} over one process: set processes, or sharding: none")
        return self


class SFTParams(Section):
    method: Literal["full", "lora", "qlora"]
    learning_rate: Annotated[float, Field(gt=0, lt=1)]
    lora_learning_rate: Annotated[float, Field(gt=0, lt=1)]
    lora_rank: Positive
    adapter_dtype: Literal["float32", "bfloat16"]
    merge: bool
    epochs: Annotated[float, Field(gt=0)]
    batch: Positive
    accumulate: Positive
    max_length: Positive
    optimizer: Literal["adamw_torch", "adamw_torch_fused", "paged_adamw_8bit", "paged_adamw_32bit"]
    gradient_checkpointing: bool
    attention: Literal["sdpa", "flash_attention_2"]
    launch: LaunchParams
    freeze_embeddings: bool
    freeze_layers: Count
    checkpoints: Positive
    gate: GateParams

    @model_validator(mode="after")
    def _what_shards_can_do_it(self):
        if self.launch.sharding == "fsdp2" and not self.gradient_checkpointing:
            raise ValueError("launch.sharding fsdp2 checkpoints activations: set gradient_checkpointing: true")
        if self.launch.sharding == "deepspeed" and self.merge:
            raise ValueError("merge with launch.sharding deepspeed: its weights are in parts; merge afterwards")
        return self

    @model_validator(mode="after")
    def _deepspeed_splits_one_dtype(self):
        if self.launch.sharding == "deepspeed" and self.method == "qlora":
            raise ValueError(
                "method qlora with launch.sharding deepspeed, which wants weights of one dtype: take fsdp2"
            )
        if self.launch.sharding == "deepspeed" and self.method == "lora" and self.adapter_dtype == "float32":
            raise ValueError(
                "adapter_dtype float32 with launch.sharding deepspeed, which wants weights of one dtype, that of the "
                "base: set adapter_dtype: bfloat16"
            )
        return self


class PolicySFTParams(SFTParams):
    arm: str
    arms: tuple[str, ...]
    rows_per_task: Positive
    max_repeat: Positive

    @model_validator(mode="after")
    def _known_arms(self):
        for key, names in (("arm", (self.arm,)), ("arms", self.arms)):
            for name in names:
                if name not in (*FINAL_ARMS, "self_improve"):
                    raise ValueError(
                        f"{key}: no data arm '{name}': take self_improve or one of {', '.join(FINAL_ARMS)}"
                    )
        if "self_improve" in self.arms:
            raise ValueError("arms lists what is trained after the last iteration; self_improve is trained in each")
        return self


class LookAheadParams(Section):
    """How one decision is made: candidates, imagination, score, choice."""

    candidates: Literal["different", "frequent", "valid"]
    k: Annotated[int, Field(ge=2)]
    samples: Positive
    temperature: Temperature
    imagination: Literal["world_model", "free_text", "none"]
    depth: Count
    imagination_temperature: Temperature
    scorer: Literal["outcome", "expected", "veto", "value", "likelihood", "llm"]
    scores: Positive
    scorer_temperature: Temperature
    margin: Annotated[float, Field(ge=0, le=1)]
    tie: Literal["first", "random"]
    skip_steps: Count
    search: Literal["look_ahead", "tree"]
    budget: Positive

    @model_validator(mode="after")
    def _depth_fits_imagination(self):
        if (self.imagination == "none") != (self.depth == 0) and self.search == "look_ahead":
            raise ValueError(
                f"depth {self.depth} with imagination {self.imagination}: depth 0 is no imagination, and the reverse"
            )
        if self.search == "tree" and self.scorer not in ("llm", "value"):
            raise ValueError(f"search tree with scorer {self.scorer}: it reads real pages, take scorer llm or value")
        if self.imagination == "free_text" and self.scorer != "llm":
            raise ValueError(f"scorer {self.scorer} cannot read a free text: take scorer llm, or the world model")
        return self


BESIDE = {"arms", "more_arms", "grid", "presets"}  # keys of wmla that say which arms there are, not how one looks ahead


class WMLAParams(LookAheadParams):
    arms: Annotated[tuple[str, ...], Field(min_length=1)] | None
    more_arms: tuple[str, ...]
    grid: dict[Literal["policy", "k", "depth"], tuple[str | int, ...]]
    presets: dict[str, dict[str, Any]]

    def preset(self, name: str) -> LookAheadParams:
        """The settings of a named preset: the section's own, with what the preset states. Raises ValueError."""
        own = self.model_dump(exclude=BESIDE)
        found = WMLA.fullmatch(name)
        if found:
            different = {"imagination": "world_model", "depth": int(found[2])}
            different |= {"k": int(found[1])} if found[1] else {}
        elif name in self.presets:
            different = self.presets[name]
        else:
            raise ValueError(f"no preset '{name}': take wmla_d<n>, wmla_k<n>_d<n> or one of {', '.join(self.presets)}")
        unknown = sorted(set(different) - set(own))
        if unknown:
            raise ValueError(f"preset {name}: unknown {', '.join(unknown)}; known are {', '.join(own)}")
        try:
            return LookAheadParams(**own | different)
        except ValidationError as error:
            told = [
                (".".join(map(str, e["loc"])), e["input"], e["msg"].removeprefix("Value error, "))
                for e in error.errors()
            ]
            said = "; ".join(f"{key} is {value!r}: {message}" if key else message for key, value, message in told)
            raise ValueError(f"preset {name}: {said}") from None

    @model_validator(mode="after")
    def _presets_hold(self):
        for name in self.presets:
            if "+" in name or "/" in name or WMLA.fullmatch(name):
                raise ValueError(f"presets: '{name}' is no name for a preset")
            self.preset(name)
        return self


class AnalysisParams(Section):
    """What notebook 06 reads beside its own run, and what it takes for one piece of evidence."""

    runs: tuple[Annotated[str, Field(pattern=r"^[\w-][\w.-]*$")], ...]
    clusters: Literal["family", "site"]

    @model_validator(mode="after")
    def _a_run_once(self):
        twice = sorted({run for run in self.runs if self.runs.count(run) > 1})
        if twice:
            raise ValueError(f"runs names {', '.join(twice)} twice: a run is evidence once")
        return self
