"""A function that only computes is read once for each kind of arguments; any other each time."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.facts.events import Call
from ddpify.facts.machine import ProgramReader
from ddpify.facts.values import Kind
from ddpify.project import Project

COMPUTES = {
    "arrays": "def probe(a, b):\n    return np.linalg.norm(a - b)\n",
    "a loop": "def probe(a, b):\n    for i in range(3):\n        b = np.add(a, b)\n    return b\n",
    "a list": "def probe(a, b):\n    found = []\n    found.append(np.abs(a))\n    return found\n",
    "a global constant": "SCALE = 2\ndef probe(a, b):\n    return np.add(a, b) * SCALE\n",
    "another such function": (
        "def inner(a):\n    return np.abs(a)\ndef probe(a, b):\n    return inner(a)\n"
    ),
}
DOES_MORE = {
    "keeps in a global": (
        "seen = []\ndef probe(a, b):\n    seen.append(a)\n    return np.add(a, b)\n"
    ),
    "keeps in an argument": "def probe(a, b):\n    a.first = np.abs(b)\n    return np.abs(b)\n",
    "writes": "def probe(a, b):\n    np.save('a.npy', a)\n    return np.abs(b)\n",
    "binds a global": (
        "last = 0\ndef probe(a, b):\n    global last\n    last = a\n    return np.abs(b)\n"
    ),
    "makes a module": "def probe(a, b):\n    np.abs(b)\n    return nn.Linear(3, 3)\n",
    "asks a library": "def probe(a, b):\n    np.abs(a)\n    return smp.make('x')\n",
}
TWICE = """
import numpy as np
import segmentation_models as smp
from torch import nn
{function}
x = np.load("x.npy")
y = np.load("y.npy")
first = probe(x, y)
second = probe(y, x)
"""


def _read(tmp_path: Path, text: str) -> ProgramReader:
    entry = tmp_path / "main.py"
    entry.write_text(text)
    machine = ProgramReader(Project(tmp_path, entry))
    machine.run()
    return machine


def _times(machine: ProgramReader) -> int:
    """How often the body of ``probe`` was read: once per call that led there."""
    inside = [e for e in machine.events if isinstance(e, Call) and e.where.stack]
    return len({e.where.stack[0] for e in inside})


@pytest.mark.parametrize("function", COMPUTES.values(), ids=COMPUTES)
def test_what_only_computes_is_read_once(tmp_path: Path, function: str) -> None:
    machine = _read(tmp_path, TWICE.format(function=function))
    assert _times(machine) == 1


@pytest.mark.parametrize("function", DOES_MORE.values(), ids=DOES_MORE)
def test_what_does_more_is_read_each_time(tmp_path: Path, function: str) -> None:
    machine = _read(tmp_path, TWICE.format(function=function))
    assert _times(machine) == 2


def test_other_arguments_give_other_results(tmp_path: Path) -> None:
    function = "def probe(a, b):\n    return a if a.any() else np.abs(a)\n"
    machine = _read(tmp_path, TWICE.format(function=function))
    names = machine.modules["main.py"].globals
    assert _times(machine) == 1
    assert names["y"].things[0] in names["second"].things
    assert names["x"].things[0] not in names["second"].things


def test_a_list_is_not_shared_by_two_results(tmp_path: Path) -> None:
    text = TWICE.format(function=COMPUTES["a list"]) + "first.append(nn.Linear(3, 3))\n"
    names = _read(tmp_path, text).modules["main.py"].globals
    lists = [names[name].of(Kind.TUPLE, Kind.ITERATOR) for name in ("first", "second")]
    assert not set(lists[0]) & set(lists[1])


def test_a_changed_global_is_read_again(tmp_path: Path) -> None:
    text = TWICE.format(function=COMPUTES["a global constant"]).replace(
        "second =", "SCALE = nn.Linear(3, 3)\nsecond ="
    )
    assert _times(_read(tmp_path, text)) == 2


def test_a_constructor_that_only_computes_is_read_once(tmp_path: Path) -> None:
    made = "class Holder:\n    def __init__(self, a, b):\n        self.kept = np.add(a, b)\n"
    text = TWICE.format(function=made).replace("probe(", "Holder(")
    machine = _read(tmp_path, text)
    names = machine.modules["main.py"].globals
    first, second = names["first"].things[0], names["second"].things[0]
    assert _times(machine) == 1
    assert first is not second
    assert set(second.attrs) == {"kept"}


DATASETS = {
    "a library": "        self.rows = datasets.load_dataset('x', a)['train'].to_pandas()\n",
    "an iterator": "        self.rows = next(iter(datasets.load_dataset('x', a)))\n",
    "a directory": "        os.makedirs('kept', exist_ok=True)\n        self.rows = np.abs(a)\n",
    "a progress bar": "        self.rows = [np.abs(one) for one in tqdm(a)]\n",
    "a method of its own": "        self.load(a)\n",
}
ASKS_MORE = {
    "a model": "        self.rows = np.abs(a)\n        self.net = nn.Linear(3, 3)\n",
    "a file": "        np.save('a.npy', a)\n        self.rows = a\n",
    "a training step": "        self.rows = smp.make('x')\n        self.rows.backward()\n",
    "another object": "        a.first = np.abs(b)\n        self.rows = a\n",
    "torch": "        self.rows = torch.load('a.pt')\n",
}
MADE_TWICE = """
import datasets, os, torch
import numpy as np
import segmentation_models as smp
from torch import nn
from torch.utils.data import Dataset
from tqdm import tqdm
class Probe(Dataset):
    def load(self, a):
        self.rows = np.abs(a)
    def __init__(self, a, b):
        np.add(a, b)
{body}
x = np.load("x.npy")
y = np.load("y.npy")
first = Probe(x, y)
second = Probe(y, x)
"""


@pytest.mark.parametrize("body", DATASETS.values(), ids=DATASETS)
def test_a_data_set_that_only_holds_data_is_made_from_one_reading(
    tmp_path: Path, body: str
) -> None:
    machine = _read(tmp_path, MADE_TWICE.format(body=body))
    names = machine.modules["main.py"].globals
    first, second = names["first"].things[0], names["second"].things[0]
    assert _times(machine) == 1
    assert set(second.attrs) == set(first.attrs)
    held = [t for value in second.attrs.values() for t in value.of(Kind.UNKNOWN)]
    assert not {t for value in first.attrs.values() for t in value.things} & set(held)


@pytest.mark.parametrize("body", ASKS_MORE.values(), ids=ASKS_MORE)
def test_a_data_set_that_does_more_is_read_each_time(tmp_path: Path, body: str) -> None:
    assert _times(_read(tmp_path, MADE_TWICE.format(body=body))) == 2


SETTINGS = """
import argparse
import numpy as np
args = argparse.ArgumentParser().parse_args()
args.window = 3
def inner(a, args):
    return np.abs(a) * args.window
def probe(a, args):
    return inner(a, args)
x = np.load("x.npy")
first = probe(x, args)
args.{changed} = np.load("y.npy").mean()
second = probe(x, args)
"""


def test_a_setting_counts_where_it_is_looked_at(tmp_path: Path) -> None:
    assert _times(_read(tmp_path, SETTINGS.format(changed="width"))) == 1
    assert _times(_read(tmp_path, SETTINGS.format(changed="window"))) == 2


def test_a_function_that_changes_a_setting_is_read_each_time(tmp_path: Path) -> None:
    text = SETTINGS.replace("    return inner", "    args.height = 1\n    return inner")
    assert _times(_read(tmp_path, text.format(changed="width"))) == 2
