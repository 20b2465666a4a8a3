"""One process of a training over 4-bit weights that torch's fully_shard splits, over gloo on a CPU.

    torchrun --nproc_per_node 2 tests/fsdp_4bit_worker.py JOB     (tests/test_scale.py)

The weights are those that sft.load_to_train makes for FSDP2, adapters in float32 over them. What it
tells: logits before and after the split, the loss of two steps, and what the adapter is saved from.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import bitsandbytes
import torch
import torch.distributed as dist
from fsdp_worker import split
from peft import get_peft_model
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.distributed.tensor import DTensor

from wevo_nb.models import find_model
from wevo_nb.sections import SFTParams
from wevo_nb.sft import _lora, cast_adapter, load_to_train


def load(params: SFTParams):
    """The tiny model in 4 bit with an adapter that changes its answers."""
    model = load_to_train(find_model("tiny"), params, torch.bfloat16)
    torch.manual_seed(0)
    config = _lora(params)
    config.init_lora_weights = False
    model = get_peft_model(model, config)
    cast_adapter(model, torch.float32)
    return model.train()


def bf16(size: int) -> dict:
    """How accelerate splits over `size` processes: computed in bfloat16."""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
    return {"mesh": init_device_mesh("cpu", (size,)), "mp_policy": policy}


def main(job: Path):
    torch.set_num_threads(1)
    asked = json.loads(job.read_text())
    dist.init_process_group("gloo")
    model, ids = load(SFTParams(**asked["params"])), torch.tensor(asked["input_ids"])
    logits = lambda: model(input_ids=ids).logits.float().detach()  # noqa: E731
    with torch.autocast("cpu", torch.bfloat16):
        before = logits()
        split(model, **bf16(dist.get_world_size()))
        after = logits()
    four_bit = [module.weight for module in model.modules() if isinstance(module, bitsandbytes.nn.Linear4bit)]
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    kinds = {"adamw": torch.optim.AdamW, "paged": bitsandbytes.optim.PagedAdamW8bit}
    optimizer, losses, problem = kinds[asked["optimizer"]](trained, lr=1e-2), [], ""
    try:
        for _ in range(2):
            with torch.autocast("cpu", torch.bfloat16):
                loss = model(input_ids=ids, labels=ids).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    except NotImplementedError as failed:
        problem = str(failed)
    whole = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True, cpu_offload=True)
    state = get_model_state_dict(model, options=whole)
    if os.environ["RANK"] == "0":
        told = {
            "apart": (before - after).abs().max().item(),
            "split": sum(isinstance(weight, DTensor) for weight in four_bit),
            "of": len(four_bit),
            "losses": losses,
            "problem": problem,
            "adapter": sum("lora_" in name and value.dtype == torch.float32 for name, value in state.items()),
        }
        job.with_name(f"told-{asked['optimizer']}-{dist.get_world_size()}.json").write_text(json.dumps(told))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
