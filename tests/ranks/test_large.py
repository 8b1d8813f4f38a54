"""Programs that are too large to read to the end: nothing is left out on one side only."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.lint import lint
from ddpify.ranks import paths
from ddpify.ranks.read import MAX_STATEMENTS, read
from ddpify.ranks.run import Run
from tests.projects import put

HEAD = """import torch
import torch.distributed as dist
dist.init_process_group("gloo")
total = torch.zeros(1)
"""


def padding(count: int, indent: int = 4) -> str:
    """That many statements that matter to nobody."""
    return "".join(f"{' ' * indent}filler{number} = {number}\n" for number in range(count))


def run_of(tmp_path: Path, body: str) -> Run:
    """The run of a script that opens a session and then does ``body``."""
    put({"main.py": HEAD + body}, tmp_path)
    (run,) = (run for run in read(tmp_path, [tmp_path / "main.py"]) if run.script)
    return run


LARGE = f"def large():\n{padding(501)}    dist.all_reduce(total)\n"


def test_a_large_function_is_compared_however_often_it_is_called(tmp_path: Path) -> None:
    body = "large()\nif dist.get_rank() == 0:\n    large()\nelse:\n    large()\n"
    run = run_of(tmp_path, LARGE + body)
    assert run.complete
    assert run.mismatches == []


def test_the_third_call_of_a_large_function_by_one_rank_is_found(tmp_path: Path) -> None:
    run = run_of(tmp_path, LARGE + "large()\nlarge()\nif dist.get_rank() == 0:\n    large()\n")
    assert [one.kind for one in run.mismatches] == ["guard"]


def test_what_a_large_function_does_late_is_known_to_come(tmp_path: Path) -> None:
    body = "def main():\n    large()\n    large()\n    if dist.get_rank() == 0:\n        return\n"
    run = run_of(tmp_path, LARGE + body + "    large()\nmain()\n")
    assert [one.kind for one in run.mismatches] == ["exit"]


def _cut(tmp_path: Path, body: str) -> Run:
    run = run_of(tmp_path, body)
    assert not run.complete
    return run


def test_an_arm_that_is_not_read_to_its_end_is_not_compared(tmp_path: Path) -> None:
    body = f"""
def main():
    for epoch in range(3):
        if dist.get_rank() == 0:
            dist.all_reduce(total)
            dist.barrier()
{padding(MAX_STATEMENTS, 12)}
        else:
            dist.all_reduce(total)
            dist.barrier()
main()
"""
    assert _cut(tmp_path, body).mismatches == []


def test_what_may_be_met_by_code_that_is_not_read_is_not_reported(tmp_path: Path) -> None:
    body = f"""
if dist.get_rank() == 0:
    dist.barrier()
{padding(MAX_STATEMENTS, 0)}
if dist.get_rank() != 0:
    dist.barrier()
"""
    assert _cut(tmp_path, body).mismatches == []


def test_what_was_read_is_compared(tmp_path: Path) -> None:
    body = f"""
if dist.get_rank() == 0:
    dist.barrier()
dist.all_reduce(total)
{padding(MAX_STATEMENTS, 0)}
"""
    assert [one.event.op for one in _cut(tmp_path, body).mismatches] == ["barrier"]
    assert lint(tmp_path, [tmp_path / "main.py"]).unread == ("main.py",)


def test_paths_that_multiply_are_cut_and_the_program_is_not_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    way = "    if a{0}:\n        dist.all_reduce(total)\n        if b{0}:\n            return\n"
    named = ", ".join(f"a{number}, b{number}" for number in range(8))
    body = f"def step({named}):\n{''.join(map(way.format, range(8)))}"
    body += "    if dist.get_rank() == 0:\n        dist.barrier()\n"
    body += "import argparse\nstep(*argparse.ArgumentParser().parse_args().steps)\n"
    assert [one.kind for one in run_of(tmp_path, body).mismatches] == ["guard"]
    monkeypatch.setattr(paths, "MAX_STEPS", 10)
    run = run_of(tmp_path, body)
    assert not run.complete
    assert run.mismatches == []
