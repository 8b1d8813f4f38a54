"""Whether `migrate` and `check` answer for every file of some folders, and how long they take next
to parsing.

    python -m benchmarks.crash FOLDER [FOLDER ...] [--files N] [--from M] [--faults]

Each Python file is an entry, where it lies; with --faults a copy beside it with small faults
(`tests/laws/fuzz.py`), which is removed again. Printed are the tracebacks (that of one that takes
more than ten minutes among them), a line for each file that is slow as soon as it is known, what
was answered, and the largest CPU times with their ratio to parsing the files that were read. The
files stand in an order of chance that is always the same: `--from 500 --files 100` are a slice of
it. What it said last is in unseen.md.
"""

from __future__ import annotations

import argparse
import ast
import random
import signal
import time
import traceback
import warnings
from collections import Counter
from contextlib import suppress
from pathlib import Path

from ddpify.lint import lint
from ddpify.outcome import Outcome
from ddpify.pipeline import migrate
from ddpify.settings import Settings
from tests.laws.fuzz import mutated

LONGEST = 600  # seconds: what takes longer is taken for endless
SLOW = 5  # seconds


def answer(outcome: Outcome) -> str:
    """The kind of an outcome."""
    if not outcome.refusals:
        return "migrated"
    return " ".join(outcome.refusals[0].message.split()[:4])


def parsing(outcome: Outcome) -> float:
    """CPU seconds of parsing the files that an outcome is about."""
    begun = time.process_time()
    for name in outcome.files or outcome.entries:
        with suppress(SyntaxError, ValueError, OSError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse((outcome.root / name).read_bytes())
    return time.process_time() - begun


def judge(file: Path) -> tuple[float, float, str]:
    """CPU seconds of reading a file as an entry and of parsing what was read; the answer."""
    begun = time.process_time()
    signal.alarm(LONGEST)
    try:
        outcome = migrate([file], Settings())
        lint(outcome.root, [file])
    except Exception:  # any kind: they are what is looked for
        traceback.print_exc()
        print("TRACEBACK", file, flush=True)
        return time.process_time() - begun, 0.0, "traceback"
    finally:
        signal.alarm(0)
    return time.process_time() - begun, parsing(outcome), answer(outcome)


def told(cpu: float, parsed: float, kind: str, file: Path) -> str:
    """A line about a file."""
    ratio = cpu / parsed if parsed else float("nan")
    return f"{cpu:8.2f} s {ratio:7.0f} times parsing  {kind}  {file}"


def _too_long(number: int, frame: object) -> None:
    raise TimeoutError(f"{LONGEST} s")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="+", type=Path)
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--faults", action="store_true")
    options = parser.parse_args()
    signal.signal(signal.SIGALRM, _too_long)
    files = sorted(f for folder in options.folder for f in folder.rglob("*.py") if f.is_file())
    random.Random(0).shuffle(files)
    rows = []
    for file in files[options.first : options.first + options.files]:
        entry = file
        if options.faults:
            entry = file.with_name(f"faulty_{file.name}")
            entry.write_text(mutated(file.read_text(errors="replace"), random.Random(file.name)))
        rows.append((*judge(entry), file))
        if rows[-1][0] > SLOW:
            print(told(*rows[-1]), flush=True)
        if options.faults:
            entry.unlink()
    print(f"{len(rows)} files, {sum(row[0] for row in rows):.0f} s")
    for kind, count in Counter(row[2] for row in rows).most_common(12):
        print(f"{count:6} {kind}")
    for row in sorted(rows, reverse=True)[:8]:
        print(told(*row))


if __name__ == "__main__":
    main()
