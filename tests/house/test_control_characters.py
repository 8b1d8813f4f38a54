"""What is refused is named without what would steer the terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify import cli
from ddpify.commands.shared import Stop


def test_a_path_does_not_steer_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["verify", str(tmp_path / "a\x07\x1b[31mb.py")]) == cli.FAILED
    assert "/a\ufffdb.py: " in capsys.readouterr().err


def test_nor_does_a_program_s_error(capsys: pytest.CaptureFixture[str]) -> None:
    Stop("the original fails (ValueError: \x00)\n  line\tof it").show()
    assert (
        capsys.readouterr().err
        == "ddpify: the original fails (ValueError: \ufffd)\n  line  of it\n"
    )
