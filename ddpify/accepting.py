"""What the user takes for right: ``--accept DDP006@main.py:12``, a refusal at one line.

What is accepted does not end the migration; it is still said, as a note.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ddpify.outcome import Note, Outcome
from ddpify.rules.base import Finding, Severity
from ddpify.settings import Settings
from ddpify.source import Site, Span

_SAID = "accepted by --accept: "
_NOTHING = "it cannot be accepted, for nothing would be sharded"
_NEEDED = ("DDP973",)  # without its fix nothing is migrated: nothing would be sharded


@dataclass(frozen=True)
class Acceptance:
    """A rule whose refusal at one line of one file, below ``root``, is taken for right."""

    root: Path
    rule: str
    path: str
    line: int

    @classmethod
    def all(cls, settings: Settings, root: Path) -> tuple[Acceptance, ...]:
        """Each that the settings hold."""
        found = []
        for text in dict.fromkeys(settings.accept):
            rule, _, place = text.partition("@")
            path, _, line = place.rpartition(":")
            found.append(cls(root, rule, path, int(line)))
        return tuple(found)

    def covers(self, rule: str, site: Site) -> bool:
        """Whether this is about a finding; its file is named from the project or from here."""
        same = self.path == site.path or self.file == (self.root / site.path).resolve()
        return (rule, site.span.line) == (self.rule, self.line) and same

    @property
    def file(self) -> Path:
        """The file that is named from the current folder."""
        return Path(self.path).resolve()

    def __str__(self) -> str:
        return f"{self.rule}@{self.path}:{self.line}"


def is_accepted(rule: str, site: Site, settings: Settings, root: Path) -> bool:
    """Whether a refusal by a rule, at a place in the project at ``root``, is taken for right."""
    all_of_them = Acceptance.all(settings, root) if is_acceptable(rule) else ()
    return any(one.covers(rule, site) for one in all_of_them)


def is_acceptable(rule: str) -> bool:
    """Whether there is a migration without what a rule asks for."""
    return rule not in _NEEDED


def note(finding: Finding, site: Site) -> Note:
    """What is said of a finding that was accepted."""
    return Note(site, f"{finding.rule} {_SAID}{finding.message}")


def taken(
    findings: Iterable[Finding], settings: Settings, root: Path
) -> tuple[list[Finding], tuple[Note, ...]]:
    """The findings but for refusals that are accepted, and what is said of these."""
    left, notes = [], []
    for one in findings:
        refuses = one.severity is Severity.ERROR and not one.fix
        if refuses and is_accepted(one.rule, one.site, settings, root):
            notes.append(note(one, one.site))
        else:
            left.append(one)
    return left, tuple(dict.fromkeys(notes))


def idle(outcome: Outcome, settings: Settings) -> tuple[Note, ...]:
    """One note for each acceptance that nothing needed; not of files of other programs."""
    found = []
    for one in Acceptance.all(settings, outcome.root):
        said = (n for n in outcome.notes if n.message.startswith(f"{one.rule} {_SAID}"))
        elsewhere = one.path not in outcome.files and (outcome.root / one.path).is_file()
        if not elsewhere and not any(one.covers(one.rule, n.site) for n in said):
            site = Site(one.path, Span(one.line, 0, one.line, 0))
            why = "there is no such refusal" if is_acceptable(one.rule) else _NOTHING
            found.append(Note(site, f"--accept {one}: {why}"))
    return tuple(found)
