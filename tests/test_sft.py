"""Fine-tuning the tiny model for real: what carries loss, resume after a kill, adapters, refusals."""

from __future__ import annotations

import json
import shutil

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from stand_ins import ONE_THREAD, SMOKE, task

from wevo_nb import launch, sft, training_checks
from wevo_nb.dataset import RowError
from wevo_nb.llm import ModelError, Request
from wevo_nb.models import Engine, find_model, load_tokenizer, load_weights, open_model
from wevo_nb.params import ROOT
from wevo_nb.sft import token_weights, train
from wevo_nb.targets import Row
from wevo_nb.training_checks import TrainingError, row_lengths

PARAMS = SMOKE.sft.model_copy(
    update={"batch": 2, "epochs": 2, "checkpoints": 1, "learning_rate": 3e-2, "lora_learning_rate": 2e-2}
)
COLOURS = ("red", "green", "blue", "pink", "grey", "gold", "cyan", "teal")
ROWS = [
    Row(
        ({"role": "system", "content": "Reply."}, {"role": "user", "content": f"Press {colour}."}),
        f"Thought: {colour}. Action: ```click [{i}]```",
        task().name,
    )
    for i, colour in enumerate(COLOURS)
]


def fit(folder, rows=ROWS, params=PARAMS, **more) -> list[dict]:
    """Trains, and returns the loss by step."""
    train(rows, folder, base="tiny", params=params, llm=ONE_THREAD, seed=0, **more)
    return pd.read_csv(folder / "loss.csv").to_dict("records")


def weights_of(folder) -> dict[str, torch.Tensor]:
    return load_weights(str(folder), torch.float32).state_dict()


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """Eight rows, batches of two, two epochs: eight steps."""
    folder = tmp_path_factory.mktemp("unbroken")
    seen = []
    losses = fit(folder, on_step=seen.append)
    return folder, losses, seen


def test_the_loss_falls_and_every_step_is_told(unbroken):
    folder, losses, seen = unbroken
    assert [row["step"] for row in losses] == list(range(1, 9))
    assert [one[:3] for one in seen] == [(row["step"], 8, pytest.approx(row["loss"])) for row in losses]
    first, second = (sum(row["loss"] for row in losses[i : i + 4]) / 4 for i in (0, 4))  # the two epochs
    assert second < first - 0.1
    assert not (folder / "checkpoints").exists()


def test_the_trained_model_is_whole_and_frozen_embeddings_stay(unbroken):
    before, after = weights_of(find_model("tiny")), weights_of(unbroken[0] / "model")
    assert torch.equal(before["model.embed_tokens.weight"], after["model.embed_tokens.weight"])
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved >= {f"model.layers.{i}.mlp.up_proj.weight" for i in range(3)}
    assert load_tokenizer(str(unbroken[0] / "model")).chat_template


def test_the_lowest_blocks_stay_where_they_are_to_be_frozen(tmp_path):
    fit(tmp_path, params=PARAMS.model_copy(update={"freeze_layers": 2, "epochs": 1}))
    before, after = weights_of(find_model("tiny")), weights_of(tmp_path / "model")
    moved = {name.split(".")[2] for name in before if "layers" in name and not torch.equal(before[name], after[name])}
    assert moved == {"2"}
    with pytest.raises(ValueError, match="freeze_layers is 3, and the model has 3 blocks: leave some to train"):
        fit(tmp_path, params=PARAMS.model_copy(update={"freeze_layers": 3}))


def test_the_first_loss_is_that_of_the_reply_tokens_alone(tmp_path):
    """One step over all rows: the mean cross-entropy of the reply and its end, worked out apart."""
    model, tokenizer = load_weights(find_model("tiny"), torch.float32), load_tokenizer(find_model("tiny"))
    total, count = 0.0, 0
    for row in ROWS:
        prompt = tokenizer.apply_chat_template(list(row.messages), add_generation_prompt=True, return_dict=False)
        reply = tokenizer(f"{row.reply}<|im_end|>\n", add_special_tokens=False)["input_ids"]
        with torch.inference_mode():
            logits = model(torch.tensor([prompt + reply])).logits[0, len(prompt) - 1 : -1]
        total += torch.nn.functional.cross_entropy(logits, torch.tensor(reply), reduction="sum").item()
        count += len(reply)
    [first] = fit(tmp_path, params=PARAMS.model_copy(update={"batch": 8, "epochs": 1}))
    assert first["loss"] == pytest.approx(total / count, abs=1e-3)


@pytest.mark.parametrize("outcome_weight", [0.0, 0.5])
def test_a_step_over_several_batches_counts_as_one(tmp_path, outcome_weight):
    """Seven rows in one step, at once or as 3 + 3 + 1: the same loss and the same weights to float32's rounding."""
    found = []
    for batch, accumulate in ((7, 1), (3, 3)):
        params = PARAMS.model_copy(update={"batch": batch, "accumulate": accumulate, "epochs": 1})
        folder = tmp_path / str(batch)
        [step] = fit(folder, ROWS[:7], params=params, outcome_weight=outcome_weight)
        found.append((step["loss"], weights_of(folder / "model")))
    (one, whole), (several, parts) = found
    assert several == pytest.approx(one, abs=1e-5)
    assert max((whole[name] - parts[name]).abs().max() for name in whole) < 1e-4


@pytest.mark.parametrize("outcome_weight", [0.0, 0.5])
def test_only_reply_tokens_carry_loss(tmp_path, monkeypatch, outcome_weight):
    supervised = []

    def look(labels, weight):
        supervised.extend(row[row != -100].tolist() for row in labels)
        return token_weights(labels, weight)

    monkeypatch.setattr(sft, "token_weights", look)
    fit(tmp_path, params=PARAMS.model_copy(update={"batch": 8, "epochs": 1}), outcome_weight=outcome_weight)
    tokenizer = load_tokenizer(find_model("tiny"))
    assert sorted(map(tokenizer.decode, supervised)) == sorted(f"{row.reply}<|im_end|>\n" for row in ROWS)


def test_the_weights_of_tokens_by_hand():
    labels = torch.tensor([[-100, -100, 5, 6, 7, 8], [-100, 5, 6, -100, -100, -100], [-100, 5, -100, -100, -100, -100]])
    assert token_weights(labels, 0.0).tolist() == [[0, 0, 1, 1, 1, 1], [0, 1, 1, 0, 0, 0], [0, 1, 0, 0, 0, 0]]
    halves = [[0, 0, 0.25, 0.25, 0.25, 0.25], [0, 0.5, 0.5, 0, 0, 0], [0, 1, 0, 0, 0, 0]]
    assert token_weights(labels, 0.5).tolist() == halves
    long = torch.tensor([[5] * 6])  # 0.8 on the first two, 0.2 on the other four
    assert token_weights(long, 0.8)[0].tolist() == pytest.approx([0.4, 0.4, 0.05, 0.05, 0.05, 0.05])


# -- resume


class Killed(Exception):
    pass


def killed_at(step: int):
    def on_step(now):
        if now.step == step:
            raise Killed

    return on_step


def test_a_killed_adapter_training_goes_on_to_the_same_weights(tmp_path):
    lora = PARAMS.model_copy(update={"method": "lora"})
    straight = fit(tmp_path / "a", params=lora)
    with pytest.raises(Killed):
        fit(tmp_path / "b", params=lora, on_step=killed_at(5))
    assert fit(tmp_path / "b", params=lora) == straight
    first, second = (load_file(tmp_path / x / "model" / "adapter_model.safetensors") for x in "ab")
    assert first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_a_killed_training_goes_on_to_the_same_weights(tmp_path):
    """Four epochs of four steps, a checkpoint every 6: killed in step 8, with a newer checkpoint torn by the kill."""
    params = PARAMS.model_copy(update={"epochs": 4, "checkpoints": 2})
    straight = fit(tmp_path / "straight", params=params)
    folder = tmp_path / "killed"
    with pytest.raises(Killed):
        fit(folder, params=params, on_step=killed_at(8))
    assert [p.name for p in (folder / "checkpoints").glob("checkpoint-*")] == ["checkpoint-6"]
    torn = folder / "checkpoints" / "checkpoint-7"
    shutil.copytree(folder / "checkpoints" / "checkpoint-6", torn)
    (torn / "trainer_state.json").unlink()
    again = []
    losses = fit(folder, params=params, on_step=lambda now: again.append(now.step))
    assert again == list(range(7, 17))
    assert losses == straight and len(losses) == 16
    straight, resumed = weights_of(tmp_path / "straight" / "model"), weights_of(folder / "model")
    assert straight.keys() == resumed.keys()
    for name, value in straight.items():
        assert torch.equal(value, resumed[name]), name


# -- adapters


def test_an_adapter_is_saved_alone_and_served_over_its_base(tmp_path):
    """The adapter answers otherwise than the base, and the base answers as before, in whatever order they are asked."""
    losses = fit(tmp_path, params=PARAMS.model_copy(update={"method": "lora", "epochs": 4}))
    assert losses[-1]["loss"] < losses[0]["loss"]
    adapter = tmp_path / "model"
    assert (adapter / "adapter_model.safetensors").exists() and not (adapter / "model.safetensors").exists()
    engine = Engine(ONE_THREAD)
    request = Request(messages=ROWS[0].messages, choices=tuple(row.reply for row in ROWS))
    free = Request(messages=ROWS[0].messages, max_tokens=8)

    def answers(model):
        [choice], [text] = model.answer([request, free])
        return [*choice.logprobs, text.text]

    base = engine.model("tiny")
    alone = answers(base)
    trained = open_model(SMOKE.roles.policy, engine, ONE_THREAD, trained=str(adapter))
    first = answers(trained)
    assert max(abs(a - b) for a, b in zip(first[:-1], alone[:-1], strict=True)) > 0.1
    assert answers(base) == alone
    assert answers(trained) == first
    assert answers(engine.model("tiny", str(adapter))) == first
    assert len(engine.loaded) == 1  # the weights of the base are there once
    engine.close()


def test_a_whole_model_is_served_in_place_of_its_base(unbroken):
    engine = Engine(ONE_THREAD)
    trained = open_model(SMOKE.roles.policy, engine, ONE_THREAD, trained=str(unbroken[0] / "model"), name="policy")
    assert trained.name == "policy" and torch.equal(
        trained.weights.state_dict()["model.norm.weight"], weights_of(unbroken[0] / "model")["model.norm.weight"]
    )
    engine.close()


# -- refusals


def test_a_row_that_is_too_long_is_named_before_anything_is_loaded(tmp_path):
    long = ROWS[0]._replace(reply="click " * 300, task="email-inbox")
    length = row_lengths([long], load_tokenizer(find_model("tiny")))[0]
    message = (
        rf"1 of 9 rows are longer than max_length: rows 8 \(email-inbox, {length} tokens\): raise max_length above 100"
    )
    with pytest.raises(RowError, match=message):
        fit(tmp_path, [*ROWS, long], PARAMS.model_copy(update={"max_length": 100}))
    assert list(tmp_path.iterdir()) == []


def another_tiny(folder, *, template: str | None = None, nan: bool = False, hidden: int = 96) -> str:
    """The tiny model under another chat template, with a weight that is no number, or of another width."""
    tokenizer = load_tokenizer(find_model("tiny"))
    model = load_weights(find_model("tiny"), torch.float32)
    if hidden != 96:
        model = type(model)(type(model.config)(**model.config.to_dict() | {"hidden_size": hidden, "head_dim": 24}))
    if nan:
        model.model.norm.weight.data[0] = float("nan")
    if template is not None:
        tokenizer.chat_template = template
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


SAYS = "{% for m in messages %}{{ m['role'] + ':\\n' + m['content'] }}END{% endfor %}"
THINKS = (  # as Qwen3 does: an empty thought before a reply, and nothing of it in a prompt
    "{% for m in messages %}{{ m['role'] + ':\\n' }}{% if m['role'] == 'assistant' %}"
    "{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}{{ m['content'] + '<|im_end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant:\\n' }}{% endif %}"
)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("", "the base has no chat template: take an instruct model"),
        (
            SAYS.replace("END", "<|im_end|>") + "{% if add_generation_prompt %}reply: {% endif %}",
            "writes a prompt otherwise than",
        ),
        (
            THINKS,
            r"writes '<think>\\n\\n</think>\\n\\n' between the prompt and the reply, .*: take a folder of the base",
        ),
        (
            SAYS.replace("END", "\n") + "{% if add_generation_prompt %}assistant:\n{% endif %}",
            "marks no end of a reply",
        ),
    ],
)
def test_a_base_whose_template_cannot_mark_the_reply_is_refused(tmp_path, template, message):
    base = another_tiny(tmp_path / "base", template=template)
    with pytest.raises(RowError, match=message):
        train(ROWS, tmp_path / "out", base=base, params=PARAMS, llm=ONE_THREAD, seed=0)
    assert not (tmp_path / "out").exists()


def test_a_loss_that_is_no_number_stops_at_the_first_step(tmp_path):
    seen = []
    base = another_tiny(tmp_path / "base", nan=True)
    with pytest.raises(TrainingError, match=r"the loss of step 1 is nan: lower the learning rate \(0.03\)"):
        train(ROWS, tmp_path, base=base, params=PARAMS, llm=ONE_THREAD, seed=0, on_step=seen.append)
    assert seen == [] and not (tmp_path / "model").exists()


def test_out_of_memory_says_what_to_lower(tmp_path, monkeypatch):
    def full(labels, weight):
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr(sft, "token_weights", full)
    with pytest.raises(TrainingError, match="out of memory with rows of 768 tokens, 2 at once .*: lower batch"):
        fit(tmp_path, params=PARAMS.model_copy(update={"max_length": 768}))


@pytest.mark.parametrize(
    ("asked", "package"),
    [
        ({"method": "qlora"}, "bitsandbytes"),
        ({"optimizer": "paged_adamw_8bit"}, "bitsandbytes"),
        ({"attention": "flash_attention_2"}, "flash_attn"),
        ({"launch": SMOKE.sft.launch.model_copy(update={"processes": 2, "sharding": "deepspeed"})}, "deepspeed"),
    ],
)
def test_a_missing_package_is_named_before_anything_is_loaded(tmp_path, monkeypatch, asked, package):
    monkeypatch.setattr(training_checks.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(TrainingError, match=f"the package {package} is missing: pip install .+, or take "):
        launch.train(ROWS, tmp_path, base="tiny", params=PARAMS.model_copy(update=asked), llm=ONE_THREAD, seed=0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("optimizer", ["paged_adamw_8bit", "paged_adamw_32bit"])
def test_an_optimizer_that_fsdp2_does_not_go_with_is_refused_before_anything_starts(tmp_path, optimizer):
    """tests/test_scale.py shows what it would come to at the first step."""
    split = SMOKE.sft.launch.model_copy(update={"processes": 2, "sharding": "fsdp2"})
    params = PARAMS.model_copy(update={"optimizer": optimizer, "launch": split})
    with pytest.raises(TrainingError, match=f"{optimizer} cannot step weights .* fsdp2 .* optimizer adamw_torch_fused"):
        launch.train(ROWS, tmp_path, params=params, base="tiny", llm=ONE_THREAD, seed=0)
    assert list(tmp_path.iterdir()) == []


def test_an_adapter_over_another_base_is_refused(tmp_path):
    """Of the same sizes, which would load, by the name that the adapter was saved with; of others by these too."""
    fit(tmp_path / "out", params=PARAMS.model_copy(update={"method": "lora", "epochs": 1}))
    adapter, config = str(tmp_path / "out" / "model"), tmp_path / "out" / "model" / "adapter_config.json"
    base, wider = another_tiny(tmp_path / "base"), another_tiny(tmp_path / "wider", hidden=72)
    engine = Engine(ONE_THREAD)
    with pytest.raises(ModelError, match=r"is one over tiny, and its role's base is .*/base: name tiny in the role"):
        engine.model(base, adapter)
    said = json.loads(config.read_text())
    config.write_text(json.dumps(said | {"base_model_name_or_path": base}))  # the cure that it names
    engine.model(base, adapter)
    config.write_text(json.dumps(said | {"base_model_name_or_path": None}))
    with pytest.raises(ModelError, match=r"does not fit .*/wider: name the base that it was trained over in the role"):
        engine.model(wider, adapter)
    engine.close()


def test_what_a_training_is_run_by(tmp_path):
    """Two hosts of four processes: a line a host, alike but for the rank; on a GPU the profile's own config."""
    assert launch.described(SMOKE.sft.launch, ONE_THREAD, tmp_path) == "trained in this process"
    two = SMOKE.sft.launch.model_copy(
        update={"hosts": 2, "processes": 4, "sharding": "fsdp2", "main_host": "first", "main_port": 5000}
    )
    first, second = launch.described(two, ONE_THREAD, tmp_path).splitlines()
    assert first.startswith("host 0 (this one): ") and second.startswith("host 1: ")
    assert first.partition(": ")[2].replace("--machine_rank 0", "--machine_rank 1") == second.partition(": ")[2]
    job = tmp_path / "job.json"
    assert launch.launch_command(two, job, rank=1)[1:] == [
        "-m", "accelerate.commands.launch", "--config_file", str(ROOT / "params/accelerate/fsdp2.yaml"),
        "--mixed_precision", "bf16", "--num_processes", "8", "--num_machines", "2", "--machine_rank", "1",
        "--main_process_ip", "first", "--main_process_port", "5000", "-m", "wevo_nb.launch", str(job),
    ]  # fmt: skip


def test_the_lengths_of_rows_are_those_of_the_whole_chat():
    tokenizer = load_tokenizer(find_model("tiny"))
    row = Row(({"role": "user", "content": "a"},), "b", "t")
    text = "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n"
    [length] = row_lengths([row], tokenizer)
    assert length == len(tokenizer(text, add_special_tokens=False)["input_ids"])
