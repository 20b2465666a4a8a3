"""Training: tokens a second, padding and loss of our trainer beside TRL's own on the same rows.

Prints a table and writes what was measured to benchmarks/results/training.json. Needs a quiet
machine, a Chromium (the rows are real transitions of MiniWoB++, a random walk) and the small model.

What is compared, on the same model, rows, batch, steps and learning rate, each in a process of its own:
- ours: sft.train, rows of like length together, only positions with loss projected onto the vocabulary;
- trl: SFTTrainer with SFTConfig's defaults, activation checkpointing among them;
- trl_kept: the same without activation checkpointing, as ours;
- lora_float32, lora_bfloat16: ours with an adapter that learns in this precision, for their losses
  (a processor without bfloat16 emulates it, far slower: leave it out there by --ways).
Tokens are those of the rows; padding is the share of computed positions that hold none. Aim: ours at
least 1.2 times trl, the loss alike within what the order of rows makes of it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from environment import machine, table, walk

from wevo_nb.params import ROOT, load_params
from wevo_nb.policies import RandomPolicy
from wevo_nb.provenance import provenance
from wevo_nb.runs import write_json
from wevo_nb.schema import Task
from wevo_nb.targets import Row, row_for
from wevo_nb.tasks.miniwob import MiniWoB
from wevo_nb.transitions import transitions

RESULTS = ROOT / "benchmarks" / "results" / "training.json"
RIVALS, ADAPTERS = ("trl", "trl_kept"), ("lora_float32", "lora_bfloat16")
WAYS = ("ours", *RIVALS, *ADAPTERS)
TASKS = ("click-link", "navigate-tree", "click-tab-2", "choose-list", "click-option", "email-inbox", "login-user")
AIM = 1.2


class Sizes(NamedTuple):
    """How much is trained on."""

    seeds: int  # episodes of each task
    rows: int
    epochs: int


FULL, QUICK = Sizes(6, 96, 2), Sizes(1, 8, 1)


def rows_of(sizes: Sizes) -> list[Row]:
    """Different rows of the world model, from a random walk, in an order drawn with a fixed seed."""
    params = load_params("study").params
    tasks = [Task(suite="miniwob", name=name, seed=seed) for name in TASKS for seed in range(sizes.seeds)]
    with MiniWoB() as suite:
        found, _, _ = asyncio.run(walk(suite, RandomPolicy(params.policy), tasks, params, contexts=2, most=6))
    rows = list({str(row): row for row in (row_for(t, params.world_model) for t in transitions(found))}.values())
    random.Random(0).shuffle(rows)
    return rows[: sizes.rows]


def fit(way: str, rows: list[Row], base: str, epochs: int) -> dict:
    """Trains, and says what it took. Runs in a process of its own."""
    import torch
    from datasets import Dataset, disable_progress_bars
    from trl import SFTConfig, SFTTrainer

    from wevo_nb import sft
    from wevo_nb.models import find_dtype, find_model, load_tokenizer, load_weights
    from wevo_nb.training_checks import row_lengths

    study = load_params("study").params
    gate = study.world_model_sft.gate.model_copy(update={"too_long": 1, "repeated": 1, "cut_off": 1, "held_out": 1})
    params = study.world_model_sft.model_copy(
        update={"epochs": epochs, "gate": gate, "max_length": 2048, "freeze_layers": 0, "freeze_embeddings": False}
    )
    disable_progress_bars()
    steps, positions = [], [0]
    note = lambda loss: steps.append((time.perf_counter(), loss, positions[0]))  # noqa: E731
    if way in ADAPTERS:
        params = params.model_copy(update={"method": "lora", "adapter_dtype": way.removeprefix("lora_")})
    if way not in RIVALS:
        with tempfile.TemporaryDirectory() as folder, counted(positions):
            how = {"base": base, "params": params, "llm": study.llm, "seed": 0}
            sft.train(rows, Path(folder), on_step=lambda done: note(done.loss), **how)
    else:
        from transformers import TrainerCallback

        class Note(TrainerCallback):
            def on_log(self, args, state, control, logs=None, **_):
                if logs and "loss" in logs:
                    note(logs["loss"])

        model = load_weights(find_model(base), torch.float32)
        reply = lambda row: [{"role": "assistant", "content": row.reply}]  # noqa: E731
        data = Dataset.from_list([{"prompt": list(row.messages), "completion": reply(row)} for row in rows])
        warmup = max(1, -(-len(rows) // params.batch) * epochs // 10)  # as ours
        kept = {"activation_checkpointing": False} if way == "trl_kept" else {}
        with tempfile.TemporaryDirectory() as folder:
            config = SFTConfig(
                output_dir=folder, per_device_train_batch_size=params.batch, num_train_epochs=epochs, seed=0,
                learning_rate=params.learning_rate, lr_scheduler_type="cosine", warmup_steps=warmup,
                adam_beta2=0.98, max_grad_norm=1.0,
                max_length=params.max_length, bf16=find_dtype(study.llm.dtype) == torch.bfloat16, logging_steps=1,
                use_cpu=not torch.cuda.is_available(), report_to="none", disable_tqdm=True, save_strategy="no", **kept,
            )  # fmt: skip
            tokenizer = load_tokenizer(find_model(base))
            trainer = SFTTrainer(
                model=model, args=config, train_dataset=data, processing_class=tokenizer, callbacks=[Note()]
            )
            with counted(positions):
                trainer.train()
    tokens = epochs * sum(row_lengths(rows, load_tokenizer(find_model(base))))
    first, last = steps[0][0], steps[-1][0]
    timed = tokens * (1 - steps[0][2] / positions[0])  # the first step compiles kernels: the clock starts after it
    return {
        "way": way, "rows": len(rows), "steps": len(steps), "tokens": tokens,
        "tokens_per_second": round(timed / (last - first), 1),
        "padding": round(1 - tokens / positions[0], 3),
        "first_loss": round(steps[0][1], 3),
        "last_loss": round(sum(one[1] for one in steps[-len(steps) // 4 :]) / len(steps[-len(steps) // 4 :]), 3),
    }  # fmt: skip


@contextlib.contextmanager
def counted(positions: list[int]):
    """Adds up the positions that embeddings are given in training, once a step."""
    import torch

    forward = torch.nn.Embedding.forward

    def count(self, ids):
        if self.training and torch.is_grad_enabled() and ids.dim() == 2:
            positions[0] += ids.numel()
        return forward(self, ids)

    torch.nn.Embedding.forward = count
    try:
        yield
    finally:
        torch.nn.Embedding.forward = forward


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few rows: to see that it runs, not for the record")
    parser.add_argument("--model", default="smollm2-135m", help="default: smollm2-135m")
    parser.add_argument(
        "--ways", nargs="+", choices=WAYS, default=WAYS, help="some of them; the file then holds these alone"
    )
    parser.add_argument("--one", help=argparse.SUPPRESS)  # a way: the process of its own, rows on its input
    asked = parser.parse_args()
    sizes = QUICK if asked.quick else FULL
    if asked.one:
        rows = [Row(**row) for row in json.load(sys.stdin)]
        print(json.dumps(fit(asked.one, rows, asked.model, sizes.epochs)))
        return
    rows = json.dumps([row._asdict() for row in rows_of(sizes)])
    result = {"measured": datetime.now(UTC).isoformat(timespec="seconds"), "quick": asked.quick, "machine": machine()}
    result |= {"model": asked.model, "ways": []}
    for way in asked.ways:
        words = [sys.executable, __file__, "--one", way, "--model", asked.model, *(["--quick"] if asked.quick else [])]
        done = subprocess.run(words, input=rows, stdout=subprocess.PIPE, text=True, check=True)
        result["ways"].append(json.loads(done.stdout.splitlines()[-1]))
        write_json(RESULTS, result | {"versions": provenance()})
    speeds = {one["way"]: one["tokens_per_second"] for one in result["ways"]}
    result["ours_over"] = {
        way: round(speeds["ours"] / speeds[way], 2) for way in RIVALS if {"ours", way} <= speeds.keys()
    }
    write_json(RESULTS, result | {"versions": provenance()})
    print(table(result["ways"], {key: key.replace("_", " ") for key in result["ways"][0]}))
    for way, ratio in result["ours_over"].items():
        print(f"tokens a second: ours {ratio} times {way}" + f" (aim: at least {AIM})" * (way == "trl"))
    print(f"written: {RESULTS}")


if __name__ == "__main__":
    main()
