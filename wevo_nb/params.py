"""Profiles: `params/base.yaml` + `params/<profile>.yaml` + overrides, checked before anything runs.

Every notebook loads its params here and shows them with the layer that set each value. An
unknown key or a value out of range is refused with its path, the value and the cure.
"""

from __future__ import annotations

import difflib
import json
import re
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from wevo_nb.schema import Verb

ROOT = Path(__file__).resolve().parent.parent
Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
Temperature = Annotated[float, Field(ge=0, le=5)]


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
POLICIES = re.compile(rf"random|zero_shot|self_improve_(\d+)|{'|'.join(FINAL_ARMS)}")
WMLA = re.compile(r"wmla(?:_k([2-9]|\d\d))?_d([1-9])")
MOST_SEEDS = 500  # of an iteration's collection: those from here on are the explorer's (tasks/)
FREE = (
    "wmla.grid",
    "wmla.presets",
    "world_model.beside",
    "hardware.prices",
)  # mappings whose keys the base does not list; their section checks them


class ParamsError(ValueError):
    """A profile, key or value that does not exist or is out of range."""


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
    max_adapters: Positive
    max_lora_rank: Positive
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


ANSWERED = ("gaia_web", "simpleqa")  # suites that publish an answer to every query


class Params(Section):
    """A whole profile. Sections are named after the stage or part that reads them."""

    seed: Annotated[int, Field(ge=0, lt=500)]
    iterations: Annotated[int, Field(ge=1, lt=100)]
    tasks: TaskParams
    browser: BrowserParams
    observation: ObservationParams
    llm: LLMParams
    roles: RolesParams
    serve: ServeParams
    hardware: HardwareParams
    policy: PolicyParams
    collect: CollectParams
    judge: JudgeParams
    world_model: WorldModelParams
    world_model_sft: SFTParams
    synthesize: SynthesizeParams
    sft: PolicySFTParams
    wmla: WMLAParams
    analysis: AnalysisParams

    def arms(self) -> tuple[str, ...]:
        """The arms of notebook 05, in the order of the tables."""
        if self.wmla.arms:
            return tuple(dict.fromkeys((*self.wmla.arms, *self._grid())))
        improved = tuple(f"self_improve_{i}" for i in range(1, self.iterations + 1))
        last = self.sft.arms[-1:] or improved[-1:]
        ahead = tuple(f"{policy}+{preset}" for policy in last for preset in ("wmla_d1", "best_of_k"))
        every = ("zero_shot", *improved, *self.sft.arms, *ahead, *self.wmla.more_arms, *self._grid())
        return tuple(dict.fromkeys(every))

    def judges(self) -> tuple[str, ...]:
        """The judges by a model or by answers that this profile goes by; where none does, llm, to be compared."""
        used = dict.fromkeys((self.collect.judge, self.synthesize.judge))
        return tuple(name for name in used if name not in ("reward", "world_model")) or ("llm",)

    def dreamer(self) -> Arm:
        """Who walks in the world model: the policy of synthesize.policy_iteration, plain or with look-ahead."""
        how = self.synthesize
        arm = parse_arm(f"self_improve_{how.policy_iteration}{'+' * bool(how.look_ahead)}{how.look_ahead or ''}", self)
        drawn = {"temperature": how.temperature}  # with look-ahead it is that of the candidates
        return arm if arm.ahead is None else arm._replace(ahead=arm.ahead.model_copy(update=drawn))

    @model_validator(mode="after")
    def _seeds_of_an_iteration_are_its_own(self):
        seeds, drawn = self.tasks.train_seeds, self.collect.suite in ("miniwob", "sites")
        if drawn and seeds > MOST_SEEDS:  # queries of the live web are counted, not drawn by seed
            raise ValueError(f"tasks.train_seeds is {seeds}: suite {self.collect.suite} has {MOST_SEEDS} an iteration")
        return self

    @model_validator(mode="after")
    def _answers_are_published(self):
        if self.collect.judge == "answer" and self.collect.suite not in ANSWERED:
            raise ValueError(
                f"collect.judge is answer: suite {self.collect.suite} publishes no answers, as {', '.join(ANSWERED)} "
                "do: take reward, llm or key_points"
            )
        return self

    @model_validator(mode="after")
    def _a_dream_has_no_real_page(self):
        name = self.synthesize.look_ahead
        try:
            search = self.wmla.preset(name).search if name else "look_ahead"
        except ValueError as problem:
            raise ValueError(f"synthesize.look_ahead: {problem}") from None
        if search == "tree":
            raise ValueError(f"synthesize.look_ahead is {name}: it tries actions in real pages: take wmla_d1")
        return self

    @model_validator(mode="after")
    def _nothing_is_asked_that_was_not_learned(self):
        learned = self.world_model
        asked = {name: parse_arm(name, self).ahead for name in self.arms()}
        if dreaming := self.synthesize.look_ahead:
            asked[f"synthesize.look_ahead {dreaming}"] = self.wmla.preset(dreaming)
        for name, ahead in asked.items():
            if ahead and ahead.scorer == "value" and not learned.value_rows:
                raise ValueError(f"{name} asks the world model for a value: set world_model.value_rows, e.g. 200")
        if self.synthesize.first_page == "imagined" and not learned.opening_rows:
            raise ValueError("synthesize.first_page is imagined: set world_model.opening_rows, e.g. 40")
        for arm, there, key in (
            ("no_world_model", self.synthesize.written, "synthesize.written"),
            ("explorer", self.collect.explorer_episodes, "collect.explorer_episodes"),
            ("true_dreams", self.synthesize.replay, "synthesize.replay"),
        ):
            if arm in self.sft.arms and there in (0, "none"):
                raise ValueError(f"sft.arms: {arm} has nothing to learn from: {key} is {there}")
        return self

    @model_validator(mode="after")
    def _a_grid_has_policies(self):
        if self.wmla.grid and not self.wmla.grid.get("policy"):
            raise ValueError("wmla.grid names no policy: e.g. {policy: [webevolver], k: [2, 3, 5], depth: [1, 2]}")
        return self

    def _grid(self) -> tuple[str, ...]:
        grid = self.wmla.grid
        return tuple(
            f"{policy}+wmla_k{k}_d{depth}"
            for policy in grid.get("policy", ())
            for k in grid.get("k", (self.wmla.k,))
            for depth in grid.get("depth", (1,))
        )

    @model_validator(mode="after")
    def _arms_exist(self):
        for name in self.arms():
            parse_arm(name, self)
        return self

    @model_validator(mode="after")
    def _synthesis_uses_what_exists(self):
        first, asked = self.world_model.first_iteration, self.synthesize.world_model_iteration
        if first > self.iterations:
            raise ValueError(
                f"world_model.first_iteration is {first}: of {self.iterations} iterations none trains one: lower it"
            )
        if asked is not None and asked < first:
            raise ValueError(f"synthesize.world_model_iteration is {asked}, and the first that is trained is {first}")
        for key in ("policy_iteration", "world_model_iteration"):
            value = getattr(self.synthesize, key)
            if value is not None and value > self.iterations:
                raise ValueError(f"synthesize.{key} is {value}, but there are only {self.iterations} iterations")
        return self


class Arm(NamedTuple):
    """A policy, and how it looks ahead; `ahead` None: not at all."""

    name: str
    policy: str
    policy_stage: str | None
    preset: str
    ahead: LookAheadParams | None

    @property
    def imagines(self) -> bool:
        """Whether a trained world model is asked."""
        reads = self.ahead and (self.ahead.imagination == "world_model" or self.ahead.scorer == "value")
        return bool(reads)


def parse_arm(name: str, params: Params) -> Arm:
    """The arm of that name, e.g. `webevolver+wmla_d2`. Raises ValueError on one that does not exist."""
    policy, plus, preset = name.partition("+")
    found = POLICIES.fullmatch(policy)
    if not found or (policy == "random" and plus):
        raise ValueError(
            f"wmla.arms: no arm '{name}': take random, zero_shot, self_improve_<i>, {', '.join(FINAL_ARMS)}; "
            "all but random also with +<preset>, e.g. +wmla_d1"
        )
    if found[1] and not 1 <= int(found[1]) <= params.iterations:
        raise ValueError(f"wmla.arms: {name} needs iteration {found[1]}, and iterations is {params.iterations}")
    if policy in FINAL_ARMS and policy not in params.sft.arms:
        raise ValueError(f"wmla.arms: {name} needs the data arm {policy}: add it to sft.arms")
    try:
        ahead = params.wmla.preset(preset) if plus else None
    except ValueError as problem:
        raise ValueError(f"wmla.arms: {name}: {problem}") from None
    stage = f"iter-{found[1]}/04_self_improve" if found[1] else f"04_{policy}" if policy in FINAL_ARMS else None
    return Arm(name, policy, stage, preset, ahead)


class Resolved(BaseModel):
    """Params, with the layer that set each leaf: base, the profile's name or overrides."""

    params: Params
    profile: str
    layers: dict[str, str]

    def without(self, key: str) -> Resolved:
        """The same with `section.key` at its default None: for a stage that does not read it."""
        section, name = key.split(".")
        changed = getattr(self.params, section).model_copy(update={name: None})
        return self.model_copy(update={"params": self.params.model_copy(update={section: changed})})

    def of_arm(self, arm: Arm) -> Resolved:
        """The same with nothing in `wmla` but how this arm looks ahead: what its folder depends on."""
        own = arm.ahead.model_dump() if arm.ahead else self.params.wmla.model_dump(exclude=BESIDE)
        wmla = WMLAParams(**own, arms=None, more_arms=(), grid={}, presets={})
        return self.model_copy(update={"params": self.params.model_copy(update={"wmla": wmla})})

    def rows(self, *sections: str) -> list[dict[str, str]]:
        """One row a value of the named sections: key, value as YAML writes it, layer."""
        leaves = flatten(self.params.model_dump(mode="json"))
        named = lambda key: key.split(".")[0] in sections  # noqa: E731
        return [
            {"key": key, "value": _written(value), "set by": self.layers.get(key, "base")}
            for key, value in leaves.items()
            if named(key)
        ]


def profiles() -> list[str]:
    return sorted(path.stem for path in (ROOT / "params").glob("*.yaml") if path.stem != "base")


def load_params(profile: str, overrides: dict[str, Any] | None = None) -> Resolved:
    """The checked params of a profile. `overrides` is nested, or has dotted keys. Raises ParamsError."""
    if profile not in profiles():
        raise ParamsError(f"no profile '{profile}': take one of {', '.join(profiles())} (files in params/)")
    if not isinstance(overrides or {}, dict):
        raise ParamsError(f"overrides is {overrides!r}: it must be a mapping, e.g. {{'wmla': {{'k': 5}}}}")
    base = _read(ROOT / "params" / "base.yaml")
    named = _read(ROOT / "params" / f"{profile}.yaml")
    given = undot(overrides or {})
    of_suites = {"base": base.pop("suites", {}), profile: named.pop("suites", {})}
    suite = merge(merge(base, named), given).get("collect", {}).get("suite")
    for_suite = [(f"{layer}, suite {suite}", suites[suite]) for layer, suites in of_suites.items() if suite in suites]
    merged, layers = base, {}
    for layer, values in ((profile, named), *for_suite, ("overrides", given)):
        _refuse_unknown(values, base, layer)
        merged = merge(merged, values)
        layers |= {key: layer for key in flatten(values)}
    try:
        params = Params.model_validate(merged)
    except ValidationError as error:
        raise ParamsError(_readable(error, layers)) from None
    return Resolved(params=params, profile=profile, layers=layers)


def defaults() -> dict[str, Any]:
    """The values of params/base.yaml by dotted key, without what it lays over them for a suite."""
    return flatten({key: value for key, value in _read(ROOT / "params" / "base.yaml").items() if key != "suites"})


def merge(below: dict, above: dict) -> dict:
    """`above` laid over `below`, mapping by mapping; lists are replaced whole."""
    out = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(out.get(key), dict)
        out[key] = merge(out[key], value) if both else value
    return out


def flatten(values: dict, prefix: str = "") -> dict[str, Any]:
    """Dotted keys of the leaves."""
    out = {}
    for key, value in values.items():
        if isinstance(value, dict) and value:
            out |= flatten(value, f"{prefix}{key}.")
        else:
            out[f"{prefix}{key}"] = value
    return out


def undot(values: dict[str, Any]) -> dict[str, Any]:
    """`{"wmla.k": 5}` as `{"wmla": {"k": 5}}`."""
    out: dict[str, Any] = {}
    for key, value in values.items():
        nested = undot(value) if isinstance(value, dict) else value
        for part in reversed(str(key).split(".")):
            nested = {part: nested}
        out = merge(out, nested)
    return out


def parse_setting(text: str) -> dict[str, Any]:
    """`wmla.k=5` as an override; the value is read as YAML. Raises ParamsError."""
    key, sign, value = text.partition("=")
    if not sign or not key:
        raise ParamsError(f"--set {text!r} is no key=value, e.g. --set wmla.k=5")
    try:
        return undot({key.strip(): _number(yaml.safe_load(value))})
    except yaml.YAMLError:
        raise ParamsError(
            f"--set {text!r}: the value is no YAML, e.g. --set wmla.k=5 or --set 'wmla.arms=[zero_shot]'"
        ) from None


def _written(value: Any) -> str:
    """A value as in a profile or after `--set`: null, true, [click, type]."""
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    return json.dumps(value) if value is None or isinstance(value, bool) else str(value)


def _read(path: Path) -> dict:
    values = yaml.safe_load(path.read_text()) or {}
    return {key: _number(value) for key, value in values.items()}


def _number(value: Any) -> Any:
    """YAML reads 1e-4 as text; take it as the number it looks like."""
    if isinstance(value, dict):
        return {key: _number(inner) for key, inner in value.items()}
    if isinstance(value, str) and value[:1].isdigit() and "e" in value:
        try:
            return float(value)
        except ValueError:
            return value
    return value


def _refuse_unknown(values: dict, known: dict, layer: str, prefix: str = ""):
    for key, value in values.items():
        if key not in known:
            near = difflib.get_close_matches(str(key), [str(k) for k in known], n=1)
            hint = f"; did you mean {prefix}{near[0]}?" if near else f"; known here: {', '.join(map(str, known))}"
            raise ParamsError(f"unknown key {prefix}{key} (from {layer}){hint}")
        if isinstance(known[key], dict) and isinstance(value, dict) and f"{prefix}{key}" not in FREE:
            _refuse_unknown(value, known[key], layer, f"{prefix}{key}.")


def _layer(key: str, layers: dict[str, str]) -> str:
    """The uppermost layer that set `key`, a part of it, or what it is a part of."""
    named = [layer for k, layer in layers.items() if f"{k}.".startswith(f"{key}.") or f"{key}.".startswith(f"{k}.")]
    return "overrides" if "overrides" in named else next(iter(named), "base")


def _readable(error: ValidationError, layers: dict[str, str]) -> str:
    lines = []
    for problem in error.errors():
        key = ".".join(str(part) for part in problem["loc"])
        layer = f" (from {_layer(key, layers)})" if key else ""
        shown = "" if isinstance(problem["input"], (dict, BaseModel)) else f" is {problem['input']!r}"
        lines.append(f"{key or 'params'}{shown}{layer}: {problem['msg'].removeprefix('Value error, ')}")
    return "\n".join(lines)
