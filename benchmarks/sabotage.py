"""Whether what is hidden from the reader in public scripts is named (`tests/laws/sabotage.py`).

    python -m benchmarks.sabotage SCRIPT [SCRIPT ...] [--mutants N] [--further]

Each script, in a copy of its repository that this command may change and restores, has one thing
hidden at a time, with --further in other ways. Printed are the mutants that migrate otherwise than
the script without a word of it. What it said last is in unseen.md.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

from ddpify.pipeline import migrate
from ddpify.settings import Settings
from tests.laws.sabotage import further_mutants, is_said, mutants
from tests.projects import read


def judge(script: Path, most: int, further: bool) -> tuple[int, list[str]]:
    """How many mutants of a script there were, and the silent ones."""
    known = migrate([script], Settings())
    if known.refusals:
        return 0, [f"the script is refused: {known.refusals[0].message}"]
    hidden = list((further_mutants if further else mutants)(read(script)))
    chosen = random.Random(0).sample(hidden, min(most, len(hidden)))
    return len(chosen), [str(one) for one in chosen if not is_said(one, script, known)]


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("script", nargs="+", type=Path)
    parser.add_argument("--mutants", type=int, default=200)
    parser.add_argument("--further", action="store_true")
    options = parser.parse_args()
    for script in options.script:
        count, silent = judge(script.resolve(), options.mutants, options.further)
        print(f"{count:5} mutants {len(silent):4} silent  {script}", flush=True)
        for one in silent:
            print(f"      {one}", flush=True)


if __name__ == "__main__":
    main()
