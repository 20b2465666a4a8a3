"""Episodes in other processes and on other hosts, on Ray: who plays what, and what comes back.

Workers (worker.py) are started on a Ray that runs, or on one that is started here and ended. What
they play comes back to the same JSONL, written by this process alone; the episodes of a worker that
was lost are played again by a new one. Used by notebooks 01, 03 and 05, where `collect.backend` is
ray; where it is local, this is rollout_many.
"""

from __future__ import annotations

import asyncio
import atexit
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from wevo_nb.arms import models_of
from wevo_nb.llm import Model
from wevo_nb.params import Params
from wevo_nb.ray_head import ClusterError, RayHead, guard_ray, require_ray
from wevo_nb.rollout import rollout_many
from wevo_nb.runs import JSONL, run_folder
from wevo_nb.schema import Environment, Judge, Policy, Task, Trajectory
from wevo_nb.serve import ServedModel
from wevo_nb.worker import Lent, Recipe, Walk, Worker

OPEN_S, CLOSE_S = 900.0, 10.0  # of a worker; for its browser to end
MOST_LOSSES = 3  # of workers at one episode: then it is the episode that ends them
HERE = ("localhost", "127.0.0.1", "::1")


class Workers:
    """Who plays the episodes: this process, or workers on Ray. Close it, or use it as a context manager."""

    def __init__(self, params: Params, run: str, *, needed: bool = True):
        """`needed`: False for a finished stage, which plays none. Raises ClusterError where Ray cannot be used."""
        self.params, self.run = params, run
        self.ray = self._head = self._node = None
        self._crew: list[Any] = [None] * params.collect.workers  # actors; None: to be started
        self._knows: list[str] = [""] * params.collect.workers  # the recipe that each has opened
        if params.collect.backend == "ray":
            if params.collect.address is None:
                guard_ray()  # also where none is needed: the cell may be run again
            ray = require_ray()
            if needed:
                self._connect(ray)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_):
        self.close()

    def __str__(self) -> str:
        if self.ray is None:
            return "episodes run in this process"
        where = "this host" if self._node or self._head else f"the cluster at {self.params.collect.address}"
        return f"episodes run on {len(self._crew)} workers of {where}"

    async def rollout_many(
        self,
        walk: Walk,
        policy: Policy,
        make_environment: Callable[[], Environment],
        jobs: Sequence[tuple[Task, int]],
        sink: JSONL,
        *,
        concurrency: int,
        max_steps: int,
        max_repeats: int = 3,
        models: Mapping[str, Model] | None = None,
        judge: Judge | None = None,
        bar=None,
    ) -> list[Trajectory]:
        """rollout_many by whoever plays here; `walk` tells workers what `policy` and `make_environment` are.

        Each worker plays `concurrency` episodes at once. What its models cost is added to the usage of those
        behind `policy` and of `models` (others, by role). Raises what an agent raises, and ClusterError where
        MOST_LOSSES workers were lost at one episode.
        """
        limits = {"max_steps": max_steps, "max_repeats": max_repeats}
        if self.ray is None:
            how = limits | {"concurrency": concurrency, "judge": judge, "bar": bar}
            return await rollout_many(policy, make_environment, jobs, sink, **how)
        models = models_of(policy) | dict(models or {})
        held = models | ({"judge": judge.model} if hasattr(judge, "model") else {})  # asked here meanwhile
        keys = [f"{task.key}/{policy.name}/{attempt}" for task, attempt in jobs]
        waiting = deque(job for key, job in zip(keys, jobs, strict=True) if key not in sink)

        async def done(told: str, used: Mapping[str, Mapping]):
            one = Trajectory.model_validate_json(told)
            for role, of_role in used.items():
                calls, prompt, completion, seconds = of_role.values()
                models[role].usage.add(calls=calls, prompt=prompt, completion=completion, seconds=seconds)
            sink.append(one.model_copy(update={"verdict": await judge.judge(one)}) if judge else one)
            if bar is not None:
                bar.update()

        if waiting:
            async with lend(held) as lent:
                places = {"run": self.run, "outputs": str(run_folder(self.run).parent), "folder": str(sink.path.parent)}
                recipe = Recipe(**places, params=self.params, walk=walk, lent=lent, **limits).model_dump_json()
                await self._play(recipe, waiting, concurrency, done)
        return [sink.records[key] for key in keys]

    def close(self):
        """Ends the workers and their browsers, and the Ray that was started here."""
        if self.ray is None:
            return
        atexit.unregister(self.close)
        ray, self.ray = self.ray, None
        try:
            ray.wait(closing := [w.close.remote() for w in self._crew if w], num_returns=len(closing), timeout=CLOSE_S)
        except (ValueError, ray.exceptions.RayError):
            pass  # no worker, or one that is gone
        ray.shutdown()
        self._end_head()

    async def _play(self, recipe: str, waiting: deque, concurrency: int, done: Callable):
        """Every waiting episode, by all workers; `done` takes each. A broken one stops the rest."""
        locks = [asyncio.Lock() for _ in self._crew]

        async def work(slot: int):
            while waiting:
                task, attempt = waiting.popleft()
                await done(*await self._episode(slot, locks[slot], recipe, task, attempt))

        playing = [asyncio.create_task(work(slot)) for _ in range(concurrency) for slot in range(len(self._crew))]
        try:
            await asyncio.gather(*playing)
        except BaseException:
            for slot, worker in enumerate(self._crew):  # what they play is wanted no more
                self._forget(slot, worker)
            raise
        finally:
            for one in playing:
                one.cancel()
            await asyncio.gather(*playing, return_exceptions=True)

    async def _episode(self, slot: int, lock: asyncio.Lock, recipe: str, task: Task, attempt: int):
        """The answer of the worker `slot`, or of the one that took its place when it was lost."""
        problem = None
        for _ in range(MOST_LOSSES):
            worker = None
            try:
                async with lock:
                    worker = await self._ready(slot, recipe)
                return await worker.episode.remote(task.model_dump_json(), attempt)
            except _lost(self.ray) as error:
                problem = error
                self._forget(slot, worker or self._crew[slot])
        raise ClusterError(
            f"{task.key} was begun {MOST_LOSSES} times and each time its worker was lost: is there memory for "
            f"{len(self._crew)} browsers and models (collect.workers, browser.contexts)? {problem}"
        ) from problem

    async def _ready(self, slot: int, recipe: str):
        """The worker `slot`, started if need be, with this recipe opened."""
        if self._crew[slot] is None:
            actor = self.ray.remote(Worker).options(num_cpus=1, max_restarts=0, scheduling_strategy=self._strategy())
            self._crew[slot], self._knows[slot] = actor.remote(), ""
        if self._knows[slot] != recipe:
            try:
                await asyncio.wait_for(self._crew[slot].open.remote(recipe), OPEN_S)
            except TimeoutError:
                raise ClusterError(
                    f"a worker was not ready within {OPEN_S:.0f} s: is the cluster busy with others? "
                    "see `ray status`, or lower collect.workers"
                ) from None
            self._knows[slot] = recipe
        return self._crew[slot]

    def _forget(self, slot: int, worker):
        """Ends a worker; the next episode of its slot starts another. Another's worker is left alone."""
        if worker is not None and self._crew[slot] is worker:
            self._crew[slot] = None
            self.ray.kill(worker)

    def _strategy(self):
        if self._node is None:
            return "SPREAD"
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        return NodeAffinitySchedulingStrategy(self._node, soft=False)

    def _connect(self, ray):
        for earlier in list(_opened):
            earlier.close()  # in a notebook a cell is run twice
        try:
            address = self.params.collect.address or self._start_head()
            try:
                ray.init(address=address, namespace="wevo", log_to_driver=False, logging_level="ERROR")
            except (ConnectionError, RuntimeError, ValueError) as problem:
                raise ClusterError(
                    f"no Ray at {address} (collect.address): run the notebook on a host of the cluster, and give what "
                    f"`ray start --head` printed; null starts one on this host ({problem})"
                ) from problem
            self.ray = ray
            _opened.add(self)
            atexit.register(self.close)
            self._place(ray)
        except BaseException:
            self.close()
            self._end_head()
            raise

    def _place(self, ray):
        """Which hosts may take workers: this one alone, where a model answers on its localhost."""
        nodes = {n["NodeID"]: n["Resources"].get("CPU", 0) for n in ray.nodes() if n["Alive"]}
        asked = models_here(self.params)
        if asked and len(nodes) > 1:
            self._node = ray.get_runtime_context().get_node_id()
        cpus = nodes[self._node] if self._node else sum(nodes.values())
        if cpus < (wanted := len(self._crew)):
            why = f"{' and '.join(asked)} answer on localhost, so workers have to run on this host; " * bool(self._node)
            cure = "serve these by a URL that every host reaches (engine openai), " * bool(self._node)
            raise ClusterError(
                f"{why}collect.workers is {wanted}, one CPU each, and Ray has {cpus:g} there: {cure}lower it, "
                "or start Ray with more"
            )

    def _start_head(self) -> str:
        self._head = RayHead(len(self._crew))
        return self._head.address

    def _end_head(self):
        if self._head is not None:
            self._head.close()
            self._head = None


_opened: weakref.WeakSet[Workers] = weakref.WeakSet()


def open_workers(params: Params, run: str, *, needed: bool = True) -> Workers:
    """Who plays the episodes of `run`, as `collect.backend` says; close it. Raises ClusterError (see Workers)."""
    return Workers(params, run, needed=needed)


def models_here(params: Params) -> list[str]:
    """Roles whose model answers on localhost: a server of the notebook's own, or a url."""
    roles = {name: getattr(params.roles, name) for name in type(params.roles).model_fields}
    local = lambda role: role.engine == "openai" and urlsplit(role.url or "").hostname in HERE  # noqa: E731
    return [f"roles.{name}" for name, role in roles.items() if role.engine == "vllm" or local(role)]


@asynccontextmanager
async def lend(models: Mapping[str, Model]) -> AsyncIterator[dict[str, Lent]]:
    """How the served ones among `models` are asked, by name. They are held while the block runs.

    Raises ClusterError where they cannot be held at once.
    """
    served = [model for model in models.values() if isinstance(model, ServedModel)]
    if not served:
        yield {}
        return
    servers = served[0].servers
    bases, most = {model.base for model in served}, servers.params.serve.max_adapters
    adapters = {model.served for model in served if model.adapter}
    if len(bases) > servers.at_once:
        raise ClusterError(
            f"workers and judge ask {len(bases)} servers at once ({', '.join(sorted(bases))}), and "
            f"{servers.at_once} may run: set serve.memory_share to at most 0.5, train adapters on one base, or set "
            "collect.backend=local"
        )
    if len(adapters) > most:
        raise ClusterError(
            f"workers and judge ask {len(adapters)} adapters at once: raise serve.max_adapters, which is {most}"
        )
    lent = {}
    async with AsyncExitStack() as held:
        for model in served:
            server = await held.enter_async_context(servers.asked(model))
            lent[model.name] = Lent(url=server.url, served=model.served, key=server.key)
        yield lent


def _lost(ray) -> tuple[type[Exception], ...]:
    """What tells that a worker, and not the episode, has broken."""
    told = ray.exceptions
    return (
        told.RayActorError,
        told.OutOfMemoryError,
        told.WorkerCrashedError,
        told.NodeDiedError,
        told.ObjectLostError,
    )
