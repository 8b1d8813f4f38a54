"""FSDP2 on two ranks; a group of its own, and a collective that fails and is survived."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(1)
model = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 1))
print("values", model[0].weight.flatten().tolist())
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
torch.manual_seed(dist.get_rank())
for _ in range(2):
    model(torch.randn(3, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
try:
    dist.broadcast(torch.ones(1), src=7)
except Exception as error:
    print("survived", type(error).__name__)
dist.barrier(dist.new_group([0, 1]))
dist.destroy_process_group()
