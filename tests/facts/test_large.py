"""Large programs are read whole: what a reading costs grows with the program, not with products.

Counted in steps, as seconds are those of a machine. The program has as many models, data sets and
experiments as it is said to have: each experiment may train each model on each data set.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from ddpify.facts import machine as reader
from ddpify.facts import open_losses
from ddpify.facts.events import Bind, Forward
from ddpify.facts.link import TooLarge, analyze
from ddpify.facts.machine import ProgramReader
from ddpify.facts.model import Status
from ddpify.project import Project

DATASET = """
class Data{n}(Dataset):
    def __init__(self, args, flag, size=None):
        self.args, self.flag, self.size = args, flag, size or args.size
        self.folder = os.path.join(args.root, "{n}")
        os.makedirs(self.folder, exist_ok=True)
        table = hub.load_table(self.folder, name=flag)
        start, end = 100 * args.window, 200 * args.window
        if flag == "train":
            table = table[start:end]
        elif args.scale:
            table = (table - table.mean()) / table.std()
        self.samples = table.to_numpy().astype(np.float32)
        print(self.flag, len(self.samples))

    def __len__(self):
        return len(self.samples)
"""
MODEL = """
class Model{n}(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.first = nn.Linear(args.window, args.width)
        self.norm = nn.BatchNorm1d(args.width)
        self.last = nn.Linear(args.width, {n})

    def forward(self, x):
        x = torch.relu(self.norm(self.first(x)))
        return self.last(x)
"""
EXPERIMENT = """
class Experiment{n}(Experiment):
    def train(self, args):
        args.width = self.data("train").dataset.samples.shape[1]
        optimizer = torch.optim.SGD(self.model.parameters(), lr=args.lr)
        for epoch in range(args.epochs):
            for x, y in self.data("train"):
                optimizer.zero_grad()
                loss = nn.functional.mse_loss(self.model(x), y)
                loss.backward()
                optimizer.step()
            self.test(args)

    def test(self, args):
        total = 0
        with torch.no_grad():
            for x, y in self.data("test"):
                total += nn.functional.mse_loss(self.model(x), y, reduction="sum")
        print({n}, total)
"""
MAIN = """
import argparse, os
import hub
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
{classes}
MODELS = {{{models}}}
DATASETS = {{{datasets}}}
class Experiment:
    def __init__(self, args):
        self.args = args
        self.model = MODELS[args.model](args)
    def data(self, flag):
        rows = DATASETS[self.args.data](self.args, flag)
        return DataLoader(rows, batch_size=self.args.batch_size, shuffle=flag == "train")
{experiments}
parser = argparse.ArgumentParser()
args = parser.parse_args()
"""


def _program(size: int) -> str:
    numbers = range(size)
    text = MAIN.format(
        classes="".join(one.format(n=n) for one in (DATASET, MODEL) for n in numbers),
        models=", ".join(f'"{n}": Model{n}' for n in numbers),
        datasets=", ".join(f'"{n}": Data{n}' for n in numbers),
        experiments="".join(EXPERIMENT.format(n=n) for n in numbers),
    )
    return text + "".join(
        f'if args.task == "{n}":\n    Experiment{n}(args).train(args)\n' for n in numbers
    )


def _project(size: int, folder: Path) -> Project:
    folder.mkdir(exist_ok=True)
    entry = folder / "main.py"
    entry.write_text(_program(size))
    return Project(folder, entry)


def _read(size: int, folder: Path) -> ProgramReader:
    machine = ProgramReader(_project(size, folder))
    machine.run()
    assert not machine.exhausted
    return machine


def test_the_steps_of_a_reading_grow_linearly(tmp_path: Path) -> None:
    small, middle, large = (_read(size, tmp_path / str(size)).spent for size in (6, 12, 24))
    assert large - middle <= 2.1 * (middle - small)


def test_the_record_answers_as_a_search_through_all_events_would(tmp_path: Path) -> None:
    machine = _read(2, tmp_path)
    events = [event for event in machine.events if not isinstance(event, Forward)]
    binds = [event for event in events if isinstance(event, Bind)]
    assert machine.loops
    for loop in machine.loops:
        inside = [e for e in events if loop.site in {each.site for each in e.where.loops()}]
        assert list(machine.events.during(loop)) == inside
        written = [bind for bind in binds if bind.site.within(loop.site)]
        assert list(machine.events.binds_in(loop.site)) == written
        own = [b for b in binds if b.where.frame.stack == loop.frame.stack]
        own = [bind for bind in own if bind.where.function is loop.frame.function]
        assert list(machine.events.binds_of(loop.frame)) == own


def test_a_program_without_end_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "BUDGET", 100)
    with pytest.raises(TooLarge, match=r"main\.py: the program is too large to follow whole"):
        analyze(_project(2, tmp_path))


def test_a_large_program_that_is_distributed_is_not_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "ENOUGH", 100)
    project = _project(2, tmp_path)
    text = project.entry.read_text()
    project.entry.write_text(f"{text}torch.distributed.init_process_group('nccl')\n")
    facts = analyze(project)
    assert facts is not None
    assert facts.status is Status.DISTRIBUTED


ENTWINED = """
import torch
from rows import Rows
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4)
    def forward(self, x):
        a = x
        b = self.body(x)
{lines}
        return a + b
net = Net()
for x, y in torch.utils.data.DataLoader(Rows("train"), batch_size=2):
    for again in range(2):
        net(x)
"""


def test_what_a_forward_returns_is_read_once_however_its_names_are_entwined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[ast.AST] = []  # operators are one object each
    known = open_losses._makes_one

    def looked_at(node: ast.AST) -> bool:
        asked.extend([node] if isinstance(node, ast.expr) else [])
        return known(node)

    monkeypatch.setattr(open_losses, "_makes_one", looked_at)
    text = ENTWINED.format(lines="        a = a + b\n        b = b * a\n" * 8)
    (tmp_path / "main.py").write_text(text)
    project = Project(tmp_path, tmp_path / "main.py")
    for _ in range(2):
        ProgramReader(project).run()
        assert len(asked) == len(set(asked)) > 0


def _nested(depth: int) -> str:
    loops = "".join(f"{'    ' * n}for i{n} in range(9):\n" for n in range(depth))
    return f"import numpy as np\n{loops}{'    ' * depth}print(np.zeros(9))\n"


def test_loops_in_each_other_are_read_as_often_as_there_are_of_them(tmp_path: Path) -> None:
    spent = {}
    for depth in (1, 4, 8):
        (tmp_path / "main.py").write_text(_nested(depth))
        machine = ProgramReader(Project(tmp_path, tmp_path / "main.py"))
        machine.run()
        spent[depth] = machine.spent
    assert spent[8] - spent[4] < 4 * (spent[4] - spent[1])
