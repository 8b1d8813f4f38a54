"""What people are used to from other linters: what counts is shown, and can be set in passing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ddpify import cli
from ddpify.checking.cache import FOLDER
from ddpify.commands.completion import rule_codes
from ddpify.settings import tomllib
from tests.checking.conftest import Check, Linter, write

ALL = "bad()\nslow()  # noqa: DDP402\nrisky()\n"


@pytest.mark.parametrize(
    ("flags", "places"),
    [
        pytest.param([], ["a.py:1 DDP701", "a.py:3 DDP601", "old/b.py:1 DDP701"], id="all"),
        pytest.param(["--exclude", "old"], ["a.py:1 DDP701", "a.py:3 DDP601"], id="exclude"),
        pytest.param(["--exclude", "o*", "--exclude", "/a.py"], [], id="exclude-several"),
        pytest.param(["--exclude", "old", "--force-exclude", "old/b.py"], [], id="forced"),
        pytest.param(["--config", 'ignore=["DDP7"]'], ["a.py:3 DDP601"], id="config"),
        pytest.param(["--config", 'exclude = ["a.py"]'], ["old/b.py:1 DDP701"], id="config-files"),
        pytest.param(
            ["--config", 'ignore=["DDP7"]', "--select", "DDP7"],
            ["a.py:1 DDP701", "old/b.py:1 DDP701"],
            id="flags-win",
        ),
        pytest.param(["--ignore-noqa", "--select", "DDP4"], ["a.py:2 DDP402"], id="ignore-noqa"),
    ],
)
def test_set_in_passing(project: Path, check: Check, flags: list[str], places: list[str]) -> None:
    write(project, {"a.py": ALL, "old/b.py": "bad()\n"})
    assert check(*flags).places == places


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        pytest.param(["--config", "line-lengt=88"], "--config has no key 'line-lengt'", id="key"),
        pytest.param(["--config", "line-length=3"], "line-length must be a whole", id="value"),
        pytest.param(["--config", "ignore"], "must be KEY=VALUE", id="no-value"),
        pytest.param(["--exclude", "../x"], "--exclude: no file matches '../x'", id="pattern"),
        pytest.param(["--add-noqa", "--ignore-noqa"], "exclude each other", id="both"),
    ],
)
def test_mistakes(project: Path, check: Check, flags: list[str], why: str) -> None:
    write(project, {"a.py": ALL})
    said = check(*flags)
    assert (said.code, said.out) == (2, "")
    assert why in said.err


def test_files_are_listed_and_not_read(project: Path, check: Check, linter: Linter) -> None:
    write(project, {"b.py": ALL, "a/c.py": "x", "run.sh": "python b.py\n", ".gitignore": "gone.py"})
    write(project, {"gone.py": ALL, ".git/config": ""})
    assert check("--show-files").out.splitlines() == ["a/c.py", "b.py", "run.sh"]
    assert linter.calls == []


def test_settings_are_shown_as_they_could_be_written(
    project: Path, check: Check, linter: Linter
) -> None:
    own = '[tool.ddpify]\nignore = ["DDP7"]\nper-file-ignores = { "old" = ["DDP6"] }\n'
    write(project, {"pyproject.toml": own, "a.py": ALL})
    said = check("--show-settings", "--config", "line-length=90", "--ignore", "DDP501")
    table = tomllib.loads(said.out)["tool"]["ddpify"]
    assert (table["ignore"], table["per-file-ignores"]) == (["DDP7"], {"old": ["DDP6"]})
    assert (table["line-length"], table["strategy"]) == (90, "ddp")
    assert 'strategy = "ddp"  # default' in said.out
    assert f"read from {project / 'pyproject.toml'}" in said.out
    assert "DDP501, DDP701" in said.out.partition("off: ")[2]
    assert linter.calls == []


def test_the_cache_goes_and_nothing_else(
    project: Path, check: Check, capsys: pytest.CaptureFixture[str]
) -> None:
    write(project, {"a.py": ALL, "mine/.ddpify_cache/notes.txt": "of somebody else"})
    check()
    assert cli.main(["clean"]) == 0
    assert f"Removed {FOLDER} (" in capsys.readouterr().out
    assert not (project / FOLDER).exists()
    assert (project / "mine/.ddpify_cache/notes.txt").exists()
    assert cli.main(["clean", "mine"]) == 0
    assert "There is no cache here." in capsys.readouterr().out
    assert cli.main(["clean", "nowhere"]) == 2


def test_a_part_of_a_project_has_the_cache_of_the_project(
    project: Path, check: Check, capsys: pytest.CaptureFixture[str]
) -> None:
    write(project, {"pkg/a.py": ALL})
    check()
    assert cli.main(["clean", "pkg"]) == 0
    assert not (project / FOLDER).exists()


def test_the_machine_is_described(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    assert cli.main(["env", "--python", str(project / "none")]) == 0
    said = dict(line.split(None, 1) for line in capsys.readouterr().out.splitlines())
    assert list(said) == ["ddpify", "Python", "system", "PyTorch", "GPUs", "settings"]
    assert said["PyTorch"] == f"none (of {project / 'none'})"
    assert said["GPUs"] == "none that is seen"
    assert said["settings"] == str(project / "pyproject.toml")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", shell]) == 0
    assert "_DDPIFY_COMPLETE=" in capsys.readouterr().out


def test_codes_are_completed() -> None:
    import click

    context, parameter = click.Context(cli.cli), click.Option(["--select"])
    assert rule_codes(context, parameter, "ddp80")[:2] == ["DDP801", "DDP802"]
    assert rule_codes(context, parameter, "DDP1,DDP80")[0] == "DDP1,DDP801"
    for command, name in (("check", "select"), ("check", "ignore"), ("rule", "code")):
        (given,) = [one for one in cli.cli.commands[command].params if one.name == name]
        assert [one.value for one in given.shell_complete(context, "DDP801")] == ["DDP801"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is full")
def test_output_that_cannot_be_written_is_one_line() -> None:
    command = [sys.executable, "-m", "ddpify", "rule", "DDP801"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    said = "ddpify: the output cannot be written (No space left on device).\n"
    assert (done.returncode, done.stderr) == (cli.FAILED, said)
