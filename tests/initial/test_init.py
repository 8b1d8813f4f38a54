"""`ddpify init`: what it detects, asks and writes, and that it takes nothing from anybody."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
import yaml

from ddpify import cli
from ddpify.settings import Settings, load, tomllib
from tests.clusters.projects import RANKS, project
from tests.clusters.test_files import BATCH

SMI = "#!/bin/bash\nprintf 'GPU 0: H200 (UUID: a)\\nGPU 1: H200 (UUID: b)\\n'\n"


class Terminal(io.StringIO):
    """Somebody who types these lines."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of commands that are all there are; the project is the current folder."""
    commands = tmp_path / "bin"
    commands.mkdir()
    monkeypatch.setenv("PATH", str(commands))
    monkeypatch.delenv("SLURM_JOB_NUM_NODES", raising=False)
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(project(tmp_path / "project"))
    return commands


def install(machine: Path, name: str, text: str = "#!/bin/bash\n") -> None:
    """Put a command on PATH."""
    (machine / name).write_text(text.replace("/bin/bash", "/bin/sh"))
    (machine / name).chmod(0o755)


def test_it_writes_what_it_detects(machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On a machine with Slurm and two GPUs, in a git project."""
    Path(".git").mkdir()
    install(machine, "sbatch")
    install(machine, "nvidia-smi", SMI)
    assert cli.main(["init", "--yes"]) == 0
    told = capsys.readouterr()
    assert told.err.splitlines() == [
        "Trains: main.py",
        "Seen: slurm: sbatch is installed here",
        "Seen: 2 GPUs in this machine",
    ]
    assert told.out.splitlines() == [
        "Wrote 3 files:",
        "  pyproject.toml",
        "  run_1_node.sbatch",
        "  .pre-commit-config.yaml",
        "sbatch run_1_node.sbatch starts it, once it is migrated",
        "Next: ddpify diff main.py",
    ]
    assert load(Path("main.py"), {}) == Settings(launcher="slurm", nodes=1, gpus_per_node=2)
    (hook,) = yaml.safe_load(Path(".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    assert hook["entry"] == "ddpify check --force-exclude"


def test_what_is_written_is_what_migrate_would_write(
    machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(machine, "kubectl")
    assert cli.main(["init", "--yes", "--nodes", "3"]) == 0
    first = Path("run_3_nodes.yaml").read_bytes()
    capsys.readouterr()
    assert cli.main(["migrate", "main.py", "--inplace", "--force"]) == 0
    assert "run_3_nodes.yaml" not in capsys.readouterr().out.partition("Run it")[0]
    assert Path("run_3_nodes.yaml").read_bytes() == first


def test_the_projects_own_batch_script_says_more_than_the_machine(machine: Path) -> None:
    Path("job.sh").write_text(BATCH.replace("--nodes=1", "--nodes=4"))
    install(machine, "kubectl")
    install(machine, "nvidia-smi", SMI)
    assert cli.main(["init", "--yes"]) == 0
    assert load(Path("main.py"), {}) == Settings(launcher="slurm", nodes=4, gpus_per_node=4)


def test_without_a_scheduler_there_is_no_start_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["init", "--yes"]) == 0
    assert load(Path("main.py"), {}) == Settings()
    assert "Wrote 1 file:\n  pyproject.toml\nNext:" in capsys.readouterr().out


def test_a_terminal_is_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is answered is taken, an empty line takes the default; the files are shown first."""
    monkeypatch.setattr("sys.stdin", Terminal("torchrun\n2\n4\ny\n\n"))
    assert cli.main(["init"]) == 0
    told = capsys.readouterr()
    assert "Several nodes, by (none, torchrun, slurm, torchx, kubernetes) [none]: " in told.err
    assert "+++ b/run_2_nodes.sh\n" in told.out
    assert load(Path("main.py"), {}) == Settings(launcher="torchrun", nodes=2, gpus_per_node=4)
    assert Path(".pre-commit-config.yaml").exists()


def test_who_says_no_at_the_end_has_nothing_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(os.listdir())
    monkeypatch.setattr("sys.stdin", Terminal("\nn\nn\n"))
    assert cli.main(["init"]) == 0
    assert capsys.readouterr().out.endswith("Nothing was written.\n")
    assert sorted(os.listdir()) == before


def test_of_several_scripts_those_that_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("other.py").write_text(Path("main.py").read_text())
    monkeypatch.setattr("sys.stdin", Terminal("other.py\nslurm\n\n\n\n\n"))
    assert cli.main(["init"]) == 0
    assert "main.py other.py" not in Path("run_1_node.sbatch").read_text()
    assert "# Starts other.py on 1 node with 8 GPUs each" in Path("run_1_node.sbatch").read_text()


def test_without_a_terminal_it_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert cli.main(["init"]) == 2
    assert capsys.readouterr().err == (
        "ddpify: no terminal to ask on: --yes takes what is detected, --dry-run shows what that "
        "is.\n"
    )


def test_a_dry_run_writes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(os.listdir())
    assert cli.main(["init", "--dry-run", "--launcher", "torchrun", "--nodes", "2"]) == 1
    assert "+[tool.ddpify]\n" in capsys.readouterr().out
    assert sorted(os.listdir()) == before


OWN = '# mine\n[project]\nname = "x"  # a name\n\n\n[tool.black]\nline-length = 90'


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(OWN, id="no newline at its end"),
        pytest.param(f"{OWN}\n", id="a newline"),
        pytest.param(f"{OWN}\n".replace("\n", "\r\n"), id="Windows"),
        pytest.param("", id="empty"),
    ],
)
def test_the_text_of_a_pyproject_stays(text: str) -> None:
    file = Path("pyproject.toml")
    file.write_bytes(text.encode())
    assert cli.main(["init", "--yes", "--no-pre-commit"]) == 0
    after = file.read_bytes().decode()
    assert after.startswith(text)
    assert ("\r\n" in text) is ("\r\n" in after)
    assert after.count("\n") == after.count("\r\n") or "\r" not in after
    added = tomllib.loads(after)["tool"].pop("ddpify")
    assert added == {"strategy": "ddp", "batch-size": "global"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(
            '[tool.ddpify]\nstrategy = "fsdp"\nfsdp-bf16 = true\n',
            'has [tool.ddpify] already, with strategy = "fsdp", fsdp-bf16 = true; change it there',
            id="a table",
        ),
        pytest.param("tool = { black = {} }\n", "nothing can be added", id="an inline table"),
        pytest.param("[tool\n", "cannot be read", id="no TOML"),
        pytest.param("[tool]\nddpify = 3\n", "must be a table", id="no table"),
    ],
)
def test_what_cannot_be_added_to_is_refused(
    text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line, and nothing is written."""
    Path("pyproject.toml").write_text(text)
    before = sorted(os.listdir())
    assert cli.main(["init", "--yes", "--pre-commit", "--launcher", "slurm"]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("ddpify: ")
    assert said in error
    assert (sorted(os.listdir()), Path("pyproject.toml").read_text()) == (before, text)


def test_a_pyproject_that_is_a_folder_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    Path("pyproject.toml").mkdir()
    assert cli.main(["init", "--yes"]) == 2
    assert "pyproject.toml: cannot be read (Is a directory)" in capsys.readouterr().err


def test_hooks_that_are_there_stay(capsys: pytest.CaptureFixture[str]) -> None:
    own = "repos:\n  - repo: local\n    hooks: []\n"
    Path(".pre-commit-config.yaml").write_text(own)
    assert cli.main(["init", "--yes", "--pre-commit"]) == 0
    assert "stays as it is; paste below its `repos:`\n\n  - repo: local" in capsys.readouterr().out
    assert Path(".pre-commit-config.yaml").read_text() == own


def test_a_start_file_of_the_users_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    Path("run_2_nodes.sh").write_text("echo mine\n")
    assert cli.main(["init", "--yes", "--launcher", "torchrun", "--nodes", "2"]) == 2
    assert "run_2_nodes.sh: was not written by ddpify" in capsys.readouterr().err
    assert not Path("pyproject.toml").exists()


def test_a_folder_without_a_program_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    Path("main.py").unlink()
    assert cli.main(["init", "--yes"]) == 2
    assert capsys.readouterr().err == "ddpify: .: holds no Python scripts\n"


def test_a_program_that_is_distributed_is_checked_next(capsys: pytest.CaptureFixture[str]) -> None:
    Path("main.py").write_text(RANKS)
    assert cli.main(["init", "main.py", "--yes"]) == 0
    assert capsys.readouterr().out.endswith("Next: ddpify check\n")
