"""The copy of the helpers in a project: added, reused, renewed, and never overwritten by force."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from ddpify import cli, vendor
from ddpify.project import Project
from ddpify.settings import Settings
from tests.projects import put_fixture


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return put_fixture("classification", tmp_path / "project").parent


def test_a_copy_of_the_right_version_is_reused(project: Path) -> None:
    (project / "ddp_utils.py").write_text(vendor.text())
    before = (project / "ddp_utils.py").stat().st_mtime_ns
    assert cli.main(["migrate", str(project / "main_classification.py"), "--inplace"]) == cli.CLEAN
    assert (project / "ddp_utils.py").stat().st_mtime_ns == before


def test_an_older_copy_is_renewed(project: Path) -> None:
    (project / "ddp_utils.py").write_text(older())
    assert cli.main(["migrate", str(project / "main_classification.py"), "--inplace"]) == cli.CLEAN
    assert (project / "ddp_utils.py").read_text() == vendor.text()


def test_an_older_copy_that_was_changed_by_hand_is_refused(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "ddp_utils.py").write_text(older() + "\n# mine\n")
    assert cli.main(["migrate", str(project / "main_classification.py"), "--inplace"]) == cli.FAILED
    said = capsys.readouterr().err
    assert "ddp_utils.py:1: DDP001 the copy of the helpers is of another version" in said
    assert "it has no save_on_main" in said
    assert (project / "ddp_utils.py").read_text() == older() + "\n# mine\n"


def older() -> str:
    """A copy, as ddpify would have written it before it had `save_on_main`."""
    _, _, body = vendor.text().partition("\n")
    body = re.sub(r"^def save_on_main\(.*?(?=^class )", "", body, flags=re.MULTILINE | re.DOTALL)
    digest = hashlib.sha256(body.encode()).hexdigest()[:12]
    return f"# ddpify runtime 0.0.1 {digest}\n{body}"


LAYOUTS = {
    # entry, files and what they import, what all files call the copy, where it lies
    "beside the script": (
        "main.py",
        {"main.py": "import nets.large", "nets/large.py": ""},
        "ddp_utils",
        "ddp_utils.py",
    ),
    "a package from above": (
        "runs/main.py",
        {"runs/main.py": "from nets.large import Net", "nets/__init__.py": "", "nets/large.py": ""},
        "nets.ddp_utils",
        "nets/ddp_utils.py",
    ),
    "the package that the script lies in": (
        "nets/main.py",
        {"nets/main.py": "from nets.large import Net", "nets/__init__.py": "", "nets/large.py": ""},
        "nets.ddp_utils",
        "nets/ddp_utils.py",
    ),
    "two packages that must not import each other": (
        "runs/main.py",
        {
            "runs/main.py": "import nets\nfrom data import digits",
            "nets/__init__.py": "",
            "data/__init__.py": "digits = None",
        },
        "ddp_utils",
        "ddp_utils.py",
    ),
    "started with -m": (
        "nets/main.py",
        {"nets/main.py": "from .large import Net", "nets/__init__.py": "", "nets/large.py": ""},
        "nets.ddp_utils",
        "nets/ddp_utils.py",
    ),
    "its own modules by their bare names": (
        "nets/main.py",
        {"nets/main.py": "from large import Net", "nets/__init__.py": "", "nets/large.py": ""},
        "ddp_utils",
        "nets/ddp_utils.py",
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_file_of_a_program_finds_the_copy_by_one_name(layout: str, tmp_path: Path) -> None:
    entry, files, name, path = LAYOUTS[layout]
    (tmp_path / "setup.cfg").write_text("")
    for file, text in files.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
    project = Project(tmp_path, tmp_path / entry)
    for file in files:
        project.read(tmp_path / file)
    place = vendor.place(project, Settings())
    assert place == (name, path)
    (tmp_path / place[1]).write_text(vendor.text())
    assert vendor.place(project, Settings()) == place
