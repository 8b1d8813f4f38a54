"""Runs scripts on two gloo ranks, one after the other, in processes forked from one with torch.

`python server.py` reads a job per line (JSON) and answers each with a line. A job that would wait
for half an hour ends after ``LIMIT`` seconds, since gloo's own limit is set to that; what still
runs after ``HARD`` seconds is killed. As under torchrun, a rank that fails takes the other along.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import runpy
import signal
import socket
import sys
import time
import traceback
from datetime import timedelta
from pathlib import Path

from torch.distributed import distributed_c10d
from torch.nn.parallel import DistributedDataParallel

LIMIT, HARD, GRACE = 5, 40, 2


def main() -> None:
    """Answer until standard input ends."""
    distributed_c10d.default_pg_timeout = timedelta(seconds=LIMIT)
    importlib.import_module("torch._dynamo")  # every first wrapper would, for seconds
    wrappers: list[DistributedDataParallel] = []
    keep(wrappers)
    for line in sys.stdin:
        print(json.dumps(run(Path(json.loads(line)["script"]), wrappers)), flush=True)


def keep(kept: list[DistributedDataParallel]) -> None:
    """Take note of every wrapper. It is not freed: after the group is gone, torch hung in that in
    10 of 60 runs."""
    init = DistributedDataParallel.__init__

    def keeping(self: DistributedDataParallel, *args: object, **kwargs: object) -> None:
        kept.append(self)
        init(self, *args, **kwargs)

    DistributedDataParallel.__init__ = keeping


def run(script: Path, wrappers: list[DistributedDataParallel]) -> dict[str, list[str | int]]:
    """Exit code, output, and weights at the end, of each rank."""
    port = free_port()
    ranks = [fork(script, rank, port, wrappers) for rank in (0, 1)]
    codes = wait(ranks)
    for pid in ranks:
        end_group(pid)
    answer: dict[str, list[str | int]] = {"codes": [codes[pid] for pid in ranks]}
    for suffix in ("out", "err", "weights"):
        files = [script.with_name(f"{rank}.{suffix}") for rank in (0, 1)]
        answer[suffix] = [f.read_text(errors="replace") if f.exists() else "" for f in files]
    return answer


def weights(wrappers: list[DistributedDataParallel]) -> str:
    """The sums of all parameters: equal on all ranks while nothing has gone wrong."""
    sums = [p.detach().double().sum().item() for one in wrappers for p in one.parameters()]
    return repr(sums) if sums else ""


def free_port() -> str:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return str(probe.getsockname()[1])


def fork(script: Path, rank: int, port: str, wrappers: list[DistributedDataParallel]) -> int:
    """Start one rank; the process number."""
    pid = os.fork()
    if pid:
        return pid
    os.setpgid(0, 0)
    try:
        os.chdir(script.parent)
        for fd, suffix in ((1, "out"), (2, "err")):
            os.dup2(os.open(f"{rank}.{suffix}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), fd)
        sys.stdin = io.StringIO("y\n" * 9)  # who answers: this server's own brings the next script
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2")
        os.environ.update(LOCAL_WORLD_SIZE="2", MASTER_ADDR="localhost", MASTER_PORT=port)
        os.environ["ACCELERATE_USE_CPU"] = "1"  # else, without a GPU, its ranks are not joined
        code = execute(script)
        Path(f"{rank}.weights").write_text(weights(wrappers))
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # past torch's exit race, and past this server's own code


def end_group(rank: int) -> None:
    """What a rank has started keeps its ports, and other programs are written for the same."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(rank, signal.SIGKILL)


def execute(script: Path) -> int:
    """Run the script as Python runs it; its exit code."""
    sys.argv = [str(script)]
    sys.path.insert(0, str(script.parent))
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(bool(end.code))
    return 0


def wait(ranks: list[int]) -> dict[int, int]:
    """The exit code of each process, negative if a signal ended it."""
    codes: dict[int, int] = {}
    deadline = time.monotonic() + HARD
    while len(codes) < len(ranks):
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            codes[pid] = os.waitstatus_to_exitcode(status)
            if codes[pid]:
                deadline = min(deadline, time.monotonic() + GRACE)
        elif time.monotonic() > deadline:
            for left in set(ranks) - codes.keys():
                end_group(left)
            deadline = float("inf")
        else:
            time.sleep(0.02)
    return codes


if __name__ == "__main__":
    main()
