"""Whether `migrate` answers for every file of some folders, and how long it takes next to parsing.

    python -m benchmarks.crash FOLDER [FOLDER ...] [--files N] [--faults]

Each Python file is an entry, where it lies; with --faults a copy beside it with small faults
(`tests/laws/fuzz.py`), which is removed again. Printed are the tracebacks, what was answered, and
the largest CPU times with their ratio to parsing the files that were read. What it said last is in
unseen.md.
"""

from __future__ import annotations

import argparse
import ast
import random
import time
import traceback
import warnings
from collections import Counter
from contextlib import suppress
from pathlib import Path

from ddpify.outcome import Outcome
from ddpify.pipeline import migrate
from ddpify.settings import Settings
from tests.laws.fuzz import mutated


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
    try:
        outcome = migrate([file], Settings())
    except Exception:  # any kind: they are what is looked for
        traceback.print_exc()
        print("TRACEBACK", file, flush=True)
        return time.process_time() - begun, 0.0, "traceback"
    return time.process_time() - begun, parsing(outcome), answer(outcome)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="+", type=Path)
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--faults", action="store_true")
    options = parser.parse_args()
    draw = random.Random(0)
    files = sorted(f for folder in options.folder for f in folder.rglob("*.py") if f.is_file())
    rows = []
    for file in draw.sample(files, min(options.files, len(files))):
        entry = file
        if options.faults:
            entry = file.with_name(f"faulty_{file.name}")
            entry.write_text(mutated(file.read_text(errors="replace"), draw))
        rows.append((*judge(entry), file))
        if options.faults:
            entry.unlink()
    for kind, count in Counter(row[2] for row in rows).most_common(12):
        print(f"{count:6} {kind}")
    for cpu, parsed, kind, file in sorted(rows, reverse=True)[:8]:
        ratio = cpu / parsed if parsed else float("nan")
        print(f"{cpu:8.2f} s {ratio:7.0f} times parsing  {kind}  {file}")


if __name__ == "__main__":
    main()
