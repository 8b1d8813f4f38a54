"""Bad input through the whole tool: one clear line, exit code 2, nothing written."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from ddpify import cli
from ddpify.discover import Entries, entries
from ddpify.source import Source
from tests.projects import put_fixture

LOOP = b"for x in data:\n    loss.backward()\n"
UNBOUND = b"""\
import torch
net = torch.nn.Linear(2, 2)
adam = torch.optim.Adam(net.parameters())
for epoch in range(2):
    for i, x in enumerate(batches):
        net(x).mean().backward()
        adam.step()
"""
DISTRIBUTED = b"""import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
"""
RINGS = """class Ring:
    def __iter__(self):
        return self.other


a, b = Ring(), Ring()
a.other, b.other = b, a
for x in a:
    print(x)
"""
WORK = "def work():\n    loss.backward()\n"
HOGWILD = b"import torch.multiprocessing as mp\nmodel.share_memory()\n"
CASES = [
    pytest.param("missing.py", None, "missing.py: no such file or folder", id="missing"),
    pytest.param("two.py", b'print "x"\n', "two.py:1: not valid Python 3", id="python-2"),
    pytest.param("old.py", b"\nmove(x, async=True)\n", "old.py:2: not valid Python 3", id="async"),
    pytest.param("lit.py", b"import lightning\n", "lit.py:1: the training loop is in", id="loop"),
    pytest.param("hog.py", HOGWILD, "hog.py:2: processes change the shared", id="hogwild"),
    pytest.param("latin.py", b'print("caf\xe9")\n', "latin.py: cannot be decoded", id="not-utf-8"),
    pytest.param(
        "cookie.py",
        b'# -*- coding: latin-1 -*-\nprint("caf\xe9")\n',
        "cookie.py: no training loop found",
        id="cookie-is-read",
    ),
    pytest.param(
        "wrong.py", b"# -*- coding: nonsense -*-\n", "wrong.py: cannot be decoded", id="bad-cookie"
    ),
    pytest.param("empty.py", b"", "empty.py: is empty", id="empty"),
    pytest.param("book.ipynb", b'{"cells": []}', "nbconvert --to script", id="notebook"),
    pytest.param("data.py", b"\x7fELF\x00\x01", "data.py: not a Python source", id="binary"),
    pytest.param("notes.txt", b"text", "notes.txt: not a Python script", id="text"),
    pytest.param(
        "idle.py",
        b"def train():\n    for x in []:\n        x.backward()\n",
        'idle.py: nothing in it calls `train`: end it with `if __name__ == "__main__": train()`',
        id="only-defines",
    ),
    pytest.param("calm.py", b"print(1)\n", "calm.py: no training loop found", id="no-loop"),
    pytest.param("bare.py", LOOP, "bare.py:2: no optimizer", id="no-optimizer"),
    pytest.param("done.py", DISTRIBUTED, "done.py:3: already distributed", id="distributed"),
    pytest.param(
        "told.py",
        b"from lightning.pytorch.cli import LightningCLI\n\nLightningCLI()\n",
        "told.py:3: what is trained here is not followed",
        id="lightning-cli",
    ),
    pytest.param(
        "given.py",
        b"from transformers import Seq2SeqTrainer\n\nSeq2SeqTrainer().train()\n",
        "given.py:3: already distributed (the Hugging Face Trainer): start it with `torchrun`,"
        " as it is; `ddpify check --assume-distributed` finds its bugs",
        id="hugging-face-trainer",
    ),
    pytest.param(
        "tuned.py",
        b"from trl import SFTTrainer\n\nSFTTrainer().train()\n",
        "tuned.py:3: already distributed (the Hugging Face Trainer): start it with `torchrun`",
        id="trl",
    ),
    pytest.param(
        "joined.py",
        b"from accelerate import PartialState\n\nstate = PartialState()\n" + LOOP,
        "joined.py:3: already distributed (Hugging Face Accelerate): start it with `accelerate",
        id="partial-state",
    ),
    pytest.param(
        "light.py",
        b"import lightning as L\n\nL.Fabric().launch()\n",
        "light.py:3: already distributed (Lightning Fabric): give Fabric `devices`",
        id="fabric",
    ),
    pytest.param("gone.py", UNBOUND, "gone.py:5: nothing binds `batches`", id="unbound"),
]


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below ``folder``."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def refused(path: Path, capsys: pytest.CaptureFixture[str], *flags: str) -> str:
    """What the user is told; exactly one line, on standard error."""
    before = tree(path.parent)
    assert cli.main(["migrate", str(path), "--inplace", *flags]) == cli.FAILED
    assert tree(path.parent) == before
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    return said.err


@pytest.mark.parametrize(("name", "raw", "sentence"), CASES)
def test_one_line_says_what_is_wrong(
    name: str, raw: bytes | None, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    if raw is not None:
        (tmp_path / name).write_bytes(raw)
    assert sentence in refused(tmp_path / name, capsys)


def test_a_folder_without_scripts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    assert "holds no Python scripts" in refused(folder, capsys)


def test_a_folder_that_trains_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "calm").mkdir()
    (tmp_path / "calm" / "main.py").write_text("print(1)\n")
    assert "no training script found" in refused(tmp_path / "calm", capsys)


@pytest.mark.parametrize(
    "body",
    ["for n in range(2):\n    model(data).sum().backward()\n", f"{WORK}\n\nwork()\n"],
)
def test_a_folder_of_a_script_without_a_guard(body: str, tmp_path: Path) -> None:
    """Neither `__main__` nor a parser says that it is run: its top level works."""
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "run.py").write_text(body)
    (tmp_path / "losses.py").write_text(f"import torch\n\ntorch.manual_seed(0)\n\n\n{WORK}")
    found = entries([tmp_path])
    assert isinstance(found, Entries)
    assert found.scripts == (tmp_path / "run.py",)


def test_a_folder_of_a_module_that_works_when_it_is_imported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "engine.py").write_text(f"{WORK}\n\nwork()\n")
    (tmp_path / "run.py").write_text("from engine import work\n\nwork()\n")
    assert "name the script that is run" in refused(tmp_path, capsys)


def test_a_local_module_that_does_not_parse(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = put_fixture("classification", tmp_path / "project")
    (entry.parent / "utils.py").write_text('print "x"\n')
    assert "utils.py:1: not valid Python 3" in refused(entry, capsys)


def test_a_read_only_target(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry = put_fixture("classification", tmp_path / "project")
    (entry.parent / "engine.py").chmod(0o444)
    assert "engine.py: is read-only" in refused(entry, capsys, "--force")


def test_a_link_to_a_file_outside_is_read_and_not_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """People link a shared `models/`: others may use it as it is."""
    entry = put_fixture("classification", tmp_path / "project")
    outside = tmp_path / "shared.py"
    outside.write_text("def name():\n    return 'shared'\n")
    (entry.parent / "shared.py").symlink_to(outside)
    entry.write_text(f"import shared\n{entry.read_text()}")
    assert cli.main(["diff", str(entry)]) == 1
    outside.write_text("print('every rank')\n")
    capsys.readouterr()
    assert cli.main(["diff", str(entry)]) == cli.FAILED
    assert "outside the project would have to change" in capsys.readouterr().err


def test_iterators_that_give_each_other_end(tmp_path: Path) -> None:
    entry = tmp_path / "main.py"
    entry.write_text(RINGS)
    assert cli.main(["diff", str(entry)]) == cli.FAILED


def test_a_table_is_not_looked_through(tmp_path: Path) -> None:
    rows = "".join(f"    [{n}, {n}.5, 'row {n}', -{n}],\n" for n in range(20_000))
    source = Source.from_bytes(f"TABLE = [\n{rows}]\nlast = 1\n".encode(), tmp_path, "t.py")
    assert sum(1 for _ in ast.walk(source.parse())) < 30
    assert source.parse().body[1].lineno == 20_003
