"""What is looked at before a training: rows in tokens, the chat template, the packages, the optimizer.

No weights are read here, so that what cannot be trained is refused before anything slow. Used by
sft.py, by the plan, and by notebooks 02 and 04.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

from wevo_nb.dataset import RowError
from wevo_nb.sections import SFTParams
from wevo_nb.targets import Row


class TrainingError(RuntimeError):
    """A training that cannot begin or go on: what is missing, out of memory, a loss that is no number."""


def reply_message(row: Row) -> dict[str, str]:
    """The reply as the last message of a chat."""
    return {"role": "assistant", "content": row.reply}


def row_lengths(rows: Sequence[Row], tokenizer) -> list[int]:
    """Tokens of each row, prompt and reply."""
    return [len(tokenizer.apply_chat_template([*row.messages, reply_message(row)], return_dict=False)) for row in rows]


def reply_lengths(rows: Sequence[Row], tokenizer) -> list[int]:
    """Tokens of each reply alone."""
    return [len(tokenizer(row.reply, add_special_tokens=False)["input_ids"]) for row in rows]


def check_packages(params: SFTParams):
    """Raises TrainingError where a package that the params ask for is missing."""
    needed = {
        "bitsandbytes": params.method == "qlora" or params.optimizer.startswith("paged"),
        "flash_attn": params.attention == "flash_attention_2",
        "deepspeed": params.launch.sharding == "deepspeed",
    }
    cures = {
        "bitsandbytes": "pip install bitsandbytes, or take method lora and optimizer adamw_torch",
        "flash_attn": "pip install flash-attn, or take attention sdpa",
        "deepspeed": "pip install deepspeed, or take launch.sharding fsdp2",
    }
    for package, asked in needed.items():
        if asked and importlib.util.find_spec(package) is None:
            raise TrainingError(f"the package {package} is missing: {cures[package]}")


def steps_split_weights(params: SFTParams) -> bool:
    """Whether the optimizer can step what the launch makes of the weights: bitsandbytes knows no weights of FSDP2."""
    return params.launch.sharding != "fsdp2" or not params.optimizer.startswith("paged")


def check_optimizer(params: SFTParams):
    """Raises TrainingError where the first step would fail."""
    if not steps_split_weights(params):
        raise TrainingError(
            f"optimizer {params.optimizer} cannot step weights that launch.sharding fsdp2 splits: take optimizer "
            "adamw_torch_fused, or launch.sharding none"
        )


def check_template(rows: Sequence[Row], tokenizer):
    """Raises RowError where the chat template does not say where a reply begins or ends.

    The prompt's tokens must begin those of the whole chat, the reply must come right behind them, and end in a token
    of its own. A template that writes something before the reply alone (Qwen3: an empty thought) would have it learned,
    and the weight of the outcome laid on it.
    """
    for row in rows[:1]:
        if not tokenizer.chat_template:
            raise RowError("the base has no chat template: take an instruct model")
        prompt = tokenizer.apply_chat_template(list(row.messages), add_generation_prompt=True, return_dict=False)
        whole = tokenizer.apply_chat_template([*row.messages, reply_message(row)], return_dict=False)
        if whole[: len(prompt)] != prompt:
            raise RowError("the chat template of the base writes a prompt otherwise than before a reply: the reply "
                           "cannot be told from it; take another base")  # fmt: skip
        read = lambda text: tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"])  # noqa: E731
        learned, trimmed = tokenizer.decode(whole[len(prompt) :]), read(row.reply.strip())
        if not learned.startswith((trimmed, read(row.reply))):
            before = learned.partition(trimmed)[0][:80]
            raise RowError(f"the chat template of the base writes {before!r} between the prompt and "
                           "the reply, which would be learned as its beginning: take a folder of the base whose "
                           "chat_template leaves that out, or another base")  # fmt: skip
        if not set(whole[len(prompt) :]) & set(tokenizer.all_special_ids):
            raise RowError("the chat template of the base marks no end of a reply: the model would never stop; "
                           "take an instruct model")  # fmt: skip
