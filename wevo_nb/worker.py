"""What a worker on another host opens and plays: an actor of Ray, with a browser and models of its own.

A policy with its model in this process cannot be sent. A worker gets a Recipe, plain data, and opens
from it what the notebook would have opened; models on servers of the notebook's are lent to it. Used
by cluster.py.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict

from wevo_nb.arms import models_of, open_arm, open_policy, open_world_model
from wevo_nb.browser import BrowserEnv
from wevo_nb.chromium import Chromium
from wevo_nb.endpoint import EndpointModel
from wevo_nb.llm import Model, Reply, Request
from wevo_nb.models import Engine
from wevo_nb.params import Params, parse_arm
from wevo_nb.ray_head import ClusterError
from wevo_nb.rollout import rollout_guarded
from wevo_nb.schema import Environment, Observation, Policy, Task
from wevo_nb.sections import LLMParams, RoleParams
from wevo_nb.tasks import open_suite
from wevo_nb.world_model import WorldModelEnv


class Walk(BaseModel):
    """Who walks where: an arm by name, or the policy of a training stage; in the browser, or in a world model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    arm: str | None = None  # a name of notebook 05, `random` among them; None: `policy` of `stage`
    policy: str = ""
    stage: str | None = None  # None: the untrained base
    temperature: float = 0.0
    seed: int | None = None  # of what is sampled; None: that of the run
    dream: dict[str, Any] | None = None  # the settings of a WorldModelEnv; None: the browser
    pages: dict[str, Observation] = {}  # first pages of a dream, by task


class Lent(BaseModel):
    """A model on a server that the notebook started: how it is asked."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str
    served: str
    key: str


class Recipe(BaseModel):
    """All that a worker needs, as plain data."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run: str
    outputs: str  # the folder of runs, which every host sees under this path
    folder: str  # of the stage, for recordings of traffic
    params: Params
    walk: Walk
    max_steps: int
    max_repeats: int
    lent: dict[str, Lent]  # by the name of the model


class LentModel:
    """In a worker, a model on a server of the notebook's; `name` is the notebook's for it."""

    source: str | None = None

    def __init__(self, endpoint: EndpointModel, name: str):
        self.endpoint, self.name, self.usage = endpoint, name, endpoint.usage

    async def __call__(self, requests: Sequence[Request]) -> list[list[Reply]]:
        """Replies, in order. Raises ModelError."""
        return await self.endpoint(requests)

    def about(self) -> dict:
        """Where it answers."""
        return self.endpoint.about()


class LentServers:
    """In a worker, what Servers is in the notebook: models by name, on servers that are another's."""

    def __init__(self, lent: Mapping[str, Lent], params: LLMParams):
        self.lent, self.params = lent, params

    def model(self, role: RoleParams, trained: str | None = None, *, name: str = "") -> LentModel:
        """The model `name`. Raises ClusterError where the notebook lent none of that name."""
        if name not in self.lent:
            raise ClusterError(f"no server was lent for the model '{name}', but for {', '.join(self.lent) or 'none'}")
        there = self.lent[name]
        asked = RoleParams(engine="openai", base=there.served, url=there.url, constraint=role.constraint)
        return LentModel(EndpointModel(asked, self.params, key=there.key), name)

    def close(self):
        """Nothing: who started them ends them."""


class Opened(NamedTuple):
    """A policy, what makes its environments, and the models behind both, by role."""

    policy: Policy
    make_environment: Callable[[], Environment]
    models: dict[str, Model]


def open_walk(recipe: Recipe, engine: Engine, make_browser: Callable[[], Environment]) -> Opened:
    """What a recipe says, opened by the functions that the notebooks use."""
    run, walk, params = recipe.run, recipe.walk, recipe.params
    imagined = {} if walk.dream is None else {"world_model": open_world_model(run, engine, params)}
    how = {"temperature": walk.temperature}
    if walk.arm is None:
        policy = open_policy(run, walk.stage, walk.policy, engine, params, **how)
    else:
        arm = parse_arm(walk.arm, params) if walk.dream is None else params.dreamer()
        policy = open_arm(run, arm, engine, params, make_browser, world_model=imagined.get("world_model"), **how)
    if walk.seed is not None:
        policy = policy.with_seed(walk.seed)
    make = make_browser
    if imagined:
        settings = walk.dream | {"seed": params.seed if walk.seed is None else walk.seed}
        make = lambda: WorldModelEnv(imagined["world_model"], params.world_model, walk.pages, **settings)  # noqa: E731
    return Opened(policy, make, models_of(policy) | imagined)


class Worker:
    """An actor of Ray: one browser, one engine, and the episodes that it is asked for, several at once."""

    def __init__(self):
        self.chromium = self.suite = self.engine = self.opened = self.recipe = None

    def pid(self) -> int:
        return os.getpid()

    async def open(self, recipe: str):
        """Opens what the recipe (JSON) says. The browser, the pages and the weights of an earlier one are kept."""
        self.recipe = recipe = Recipe.model_validate_json(recipe)
        os.environ["WEVO_OUTPUTS"] = recipe.outputs
        params, dreams = recipe.params, recipe.walk.dream is not None
        if self.chromium is None and not dreams:
            self.suite = open_suite(params).__enter__()
            self.chromium = await Chromium(params.browser).__aenter__()
        if self.engine is None:
            threads = params.llm.threads or 1  # one CPU each: with all of them every worker would hold up the others
            self.engine = Engine(params.llm.model_copy(update={"threads": threads}), merge=dreams)
        self.engine.servers = LentServers(recipe.lent, params.llm)
        folder = Path(recipe.folder)
        make = lambda: BrowserEnv(self.chromium, self.suite, params.browser, params.observation, folder)  # noqa: E731
        self.opened = await asyncio.to_thread(open_walk, recipe, self.engine, make)  # loading must not hold up the loop

    async def episode(self, task: str, attempt: int) -> tuple[str, dict[str, dict]]:
        """A trajectory (JSON), and what the models have cost since the last answer, by role."""
        policy, make, models = self.opened
        limits = self.recipe.max_steps, self.recipe.max_repeats
        one = await rollout_guarded(policy, make, Task.model_validate_json(task), *limits, attempt)
        used = {role: model.usage.model_dump() for role, model in models.items()}
        for model in models.values():
            model.usage.reset()
        return one.model_dump_json(exclude_defaults=True), used

    async def close(self):
        """Ends the browser and the pages."""
        if self.chromium is not None:
            await self.chromium.__aexit__()
            self.suite.__exit__(None, None, None)
