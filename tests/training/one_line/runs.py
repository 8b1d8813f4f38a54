"""Trains each variant as one process and, migrated, on two ranks; says what both did, as JSON.

    python -m tests.training.one_line.runs [--fsdp] NAME ...

Processes are forked from this one, which has imported torch once. Samples are in order, so that a
step of one process and of two ranks is of the same ones, and all is computed in float64. What each
optimizer leaves in each step has to be the same to the last bit on both ranks.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np  # noqa: F401  (once for all that are forked)
import torch
import torch.distributed
import torch.distributed.fsdp
import torch.distributed.tensor
import torch.nn.parallel
import torch.utils.data
from torch.optim.optimizer import register_optimizer_step_post_hook

from ddpify.outcome import Outcome
from ddpify.pipeline import migrate
from ddpify.settings import Settings
from tests.support.torchrun import EXIT_RACE
from tests.training.one_line.reader import variants

HELPERS = {"train.py", "ddp_utils.py", "ddp_metrics.py"}
NUMBER = re.compile(r"-?\d+\.?\d*(?:e-?\d+)?")
LIMIT = 60.0  # seconds for a job that takes two


@dataclass(frozen=True)
class Result:
    """``outcome``: same, refused or different; ``whole``: by whole batches.

    ``named`` are the rules that leave something to do by hand; ``told`` says where the runs differ,
    or why a program is refused.
    """

    name: str
    outcome: str
    whole: bool = False
    named: tuple[str, ...] = ()
    told: str = ""


def judge(name: str, text: str, settings: Settings) -> Result:
    """What migrating a program does to it."""
    with tempfile.TemporaryDirectory() as folder:
        one, two = Path(folder, "one"), Path(folder, "two")
        for copy in (one, two):
            copy.mkdir()
            (copy / "train.py").write_text(text)
        outcome = migrate([two / "train.py"], settings)
        if outcome.refusals:
            return Result(name, "refused", told=outcome.refusals[0].message)
        for change in outcome.changes:
            (two / change.path).write_bytes(change.after)
        ended = [_run(one, 1), _run(two, 2)]
        told = _ended(ended) or _different(one, two)
        return Result(name, "different" if told else "same", *_said(outcome), told)


def _said(outcome: Outcome) -> tuple[bool, tuple[str, ...]]:
    by_hand = sorted({finding.rule for finding in outcome.findings if not finding.fix})
    return any("whole batches" in note.message for note in outcome.notes), tuple(by_hand)


def _run(folder: Path, ranks: int) -> list[int]:
    """The exit statuses; again where torch itself failed at its end (see ``support.torchrun``)."""
    for _ in range(3):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks)}
        own = [{**group, "RANK": str(n), "LOCAL_RANK": str(n)} for n in range(ranks)]
        pids = [_fork(folder, n, env if ranks > 1 else {}) for n, env in enumerate(own)]
        statuses = _wait(pids)
        errors = "".join(
            (folder.parent / f"{folder.name}.{n}.err").read_text() for n in range(ranks)
        )
        if EXIT_RACE not in errors:
            break
    return statuses


def _fork(folder: Path, rank: int, env: Mapping[str, str]) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    steps = folder.parent.absolute() / f"{folder.name}.{rank}.steps"
    register_optimizer_step_post_hook(lambda one, *_: _note(steps, one))
    try:
        os.setsid()
        os.chdir(folder)
        os.environ.update(env)
        for number, kind in ((1, "out"), (2, "err")):
            os.dup2(os.open(f"../{folder.name}.{rank}.{kind}", os.O_CREAT | os.O_WRONLY), number)
        sys.stdout, sys.stderr = (os.fdopen(n, "w", buffering=1, closefd=False) for n in (1, 2))
        sys.argv, sys.path = ["train.py"], [str(folder), *sys.path]
        runpy.run_path("train.py", run_name="__main__")
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)


def _note(path: Path, optimizer: torch.optim.Optimizer) -> None:
    """Add what a step has made of the parameters, bit for bit."""
    given = [p.detach() for group in optimizer.param_groups for p in group["params"]]
    of = [(p.full_tensor() if hasattr(p, "full_tensor") else p).double() for p in given]
    with path.open("a") as file:
        print(*(float(p.sum()).hex() + float(p.square().sum()).hex() for p in of), file=file)


def _wait(pids: list[int]) -> list[int]:
    """Their exit statuses; who waits for a rank that failed, or for ever, is killed."""
    end, statuses = time.monotonic() + LIMIT, dict[int, int]()
    while len(statuses) < len(pids) and time.monotonic() < end:
        for pid in set(pids) - set(statuses):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                statuses[pid] = os.waitstatus_to_exitcode(status)
                end = min(end, time.monotonic() + 10) if statuses[pid] else end
        time.sleep(0.02)
    for pid in set(pids) - set(statuses):
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return [statuses.get(pid, -signal.SIGKILL) for pid in pids]


# -- what is compared ----------------------------------------------------------------------------


def _ended(statuses: list[list[int]]) -> str:
    return "" if not any(map(any, statuses)) else f"the processes ended with {statuses}"


def _different(one: Path, two: Path) -> str:
    """What one process printed and left, and two ranks did not; "" where there is nothing."""
    first, second, other = (
        Path(f"{copy}.{n}.out").read_text() for copy, n in ((one, 0), (two, 0), (two, 1))
    )
    if _steps(two, 0) != _steps(two, 1):
        return "the ranks have other parameters"
    if not _alike(first, second):
        return f"printed: {first!r} and {second!r}"
    if other:
        return f"rank 1 prints {other!r}"
    if _files(one) != _files(two):
        return f"files: {sorted(_files(one) ^ _files(two))}"
    return next(
        (f"{name} differs" for name in sorted(_files(one)) if not _same(one, two, name)), ""
    )


def _steps(folder: Path, rank: int) -> str:
    path = Path(f"{folder}.{rank}.steps")
    return path.read_text() if path.exists() else ""


def _files(folder: Path) -> set[str]:
    files = (p for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    return {str(p.relative_to(folder)) for p in files if p.name not in HELPERS}


def _alike(one: str, two: str) -> bool:
    """The same text, but for what rounding makes of its numbers."""
    if NUMBER.sub("#", one) != NUMBER.sub("#", two):
        return False
    pairs = zip(NUMBER.findall(one), NUMBER.findall(two), strict=True)
    return all(abs(float(a) - float(b)) <= 1e-5 * max(1.0, abs(float(a))) for a, b in pairs)


def _same(one: Path, two: Path, name: str) -> bool:
    try:
        texts = (one / name).read_text("utf-8"), (two / name).read_text("utf-8")
    except UnicodeDecodeError:
        return _equal(*(torch.load(copy / name, weights_only=True) for copy in (one, two)))
    return _alike(*texts)


def _equal(one: object, two: object) -> bool:
    if isinstance(one, torch.Tensor):
        alike = type(two) is type(one) and one.shape == two.shape  # no shard of one
        return alike and torch.allclose(one.double(), two.double(), rtol=1e-7, atol=1e-9)
    if isinstance(one, dict):
        return (
            isinstance(two, dict) and [*one] == [*two] and all(_equal(one[k], two[k]) for k in one)
        )
    if isinstance(one, (list, tuple)):
        return isinstance(two, type(one)) and len(one) == len(two) and all(map(_equal, one, two))
    return _alike(repr(one), repr(two))


if __name__ == "__main__":
    torch.set_num_threads(1)
    programs, names = variants(), [name for name in sys.argv[1:] if name != "--fsdp"]
    chosen = Settings(strategy="fsdp" if "--fsdp" in sys.argv else "ddp")
    for wanted in names:
        print(json.dumps(asdict(judge(wanted, programs[wanted], chosen))), flush=True)
