"""How much a run asks of its models: calls, tokens, steps in the browser, rows, stage by stage.

Computed from params before anything runs, so everything here is an estimate on the assumptions that
are named constants below, and `ASSUMPTIONS` says them. Used by `wevo plan`. Paper: none; it reports
no trajectory counts, tokens or hours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from wevo_nb import prompts
from wevo_nb.chain import Planned
from wevo_nb.params import Params, parse_arm
from wevo_nb.runs import StageError
from wevo_nb.sections import LookAheadParams
from wevo_nb.synthesis import WRITTEN_TOKENS
from wevo_nb.targets import SENTENCE_TOKENS
from wevo_nb.tasks import LIVE, suite_named, test_tasks, train_tasks

CHARS_A_TOKEN = 3.5
LINE_CHARS = 12  # of an element beside its name: id, role, quotes
FILLED = 0.5  # of what a page, a name or a change may be long
EPISODE = 0.5  # of max_steps, and of the horizon
SUCCEED = 0.4  # of episodes, real and imagined
GOAL_TOKENS, ACTION_TOKENS, REPLY_TOKENS, CHOICE_TOKENS, REASON_TOKENS = 25, 12, 60, 20, 60
JUDGE_TOKENS = len(prompts.JUDGE + prompts.JUDGE_JSON) / CHARS_A_TOKEN
GRADES = 5  # questions about one prediction: four grades and what is wrong
ASSUMPTIONS = (
    f"a token is {CHARS_A_TOKEN} characters; pages and predicted changes are half as long as they may be",
    "an episode takes half of the steps it may take, and two of five succeed, real and imagined",
    f"a thought with its action is {REPLY_TOKENS} tokens, a fixed reply {CHOICE_TOKENS}",
    "the prefix cache saves nothing",
)


class Work(NamedTuple):
    """Calls of one role; tokens are of all calls together. `trained`: the stage that made its model, if one did.

    `apart`: before or after the stage's other calls, and not in turns with them.
    """

    role: str
    calls: float
    prompt: float
    completion: float
    trained: str | None = None
    apart: bool = False


class Load(NamedTuple):
    """What one stage does. `rows` are trained on in `epochs`, `row_tokens` each; `episodes` run `steps` together."""

    work: tuple[Work, ...] = ()
    episodes: float = 0
    steps: float = 0
    rows: float = 0
    row_tokens: float = 0
    epochs: float = 0

    @property
    def trained_tokens(self) -> float:
        return self.rows * self.row_tokens * self.epochs


class Sizes(NamedTuple):
    """Tokens of a page, of what is asked of policy and world model, and of what they reply."""

    page: float
    policy: float
    reply: float
    world_model: float
    predicted: float


class Counted(NamedTuple):
    """Tasks of one collection and of the test, and kinds of task; `missing`: why the suite cannot tell yet."""

    train: int
    test: int
    kinds: int
    missing: str = ""


def sizes(params: Params) -> Sizes:
    """The estimated lengths, in tokens."""
    seen, how, learned = params.observation, params.policy, params.world_model
    chars = min(seen.max_elements * (LINE_CHARS + FILLED * seen.name_chars), seen.max_chars)
    page = FILLED * chars / CHARS_A_TOKEN
    reply = CHOICE_TOKENS if how.reply == "choose" else min(REPLY_TOKENS, how.max_tokens)
    system = len(prompts.POLICY_FULL if how.prompt == "full" else prompts.POLICY_SHORT) / CHARS_A_TOKEN
    past = learned.history * (REPLY_TOKENS if learned.thoughts else ACTION_TOKENS)
    memory = FILLED * learned.memory_chars / CHARS_A_TOKEN
    told = min(page, learned.max_tokens) if learned.target == "page" else FILLED * learned.max_tokens
    return Sizes(
        page=page,
        policy=page + system + GOAL_TOKENS + how.history * reply,
        reply=reply,
        world_model=page + len(prompts.WORLD_MODEL[learned.target]) / CHARS_A_TOKEN + GOAL_TOKENS + past + memory,
        predicted=told + (SENTENCE_TOKENS if learned.rationale else 0),
    )


def count_tasks(params: Params) -> Counted:
    """By the suite itself; where it is not here yet, as many as the params ask for."""
    suite, tasks = suite_named(params.collect.suite), params.tasks
    try:
        suite.tasks()  # a list builds and fetches nothing; what is drawn might
    except (StageError, ModuleNotFoundError) as problem:
        test = len(tasks.train) * tasks.test_seeds + len(tasks.held_out) * tasks.held_out_seeds
        train = len(tasks.train) * tasks.train_seeds
        kinds = train if params.collect.suite in LIVE else len(tasks.train)  # the sites of a group are not known yet
        return Counted(train, test, kinds, " ".join(str(problem).split()))
    train = train_tasks(suite, params, 1)
    return Counted(len(train), len(test_tasks(suite, params)), len({t.name for t in train}))


def load_of(step: Planned, tasks: Counted) -> Load:
    """What the notebook of a plan does, from its params."""
    make = {"01_collect": _collect, "02_wm_train": _world_model, "03_synthesize": _synthesize}
    make |= {"04_final_sft": _policy, "05_wmla": _look_ahead}
    return make[step.notebook](step, tasks) if step.notebook in make else Load()


def stage_of(iteration: int) -> str | None:
    """The stage that trained the policy of an iteration; None for the base."""
    return f"iter-{iteration}/04_self_improve" if iteration else None


def _collect(step: Planned, tasks: Counted) -> Load:
    params, size = step.resolved.params, sizes(step.resolved.params)
    steps = tasks.train * EPISODE * params.tasks.max_steps
    explored = _explored(params, tasks)
    sample = lambda n: 0 if params.collect.suite in LIVE else min(params.collect.llm_judge_sample, n)  # noqa: E731
    read = {name: sample(tasks.train) + sample(explored) for name in params.judges()}
    if params.collect.judge in read:
        learned = "policy" in params.collect.explorer_teaches
        read[params.collect.judge] = tasks.train + (explored if learned else sample(explored))
    work = [Work("policy", steps, steps * size.policy, steps * size.reply, stage_of(step.iteration - 1))]
    work += [_judging(n, EPISODE * params.tasks.max_steps, params, name) for name, n in read.items()]
    return Load(tuple(work), tasks.train + explored, steps + explored * EPISODE * params.tasks.max_steps)


def _explored(params: Params, tasks: Counted) -> float:
    return tasks.kinds * params.collect.explorer_episodes


def _judging(
    episodes: float, steps: float, params: Params, judge: str, role: str = "judge", apart: bool = True
) -> Work:
    """What the model of `role` reads and writes to judge so many episodes of so many steps."""
    size, how = sizes(params), params.judge
    told = 2 if getattr(params.roles, role).engine == "transformers" else SENTENCE_TOKENS  # a word, or a reason as well
    if judge == "answer":
        calls, read = (1 if params.collect.suite == "simpleqa" else 0), 2 * GOAL_TOKENS
    else:
        acted = steps * ACTION_TOKENS * (how.actions or judge == "key_points")
        calls, read = 1, min(how.pages, steps + 1) * size.page + acted + GOAL_TOKENS + JUDGE_TOKENS
    prompt = calls * read
    if judge == "key_points":  # the points, and each page by itself
        calls += steps + 2
        prompt += (steps + 2) * (JUDGE_TOKENS + GOAL_TOKENS) + (steps + 1) * size.page
    return Work(role, episodes * calls, episodes * prompt, episodes * calls * told, apart=apart)


def _world_model(step: Planned, tasks: Counted) -> Load:
    params, size = step.resolved.params, sizes(step.resolved.params)
    how = params.world_model
    episodes = tasks.train + (_explored(params, tasks) if "world_model" in params.collect.explorer_teaches else 0)
    found = step.iteration * episodes * EPISODE * params.tasks.max_steps * (1 - how.held_out_share)
    opened = min(how.opening_rows, step.iteration * tasks.train)
    rows = min(sum(how.outcome_rows.values()), found) + opened + min(how.value_rows, found)
    explained = rows * (how.rationale + (how.target == "change_described"))
    work = [Work("world_model", explained, explained * (size.world_model + size.page), explained * SENTENCE_TOKENS)]
    asked = how.report_rows + how.report_walks * how.report_depth
    asked += how.graded_rows * (1 + how.report_depth)
    earlier = range(how.first_iteration, step.iteration + 1)
    for trained in (None, *(f"iter-{i}/02_wm_train" for i in earlier)):
        work += _predictions(asked, size, how.rationale, trained)
        graded = how.graded_rows * (1 + how.report_depth) * GRADES
        work.append(Work("judge", graded, graded * (2 * size.page + size.predicted + 90), graded))
    epochs = params.world_model_sft.epochs
    work = [one._replace(apart=True) for one in work]  # one model after the other
    return Load(tuple(work), rows=rows, row_tokens=size.world_model + size.predicted, epochs=epochs)


def _predictions(asked: float, size: Sizes, rationale: bool, trained: str | None, *, drawn: float = 1.0) -> list[Work]:
    """Each is one call for the outcome and, for the share that is `drawn`, one for the page."""
    calls = asked * (1 + drawn + rationale)
    told = asked * (2 + drawn * size.predicted + (SENTENCE_TOKENS if rationale and not drawn else 0))
    return [Work("world_model", calls, calls * size.world_model, told, trained)]


def _policy(step: Planned, tasks: Counted) -> Load:
    params, size = step.resolved.params, sizes(step.resolved.params)
    how = params.sft
    kept = min(tasks.train * SUCCEED, params.collect.cap_per_task * tasks.kinds)
    kept *= step.iteration if how.arm == "self_improve" else 1
    steps = kept * EPISODE * params.tasks.max_steps
    if how.arm != "self_improve":
        steps += _imagined(params, tasks) / params.synthesize.attempts * SUCCEED * EPISODE * params.synthesize.horizon
    rows = min(how.rows_per_task * tasks.kinds, steps * how.max_repeat)
    return Load(rows=rows, row_tokens=size.policy + size.reply, epochs=how.epochs)


def _imagined(params: Params, tasks: Counted) -> float:
    """Episodes that are imagined: of unsolved tasks only."""
    return min(params.synthesize.tasks, (1 - SUCCEED) * tasks.train) * params.synthesize.attempts


def _synthesize(step: Planned, tasks: Counted) -> Load:
    params, size = step.resolved.params, sizes(step.resolved.params)
    how = params.synthesize
    episodes = _imagined(params, tasks)
    steps = episodes * EPISODE * how.horizon
    ahead = params.wmla.preset(how.look_ahead) if how.look_ahead else None
    mind = f"iter-{how.world_model_iteration or params.iterations}/02_wm_train"
    work = list(_decisions(steps, ahead, params, stage_of(how.policy_iteration), mind))
    work += _predictions(steps, size, params.world_model.rationale, mind)
    if how.judge != "world_model":
        work.append(_judging(episodes, EPISODE * how.horizon, params, how.judge))
    written = min(how.written, episodes / how.attempts)
    told = written * FILLED * WRITTEN_TOKENS * how.horizon
    work.append(Work("policy", written, written * size.policy, told, apart=True))
    replayed = {"none": 0, "accepted": SUCCEED * episodes, "all": episodes}[how.replay]
    return Load(tuple(work), replayed, replayed * EPISODE * how.horizon)


def _look_ahead(step: Planned, tasks: Counted) -> Load:
    params = step.resolved.params
    mind = f"iter-{params.synthesize.world_model_iteration or params.iterations}/02_wm_train"
    steps = tasks.test * EPISODE * params.tasks.max_steps
    work, tried = [], 0.0
    for name in params.arms():
        arm = parse_arm(name, params)
        if arm.policy != "random":
            work += _decisions(steps, arm.ahead, params, arm.policy_stage, mind)
        if arm.ahead and arm.ahead.search == "tree":
            tried += steps * arm.ahead.budget
    if params.collect.judge != "reward":
        read = tasks.test * len(params.arms())
        work.append(
            _judging(read, EPISODE * params.tasks.max_steps, params, params.collect.judge, "evaluator", apart=False)
        )
    return Load(tuple(work), tasks.test * len(params.arms()), steps * len(params.arms()) + tried)


def _decisions(
    steps: float, how: LookAheadParams | None, params: Params, trained: str | None, mind: str
) -> Iterator[Work]:
    """Of a policy that looks ahead, or does not: candidates, imagination, scores."""
    size, choose = sizes(params), params.policy.reply == "choose"
    if how is None:
        yield Work("policy", steps, steps * size.policy, steps * size.reply, trained)
        return
    tree = how.search == "tree"
    once = choose or how.candidates == "frequent"
    drawn = how.samples if how.candidates == "frequent" else 1 if once else how.k
    asked = steps * (how.budget if tree else 1)
    calls = asked * (1 if once else how.k)
    yield Work("policy", calls, calls * size.policy, asked * drawn * size.reply, trained)
    candidates = params.policy.max_choices * FILLED if how.candidates == "valid" else how.k
    futures = steps * (how.budget if tree else candidates)
    reads = how.scorer in ("llm", "value")
    if how.imagination == "world_model":
        pages = (how.depth - (0 if reads else 1)) / how.depth
        yield from _predictions(futures * how.depth, size, params.world_model.rationale, mind, drawn=pages)
        acted = futures * (how.depth - 1)
        yield Work("policy", acted, acted * size.policy, acted * size.reply, trained)
    elif how.imagination == "free_text":
        yield Work("scorer", futures, futures * size.world_model, futures * SENTENCE_TOKENS)
    elif not reads:  # the control: the same question to the untrained model
        yield Work("scorer", futures, futures * size.world_model, futures * 2)
    if reads:
        scores = futures * (how.scores if how.scorer == "llm" else 1)
        free = params.roles.scorer.engine == "openai" and params.roles.scorer.constraint == "none"
        told = REASON_TOKENS if free and how.scorer == "llm" else 2
        shown = size.page * (1 + max(1, how.depth)) + 90
        role, model = ("scorer", None) if how.scorer == "llm" else ("world_model", mind)
        yield Work(role, scores, scores * shown, scores * told, model)


def by_role(loads: list[Load]) -> dict[str, Work]:
    """Calls and tokens of each role over all stages."""
    total: dict[str, Counter] = {}
    for load in loads:
        for one in load.work:
            counts = {"calls": one.calls, "prompt": one.prompt, "completion": one.completion}
            total.setdefault(one.role, Counter()).update(counts)
    return {role: Work(role, **counts) for role, counts in total.items() if counts["calls"]}
