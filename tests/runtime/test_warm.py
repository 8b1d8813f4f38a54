"""The Python that has imported torch already does what the usual one does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support import warm

pytestmark = [
    pytest.mark.training,
    pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it is the usual Python"),
]
PYTHONS = pytest.mark.parametrize("python", [sys.executable, ""], ids=["usual", "warm"])
SAYS = "import os, sys; print(sys.argv, os.getcwd(), os.environ.get('TOLD'))"


def start(
    python: str, *words: str, cwd: Path | None = None, told: dict[str, str] | None = None
) -> subprocess.Popen[str]:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONHASHSEED"}
    environment = {**kept, "OMP_NUM_THREADS": "1", **(told or {})}
    pipe = subprocess.PIPE
    command = [python or warm.python(), *words]
    return subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, cwd=cwd, env=environment
    )


def done(
    python: str, *words: str, given: str = "", told: dict[str, str] | None = None
) -> tuple[int, str, str]:
    job = start(python, *words, told=told)
    out, err = job.communicate(given, timeout=60)
    return job.returncode, out, err


@PYTHONS
@pytest.mark.parametrize(
    ("program", "code", "text"),
    [
        ("pass", 0, ""),
        ("raise SystemExit(7)", 7, ""),
        ("raise SystemExit('no data')", 1, "no data\n"),
        ("import os; os._exit(5)", 5, ""),
        ("import os, signal; os.kill(os.getpid(), signal.SIGABRT)", -signal.SIGABRT, ""),
    ],
)
def test_it_ends_as_the_program_does(python: str, program: str, code: int, text: str) -> None:
    assert done(python, "-c", program) == (code, "", text)


@PYTHONS
def test_what_is_raised_is_told_from_the_program_on(python: str, tmp_path: Path) -> None:
    program = tmp_path / "fails.py"
    program.write_text(
        "print('begun')\n\n\ndef fail():\n    raise ValueError('lost')\n\n\nfail()\n"
    )
    code, out, err = done(python, str(program))
    lines = [line.strip() for line in err.splitlines() if line.strip("~^ ")]
    assert (code, out) == (1, "begun\n")
    assert lines[:2] == [
        "Traceback (most recent call last):",
        f'File "{program}", line 8, in <module>',
    ]
    assert lines[-1] == "ValueError: lost"


@PYTHONS
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGKILL])
def test_a_signal_ends_it(python: str, number: signal.Signals) -> None:
    if signal.getsignal(number) is signal.SIG_IGN:
        pytest.skip("whoever started the tests, in the background, had it ignored")
    job = start(python, "-u", "-c", "import time; print('on'); time.sleep(60)")
    assert job.stdout is not None
    assert job.stdout.readline() == "on\n"
    job.send_signal(number)
    assert job.wait(timeout=20) == -number
    job.communicate()


def test_what_it_started_ends_with_a_killed_client(tmp_path: Path) -> None:
    sleeps = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    program = f"import subprocess as s, sys; s.run([sys.executable, '-c', {sleeps!r}])"
    job = start(
        "", "-c", f"import subprocess as s, sys; s.run([sys.executable, '-c', {program!r}])"
    )
    assert job.stdout is not None
    pid = int(job.stdout.readline())
    job.kill()
    job.communicate()
    for _ in range(200):
        if is_running(pid):
            time.sleep(0.02)
    assert not is_running(pid)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@PYTHONS
def test_files_commands_and_modules_are_told_what_they_are_given(
    python: str, tmp_path: Path
) -> None:
    folder = tmp_path / "a folder's"
    folder.mkdir()
    (folder / "own.py").write_text("NAME = 'own'\n")
    program = f"{SAYS}\nimport own; print(own.NAME, __name__, __file__)\n"
    (folder / "says.py").write_text(program)
    ends = f"{folder} here\nown __main__ {folder / 'says.py'}\n"
    for words, name in ((["says.py"], "says.py"), (["-m", "says"], str(folder / "says.py"))):
        job = start(python, *words, "a b", "--n=1", cwd=folder, told={"TOLD": "here"})
        out, err = job.communicate(timeout=60)
        assert (out, err) == (f"{[name, 'a b', '--n=1']} {ends}", "")
    job = start(python, "-c", SAYS, "*", cwd=folder, told={"TOLD": "here"})
    assert job.communicate(timeout=60) == (f"['-c', '*'] {folder} here\n", "")


@PYTHONS
def test_it_reads_and_writes_where_its_caller_does(python: str) -> None:
    program = "import sys; print(input() * 2); print(sys.stdin.read(), file=sys.stderr)"
    assert done(python, "-c", program, given="ab\ncd") == (0, "abab\n", "cd\n")


def test_nothing_is_drawn_alike() -> None:
    draws = "import random, numpy, torch; print(random.random(), numpy.random.rand(), {})"
    one, other = (done("", "-c", draws.format("torch.rand(1).item()"))[1].split() for _ in "ab")
    assert len(one) == 3
    assert not {*one} & {*other}


def test_torch_is_there_but_where_hashes_are_told() -> None:
    program = "import sys; print('torch.distributed' in sys.modules, sys.executable)"
    assert done("", "-c", program)[1].split() == ["True", warm.python()]
    assert done("", "-c", program, told={"PYTHONHASHSEED": "3"})[1].split() == [
        "False",
        sys.executable,
    ]


def test_an_interpreter_of_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / ("a long name's " * 12)
    folder.mkdir()
    (folder / "usual").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (folder / "usual").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(folder / "usual"))
    python = str(warm.written(folder, "none"))
    assert done(python, "-c", "print('on')", told={"PYTHONHASHSEED": "3"}) == (0, "on\n", "")


def test_a_group_that_is_left_stays(tmp_path: Path) -> None:
    """So that nothing joins Gloo's threads with the GIL in hand, for which they may wait."""
    program = tmp_path / "main.py"
    program.write_text(f"""\
import weakref
import torch.distributed as dist

dist.init_process_group("gloo", init_method="file://{tmp_path}/meet", rank=0, world_size=1)
group = weakref.ref(dist.group.WORLD)
dist.destroy_process_group()
print(group() is not None)
""")
    assert done("", str(program))[:2] == (0, "True\n")
