"""What one run of ddpify found and did: the data every report is a rendering of."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ddpify.plan import Change, Clash
from ddpify.rules.base import Finding, Severity
from ddpify.source import Site


@dataclass(frozen=True)
class Refusal:
    """Why nothing is done: one sentence that names the place and the way out.

    ``finding`` is the rule's, if it is one that refuses; ``accept`` what `--accept` takes.
    """

    message: str
    site: Site | None = None
    finding: Finding | None = field(default=None, compare=False)
    accept: str = field(default="", compare=False)


@dataclass(frozen=True)
class Note:
    """Something that was left as it was, or that could not be followed."""

    site: Site
    message: str


@dataclass(frozen=True)
class Account:
    """How many uses of how many values were followed, and those that were not."""

    uses: int
    values: int
    left: tuple[Note, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """The result of analysing (and perhaps rewriting) one project.

    ``files`` are all that hang on the entries, changed or not, relative to ``root``.
    ``on_nodes`` is how each is started on several nodes, where that is asked for.
    ``starts_itself``: the programs start their processes themselves, as Lightning does.
    ``todos``: what a partial migration marks, with the lines of the written files.
    ``differences``: what is not as in one process; ``arguments``: what each entry is started with.
    """

    root: Path
    entries: tuple[str, ...]
    findings: tuple[Finding, ...] = ()
    changes: tuple[Change, ...] = ()
    clashes: tuple[Clash, ...] = ()
    notes: tuple[Note, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    files: tuple[str, ...] = ()
    account: Account | None = None
    starts_itself: bool = False
    todos: tuple[Note, ...] = ()
    differences: tuple[str, ...] = ()
    arguments: tuple[tuple[str, tuple[str, ...]], ...] = ()
    on_nodes: tuple[str, ...] = ()

    @property
    def wanting(self) -> bool:
        """Whether something is to be done; a note that only a person can settle is not."""
        return any(f.fix or f.severity is not Severity.NOTE for f in self.findings)
