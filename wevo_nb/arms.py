"""The arms that notebook 05 compares: a trained policy by name, plain or with look-ahead.

`zero_shot`, `self_improve_<i>`, `webevolver`, `random`; any of the first three with
`+wmla_d<n>` (look-ahead of depth n in the last world model) or `+best_of_k` (the same scorer,
no world model). Paper: Table 1.
"""

from __future__ import annotations

from wevo_nb.llm import Usage
from wevo_nb.lookahead import LLMScorer, LookAhead, OutcomeScorer
from wevo_nb.models import Engine, open_model
from wevo_nb.params import Arm, Params
from wevo_nb.policies import ModelPolicy, RandomPolicy
from wevo_nb.runs import run_folder
from wevo_nb.schema import Policy


def stages_of(arm: Arm, params: Params) -> tuple[str, ...]:
    """The stages that must be done before this arm can act."""
    world_model = (world_model_stage(params),) if arm.depth else ()
    return ((arm.policy_stage,) if arm.policy_stage else ()) + world_model


def world_model_stage(params: Params) -> str:
    """The stage of the world model that imagines: the last, if params name none."""
    return f"iter-{params.synthesize.world_model_iteration or params.iterations}/02_wm_train"


def trained_model(run: str, stage: str) -> str:
    """The folder of the model that a training stage put out."""
    return str(run_folder(run) / stage / "model")


def open_policy(run: str, stage: str | None, name: str, engine: Engine, params: Params, **how) -> ModelPolicy:
    """The policy of a training stage, or the untrained base where `stage` is None."""
    trained = trained_model(run, stage) if stage else None
    model = open_model(params.roles.policy, engine, params.llm, trained=trained, name=name)
    return ModelPolicy(model, params.policy, seed=params.seed, name=name, **how)


def open_arm(run: str, arm: Arm, engine: Engine, params: Params) -> Policy:
    """The arm as a Policy, ready to act."""
    if arm.policy == "random":
        return RandomPolicy(params.policy, seed=params.seed)
    policy = open_policy(run, arm.policy_stage, arm.policy, engine, params)
    if arm.depth is None:
        return policy
    roles, how = params.roles, params.wmla
    world_model = None
    if arm.depth:
        trained = trained_model(run, world_model_stage(params))
        world_model = open_model(roles.world_model, engine, params.llm, trained=trained, name="world_model")
    if how.scorer == "llm":
        scorer = LLMScorer(open_model(roles.scorer, engine, params.llm, name="scorer"))
    else:
        untrained = None if arm.depth else open_model(roles.scorer, engine, params.llm, name="scorer")
        scorer = OutcomeScorer(params.world_model, untrained)
    return LookAhead(
        policy,
        world_model,
        scorer,
        params.world_model,
        k=how.k,
        depth=arm.depth,
        temperature=how.temperature,
        name=arm.name,
    )


def usage_of(policy: Policy) -> dict[str, Usage]:
    """What each model behind a policy costs, by role; the counts go on."""
    if isinstance(policy, LookAhead):
        models = {"policy": policy.policy.model, "world_model": policy.world_model, "scorer": policy.scorer.model}
    else:
        models = {"policy": getattr(policy, "model", None)}
    return {role: model.usage for role, model in models.items() if model is not None}
