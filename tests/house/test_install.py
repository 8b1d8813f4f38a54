"""The wheel, alone in an empty environment without torch, does the main job.

It is built from a copy of the tree, so that no build folder is left in it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from ddpify import schemas

ROOT = Path(__file__).parents[2]
FOLDERS = {"ddpify": "ddpify", "runtime": "ddpify/runtime"}
pytestmark = pytest.mark.install


@dataclass(frozen=True)
class Installed:
    """An environment that holds the wheel and what it depends on, nothing else."""

    wheel: Path
    programs: Path

    def run(self, program: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        """Run one of its programs, away from the source tree."""
        command = [str(self.programs / program), *arguments]
        return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Built and installed once for all tests of this module."""
    top = tmp_path_factory.mktemp("install")
    for folder in FOLDERS:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, top / "tree" / folder, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, top / "tree" / name)
    pip = [sys.executable, "-m", "pip", "--quiet"]
    build = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(top), "."]
    subprocess.run([*pip, *build], cwd=top / "tree", check=True)
    (wheel,) = top.glob("ddpify-*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(top / "env")], check=True)
    programs = top / "env" / "bin"
    into = ["--python", str(programs / "python"), "install"]
    pins = ["--constraint", str(ROOT / "tests" / "constraints.txt")]
    subprocess.run([*pip, *into, *pins, str(wheel)], check=True)
    return Installed(wheel, programs)


def test_the_wheel_holds_every_module(installed: Installed) -> None:
    expected = {
        f"{place}/{path.relative_to(ROOT / folder).as_posix()}"
        for folder, place in FOLDERS.items()
        for path in (ROOT / folder).rglob("*.py")
    }
    names = {name for name in zipfile.ZipFile(installed.wheel).namelist() if "/" in name}
    held = {name for name in names if ".dist-info/" not in name}
    data = {
        "ddpify/py.typed",
        *(f"ddpify/verify/report/{name}.jinja" for name in ("page.html", "page.js", "style.css")),
        *(f"ddpify/schemas/{name}.schema.json" for name in set(schemas.FILES.values())),
    }
    assert held == expected | data


def test_torch_is_not_there(installed: Installed, tmp_path: Path) -> None:
    done = installed.run("python", "-c", "import torch", cwd=tmp_path)
    assert "ModuleNotFoundError: No module named 'torch'" in done.stderr


def test_the_command_answers(installed: Installed, tmp_path: Path) -> None:
    done = installed.run("ddpify", "--version", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("ddpify, version ")


def test_the_command_migrates_a_project(installed: Installed, tmp_path: Path) -> None:
    project = tmp_path / "classification"
    shutil.copytree(ROOT / "fixtures" / "classification", project)
    shown = installed.run("ddpify", "diff", "main_classification.py", cwd=project)
    assert (shown.returncode, "+++ b/main_classification.py" in shown.stdout) == (1, True)
    entry = "main_classification.py"
    done = installed.run("ddpify", "migrate", "--inplace", entry, cwd=project)
    assert done.returncode == 0, done.stderr
    assert "torchrun --standalone" in done.stdout
    again = installed.run("ddpify", "diff", "main_classification.py", cwd=project)
    assert (again.returncode, again.stdout) == (0, ""), again.stderr
    assert installed.run("ddpify", "check", entry, cwd=project).returncode == 0


def test_verify_says_what_it_needs(installed: Installed, tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("print(1)\n")
    done = installed.run("ddpify", "verify", "main.py", cwd=tmp_path)
    assert done.returncode == 2
    assert re.fullmatch(r"ddpify: verify needs \w+: pip install 'ddpify\[verify\]'\n", done.stderr)
