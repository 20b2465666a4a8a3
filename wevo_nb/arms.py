"""The arms that notebook 05 compares: a trained policy by name, plain or with look-ahead.

`random`, `zero_shot`, `self_improve_<i>`, `webevolver` and the other data arms of params.py; any
but `random` with `+<preset>`: a way to look ahead in the last world model, or one of its
controls. Paper: Table 1.
"""

from __future__ import annotations

from collections.abc import Callable

from wevo_nb.judge import AnswerJudge, Asked, KeyPointJudge, LLMJudge, References, RewardJudge
from wevo_nb.llm import Model, Usage
from wevo_nb.lookahead import LookAhead
from wevo_nb.models import Engine, open_model
from wevo_nb.params import Arm, Params
from wevo_nb.policies import ModelPolicy, RandomPolicy
from wevo_nb.runs import run_folder
from wevo_nb.schema import Environment, Judge, Policy
from wevo_nb.scorers import ModelScorer, PredictionScorer
from wevo_nb.tree_search import TreeSearch


def stages_of(arm: Arm, params: Params) -> tuple[str, ...]:
    """The stages that must be done before this arm can act."""
    world_model = (world_model_stage(params),) if arm.imagines else ()
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


def open_world_model(run: str, engine: Engine, params: Params) -> Model:
    """The world model of notebook 02 that imagines."""
    trained = trained_model(run, world_model_stage(params))
    return open_model(params.roles.world_model, engine, params.llm, trained=trained, name="world_model")


def open_arm(
    run: str,
    arm: Arm,
    engine: Engine,
    params: Params,
    make_environment: Callable[[], Environment] | None = None,
    *,
    temperature: float = 0.0,
    world_model: Model | None = None,
) -> Policy:
    """The arm as a Policy, ready to act; `temperature` is that of a policy that does not look ahead.

    `make_environment` is for tree search, which tries in real pages; a `world_model` that is open is shared.
    """
    if arm.policy == "random":
        return RandomPolicy(params.policy, seed=params.seed)
    policy = open_policy(
        run, arm.policy_stage, arm.policy, engine, params, temperature=0.0 if arm.ahead else temperature
    )
    if arm.ahead is None:
        return policy
    how, roles = arm.ahead, params.roles
    opened = lambda role, **which: open_model(role, engine, params.llm, **which)  # noqa: E731
    if arm.imagines and world_model is None:
        world_model = open_world_model(run, engine, params)
    if how.scorer == "llm":
        free = roles.scorer.engine != "transformers" and roles.scorer.constraint == "none"
        scorer = ModelScorer(opened(roles.scorer, name="scorer"), "llm", how, free=free, seed=params.seed)
    elif how.scorer == "value":
        scorer = ModelScorer(world_model, "value", how)
    else:
        scorer = PredictionScorer(how.scorer)
    imaginer = world_model
    if how.imagination == "free_text":
        imaginer = scorer.model
    elif how.imagination == "none":
        imaginer = opened(roles.scorer, name="scorer") if isinstance(scorer, PredictionScorer) else None
    ahead = LookAhead(policy, imaginer, scorer, how, params.world_model, name=arm.name, seed=params.seed)
    if how.search != "tree":
        return ahead
    if make_environment is None:
        raise ValueError(f"{arm.name} tries actions in real pages: give make_environment")
    return TreeSearch(ahead, make_environment)


def open_judge(
    kind: str, engine: Engine | None, params: Params, *, role: str = "judge", suite: References | None = None
) -> Judge:
    """The judge that a param names: reward, answer, llm or key_points; the latter two ask the model of `role`.

    `suite` is for answer. A model in this process chooses one of fixed words; any other gives a reason in JSON.
    """
    if kind == "reward":
        return RewardJudge()
    if kind == "answer" and suite.rule != "model":
        return AnswerJudge(suite, None, params.judge)
    played = getattr(params.roles, role)
    asked = Asked(
        open_model(played, engine, params.llm, name=role),
        played.adapter or played.base,
        fixed=played.engine == "transformers",
        seed=params.seed,
        max_tokens=params.judge.max_tokens,
    )
    if kind == "answer":
        return AnswerJudge(suite, asked, params.judge)
    return {"llm": LLMJudge, "key_points": KeyPointJudge}[kind](asked, params.judge)


def models_of(policy: Policy) -> dict[str, Model]:
    """The models behind a policy, by role; none behind one that asks no model."""
    ahead = policy.ahead if isinstance(policy, TreeSearch) else policy
    models = {"policy": getattr(policy, "model", None)}
    if isinstance(ahead, LookAhead):
        scorer = getattr(ahead.scorer, "model", None)
        imaginer = "world_model" if ahead.how.imagination == "world_model" else "scorer"
        models = {"policy": ahead.policy.model, imaginer: ahead.imaginer}
        if scorer is not None and scorer is not ahead.imaginer:
            models |= {"world_model" if ahead.scorer.kind == "value" else "scorer": scorer}
    return {role: model for role, model in models.items() if model is not None}


def usage_of(policy: Policy) -> dict[str, Usage]:
    """What each model behind a policy costs, by role; the counts go on."""
    return {role: model.usage for role, model in models_of(policy).items()}
