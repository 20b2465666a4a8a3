"""Supervised fine-tuning: rows of (messages, reply) in, a trained model out, by TRL.

The loss is on the reply alone. `full` trains every weight but the embeddings, `lora` a small
adapter. Optionally a share of each row's loss lies on its first tokens, the outcome that a
world model predicts. A killed training goes on from its last checkpoint to the same final
step. Used by notebooks 02 and 04. Paper: section 3.1 (SFT), 3.2 (world model).
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from wevo_nb.dataset import gate
from wevo_nb.models import PAD_TO, find_dtype, find_model, load_tokenizer, load_weights
from wevo_nb.params import LLMParams, SFTParams
from wevo_nb.runs import write_csv
from wevo_nb.targets import Row

OUTCOME_TOKENS = 2  # tokens that tell the four outcome words apart


def row_lengths(rows: Sequence[Row], tokenizer) -> list[int]:
    """Tokens of each row, prompt and reply."""
    return [len(tokenizer.apply_chat_template([*row.messages, _reply(row)], return_dict=False)) for row in rows]


def reply_lengths(rows: Sequence[Row], tokenizer) -> list[int]:
    """Tokens of each reply alone."""
    return [len(tokenizer(row.reply, add_special_tokens=False)["input_ids"]) for row in rows]


def train(
    rows: Sequence[Row],
    folder: Path,
    *,
    base: str,
    params: SFTParams,
    llm: LLMParams,
    seed: int,
    outcome_weight: float = 0.0,
    on_step: Callable[[int, int, float], None] | None = None,
) -> None:
    """Trains `base` on rows; saves it to `folder`/model, then the loss by step to `folder`/loss.csv.

    `on_step(step, steps, loss)` is called after each step. Checkpoints go to
    `folder`/checkpoints and are removed at the end.
    """
    import pandas as pd
    from datasets import Dataset, disable_progress_bars
    from transformers import TrainerCallback
    from trl import SFTConfig

    disable_progress_bars()  # of steps that take milliseconds
    torch.set_num_threads(llm.threads or torch.get_num_threads())
    source = find_model(base)
    tokenizer = load_tokenizer(source)
    gate(rows, row_lengths(rows, tokenizer), params.gate, max_length=params.max_length)
    model = load_weights(source, torch.float32)
    if params.method == "full":
        freeze(model, embeddings=params.freeze_embeddings, layers=params.freeze_layers)
    steps = math.ceil(math.ceil(len(rows) / params.batch) * params.epochs)
    checkpoints = folder / "checkpoints"

    class Progress(TrainerCallback):
        def on_log(self, args, state, control, logs=None, **_):
            if on_step and logs and "loss" in logs:
                on_step(state.global_step, state.max_steps, logs["loss"])

    data = Dataset.from_list([{"prompt": list(row.messages), "completion": [_reply(row)]} for row in rows])
    config = SFTConfig(
        output_dir=str(checkpoints),
        per_device_train_batch_size=params.batch,
        num_train_epochs=params.epochs,
        learning_rate=params.learning_rate if params.method == "full" else params.lora_learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=max(1, steps // 10),
        adam_beta2=0.98,
        max_grad_norm=1.0,
        max_length=params.max_length,
        pad_to_multiple_of=PAD_TO,
        completion_only_loss=True,
        bf16=find_dtype(llm.dtype) == torch.bfloat16,
        use_cpu=not torch.cuda.is_available(),
        activation_checkpointing=False,
        save_strategy="steps",
        save_steps=max(1, math.ceil(steps / (params.checkpoints + 1))),
        save_total_limit=1,
        logging_steps=1,
        seed=seed,
        data_seed=seed,
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    trainer = _trainer_class()(
        model=model,
        args=config,
        train_dataset=data,
        processing_class=tokenizer,
        peft_config=_lora(params) if params.method == "lora" else None,
        callbacks=[Progress()],
        outcome_weight=outcome_weight,
    )
    _silence(trainer)
    trainer.train(resume_from_checkpoint=_newest(checkpoints))
    save(trainer, tokenizer, folder / "model", find_dtype(llm.dtype))
    losses = [{"step": log["step"], "loss": log["loss"]} for log in trainer.state.log_history if "loss" in log]
    write_csv(folder / "loss.csv", pd.DataFrame(losses))
    shutil.rmtree(checkpoints)


def freeze(model, *, embeddings: bool, layers: int):
    """Keeps the embeddings and the lowest `layers` blocks as they are: no gradient reaches them.

    Raises ValueError where the model has no so many blocks.
    """
    blocks = model.get_decoder().layers
    if layers >= len(blocks):
        raise ValueError(f"freeze_layers is {layers}, and the model has {len(blocks)} blocks: leave some to train")
    if embeddings:
        model.get_input_embeddings().weight.requires_grad_(False)
    for block in blocks[:layers]:
        block.requires_grad_(False)


def save(trainer, tokenizer, folder: Path, dtype: torch.dtype):
    """The whole model in `dtype`, or the adapter in float32, with its tokenizer."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    if not hasattr(model, "peft_config"):
        model = model.to(dtype)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def token_weights(labels: torch.Tensor, outcome_weight: float) -> torch.Tensor:
    """Weights of the tokens in the loss, 0 where there is none.

    `labels`: (batch, length), -100 where there is no loss. Without `outcome_weight` every
    supervised token weighs 1. With it a row's weights sum to 1: its first OUTCOME_TOKENS
    supervised tokens share `outcome_weight`, the others the rest.
    """
    supervised = labels != -100
    if not outcome_weight:
        return supervised.float()
    order = supervised.cumsum(1)
    first = supervised & (order <= OUTCOME_TOKENS)
    rest = supervised & ~first
    weight_first = torch.where(rest.any(1, keepdim=True), outcome_weight, 1.0)
    share = lambda mask: mask / mask.sum(1, keepdim=True).clamp(min=1)  # noqa: E731
    return weight_first * share(first) + (1 - weight_first) * share(rest)


def _trainer_class():
    from transformers.trainer_pt_utils import LengthGroupedSampler
    from trl import SFTTrainer

    class ByLength(LengthGroupedSampler):
        """Groups rows of like length in an order that the epoch alone decides: the stock one draws
        from the global generator, so a training resumed in a later epoch saw other batches.
        """

        def __init__(self, batch_size: int, *, lengths: list[int], seed: int):
            super().__init__(batch_size, lengths=lengths)
            self.seed, self.epoch = seed, 0

        def set_epoch(self, epoch: int):
            self.epoch = epoch

        def __iter__(self):
            self.generator = torch.Generator().manual_seed(self.seed + self.epoch)
            return super().__iter__()

    class ReplyTrainer(SFTTrainer):
        """SFTTrainer that projects only supervised positions onto the vocabulary.

        Off a GPU, TRL's fused head projects every position; here nine in ten carry no loss.
        Rows count alike if there is an `outcome_weight`, tokens count alike otherwise.
        """

        def __init__(self, *args, outcome_weight: float = 0.0, **kwargs):
            super().__init__(*args, **kwargs)
            self.outcome_weight = outcome_weight

        def _get_train_sampler(self, dataset=None):
            lengths = [len(ids) for ids in self.train_dataset["input_ids"]]
            return ByLength(self.args.train_batch_size, lengths=lengths, seed=self.args.data_seed)

        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            weights = token_weights(inputs["labels"], self.outcome_weight)[:, 1:]
            supervised = weights > 0
            with self.accelerator.autocast():
                decoder = self.accelerator.unwrap_model(model).get_decoder()
                hidden = decoder(
                    input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], use_cache=False
                )
                head = self.accelerator.unwrap_model(model).get_output_embeddings()
                logits = head(hidden.last_hidden_state[:, :-1][supervised]).float()
            losses = torch.nn.functional.cross_entropy(logits, inputs["labels"][:, 1:][supervised], reduction="none")
            return (losses * weights[supervised]).sum() / weights.sum()

    return ReplyTrainer


def _lora(params: SFTParams):
    from peft import LoraConfig

    return LoraConfig(
        r=params.lora_rank,
        lora_alpha=2 * params.lora_rank,
        lora_dropout=0.0,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )


def _newest(checkpoints: Path) -> str | None:
    """The last checkpoint that was written whole."""
    from transformers.trainer_utils import get_last_checkpoint

    for found in checkpoints.glob("checkpoint-*"):
        if not (found / "trainer_state.json").exists() or not any(found.glob("*.safetensors")):
            shutil.rmtree(found)
    return get_last_checkpoint(str(checkpoints)) if checkpoints.exists() else None


def _silence(trainer):
    from transformers import PrinterCallback

    trainer.remove_callback(PrinterCallback)


def _reply(row: Row) -> dict[str, str]:
    return {"role": "assistant", "content": row.reply}
