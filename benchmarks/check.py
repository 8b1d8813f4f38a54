"""What `ddpify check` costs on a large repository, next to ruff and TorchFix.

    python benchmarks/check.py REPOSITORY [--torchfix | --no-torchfix] [--repeats N]

CPU time is what the kernel counts for the process and its children (user + system); the least of
the repeats counts. All ratios are of numbers taken in one run on one machine. TorchFix pins an old
libcst, so it gets an environment of its own, made on demand; it needs minutes, so it is run once.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "ddpify-benchmarks"
# The limits of the issue: cold at most 1/50 of TorchFix, cached at most a cold ruff.
AGAINST_TORCHFIX = 50
# As installed: pip has compiled the modules, which Python would do anew at each start with this.
_KEPT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
# Runs a command and says what it cost. Not us: the peak of the children is kept for ever, and the
# memory of the parent counts until the child calls exec.
_MEASURE = """import json, os, subprocess, sys, time
start = time.perf_counter()
job = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
error = job.stderr.read()
_, status, used = os.wait4(job.pid, 0)
wall = time.perf_counter() - start
code = os.waitstatus_to_exitcode(status)
cost = [code, used.ru_utime + used.ru_stime, wall, used.ru_maxrss, error.decode()[-2000:]]
print(json.dumps(cost))
"""


@dataclass(frozen=True)
class Cost:
    """CPU seconds, wall-clock seconds, peak memory of the largest process in MiB."""

    cpu: float
    wall: float
    memory: float


class Failed(Exception):
    """A tool ended with an error of its own, not with findings."""


def measured(command: Sequence[str], folder: Path) -> Cost:
    """Run a command once. Raises Failed when it ends neither with 0 nor with 1."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", _MEASURE, *command],
        cwd=folder,
        env=_KEPT,
        capture_output=True,
        text=True,
        check=True,
    )
    code, cpu, wall, kibibytes, error = json.loads(done.stdout)
    if code not in (0, 1):
        raise Failed(f"{' '.join(command)} ended with {code}\n{error}")
    scale = 1024 * 1024 if sys.platform == "darwin" else 1024
    return Cost(cpu, wall, kibibytes / scale)


def least(costs: Sequence[Cost]) -> Cost:
    """The smallest of each number: the rest is the machine's doing; memory is the largest."""
    return Cost(min(c.cpu for c in costs), min(c.wall for c in costs), max(c.memory for c in costs))


def ours(repository: Path, *flags: str) -> list[str]:
    """``ddpify check``, as it is installed here."""
    return [sys.executable, "-m", "ddpify", "check", "--exit-zero", *flags, str(repository)]


def check(repository: Path, repeats: int) -> dict[str, Cost]:
    """`ddpify check` without a cache, with a filled one, and ruff without one."""
    cold = "--no-cache"
    with tempfile.TemporaryDirectory() as cache:
        kept = ("--cache-dir", cache)
        commands = {
            "ddpify check": ours(repository, cold),
            "filling the cache": ours(repository, *kept),  # the next one finds it filled
            "ddpify check, cached": ours(repository, *kept),
            "ruff check": [_ruff(), "check", "--no-cache", "--exit-zero", "--isolated", "."],
        }
        costs: dict[str, list[Cost]] = {name: [] for name in commands}
        for _ in range(repeats):
            for name, command in commands.items():
                costs[name].append(measured(command, repository))
    return {name: least(held) for name, held in costs.items()}


def _ruff() -> str:
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    found = shutil.which("ruff", path=path)
    if found is None:
        raise Failed("ruff is not installed here")
    return found


def torchfix(repository: Path) -> Cost:
    """TorchFix, once, in an environment of its own."""
    environment = CACHE / "torchfix"
    program = environment / "bin" / "torchfix"
    if not program.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", environment], check=True)
        pip = [str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet", "torchfix"]
        subprocess.run(pip, check=True)
    return measured([str(program), "--select", "ALL", "."], repository)


def lines_in(repository: Path) -> tuple[int, int]:
    """How many Python files there are, and how many lines."""
    files = sorted(repository.rglob("*.py"))
    return len(files), sum(len(file.read_bytes().splitlines()) for file in files)


def table(costs: dict[str, Cost]) -> str:
    """The numbers, and what each is relative to a cold `ddpify check`."""
    base = costs["ddpify check"].cpu
    rows = [f"{'':28}{'CPU s':>9}{'wall s':>9}{'peak MiB':>10}{'x ddpify':>10}"]
    for name, cost in costs.items():
        numbers = f"{cost.cpu:9.2f}{cost.wall:9.2f}{cost.memory:10.0f}{cost.cpu / base:10.2f}"
        rows.append(f"{name:28}{numbers}")
    return "\n".join(rows)


def verdicts(costs: dict[str, Cost]) -> list[tuple[str, bool]]:
    """What the issue asks for, and whether it holds."""
    cold, cached = costs["ddpify check"].cpu, costs["ddpify check, cached"].cpu
    ruff = costs["ruff check"].cpu
    made = [(f"cached run: {cached / ruff:.2f} of a cold ruff (at most 1)", cached <= ruff)]
    if "torchfix" in costs:
        ratio = costs["torchfix"].cpu / cold
        text = f"TorchFix: {ratio:.0f} times a cold run (at least {AGAINST_TORCHFIX})"
        made.append((text, ratio >= AGAINST_TORCHFIX))
    return made


def main() -> int:
    """Measure, print the table; 1 when a limit is not kept."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("repository", type=Path, help="a checkout, e.g. of pytorch-image-models")
    parser.add_argument("--torchfix", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    repository = options.repository.resolve()
    files, lines = lines_in(repository)
    print(f"{repository.name}: {files} files, {lines} lines")
    try:
        costs = check(repository, options.repeats)
        print(table(costs), flush=True)
        if options.torchfix:
            costs["torchfix"] = torchfix(repository)
            print(table({name: costs[name] for name in ("ddpify check", "torchfix")}))
    except Failed as error:
        print(error, file=sys.stderr)
        return 2
    kept = verdicts(costs)
    for text, holds in kept:
        print(f"{'ok  ' if holds else 'FAIL'} {text}")
    return 0 if all(holds for _, holds in kept) else 1


if __name__ == "__main__":
    sys.exit(main())
