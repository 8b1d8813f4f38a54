"""The Python that trains is the project's, wherever ddpify itself is installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ddpify import surroundings
from ddpify.verify import which
from ddpify.verify.options import Options
from ddpify.verify.which import chosen


def environment(folder: Path, *, torch: bool = True) -> Path:
    """The interpreter of one, and its torch as a file."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/python").symlink_to(sys.executable)
    if torch:
        (folder / "lib/python3.12/site-packages/torch").mkdir(parents=True)
        (folder / "lib/python3.12/site-packages/torch/__init__.py").touch()
    return folder


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "project/tools").mkdir(parents=True)
    return tmp_path / "project/tools/train.py"


def test_the_active_one_comes_first_then_the_project_s_then_conda_s(
    script: Path, tmp_path: Path
) -> None:
    conda = environment(tmp_path / "conda")
    active = {"CONDA_PREFIX": str(conda)}
    assert chosen(script, active) == which.ProjectPython(str(conda / "bin/python"), "CONDA_PREFIX")
    own = environment(tmp_path / "project/.venv")
    found = which.ProjectPython(str(own / "bin/python"), ".venv of the project")
    assert chosen(script, active) == found
    entered = environment(tmp_path / "entered")
    active["VIRTUAL_ENV"] = str(entered)
    assert chosen(script, active) == which.ProjectPython(str(entered / "bin/python"), "VIRTUAL_ENV")


def test_one_without_torch_is_passed_over(script: Path, tmp_path: Path) -> None:
    tool = environment(tmp_path / "tool", torch=False)
    own = environment(tmp_path / "project/venv")
    active = {"VIRTUAL_ENV": str(tool)}
    assert chosen(script, active).python == str(own / "bin/python")
    (tool / "pyvenv.cfg").write_text("include-system-site-packages = true\n")
    assert chosen(script, active).why == "VIRTUAL_ENV", "its torch may be the system's"


def test_as_an_environment_lies_on_windows(script: Path, tmp_path: Path) -> None:
    tool = environment(tmp_path / "tool", torch=False)
    own = tmp_path / "project/.venv"
    (own / "Scripts").mkdir(parents=True)
    (own / "Scripts/python.exe").symlink_to(sys.executable)
    (own / "Lib/site-packages/torch").mkdir(parents=True)
    (own / "Lib/site-packages/torch/__init__.py").touch()
    found = chosen(script, {"VIRTUAL_ENV": str(tool)})
    assert found.python == str(own / "Scripts/python.exe")


def test_without_any_it_is_ddpify_s_own(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = environment(tmp_path / "tool", torch=False)
    active = {"VIRTUAL_ENV": str(tool)}
    assert chosen(script, active) == which.ProjectPython(sys.executable, which.OWN)
    monkeypatch.setattr(which, "find_spec", lambda _: None)
    assert chosen(script, active).why == "VIRTUAL_ENV", "which says what it lacks"
    assert chosen(script, {}) == which.ProjectPython(sys.executable, which.OWN)


def test_nobody_else_can_put_one_there(script: Path, tmp_path: Path) -> None:
    environment(tmp_path / "project/.venv")
    (tmp_path / "project").chmod(0o777)
    assert chosen(script, {}).why == which.OWN


def test_a_flag_wins(script: Path, tmp_path: Path) -> None:
    environment(tmp_path / "project/.venv")
    options = Options.of(script, {"python": "mine"})
    assert (options.python, options.why_python) == ("mine", "--python")


def test_env_names_the_one_that_verify_takes(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    own = environment(tmp_path / "project/venv")
    monkeypatch.chdir(script.parent)  # the environment lies in the folder above
    assert dict(surroundings.lines(None))["PyTorch"].endswith(f"(of {own / 'bin/python'})")
