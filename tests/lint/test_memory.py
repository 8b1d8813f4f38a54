"""What a reading left makes the next one shorter, and no other: what an editor shows is what
`check` would say."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.judging import LintMemory
from ddpify.lint import Linted, lint
from ddpify.ranks.read import Reading
from ddpify.ranks.run import Run

FILES = {
    "common.py": """\
import torch.distributed as dist


def setup():
    dist.init_process_group("gloo")
    return dist.get_rank()
""",
    "one.py": """\
import torch.distributed as dist
from common import setup
from tables import TABLE

if __name__ == "__main__":
    if setup() == 0:
        dist.barrier()
""",
    "two.py": """\
import torch.distributed as dist
from common import setup
from steps import step

if __name__ == "__main__":
    rank = setup()
    step(rank)
""",
    "steps.py": """\
import torch.distributed as dist


def step(rank):
    if rank == 0:
        dist.barrier()


def alone(rank):
    if rank == 1:
        dist.barrier()
""",
    "tables.py": "TABLE = []\n",
}
EDITS = {
    "nothing": ("tables.py", "TABLE = []\n", "TABLE = []\n", []),
    "a line more": ("steps.py", "def step", "\n\ndef step", ["two.py", "steps.py:11"]),
    "a program of its own": ("one.py", "dist.barrier()", "pass", ["one.py"]),
    "what both rest on": ("common.py", "dist.get_rank()", "0", ["one.py", "two.py"]),
    "what is hot": ("tables.py", "TABLE", "def f(): dist.barrier()\nTABLE", None),
    "another call": ("steps.py", "dist.barrier()\n\n\n", "alone(rank)\n\n\n", None),
    "no Python": ("steps.py", "def step", "def def step", None),
}


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The starts of the runs that are made."""
    made: list[str] = []
    finished = Reading._finished

    def noted(self: Reading, machine: object) -> Run:
        run = finished(self, machine)  # type: ignore[arg-type]
        made.append(run.start)
        return run

    monkeypatch.setattr(Reading, "_finished", noted)
    return made


def read(top: Path, texts: dict[Path, bytes], memory: LintMemory | None = None) -> Linted:
    files = sorted(top.glob("*.py"))
    return lint(top, files, texts=texts, memory=memory, wants=lambda code: code != "DDP102")


@pytest.mark.parametrize("name", EDITS)
def test_what_is_kept_is_what_would_be_read(name: str, tmp_path: Path, runs: list[str]) -> None:
    for file, text in FILES.items():
        (tmp_path / file).write_text(text)
    memory = LintMemory()
    before = read(tmp_path, {}, memory)
    assert [str(one.site) for one in before.findings] == ["one.py:7", "steps.py:6", "steps.py:11"]
    edited, old, new, expected = EDITS[name]
    text = FILES[edited].replace(old, new, 1).encode()
    runs.clear()
    after = read(tmp_path, {tmp_path / edited: text}, memory)
    made = [*runs]
    fresh = read(tmp_path, {tmp_path / edited: text})
    assert after == fresh
    assert expected is None or sorted(made) == sorted(expected)
    assert read(tmp_path, {}, memory) == before  # and taken back
