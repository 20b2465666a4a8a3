"""The real vLLM, on a CPU: a base with two adapters, asked through our engine. Opt-in: see README.md in this folder."""

from __future__ import annotations

import math
import os
from pathlib import Path

import psutil
import pytest
from stand_ins import ONE_THREAD, SMOKE

from wevo_nb import lifeline
from wevo_nb.llm import Request, ask
from wevo_nb.models import Engine, find_model, load_weights, open_model
from wevo_nb.params import Params
from wevo_nb.sections import RoleParams
from wevo_nb.serve import open_engine
from wevo_nb.targets import WORDS
from wevo_nb.vllm_server import adapter_name

pytestmark = pytest.mark.vllm_cpu

BASE = "smollm2-135m"
QUESTION = Request(messages=({"role": "user", "content": "What is the capital of France?"},), max_tokens=8)
WHICH = Request(
    messages=({"role": "user", "content": "I pressed Send. What came of it: done success, done fail, changed, same?"},),
    choices=tuple(WORDS.values()),
)
CHOICE = Request(messages=QUESTION.messages, choices=("click [17]", "scroll [down]"))


def vllm_python() -> str:
    named = os.environ.get("WEVO_VLLM_PYTHON", "")
    if not Path(named).is_file():
        pytest.fail(f"WEVO_VLLM_PYTHON is {named!r}: name the python of an environment with vllm-cpu (tests/README.md)")
    return named


def random_adapter(folder: Path, seed: int) -> str:
    """A PEFT adapter of BASE with weights that are not zero, so that it changes the answers."""
    import torch
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(seed)
    how = LoraConfig(r=8, lora_alpha=32, target_modules=["q_proj", "v_proj", "down_proj"], init_lora_weights=False)
    get_peft_model(load_weights(find_model(BASE), torch.float32), how).save_pretrained(folder)
    return str(folder)


def params_of(python: str) -> Params:
    role = RoleParams(engine="vllm", base=BASE)
    roles = SMOKE.roles.model_copy(update={"policy": role, "world_model": role, "judge": role})
    how = {
        "command": (python, "-m", "vllm.entrypoints.openai.api_server", "--model"),
        "max_model_len": 1024,
        "memory_share": 0.3,
        "max_adapters": 2,
        "max_lora_rank": 8,
        "startup_s": 900,
        "arguments": ("--dtype", "float32", "--enforce-eager", "--max-num-seqs", "4"),
    }
    return SMOKE.model_copy(update={"roles": roles, "serve": SMOKE.serve.model_copy(update=how), "llm": ONE_THREAD})


async def test_two_adapters_on_one_base_answer_as_they_do_in_this_process(tmp_path, monkeypatch):
    """The answers of transformers are the measure: base, policy and world model differ, and vLLM says the same."""
    params = params_of(vllm_python())
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")  # GB
    monkeypatch.setenv("WEVO_OUTPUTS", str(tmp_path))
    folders = {
        "policy": random_adapter(tmp_path / "iter-1/04_self_improve/model", 1),
        "world_model": random_adapter(tmp_path / "iter-1/02_wm_train/model", 2),
        "judge": None,
    }
    here = Engine(ONE_THREAD)
    said = {role: (await ask(here.model(BASE, folder), QUESTION)).text for role, folder in folders.items()}
    chances = {role: (await ask(here.model(BASE, folder), WHICH)).logprobs for role, folder in folders.items()}
    here.close()
    assert len(set(said.values())) == 3

    engine = open_engine(params, "vllm")
    models = {
        role: open_model(getattr(params.roles, role), engine, params.llm, trained=folder)
        for role, folder in folders.items()
    }
    try:
        assert {role: (await ask(model, QUESTION)).text for role, model in models.items()} == said
        told = {role: (await ask(model, WHICH)).logprobs for role, model in models.items()}
        for role, there in told.items():  # of choices, one of which begins as another does
            assert list(map(math.exp, there)) == pytest.approx(list(map(math.exp, chances[role])), abs=1e-4)
        assert (await ask(models["policy"], CHOICE)).text in CHOICE.choices
        [server] = engine.servers.running.values()
        assert list(server.adapters) == [adapter_name(folders["world_model"]), adapter_name(folders["policy"])]
        running = [psutil.Process(server.process.pid), *psutil.Process(server.process.pid).children(recursive=True)]
        another = random_adapter(tmp_path / "iter-2/04_self_improve/model", 3)
        third = open_model(params.roles.policy, engine, params.llm, trained=another)
        assert (await ask(third, QUESTION)).text not in said.values()
        assert list(server.adapters) == [adapter_name(folders["policy"]), adapter_name(another)]
    finally:
        engine.close()
    assert len(running) >= 2 and not any(map(lifeline.alive, running))
