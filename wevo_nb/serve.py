"""vLLM in processes of its own: started, checked, asked by name, ended.

A role whose engine is `vllm` is answered by a server of its base, started when it is first asked.
Trained adapters lie on that base under names that hold the hash of their weights; a trained whole
model has a server of its own. One server runs at a time, two where serve.memory_share is at most a
half; the one not asked for longest makes room. Flags and routes are those of vLLM 0.33. Used by
notebooks 01, 02, 03 and 05.
"""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import hashlib
import http.client
import json
import os
import re
import secrets
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from wevo_nb import lifeline
from wevo_nb.llm import EndpointModel, ModelError, Reply, Request, Usage
from wevo_nb.params import Params, RoleParams, ServeParams
from wevo_nb.runs import BAR_EVERY_S, run_folder, sha256

if TYPE_CHECKING:
    from wevo_nb.models import Engine

ENVIRONMENT = {
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",  # adapters come and go while the server runs
    "VLLM_NO_USAGE_STATS": "1",
}
POLL_S, HEALTH_S, LOAD_S, RELEASE_S = (
    0.2,
    5.0,
    600.0,
    60.0,
)  # between looks; for an answer, an adapter, the GPU's memory
SLACK_MIB = 512  # of GPU memory that may stay in use: other processes come and go
TAIL = 20  # lines of the log in an error
MOST_STARTS = 10  # of one base in one engine: servers that take turns at every question cost hours
ELSEWHERE = "or set the role's engine to openai with a url"
INSTALL = f"install vLLM in an environment of its own and name its python or vllm in serve.command, {ELSEWHERE}"
CURES = (  # what the log says, what to do
    (
        r"CUDA out of memory|OutOfMemoryError|Free memory on device",
        "lower serve.memory_share or serve.max_model_len, or raise serve.tensor_parallel",
    ),
    (
        r"No available memory for the cache blocks|KV cache is needed",
        "lower serve.max_model_len, or raise serve.memory_share or serve.tensor_parallel",
    ),
    (r"No module named '?vllm", INSTALL),
    (r"(?i)address already in use", "another process was faster on the port: try again"),
    (r"unrecognized arguments", "take out of serve.arguments what this version of vLLM does not know"),
)
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # localhost is never behind a proxy


_opened: weakref.WeakSet[Servers] = weakref.WeakSet()  # by open_engine


def vllm_command(serve: ServeParams, base: str, *, port: int, adapters: Mapping[str, str]) -> list[str]:
    """What starts vLLM with `base`, a hub id or a folder, and `adapters`, folders by name, on localhost.

    Over several hosts it runs on this one, the head of a Ray cluster that is up
    (docs.vllm.ai/en/latest/serving/parallelism_scaling). `serve.arguments` come last and so win.
    """
    return [
        *serve.command, base,
        "--host", "127.0.0.1",
        "--port", str(port),
        "--tensor-parallel-size", str(serve.tensor_parallel),
        "--pipeline-parallel-size", str(serve.pipeline_parallel),
        *(["--distributed-executor-backend", "ray"] if serve.hosts > 1 else []),
        "--max-model-len", str(serve.max_model_len),
        "--gpu-memory-utilization", str(serve.memory_share),
        "--enable-prefix-caching" if serve.prefix_caching else "--no-enable-prefix-caching",
        *(["--quantization", serve.quantization] if serve.quantization else []),
        "--enable-lora",
        "--max-loras", str(serve.max_adapters),
        "--max-lora-rank", str(serve.max_lora_rank),
        *(["--lora-modules", *(f"{name}={folder}" for name, folder in adapters.items())] if adapters else []),
        *serve.arguments,
    ]  # fmt: skip


def adapter_name(folder: str | Path) -> str:
    """How an adapter is called: `policy-2-<hash>`, `wm-1-<hash>`, or `adapter-<its folder>-<hash>` if no stage made it.

    The hash is of its config and weights, so no name ever means other weights: vLLM would answer
    from the old ones' prefix cache. Raises ModelError where the folder holds no adapter.
    """
    path = Path(folder).absolute()
    if not (path / "adapter_config.json").exists():
        raise ModelError(f"{folder} holds no adapter_config.json: it is no folder of an adapter")
    stage = re.search(r"(?:iter-(\d+)/)?(02|04)_(\w+)/model$", path.as_posix())
    kind = f"{'wm' if stage[2] == '02' else 'policy'}-{stage[1] or stage[3]}" if stage else f"adapter-{path.name}"
    files = [path / "adapter_config.json", *sorted(path.glob("*.safetensors"))]
    return f"{kind}-{hashlib.sha256(''.join(map(sha256, files)).encode()).hexdigest()[:12]}"


def gpu_memory() -> int | None:
    """MiB in use on the GPUs of this host that this process may see; None without nvidia-smi or a GPU."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    try:
        told = subprocess.run([*command, *(["-i", visible] if visible else [])], capture_output=True, text=True)
    except FileNotFoundError:
        return None
    used = [int(line) for line in told.stdout.split() if line.isdigit()]
    return sum(used) if told.returncode == 0 and used and visible != "" else None


def require_command(serve: ServeParams):
    """Raises ModelError where there is nothing by the name that serve.command begins with."""
    if shutil.which(serve.command[0]) is None:
        raise ModelError(f"there is no command {serve.command[0]} (serve.command): {INSTALL}")


class Server:
    """One vLLM server of one base, started at once. `wait` for it; close it, or use it as a context manager.

    It answers on localhost, to a key of its own, and writes to the file `log`. It ends with `close`, with
    this process, and when this process is killed.
    """

    def __init__(self, serve: ServeParams, base: str, log: Path, adapters: Mapping[str, str] | None = None):
        require_command(serve)
        self.serve, self.base, self.log = serve, base, log
        self.adapters = dict(adapters or {})  # folders by name, the one asked last at the end
        self.obeys: set[str] = set()  # kinds of constraint that were tried on it
        self.port, self.key = free_port(), secrets.token_hex(16)
        self.url = f"http://127.0.0.1:{self.port}/v1"
        self.command = vllm_command(serve, base, port=self.port, adapters=self.adapters)
        self._before, self._took = gpu_memory(), 0
        with log.open("w") as out:
            out.write(f"$ {shlex.join(self.command)}\n")
            out.flush()
            self.process = subprocess.Popen(
                [sys.executable, "-P", lifeline.__file__, str(os.getpid()), *self.command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=os.environ | ENVIRONMENT | {"VLLM_API_KEY": self.key},
            )
        self._running = psutil.Process(self.process.pid)
        atexit.register(self.close)

    def __enter__(self) -> Server:
        self.wait()
        return self

    def __exit__(self, *_):
        self.close()

    @property
    def dead(self) -> bool:
        """Whether it has ended. Its pid is kept until `close`, so that it cannot be another's by then."""
        return self.process.returncode is not None or not lifeline.alive(self._running)

    def wait(self):
        """Returns when it is healthy and shown to be ours. Raises ModelError, and ends it, if it is not to be used."""
        from tqdm import tqdm

        started, label = time.monotonic(), f"vLLM with {self.base}"
        tqdm.write(f"$ {shlex.join(self.command)}\nlog: {self.log}", file=sys.stdout)
        shape = "{desc}: {n:.0f} of at most {total:.0f} s"
        limit = self.serve.startup_s
        bar = tqdm(total=limit, desc=label, mininterval=BAR_EVERY_S, bar_format=shape, file=sys.stdout)
        try:
            with bar:
                while not self.healthy():
                    if self.dead:
                        self.close()
                        raise self.failure()
                    if (waited := time.monotonic() - started) > limit:
                        raise self._told(f"gave no answer within {limit} s", "raise serve.startup_s")
                    bar.update(waited - bar.n)
                    time.sleep(POLL_S)
                bar.update(time.monotonic() - started - bar.n)
            self._require_ours()
        except BaseException:
            self.close()
            raise
        used = gpu_memory()
        self._took = 0 if used is None or self._before is None else used - self._before

    def healthy(self) -> bool:
        """Whether its health check says so."""
        try:
            return self._call("/health", timeout_s=HEALTH_S)[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def load(self, name: str, folder: str):
        """Lays the adapter in `folder` over the base under `name`. Raises ModelError where the server refuses."""
        body = {"lora_name": name, "lora_path": str(Path(folder).absolute())}
        status, said = self._call("/v1/load_lora_adapter", body, timeout_s=LOAD_S)
        if status != 200 or name not in self._served():
            raise ModelError(
                f"the server of {self.base} did not take {name} from {folder} (HTTP {status}: {said[:300]}): "
                f"is its rank within serve.max_lora_rank {self.serve.max_lora_rank}, and is it of this base?"
            )
        self.adapters[name] = folder

    def unload(self, name: str):
        """Takes the adapter `name` off. Raises ModelError where the server refuses."""
        status, said = self._call("/v1/unload_lora_adapter", {"lora_name": name}, timeout_s=LOAD_S)
        if status != 200:
            raise ModelError(f"the server of {self.base} keeps the adapter {name} (HTTP {status}: {said[:300]})")
        del self.adapters[name]

    def failure(self) -> ModelError:
        """Why it ended, for one that ended by itself: the cure, and the end of its log."""
        return self._told(f"ended by itself (exit code {self.process.returncode})", "its log says why")

    def close(self):
        """Ends it and all that it started. Raises ModelError where its GPU memory is in use after RELEASE_S still."""
        if self.process.returncode is not None:
            return
        atexit.unregister(self.close)
        held = None if self.dead else gpu_memory()
        lifeline.end_session(self.process.pid)
        self.process.wait()
        if held is None or self._took <= 0:
            return
        most, deadline = held - self._took + SLACK_MIB, time.monotonic() + RELEASE_S
        while (used := gpu_memory()) is not None and used > most:
            if time.monotonic() > deadline:
                raise ModelError(
                    f"the server of {self.base} has ended, and {used} MiB of GPU memory are in use still, of {held} "
                    f"before; it had taken {self._took}: see nvidia-smi for who holds them"
                )
            time.sleep(POLL_S)

    def _require_ours(self):
        """Another process's server on the port asks for no key or not for ours, or serves other models."""
        if (without := self._call("/v1/models", key="none")[0] == 200) or self._call("/v1/models")[0] == 401:
            raise ModelError(
                f"a server answers at {self.url} {'without' if without else 'and refuses'} our key: it is another's, "
                "then try again; or serve.command does not hand on the environment variable VLLM_API_KEY"
            )
        missing = {self.base, *self.adapters} - (served := self._served())
        if missing:
            raise ModelError(
                f"the server at {self.url} serves {', '.join(sorted(served)) or 'nothing'}, not "
                f"{', '.join(sorted(missing))}: is --served-model-name among serve.arguments?"
            )

    def _served(self) -> set[str]:
        status, said = self._call("/v1/models")
        try:
            return {model["id"] for model in json.loads(said)["data"]} if status == 200 else set()
        except (ValueError, KeyError, TypeError):
            return set()

    def _call(
        self, path: str, body: dict | None = None, *, key: str = "", timeout_s: float = HEALTH_S
    ) -> tuple[int, str]:
        """Status and text of an answer."""
        request = urllib.request.Request(
            self.url.removesuffix("/v1") + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {key or self.key}", "Content-Type": "application/json"},
        )
        try:
            with DIRECT.open(request, timeout=timeout_s) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read().decode(errors="replace")

    def _told(self, what: str, cure: str) -> ModelError:
        lines = self.log.read_text(errors="replace").splitlines()
        cures = [(line, known) for line in lines[1:] for pattern, known in CURES if re.search(pattern, line)]
        line, cure = cures[0] if cures else ("", cure)
        cause = f"{line.strip()}\n" if line and line not in lines[-TAIL:] else ""
        tail = "\n".join(lines[-TAIL:])
        return ModelError(f"the server of {self.base} {what}: {cure}\n{cause}The end of {self.log}:\n{tail}")


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
            try:
                replies = await self._endpoint(requests)
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
        """For the manifest: how and where it was served, and on which base."""
        url = self._endpoint.role.url if self._endpoint else None
        return {"served": self.served, "url": url, "base": self.base}


class Servers:
    """The vLLM servers of one engine: started when asked, ended to make room, and all by `close`."""

    def __init__(self, params: Params, logs: Path | None = None):
        """`logs`: where their logs go; None: a temporary folder."""
        self.params, self.logs = params, logs
        self.running: dict[str, Server] = {}  # by base, the one asked last at the end
        self.at_once = 2 if params.serve.memory_share <= 0.5 else 1
        self._starts: Counter[str] = Counter()  # by base
        self._turn = asyncio.Lock()
        self._asking: Counter[tuple[str, str]] = Counter()  # calls under way, by base and served name

    def model(self, role: RoleParams, trained: str | None = None, *, name: str = "") -> ServedModel:
        """The model of a role; `trained`, the folder of an adapter or a whole model, replaces it. Raises ModelError."""
        from wevo_nb.models import find_model

        require_command(self.params.serve)
        base, adapter = role.base, trained or role.adapter
        if trained and not (Path(trained) / "adapter_config.json").exists():
            base, adapter = trained, None
        return ServedModel(self, role, find_model(base), adapter, name or (adapter_name(adapter) if adapter else base))

    @asynccontextmanager
    async def asked(self, model: ServedModel) -> AsyncIterator[Server]:
        """The server of a model, with its adapter; neither goes while the block runs."""
        key = (model.base, model.served)
        async with self._turn:
            server = await self._server_of(model)
            await self._lay_adapter(server, model)
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
        """Ends the servers. Returns when their GPU memory is free again; a question later starts them anew."""
        while self.running:
            self.running.popitem()[1].close()

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


def free_port() -> int:
    """A port of localhost that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]
