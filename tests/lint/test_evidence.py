"""What a finding shows as its proof: what a reader needs to follow it, and nothing twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ddpify.lint import lint
from ddpify.rules.base import Finding
from tests.projects import put

HEAD = """import sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
rank = dist.get_rank()
"""
END = "dist.destroy_process_group()\n"
Told = Callable[..., list[str]]


def only(folder: Path, code: str, files: dict[str, str]) -> Finding:
    """The one finding of a rule."""
    put(files, folder)
    found = lint(folder, [folder / name for name in files], wants=lambda one: one == code)
    (one,) = found.findings
    return one


def way(one: Finding) -> list[str]:
    """The calls that lead to a finding."""
    return [f"{site}: {text}" for site, text in one.way]


def because(one: Finding) -> list[str]:
    """What proves it."""
    return [f"{site}: {text}" for site, text in one.because]


LIB = """import torch


class Keeper:
    def __init__(self, path):
        self.path = path

    def keep(self, state):
        self._write(state)

    def _write(self, state):
        torch.save(state, self.path)
"""


def test_the_way_into_a_helper_begins_in_the_script(tmp_path: Path) -> None:
    body = """from lib import Keeper


def main():
    keeper = Keeper("net.pt")
    keeper.keep(torch.nn.Linear(2, 2).state_dict())


main()
"""
    one = only(tmp_path, "DDP601", {"main.py": HEAD + body + END, "lib.py": LIB})
    assert (one.site.path, one.site.span.line) == ("lib.py", 12)
    assert way(one) == ["main.py:12: calls Keeper.keep()", "lib.py:9: calls Keeper._write()"]


def test_in_the_script_itself_no_way_is_shown(tmp_path: Path) -> None:
    body = "\n\ndef main():\n    torch.save([1.0], 'a.pt')\n\n\nmain()\n"
    assert way(only(tmp_path, "DDP601", {"main.py": HEAD + body + END})) == []


def test_what_makes_an_object_is_on_the_way(tmp_path: Path) -> None:
    lib = "import torch\n\n\nclass Kept:\n    def __init__(self):\n        torch.save(1.0, 'a')\n"
    body = "from lib import Kept\n\nKept()\n"
    one = only(tmp_path, "DDP601", {"main.py": HEAD + body + END, "lib.py": lib})
    assert way(one) == ["main.py:9: makes Kept"]


def test_a_long_way_has_its_first_call_and_the_last(tmp_path: Path) -> None:
    steps = [f"def f{n}():\n    f{n + 1}()\n\n\n" for n in range(6)]
    lib = f"import torch\n\n\n{''.join(steps)}def f6():\n    torch.save(1.0, 'a.pt')\n"
    body = "import lib\n\nlib.f0()\n"
    one = only(tmp_path, "DDP601", {"main.py": HEAD + body + END, "lib.py": lib})
    assert way(one) == [
        "main.py:9: calls f0() …",
        "lib.py:21: calls f5()",
        "lib.py:25: calls f6()",
    ]


def test_a_part_that_no_script_enters_says_so(tmp_path: Path) -> None:
    lib = """import torch.distributed as dist


def finish(value):
    dist.all_reduce(value)
    wait(dist.get_rank())


def wait(rank):
    if rank == 0:
        dist.barrier()
"""
    one = only(tmp_path, "DDP801", {"lib.py": lib})
    assert way(one) == [
        "lib.py:4: read from here: no script was seen to call finish()",
        "lib.py:6: calls wait()",
    ]


def test_the_hook_that_lightning_calls(tmp_path: Path) -> None:
    module = """import torch
import lightning as L


class Net(L.LightningModule):
    def training_step(self, batch, index):
        keep(batch.sum())


def keep(value):
    torch.save(value, "last.pt")
"""
    body = "import lightning as L\nfrom net import Net\n\nL.Trainer(devices=2).fit(Net())\n"
    one = only(tmp_path, "DDP601", {"main.py": body, "net.py": module})
    assert way(one) == ["main.py:4: Lightning calls Net.training_step()", "net.py:7: calls keep()"]


def test_the_condition_and_the_rank_in_it_are_one_frame(tmp_path: Path) -> None:
    body = """value = torch.ones(1)
if dist.get_rank() == 0:
    dist.all_reduce(value)
dist.barrier()
"""
    assert because(only(tmp_path, "DDP801", {"main.py": HEAD + body + END})) == [
        "main.py:8: the condition (get_rank(): the number of the rank)",
        "main.py:9: rank 0: all_reduce",
        "main.py:10: rank 1: barrier",
    ]


def test_a_helper_of_both_sides_is_shown_where_each_calls_it(tmp_path: Path) -> None:
    body = """

def total(value):
    dist.all_reduce(value)


if rank == 0:
    total(torch.ones(1))
dist.barrier()
total(torch.ones(1))
"""
    one = only(tmp_path, "DDP801", {"main.py": HEAD + body + END})
    assert because(one)[2:] == [
        "main.py:14: rank 0: all_reduce (line 10)",
        "main.py:15: rank 1: barrier",
    ]


STEPS = """net = DDP(torch.nn.Linear(2, 2))
loader = torch.utils.data.DataLoader(range(8))
for epoch in range(3):
    for x in loader:
        net(x).sum().backward()
{}
"""


@pytest.mark.parametrize(
    ("body", "condition"),
    [
        pytest.param(
            "    if rank == 0:\n        sys.exit(0)\n", "main.py:12: the condition", id="guarded"
        ),
        pytest.param(
            "    if rank != 0:\n        continue\n    if epoch > 1:\n        sys.exit()\n",
            "main.py:12: here the others go another way",
            id="the-others-went-on",
        ),
    ],
)
def test_why_rank_0_alone_leaves(tmp_path: Path, body: str, condition: str) -> None:
    one = only(tmp_path, "DDP802", {"main.py": HEAD + STEPS.format(body) + END})
    assert one.message.startswith("rank 0 alone leaves here, the others go on to a backward")
    assert because(one)[0] == condition
    assert because(one)[-1] == "main.py:11: rank 1: a backward of the wrapped model"


def test_the_others_meet_a_step_and_no_constructor(tmp_path: Path) -> None:
    body = """loader = torch.utils.data.DataLoader(range(8))
net = None
for step, x in enumerate(loader):
    if net is None:
        net = DDP(torch.nn.Linear(2, 2))
    net(x).sum().backward()
    if rank == 0 and step == 3:
        break
"""
    one = only(tmp_path, "DDP802", {"main.py": HEAD + body + END})
    assert "DistributedDataParallel" not in one.message
    assert because(one)[-1].endswith("rank 1: a backward of the wrapped model")


def test_only_what_decides_is_named_and_each_frame_once(tmp_path: Path) -> None:
    body = """import glob
import random
net = DDP(torch.nn.Linear(2, 2))
sampler = torch.utils.data.distributed.DistributedSampler(range(8))
size = len(glob.glob("*.pt"))
for x in torch.utils.data.DataLoader(range(8), sampler=sampler):
    if (x > size).any() or (x < random.random()).any():
        continue
    net(x).sum().backward()
"""
    one = only(tmp_path, "DDP803", {"main.py": HEAD + body + END})
    shown = because(one)
    assert not any("glob" in line or "random" in line for line in shown)
    assert len({line.partition(" ")[0] for line in shown}) == len(shown)


@pytest.mark.parametrize(
    ("saved", "noun"),
    [
        ("net.state_dict()", "checkpoint"),
        ("{'net': net.state_dict(), 'epoch': 3}", "checkpoint"),
        ("net", "checkpoint"),
        ("net(torch.ones(2))", "file"),
        ("torch.ones(2)", "file"),
    ],
)
def test_logits_are_no_checkpoint(tmp_path: Path, saved: str, noun: str) -> None:
    body = f"net = torch.nn.Linear(2, 2)\ntorch.save({saved}, 'a.pt')\n"
    one = only(tmp_path, "DDP601", {"main.py": HEAD + body + END})
    assert one.message.startswith(f"every rank writes this {noun}: ")


@pytest.mark.parametrize("apex", [True, False])
def test_apex_has_no_no_sync(tmp_path: Path, apex: bool) -> None:
    head = HEAD.replace("torch.nn.parallel", "apex.parallel") if apex else HEAD
    body = """net = DDP(torch.nn.Linear(2, 2))
opt = torch.optim.SGD(net.parameters(), 0.1)
for step, x in enumerate(torch.utils.data.DataLoader(range(8))):
    net(x).sum().backward()
    if step % 4 == 3:
        opt.step()
        opt.zero_grad()
"""
    one = only(tmp_path, "DDP402", {"main.py": head + body + END})
    assert ("disable_allreduce()" in one.advice) is apex
    assert ("with model.no_sync()" in one.advice) is not apex


def test_what_differs_in_a_file_that_is_damaged(tmp_path: Path) -> None:
    body = """loader = torch.utils.data.DataLoader(
    range(8), sampler=torch.utils.data.distributed.DistributedSampler(range(8))
)
for x in loader:
    with open("seen.txt", "w") as file:
        file.write(str(x))
"""
    one = only(tmp_path, "DDP502", {"main.py": HEAD + body + END})
    assert because(one) == ["main.py:10: batches of this rank: each rank has its own"]


def test_where_the_model_was_wrapped_whose_state_is_written(tmp_path: Path) -> None:
    body = """net = DDP(torch.nn.Linear(2, 2))
if rank == 0:
    torch.save(net.state_dict(), "net.pt")
"""
    one = only(tmp_path, "DDP602", {"main.py": HEAD + body + END})
    assert because(one) == ["main.py:7: wrapped here"]


def test_a_function_that_was_read_for_itself_says_so(tmp_path: Path) -> None:
    lib = """import torch.distributed as dist


def wait():
    if dist.get_rank() == 0:
        dist.barrier()
"""
    one = only(tmp_path, "DDP801", {"lib.py": lib})
    assert way(one) == ["lib.py:4: read from here: no script was seen to call wait()"]


def test_what_stands_behind_the_exit_is_met_before_the_next_round(tmp_path: Path) -> None:
    body = """value = torch.ones(1)
for step in range(int(sys.argv[1])):
    dist.all_reduce(value)
    if rank == 0 and step == 3:
        break
    dist.broadcast(value, src=0)
"""
    one = only(tmp_path, "DDP802", {"main.py": HEAD + body + END})
    assert one.message.startswith("rank 0 alone leaves here, the others go on to broadcast")


def test_methods_of_a_class_that_a_decorator_replaces_are_read(tmp_path: Path) -> None:
    lib = """import torch
import torch.distributed as dist


def layer(cls):
    return torch.nn.Linear(2, 2)


@layer
class Waiting:
    def step(self):
        if dist.get_rank() == 0:
            dist.barrier()
"""
    assert only(tmp_path, "DDP801", {"lib.py": lib}).site.span.line == 13


METER = """import torch.distributed as dist


class Log:
    def line(self, text):
        if dist.get_rank() == 0:
            print(text)
"""


def test_the_way_is_that_of_the_call_that_is_meant(tmp_path: Path) -> None:
    """Others lead into the same helper before it."""
    body = """from log import Log
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler
log = Log()
log.line("begin")
data = TensorDataset(torch.randn(64, 4))
loader = DataLoader(data, sampler=DistributedSampler(data))
model = DDP(nn.Linear(4, 1))
total = 0.0
with torch.no_grad():
    for (x,) in loader:
        total += model(x).sum().item()
log.line(total)
"""
    found = only(tmp_path, "DDP701", {"main.py": HEAD + body + END, "log.py": METER})
    assert way(found) == ["main.py:20: calls Log.line()"]


def test_who_asks_whether_to_leave_is_told_not_what_else_the_answer_is_made_of(
    tmp_path: Path,
) -> None:
    body = """import os, time
import torch.distributed as dist


def number():
    for name in ("RANK", "PMI_RANK"):
        if name in os.environ:
            return int(os.environ[name])
    return 0


def main():
    path = time.strftime("%H%M%S") + ".log"
    if number() == 0:
        if os.path.exists(path):
            return
    dist.init_process_group("gloo")
    dist.barrier()


main()
"""
    one = only(tmp_path, "DDP803", {"main.py": body})
    assert one.message.startswith("some ranks alone ask whether to leave before")
    assert because(one)[:2] == [
        "main.py:14: who asks: by the number of the rank",
        "main.py:15: the condition",
    ]
    assert not one.mends  # a broadcast under the condition would wait for the others
