"""Programs run for real: what they leave is read, what hangs says where, and nothing stays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from ddpify.verify.launch import EXIT_RACE, ProcessLaunch, run_ranks, run_single
from ddpify.verify.processes import MARK
from ddpify.verify.read import Progress
from ddpify.verify.recording import Job

pytestmark = pytest.mark.training

TRAIN = """\
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(2, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    loss = model(torch.ones(4, 2)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("rank", dist.get_rank(), "done")
dist.destroy_process_group()
"""

# Rank 1 never comes.
WAIT = """\
import time
import torch
import torch.distributed as dist

def average(value):
    dist.all_reduce(value)
    return value / 2

dist.init_process_group("gloo")
dist.barrier()
if dist.get_rank() == 0:
    average(torch.ones(1))
while True:
    time.sleep(1)
"""

# With processes that have no parent any more or forget their environment, and loaders' workers.
ORPHANS = """\
import os, subprocess, time
from pathlib import Path
import torch
import torch.utils.data

class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        time.sleep(600)

bare = subprocess.Popen(["sleep", "600"], env={})
subprocess.run("nohup sleep 600 >/dev/null 2>&1 &", shell=True, start_new_session=True)
(Path(__file__).parent / f"rank{os.environ['RANK']}").write_text(str(bare.pid))
next(iter(torch.utils.data.DataLoader(Numbers(), num_workers=1)))
"""

INTERRUPTED = """\
import sys
from pathlib import Path
from ddpify.verify.launch import ProcessLaunch, run_ranks

folder = Path(sys.argv[1])
launch = ProcessLaunch(sys.executable, folder, folder, Path("main.py"), (), folder.parent / "out")
try:
    run_ranks(launch, 2)
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "copy").mkdir()
    return (tmp_path / "copy").resolve()


def launch(folder: Path, code: str, *arguments: str, **options: Any) -> ProcessLaunch:
    (folder / "main.py").write_text(code)
    given = {
        "python": sys.executable,
        "folder": folder,
        "cwd": folder,
        "script": Path("main.py"),
        "arguments": arguments,
        "out": folder.parent / "records" / "run",
        "timeout": 60.0,
    }
    return ProcessLaunch(**{**given, **options})


def marked(folder: Path) -> list[psutil.Process]:
    """The living processes of a launch that work in this folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if MARK in process.environ() and process.environ().get("DDPIFY_TEST_FOLDER") == str(
                folder
            ):
                found.append(process)
        except psutil.Error:
            continue
    return [process for process in found if lives(process)]


def lives(process: psutil.Process) -> bool:
    """A dead one stays in the table until its new parent looks at it."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_two_ranks_train(folder: Path) -> None:
    seen: list[Progress] = []

    job = run_ranks(launch(folder, TRAIN, "--epochs", "a b", on_progress=seen.append), 2)

    assert job.finished, job
    assert job.returncode == 0
    assert not job.hung
    assert [run.rank for run in job.runs] == [0, 1]
    assert [len(run.steps) for run in job.runs] == [3, 3]
    assert [run.stdout for run in job.runs] == ["rank 0 done\n", "rank 1 done\n"]
    assert job.command == "torchrun --standalone --nproc_per_node=2 main.py --epochs 'a b'"
    assert max(progress.steps for progress in seen) == 3
    assert not {path.name for path in folder.iterdir()} - {"main.py"}


LOOK = """\
import json, os, sys
names = ("RANK", "WORLD_SIZE", "OMP_NUM_THREADS", "ADDED")
environment = {name: os.environ.get(name) for name in names}
print(json.dumps([sys.path[0], sys.argv, sys.stdin.read(), environment]))
sys.stderr.write("50%\\r100%\\n")
sys.stderr.buffer.write(b"\\xff")
"""


def test_one_process_runs_as_if_started_by_hand(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    home = Path("/home/user/project")
    arguments = ("--out", f"{home}/runs")

    one = launch(folder, LOOK, *arguments, environment={"ADDED": "1"}, project=home)
    job = run_single(one, 2)

    assert job.finished, job
    environment = {"RANK": None, "WORLD_SIZE": None, "OMP_NUM_THREADS": "5", "ADDED": "1"}
    found = json.loads(job.runs[0].stdout)
    assert found == [str(folder), ["main.py", "--out", f"{folder}/runs"], "", environment]
    assert job.runs[0].stderr.endswith("50%\r100%\n\N{REPLACEMENT CHARACTER}")
    assert job.command == f"python main.py --out {home}/runs"
    assert job.folder == str(folder)


def test_ranks_that_wait_for_each_other_say_where(folder: Path) -> None:
    job = run_ranks(launch(folder, WAIT, timeout=5.0), 2)

    assert job.hung
    assert not job.finished
    waits, never_comes = job.runs
    assert waits.waiting == "all_reduce at main.py:6"
    assert never_comes.waiting == ""
    assert '  File "main.py", line 6, in average\n    dist.all_reduce(value)' in waits.stack
    assert '  File "main.py", line 12, in <module>\n    average(torch.ones(1))' in waits.stack
    assert waits.stack.index("line 12") < waits.stack.index("line 6")
    assert '  File "main.py", line 14, in <module>\n    time.sleep(1)' in never_comes.stack


def test_a_rank_that_goes_on_alone_without_progress_hangs(folder: Path) -> None:
    script = "import os, time\nwhile os.environ['RANK'] == '1':\n    time.sleep(1)\n"

    job = run_ranks(launch(folder, script, timeout=4.0), 2)

    assert job.hung
    assert [run.status for run in job.runs] == ["finished", "running"]
    assert job.runs[0].stack == ""
    assert "time.sleep(1)" in job.runs[1].stack


def test_what_prints_does_not_hang(folder: Path) -> None:
    script = "import time\nfor number in range(6):\n    time.sleep(1)\n    print(number)\n"

    job = run_single(launch(folder, script, timeout=5.0))

    assert not job.hung
    assert job.finished


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_leaves_no_process(folder: Path, number: signal.Signals) -> None:
    launch(folder, ORPHANS)
    job = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(folder)],
        env={**os.environ, "DDPIFY_TEST_FOLDER": str(folder)},
        stdout=subprocess.PIPE,
        text=True,
    )
    bare: list[psutil.Process] = []
    try:
        until(lambda: len(marked(folder)) >= 7)  # launcher, 2 ranks, 2 workers, 2 orphans
        notes = [folder / "rank0", folder / "rank1"]
        until(lambda: all(note.exists() and note.read_text() for note in notes))
        bare = [psutil.Process(int(note.read_text())) for note in notes]
        job.send_signal(number)
        out, _ = job.communicate(timeout=60)
        assert out == "interrupted\n"
        assert job.returncode == 0
        assert marked(folder) == []
        assert not any(lives(process) for process in bare)
    finally:
        for process in [*marked(folder), *filter(lives, bare), job]:
            process.kill()
        job.wait()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_what_a_finished_program_left_running_is_ended(folder: Path) -> None:
    script = (
        "import subprocess\n"
        "subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "print('done')\n"
    )

    job = run_single(launch(folder, script, environment={"DDPIFY_TEST_FOLDER": str(folder)}))

    assert job.runs[0].stdout == "done\n"
    assert marked(folder) == []


def race(folder: Path, failures: int, text: str) -> tuple[Job, int]:
    """A program that fails so often, with this text, and changes the copy before it does."""
    count = folder.parent / "count"
    script = (
        "import os, sys\n"
        f"with open({str(count)!r}, 'a') as file:\n    file.write('x')\n"
        "print(os.path.exists('made'), open('kept').read())\n"
        "open('made', 'w').close()\n"
        "open('kept', 'w').write('changed')\n"
        f"if os.path.getsize({str(count)!r}) <= {failures}:\n    sys.exit({text!r})\n"
    )
    (folder / "kept").write_text("kept")
    job = run_single(launch(folder, script))
    return job, len(count.read_text())


@pytest.mark.parametrize(
    ("failures", "text", "runs"),
    [(1, EXIT_RACE, 2), (2, EXIT_RACE, 3), (4, EXIT_RACE, 3), (1, "another", 1)],
)
def test_only_torchs_exit_race_is_repeated(
    folder: Path, failures: int, text: str, runs: int
) -> None:
    job, count = race(folder, failures, text)

    assert count == runs
    assert job.finished == (failures < runs)
    assert job.runs[0].stdout == "False kept\n"
    assert (job.runs[0].exit_code == 0) == (failures < runs)


def test_a_project_with_modules_named_as_the_librarys_is_launched(folder: Path) -> None:
    """They would stand in for torchrun's own, were the folder on its path."""
    (folder / "random.py").write_text("raise ImportError('not this one')\n")
    script = "print('trained')\n"
    (folder / "scripts").mkdir()
    (folder / "scripts" / "train.py").write_text(script)

    job = run_ranks(launch(folder, "", script=Path("scripts/train.py")), 1)

    assert job.runs[0].stdout == "trained\n", job
    assert job.command == "torchrun --standalone --nproc_per_node=1 scripts/train.py"


def test_programs_run_on_a_terminal(folder: Path) -> None:
    code = "import os, sys; print(os.popen('stty size').read().split(), repr(sys.stdin.read()))"
    assert run_single(launch(folder, code)).runs[0].stdout == "['24', '80'] ''\n"
