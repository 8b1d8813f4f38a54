"""Rewritten scripts start the same program with the same arguments, folder and GPUs.

`python`, `torchrun` and the wrappers are stubs on PATH that write down how they were called.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.launchers.cases import REWRITTEN, Case

SHELL = shutil.which("bash") or "bash"  # where it is missing the tests fail
RECORD = """#!/bin/bash
record=$(mktemp "$RECORDS/XXXXXXXX")
printf '%s\\0' "$PWD" "${CUDA_VISIBLE_DEVICES-unset}" "${0##*/}" "$@" > "$record"
"""
PASS_ON = """#!/bin/bash
while [[ $1 != python* && $1 != torchrun ]]; do shift; done
"$@"
"""
STUBS = {
    **dict.fromkeys(("python", "python3", "python3.11", "torchrun"), RECORD),
    **dict.fromkeys(("uv", "conda", "srun"), PASS_ON),
    "scontrol": '#!/bin/bash\n[ "$*" = "show hostnames n[1-2]" ] && printf "n1\\nn2\\n"\n',
}
SLURM = {"SLURM_JOB_ID": "81234", "SLURM_NNODES": "2", "SLURM_JOB_NODELIST": "n[1-2]"}
MEETING = [
    "--nnodes=2",
    "--rdzv_id=81234",
    "--rdzv_backend=c10d",
    "--rdzv_endpoint=n1:11234",  # 10000 + 81234 % 20000
]


@pytest.fixture
def stubs(tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in STUBS.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder


def calls(case: Case, text: str, stubs: Path, arguments: tuple[str, ...] = ()) -> list[list[str]]:
    """How the stubs were called, sorted, because launches may run side by side."""
    project = stubs.parent / "project"
    records = stubs.parent / "records"
    for folder in (project, records):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
    script = project / case.path
    script.parent.mkdir(exist_ok=True)
    script.write_text(text, newline="")
    script.chmod(0o755)
    environment = {"PATH": f"{stubs}:{os.environ['PATH']}", "HOME": "/", "RECORDS": str(records)}
    environment |= SLURM | {"SLURM_GPUS_ON_NODE": "4"}
    result = subprocess.run(
        [script, *arguments], cwd=project, env=environment, capture_output=True, text=True
    )
    assert not re.search("not found|unbound|syntax", result.stderr), result.stderr
    (records / "end").write_text(f"exit\0{result.returncode}\0")
    return sorted(r.read_bytes().decode().split("\0")[:-1] for r in records.iterdir())


def program(call: list[str]) -> list[str]:
    """Folder, GPUs and program with its arguments: what must not change."""
    if call[0] == "exit":
        return call
    folder, gpus, name, *words = call
    if "torch.distributed.run" in words:
        words = words[words.index("torch.distributed.run") + 1 :]
        name = "torchrun"
    if name == "torchrun":
        nodes = [word for word in words if word.startswith(("--nnodes", "--rdzv"))]
        assert nodes == MEETING or words[0] == "--standalone"
        words = words[2 if not nodes else 5 :]
        if words[0] == "--no-python":
            words = words[2:]
    while words[0] == "-u":
        words = words[1:]
    module = re.fullmatch(r"-u?m(\S*)", words[0])
    if module:
        words = ["-m", *filter(None, module.groups()), *words[1:]]
    return [folder, gpus, *words]


def processes(call: list[str]) -> str:
    """The process count torchrun was given."""
    (option,) = (word for word in call if word.startswith("--nproc_per_node="))
    return option.partition("=")[2]


@pytest.mark.parametrize(
    "case", [case for case in REWRITTEN if case.runs], ids=lambda case: case.id
)
def test_rewritten_script_runs_the_same_program(case: Case, stubs: Path) -> None:
    arguments = ("7", "a b") if "@" in case.before else ()
    before = calls(case, case.before, stubs, arguments)
    after = calls(case, case.after, stubs, arguments)
    assert len(before) > 1
    assert sorted(map(program, after)) == sorted(map(program, before))


@pytest.mark.parametrize(
    "case", [case for case in REWRITTEN if case.runs], ids=lambda case: case.id
)
def test_there_is_one_process_per_listed_gpu(case: Case, stubs: Path) -> None:
    for call in calls(case, case.after, stubs):
        gpus = call[1]
        if any(word.startswith("--nproc_per_node=") for word in call):
            listed = 1 if gpus in ("", "-1") else len(gpus.split(","))
            written = re.findall(r"gpu\S*(?:=|:)(\d+)", case.before)
            assert processes(call) in ("gpu", str(listed), *written)


def test_the_count_follows_what_the_user_gives(stubs: Path) -> None:
    case = next(case for case in REWRITTEN if case.id == "list from the user")
    call = calls(case, case.after, stubs, ("4,5,6,7",))[0]
    assert processes(call) == "4"
