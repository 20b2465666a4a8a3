"""Memory by arithmetic: held against published counts, against the same models built without memory, and by hand."""

from __future__ import annotations

import pytest

from wevo_nb.memory import (
    GB,
    PROCESS_OTHER,
    Footprint,
    Shape,
    activation_bytes,
    adapter_parameters,
    host_bytes,
    in_words,
    known_shapes,
    kv_bytes,
    serving,
    shape_of,
    trained_parameters,
    training,
    weight_bytes,
)
from wevo_nb.params import ParamsError, load_params
from wevo_nb.sections import LaunchParams, SFTParams

LLAMA_8B, LLAMA_70B = "meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.3-70B-Instruct"
PUBLISHED = {  # parameters as the hub counts them
    LLAMA_8B: 8_030_261_248,
    LLAMA_70B: 70_553_706_496,
    "meta-llama/Llama-3.2-3B-Instruct": 3_212_749_824,
    "Qwen/Qwen2.5-7B-Instruct": 7_615_616_512,
    "Qwen/Qwen2.5-72B-Instruct": 72_706_203_648,
    "Qwen/Qwen3-8B": 8_190_735_360,
    "smollm2-135m": 134_515_008,
}
# One block of 8 by 8 heads of 2 and 4 by 16: small enough to count with a pencil.
SMALL = Shape(layers=1, hidden=8, intermediate=16, heads=4, kv_heads=2, head_dim=2, vocabulary=10)


def limits(**changed) -> SFTParams:
    """The base's training params with some changed."""
    own = load_params("smoke").params.world_model_sft
    launch = LaunchParams(**own.launch.model_dump() | changed.pop("launch", {}))
    return SFTParams(**own.model_dump() | {"launch": launch} | changed)


def config_of(base: str):
    """The config of transformers for a known shape."""
    from transformers import LlamaConfig, Qwen2Config, Qwen3Config

    shape = known_shapes()[base]
    kind = Qwen3Config if shape.head_norms else Qwen2Config if shape.attention_bias else LlamaConfig
    return kind(
        num_hidden_layers=shape.layers,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        vocab_size=shape.vocabulary,
        tie_word_embeddings=shape.tied,
    )


def without_memory(config):
    """A model with every weight and no memory behind it."""
    from accelerate import init_empty_weights
    from transformers import AutoModelForCausalLM

    with init_empty_weights():
        model = AutoModelForCausalLM.from_config(config)
    model.tie_weights()
    return model


@pytest.mark.parametrize("base", PUBLISHED)
def test_parameters_are_those_that_are_published(base):
    assert shape_of(base).parameters == PUBLISHED[base]


@pytest.mark.parametrize("base", [*PUBLISHED, "tiny"])
def test_parameters_are_those_of_the_model_built_without_memory(base):
    model = without_memory(config_of(base))
    assert sum(p.numel() for p in model.parameters()) == known_shapes()[base].parameters


def test_weights_are_those_of_accelerates_size_estimator():
    """It counts buffers too: the rotary frequencies, 64 numbers twice."""
    from accelerate.utils import calculate_maximum_sizes

    total, _ = calculate_maximum_sizes(without_memory(config_of(LLAMA_8B)))
    assert total - 2 * 64 * 4 == weight_bytes(shape_of(LLAMA_8B), "float32") == 4 * 8_030_261_248


def test_every_known_shape_names_its_source_and_tiny_is_the_tiny_model(tmp_path):
    from wevo_nb.tiny import tiny_model

    assert all(shape.source for shape in known_shapes().values())
    assert shape_of(str(tiny_model(tmp_path)))._replace(source="") == known_shapes()["tiny"]._replace(source="")


@pytest.mark.parametrize(("base", "bytes_a_token"), [(LLAMA_8B, 131_072), (LLAMA_70B, 327_680)])
def test_kv_cache_of_a_token(base, bytes_a_token):
    assert kv_bytes(shape_of(base)) == bytes_a_token


def test_weights_in_4_bit_leave_embeddings_output_layer_and_norms_in_16():
    """Llama-3.1-8B: 32 x 218,103,808 weights in linear layers; per 64 a byte, per 64 x 256 four more."""
    linear = 6_979_321_856
    by_hand = linear // 2 + linear // 64 + linear // 4096 + 2 * (8_030_261_248 - linear)
    assert weight_bytes(shape_of(LLAMA_8B), "nf4") == by_hand == 5_702_295_552
    assert weight_bytes(shape_of(LLAMA_8B), "bfloat16") == 16_060_522_496
    assert weight_bytes(shape_of(LLAMA_8B), "fp8") == linear + 2 * (8_030_261_248 - linear)


def test_weights_of_70b_in_4_bit():
    """80 blocks of 2 x 8192^2 + 2 x 8192 x 1024 + 3 x 8192 x 28672 = 855,638,016 weights in linear layers.

    QLoRA's 4.127 bits for each: 4, one scale of 8 bits for 64, and one of 32 bits for 256 of these scales. In 16 bit
    remain twice 128,256 x 8192 embeddings and output layer, and 161 norms of 8192.
    """
    linear, other = 80 * 855_638_016, 2 * 128_256 * 8192 + 161 * 8192
    assert linear + other == PUBLISHED[LLAMA_70B]
    bits = 4 + 8 / 64 + 32 / (64 * 256)
    assert round(bits, 3) == 4.127
    assert weight_bytes(shape_of(LLAMA_70B), "nf4") == linear * bits / 8 + 2 * other == 39_517_110_272


def test_weights_in_4_bit_are_those_of_bitsandbytes(tmp_path):
    """A Llama of two blocks, loaded in nf4 with double quantization; tables of a layer's codes are left out."""
    bnb = pytest.importorskip("bitsandbytes", reason="bitsandbytes is missing: pip install -e .[gpu]")
    import torch
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig, LlamaConfig

    shape = Shape(layers=2, hidden=512, intermediate=2048, heads=8, kv_heads=8, head_dim=64, vocabulary=1000)
    config = LlamaConfig(
        num_hidden_layers=2,
        hidden_size=512,
        intermediate_size=2048,
        num_attention_heads=8,
        num_key_value_heads=8,
        vocab_size=1000,
        tie_word_embeddings=False,
    )
    AutoModelForCausalLM.from_config(config).to(torch.bfloat16).save_pretrained(tmp_path)
    how = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True)
    model = AutoModelForCausalLM.from_pretrained(
        tmp_path, quantization_config=how, dtype=torch.bfloat16, device_map={"": "cpu"}
    )
    layers = {name: m for name, m in model.named_modules() if isinstance(m, bnb.nn.Linear4bit)}
    assert len(layers) == 14 and "lm_head" not in layers
    used = sum(p.nbytes for p in model.parameters())
    for layer in layers.values():
        state = layer.weight.quant_state
        used += state.absmax.nbytes + state.state2.absmax.nbytes
    assert used == weight_bytes(shape, "nf4")


def test_a_small_block_by_hand():
    """q 8x8, k and v 8x4, o 8x8, gate and up 8x16, down 16x8; two norms of 8; embeddings and output 10x8; a norm."""
    assert SMALL.block_linear == 64 + 32 + 32 + 64 + 128 + 128 + 128 == 576
    assert SMALL.parameters == 576 + 16 + 8 + 160
    assert SMALL._replace(tied=True).parameters == 576 + 16 + 8 + 80
    assert SMALL._replace(attention_bias=True).parameters == SMALL.parameters + 8 + 4 + 4
    assert SMALL._replace(head_norms=True).parameters == SMALL.parameters + 2 + 2
    assert adapter_parameters(SMALL, 3) == 3 * (16 + 12 + 12 + 16 + 24 + 24 + 24)


def test_adapters_are_those_of_peft():
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(without_memory(config_of("tiny")), config)
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert trained == adapter_parameters(shape_of("tiny"), 16)
    assert adapter_parameters(shape_of(LLAMA_8B), 16) == 41_943_040


def test_what_is_trained_is_all_but_the_frozen_or_the_adapter():
    all_of_it = limits(method="full", freeze_embeddings=False)
    assert trained_parameters(SMALL, all_of_it) == SMALL.parameters
    assert trained_parameters(SMALL, limits(method="full", freeze_embeddings=True)) == SMALL.parameters - 80
    two = SMALL._replace(layers=2)
    assert trained_parameters(two, limits(method="full", freeze_embeddings=True, freeze_layers=1)) == 592 + 8 + 80
    assert trained_parameters(SMALL, limits(method="qlora", lora_rank=3)) == adapter_parameters(SMALL, 3)


def test_a_training_in_words():
    """49,152 x 576 embeddings and 15 of 30 blocks of 3,540,096 left as they are, of 134,515,008."""
    half = limits(method="full", freeze_embeddings=True, freeze_layers=15)
    assert in_words("smollm2-135m", half) == (
        "smollm2-135m: 30 blocks, 134.5 million parameters; full trains 53.1 million (39%)"
    )


def test_full_training_is_sixteen_bytes_a_weight_and_a_copy_in_16_bit():
    """float32 weights 4, their copy 2, gradients 4, two moments 8."""
    used = training(shape_of(LLAMA_8B), limits(method="full", freeze_embeddings=False), supervised=10)
    assert used.weights == 6 * 8_030_261_248
    assert used.optimizer == 12 * 8_030_261_248


@pytest.mark.parametrize(
    ("optimizer", "bytes_a_weight"),
    [("adamw_torch", 12), ("adamw_torch_fused", 12), ("paged_adamw_32bit", 12), ("paged_adamw_8bit", 4 + 2.03125)],
)
def test_gradients_and_moments_of_an_adapter(optimizer, bytes_a_weight):
    used = training(SMALL, limits(method="qlora", optimizer=optimizer, lora_rank=3), supervised=1)
    assert used.optimizer == adapter_parameters(SMALL, 3) * bytes_a_weight


def test_methods_hold_their_weights_in_32_16_and_4_bit():
    shape = shape_of(LLAMA_8B)
    held = {m: training(shape, limits(method=m), supervised=1).weights / GB for m in ("full", "lora", "qlora")}
    assert held["full"] > 48 and 16.0 < held["lora"] < 16.3 and 5.8 < held["qlora"] < 6.1


def test_fsdp2_divides_what_data_parallel_copies():
    shape = shape_of(LLAMA_70B)
    alone = training(shape, limits(freeze_embeddings=False), supervised=1)
    copied = training(shape, limits(freeze_embeddings=False, launch={"processes": 8}), supervised=1)
    split = {"hosts": 4, "processes": 8, "sharding": "fsdp2"}
    how = {"freeze_embeddings": False, "gradient_checkpointing": True}  # FSDP2 goes with it
    shared = training(shape, limits(**how, launch=split), supervised=1)
    assert copied == alone
    assert shared.optimizer == alone.optimizer / 32 == 12 * 70_553_706_496 / 32
    gathered = 2 * (2 * shape.block + 128_256 * 8192)  # two blocks and the output layer, in 16 bit
    assert shared.weights == 4 * 70_553_706_496 / 32 + gathered
    assert shared.activations == training(shape, limits(**how), supervised=1).activations  # each has rows of its own


def test_weights_in_4_bit_are_whole_on_each_device_before_fsdp2_divides_them():
    """70B over 8 devices, with an adapter of rank 16: 80 x 16 x (2 x 16,384 + 2 x 9,216 + 3 x 36,864) parameters.

    Rows of 1,024 tokens take less than loading does, of 32,768 more.
    """
    shape, adapter = shape_of(LLAMA_70B), 80 * 16 * (2 * 16_384 + 2 * 9_216 + 3 * 36_864)
    split = {"processes": 8, "sharding": "fsdp2"}
    how = {"method": "qlora", "lora_rank": 16, "batch": 1, "gradient_checkpointing": True}
    short, long = (training(shape, limits(**how, max_length=n, launch=split), supervised=1) for n in (1024, 32768))
    loaded = 39_517_110_272 + 4 * adapter
    assert short.weights == loaded and short.optimizer == short.activations == 0
    assert short.total == pytest.approx(1.05 * loaded + 1.5 * GB)
    assert long.total > short.total and long.optimizer == 12 * adapter / 8
    two_blocks, largest = 2 * 2 * shape.block + 2 * 128_256 * 8192, 2 * 8192 * 28_672
    assert long.weights == pytest.approx(loaded / 8 + two_blocks + largest)


def test_tensor_parallel_divides_weights_and_the_cache_up_to_the_number_of_kv_heads():
    shape = shape_of(LLAMA_70B)
    one = serving(shape, "bfloat16", tokens=1000)
    assert one.weights == 141_107_412_992 and one.kv == 327_680_000
    eight, sixteen = (serving(shape, "bfloat16", tokens=1000, tensor=n) for n in (8, 16))
    assert (eight.weights, eight.kv) == (one.weights / 8, one.kv / 8)
    assert (sixteen.weights, sixteen.kv) == (one.weights / 16, one.kv / 8)  # eight KV heads, each of them twice
    piped = serving(shape, "bfloat16", tokens=1000, tensor=8, pipeline=2)
    assert (piped.weights, piped.kv) == (one.weights / 16, one.kv / 16)


def test_room_for_adapters_is_divided_by_half():
    """Two of rank 16 over the 8B: 2 x 41,943,040 numbers of 2 bytes; over four devices half of it whole on each."""
    alone, four = (
        serving(shape_of(LLAMA_8B), "bfloat16", tokens=1, tensor=n, adapters=2, rank=16).weights
        - serving(shape_of(LLAMA_8B), "bfloat16", tokens=1, tensor=n).weights
        for n in (1, 4)
    )
    assert alone == 167_772_160 and four == 167_772_160 / 2 + 167_772_160 / 2 / 4


@pytest.mark.parametrize(
    ("how", "bytes_a_weight"),
    [
        ({"method": "full", "launch": {"processes": 8, "sharding": "fsdp2"}}, 6),  # gathered in 32 bit, copied in 16
        ({"method": "full", "launch": {"processes": 8}}, 32),  # every process reads them all in 32 bit
        ({"method": "lora", "launch": {"processes": 8}}, 16),
        ({"method": "lora", "launch": {"processes": 8, "sharding": "fsdp2"}}, 2),
        ({"method": "qlora"}, 0),
    ],
)
def test_a_hosts_own_memory_holds_what_is_read_and_what_is_saved(how, bytes_a_weight):
    assert (
        host_bytes(shape_of(LLAMA_70B), limits(**how, gradient_checkpointing=True))
        == PROCESS_OTHER + bytes_a_weight * 70_553_706_496
    )


def test_activations_by_hand():
    """2 rows of 3 tokens; a block keeps (4x8 + 2x8 + 2x4 + 4x16) in 16 bit and 2x8 in 32: 304 bytes a token."""
    how = limits(method="full", batch=2, max_length=3, freeze_embeddings=False)
    logits = 2 * 2 * 10 * 14  # where one row has loss, the other is projected too
    assert activation_bytes(SMALL, how, supervised=1) == 6 * 304 + logits
    assert activation_bytes(SMALL._replace(layers=5), how, supervised=1) == 5 * 6 * 304 + logits
    again = how.model_copy(update={"gradient_checkpointing": True})
    assert activation_bytes(SMALL._replace(layers=5), again, supervised=1) == 6 * (5 * 16 + 2 * 304) + logits
    assert activation_bytes(SMALL, how, supervised=9) == 6 * 304 + 2 * 3 * 10 * 14  # no more than the rows have
    alone = how.model_copy(update={"batch": 1})
    assert activation_bytes(SMALL, alone, supervised=1) == 3 * 304 + 1 * 10 * 14


def test_activations_are_near_what_a_backward_pass_really_keeps():
    """Counted over the tensors that autograd saves, weights apart, in a small Llama in float32."""
    import torch
    from transformers import AutoModelForCausalLM

    config = config_of("tiny")
    config.vocab_size = 800
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").train()
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    ids = torch.randint(3, 800, (2, 256))
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        hidden = model.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state
    counted = sum(kept.values())
    assert hidden.requires_grad  # else nothing would be kept
    how = limits(method="full", batch=2, max_length=256, freeze_embeddings=False)
    estimated = activation_bytes(shape_of("tiny"), how, supervised=0, form="float32")
    assert 0.8 < estimated / counted < 1.25, (estimated, counted)


def test_a_base_is_read_from_its_folder(tmp_path):
    config_of("Qwen/Qwen3-8B").save_pretrained(tmp_path / "qwen3")
    config_of("Qwen/Qwen2.5-7B-Instruct").save_pretrained(tmp_path / "qwen2")
    assert shape_of(str(tmp_path / "qwen3")).parameters == 8_190_735_360
    assert shape_of(str(tmp_path / "qwen2")).parameters == 7_615_616_512


def test_a_base_that_cannot_be_read_is_refused_with_the_cure(tmp_path):
    from transformers import GPT2Config

    with pytest.raises(ParamsError, match="size of base '/nowhere/model' is not known.*name a folder with its config"):
        shape_of("/nowhere/model")
    GPT2Config().save_pretrained(tmp_path)
    with pytest.raises(ParamsError, match="is a gpt2: a plan knows llama"):
        shape_of(str(tmp_path))


def test_a_footprint_is_the_sum_of_its_parts():
    assert Footprint(1, 2, 3, 4, 5).total == 15
