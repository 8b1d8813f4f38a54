"""What a verification found: the data every report is a rendering of."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from ddpify.outcome import Outcome
from ddpify.verify.options import NOISES, Options
from ddpify.verify.recording import Job

Points: TypeAlias = tuple[tuple[float, float], ...]  # (step or epoch or line, value)


class Verdict(Enum):
    """``UNDECIDED``: something legitimate (dropout …) differs; it counts as not passed."""

    PASS = "pass"
    FAIL = "fail"
    UNDECIDED = "undecided"
    SKIPPED = "skipped"  # does not apply to this program, or an earlier failure left no data
    INFO = "info"  # a measurement, nothing to pass


@dataclass(frozen=True)
class Check:
    """One line of the report: what was compared, how it came out, and the number.

    ``measured`` is one short line ("largest relative difference 3.2e-15, tolerance 1e-09").
    ``details`` say more, a line each: first divergence, samples, files. ``noises`` are what would
    have to be neutralised for it to be decided.
    """

    name: str  # stable, for programs: "trajectory", "ranks-identical", …
    title: str
    verdict: Verdict
    measured: str
    details: tuple[str, ...] = ()
    noises: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ending:
    """Why the ranks did not come to their end: the one that says it, what, and where it stood."""

    rank: int
    reason: str
    place: str = ""  # "file:line in function"

    def __str__(self) -> str:
        return f"rank {self.rank}: {self.reason}" + (f" ({self.place})" if self.place else "")


@dataclass(frozen=True)
class Logged:
    """A number that was printed or logged again and again: the one process' and rank 0's.

    ``place`` is where: "stdout", a file, "TensorBoard, runs".
    """

    name: str
    place: str
    reference: Points
    distributed: Points


@dataclass(frozen=True)
class Occasion:
    """When and where it was run, and of what: ``commit`` "" outside of git."""

    date: str = ""
    host: str = ""
    system: str = ""
    commit: str = ""


@dataclass(frozen=True)
class Cause:
    """A likely cause, in the words of ``check``'s rules; the likeliest stands first.

    ``evidence`` is what was measured that speaks for it; ``sites`` are "file:line: message" of
    ``check``'s own findings of this rule in the distributed program, where it has any.
    """

    rule: str
    title: str
    why: str
    evidence: str
    sites: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verification:
    """The whole result. ``migration`` is set where ddpify itself made the distributed program.

    ``setup`` are lines that say what was run and what was changed for it (dtype, sample order,
    what was neutralised, batch factor, devices).
    """

    options: Options
    baseline: str  # what the original was: "the working tree", "git revision abc1234", …
    reference: Job
    distributed: Job
    setup: tuple[str, ...]
    checks: tuple[Check, ...]
    causes: tuple[Cause, ...] = ()
    migration: Outcome | None = None
    kept: str = ""  # the folder with both copies, with --keep
    stopped: tuple[Ending, ...] = ()  # of the ranks, where they did not come to their end
    logged: tuple[Logged, ...] = ()
    occasion: Occasion = Occasion()

    @property
    def passed(self) -> bool:
        """Something was compared, and nothing failed or was left undecided."""
        found = {check.verdict for check in self.checks}
        return Verdict.PASS in found and not found & {Verdict.FAIL, Verdict.UNDECIDED}

    @property
    def undecided_by(self) -> tuple[str, ...]:
        """What else has to be neutralised for all checks to be decided."""
        found = {
            noise for one in self.checks if one.verdict is Verdict.UNDECIDED for noise in one.noises
        }
        return tuple(one for one in NOISES if one in found - self.options.neutralise)
