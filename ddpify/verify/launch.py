"""Starts a program under the observer, as one process or as ranks, and waits for its end.

A job that makes no progress is ended and says where each rank stands; one that is interrupted
leaves no process behind.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from ddpify.verify import processes
from ddpify.verify.environment import child_environment, moved
from ddpify.verify.read import Progress, load_run, progress
from ddpify.verify.recording import Job, RunRecord
from ddpify.verify.snapshot import restore, snapshot
from ddpify.verify.stacks import readable
from ddpify.verify.terminal import silent_terminal

OBSERVE: Final = Path(__file__).with_name("observe.py")
# A race in torch's own exit, seen in one of five correct jobs, and twice in a row: no verdict on
# the program.
EXIT_RACE: Final = "terminate called without an active exception"
ATTEMPTS: Final = 3
STARTING: Final = 120.0  # seconds: until the ranks' first word, however short the timeout
POLL: Final = 0.25
# `-m torch.distributed.run` would let the project's own modules stand in for the library's.
TORCHRUN: Final = (
    "import sys; sys.path = [p for p in sys.path if p];"
    " from torch.distributed.run import main; main()"
)


@dataclass(frozen=True)
class ProcessLaunch:
    """One program and where it runs; the folders are absolute and resolved.

    ``folder`` is the copied project, ``project`` what it is a copy of: paths into it, in
    arguments and PYTHONPATH, are led into the copy. ``script`` is relative to ``cwd``, or
    absolute. ``out`` gets the records, and is emptied first. ``observe`` are options of the
    observer. ``timeout`` is in seconds without any progress.
    """

    python: str
    folder: Path
    cwd: Path
    script: Path
    arguments: tuple[str, ...]
    out: Path
    observe: tuple[str, ...] = ()
    timeout: float = 300.0
    environment: Mapping[str, str] = field(default_factory=dict)
    on_progress: Callable[[Progress], None] = lambda _: None
    project: Path | None = None

    @property
    def typed(self) -> str:
        """The script as a user names it."""
        return os.path.relpath(self.cwd / self.script, self.cwd)

    @property
    def observed(self) -> list[str]:
        """observe.py and everything after it."""
        arguments = [moved(text, self.folder, self.project) for text in self.arguments]
        records = (f"--out={self.out}", f"--watch={self.folder}")
        return [str(OBSERVE), *records, *self.observe, "--", self.typed, *arguments]


def run_single(launch: ProcessLaunch, sharing: int = 1) -> Job:
    """``python script``; as many threads as each of ``sharing`` ranks has. Raises ScratchError.

    Interrupted, also by SIGTERM, it ends every process and raises KeyboardInterrupt.
    """
    return _run(launch, _Kind(1, sharing, torchrun=False))


def run_ranks(launch: ProcessLaunch, nproc: int, sharing: int = 0) -> Job:
    """The same under ``torchrun``, on ``nproc`` ranks of this machine."""
    return _run(launch, _Kind(nproc, sharing or nproc, torchrun=True))


@dataclass(frozen=True)
class _Kind:
    ranks: int
    sharing: int
    torchrun: bool

    def command(self, launch: ProcessLaunch) -> list[str]:
        if not self.torchrun:
            return [launch.python, *launch.observed]
        logs = [f"--log-dir={launch.out / 'logs'}", "--redirects=3"]
        return [launch.python, "-c", TORCHRUN, *self._options, *logs, *launch.observed]

    def typed(self, launch: ProcessLaunch) -> str:
        """What a user types for the same without observer."""
        start = ["torchrun", *self._options] if self.torchrun else ["python"]
        return shlex.join([*start, launch.typed, *launch.arguments])

    @property
    def _options(self) -> tuple[str, ...]:
        return ("--standalone", f"--nproc_per_node={self.ranks}")


@dataclass(frozen=True)
class _End:
    returncode: int
    seconds: float
    hung: bool


def _run(launch: ProcessLaunch, kind: _Kind) -> Job:
    """Once; and again from the same start, as long as torch itself failed at the exit."""
    launch.out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=launch.out.parent) as store, processes.interruptible():
        before = snapshot(launch.folder, Path(store))
        job = _attempt(launch, kind)
        for _ in range(1, ATTEMPTS):
            if not _raced(job):
                break
            restore(launch.folder, before)
            job = _attempt(launch, kind)
        return job


def _raced(job: Job) -> bool:
    texts = (job.launcher_output, *(run.stderr for run in job.runs))
    return job.returncode != 0 and not job.hung and any(EXIT_RACE in text for text in texts)


def _attempt(launch: ProcessLaunch, kind: _Kind) -> Job:
    shutil.rmtree(launch.out, ignore_errors=True)
    end = _supervised(launch, kind)
    return Job(
        runs=tuple(_read(launch, kind, rank, end) for rank in range(kind.ranks)),
        folder=str(launch.folder),
        command=kind.typed(launch),
        returncode=end.returncode,
        seconds=end.seconds,
        hung=end.hung,
        launcher_output=_text(launch.out / "logs" / "launcher.log"),
    )


def _supervised(launch: ProcessLaunch, kind: _Kind) -> _End:
    """No process outlives this, not even one whose start was interrupted."""
    mark = uuid.uuid4().hex
    process = None
    with silent_terminal() as stdin:
        try:
            process = _start(launch, kind, mark, stdin)
            return _wait(process, launch, kind)
        finally:
            processes.end(mark)
            if process is not None:
                process.wait()


def _start(launch: ProcessLaunch, kind: _Kind, mark: str, stdin: int) -> subprocess.Popen[bytes]:
    """In a session of its own: the terminal's Ctrl-C comes to us alone."""
    extra = {**launch.environment, processes.MARK: mark}
    with ExitStack() as files:
        out, err = (files.enter_context(path.open("ab")) for path in _logs(launch, kind))
        return subprocess.Popen(
            kind.command(launch),
            cwd=launch.cwd,
            env=child_environment(extra, launch.folder, launch.project, kind.sharing),
            stdin=stdin,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )


def _logs(launch: ProcessLaunch, kind: _Kind) -> tuple[Path, Path]:
    """For what the started process writes; torchrun redirects its ranks' to files alike."""
    logs = launch.out / "logs"
    folder = logs if kind.torchrun else logs / "0"
    folder.mkdir(parents=True)
    if kind.torchrun:
        return folder / "launcher.log", folder / "launcher.log"
    return folder / "stdout.log", folder / "stderr.log"


def _wait(process: subprocess.Popen[bytes], launch: ProcessLaunch, kind: _Kind) -> _End:
    started = time.monotonic()
    hung = _hangs(process, launch, kind)
    if hung:
        ranks = processes.launched(process.pid) if kind.torchrun else processes.alone(process.pid)
        processes.dump_stacks(ranks, launch.out)
        process.kill()
    return _End(process.wait(), time.monotonic() - started, hung)


def _hangs(process: subprocess.Popen[bytes], launch: ProcessLaunch, kind: _Kind) -> bool:
    """Wait for the end, or until nothing was recorded or printed for too long."""
    sizes, since = _sizes(launch.out), time.monotonic()
    while True:
        try:
            process.wait(POLL)
            return False
        except subprocess.TimeoutExpired:
            before, sizes = sizes, _sizes(launch.out)
        if sizes != before:
            since = time.monotonic()
            launch.on_progress(progress(launch.out))
        elif time.monotonic() - since > _patience(launch, kind):
            return True


def _patience(launch: ProcessLaunch, kind: _Kind) -> float:
    """Importing torch is silent, and takes long on a busy machine."""
    if all(processes.begun(launch.out, rank) for rank in range(kind.ranks)):
        return launch.timeout
    return max(launch.timeout, STARTING)


def _sizes(out: Path) -> dict[Path, int]:
    """Of records and output; nothing is so cheap and says so surely that something happened."""
    sizes = {}
    for path in out.rglob("*"):
        with suppress(OSError):
            sizes[path] = path.stat().st_size
    return sizes


def _read(launch: ProcessLaunch, kind: _Kind, rank: int, end: _End) -> RunRecord:
    """torchrun's code is a rank's own only if it is 0."""
    logs = {name: _rank_log(launch.out, rank, name) for name in ("stdout", "stderr")}
    run = load_run(launch.out, rank, **logs)
    known = not kind.torchrun or end.returncode == 0
    if run.exit_code is None and known and not end.hung:
        run = replace(run, exit_code=end.returncode)
    dump = _text(launch.out / f"rank{rank}.stack") if end.hung else ""
    return replace(run, stack=readable(dump, launch.folder, launch.cwd) if dump else "")


def _rank_log(out: Path, rank: int, name: str) -> str:
    return "".join(map(_text, sorted((out / "logs").glob(f"**/{rank}/{name}.log"))))


def _text(path: Path) -> str:
    """Line ends as they are: progress bars live of carriage returns."""
    return path.read_bytes().decode("utf-8", errors="replace") if path.exists() else ""
