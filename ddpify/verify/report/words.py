"""The sentences all reports share."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence

from ddpify.terminal import block
from ddpify.verify.options import NOISES
from ddpify.verify.recording import RunRecord
from ddpify.verify.verdict import Check, Verdict, Verification


def verdict(verification: Verification) -> str:
    """The answer in one sentence."""
    failed = count(verification, Verdict.FAIL)
    undecided = count(verification, Verdict.UNDECIDED)
    if failed and verification.stopped:
        return (
            f"NOT the same: the ranks {'hang' if verification.distributed.hung else 'end early'}."
        )
    if failed:
        tail = f", {undecided} not decided" if undecided else ""
        return f"NOT the same: {plural(failed, 'check')} failed{tail}."
    if undecided:
        titles = (c.title for c in verification.checks if c.verdict is Verdict.UNDECIDED)
        return f"Not decided: {'; '.join(map(printable, titles))}."
    if not count(verification, Verdict.PASS):
        return "Not decided: no check could be made."
    return f"{verification.options.nproc} processes train the same model."


def settled(verification: Verification) -> Verdict:
    """The verdict of the whole: nothing passed is nothing shown."""
    if count(verification, Verdict.FAIL):
        return Verdict.FAIL
    undecided = count(verification, Verdict.UNDECIDED) or not count(verification, Verdict.PASS)
    return Verdict.UNDECIDED if undecided else Verdict.PASS


def limits(verification: Verification) -> str:
    """What the answer holds for, where that is less than the program as it is; else ""."""
    options = verification.options
    off = [noise for noise in NOISES if noise in options.neutralise]
    parts = [f"with {_listed(off)} neutralised"] if off else []
    parts += [f"over the first {plural(options.steps, 'optimizer step')}"] if options.steps else []
    parts += [f"on {plural(options.overfit, 'sample')} only"] if options.overfit else []
    return f"Compared {', '.join(parts)}." if parts else ""


def reasons(verification: Verification) -> tuple[str, ...]:
    """Why the ranks did not come to their end, a line each."""
    return tuple(printable(str(ending)) for ending in verification.stopped)


def to_decide(verification: Verification) -> str:
    """What is in the way of an answer."""
    noises = _listed(verification.undecided_by)
    return f"Not the same in one process and several, by right: {noises}. With that switched off"


def again(verification: Verification) -> str:
    """The command line that decides what noise left undecided; "" where there is none."""
    given, noises = verification.options.command, verification.undecided_by
    if not given or not noises:
        return ""
    end = given.index("--") if "--" in given else len(given)
    flags = [f"--neutralise={noise}" for noise in noises]
    return printable(shlex.join((*given[:end], *flags, *given[end:])))


def compared(verification: Verification) -> str:
    """The two runs that were compared, in words."""
    options = verification.options
    script = printable(options.script.name if options.script.is_absolute() else str(options.script))
    original = printable(verification.baseline)
    return f"{script}: {original} in 1 process against {options.nproc} ranks"


def commands(verification: Verification) -> tuple[tuple[str, str], ...]:
    """(what it is, the command line) of both launches."""
    ranks = f"{verification.options.nproc} ranks"
    reference, distributed = verification.reference.command, verification.distributed.command
    return ("1 process", printable(reference)), (ranks, printable(distributed))


def count(verification: Verification, one: Verdict) -> int:
    """How many checks came out so."""
    return sum(check.verdict is one for check in verification.checks)


def wanting(check: Check) -> bool:
    """Whether a check stands in the way of passing."""
    return check.verdict in (Verdict.FAIL, Verdict.UNDECIDED)


def status(run: RunRecord) -> str:
    """How a run ended, in a few words."""
    if run.waiting:
        return f"hung in {printable(run.waiting)}"
    if run.stack:
        return "hung"
    if run.exit_code not in (None, 0) and run.status in ("finished", "exited", "running"):
        return f"exit code {run.exit_code}"
    return printable(run.status)


def plural(number: int, noun: str) -> str:
    """``1 file``, ``2 files``; ``s`` is all that English gets here."""
    return f"{number} {noun}" if number == 1 else f"{number:,} {noun}s"


def printable(text: str) -> str:
    """One line without control characters: a program's output must not steer the terminal."""
    return " ".join(block(text).split())


def number(value: float, digits: int = 4) -> str:
    """A measured number; what is none, as people write it."""
    return f"{value:.{digits}g}" if math.isfinite(value) else str(value).replace("nan", "NaN")


def size(count: float) -> str:
    """Bytes, as people read them."""
    for unit in ("B", "kB", "MB"):
        if abs(count) < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"


def duration(seconds: float) -> str:
    """A time, as people read it."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:,.3g} s"


def _listed(names: Sequence[str]) -> str:
    return "".join(names) if len(names) < 2 else f"{', '.join(names[:-1])} and {names[-1]}"
