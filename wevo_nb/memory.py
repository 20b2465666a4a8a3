"""How much memory a model takes, by arithmetic: weights, KV cache, gradients and optimizer, activations.

Reads the shapes of known models (model_shapes.json), or a config.json. Everything is bytes of one
device; 1 GB is 10^9 bytes, so a GPU sold as 80 GB holds a little more than is counted here. Weights,
KV cache and optimizer are exact; activations count the tensors that a backward pass keeps and are an
estimate. Used by `wevo plan` and notebook 04. Paper: none; it reports no memory.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

from wevo_nb.params import ParamsError
from wevo_nb.sections import SFTParams

Form = Literal["float32", "bfloat16", "fp8", "nf4"]

GB = 10**9
# nf4 of bitsandbytes: half a byte a weight, and for each block of 64 one byte, and for 256 of these blocks four
# more (QLoRA, arXiv 2305.14314, section 3, double quantization).
NF4_BYTES = 0.5 + 1 / 64 + 4 / (64 * 256)
BYTES = {"float32": 4, "bfloat16": 2, "fp8": 1, "nf4": NF4_BYTES}
# Two moments a trained weight; 8 bit: a byte each, and four more for each block of 256 (bitsandbytes).
ADAM_BYTES = {"adamw_torch": 8, "adamw_torch_fused": 8, "paged_adamw_32bit": 8, "paged_adamw_8bit": 2 * (1 + 4 / 256)}
# A supervised position over the vocabulary: 16-bit logits, their float32 copy, its log-softmax, its gradient.
LOGIT_BYTES = 2 + 4 + 4 + 4
TRAINING_OTHER = 1.5 * GB  # assumed: what CUDA and NCCL hold for themselves
FRAGMENTS = 0.05  # assumed: share of a training's memory that is lost between its tensors
SERVING_OTHER = 2.0 * GB  # assumed: CUDA, CUDA graphs and the activations of vLLM
PROCESS_OTHER = 0.7 * GB  # assumed: Python with torch and transformers on a CPU
FAMILIES = ("llama", "mistral", "qwen2", "qwen3")


class Shape(NamedTuple):
    """The sizes of a decoder of the Llama kind. `head_norms`: a norm of each query and key head (Qwen3)."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    tied: bool = False  # the embeddings are the output layer too
    attention_bias: bool = False  # of the query, key and value projections (Qwen2)
    head_norms: bool = False
    source: str = ""

    @property
    def projections(self) -> tuple[tuple[int, int], ...]:
        """(inputs, outputs) of the linear layers of one block: q, k, v, o, gate, up, down."""
        h, q, kv, i = self.hidden, self.heads * self.head_dim, self.kv_heads * self.head_dim, self.intermediate
        return (h, q), (h, kv), (h, kv), (q, h), (h, i), (h, i), (i, h)

    @property
    def block_linear(self) -> int:
        """Weights of the linear layers of one block: what 4 bit and adapters go over."""
        return sum(inputs * outputs for inputs, outputs in self.projections)

    @property
    def block(self) -> int:
        """Parameters of one block."""
        biases = (self.heads + 2 * self.kv_heads) * self.head_dim if self.attention_bias else 0
        norms = 2 * self.hidden + (2 * self.head_dim if self.head_norms else 0)
        return self.block_linear + biases + norms

    @property
    def embedding(self) -> int:
        return self.vocabulary * self.hidden

    @property
    def parameters(self) -> int:
        return self.layers * self.block + self.hidden + self.embedding * (1 if self.tied else 2)


class Footprint(NamedTuple):
    """Bytes on one device. `optimizer`: gradients and moments. `other`: what the libraries hold for themselves."""

    weights: float
    kv: float = 0.0
    optimizer: float = 0.0
    activations: float = 0.0
    other: float = 0.0

    @property
    def total(self) -> float:
        return sum(self)


@cache
def known_shapes() -> dict[str, Shape]:
    """The shapes of model_shapes.json by base."""
    told = json.loads(Path(__file__).with_name("model_shapes.json").read_text())
    return {base: Shape(**values) for base, values in told.items() if base != "_about"}


def shape_of(base: str) -> Shape:
    """The shape of a base: a known one, a folder with config.json, or a hub id. Raises ParamsError with the cure."""
    if base in known_shapes():
        return known_shapes()[base]
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(base)
    except (OSError, ValueError) as problem:
        raise ParamsError(
            f"the size of base '{base}' is not known ({str(problem).splitlines()[0]}): name a folder with its "
            f"config.json, let the hub be reached, or take one of {', '.join(known_shapes())}"
        ) from None
    if config.model_type not in FAMILIES:
        raise ParamsError(f"base '{base}' is a {config.model_type}: a plan knows {', '.join(FAMILIES)}")
    qwen2 = config.model_type == "qwen2"
    return Shape(
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        intermediate=config.intermediate_size,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads,
        vocabulary=config.vocab_size,
        tied=config.tie_word_embeddings,
        attention_bias=qwen2 or bool(getattr(config, "attention_bias", False)),
        head_norms=config.model_type == "qwen3",
        source=base,
    )


def weight_bytes(shape: Shape, form: Form) -> float:
    """Of the whole model. In fp8 and nf4 embeddings, output layer, norms and biases stay in 16 bit."""
    if form in ("float32", "bfloat16"):
        return shape.parameters * BYTES[form]
    linear = shape.layers * shape.block_linear
    return linear * BYTES[form] + (shape.parameters - linear) * BYTES["bfloat16"]


def kv_bytes(shape: Shape, form: Form = "bfloat16") -> int:
    """Of one token in the KV cache: a key and a value for each head of each layer."""
    return int(2 * shape.layers * shape.kv_heads * shape.head_dim * BYTES[form])


def adapter_parameters(shape: Shape, rank: int) -> int:
    """Of an adapter over every linear layer of the blocks."""
    return shape.layers * rank * sum(inputs + outputs for inputs, outputs in shape.projections)


def trained_parameters(shape: Shape, params: SFTParams) -> int:
    """Those that get a gradient: an adapter's, or all that is not frozen."""
    if params.method != "full":
        return adapter_parameters(shape, params.lora_rank)
    frozen = params.freeze_layers * shape.block + (shape.embedding if params.freeze_embeddings else 0)
    return shape.parameters - frozen


def in_words(base: str, params: SFTParams) -> str:
    """How large a base is and how much of it is trained, for a reader; says so where the size is not known."""
    try:
        shape = shape_of(base)
    except ParamsError:
        return f"{base}: its size is not known here"
    whole, part = shape.parameters, trained_parameters(shape, params)
    size = f"{shape.layers} blocks, {whole / 1e6:,.1f} million parameters"
    return f"{base}: {size}; {params.method} trains {part / 1e6:,.1f} million ({part / whole:.0%})"


def activation_bytes(shape: Shape, params: SFTParams, *, supervised: int, form: Form = "bfloat16") -> float:
    """What a training of `batch` rows of `max_length` tokens keeps for its backward pass, at most.

    `supervised`: tokens of a row that carry loss. The trainer projects the positions where any row of the batch
    has some onto the vocabulary, for every row: rows whose replies stand apart have as many as all together.
    With gradient checkpointing each block keeps its input, and one block at a time is computed again.
    Blocks below the lowest trained one keep nothing.
    """
    tokens = params.batch * params.max_length
    h, q, kv, i = shape.hidden, shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim, shape.intermediate
    # Both norms keep their input in float32 and their result; then q, k, v and the attention's result; then
    # gate, up, the gate's activation and the product. Attention keeps no matrix of tokens by tokens.
    a_block = (4 * h + 2 * q + 2 * kv + 4 * i) * BYTES[form] + 2 * h * BYTES["float32"]
    if params.method != "full":
        a_block += sum(inputs for inputs, _ in shape.projections) * BYTES[form]  # what each adapter reads
    logits = params.batch * min(params.batch * supervised, params.max_length) * shape.vocabulary * LOGIT_BYTES
    frozen = params.freeze_layers if params.method == "full" and params.freeze_embeddings else 0
    if params.gradient_checkpointing:
        return tokens * (shape.layers * h * BYTES[form] + 2 * a_block) + logits
    return tokens * (shape.layers - frozen) * a_block + logits


def training(shape: Shape, params: SFTParams, *, supervised: int, cpu: bool = False) -> Footprint:
    """A training on one device, of `launch.hosts` times `launch.processes`.

    `full` holds weights in float32 and computes in bfloat16; `lora` holds them in bfloat16, `qlora` in
    nf4, and their adapters in adapter_dtype. fsdp2 and deepspeed divide weights, gradients and moments
    by the devices and gather two blocks at a time and the output layer; sharding none keeps a whole copy on each.
    Weights in nf4 are divided once each device has read them all: where that takes more than a step, it is told.
    On a `cpu` everything is float32.
    """
    launch = params.launch
    share = 1 if launch.sharding == "none" else launch.hosts * launch.processes
    form: Form = {"full": "float32", "lora": "float32" if cpu else "bfloat16", "qlora": "nf4"}[params.method]
    compute: Form = "float32" if cpu else "bfloat16"
    trained = trained_parameters(shape, params)
    held = BYTES["float32"] if params.method == "full" else BYTES[params.adapter_dtype]
    weights = weight_bytes(shape, form) / share
    if params.method != "full":
        weights += trained * held / share
    if share > 1:
        # Gathered: the block at work, the next one, and the output layer, which accelerate leaves so for a whole step.
        weights += (2 * shape.block + shape.embedding) * BYTES[compute]
    elif params.method == "full" and not cpu:
        weights += shape.parameters * BYTES[compute]  # autocast keeps a 16-bit copy during a step
    if params.method == "qlora":
        weights += max(a * b for a, b in shape.projections) * BYTES[compute]  # a layer as it is computed with
    optimizer = trained * (held + ADAM_BYTES[params.optimizer]) / share
    activations = activation_bytes(shape, params, supervised=supervised, form=compute)
    other = lambda used: PROCESS_OTHER if cpu else TRAINING_OTHER + FRAGMENTS * used  # noqa: E731
    step = Footprint(weights, 0.0, optimizer, activations, other(weights + optimizer + activations))
    if params.method != "qlora" or share == 1:
        return step
    # transformers' quantizer_bnb_4bit loads them to each GPU; accelerate's fsdp2_prepare_model divides them there
    whole = weight_bytes(shape, form) + trained * held
    return max(step, Footprint(whole, other=other(whole)), key=lambda one: one.total)


def host_bytes(shape: Shape, params: SFTParams) -> float:
    """Of a host's own memory, where a training on its GPUs reads and saves the weights; of the first host, at most.

    Each process reads them all, with sharding one of a host alone: `full` in float32, `lora` in 16 bit, `qlora` one
    tensor after the other onto its GPU. To save a `full` model the first process gathers it and makes a 16-bit copy.
    """
    if params.method == "qlora":
        return PROCESS_OTHER
    readers = params.launch.processes if params.launch.sharding == "none" else 1
    form: Form = "float32" if params.method == "full" else "bfloat16"
    saved = shape.parameters * (BYTES["float32"] + BYTES["bfloat16"]) if params.method == "full" else 0.0
    return PROCESS_OTHER + max(readers * weight_bytes(shape, form), saved)


def serving(
    shape: Shape,
    form: Form,
    *,
    tokens: int,
    tensor: int = 1,
    pipeline: int = 1,
    adapters: int = 0,
    rank: int = 16,
    cpu: bool = False,
) -> Footprint:
    """A model that answers, on one of the devices that share it, with room for `tokens` in its KV cache.

    `tensor` devices share each layer, `pipeline` groups of them share the layers. More devices than KV heads
    hold copies of these. Room for `adapters` of `rank` lies beside the weights in 16 bit, half of it whole on each
    of the `tensor` devices, for vLLM divides one of an adapter's two matrices alone (its fully_sharded_loras is off).
    """
    beside = adapters * adapter_parameters(shape, rank) * BYTES["bfloat16"] * (1 + tensor) / 2
    cache_form: Form = "float32" if form == "float32" else "bfloat16"
    kv = kv_bytes(shape, cache_form) * tokens / (pipeline * min(tensor, shape.kv_heads))
    other = PROCESS_OTHER if cpu else SERVING_OTHER
    return Footprint((weight_bytes(shape, form) + beside) / (tensor * pipeline), kv, 0.0, 0.0, other)
