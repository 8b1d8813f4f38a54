"""Rule codes: which there are (no rule is loaded), and whether a choice of them makes sense."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from ddpify.checking.model import CheckError, CheckRequest
from ddpify.settings import Settings, decided

# Those that no rule file yields: they are not about what one program does by itself.
UNREADABLE, UNUSED = "DDP000", "DDP005"
OWN = (
    UNREADABLE,
    "DDP001",
    "DDP002",
    "DDP003",
    UNUSED,
    "DDP008",
    "DDP930",
    "DDP960",
    "DDP961",
    "DDP963",
    "DDP964",
)
# What is no matter of several processes is said where it is asked for.
OFF = ("DDP421",)
_FILE = re.compile(r"ddp\d{3}_\w+\.py")
_ALL = "ALL"


def known() -> tuple[str, ...]:
    """All codes, sorted; a rule's file begins with its code."""
    folders = os.walk(Path(__file__).parents[1] / "rules")
    names = (name for _, _, files in folders for name in files if _FILE.fullmatch(name))
    return tuple(sorted({*OWN, *(name[:6].upper() for name in names)}))


def near(code: str) -> tuple[str, ...]:
    """Codes that may have been meant: those that begin so, else those that look alike."""
    code = code.upper()
    begin = [one for one in known() if code and one.startswith(code)]
    return tuple(begin[:3] or difflib.get_close_matches(code, known(), n=3, cutoff=0.7))


def split(values: Iterable[str]) -> tuple[str, ...]:
    """Codes from flags that may be repeated, each with commas."""
    return tuple(code.strip() for value in values for code in value.split(",") if code.strip())


def chosen(settings: Settings, asked: CheckRequest) -> Settings:
    """The project's choice of rules as the flags change it; every code checked.

    The flags have the last word on what they name, however short; ``--select`` takes the place of
    all that the project says. What is left out is in ``ignore``, code by code.
    """
    project = _Choice.of(settings.select or None, settings.extend_select, settings.ignore)
    flags = _Choice.of(asked.select, asked.extend_select, asked.ignore)
    on = {code: flags.wants(code, project.wants(code, code not in OFF)) for code in known()}
    return replace(
        settings,
        select=(),
        ignore=tuple(code for code, wanted in on.items() if not wanted),
        extend_select=(),
        per_file_ignores=tuple((p, _prefixes(codes)) for p, codes in settings.per_file_ignores),
    )


@dataclass(frozen=True)
class _Choice:
    """What the project or the flags say; ``only``: of other rules they want none."""

    select: tuple[str, ...]
    ignore: tuple[str, ...]
    only: bool

    @classmethod
    def of(
        cls, select: tuple[str, ...] | None, extended: tuple[str, ...], ignore: tuple[str, ...]
    ) -> _Choice:
        """``select`` is None where it was not given."""
        chosen = _prefixes((*(select or ()), *extended))
        return cls(chosen, _prefixes(ignore), select is not None)

    def wants(self, code: str, before: bool) -> bool:
        """Whether a rule is on that was on or off ``before``.

        That a file cannot be read is said whatever is selected: of it no rule can say anything.
        """
        said = decided(code, self.select, self.ignore)
        if said is None:
            return before and (not self.only or code == UNREADABLE)
        return said


def _prefixes(codes: Iterable[str]) -> tuple[str, ...]:
    return tuple(_prefix(code) for code in codes)


def _prefix(code: str) -> str:
    """As rules spell it. Raises CheckError when no rule's code begins so."""
    if code.upper() == _ALL:
        return "DDP"
    if not any(one.startswith(code.upper()) for one in known()):
        others = near(code)
        hint = f"; near: {', '.join(others)}" if others else "; `ddpify rule --all` lists them"
        raise CheckError(f"no rule has a code that begins with {code!r}{hint}")
    return code.upper()
