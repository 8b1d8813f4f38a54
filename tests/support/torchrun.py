"""Run a script under torchrun with a limit, and hand back what each rank printed.

The limit kills every process of the job, since a distributed bug is most often a hang; torch's
own exit race is repeated, so that it does not read as a verdict on the script. Gloo's worker lets
go of the last collective's tensors after it has reported it; where that comes when the interpreter
ends, taking the GIL ends the thread, and C++ the process (seen in gdb: ~AsyncAllgatherWork). A
program with FSDP2 that ends with a collective aborted so in 7 of 15 runs, and three in a row in CI.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support import warm

EXIT_RACE = "terminate called without an active exception"
ATTEMPTS = 8


@dataclass(frozen=True)
class Completed:
    """A job that ended: the launcher's exit status, and what each rank wrote.

    ``stdout`` and ``stderr`` hold the launcher's text and then every rank's, in rank order.
    """

    returncode: int
    stdout: str
    stderr: str
    rank_stdout: tuple[str, ...]
    rank_stderr: tuple[str, ...]


class JobTimeout(Exception):
    """The job was still running at its limit and has been killed; the message has its output."""


def torchrun(
    script_path: Path | str,
    nproc: int,
    *args: str,
    cwd: Path | str,
    env: Mapping[str, str] | None = None,
    timeout: float = 90,
    before_attempt: Callable[[], None] = lambda: None,
    python: str = "",
) -> Completed:
    """Run ``script_path`` on ``nproc`` ranks of this machine. Raises JobTimeout.

    ``python``: what is started, by default one that has imported torch already.

    ``before_attempt`` undoes what an attempt that will be repeated has written.
    """
    for _ in range(ATTEMPTS):
        before_attempt()
        done = _run_once(python or warm.python(), script_path, nproc, args, cwd, env, timeout)
        if done.returncode == 0 or EXIT_RACE not in done.stderr:
            break
    return done


def _run_once(
    python: str,
    script_path: Path | str,
    nproc: int,
    args: tuple[str, ...],
    cwd: Path | str,
    env: Mapping[str, str] | None,
    timeout: float,
) -> Completed:
    with tempfile.TemporaryDirectory(prefix="torchrun-") as logs:
        job = start([*_launcher(python, nproc, logs), str(script_path), *args], cwd, env)
        try:
            out, err = job.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            kill(job)
            done = _collect(job.returncode, "", "", Path(logs), nproc)
            raise JobTimeout(
                f"{script_path} on {nproc} ranks was still running after {timeout} s\n"
                f"{done.stdout}\n{done.stderr}"
            ) from None
        return _collect(job.returncode, out, err, Path(logs), nproc)


def start(
    command: Sequence[str], cwd: Path | str, env: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """Any command, in a session of its own; `kill` ends it with everything it has started."""
    return subprocess.Popen(
        command,
        cwd=cwd,
        env={**_environment(), **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


def finish(job: subprocess.Popen[str], timeout: float = 120) -> tuple[str, str]:
    """Its output, once it has ended by itself. Raises JobTimeout."""
    try:
        return job.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        out, err = kill(job)
        raise JobTimeout(f"{job.args} ran for {timeout} s\n{out}\n{err}") from None


def _launcher(python: str, nproc: int, logs: str) -> list[str]:
    module = [python, "-m", "torch.distributed.run", "--standalone"]
    return [*module, f"--nproc_per_node={nproc}", f"--log-dir={logs}", "--redirects=3"]


def _environment() -> dict[str, str]:
    outer = {k: v for k, v in os.environ.items() if k not in ("RANK", "LOCAL_RANK", "WORLD_SIZE")}
    return {**outer, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


def _collect(returncode: int, out: str, err: str, logs: Path, nproc: int) -> Completed:
    ranks = [str(rank) for rank in range(nproc)]
    outs = tuple(_log(logs, rank, "stdout.log") for rank in ranks)
    errs = tuple(_log(logs, rank, "stderr.log") for rank in ranks)
    return Completed(returncode, "".join((out, *outs)), "".join((err, *errs)), outs, errs)


def _log(logs: Path, rank: str, name: str) -> str:
    return "".join(p.read_text(errors="replace") for p in sorted(logs.glob(f"*/*/{rank}/{name}")))


def kill(job: subprocess.Popen[str]) -> tuple[str, str]:
    """Kill the launcher and the ranks, which lead sessions of their own; what they printed."""
    for pid in descendants(job.pid) | {job.pid}:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue  # it ended between the look and the kill
    return job.communicate()


def descendants(root: int) -> set[int]:
    """The processes that ``root`` and its children have started, still there."""
    table = subprocess.run(
        ["ps", "-e", "-o", "pid=,ppid="], capture_output=True, text=True, check=True
    ).stdout
    parents = {int(pid): int(parent) for pid, parent in map(str.split, table.splitlines())}
    found: set[int] = set()
    while more := {p for p, parent in parents.items() if parent in found | {root}} - found:
        found |= more
    return found
