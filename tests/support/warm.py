"""A Python that has imported torch already: programs start in a tenth of the time.

``python()`` is an executable for tests that compare what programs compute. It hands what it was
asked to run, its environment and its standard files to a server (one for each process of pytest),
which forks; it passes signals on and ends as the program did, and torchrun and its ranks start by
it alike. Of a program it is told ``-u``, ``-c``, ``-m`` and files; with other options, or where
more threads are asked for, it is the usual Python. No test of how programs start, hang or end, or
of what they import, uses it: what the server has imported (torch with torch.distributed, sklearn)
is there without an import, and is not made again; texts have the same hashes in all programs of
one server, unless PYTHONHASHSEED is set, where this is the usual Python; each program leads a
session of its own; and /bin/sh, which starts it, may put PWD into its environment.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import functools
import json
import os
import random
import runpy
import select
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

_CLIENT = Path(__file__).with_name("warm_client.py")


@functools.cache
def python() -> str:
    """The executable; the server runs until this process ends. Elsewhere than on Linux: Python."""
    if sys.platform != "linux":
        return sys.executable
    folder = Path(tempfile.mkdtemp(prefix="warm-"))
    server = str(folder / "server")
    client = written(folder, server)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, str(client), server]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    atexit.register(_end, process, folder)
    return str(client)


def written(folder: Path, server: str) -> Path:
    """The executable, which is a script of sh: after `#!` a path may hold no blank, and is cut at
    127 bytes."""
    client = folder / "python"
    # -S -E: of a client that lives for milliseconds half the time would be the search for packages
    words = shlex.join((sys.executable, "-SE", str(_CLIENT), server))
    client.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    client.chmod(0o755)
    return client


def _end(server: subprocess.Popen[str], folder: Path) -> None:
    server.kill()
    server.wait()
    shutil.rmtree(folder, ignore_errors=True)


@dataclass
class _Job:
    """What runs for a client, which is at the other end of ``link``; ``parent`` started that."""

    link: socket.socket
    pid: int
    parent: int


def _serve(client: str, server: str) -> None:
    import sklearn.datasets  # type: ignore[import-untyped]  # noqa: F401
    import torch._dynamo  # noqa: F401  (every first wrapper would, for seconds)

    _keep_groups()
    path = list(sys.path[1:])  # this folder is no program's
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(server)
    listening.listen(64)
    parent = os.getppid()
    jobs: dict[int, _Job] = {}
    print("ready", flush=True)
    while os.getppid() == parent:
        heard = [listening, *(job.link for job in jobs.values())]
        readable, _, _ = select.select(heard, (), (), 0.02)
        for one in readable:
            if one is not listening:
                _pass_on(next(job for job in jobs.values() if job.link is one), jobs)
                continue
            link, _ = listening.accept()
            with contextlib.suppress(FileNotFoundError, EOFError):  # a client that has gone
                starter = _parent(link)
                pid = _fork(link, client, path, [*heard, link])
                jobs[pid] = _Job(link, pid, starter)
        _reap(jobs)


def _keep_groups() -> None:
    """A program does not hang at its end on torch's own race (torch 2.13, seen in gdb).

    Gloo's thread lets go of a work only after that is done. What was begun in ``backward()`` holds
    the Python context, so that this takes the GIL; where the main thread is at ``~Reducer`` or
    ``~ProcessGroupGloo`` then, it has the GIL and joins that thread. Of one program started cold
    none of 24 hung, warm 2 of 6; a group that is never freed joins nothing: none of 310.
    """
    from torch.distributed import distributed_c10d

    made = distributed_c10d._new_process_group_helper
    kept = []

    @functools.wraps(made)
    def made_to_stay(*args: Any, **keywords: Any) -> Any:
        kept.append(made(*args, **keywords))
        return kept[-1]

    distributed_c10d._new_process_group_helper = made_to_stay


def _parent(link: socket.socket) -> int:
    """The process that started the client."""
    who = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, _, _ = struct.unpack("3i", who)
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _pass_on(job: _Job, jobs: dict[int, _Job]) -> None:
    """A signal, from the client; its own end ends the job."""
    try:
        said = job.link.recv(1)
    except ConnectionResetError:
        said = b""
    with contextlib.suppress(ProcessLookupError):
        if said:
            os.kill(job.pid, said[0])
        else:
            _kill(job, jobs)


def _kill(job: _Job, jobs: dict[int, _Job]) -> None:
    """And all that it has started, as far as that runs here."""
    for one in list(jobs.values()):
        if one.parent == job.pid:
            _kill(one, jobs)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(job.pid, signal.SIGKILL)


def _reap(jobs: dict[int, _Job]) -> None:
    while jobs:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        job = jobs.pop(pid)
        with contextlib.suppress(BrokenPipeError):
            job.link.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
        job.link.close()


def _fork(link: socket.socket, client: str, path: list[str], opened: list[socket.socket]) -> int:
    asked, files = _received(link)
    pid = os.fork()
    if pid:
        for file in files:
            os.close(file)
        return pid
    code = 1
    try:
        os.setsid()
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        for one in opened:
            one.close()
        code = _run(asked, client, path)
    finally:
        os._exit(code)
    raise AssertionError


def _received(link: socket.socket) -> tuple[dict[str, Any], list[int]]:
    files = array.array("i")
    text, ancillary, _, _ = link.recvmsg(4, socket.CMSG_LEN(3 * files.itemsize))
    for _, _, data in ancillary:
        files.frombytes(data[: 3 * files.itemsize])
    left = int.from_bytes(text, "big")
    parts = []
    while left:
        parts.append(link.recv(left))
        if not parts[-1]:
            raise EOFError
        left -= len(parts[-1])
    return json.loads(b"".join(parts)), list(files)


def _run(asked: dict[str, Any], client: str, path: list[str]) -> int:
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    _draw_afresh()
    sys.executable = client
    given = [one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one]
    sys.path[:] = [*given, *path]
    sys.stdout = open(1, "w", buffering=1 if os.isatty(1) else -1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    if asked["unbuffered"]:
        sys.stdout.reconfigure(line_buffering=True)
    code = _ended(asked["kind"], asked["what"], asked["arguments"])
    with contextlib.suppress(Exception):
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    for file in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            file.flush()
    return code


def _draw_afresh() -> None:
    """As a process that has just begun: nothing is drawn alike in two of them."""
    import numpy as np
    import torch

    random.seed()
    np.random.seed()
    torch.default_generator.seed()


def _ended(kind: str, what: str, arguments: list[str]) -> int:
    """Run it; the exit code."""
    sys.argv = [what if kind == "file" else f"-{kind}", *arguments]
    atexit._clear()
    try:
        if kind == "m":
            sys.path.insert(0, os.getcwd())
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        else:
            _execute(kind, what)
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return ended.code or 0
        print(ended.code, file=sys.stderr)
        return 1
    except BaseException as error:
        return _failed(error)
    return 0


def _failed(error: BaseException) -> int:
    """With the text of the usual Python; interrupted, by the signal."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    sys.excepthook(type(error), error.with_traceback(trace), trace)
    if isinstance(error, KeyboardInterrupt):
        sys.stdout.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    return 1


def _execute(kind: str, what: str) -> None:
    main = sys.modules["__main__"] = ModuleType("__main__")
    if kind == "c":
        sys.path.insert(0, "")
        exec(compile(what, "<string>", "exec", dont_inherit=True), main.__dict__)
        return
    sys.path.insert(0, str(Path(what).resolve().parent))
    main.__file__ = os.path.abspath(what)
    exec(compile(Path(what).read_bytes(), what, "exec", dont_inherit=True), main.__dict__)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
