"""One process of a training whose weights are split by torch's fully_shard, over gloo on a CPU.

    torchrun --nproc_per_node 2 tests/fsdp_worker.py JOB     (tests/test_scale.py)

The modules that are split one by one are those that accelerate takes by params/accelerate/fsdp2.yaml.
One process alone runs the same loop without a split.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import yaml
from accelerate.utils import FullyShardedDataParallelPlugin
from accelerate.utils.fsdp_utils import fsdp2_prepare_auto_wrap_policy
from safetensors.torch import save_file
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor

from wevo_nb.models import find_model, load_weights
from wevo_nb.params import ROOT
from wevo_nb.sft import token_weights

WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)


def split(model, **how):
    """As accelerate does it by fsdp2.yaml: what its policy names, from the bottom up, and the rest as one."""
    said = yaml.safe_load((ROOT / "params" / "accelerate" / "fsdp2.yaml").read_text())["fsdp_config"]
    how |= {"reshard_after_forward": said["fsdp_reshard_after_forward"]}
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=said["fsdp_version"], auto_wrap_policy=said["fsdp_auto_wrap_policy"]
    )
    policy = fsdp2_prepare_auto_wrap_policy(plugin, model)  # None: nothing by itself
    for module in reversed(list(model.modules())[1:]):
        if policy and policy(module):
            fully_shard(module, **how)
    fully_shard(model, **how)


def load(size: int):
    """The tiny model, split over `size` processes if there are several."""
    model = load_weights(find_model("tiny"), torch.float32)
    if size > 1:
        split(model, mesh=init_device_mesh("cpu", (size,)))
    return model


def fit(model, batches: list[dict], rank: int, size: int) -> list[float]:
    """One step a batch of token ids and labels; each process takes its share of the rows. The loss by step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for batch in batches:
        ids, labels = (torch.tensor(batch[key])[rank::size] for key in ("input_ids", "labels"))
        weights = token_weights(labels, 0.0)[:, 1:]
        count = (torch.tensor(batch["labels"])[:, 1:] != -100).sum()
        logits = model(input_ids=ids).logits[:, :-1]
        each = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten(), reduction="none")
        loss = (each * weights.flatten()).sum() / count * size  # gradients are averaged over the processes
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        told = loss.detach() / size
        if size > 1:
            dist.all_reduce(told)
        losses.append(told.item())
    return losses


def main(job: Path):
    torch.set_num_threads(1)
    rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if size > 1:
        dist.init_process_group("gloo")
    batches = json.loads(job.read_text())
    model = load(size)
    parts = sum(isinstance(p, DTensor) and p.to_local().numel() < p.numel() for p in model.parameters())
    losses = fit(model, batches, rank, size)
    ids = torch.tensor(batches[0]["input_ids"])
    with torch.no_grad():
        logits = model(input_ids=ids).logits
    state = get_model_state_dict(model, options=WHOLE)
    again = load(size)
    set_model_state_dict(
        again, dict(state), options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=size > 1)
    )
    with torch.no_grad():
        same = torch.equal(again(input_ids=ids).logits, logits)
    if rank == 0:
        kept = {name: value.contiguous() for name, value in state.items() if name != "lm_head.weight"}  # tied
        save_file(kept, job.with_name(f"weights-{size}.safetensors"))
        told = {
            "losses": losses,
            "split": parts,
            "parameters": len(list(model.parameters())),
            "blocks": sum(isinstance(module, FSDPModule) for module in list(model.modules())[1:]),
            "reloads": same,
        }
        job.with_name(f"told-{size}.json").write_text(json.dumps(told))
    if size > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
