"""What is asked of ``check`` and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ddpify.checking.causes import FindingCause, causes
from ddpify.programs import Program, Skipped
from ddpify.rules.base import Finding, Severity
from ddpify.settings import Settings, load

if TYPE_CHECKING:
    from ddpify.judging import LintMemory


class CheckError(Exception):
    """Nothing can be checked; the message is one sentence for the user."""


@dataclass(frozen=True)
class CheckRequest:
    """The flags of one run; None and () were not given.

    ``text`` is what standard input holds, as if it were the file ``stdin``. ``force_exclude``: what
    the settings exclude is left out though it is named. ``exclude`` are patterns from the current
    folder, ``config`` settings as ``KEY=VALUE``; ``comments``: those that silence count.
    ``buffers``: files that are not as on disk; ``memory``: what the last reading of the same
    project left.
    """

    paths: tuple[Path, ...]
    select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] = ()
    extend_select: tuple[str, ...] = ()
    assume_distributed: bool = False
    cache: bool = True
    cache_dir: Path | None = None
    stdin: Path | None = None
    text: bytes = b""
    force_exclude: bool = False
    exclude: tuple[str, ...] = ()
    config: tuple[str, ...] = ()
    comments: bool = True
    buffers: Mapping[Path, bytes] = field(default_factory=dict)
    memory: LintMemory | None = None

    def settings(self, start: Path) -> Settings:
        """Those of the project that holds ``start``. Raises SettingsError."""
        return load(start, {"config": self.config})


@dataclass(frozen=True)
class Named:
    """What reports say of a rule besides its code: name, and whether its fix is safe."""

    name: str
    safe: bool


@dataclass(frozen=True)
class Checked:
    """The answer. Paths in ``findings`` lead there from the current folder, or from the top.

    ``findings`` has one for each place; ``causes`` is what reports tell.

    ``applies``: something in the files hints at training with several processes; ``programs``:
    those that were read so, scripts and functions that no script enters; ``skipped``: what was
    found and not read. ``texts``: files that are not (yet) as on disk.
    """

    findings: tuple[Finding, ...] = ()
    rules: Mapping[str, Named] | None = None
    files: int = 0
    applies: bool = False
    programs: tuple[Program, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    texts: Mapping[str, bytes] | None = None
    fixed: int = 0

    @property
    def wanting(self) -> bool:
        """Whether something is to be done; notes are for a person to settle."""
        return any(one.severity is not Severity.NOTE for one in self.findings)

    @property
    def unread(self) -> tuple[str, ...]:
        """The programs that were not read to their ends, each with what was not reached."""
        return tuple(one.left for one in self.programs if not one.complete)

    @cached_property
    def causes(self) -> tuple[FindingCause, ...]:
        """The findings, several places of one cause as one."""
        return causes(self.findings)

    def name(self, code: str) -> str:
        """The rule's name; "" if it has none."""
        named = (self.rules or {}).get(code)
        return named.name if named else ""

    def safe(self, finding: Finding) -> bool:
        """Whether the finding has a fix that cannot change anything else."""
        named = (self.rules or {}).get(finding.rule)
        return bool(finding.fix) and (named is None or named.safe)
