"""Episodes on Ray: what a worker opens from a recipe, and with `-m scale` a real Ray with real browsers, and kills."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from stand_ins import seen, task
from test_rollout import timeless

from wevo_nb import cluster, lifeline
from wevo_nb.browser import BrowserEnv
from wevo_nb.chromium import Chromium
from wevo_nb.cluster import models_here, open_workers
from wevo_nb.judge import Asked, LLMJudge, RewardJudge
from wevo_nb.models import Engine
from wevo_nb.params import ROOT, ParamsError, load_params
from wevo_nb.policies import ModelPolicy, RandomPolicy
from wevo_nb.ray_head import ClusterError, folder_of
from wevo_nb.rollout import rollout_many
from wevo_nb.runs import JSONL, open_stage
from wevo_nb.schema import Trajectory
from wevo_nb.serve import ServedModel, Servers
from wevo_nb.tasks.miniwob import MiniWoB
from wevo_nb.worker import Lent, LentServers, Recipe, Walk, Worker, open_walk
from wevo_nb.world_model import WorldModelEnv

HERE = Path(__file__).parent
ON_RAY = {"collect.backend": "ray", "collect.workers": 2, "llm.threads": 1}
SERVED = {"roles.policy.engine": "vllm", "roles.world_model.engine": "vllm"}
NAMES = ("click-test-2", "click-checkboxes", "enter-text")
JOBS = [(task(name, seed), 0) for name in NAMES for seed in (1, 2, 3, 4)]
LIMITS = {"max_steps": 3, "max_repeats": 3}
BUTTON = seen("[1] button 'OK'", goal="Press OK")


def recipe(walk: Walk, *, lent: dict | None = None, **overrides) -> Recipe:
    params = load_params("smoke", ON_RAY | overrides).params
    return Recipe(run="r", outputs="/runs", folder="/runs/r/01", params=params, walk=walk, lent=lent or {}, **LIMITS)


def params_of(**overrides):
    return load_params("smoke", {key.replace("__", "."): value for key, value in overrides.items()}).params


# -- recipes


def test_a_recipe_reads_back_as_it_was_written():
    dream = {"temperature": 0.5, "imagine_first": False, "hint_at": 3}
    walk = Walk(arm="self_improve_1+wmla_d2", temperature=0.7, seed=4, dream=dream, pages={"miniwob/a/1": BUTTON})
    written = recipe(walk, lent={"world_model": Lent(url="http://127.0.0.1:1/v1", served="wm-1-ab", key="k")})
    assert Recipe.model_validate_json(written.model_dump_json()) == written


@pytest.mark.parametrize(("asked", "threads"), [(0, 1), (2, 2)])
async def test_a_worker_has_one_cpu_and_computes_in_one_thread_unless_told_otherwise(monkeypatch, asked, threads):
    """Ray gives it one CPU; all cores for each of sixteen workers would hold every one of them up."""
    monkeypatch.setattr("wevo_nb.worker.open_walk", lambda *args: None)
    one = Worker()
    await one.open(recipe(Walk(arm="zero_shot", dream={}), **{"llm.threads": asked}).model_dump_json())
    assert one.engine.params.threads == threads


def test_a_worker_opens_what_the_notebook_would_have_opened():
    """The explorer, and the untrained base in this process: the policy's class, name, seed, temperature and models."""
    make = lambda: "a browser"  # noqa: E731
    explorer = open_walk(recipe(Walk(arm="random"), seed=7), None, make)
    assert isinstance(explorer.policy, RandomPolicy) and explorer.policy.seed == 7 and explorer.models == {}
    assert explorer.make_environment() == "a browser"
    engine = Engine(recipe(Walk()).params.llm)
    try:
        base = open_walk(recipe(Walk(policy="policy_0", temperature=0.3, seed=5)), engine, make)
    finally:
        engine.close()
    assert isinstance(base.policy, ModelPolicy) and (base.policy.name, base.policy.temperature) == ("policy_0", 0.3)
    assert base.policy.seed == 5 and base.models == {"policy": base.policy.model}


async def test_a_served_model_is_asked_at_the_notebooks_server_by_its_key():
    """No second server: both models of a dream are lent ones, each with its name there and the notebook's name here."""
    lent = {
        name: Lent(url=f"http://127.0.0.1:{port}/v1", served=served, key="secret")
        for name, port, served in (("self_improve_1", 1, "policy-1-ab"), ("world_model", 2, "wm-2-cd"))
    }
    dream = {"temperature": 0.5, "imagine_first": False, "hint_at": None}
    walk = Walk(arm="self_improve_1", seed=9, dream=dream, pages={task().key: BUTTON})
    asked = recipe(walk, lent=lent, **SERVED)
    engine = Engine(asked.params.llm, servers=LentServers(lent, asked.params.llm))
    opened = open_walk(asked, engine, lambda: "a browser")
    env = opened.make_environment()
    assert isinstance(env, WorldModelEnv) and env.seed == 9 and env.temperature == 0.5
    assert (await env.reset(task())).text == BUTTON.text and env.name == "world_model"
    ends = {role: model.endpoint for role, model in opened.models.items()}
    told = {role: (e.role.url, e.name, e.client.api_key, opened.models[role].name) for role, e in ends.items()}
    assert told == {
        "policy": ("http://127.0.0.1:1/v1", "policy-1-ab", "secret", "self_improve_1"),
        "world_model": ("http://127.0.0.1:2/v1", "wm-2-cd", "secret", "world_model"),
    }
    with pytest.raises(ClusterError, match="no server was lent for the model 'scorer', but for self_improve_1"):
        engine.servers.model(asked.params.roles.scorer, name="scorer")
    for endpoint in ends.values():
        await endpoint.client.close()
    engine.close()


async def test_servers_that_cannot_be_held_at_once_are_refused_with_the_cure():
    params = params_of(roles__policy__engine="vllm")
    servers = Servers(params)
    two = {base: ServedModel(servers, params.roles.policy, base, None, base) for base in ("first", "second")}
    with pytest.raises(
        ClusterError, match=r"2 servers at once \(first, second\), and 1 may run: set serve.memory_shar"
    ):
        async with cluster.lend(two):
            pass
    async with cluster.lend({}) as lent:
        assert lent == {}


async def test_a_judge_on_another_server_than_the_policys_is_refused_and_not_waited_for(tmp_path, monkeypatch):
    """The policy's server is held while workers play; the judge would wait for its place until the end of days."""
    params = load_params("smoke", ON_RAY | {"roles.policy.engine": "vllm", "serve.command": [sys.executable]}).params
    servers = Servers(params)
    asked = Asked(ServedModel(servers, params.roles.policy, "the base", None, "evaluator"), "the base", fixed=False)
    judge = LLMJudge(asked, params.judge)
    policy = ModelPolicy(ServedModel(servers, params.roles.policy, "/trained", None, "policy_1"), params.policy)
    placed = cluster.Workers(params, "r", needed=False)
    placed.ray = "there"
    monkeypatch.setattr(placed, "_play", None)  # nothing may be played
    sink, how = JSONL(tmp_path / "t.jsonl", Trajectory), LIMITS | {"concurrency": 1, "judge": judge}
    with pytest.raises(
        ClusterError, match=r"workers and judge ask 2 servers at once \(/trained, the base\), and 1 may"
    ):
        await placed.rollout_many(Walk(policy="policy_1"), policy, None, JOBS[:1], sink, **how)


# -- errors and params


def test_a_ray_that_is_started_later_is_guarded_too():
    """Ray reads once whether it asks for a token: a finished stage must not have imported it without."""
    code = (
        "import os; from wevo_nb.cluster import open_workers; from wevo_nb.params import load_params; "
        f"open_workers(load_params('smoke', {ON_RAY!r}).params, 'r', needed=False); "
        "print(os.environ.get('RAY_AUTH_MODE'), len(os.environ.get('RAY_AUTH_TOKEN', '')))"
    )
    bare = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=bare, check=True)
    assert done.stdout.split() == ["token", "64"]


def test_a_missing_ray_is_told_at_once_with_the_cure(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ClusterError, match=r"collect.backend is ray, .*pip install 'ray>=2.60,<3' here and on every"):
        open_workers(load_params("smoke", ON_RAY).params, "r", needed=False)
    assert str(open_workers(load_params("smoke").params, "r")) == "episodes run in this process"  # asks for none


def test_which_models_answer_on_localhost_alone():
    here, far = {"engine": "openai", "url": "http://localhost:8000/v1"}, {"engine": "openai", "url": "http://gpu:8/v1"}
    assert models_here(params_of()) == []
    assert models_here(params_of(roles={"policy": here, "judge": far})) == ["roles.policy"]
    assert models_here(params_of(**{"roles.scorer.engine": "vllm"})) == ["roles.scorer"]


class OfTwoHosts:
    """What Ray tells of a cluster: this host with 2 CPUs, another with 8."""

    def nodes(self):
        return [{"NodeID": n, "Alive": True, "Resources": {"CPU": cpus}} for n, cpus in (("a", 2.0), ("b", 8.0))]

    def get_runtime_context(self):
        return self

    def get_node_id(self):
        return "a"


def test_workers_stay_on_this_host_where_a_model_answers_on_its_localhost():
    """Ten CPUs for ten workers, but two where the server is: refused with the cure, or kept there."""
    ten = {"collect__backend": "ray", "collect__workers": 10}
    placed = cluster.Workers(params_of(**ten), "r", needed=False)
    placed._place(OfTwoHosts())
    assert placed._node is None
    served = ten | {"roles__policy__engine": "vllm"}
    said = r"roles.policy answer on localhost, .*collect.workers is 10, .* has 2 there: serve these by a URL"
    with pytest.raises(ClusterError, match=said):
        cluster.Workers(params_of(**served), "r", needed=False)._place(OfTwoHosts())
    two = cluster.Workers(params_of(**served | {"collect__workers": 2}), "r", needed=False)
    two._place(OfTwoHosts())
    assert two._node == "a"
    eleven = cluster.Workers(params_of(collect__backend="ray", collect__workers=11), "r", needed=False)
    with pytest.raises(ClusterError, match="collect.workers is 11, one CPU each, and Ray has 10 there: lower it"):
        eleven._place(OfTwoHosts())


def test_where_episodes_run_is_no_part_of_what_a_stage_is(tmp_path, monkeypatch):
    """Begun in this process, a collection goes on by workers."""
    monkeypatch.setenv("WEVO_OUTPUTS", str(tmp_path))
    how = {"sections": ("tasks", "collect")}
    begun = open_stage("r", "iter-1/01_collect", load_params("smoke"), **how)
    begun.close()
    again = open_stage("r", "iter-1/01_collect", load_params("smoke", ON_RAY | {"collect.address": "head:6379"}), **how)
    again.close()
    assert not {"backend", "workers", "address"} & set(again.spec["params"]["collect"]) and again.spec == begun.spec


@pytest.mark.parametrize("address", ["ray://head:10001", "head", ""])
def test_an_address_is_host_and_port(address):
    with pytest.raises(ParamsError, match="collect.address"):
        load_params("smoke", {"collect.address": address})


# -- a real Ray on this host


async def played_here(policy, path: Path) -> list[Trajectory]:
    params = load_params("smoke").params
    async with Chromium(params.browser) as chromium:
        with MiniWoB() as suite:
            make = lambda: BrowserEnv(chromium, suite, params.browser, params.observation)  # noqa: E731
            sink = JSONL(path, Trajectory)
            return await rollout_many(policy, make, JOBS, sink, concurrency=2, judge=RewardJudge(), **LIMITS)


@pytest.fixture(scope="module")
def local(tmp_path_factory) -> list[Trajectory]:
    """The random walks, in this process."""
    policy = RandomPolicy(load_params("smoke").params.policy)
    return timeless(asyncio.run(played_here(policy, tmp_path_factory.mktemp("local") / "t.jsonl")))


@pytest.fixture(scope="module")
def workers():
    with open_workers(load_params("smoke", ON_RAY).params, "r") as opened:
        yield opened


def walk_at_random(workers, path: Path, *, judge=None, jobs=JOBS) -> list[Trajectory]:
    policy, sink = RandomPolicy(workers.params.policy), JSONL(path, Trajectory)
    how = LIMITS | {"concurrency": 2, "judge": judge or RewardJudge()}
    return asyncio.run(workers.rollout_many(Walk(arm="random"), policy, None, jobs, sink, **how))


def keys_in(path: Path) -> list[str]:
    """Of every line, doubled ones too."""
    return sorted(Trajectory.model_validate_json(line).key for line in path.read_text().splitlines())


EVERY = sorted(f"{one.key}/random/0" for one, _ in JOBS)


@pytest.mark.scale
@pytest.mark.browser
def test_workers_play_the_same_episodes_as_this_process(workers, local, tmp_path):
    """The random policy, twelve episodes; a file that holds some of them is filled up, and the rest stays as it is."""
    path = tmp_path / "t.jsonl"
    begun = walk_at_random(workers, path, jobs=JOBS[3:7])
    found = walk_at_random(workers, path)
    assert timeless(found) == local and found[3:7] == begun and keys_in(path) == EVERY
    assert str(workers) == "episodes run on 2 workers of this host"


@pytest.mark.scale
@pytest.mark.browser
def test_a_model_in_the_workers_decides_as_it_does_here(workers, tmp_path):
    """The tiny model, greedy. What it costs in the workers is counted here, to the token."""
    engine = Engine(workers.params.llm)
    model = engine.model("tiny", name="policy_0")
    policy = ModelPolicy(model, workers.params.policy, name="policy_0")
    here = timeless(asyncio.run(played_here(policy, tmp_path / "here.jsonl")))
    cost = model.usage.model_dump(exclude={"seconds"})
    model.usage.reset()
    sink, how = JSONL(tmp_path / "there.jsonl", Trajectory), LIMITS | {"concurrency": 2, "judge": RewardJudge()}
    there = asyncio.run(workers.rollout_many(Walk(policy="policy_0"), policy, None, JOBS, sink, **how))
    engine.close()
    assert [free(t) for t in timeless(there)] == [free(t) for t in here] and any(t.steps for t in there)
    assert model.usage.model_dump(exclude={"seconds"}) == cost and cost["calls"] == sum(len(t.steps) for t in here) > 0


def free(one: Trajectory) -> dict:
    """Without seconds, and with probabilities to five digits."""
    told = one.model_dump(exclude={"steps": {"__all__": {"decision": {"cost", "probability", "entropy"}}}})
    chances = [(step.decision.probability, step.decision.entropy) for step in one.steps]
    return told | {"chances": [tuple(None if p is None else round(p, 5) for p in pair) for pair in chances]}


class Killer(RewardJudge):
    """Ends the first worker with SIGKILL after the second episode, while it plays others."""

    def __init__(self, workers):
        super().__init__()
        self.workers, self.count, self.ended = workers, 0, []

    async def judge(self, trajectory):
        self.count += 1
        if self.count == 2:
            worker = psutil.Process(await self.workers._crew[0].pid.remote())
            self.ended = [worker, *worker.children(recursive=True)]
            worker.kill()
        return await super().judge(trajectory)


@pytest.mark.scale
@pytest.mark.browser
def test_the_episodes_of_a_lost_worker_are_played_again_and_none_twice(workers, local, tmp_path):
    path, killer = tmp_path / "t.jsonl", Killer(workers)
    found = walk_at_random(workers, path, judge=killer)
    assert timeless(found) == local and keys_in(path) == EVERY
    assert len(killer.ended) > 3  # its browser too
    assert until(lambda: not any(map(lifeline.alive, killer.ended)))
    now = asyncio.run(pid_of(workers._crew[0]))
    assert now != killer.ended[0].pid


@pytest.mark.scale
@pytest.mark.browser
def test_a_ray_that_runs_already_is_used_and_left_running(workers, local, tmp_path):
    """By its address, from another process, which ends its own workers alone."""
    for slot, worker in enumerate(workers._crew):
        workers._forget(slot, worker)  # their CPUs are for the other
    address = workers._head.address
    path = tmp_path / "t.jsonl"
    done = subprocess.run(driver(path, address), capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    assert timeless(JSONL(path, Trajectory).values()) == sorted(local, key=lambda t: t.key)
    assert lifeline.alive(psutil.Process(workers._head.process.pid))
    assert len(walk_at_random(workers, tmp_path / "b.jsonl", jobs=JOBS[:1])) == 1


class Gone(RewardJudge):
    async def judge(self, trajectory):
        raise RuntimeError("the judge is gone")


@pytest.mark.scale
@pytest.mark.browser
def test_what_breaks_stops_the_workers_and_the_next_call_has_new_ones(workers, tmp_path):
    with pytest.raises(RuntimeError, match="the judge is gone"):
        walk_at_random(workers, tmp_path / "a.jsonl", judge=Gone())
    assert workers._crew == [None, None]  # what they played is wanted no more
    assert len(walk_at_random(workers, tmp_path / "b.jsonl", jobs=JOBS[:2])) == 2


@pytest.mark.scale
@pytest.mark.browser
def test_an_episode_that_ends_every_worker_is_an_error_with_the_cure(workers, tmp_path, monkeypatch):
    """Each worker is ended as soon as it is ready: after three of them it is the episode's fault."""
    ready, ended = workers._ready, []

    async def ready_and_ended(slot, recipe):
        worker = await ready(slot, recipe)
        ended.append(psutil.Process(await worker.pid.remote()))
        ended[-1].kill()
        return worker

    monkeypatch.setattr(workers, "_ready", ready_and_ended)
    with pytest.raises(ClusterError, match="click-test-2/1 was begun 3 times and each time its worker was lost: is th"):
        walk_at_random(workers, tmp_path / "t.jsonl", jobs=JOBS[:1])
    assert len(ended) == 3 and not (tmp_path / "t.jsonl").exists()


async def pid_of(worker) -> int:
    return await worker.pid.remote()


def until(true, seconds: float = 40.0) -> bool:
    deadline = time.monotonic() + seconds
    while not true() and time.monotonic() < deadline:
        time.sleep(0.2)
    return true()


DRIVER = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_cluster import ON_RAY, RewardJudge, load_params, open_workers, walk_at_random

class Telling(RewardJudge):
    async def judge(self, one):
        print(one.key, flush=True)
        return await super().judge(one)

with open_workers(load_params("smoke", ON_RAY | {{"collect.address": {address!r}}}).params, "r") as workers:
    walk_at_random(workers, Path({path!r}), judge=Telling())
"""


def driver(path: Path, address: str | None = None) -> list[str]:
    """A process that plays every job and prints the key of each episode."""
    return [sys.executable, "-c", DRIVER.format(tests=str(HERE), path=str(path), address=address)]


@pytest.mark.scale
@pytest.mark.browser
def test_a_notebook_that_is_killed_leaves_nothing_and_goes_on(local, tmp_path):
    """kill -9 to the one that started Ray: Ray, workers and browsers end; the second try plays what is missing."""
    path = tmp_path / "t.jsonl"
    script = driver(path)
    running = subprocess.Popen(script, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    for _ in range(3):
        running.stdout.readline()
    started = psutil.Process(running.pid).children(recursive=True)
    named = " ".join(word for process in started for word in process.cmdline()[:1])
    assert "raylet" in named and "gcs_server" in named and "chrom" in named
    running.send_signal(signal.SIGKILL)
    running.wait()
    running.stdout.close()
    assert until(lambda: not any(map(lifeline.alive, started)))
    before = keys_in(path)
    assert 2 <= len(before) < len(JOBS)
    done = subprocess.run(script, capture_output=True, text=True, cwd=ROOT, check=True)
    assert sorted([*before, *done.stdout.split()]) == keys_in(path) == EVERY
    assert timeless(JSONL(path, Trajectory).values()) == sorted(local, key=lambda t: t.key)
    assert not folder_of(running.pid).exists()


@pytest.mark.scale
@pytest.mark.browser
def test_the_notebook_collects_by_workers_what_it_collects_alone(tmp_path):
    """01 of the smoke profile, with an explorer, headless: the same episodes with the same actions and rewards."""
    found = {}
    for backend in ("local", "ray"):
        overrides = {"collect": {"backend": backend, "explorer_episodes": 2}, "llm": {"threads": 1}}
        given = {"profile": "smoke", "run": backend, "iteration": 1, "overrides": overrides}
        words = ["-m", "papermill", str(ROOT / "notebooks" / "01_collect.ipynb"), "out.ipynb", "-y", json.dumps(given)]
        environment = os.environ | {"WEVO_OUTPUTS": str(tmp_path), "HF_HUB_OFFLINE": "1"}
        done = subprocess.run([sys.executable, *words], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        folder = tmp_path / backend / "iter-1" / "01_collect"
        manifest = json.loads((folder / "manifest.json").read_text())
        told = {name: [brief(t) for t in JSONL(folder / name, Trajectory).values()] for name in FILES}
        found[backend] = told | {"calls": manifest["usage"]["policy"]["calls"]}
    assert found["ray"] == found["local"] and [len(found["ray"][name]) for name in FILES] == [18, 6]


FILES = ("trajectories.jsonl", "explorer.jsonl")


def brief(one: Trajectory) -> tuple:
    return one.key, one.ended, one.final.reward, [step.decision.reply for step in one.steps]
