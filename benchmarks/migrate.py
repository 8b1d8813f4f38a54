"""What reading a project for `migrate` costs, next to parsing the same files once.

    python benchmarks/migrate.py SCRIPT [SCRIPT ...] [--repeats N]

CPU time of the command, as a user starts it; the least of the repeats counts. Nothing is written.
The ratio is of numbers taken in one run on one machine: seconds of two machines cannot be compared.
`reading` is the share of the whole that goes into reading the result as several ranks. What it said
last is in migrate.md.
"""

from __future__ import annotations

import argparse
import ast
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ddpify.disposal import dispose
from ddpify.outcome import Outcome
from ddpify.pipeline import migrate
from ddpify.settings import Settings

_UNCOMPILED = "PYTHONDONTWRITEBYTECODE"
# The limits of the issue, in seconds of CPU.
MEDIAN, ONE, READING = 1.0, 30.0, 1 / 3


@dataclass(frozen=True)
class Cost:
    """One script: seconds for the command, for the reading of its result, and for parsing the files
    that hang on it."""

    script: Path
    outcome: Outcome
    cpu: float
    parsing: float
    reading: float

    def row(self) -> str:
        """The line of the table."""
        end = self.outcome.refusals[0].message[:50] if self.outcome.refusals else "migrated"
        ratio = self.cpu / self.parsing if self.parsing else float("nan")
        share = f"{self.reading / self.cpu:9.0%}" if self.reading else " " * 9
        return f"{self.cpu:8.2f}{self.parsing:9.3f}{ratio:8.0f}{share}  {self.script}: {end}"


def seconds(job: Callable[[], object], repeats: int) -> float:
    """The CPU time of a job, the least of some repeats."""
    costs = []
    for _ in range(repeats):
        begun = time.process_time()
        job()
        costs.append(time.process_time() - begun)
    return min(costs)


def installed() -> dict[str, str]:
    """An environment in which ddpify is compiled already, as where it is installed."""
    kept = {name: value for name, value in os.environ.items() if name != _UNCOMPILED}
    kept["PYTHONPYCACHEPREFIX"] = tempfile.mkdtemp()
    loads = "from ddpify import pipeline; from ddpify.rules.registry import all_rules; all_rules()"
    subprocess.run([sys.executable, "-c", loads], env=kept, check=True)
    return kept


def command(script: Path, environment: dict[str, str]) -> float:
    """The CPU time of one dry run, user and system."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = [sys.executable, "-m", "ddpify", "migrate", script.name, "--strategy", "ddp"]
    subprocess.run(started, cwd=script.parent, env=environment, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measured(script: Path, repeats: int, environment: dict[str, str]) -> Cost:
    """Start the command, then read its result and parse its files alone."""
    outcome = migrate((script,), Settings())
    texts = [(outcome.root / path).read_bytes() for path in outcome.files]
    texts = texts or [script.read_bytes()]
    cpu = min(command(script, environment) for _ in range(repeats))
    reads = outcome.changes and not outcome.refusals
    reading = seconds(lambda: dispose(outcome, Settings()), repeats) if reads else 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parsing = seconds(lambda: [ast.parse(text) for text in texts], repeats)
    return Cost(script, outcome, cpu, parsing, reading)


def main() -> int:
    """Measure, print the table; 1 when a limit is not kept."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("scripts", type=Path, nargs="+", help="entry scripts of checkouts")
    parser.add_argument("--repeats", type=int, default=1)
    options = parser.parse_args()
    print(f"{'CPU s':>8}{'parse s':>9}{'ratio':>8}{'reading':>9}")
    costs, environment = [], installed()
    for script in options.scripts:
        costs.append(measured(script.resolve(), options.repeats, environment))
        print(costs[-1].row(), flush=True)
    median = statistics.median(cost.cpu for cost in costs)
    slowest = max(costs, key=lambda cost: cost.cpu)
    read = [cost for cost in costs if cost.reading]
    share = sum(cost.reading for cost in read) / sum(cost.cpu for cost in read) if read else 0.0
    kept = (
        (f"median {median:.2f} s (at most {MEDIAN})", median <= MEDIAN),
        (f"slowest {slowest.cpu:.2f} s, {slowest.script} (at most {ONE})", slowest.cpu <= ONE),
        (f"reading the results {share:.0%} (at most {READING:.0%})", share <= READING),
    )
    for text, holds in kept:
        print(f"{'ok  ' if holds else 'FAIL'} {text}")
    return 0 if all(holds for _, holds in kept) else 1


if __name__ == "__main__":
    sys.exit(main())
