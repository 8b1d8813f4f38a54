"""What is answered behind ``if …: init_process_group()``: the question, also in other words."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ranks.test_reading import run_of

PROGRAM = """
def main(args):
    if {opens}:
        dist.init_process_group("gloo")
    if {asks}:
        taken()
    else:
        left()

if __name__ == "__main__":
    main(argparse.ArgumentParser().parse_args())
"""
BOTH = {"taken", "left"}


@pytest.mark.parametrize(
    ("opens", "asks", "called"),
    [
        ("args.several", "args.several", {"taken"}),
        ("args.several", "not args.several", {"left"}),
        ("not args.single", "args.single", {"left"}),
        ("args.several", "args.other", BOTH),
        ("args.world > 1", "args.world == 1", {"left"}),
        ("args.world > 1", "args.world >= 2", {"taken"}),
        ("args.world > 1", "args.world != 1", {"taken"}),
        ("args.world > 1", "args.world > 2", BOTH),
        ("args.world > 1", "args.other > 1", BOTH),
        ("args.world != 1", "args.world == 1", {"left"}),
        ("args.several and args.gpu", "args.gpu", {"taken"}),
        ("args.several or args.gpu", "args.gpu", BOTH),
        ("not (args.cpu or args.single)", "args.cpu", {"left"}),
        ("args.several", "args.several or args.other", {"taken"}),
        ("args.several", "args.several and args.other", BOTH),
    ],
)
def test_what_opened_the_group_is_answered(
    tmp_path: Path, opens: str, asks: str, called: set[str]
) -> None:
    run = run_of(tmp_path, PROGRAM.format(opens=opens, asks=asks))
    assert {call.name.rpartition(".")[2] for call in run.calls} & BOTH == called


def test_nothing_is_answered_where_both_arms_open_it(tmp_path: Path) -> None:
    text = PROGRAM.format(opens="args.file", asks="args.file").replace(
        "    if args.file:\n        taken()",
        '    else:\n        dist.init_process_group("nccl")\n    if args.file:\n        taken()',
    )
    run = run_of(tmp_path, text)
    assert {call.name.rpartition(".")[2] for call in run.calls} & BOTH == BOTH


def test_nothing_is_answered_behind_an_arm_that_ends(tmp_path: Path) -> None:
    text = PROGRAM.format(opens="args.several", asks="args.several").replace(
        '("gloo")\n', '("gloo")\n        return\n'
    )
    run = run_of(tmp_path, text)
    assert {call.name.rpartition(".")[2] for call in run.calls} & BOTH == BOTH
