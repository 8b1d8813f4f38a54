"""What reading a project for `migrate` costs, next to parsing the same files once.

    python benchmarks/migrate.py SCRIPT [SCRIPT ...] [--repeats N]

CPU time of this process; the least of the repeats counts. Nothing is written. The ratio is of
numbers taken in one run on one machine: seconds of two machines cannot be compared.
"""

from __future__ import annotations

import argparse
import ast
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ddpify.outcome import Outcome
from ddpify.pipeline import migrate
from ddpify.settings import Settings

# The limits of the issue, in seconds of CPU.
MEDIAN, ONE = 1.0, 30.0


@dataclass(frozen=True)
class Cost:
    """One script: seconds for the migration, and for parsing the files that hang on it."""

    script: Path
    outcome: Outcome
    cpu: float
    parsing: float

    def row(self) -> str:
        """The line of the table."""
        end = self.outcome.refusals[0].message[:50] if self.outcome.refusals else "migrated"
        ratio = self.cpu / self.parsing if self.parsing else float("nan")
        return f"{self.cpu:8.2f}{self.parsing:9.3f}{ratio:8.0f}  {self.script}: {end}"


def seconds(job: Callable[[], object], repeats: int) -> float:
    """The CPU time of a job, the least of some repeats."""
    costs = []
    for _ in range(repeats):
        begun = time.process_time()
        job()
        costs.append(time.process_time() - begun)
    return min(costs)


def measured(script: Path, repeats: int) -> Cost:
    """Migrate in memory, then parse the same files."""
    outcome = migrate((script,), Settings())
    texts = [(outcome.root / path).read_bytes() for path in outcome.files]
    texts = texts or [script.read_bytes()]
    cpu = seconds(lambda: migrate((script,), Settings()), repeats)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parsing = seconds(lambda: [ast.parse(text) for text in texts], repeats)
    return Cost(script, outcome, cpu, parsing)


def main() -> int:
    """Measure, print the table; 1 when a limit is not kept."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("scripts", type=Path, nargs="+", help="entry scripts of checkouts")
    parser.add_argument("--repeats", type=int, default=1)
    options = parser.parse_args()
    print(f"{'CPU s':>8}{'parse s':>9}{'ratio':>8}")
    costs = []
    for script in options.scripts:
        costs.append(measured(script.resolve(), options.repeats))
        print(costs[-1].row(), flush=True)
    median = statistics.median(cost.cpu for cost in costs)
    slowest = max(costs, key=lambda cost: cost.cpu)
    kept = (
        (f"median {median:.2f} s (at most {MEDIAN})", median <= MEDIAN),
        (f"slowest {slowest.cpu:.2f} s, {slowest.script} (at most {ONE})", slowest.cpu <= ONE),
    )
    for text, holds in kept:
        print(f"{'ok  ' if holds else 'FAIL'} {text}")
    return 0 if all(holds for _, holds in kept) else 1


if __name__ == "__main__":
    sys.exit(main())
