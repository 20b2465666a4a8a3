"""Supervised fine-tuning: rows of (messages, reply) in, a trained model out, by TRL.

The loss is on the reply alone. `full` trains every weight but the embeddings, `lora` a small
adapter, `qlora` an adapter over weights in 4 bit. Optionally a share of each row's loss lies on
its first tokens, the outcome that a world model predicts. A killed training goes on from its last
checkpoint to the same final step. The same code is one process or one of many (launch.py). Used
by notebooks 02 and 04. Paper: section 3.1 (SFT), 3.2 (world model).
"""

from __future__ import annotations

import gc
import json
import logging
import math
import shutil
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from wevo_nb.dataset import gate
from wevo_nb.models import PAD_TO, find_dtype, find_model, load_tokenizer, load_weights, quiet
from wevo_nb.runs import write_csv
from wevo_nb.sections import LLMParams, SFTParams
from wevo_nb.targets import Row
from wevo_nb.training_checks import (
    TrainingError,
    check_optimizer,
    check_packages,
    check_template,
    reply_message,
    row_lengths,
)

OUTCOME_TOKENS = 2  # tokens that tell the four outcome words apart
KEPT_CHECKPOINTS = 2  # the newest


class StepDone(NamedTuple):
    """How far a training is. Tokens a second are those of all processes, prompts included and padding not; GPU memory
    is the peak in GB, 0 on a CPU.
    """

    step: int
    steps: int
    loss: float
    tokens_per_second: float
    gpu_gb: float


def has_gpu() -> bool:
    """Whether torch sees a GPU here."""
    return torch.cuda.is_available()


def precision(llm: LLMParams) -> str:
    """What a training computes in, in accelerate's words: bf16 or no (float32)."""
    return "bf16" if find_dtype(llm.dtype) == torch.bfloat16 else "no"


def train(
    rows: Sequence[Row],
    folder: Path,
    *,
    base: str,
    params: SFTParams,
    llm: LLMParams,
    seed: int,
    outcome_weight: float = 0.0,
    on_step: Callable[[StepDone], None] | None = None,
) -> str:
    """Trains `base` on rows; saves it to `folder`/model, then the loss by step to `folder`/loss.csv.

    `on_step` is called after each step. Checkpoints go to `folder`/checkpoints and are removed at
    the end. Returns a sentence on what it ran over. Raises TrainingError, RowError.
    """
    try:
        return _fit(rows, folder, base, params, llm, seed, outcome_weight, on_step)
    except torch.OutOfMemoryError as problem:
        raise TrainingError(
            f"out of memory with rows of {params.max_length} tokens, {params.batch} at once ({problem}): lower batch "
            "and raise accumulate, set gradient_checkpointing, take method qlora, or more devices (launch)"
        ) from problem
    finally:
        release()


def release():
    """Gives the GPU memory of what is no longer used back, so that a server beside this process has room."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _fit(rows, folder: Path, base: str, params: SFTParams, llm: LLMParams, seed: int, outcome_weight, on_step) -> str:
    from datasets import Dataset, disable_progress_bars

    quiet()
    disable_progress_bars()  # of steps that take milliseconds
    torch.set_num_threads(llm.threads or torch.get_num_threads())
    source = find_model(base)
    tokenizer = load_tokenizer(source)
    check_template(rows, tokenizer)
    gate(rows, row_lengths(rows, tokenizer), params.gate, max_length=params.max_length)
    check_packages(params)
    check_optimizer(params)
    config = _config(rows, folder / "checkpoints", params, llm, seed)  # before the weights: it finds the devices
    data = Dataset.from_list([{"prompt": list(row.messages), "completion": [reply_message(row)]} for row in rows])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)  # by peft
        trainer = _trainer_class()(
            model=load_to_train(source, params, find_dtype(llm.dtype)),
            args=config,
            train_dataset=data,
            processing_class=tokenizer,
            peft_config=None if params.method == "full" else _lora(params),
            callbacks=[_progress(on_step)()],
            outcome_weight=outcome_weight,
        )
    if params.method != "full":
        cast_adapter(trainer.model, getattr(torch, params.adapter_dtype))
    _silence(trainer)
    with trainer.accelerator.main_process_first():
        newest = _newest(folder / "checkpoints")
    trainer.train(resume_from_checkpoint=newest)
    save(trainer, tokenizer, folder / "model", find_dtype(llm.dtype), base=base)
    ran = describe(trainer, params)
    if trainer.is_world_process_zero():
        if params.merge and params.method != "full":
            save_merged(source, folder / "model", folder / "merged", find_dtype(llm.dtype))
        losses = [{"step": log["step"], "loss": log["loss"]} for log in trainer.state.log_history if "loss" in log]
        _write_losses(losses, folder)
    trainer.accelerator.end_training()
    return ran


def _write_losses(losses: list[dict], folder: Path):
    import pandas as pd

    write_csv(folder / "loss.csv", pd.DataFrame(losses))
    shutil.rmtree(folder / "checkpoints")


def _config(rows: Sequence[Row], checkpoints: Path, params: SFTParams, llm: LLMParams, seed: int):
    from trl import SFTConfig

    processes = params.launch.processes * params.launch.hosts
    steps = math.ceil(math.ceil(len(rows) / (params.batch * params.accumulate * processes)) * params.epochs)
    config = SFTConfig(
        output_dir=str(checkpoints),
        per_device_train_batch_size=params.batch,
        gradient_accumulation_steps=params.accumulate,
        num_train_epochs=params.epochs,
        learning_rate=params.learning_rate if params.method == "full" else params.lora_learning_rate,
        optim=params.optimizer,
        lr_scheduler_type="cosine",
        warmup_steps=max(1, steps // 10),
        adam_beta2=0.98,
        max_grad_norm=1.0,
        max_length=params.max_length,
        pad_to_multiple_of=PAD_TO,
        completion_only_loss=True,
        bf16=precision(llm) == "bf16",
        use_cpu=not torch.cuda.is_available(),
        # FSDP does it itself (params/accelerate/fsdp2.yaml): both together would compute everything twice
        activation_checkpointing=params.gradient_checkpointing and params.launch.sharding != "fsdp2",
        save_strategy="steps",
        save_steps=max(1, math.ceil(steps / (params.checkpoints + 1))),
        save_total_limit=KEPT_CHECKPOINTS,
        logging_steps=1,
        logging_nan_inf_filter=False,  # a loss that is no number is to be seen
        seed=seed,
        data_seed=seed,
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
        include_num_input_tokens_seen="non_padding",
        ddp_find_unused_parameters=False,
    )
    if processes == 1:
        config._n_gpu = 1  # one process is one GPU, whatever the host has: TRL takes no DataParallel
    return config


def load_to_train(source: str, params: SFTParams, dtype: torch.dtype):
    """The weights as `method` trains them: float32 (full), `dtype` (lora) or 4 bit (qlora, on a GPU that is there)."""
    if params.method == "full":
        model = load_weights(source, torch.float32, attention=params.attention, place=False)
        freeze(model, embeddings=params.freeze_embeddings, layers=params.freeze_layers)
        return model
    quantization = None
    if params.method == "qlora":
        from transformers import BitsAndBytesConfig

        shared = params.launch.sharding != "none"
        quantization = BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=dtype,
            bnb_4bit_quant_storage=dtype if shared else torch.uint8,  # FSDP splits only what is stored as numbers
        )
    model = load_weights(source, dtype, attention=params.attention, place=False, quantization=quantization)
    return model.requires_grad_(False)


def cast_adapter(model, dtype: torch.dtype):
    """Adapters learn in `dtype`: TRL makes them bfloat16 over 4-bit weights."""
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.to(dtype)


def describe(trainer, params: SFTParams) -> str:
    """What a training ran over, and where that is less than was asked for."""
    accelerator, launch = trainer.accelerator, params.launch
    kind, device = accelerator.distributed_type.value, accelerator.device.type
    said = f"{accelerator.num_processes} process{'es' * (accelerator.num_processes > 1)} on {device}"
    said += f" ({kind})" if kind != "NO" else ""  # accelerate's word for one process alone
    if launch.sharding == "fsdp2" and kind != "FSDP":
        said += ": plain data parallel, for accelerate splits no weights on a CPU; with GPUs it is FSDP2"
    if launch.sharding == "deepspeed" and kind != "DEEPSPEED":
        said += ": plain data parallel, for DeepSpeed splits weights on GPUs alone"
    return said


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


def save(trainer, tokenizer, folder: Path, dtype: torch.dtype, *, base: str):
    """The whole model in `dtype`, or the adapter in float32, with its tokenizer; by the first process.

    An adapter names its `base` as the params do, not the folder where it lies on this machine.
    """
    if trainer.is_fsdp_enabled:
        trainer.accelerator.state.fsdp_plugin.set_state_dict_type("FULL_STATE_DICT")
    state = trainer.accelerator.get_state_dict(trainer.model_wrapped)  # every process has a part in it
    if trainer.is_world_process_zero():
        model = trainer.accelerator.unwrap_model(trainer.model_wrapped)
        adapters = getattr(model, "peft_config", {})
        kept = torch.float32 if adapters else dtype
        own = {name: value for name, value in state.items() if not adapters or "lora_" in name}
        state = {name: value.to("cpu", kept if value.is_floating_point() else None) for name, value in own.items()}
        for adapter in adapters.values():
            adapter.base_model_name_or_path = base
        if not adapters:
            model.config.dtype = dtype
        how = {"save_embedding_layers": False} if adapters else {}  # they are not trained; `auto` asks the hub for them
        model.save_pretrained(folder, state_dict=state, **how)
        tokenizer.save_pretrained(folder)
    trainer.accelerator.wait_for_everyone()


def save_merged(source: str, adapter: Path, folder: Path, dtype: torch.dtype):
    """The base with the adapter added to its weights, as a whole model in `dtype`."""
    from peft import PeftModel

    merged = PeftModel.from_pretrained(load_weights(source, dtype, place=False), str(adapter)).merge_and_unload()
    merged.save_pretrained(folder)
    load_tokenizer(source).save_pretrained(folder)


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
    from transformers import TrainerCallback
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

    class Epochs(TrainerCallback):
        """Tells the sampler each epoch: wrapped for several processes and a resume, nobody else reaches it."""

        def __init__(self, sampler: ByLength):
            self.sampler = sampler

        def on_epoch_begin(self, args, state, control, **_):
            self.sampler.set_epoch(int(state.epoch or 0))

    class ReplyTrainer(SFTTrainer):
        """SFTTrainer that projects only supervised positions onto the vocabulary.

        TRL's fused head projects every position off a GPU; here nine in ten carry no loss.
        Rows count alike if there is an `outcome_weight`, tokens count alike otherwise, over all
        processes and batches of a step.
        """

        def __init__(self, *args, outcome_weight: float = 0.0, **kwargs):
            super().__init__(*args, **kwargs)
            self.outcome_weight = outcome_weight

        loss_is_scaled_for_ga = True  # compute_loss divides by what the whole step counts

        def _get_train_sampler(self, dataset=None):
            lengths = [len(ids) for ids in self.train_dataset["input_ids"]]
            at_once = self.args.train_batch_size * self.accelerator.num_processes  # the same order over however many
            sampler = ByLength(at_once, lengths=lengths, seed=self.args.data_seed)
            self.add_callback(Epochs(sampler))
            return sampler

        def _get_num_items_in_batch(self, batch_samples, device):
            """Rows, or supervised tokens, of a whole step: of all its batches and processes."""
            supervised = [batch["labels"][:, 1:] != -100 for batch in batch_samples]
            counts = [(one.any(1) if self.outcome_weight else one).sum() for one in supervised]
            return self.accelerator.gather(torch.stack(counts).sum().to(device)).sum()

        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            weights = token_weights(inputs["labels"], self.outcome_weight)[:, 1:]
            kept = (weights > 0).any(0).nonzero().squeeze(1)  # positions before a token that carries loss in some row
            logits = model(
                input_ids=inputs["input_ids"],
                attention_mask=inputs["attention_mask"],
                use_cache=False,
                logits_to_keep=kept,
            ).logits
            targets = inputs["labels"][:, 1:][:, kept].flatten()
            losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets, reduction="none")
            total = (losses * weights[:, kept].flatten()).sum()
            return total / num_items_in_batch * self.accelerator.num_processes  # whose gradients are averaged

    return ReplyTrainer


def _progress(on_step: Callable[[StepDone], None] | None):
    from transformers import TrainerCallback

    class Progress(TrainerCallback):
        """Tells each step, and stops at a loss that is no number."""

        def on_train_begin(self, args, state, control, **_):
            self.begun, self.seen = time.perf_counter(), state.num_input_tokens_seen

        def on_log(self, args, state, control, logs=None, **_):
            if not logs or "loss" not in logs:
                return
            loss = logs["loss"]
            if not math.isfinite(loss):
                raise TrainingError(
                    f"the loss of step {state.global_step} is {loss}: lower the learning rate ({args.learning_rate}), "
                    "or compute in float32 (llm.dtype)"
                )
            if on_step and state.is_world_process_zero:
                gb = torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else 0.0
                pace = (state.num_input_tokens_seen - self.seen) / (time.perf_counter() - self.begun)
                on_step(StepDone(state.global_step, state.max_steps, loss, pace, gb))

    return Progress


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
    """The last checkpoint that was written whole: its trainer_state.json is written last."""
    from transformers.trainer_utils import get_last_checkpoint

    for found in checkpoints.glob("checkpoint-*"):
        try:
            json.loads((found / "trainer_state.json").read_text())
        except (FileNotFoundError, ValueError):
            shutil.rmtree(found, ignore_errors=True)
    return get_last_checkpoint(str(checkpoints)) if checkpoints.exists() else None


def _silence(trainer):
    from transformers import PrinterCallback

    logging.getLogger("transformers.trainer_utils").setLevel(logging.ERROR)  # checkpoints are told apart by number
    trainer.remove_callback(PrinterCallback)
