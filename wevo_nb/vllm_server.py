"""One vLLM server in a process of its own: its command, start, health, adapters and end.

A server answers on localhost, to a key of its own, and ends with this process. Adapters are laid on
its base under names that hold the hash of their weights. Flags and routes are those of vLLM 0.33.
Used by serve.py and `wevo plan`.
"""

from __future__ import annotations

import atexit
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
import time
import urllib.error
import urllib.request
from pathlib import Path

import psutil

from wevo_nb import lifeline
from wevo_nb.llm import ModelError
from wevo_nb.runs import BAR_EVERY_S, sha256
from wevo_nb.sections import ServeParams

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
    (r"(?i)install bitsandbytes|No module named '?bitsandbytes", "pip install bitsandbytes beside vLLM"),
    (r"(?i)address already in use", "another process was faster on the port: try again"),
    (r"unrecognized arguments", "take out of serve.arguments what this version of vLLM does not know"),
)
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # localhost is never behind a proxy


def vllm_command(serve: ServeParams, base: str, *, port: int) -> list[str]:
    """What starts vLLM with `base`, a hub id or a folder, on localhost; adapters are laid on it while it runs.

    Over several hosts it runs on this one, the head of a Ray cluster that is up
    (docs.vllm.ai/en/latest/serving/parallelism_scaling). `serve.arguments` come last and so win.
    """
    adapters = ["--enable-lora", "--max-loras", str(serve.max_adapters), "--max-lora-rank", str(serve.max_lora_rank)]
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
        *(adapters if serve.max_adapters else []),
        *serve.arguments,
    ]  # fmt: skip


def adapter_name(folder: str | Path) -> str:
    """How an adapter is called: its kind and a hash of its config and weights, e.g. `policy-2-<hash>`.

    So no name ever means other weights: vLLM would answer from the old ones' prefix cache. Raises ModelError where
    the folder holds no adapter.
    """
    path = Path(folder).absolute()
    if not (path / "adapter_config.json").exists():
        raise ModelError(f"{folder} holds no adapter_config.json: it is no folder of an adapter")
    files = [path / "adapter_config.json", *sorted(path.glob("*.safetensors"))]
    return f"{adapter_kind(path)}-{hashlib.sha256(''.join(map(sha256, files)).encode()).hexdigest()[:12]}"


def adapter_kind(path: Path) -> str:
    """By the stage that made an adapter: `policy-2`, `wm-1`; `adapter-<its folder>` if none did."""
    stage = re.search(r"(?:iter-(\d+)/)?(02|04)_(\w+)/model$", path.as_posix())
    if not stage:
        return f"adapter-{path.name}"
    return f"{'wm' if stage[2] == '02' else 'policy'}-{stage[1] or stage[3]}"


def servers_at_once(serve: ServeParams) -> int:
    """How many servers may run side by side, all on the same GPUs."""
    return 2 if serve.memory_share <= 0.5 else 1


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

    def __init__(self, serve: ServeParams, base: str, log: Path):
        require_command(serve)
        self.serve, self.base, self.log = serve, base, log
        self.adapters: dict[str, str] = {}  # folders by name, the one asked last at the end
        self.obeys: set[str] = set()  # kinds of constraint that were tried on it
        self.tells_chances: bool | None = None  # of choices; None: not tried
        self.port, self.key = free_port(), secrets.token_hex(16)
        self.url = f"http://127.0.0.1:{self.port}/v1"
        self.command = vllm_command(serve, base, port=self.port)
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
        status, said = self._call_for(name, "load", body)
        if status != 200 or name not in self._served():
            raise ModelError(
                f"the server of {self.base} did not take {name} from {folder} (HTTP {status}: {said[:300]}): "
                f"is its rank within serve.max_lora_rank {self.serve.max_lora_rank}, and is it of this base?"
            )
        self.adapters[name] = folder

    def unload(self, name: str):
        """Takes the adapter `name` off. Raises ModelError where the server refuses."""
        status, said = self._call_for(name, "unload", {"lora_name": name})
        if status != 200:
            raise ModelError(f"the server of {self.base} keeps the adapter {name} (HTTP {status}: {said[:300]})")
        del self.adapters[name]

    def _call_for(self, name: str, what: str, body: dict) -> tuple[int, str]:
        """Status and text of the answer where the adapter `name` comes or goes. Raises ModelError where none comes."""
        try:
            return self._call(f"/v1/{what}_lora_adapter", body, timeout_s=LOAD_S)
        except (OSError, http.client.HTTPException) as problem:
            raise ModelError(
                f"the server of {self.base} broke off when it was to {what} {name} ({problem!r}): {self.log} says why"
            ) from problem

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
        if self.base not in (served := self._served()):
            raise ModelError(
                f"the server at {self.url} serves {', '.join(sorted(served)) or 'nothing'}, not {self.base}: "
                "is --served-model-name among serve.arguments?"
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


def free_port() -> int:
    """A port of localhost that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]
