"""Code for what is done by hand, by rule: what stands for `loss`, `rows`, … is the program's.

``MIGRATED`` is for a program that has the helpers (the next `ddpify migrate` adds what is imported
and not there yet); ``PLAIN`` for one that was refused: torch alone, ``dist`` is torch.distributed.
"""

from __future__ import annotations

from typing import Final

MIGRATED: Final = {
    "DDP204": """\
from ddp_utils import main_process_first
with main_process_first():  # rank 0 downloads, the others find it there
    dataset = make_dataset()
""",
    "DDP603": """\
state = torch.load(path, map_location="cpu")
model.load_state_dict(state)  # before the model is wrapped, or: model.module.load_state_dict(state)
""",
    "DDP702": """\
from ddp_metrics import reduce_mean
value = reduce_mean(value)  # on all ranks, not only on the one that shows it
""",
    "DDP703": """\
from ddp_utils import broadcast
stop = broadcast(stop)  # rank 0's decision, on all ranks
""",
    "DDP707": """\
from ddp_metrics import reduce_sum
total, count = reduce_sum(total, count)  # both over the ranks, then the quotient
""",
}
PLAIN: Final = {
    "DDP202": """\
sampler = DistributedSampler(dataset, shuffle=True)
loader = DataLoader(dataset, batch_size=batch_size // dist.get_world_size(), sampler=sampler)
for epoch in range(epochs):
    sampler.set_epoch(epoch)
""",
    "DDP205": """\
sums = torch.tensor([right, seen], dtype=torch.float64, device=device)
dist.all_reduce(sums)  # each rank evaluated its share of the samples
accuracy = (sums[0] / sums[1]).item()
""",
    "DDP305": """\
for buffer in model.module.buffers():  # before each evaluation
    dist.broadcast(buffer, 0)
""",
    "DDP401": """\
# a mean over as many terms on each rank: as it is
# a sum:
loss = loss * dist.get_world_size()
# a mean over a count that differs (mask, ignored targets): the sum, over the count of all ranks
count = mask.sum().float()
dist.all_reduce(count)
loss = terms.sum() * dist.get_world_size() / count
""",
    "DDP403": """\
class Net(nn.Module):
    def forward(self, x, mode="train"):  # all that is differentiated goes through forward
        return self.score(x) if mode == "score" else self.predict(x)


loss = model(x, mode="score").mean()  # was model.score(x).mean()
""",
    "DDP404": """\
fine = torch.isfinite(loss).float()
dist.all_reduce(fine, op=dist.ReduceOp.MIN)
if fine.item():  # the same on all ranks
    loss.backward()
    optimizer.step()
""",
    "DDP406": """\
class WholeBatch(torch.autograd.Function):  # the rows of all ranks, with gradient
    @staticmethod
    def forward(ctx, rows):  # as many on each rank
        parts = [torch.empty_like(rows) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, rows.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.contiguous()
        dist.all_reduce(gradient)
        return gradient.chunk(dist.get_world_size())[dist.get_rank()]


loss = objective(WholeBatch.apply(rows))  # of the whole batch, the same on every rank
""",
    "DDP702": """\
mean = value.detach().clone()
dist.all_reduce(mean)  # on all ranks
if dist.get_rank() == 0:
    print(mean.item() / dist.get_world_size())
""",
    "DDP703": """\
chosen = torch.tensor(float(stop), device=device)
dist.broadcast(chosen, 0)
stop = bool(chosen.item())  # rank 0's decision, on all ranks
""",
}
# What is not followed, in the words of its refusal, and how it would be.
FOLLOWED: Final = {
    "do not come from a DataLoader": "take the batches from a DataLoader that is bound to a name "
    "before the loop",
    "no optimizer that can be followed": "bind an optimizer of torch.optim to a name, and call its "
    "step() in the loop",
    "the model whose parameters are stepped": "bind the model to a name before its optimizer is "
    "made of its parameters()",
}
# The least that distributes a program by hand, from its beginning to its end.
WHOLE: Final = """\
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

gpus = torch.cuda.is_available()
dist.init_process_group("nccl" if gpus else "gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpus else torch.device("cpu")
if gpus:
    torch.cuda.set_device(device)
sampler = DistributedSampler(dataset, shuffle=True)
loader = DataLoader(dataset, batch_size=batch_size // world_size, sampler=sampler)
# batches that come from no loader: every rank makes them, rank 0's count, each takes its rows
# for tensor in batch:
#     dist.broadcast(tensor, 0)
# batch = [tensor.chunk(world_size)[rank] for tensor in batch]
model = DistributedDataParallel(model.to(device), device_ids=[device.index] if gpus else None)
for epoch in range(epochs):
    sampler.set_epoch(epoch)
    train(model, loader)  # the loss is a mean over this rank's samples
    if rank == 0:  # files, prints, progress bars
        torch.save(model.module.state_dict(), path)
dist.destroy_process_group()
"""
