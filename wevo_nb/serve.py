"""Models on vLLM servers of our own: started when they are asked, checked, ended to make room.

A role whose engine is `vllm` is answered by a server of its base (vllm_server.py), started when it is
first asked. Trained adapters lie on that base; a trained whole model has a server of its own. One
server runs at a time, two where serve.memory_share is at most a half; the one not asked for longest
makes room. Used by notebooks 01, 02, 03 and 05.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import tempfile
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from wevo_nb.endpoint import EndpointModel
from wevo_nb.llm import ModelError, Reply, Request, Usage
from wevo_nb.params import Params
from wevo_nb.runs import run_folder
from wevo_nb.sections import RoleParams
from wevo_nb.vllm_server import ELSEWHERE, POLL_S, Server, adapter_name, require_command, servers_at_once

if TYPE_CHECKING:
    from wevo_nb.models import Engine

MOST_STARTS = 10  # of one base in one engine: servers that take turns at every question cost hours

_opened: weakref.WeakSet[Servers] = weakref.WeakSet()  # by open_engine


class ServedModel:
    """A model on one of the Servers, asked like any other, with a usage of its own."""

    def __init__(self, servers: Servers, role: RoleParams, base: str, adapter: str | None, name: str):
        self.servers, self.role, self.name = servers, role, name
        self.base, self.adapter = base, adapter
        self.served = adapter_name(adapter) if adapter else base  # how the server calls it
        self.source = adapter or base
        self.usage = Usage()
        self._endpoint: EndpointModel | None = None

    async def __call__(self, requests: Sequence[Request]) -> list[list[Reply]]:
        """Replies, in order. Starts the server and loads the adapter if need be. Raises ModelError."""
        if not requests:
            return []
        async with self.servers.asked(self) as server:
            if self._endpoint is None or self._endpoint.role.url != server.url:
                self._endpoint = self.endpoint(server, self.served)
                self._endpoint.usage = self.usage
                self._endpoint.tells_chances = server.tells_chances
            try:
                replies = await self._endpoint(requests)
                server.tells_chances = self._endpoint.tells_chances  # tried once a server
            except ModelError:
                await self.servers.look_after(server)
                raise
            if any(reply.finish == "failed" for several in replies for reply in several):
                await self.servers.look_after(server)
            return replies

    def endpoint(self, server: Server, served: str) -> EndpointModel:
        """The model that `server` calls `served`, with the constraint of this one's role."""
        role = RoleParams(engine="openai", base=served, url=server.url, constraint=self.role.constraint)
        return EndpointModel(role, self.servers.params.llm, key=server.key)

    def about(self) -> dict:
        """For the manifest: how and where it was served, on which base, and whether chances were told."""
        told = self._endpoint.about() if self._endpoint else {"url": None}
        return {"served": self.served, "base": self.base} | told


class Servers:
    """The vLLM servers of one engine: started when asked, ended to make room, and all by `close`."""

    def __init__(self, params: Params, logs: Path | None = None):
        """`logs`: where their logs go; None: a temporary folder."""
        self.params, self.logs = params, logs
        self.running: dict[str, Server] = {}  # by base, the one asked last at the end
        self.at_once = servers_at_once(params.serve)
        self._starts: Counter[str] = Counter()  # by base
        self._turn = asyncio.Lock()
        self._asking: Counter[tuple[str, str]] = Counter()  # calls under way, by base and served name

    def model(self, role: RoleParams, trained: str | None = None, *, name: str = "") -> ServedModel:
        """The model of a role; `trained`, the folder of an adapter or a whole model, replaces it. Raises ModelError."""
        from wevo_nb.models import check_adapter, find_model

        require_command(self.params.serve)
        base, adapter = role.base, trained or role.adapter
        if trained and not (Path(trained) / "adapter_config.json").exists():
            base, adapter = trained, None
        if adapter:
            check_adapter(adapter, base)
        return ServedModel(self, role, find_model(base), adapter, name or (adapter_name(adapter) if adapter else base))

    @asynccontextmanager
    async def asked(self, model: ServedModel) -> AsyncIterator[Server]:
        """The server of a model, with its adapter; neither goes while the block runs."""
        key = (model.base, model.served)
        async with self._turn:
            server = await self._server_of(model)
            try:
                await self._lay_adapter(server, model)
            except ModelError:
                await self.look_after(server)  # an adapter that it has no memory for ends it
                raise
            self._asking[key] += 1
        try:
            yield server
        finally:
            self._asking[key] -= 1

    async def look_after(self, server: Server):
        """After a failed call: raises ModelError where the server has ended, which shows a moment later."""
        looks = 0 if await asyncio.to_thread(server.healthy) else 10
        while looks and not server.dead:
            looks -= 1
            await asyncio.sleep(POLL_S)
        self.require_alive(server)

    def require_alive(self, server: Server):
        """Raises ModelError where the server has ended by itself; the next question starts it anew."""
        if server.dead:
            if self.running.get(server.base) is server:
                del self.running[server.base]
            server.close()
            raise server.failure()

    def close(self):
        """Ends the servers. Returns when their GPU memory is free again, and raises ModelError where it is not.

        A question later starts them anew.
        """
        problems = []
        while self.running:
            try:
                self.running.popitem()[1].close()
            except ModelError as problem:  # the others are to end as well
                problems.append(problem)
        if problems:
            raise problems[0]

    async def _server_of(self, model: ServedModel) -> Server:
        base, constraint = model.base, model.role.constraint
        if base not in self.running:
            while len(self.running) >= self.at_once:
                await self._make_room()
            self.running[base] = await self._started(base)
        server = self.running[base] = self.running.pop(base)  # to the end
        self.require_alive(server)
        if constraint not in {"none", *server.obeys}:
            await self._probe(server, model)
            server.obeys.add(constraint)
        return server

    async def _make_room(self):
        base = next(iter(self.running))
        while any(calls for (of, _), calls in self._asking.items() if of == base):
            await asyncio.sleep(POLL_S)
        await asyncio.to_thread(self.running.pop(base).close)

    async def _started(self, base: str) -> Server:
        if self._starts[base] == MOST_STARTS:
            raise ModelError(
                f"the server of {base} was started {MOST_STARTS} times, in turns with others: set serve.memory_share "
                f"to at most 0.5, so that two run at once, or take adapters on one base, {ELSEWHERE}"
            )
        self.logs = self.logs or Path(tempfile.mkdtemp(prefix="wevo-servers-"))
        self.logs.mkdir(parents=True, exist_ok=True)
        log = self.logs / f"{Path(base).name}-{os.getpid()}-{self._starts.total()}.log"
        self._starts[base] += 1
        server = Server(self.params.serve, base, log)
        try:
            await asyncio.to_thread(server.wait)
        except BaseException:  # an interrupted cell too: nobody would know of it
            server.close()
            raise
        return server

    async def _probe(self, server: Server, model: ServedModel):
        """One question to each server and kind of constraint: a reply that no model gives by itself."""
        here = contextvars.Context()  # nobody's meter
        try:
            await asyncio.create_task(model.endpoint(server, server.base).probe(), context=here)
        except ModelError:
            del self.running[server.base]
            server.close()
            raise

    async def _lay_adapter(self, server: Server, model: ServedModel):
        if not model.adapter:
            return
        name, there = model.served, server.adapters
        if not self.params.serve.max_adapters:
            raise ModelError(f"serve.max_adapters is 0, and {name} is an adapter: --set serve.max_adapters=2")
        if name in there:
            there[name] = there.pop(name)  # to the end
            return
        if adapter_name(model.adapter) != name:
            raise ModelError(f"{model.adapter} holds other weights than when it was opened: open the model again")
        while len(there) >= self.params.serve.max_adapters:
            idle = next((other for other in there if not self._asking[server.base, other]), None)
            await (asyncio.to_thread(server.unload, idle) if idle else asyncio.sleep(POLL_S))
        await asyncio.to_thread(server.load, name, model.adapter)


def open_engine(params: Params, run: str | None = None, *, merge: bool = False) -> Engine:
    """What answers for every role: in this process, by URL, or by servers that it starts and ends.

    The servers' logs lie in the run's folder `servers`, or in a temporary one. Close it. What an earlier engine
    of this process has running is ended: in a notebook a cell is run twice.
    """
    from wevo_nb.models import Engine

    for earlier in list(_opened):
        earlier.close()
    servers = Servers(params, run_folder(run) / "servers" if run else None)
    _opened.add(servers)
    return Engine(params.llm, merge=merge, servers=servers)
