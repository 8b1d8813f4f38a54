"""The two-rank reading: who runs what, what differs between ranks and why, where ranks part."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.ranks.model import ALL, RANK0, RANK1, RankValue
from ddpify.ranks.origins import DATA
from ddpify.ranks.read import read
from ddpify.ranks.run import Run
from tests.projects import put

HEAD = """import os, time, random, argparse
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
dist.init_process_group("gloo")
"""


def run_of(tmp_path: Path, body: str, **others: str) -> Run:
    """The run of a script that opens a session and then does ``body``."""
    files = {"main.py": HEAD + body, **{f"{name}.py": text for name, text in others.items()}}
    put(files, tmp_path)
    (run,) = (run for run in read(tmp_path, [tmp_path / name for name in files]) if run.script)
    assert run.complete
    assert run.distributed
    return run


def shown(run: Run, name: str = "show") -> list[RankValue]:
    """What was handed to ``show``, call by call."""
    return [call.args[0] for call in run.calls if call.method in (name, f"builtins.{name}")]


def masks(run: Run) -> list[int]:
    """The ranks that come to each ``show()``."""
    return [call.ranks for call in run.calls if call.method == "show"]


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("dist.get_rank()", (0, 1)),
        ("int(os.environ['RANK'])", (0, 1)),
        ("int(os.environ.get('LOCAL_RANK', -1))", (0, 1)),
        ("dist.get_rank() == 0", (True, False)),
        ("dist.get_rank() in (-1, 0)", (True, False)),
        ("not dist.is_initialized() or dist.get_rank() == 0", (True, False)),
        ("dist.get_world_size()", (2, 2)),
        ("'RANK' in os.environ", (True, True)),
        ("'SLURM_PROCID' in os.environ", (False, False)),
        ("dist.get_rank() % torch.cuda.device_count()", (0, 1)),
        ("args.nodes * 8 + dist.get_rank()", (0, 1)),
        ("dist.get_rank() if args.distributed else 0", (0, 1)),
        ("'main' if dist.get_rank() == 0 else 'other'", ("main", "other")),
    ],
)
def test_expressions_on_the_rank_are_known_for_each_rank(
    text: str, ranks: tuple[object, object], tmp_path: Path
) -> None:
    body = f"args = argparse.ArgumentParser().parse_args()\nshow({text})\n"
    (value,) = shown(run_of(tmp_path, body))
    assert value.atoms == ranks


@pytest.mark.parametrize("letters", ["d", "de", "def"])
def test_which_of_opposite_answers_holds_is_not_taken_for_known(
    letters: str, tmp_path: Path
) -> None:
    """The last of them was, after two branches; after one, both ranks had the same answer."""
    branches = "".join(f"    if mark == {one!r}: known = number == 1\n" for one in letters)
    body = f"number = dist.get_rank()\nknown = number == 0\nfor mark in 'abc':\n{branches}"
    body = body.replace("    if", "    elif").replace("    elif", "    if", 1)
    run = run_of(tmp_path, f"{body}show(known)\nif known:\n    dist.barrier()\n")
    (value,) = shown(run)
    assert not value.known
    assert value.atoms[0] != value.atoms[1]


def test_helpers_are_understood_by_what_they_do(tmp_path: Path) -> None:
    tools = """import torch.distributed as d
def up():
    if not d.is_available():
        return False
    return d.is_initialized()
def number():
    return d.get_rank() if up() else 0
def chief():
    return number() == 0
def only_chief(fn):
    def inner(*args):
        if chief():
            return fn(*args)
    return inner
"""
    body = "import tools\nshow(tools.chief())\nif tools.chief():\n    show(1)\n"
    body += "@tools.only_chief\ndef write():\n    dist.get_rank()\n    show(2)\nwrite()\nshow(3)\n"
    run = run_of(tmp_path, body, tools=tools)
    assert shown(run)[0].atoms == (True, False)
    assert masks(run) == [ALL, RANK0, RANK0, ALL]


def test_an_early_return_leaves_the_rest_to_the_other_rank(tmp_path: Path) -> None:
    body = """
def work(rank):
    if rank != 0:
        show(1)
        return
    show(2)
work(dist.get_rank())
show(3)
"""
    assert masks(run_of(tmp_path, body)) == [RANK1, RANK0, ALL]


@pytest.mark.parametrize(
    "body",
    [
        "if rank != 0:\n    dist.barrier()\nif rank == 0:\n    dist.barrier()\n",
        "if args.many and rank != 0:\n    dist.barrier()\nif args.many and rank == 0:\n"
        "    dist.barrier()\n",
        "if rank == 0:\n    dist.broadcast(t, 0)\nelse:\n    dist.broadcast(u, 0)\n",
        "for _ in range(rank):\n    dist.barrier()\nfor _ in range(1 - rank):\n"
        "    dist.barrier()\n",
        "if rank == 0 and args.verbose:\n    show(1)\ndist.barrier()\n",
        "if dist.get_world_size() == 1:\n    dist.barrier()\n",
        "if rank == 0:\n    raise SystemExit(2)\ndist.barrier()\n",
    ],
)
def test_balanced_code_is_not_reported(body: str, tmp_path: Path) -> None:
    start = "args = argparse.ArgumentParser().parse_args()\nrank = dist.get_rank()\n"
    start += "t = torch.ones(1)\nu = torch.ones(1)\n"
    assert run_of(tmp_path, start + body).mismatches == []


@pytest.mark.parametrize(
    ("body", "kind", "line"),
    [
        ("if rank == 0:\n    dist.barrier()\n", "guard", 2),
        ("if rank == 0 and args.many:\n    dist.barrier()\n", "guard", 2),
        ("if rank == 0:\n    dist.barrier()\ndist.all_reduce(t)\nif rank:\n"
         "    dist.barrier()\n", "guard", 2),
        ("for i in range(9):\n    if rank == 1 and i == 3:\n        break\n    dist.barrier()\n",
         "exit", 3),
        ("for i in range(9):\n    if i == 3 and rank == 1:\n        continue\n"
         "    dist.barrier()\n", "exit", 3),
        ("if rank == 0:\n    raise SystemExit\ndist.barrier()\n", "exit", 2),
        ("try:\n    show(1)\nexcept* ValueError:\n    show(2)\nif rank == 0:\n"
         "    dist.barrier()\n", "guard", 6),
        ("try:\n    if rank == 0:\n        dist.barrier()\nexcept* ValueError:\n    show(2)\n",
         "guard", 3),
        ("start = time.time()\nwhile time.time() - start < 9:\n    dist.barrier()\n", "local", 2),
        ("for i in range(9):\n    dist.barrier()\n    if random.random() > 0.5:\n        break\n",
         "local", 4),
    ],
)  # fmt: skip
def test_where_ranks_part_is_found(body: str, kind: str, line: int, tmp_path: Path) -> None:
    start = "args = argparse.ArgumentParser().parse_args()\nrank = dist.get_rank()\n"
    start += "t = torch.ones(1)\n"
    first = (HEAD + start).count("\n")
    run = run_of(tmp_path, start + body)
    assert {(one.kind, one.site.span.line - first) for one in run.mismatches} >= {(kind, line)}


def test_samples_are_each_ranks_own_until_they_are_reduced(tmp_path: Path) -> None:
    body = """
def mean(value):
    value = value.clone()
    dist.all_reduce(value)
    return value / dist.get_world_size()
data = torch.utils.data.TensorDataset(torch.ones(8))
model = DDP(torch.nn.Linear(1, 1))
for (x,) in DataLoader(data, sampler=DistributedSampler(data)):
    loss = model(x).mean()
    show(loss)
    show(mean(loss))
    show(loss.item() * 2)
    show(x.shape)
"""
    own = [value.has(DATA) for value in shown(run_of(tmp_path, body))]
    assert own == [True, False, True, False]


def test_what_a_device_is_made_from_does_not_make_what_lies_there_differ(tmp_path: Path) -> None:
    body = """
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
state = torch.load("x.pt", map_location=device)
show(state["epoch"])
show(device)
"""
    state, _ = shown(run_of(tmp_path, body))
    assert not state.by_rank
    assert not state.local


def test_the_body_of_a_with_block_runs_where_its_generator_yields(tmp_path: Path) -> None:
    body = """
import contextlib
@contextlib.contextmanager
def first(rank):
    if rank != 0:
        dist.barrier()
    yield
    if rank == 0:
        dist.barrier()
with first(dist.get_rank()):
    show(1)
"""
    run = run_of(tmp_path, body)
    assert run.mismatches == []
    order = [call.method for call in run.calls if call.method in ("barrier", "show")]
    assert order == ["barrier", "show", "barrier"]


def test_a_project_in_one_process_is_not_even_parsed(tmp_path: Path) -> None:
    put({"main.py": "import torch\nif __name__ == '__main__':\n    torch.ones(1)\n"}, tmp_path)
    assert read(tmp_path, [tmp_path / "main.py"]) == []
    assumed = read(tmp_path, [tmp_path / "main.py"], assume_distributed=True)
    assert [run.distributed for run in assumed] == [True]


def test_nothing_is_executed(tmp_path: Path) -> None:
    trap = f"open({str(tmp_path / 'sprung')!r}, 'w').close()\n"
    run_of(tmp_path, f"import trap\nexec({trap!r})\n", trap=trap)
    assert not (tmp_path / "sprung").exists()


def test_a_known_library_is_read_by_its_name_in_its_own_repository_too(tmp_path: Path) -> None:
    library = {
        "lightning/__init__.py": "",
        "lightning/fabric/__init__.py": "class Fabric:\n    def launch(self):\n        pass\n",
    }
    own = {"accelerate/__init__.py": "def speed():\n    show(dist.get_rank())\n"}
    main = "from lightning.fabric import Fabric\nfrom accelerate import speed\nFabric()\nspeed()\n"
    put({"main.py": HEAD + main, **library, **own}, tmp_path)
    (run,) = (run for run in read(tmp_path, [tmp_path / "main.py"]) if run.script)
    named = {call.name for call in run.calls}
    assert "lightning.fabric.Fabric" in named
    assert "accelerate.speed" in named
    assert [call.target is not None for call in run.calls if call.name == "accelerate.speed"]
