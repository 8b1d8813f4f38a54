"""What the checks share: wording, and what a difference means where noise is left."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from ddpify.verify.checks.comparison import Comparison
from ddpify.verify.verdict import Check, Verdict

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)(?:,)?(?: in (?P<name>\S+))?')


def result(name: str, title: str, wrong: bool, measured: str, details: Sequence[str] = ()) -> Check:
    """Passed or failed."""
    return Check(name, title, Verdict.FAIL if wrong else Verdict.PASS, measured, tuple(details))


def skipped(name: str, title: str, why: str) -> Check:
    return Check(name, title, Verdict.SKIPPED, why)


def excused(check: Check, comparison: Comparison) -> Check:
    """Undecided instead of failed, where noise explains a difference; says what to do."""
    noises = comparison.excuses
    if check.verdict is not Verdict.FAIL or not noises:
        return check
    off = comparison.evidence.options.neutralise
    flags = " ".join(f"--neutralise {noise}" for noise in noises if noise not in off)
    line = f"not the same in one process and several, by right: {', '.join(noises)}"
    lines = [f"{line}; {flags}" if flags else line, *(_undivided(comparison) if off else ())]
    details = (*lines, *check.details)
    return Check(check.name, check.title, Verdict.UNDECIDED, check.measured, details, noises)


def _undivided(c: Comparison) -> Iterator[str]:
    """Why draws are left that were to be neutralised."""
    if c.undivided:
        yield f"drawn for all samples of a process together: {some(c.undivided)}"
    elif "draws" in c.noises and "draws" in c.evidence.options.neutralise:
        yield "drawn from a generator of the script's own, or in a way that is not known here"


def numbered(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def some(items: Iterable[object], most: int = 5) -> str:
    """The first few, and how many there are if that is more."""
    shown = [str(item) for item in items]
    more = f", … ({len(shown)})" if len(shown) > most else ""
    return ", ".join(shown[:most]) + more


def user_frames(stack: str, folder: str) -> tuple[str, ...]:
    """ "file:line in function" of the project's own frames, in the order of ``stack``.

    The script itself may be named relative to where it was started.
    """
    root = folder.rstrip("/") + "/"
    return tuple(
        f"{frame['file'].removeprefix(root)}:{frame['line']}"
        + (f" in {frame['name']}" if frame["name"] else "")
        for frame in _FRAME.finditer(stack)
        if frame["file"].startswith(root) or not frame["file"].startswith(("/", "<"))
    )
