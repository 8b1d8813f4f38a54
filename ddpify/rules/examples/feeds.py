"""Examples of rules on data and metrics that do not start from the correct projects."""

from __future__ import annotations

from ddpify.rules.base import Example

_ACCELERATE = """import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

accelerator = Accelerator()
rows = torch.linspace(-1, 1, 4096).reshape(512, 8)
dataset = TensorDataset(rows, (rows.sum(dim=1) > 0).long())
{loader}
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for epoch in range(3):
    for x, y in loader:
        optimizer.zero_grad()
        accelerator.backward(F.cross_entropy(model(x), y))
        optimizer.step()
accelerator.end_training()
"""


def _example(text: str) -> Example:
    return Example((("main.py", text),))


# A DistributedSampler in a loader that accelerate deals, too.
DEALT_TWICE = _example(
    _ACCELERATE.format(
        loader="sampler = DistributedSampler(dataset)  # DDP211\n"
        "loader = DataLoader(dataset, 32, sampler=sampler)"
    )
)
# Correct: accelerate puts the sampler in.
PREPARED = _example(
    _ACCELERATE.format(loader="loader = DataLoader(dataset, 32, shuffle=True)").replace(
        "from torch.utils.data.distributed import DistributedSampler\n", ""
    )
)

_EVALUATE = """import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Subset, TensorDataset
from torch.utils.data.distributed import DistributedSampler


@torch.no_grad()
def evaluate(net, loader):
    correct = total = 0
    for x, y in loader:
        correct += (net(x).argmax(1) == y).sum().item()
        total += len(y)
{result}


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    rows = torch.linspace(-1, 1, {count} * 8).reshape({count}, 8)
    dataset = TensorDataset(rows, (rows.sum(dim=1) > 0).long())
{loader}
    model = DDP(torch.nn.Linear(8, 2))
    accuracy = evaluate(model.module, loader)
    if rank == 0:
        print(f"accuracy {{accuracy:.3f}}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""
_SUMS = """    sums = torch.tensor([correct, total], dtype=torch.float64)
    dist.all_reduce(sums)
    return (sums[0] / sums[1]).item()"""
_PADDING = """    sampler = DistributedSampler(dataset, shuffle=False)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)"""
_EVEN = _PADDING.replace("shuffle=False", "shuffle=False, drop_last=True")
_STRIDE = """    share = Subset(dataset, range(rank, len(dataset), world_size))
    loader = DataLoader(share, batch_size=16)"""


def _evaluation(result: str, loader: str) -> Example:
    count = 104 if "drop_last" in loader else 101  # nothing is left out
    return _example(_EVALUATE.format(result=result, loader=loader, count=count))


PADDED = _evaluation(_SUMS, _PADDING.replace("=False)", "=False)  # DDP209"))
# Correct: shares of unequal length, and sums over the ranks.
STRIDED = _evaluation(_SUMS, _STRIDE)
_MEAN = """    accuracy = torch.tensor(correct / {count}){mark}
    dist.all_reduce(accuracy{op}){reduced}
    return accuracy.item(){end}"""
OVER_WHOLE = _evaluation(
    _MEAN.format(
        count="len(loader.dataset)",
        mark="  # DDP212",
        op=", op=dist.ReduceOp.AVG",
        reduced="",
        end="",
    ),
    _EVEN,
)
# Correct: the shares of the whole are added.
OVER_SHARE = _evaluation(
    _MEAN.format(count="len(loader.dataset)", mark="", op="", reduced="", end=""), _EVEN
)
UNEQUAL_MEANS = _evaluation(
    _MEAN.format(
        count="total", mark="", op="", reduced="  # DDP705", end=" / dist.get_world_size()"
    ),
    _STRIDE,
)
# Correct: the means of equal shares.
EQUAL_MEANS = _evaluation(
    _MEAN.format(count="total", mark="", op="", reduced="", end=" / dist.get_world_size()"), _EVEN
)

_REDUCED = """    loss = torch.tensor(correct / total)
    dist.reduce(loss, dst=0){mark}
    {use}
    return loss.item()"""
REDUCED_FOR_ALL = _evaluation(
    _REDUCED.format(
        mark="  # DDP706",
        use="if loss < 0.5:\n        loss = loss - torch.log(loss)",
    ),
    _EVEN,
)
# Correct: rank 0 alone looks at what it was given.
REDUCED_FOR_ONE = _evaluation(
    _REDUCED.format(
        mark="",
        use="if dist.get_rank() == 0:\n        loss = loss / dist.get_world_size()",
    ),
    _EVEN,
)


# Of the same: prepared alone, divided in a return, averaged by the operation.
PREPARED_ALONE = _example(
    _ACCELERATE.format(
        loader="sampler = DistributedSampler(dataset, shuffle=True)  # DDP211\n"
        "loader = accelerator.prepare(DataLoader(dataset, 32, sampler=sampler))"
    )
    .replace("model, optimizer, loader = ", "model, optimizer = ")
    .replace(", loader)", ")")
)
PADDED_MEAN = _evaluation(
    "    right, count = torch.tensor(correct), torch.tensor(total)\n"
    "    dist.all_reduce(right)\n    dist.all_reduce(count)\n    return (right / count).item()",
    _PADDING.replace("=False)", "=False)  # DDP209"),
)
SHOWN_OVER_WHOLE = _evaluation(
    "    mean = torch.tensor(correct / len(loader.dataset))  # DDP212\n"
    "    dist.all_reduce(mean, dist.ReduceOp.AVG)\n    return mean.item()",
    _EVEN,
)
UNEQUAL_AVERAGE = _evaluation(
    _MEAN.format(
        count="total",
        mark="",
        op=", op=dist.ReduceOp.AVG",
        reduced="  # DDP705",
        end="",
    ),
    _STRIDE,
)
REDUCED_AND_LEFT = _evaluation(
    _REDUCED.format(mark="  # DDP706", use="if loss < 0.5:\n        return 0.0"), _EVEN
)
