"""On a CUDA device: `pytest -m gpu`. Without one every test is skipped and says so.

4-bit training with its memory told, the paged optimizer, activation checkpointing, and the whole
chain with the tiny model. tests/README.md says what to note of a run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pandas as pd
import pytest
import torch
from stand_ins import SMOKE
from test_scale import SIXTEEN
from test_sft import PARAMS

from wevo_nb import launch
from wevo_nb.llm import Request
from wevo_nb.models import Engine

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available(),
        reason="needs a CUDA device and a torch built for it (environment.yml); torch sees none here",
    ),
]
BF16 = SMOKE.llm.model_copy(update={"dtype": "bfloat16"})


@pytest.mark.parametrize("method", ["full", "lora", "qlora"])
def test_the_small_model_learns_sixteen_rows_on_the_gpu(tmp_path, method):
    """By heart, in the served answers too; QLoRA with the paged optimizer and activation checkpointing."""
    how = {"method": method, "batch": 8, "epochs": 25, "learning_rate": 3e-4, "lora_learning_rate": 2e-3}
    if method == "qlora":
        how |= {"optimizer": "paged_adamw_8bit", "gradient_checkpointing": True}
    seen = []
    ran = launch.train(
        SIXTEEN, tmp_path, params=PARAMS.model_copy(update=how), base="smollm2-135m", llm=BF16, seed=0,
        on_step=seen.append,
    )  # fmt: skip
    assert ran.startswith("1 process on cuda")
    print(f"{method}: {seen[-1].tokens_per_second:.0f} tokens/s, {seen[-1].gpu_gb:.2f} GB")
    assert 0 < seen[-1].gpu_gb < 12
    assert pd.read_csv(tmp_path / "loss.csv").loss.tail(2).mean() < 0.1
    engine = Engine(BF16)
    trained = str(tmp_path / "model")
    model = engine.model(trained) if method == "full" else engine.model("smollm2-135m", trained)
    replies = tuple(row.reply for row in SIXTEEN)
    answers = model.answer([Request(messages=row.messages, choices=replies) for row in SIXTEEN])
    engine.close()
    assert [answer[0].text for answer in answers] == list(replies)


def test_the_chain_runs_on_the_gpu(tmp_path):
    environment = os.environ | {"WEVO_OUTPUTS": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    words = ["-m", "wevo_nb.cli", "run", "--profile", "smoke", "--set", "llm.dtype=bfloat16"]
    done = subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    manifest = json.loads((tmp_path / "smoke/iter-1/02_wm_train/manifest.json").read_text())
    assert manifest["provenance"]["gpu"]
