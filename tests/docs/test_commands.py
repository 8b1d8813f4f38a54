"""Every command that README and the pages of docs/ show does what they say."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import click
import pytest

from ddpify import cli
from tests.docs.blocks import PAGES, ROOT, Command, page

READ = tuple(map(page, PAGES))
WITH_COMMANDS = [
    pytest.param(one, id=str(one.path.relative_to(ROOT))) for one in READ if one.commands
]


def trains(command: Command) -> bool:
    """What takes a minute; other tests run it on smaller projects."""
    return command.arguments[0] == "verify" or "--measure" in command.arguments


def waits(command: Command) -> bool:
    """What somebody has to answer; other tests do."""
    return command.arguments[0] in ("init", "server")


@pytest.fixture
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of the page's project, with the files that the page shows, in a repository."""
    shown = request.getfixturevalue("shown")
    assert shown.project, f"{shown.path.name} shows commands and names no project"
    copy = tmp_path / shown.project
    shutil.copytree(ROOT / "fixtures" / shown.project, copy)
    for name, text in shown.files.items():
        (copy / name).write_text(text, "utf-8")
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.com"]
    for words in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-q", "-m", "all"]):
        subprocess.run(["git", *words], cwd=copy, check=True)
    return copy


@pytest.mark.parametrize("shown", WITH_COMMANDS)
def test_commands_do_what_the_page_says(
    shown, project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project)
    for command in shown.commands:
        if trains(command) or waits(command):
            parse(command)
            continue
        code = cli.main(command.arguments)
        said = capsys.readouterr()
        line = f"ddpify {' '.join(command.arguments)}"
        if command.shown is None:
            assert code in (cli.CLEAN, cli.TO_DO), f"{line}\n{said.err}"
        output = said.out + said.err if command.shown else said.out
        assert command.prints(output), f"{line}\n{output}"


@pytest.mark.thorough
@pytest.mark.training
@pytest.mark.parametrize("shown", WITH_COMMANDS)
def test_commands_that_train(shown, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    for command in filter(trains, shown.commands):
        assert cli.main(command.arguments) in (cli.CLEAN, cli.TO_DO), command


def parse(command: Command) -> None:
    """Its flags exist, and its script is there."""
    known = cli.cli.commands[command.arguments[0]]
    known.make_context(command.arguments[0], list(command.arguments[1:]))
    scripts = [one for one in command.arguments[1:] if one.endswith(".py")]
    assert scripts or waits(command)
    assert all(Path(one).is_file() for one in scripts)


def test_a_flag_that_is_not_there_is_found() -> None:
    with pytest.raises(click.NoSuchOption):
        parse(Command(("server", "--no-such-flag")))


@pytest.mark.parametrize(
    ("shown", "same"),
    [
        pytest.param("a\nb\n", True, id="whole"),
        pytest.param("a\n", False, id="cut"),
        pytest.param("a\n…\n", True, id="gap"),
        pytest.param("…\nb\n", True, id="gap-before"),
        pytest.param("a\n…\nc\n", False, id="another-end"),
        pytest.param("a\nb…\n", True, id="cut-line"),
    ],
)
def test_what_is_shown_is_compared(shown: str, same: bool) -> None:
    assert Command((), shown).prints("a\nb\n") is same
