"""Changed lines of ``ddpify diff`` beside those of a migration by hand: a ratio per script.

    python benchmarks/diff_size.py LIST

Each line of LIST is ``NAME FOLDER ENTRY``: FOLDER is a git repository whose last commit is the
migration that somebody wrote by hand. What is counted are lines added and removed in Python files,
without the helpers' own (launch lines and READMEs are another matter).
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

HELPERS = ("ddp_utils.py", "ddp_metrics.py")


def by_hand(folder: Path) -> int:
    """Lines that the last commit adds and removes."""
    rows = _run(["git", "diff", "--numstat", "HEAD~1"], folder).splitlines()
    counts = (row.split("\t") for row in rows)
    return sum(int(new) + int(old) for new, old, path in counts if _counts(path))


def by_ddpify(folder: Path, entry: str) -> int:
    """Lines that ``ddpify diff`` adds and removes in the state before."""
    with tempfile.TemporaryDirectory() as copy:
        _run(["git", "clone", "-q", str(folder.resolve()), copy], folder)
        _run(["git", "checkout", "-q", "HEAD~1"], Path(copy))
        patch = _run([sys.executable, "-m", "ddpify", "diff", entry], Path(copy), fails=True)
    return sum(_changed(patch.splitlines()))


def _changed(lines: Iterable[str]) -> Iterable[int]:
    path = ""
    for line in lines:
        if line.startswith("+++ "):
            path = line[4:]
        elif not line.startswith("--- ") and line[:1] in ("+", "-") and _counts(path):
            yield 1


def _counts(path: str) -> bool:
    return path.endswith(".py") and not path.endswith(HELPERS)


def _run(command: list[str], folder: Path, fails: bool = False) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=not fails)
    return done.stdout


def main() -> None:
    rows = [line.split(maxsplit=2) for line in Path(sys.argv[1]).read_text("utf-8").splitlines()]
    print("| script | by hand | ddpify | ratio |\n|---|---|---|---|")
    total = [0, 0]
    for name, folder, entry in rows:
        hand, tool = by_hand(Path(folder)), by_ddpify(Path(folder), entry)
        total = [total[0] + hand, total[1] + tool]
        print(f"| {name} | {hand} | {tool} | {tool / hand:.2f} |")
    print(f"| all | {total[0]} | {total[1]} | {total[1] / total[0]:.2f} |")


if __name__ == "__main__":
    main()
