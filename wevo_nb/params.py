"""Profiles: `params/base.yaml` + `params/<profile>.yaml` + overrides, checked before anything runs.

Every notebook loads its params here and shows them with the layer that set each value. An
unknown key or a value out of range is refused with its path, the value and the cure. What a
section may say stands in sections.py; what fits together, and which arms there are, here.
"""

from __future__ import annotations

import difflib
import json
import re
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import yaml
from pydantic import BaseModel, Field, ValidationError, model_validator

from wevo_nb import sections
from wevo_nb.sections import BESIDE, FINAL_ARMS, LookAheadParams, WMLAParams

ROOT = Path(__file__).resolve().parent.parent
POLICIES = re.compile(rf"random|zero_shot|self_improve_(\d+)|{'|'.join(FINAL_ARMS)}")
MOST_SEEDS = 500  # of an iteration's collection: those from here on are the explorer's (tasks/)
FREE = (
    "wmla.grid",
    "wmla.presets",
    "world_model.beside",
    "hardware.prices",
)  # mappings whose keys the base does not list; their section checks them
ANSWERED = ("gaia_web", "simpleqa")  # suites that publish an answer to every query


class ParamsError(ValueError):
    """A profile, key or value that does not exist or is out of range."""


class Params(sections.Section):
    """A whole profile. Sections are named after the stage or part that reads them."""

    seed: Annotated[int, Field(ge=0, lt=500)]
    iterations: Annotated[int, Field(ge=1, lt=100)]
    tasks: sections.TaskParams
    browser: sections.BrowserParams
    observation: sections.ObservationParams
    llm: sections.LLMParams
    roles: sections.RolesParams
    serve: sections.ServeParams
    hardware: sections.HardwareParams
    policy: sections.PolicyParams
    collect: sections.CollectParams
    judge: sections.JudgeParams
    world_model: sections.WorldModelParams
    world_model_sft: sections.SFTParams
    synthesize: sections.SynthesizeParams
    sft: sections.PolicySFTParams
    wmla: sections.WMLAParams
    analysis: sections.AnalysisParams

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
    def _an_adapter_over_deepspeed_is_as_its_base(self):
        for key in ("sft", "world_model_sft"):
            how = getattr(self, key)
            if (how.method, how.launch.sharding, self.llm.dtype) == ("lora", "deepspeed", "float32"):
                raise ValueError(
                    f"llm.dtype is float32, and {key}.launch.sharding deepspeed wants weights of one dtype, and the "
                    "adapter's is bfloat16: take llm.dtype bfloat16, or sharding fsdp2"
                )
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

    def rows(self, *names: str) -> list[dict[str, str]]:
        """One row a value of the named sections: key, value as YAML writes it, layer."""
        leaves = flatten(self.params.model_dump(mode="json"))
        named = lambda key: key.split(".")[0] in names  # noqa: E731
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
