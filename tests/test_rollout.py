"""The loop in a real Chromium: the same seed is the same episode, what is done is not done again, breaks are kept."""

from __future__ import annotations

import pytest
from stand_ins import SMOKE, Scripted, seen, task

from wevo_nb import tasks
from wevo_nb.browser import BrowserEnv
from wevo_nb.judge import RewardJudge
from wevo_nb.params import ParamsError, load_params
from wevo_nb.policies import ModelPolicy, RandomPolicy
from wevo_nb.rollout import rollout, rollout_many
from wevo_nb.runs import JSONL
from wevo_nb.schema import Trajectory
from wevo_nb.tasks.miniwob import MiniWoB
from wevo_nb.world_model import WorldModelEnv

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]
NAMES = ("click-test-2", "click-checkboxes", "enter-text")
JOBS = [(task(name, seed), 0) for name in NAMES for seed in (1, 2)]


@pytest.fixture(scope="module")
def suite():
    with MiniWoB() as one:
        yield one


class Maker:
    """Makes browser environments and remembers them."""

    def __init__(self, chromium, suite):
        self.chromium, self.suite, self.made = chromium, suite, []

    def __call__(self) -> BrowserEnv:
        self.made.append(BrowserEnv(self.chromium, self.suite, SMOKE.browser, SMOKE.observation))
        return self.made[-1]


def timeless(trajectories):
    steps = lambda t: tuple(step.model_copy(update={"ms": 0}) for step in t.steps)  # noqa: E731
    return [t.model_copy(update={"seconds": 0.0, "steps": steps(t)}) for t in trajectories]


async def explore(make, path, jobs=JOBS, *, seed=0, concurrency=3) -> list[Trajectory]:
    policy, sink = RandomPolicy(SMOKE.policy, seed=seed), JSONL(path, Trajectory)
    return await rollout_many(policy, make, jobs, sink, max_steps=3, concurrency=concurrency, judge=RewardJudge())


async def test_the_same_seed_gives_the_same_episodes_however_many_run_at_once(chromium, suite, tmp_path):
    make = Maker(chromium, suite)
    first = await explore(make, tmp_path / "a.jsonl")
    second = await explore(make, tmp_path / "b.jsonl", concurrency=1)
    other = await explore(make, tmp_path / "c.jsonl", seed=1)
    assert timeless(first) == timeless(second) != timeless(other)
    assert [t.key for t in first] == [f"{one.key}/random/0" for one, _ in JOBS]
    assert all(t.ended in ("done", "limit") and t.steps and t.task.goal and t.verdict for t in first)
    assert JSONL(tmp_path / "a.jsonl", Trajectory).values() == sorted(first, key=lambda t: t.key)
    assert len(make.made) == 18 and len(chromium.contexts) == 0


async def test_what_is_done_is_not_done_again(chromium, suite, tmp_path):
    whole = await explore(Maker(chromium, suite), tmp_path / "whole.jsonl")
    half = [JOBS[0], JOBS[3], JOBS[5]]
    begun = await explore(Maker(chromium, suite), tmp_path / "t.jsonl", half)
    with (tmp_path / "t.jsonl").open("a") as file:
        file.write('{"task": {"suite"')  # killed while writing the fourth
    make = Maker(chromium, suite)
    found = await explore(make, tmp_path / "t.jsonl")
    assert len(make.made) == 3 and (tmp_path / "t.jsonl").read_text().count("\n") == 6
    assert [found[0], found[3], found[5]] == begun
    assert timeless(found) == timeless(whole)
    assert await explore(make, tmp_path / "t.jsonl") == found and len(make.made) == 3


async def test_an_episode_that_breaks_is_tried_once_more_then_kept_as_an_error(chromium, tmp_path):
    """The server of the pages is gone. Both environments are closed, the other jobs are not held up."""
    with MiniWoB() as gone:
        pass
    make = Maker(chromium, gone)
    found = await explore(make, tmp_path / "t.jsonl", JOBS[:2], concurrency=1)
    assert len(make.made) == 4 and all(env.context is None for env in make.made) and len(chromium.contexts) == 0
    assert [(t.ended, t.steps, t.verdict.outcome) for t in found] == [("error", (), "unscored")] * 2
    assert found[0].error.startswith("Error: Page.goto: net::ERR_CONNECTION_REFUSED")


async def test_a_policy_that_breaks_stops_the_rest_and_leaves_no_context(chromium, suite, tmp_path):
    """What is wrong with the agent is no fault of the environment: it is raised, once all episodes are closed."""
    calls = iter(range(100))

    def fail_later(request):
        if next(calls) == 2:
            raise RuntimeError("the model is gone")
        return request.choices[0]

    sink = JSONL(tmp_path / "t.jsonl", Trajectory)
    policy = ModelPolicy(Scripted(fail_later), SMOKE.policy)
    with pytest.raises(RuntimeError, match="the model is gone"):
        await rollout_many(policy, Maker(chromium, suite), JOBS, sink, max_steps=3, concurrency=3)
    left = len(chromium.contexts)
    for context in chromium.contexts:
        await context.close()
    assert left == 0


async def test_how_an_episode_ends(chromium, suite):
    """limit after max_steps; dead_end where no reply is left; stop without a step of the environment."""
    make = Maker(chromium, suite)
    one = task("click-checkboxes", 3)

    async def walked(params, answer, steps=2):
        env = make()
        try:
            return await rollout(ModelPolicy(Scripted(answer), params), env, one, max_steps=steps)
        finally:
            await env.close()

    free = SMOKE.policy.model_copy(update={"reply": "generate"})
    limit = await walked(SMOKE.policy, lambda request: request.choices[0])
    assert (limit.ended, len(limit.steps), limit.final.reward) == ("limit", 2, None)
    stopped = await walked(free, lambda request: "Thought: ok. Action: ```stop [done]```")
    assert (stopped.ended, len(stopped.steps)) == ("stop", 1) and stopped.final.text == stopped.steps[
        0
    ].observation.text
    unread = await walked(free, lambda request: "hm")
    assert unread.ended == "limit" and [s.valid for s in unread.steps] == [False, False]
    assert unread.final.note.startswith("no action in 'hm'") and unread.steps[1].observation.note == unread.final.note
    only = WorldModelEnv(Scripted(lambda request: "same"), SMOKE.world_model, {one.key: seen("[1] button 'A'")})
    dead = await rollout(ModelPolicy(Scripted(lambda r: r.choices[0]), SMOKE.policy), only, one, max_steps=5)
    assert (dead.ended, len(dead.steps)) == ("dead_end", 1)


# -- tasks


async def test_seeds_of_different_purposes_never_meet():
    params = load_params("smoke", {"seed": 3, "collect.explorer_episodes": 5}).params
    train = [tasks.train_tasks(MiniWoB(), params, i) for i in (1, 2)]
    explorer = tasks.explorer_tasks(MiniWoB(), params, 1, ["click-test-2"])
    test = tasks.test_tasks(MiniWoB(), params)
    assert [t.seed for t in train[0][:6]] == [301_000 + i for i in range(6)]
    assert [t.seed for t in explorer] == [301_500 + i for i in range(5)]
    assert [(t.name, t.seed, t.split) for t in test if t.name in ("click-test-2", "click-test-transfer")] == [
        ("click-test-2", 50_300_000, "test_seeds"),
        ("click-test-2", 50_300_001, "test_seeds"),
        ("click-test-transfer", 50_300_000, "test_tasks"),
        ("click-test-transfer", 50_300_001, "test_tasks"),
    ]
    keys = [t.key for group in (*train, explorer, test) for t in group]
    assert len(keys) == len(set(keys)) == 18 + 18 + 5 + 8


async def test_a_share_of_the_seeds_is_held_out():
    """A quarter, within four standard errors of 500 seeds, whatever stands beside them; more share holds more."""
    found = tasks.train_tasks(MiniWoB(), load_params("smoke", {"tasks.train_seeds": 500}).params, 1)
    by_name = [
        tasks.held_out_seeds([t for t in found if t.name == name], 0.25) for name in (*SMOKE.tasks.train, found[0].name)
    ]
    assert by_name[0] == by_name[1] == by_name[2] == tasks.held_out_seeds(found, 0.25)
    assert len(by_name[0]) / 500 == pytest.approx(0.25, abs=4 * (0.25 * 0.75 / 500) ** 0.5)
    assert tasks.held_out_seeds(found, 0.1) < by_name[0]


async def test_of_few_seeds_one_is_held_out():
    """None of the six seeds of run 1 draws below a quarter: the first comes nearest, with 0.49."""
    found = tasks.train_tasks(MiniWoB(), load_params("smoke", {"seed": 1}).params, 1)
    assert tasks.held_out_seeds(found, 0.25) == {101_000} == tasks.held_out_seeds(found, 0.5)
    assert len(tasks.held_out_seeds(found, 0.6)) == 2
    assert tasks.held_out_seeds([], 0.25) == set()


async def test_an_unknown_task_is_refused_with_the_nearest():
    params = load_params("smoke", {"tasks.held_out": ["click-buton"]}).params
    with pytest.raises(ParamsError, match="miniwob has no task 'click-buton' .*: did you mean click-button"):
        tasks.open_suite(params)
