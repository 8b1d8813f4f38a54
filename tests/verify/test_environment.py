"""What a program finds in its environment is as if the user had started it, in the copy."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ddpify.verify.environment import child_environment, moved

HOME = Path("/home/user/project")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    (tmp_path / "main.py").touch()
    return tmp_path


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTHONPATH", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    "name",
    "RANK LOCAL_RANK GROUP_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT"
    " TORCHELASTIC_RUN_ID PET_NPROC_PER_NODE SLURM_PROCID SLURM_NTASKS"
    " OMPI_COMM_WORLD_RANK".split(),
)
def test_an_outer_launcher_is_forgotten(
    copy: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "1")
    monkeypatch.setenv("MY_RANK", "7")

    environment = child_environment({}, copy, HOME, 2)

    assert name not in environment
    assert environment["MY_RANK"] == "7"


def test_threads_are_shared_among_the_ranks(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)

    counts = [child_environment({}, copy, HOME, n)["OMP_NUM_THREADS"] for n in (1, 2, 3, 16)]

    assert counts == ["8", "4", "2", "1"]


def test_the_users_own_settings_win(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")

    environment = child_environment({"CUDA_VISIBLE_DEVICES": ""}, copy, HOME, 2)

    assert environment["OMP_NUM_THREADS"] == "3"
    assert environment["CUDA_VISIBLE_DEVICES"] == ""


def test_an_editable_install_does_not_lead_back_to_the_project(copy: Path) -> None:
    (copy / "pyproject.toml").touch()
    (copy / "src").mkdir()

    path = child_environment({}, copy, HOME, 2)["PYTHONPATH"]

    assert path.split(os.pathsep) == [str(copy), str(copy / "src")]


def test_a_project_that_is_not_installed_is_found_as_python_finds_it(copy: Path) -> None:
    assert "PYTHONPATH" not in child_environment({}, copy, HOME, 2)


@pytest.mark.parametrize("module", ["queue.py", "code/__init__.py"])
def test_no_module_of_the_project_hides_the_librarys(copy: Path, module: str) -> None:
    (copy / "setup.py").touch()
    (copy / module).parent.mkdir(exist_ok=True)
    (copy / module).touch()

    assert "PYTHONPATH" not in child_environment({}, copy, HOME, 2)


def test_the_users_python_path_leads_into_the_copy(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{HOME}/lib:/opt/lib:.")

    assert child_environment({}, copy, HOME, 2)["PYTHONPATH"] == f"{copy}/lib:/opt/lib:."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/home/user/project", "/copy"),
        ("/home/user/project/runs", "/copy/runs"),
        ("--out=/home/user/project/runs", "--out=/copy/runs"),
        ("a=/home/user/project,b", "a=/copy,b"),
        ("/home/user/project2/runs", "/home/user/project2/runs"),
        ("/mnt/home/user/project/runs", "/mnt/home/user/project/runs"),
        ("runs", "runs"),
    ],
)
def test_paths_into_the_project_lead_into_the_copy(text: str, expected: str) -> None:
    assert moved(text, Path("/copy"), HOME) == expected
    assert moved(text, Path("/copy"), None) == text
