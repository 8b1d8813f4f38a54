"""The copy of the helpers in a project: added, reused, renewed, and never overwritten by force."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ddpify import cli, vendor
from ddpify.names import METRICS_NAMES, RUNTIME_NAMES
from ddpify.project import Project
from ddpify.seal import is_sealed, seal
from ddpify.settings import Settings
from tests.projects import put_fixture

# What 0.1 wrote: one file, sealed by its text, in which begin_epoch is still called set_epoch.
OLD_BODY = '''"""The helpers."""
import os


def _launched():
    return "RANK" in os.environ


def set_epoch(loader, epoch):
    """Tell it."""


def reduce_sum(*values):
    return values[0]
'''


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return put_fixture("classification", tmp_path / "project").parent


def migrate(project: Path) -> int:
    return cli.main(["migrate", str(project / "main_classification.py"), "--inplace"])


def old() -> str:
    return (
        f"# ddpify runtime 0.1.0 {hashlib.sha256(OLD_BODY.encode()).hexdigest()[:12]}\n{OLD_BODY}"
    )


def test_a_copy_of_the_right_version_is_reused(project: Path) -> None:
    files = [project / "ddp_utils.py", project / "ddp_metrics.py"]
    for file, text in zip(files, (vendor.core_text(), vendor.metrics_text()), strict=True):
        file.write_text(text)
    before = [file.stat().st_mtime_ns for file in files]
    assert migrate(project) == cli.CLEAN
    assert [file.stat().st_mtime_ns for file in files] == before


def test_a_project_gets_what_it_calls(project: Path) -> None:
    assert migrate(project) == cli.CLEAN
    core, metrics = (project / f"ddp_{name}.py" for name in ("utils", "metrics"))
    assert "def begin_epoch(" in core.read_text()
    assert "class NullWriter" not in core.read_text()
    assert "def reduce_meter(" in metrics.read_text()
    assert "def gather_samples(" not in metrics.read_text()
    assert "# ---- " in core.read_text()
    assert "# ---- " not in metrics.read_text(), "a single section needs no heading"
    assert all(is_sealed(file.read_text()) for file in (core, metrics))


def test_the_second_file_is_there_only_where_an_edit_imports_from_it(project: Path) -> None:
    used = {"is_main_process", "wrap_model"}
    found = vendor.finding(("ddp_utils", "ddp_utils.py"), project, used)
    assert found is not None
    assert [edit.site.path for edit in found.fix] == ["ddp_utils.py"]
    found = vendor.finding(("core.ddp_utils", "core/ddp_utils.py"), project, {"reduce_sum"})
    assert found is not None
    texts = {edit.site.path: edit.code for edit in found.fix}
    assert set(texts) == {"core/ddp_utils.py", "core/ddp_metrics.py"}
    assert "from .ddp_utils import gather_objects" in texts["core/ddp_metrics.py"]


def test_an_older_copy_is_renewed_and_what_was_migrated_with_it_still_imports(
    project: Path,
) -> None:
    """Also the names that have moved to the second file since, and the one that was renamed."""
    (project / "ddp_utils.py").write_text(old())
    (project / "other.py").write_text("from ddp_utils import reduce_sum, set_epoch\n")
    assert migrate(project) == cli.CLEAN
    renewed = (project / "ddp_utils.py").read_text()
    assert is_sealed(renewed)
    assert "def begin_epoch(" in renewed
    run = subprocess.run(
        [sys.executable, "-c", "import other; print(other.reduce_sum(2), other.set_epoch)"],
        cwd=project,
        capture_output=True,
        text=True,
    )
    assert run.stdout.startswith("2 <function begin_epoch"), run.stderr


def test_an_older_copy_is_renewed_where_nothing_else_is_to_do(project: Path) -> None:
    assert migrate(project) == cli.CLEAN
    copy = project / "ddp_utils.py"
    newest = copy.read_text()
    body = newest.partition("\n")[2] + "\n\nADDED_LONG_AGO = 1\n"
    copy.write_text(f"# ddpify runtime 0.0.1 {seal(body)}\n{body}")
    found = vendor.finding(("ddp_utils", "ddp_utils.py"), project, ())
    assert found is not None
    assert [seal(edit.code) for edit in found.fix] == [seal(newest)]


def test_a_copy_of_a_later_version_is_left_alone(project: Path) -> None:
    body = vendor.core_text().partition("\n")[2] + "\n\nOF_TOMORROW = 1\n"
    (project / "ddp_utils.py").write_text(f"# ddpify runtime 99.0.0 {seal(body)}\n{body}")
    assert vendor.finding(("ddp_utils", "ddp_utils.py"), project, {"unwrap"}) is None


def test_an_older_copy_that_was_changed_by_hand_is_refused(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = old() + "\n# mine\n"  # an old seal is of the text
    (project / "ddp_utils.py").write_text(changed)
    assert migrate(project) == cli.FAILED
    said = capsys.readouterr().err
    assert "ddp_utils.py:1: DDP001 the copy of the helpers is of another version" in said
    assert "begin_epoch" in said
    assert (project / "ddp_utils.py").read_text() == changed


def test_a_module_of_the_users_own_that_has_the_second_files_name_is_not_touched(
    project: Path,
) -> None:
    (project / "ddp_metrics.py").write_text("MINE = 1\n")
    assert migrate(project) == cli.CLEAN
    assert (project / "ddp_metrics.py").read_text() == "MINE = 1\n"
    assert (project / "ddp_metrics_ddpify.py").exists()


SORT = "ruff check -q --fix --isolated --select I".split()
LAYOUTS = [
    pytest.param(["black", "-q", "-l", "60", "-C", "-S"], id="black"),
    pytest.param(["ruff", "format", "-q", "--line-length", "80"], id="ruff"),
    pytest.param(
        [*SORT, "--config", "lint.isort.force-sort-within-sections=true"],
        id="isort",
    ),
]


@pytest.mark.parametrize("command", LAYOUTS)
def test_formatting_does_not_break_the_seal(command: list[str], tmp_path: Path) -> None:
    file = tmp_path / "ddp_utils.py"
    file.write_text(vendor.core_text())
    subprocess.run([sys.executable, "-m", *command, str(file)], check=True)
    assert file.read_text() != vendor.core_text()
    assert is_sealed(file.read_text())


EDITS = [
    pytest.param("% 2**31", "% 2**30", id="a-number"),
    pytest.param("rank 0's ``value``", "rank 1's ``value``", id="words-of-a-docstring"),
    pytest.param("import gc\n", "import gc as g\n", id="an-import"),
    pytest.param("is_main_process()", "not is_main_process()", id="a-condition"),
]


@pytest.mark.parametrize(("old_text", "new_text"), EDITS)
def test_an_edit_breaks_the_seal(old_text: str, new_text: str) -> None:
    text = vendor.core_text()
    changed = re.sub(re.escape(old_text), new_text, text, count=1, flags=re.IGNORECASE)
    assert changed != text
    assert is_sealed(text)
    assert not is_sealed(changed)


@pytest.mark.parametrize("name", sorted(RUNTIME_NAMES))
def test_what_one_helper_needs_is_complete_and_clean(name: str, tmp_path: Path) -> None:
    """No name is left undefined, no import unused, and black has nothing to say."""
    metrics = name in METRICS_NAMES
    text = vendor.metrics_text(wanted={name}) if metrics else vendor.core_text({name})
    file = tmp_path / "copy.py"
    file.write_text(text)
    rules = ["--isolated", "--select", "F", "--line-length", "100"]
    for command in (["ruff", "check", *rules], ["black", "--check", "-l", "100"]):
        run = subprocess.run([sys.executable, "-m", *command, str(file)], capture_output=True)
        assert run.returncode == 0, run.stdout.decode() + run.stderr.decode()


PLACES = {
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
    "before the folder above is looked into": (
        "runs/main.py",
        {
            "runs/main.py": "import large, sys\nsys.path.append('..')\nimport sam\n",
            "runs/large.py": "",
            "sam.py": "",
        },
        "ddp_utils",
        "runs/ddp_utils.py",
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


@pytest.mark.parametrize("layout", PLACES)
def test_every_file_of_a_program_finds_the_copy_by_one_name(layout: str, tmp_path: Path) -> None:
    entry, files, name, path = PLACES[layout]
    (tmp_path / "setup.cfg").write_text("")
    for file, text in files.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
    project = Project(tmp_path, tmp_path / entry)
    for file in files:
        project.read(tmp_path / file)
    place = vendor.place(project, Settings())
    assert place == (name, path)
    (tmp_path / place[1]).write_text(vendor.core_text())
    assert vendor.place(project, Settings()) == place
