"""Started by torchrun: trains on the ranks and in one process, and prints how far they part.

``compare.py DEVICE CHECK…``: a line of JSON for each check, on rank 0.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.nn.functional as F
from ddp_utils import distributed_session, get_rank, get_world_size, is_main_process, wrap_model
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

STEPS, BATCH, WIDTH = 5, 32, 64
Wrap = Callable[["Net"], nn.Module]


class Net(nn.Module):
    def __init__(self, norm: type[nn.Module] = nn.LayerNorm) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(16, WIDTH), norm(WIDTH)
        self.blocks = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.first(x))
        for block in self.blocks:
            x = x + F.gelu(block(x))
        return self.head(x)


def all_reduce(device: torch.device) -> float:
    """The plainest collective there is."""
    own = torch.arange(8.0, device=device) + get_rank()
    dist.all_reduce(own)
    ranks = get_world_size()
    wanted = ranks * torch.arange(8.0, device=device) + ranks * (ranks - 1) / 2
    return float((own - wanted).abs().max())


def ddp(precision: torch.dtype) -> Callable[[torch.device], float]:
    return lambda device: parted(device, replicated, precision)


def replicated(model: Net) -> nn.Module:
    # wrap_model leaves out DDP on one rank, whose communication is looked at here
    return wrap_model(model) if get_world_size() > 1 else DistributedDataParallel(model)


def sync_batch_norm(device: torch.device) -> float:
    """The statistics, too: one process has them of the whole batch."""

    def wrap(model: Net) -> nn.Module:
        return wrap_model(model, sync_batchnorm=True)

    return parted(device, wrap, torch.float32, nn.BatchNorm1d)


def fsdp(precision: torch.dtype) -> Callable[[torch.device], float]:
    """In half precision the policy casts, and not autocast."""

    def check(device: torch.device) -> float:
        half = None if precision is torch.float32 else precision
        block = MixedPrecisionPolicy(half, torch.float32)
        root = MixedPrecisionPolicy(half, torch.float32, torch.float32)
        mesh = init_device_mesh(device.type, (get_world_size(),))

        def shard(model: Net) -> nn.Module:
            for part in model.blocks:
                fully_shard(part, mesh=mesh, mp_policy=block)
            fully_shard(model, mesh=mesh, mp_policy=root, reshard_after_forward=True)
            return model

        return parted(device, shard, torch.float32, one=precision)

    return check


def parted(
    device: torch.device,
    wrap: Wrap,
    precision: torch.dtype,
    norm: type[nn.Module] = nn.LayerNorm,
    one: torch.dtype | None = None,
) -> float:
    """The largest difference of a tensor after training, relative to its norm.

    ``one`` is the precision of the one process, if it is another one.
    """
    torch.manual_seed(7)
    alone = Net(norm).to(device)
    together = Net(norm).to(device)
    together.load_state_dict(alone.state_dict())
    sharing = wrap(together)
    train(alone, device, slice(None), one or precision)
    train(sharing, device, slice(get_rank(), None, get_world_size()), precision)
    pairs = zip(_tensors(alone), _tensors(getattr(sharing, "module", sharing)), strict=True)
    return max(float((a - b).norm() / a.norm().clamp(min=1e-12)) for a, b in pairs)


def train(model: nn.Module, device: torch.device, share: slice, precision: torch.dtype) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    half = precision is not torch.float32
    scaler = torch.amp.GradScaler(device.type, init_scale=256, enabled=precision is torch.float16)
    draws = torch.Generator().manual_seed(3)  # the same batches on every device
    for _ in range(STEPS):
        x = torch.randn(BATCH, 16, generator=draws)
        y = torch.randint(4, (BATCH,), generator=draws)
        optimizer.zero_grad()
        with torch.autocast(device.type, precision if half else None, enabled=half):
            outputs = model(x[share].to(device))
            loss = F.cross_entropy(outputs.float(), y[share].to(device))
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()


def _tensors(model: nn.Module) -> list[Tensor]:
    held = (*model.parameters(), *model.buffers())
    whole = (t.full_tensor() if hasattr(t, "full_tensor") else t for t in held)
    return [tensor.detach().double() for tensor in whole]


CHECKS: dict[str, Callable[[torch.device], float]] = {
    "all-reduce": all_reduce,
    "ddp-float32": ddp(torch.float32),
    "ddp-float16": ddp(torch.float16),
    "ddp-bfloat16": ddp(torch.bfloat16),
    "sync-batch-norm": sync_batch_norm,
    "fsdp-float32": fsdp(torch.float32),
    "fsdp-bfloat16": fsdp(torch.bfloat16),
}


def main() -> None:
    device, names = torch.device(sys.argv[1]), sys.argv[2:]
    for name in names:
        found = CHECKS[name](device)
        if is_main_process():
            backend = dist.get_backend_config()
            print(json.dumps({"check": name, "parted": found, "backend": backend}), flush=True)


if __name__ == "__main__":
    with distributed_session():
        main()
