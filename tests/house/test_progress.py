"""What a terminal shows while a command works, and whether it is coloured."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from ddpify import cli, progress, terminal

SCRIPT = """\
import torch.distributed as dist

dist.init_process_group("gloo")
print(dist.get_rank())
dist.destroy_process_group()
"""


class Terminal(io.StringIO):
    """A stream that says it is one."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """What is to be standard error; nobody waits for what is shown, and there is a project."""
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "train.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress, "Timer", _AtOnce)
    return Terminal()


class _AtOnce:
    daemon = False

    def __init__(self, after: float, begin: object) -> None:
        self.start = begin

    def cancel(self) -> None:
        """It has run."""


@pytest.mark.parametrize(
    ("command", "said"),
    [
        pytest.param(["check", "--no-cache"], "Reading as two ranks run it: train.py", id="check"),
        pytest.param(["diff", "train.py"], "Following the program: file 1, train.py", id="diff"),
        pytest.param(["plan", "train.py"], "Following the program: file 1, train.py", id="plan"),
    ],
)
def test_a_terminal_sees_how_far_it_is(
    screen: Terminal, monkeypatch: pytest.MonkeyPatch, command: list[str], said: str
) -> None:
    monkeypatch.setattr(sys, "stderr", screen)
    told: list[str] = []
    monkeypatch.setattr(progress._Line, "told", lambda self, what, done=0, of=0: told.append(what))
    cli.main(command)
    assert said in told


def test_the_line_is_gone_when_the_command_is_done(
    screen: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", screen)
    with progress.progress() as step:
        step("Reading [bold]a.py", 2, 5)
    shown = screen.getvalue()
    assert "Reading [bold]a.py (3 of 5)" in shown
    assert shown.rstrip("\x1b[A\r").endswith("\x1b[2K")  # erased
    assert "\x1b[?25h" in shown  # and the cursor is back


@pytest.mark.parametrize("why", ["quiet", "dumb", "pipe"])
def test_nothing_is_shown_to_others(
    screen: Terminal, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    monkeypatch.setattr(sys, "stderr", screen)
    if why == "dumb":
        monkeypatch.setenv("TERM", "dumb")
    if why == "pipe":
        monkeypatch.setattr(screen, "isatty", lambda: False)
    cli.main(["check", "--no-cache", *(["-q"] if why == "quiet" else [])])
    assert screen.getvalue() == ""


@pytest.mark.parametrize(
    ("environment", "live", "colored"),
    [
        pytest.param({}, True, True, id="terminal"),
        pytest.param({}, False, False, id="pipe"),
        pytest.param({"NO_COLOR": "1"}, True, False, id="NO_COLOR"),
        pytest.param({"TERM": "dumb"}, True, False, id="dumb"),
        pytest.param({"FORCE_COLOR": "1"}, False, True, id="FORCE_COLOR"),
        pytest.param({"FORCE_COLOR": "1", "NO_COLOR": "1"}, True, False, id="both"),
        pytest.param({"FORCE_COLOR": ""}, False, False, id="empty"),
    ],
)
def test_color(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], live: bool, colored: bool
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert terminal.shows_color(Terminal() if live else io.StringIO()) is colored


@pytest.mark.parametrize(("columns", "width"), [("60", 60), ("250", 100), ("9", 40)])
def test_width(monkeypatch: pytest.MonkeyPatch, columns: str, width: int) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert terminal.width() == terminal.WIDTH
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert terminal.width() == width
