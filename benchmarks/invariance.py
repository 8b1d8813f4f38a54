"""Whether migrate says the same of a public script under other names, in ``main``, in two files,
as a class.

    python -m benchmarks.invariance SCRIPT [SCRIPT ...]

The variants are those of `tests/lint`. Each stands in the place of the script, in a copy of its
repository that this command may change and restores. Compared are the findings with their messages
and the text of every edit, without names of variables and `self.`; for other names the lines, too.
What it said last is in unseen.md.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ddpify.outcome import Outcome
from ddpify.pipeline import migrate
from ddpify.rules.base import Finding
from ddpify.settings import Settings
from tests.lint.cases import Case
from tests.lint.flat import as_class, in_files, in_main
from tests.lint.variants import renamed

VARIANTS: dict[str, Callable[[Case], Case | None]] = {
    "renamed": renamed,
    "main": in_main,
    "moved": in_files,
    "class": as_class,
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
    """What is found: rules, messages, edits; with lines, where each is found."""
    if outcome.refusals:
        return Counter(("refused", _plain(r.message)) for r in outcome.refusals)
    return Counter(
        (one.rule, *_edits(one, lines), *([str(one.site)] if lines else ()))
        for one in outcome.findings
    )


def _edits(finding: Finding, lines: bool) -> Iterator[str]:
    if lines:  # other names stand in the texts
        yield str(len(finding.fix))
        return
    yield _plain(finding.message)
    if finding.rule in ("DDP001", "DDP101"):  # a session where there is a `main`; what that needs
        return
    for edit in finding.fix:
        yield f"{edit.how.value} {_plain(edit.code)}"


def _plain(text: str) -> str:
    """A text without what differs by construction: places, `self.`, the number of a free name."""
    return re.sub(r"[\w/-]+\.py:\d+(:\d+)?|self\.|(?<=_sampler)\d|\s", "", text)


def differences(script: Path) -> Iterator[tuple[str, str]]:
    """What is said of each variant and not of the script, or the other way round."""
    text = script.read_text().replace("async=True", "non_blocking=True")  # of Python before 3.7
    plain = ast.unparse(ast.parse(text))
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
        yield name, "the same" if less == more else "other findings"
        for sign, differing in (("-", less), ("+", more)):
            for one in differing.elements():
                yield f"  {sign}", " | ".join(one)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("script", nargs="+", type=Path)
    for script in parser.parse_args().script:
        for name, difference in differences(script.resolve()):
            print(f"{name:8} {difference}  {script.parent.name}/{script.name}", flush=True)


if __name__ == "__main__":
    main()
