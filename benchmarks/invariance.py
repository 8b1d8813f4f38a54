"""Whether migrate says the same of a public script under other names, in two files, as a class.

    python -m benchmarks.invariance SCRIPT [SCRIPT ...]

The variants are those of `tests/lint`. Each stands in the place of the script, in a copy of its
repository that this command may change and restores. Compared are the rules and their number, and
for other names the lines, too. What it said last is in unseen.md.
"""

from __future__ import annotations

import argparse
import ast
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ddpify.outcome import Outcome
from ddpify.pipeline import migrate
from ddpify.settings import Settings
from tests.lint.cases import Case
from tests.lint.in_class import in_class
from tests.lint.variants import moved, renamed

VARIANTS: dict[str, Callable[[Case], Case | None]] = {
    "renamed": renamed,
    "moved": moved,
    "class": in_class,
}


@contextmanager
def put(files: tuple[tuple[str, str], ...], folder: Path) -> Iterator[None]:
    """A time in which these files stand in a folder."""
    before = {name: (folder / name).read_bytes() for name, _ in files if (folder / name).exists()}
    try:
        for name, text in files:
            (folder / name).write_text(text)
        yield
    finally:
        for name, _ in files:
            if name in before:
                (folder / name).write_bytes(before[name])
            else:
                (folder / name).unlink()


def said(outcome: Outcome, lines: bool) -> Counter[tuple[str, ...]]:
    """What is found: rules, and whether each has a fix; with lines, where each is found."""
    if outcome.refusals:
        return Counter(("refused", r.message[:60]) for r in outcome.refusals)
    return Counter(
        (one.rule, str(len(one.fix)), *([str(one.site)] if lines else ()))
        for one in outcome.findings
    )


def differences(script: Path) -> Iterator[tuple[str, str]]:
    """What is said of each variant and not of the script, or the other way round."""
    plain = ast.unparse(ast.parse(script.read_text()))
    case = Case(script.stem, "", "", "good", "", ((script.name, plain),))
    for name, vary in VARIANTS.items():
        variant = vary(case)
        if variant is None:
            yield name, "cannot be written"
            continue
        lines = name == "renamed"
        with put(case.files, script.parent):
            whole = said(migrate([script], Settings()), lines)
        with put(variant.files, script.parent):
            other = said(migrate([script], Settings()), lines)
        less, more = whole - other, other - whole
        yield name, "the same" if not less and not more else f"less {dict(less)} more {dict(more)}"


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("script", nargs="+", type=Path)
    for script in parser.parse_args().script:
        for name, difference in differences(script.resolve()):
            print(f"{name:8} {difference}  {script}", flush=True)


if __name__ == "__main__":
    main()
