"""What all rules find in one project's files: the readings put together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ddpify import todo
from ddpify.checking.cache import CacheEntry
from ddpify.checking.catalogue import named
from ddpify.checking.codes import UNUSED
from ddpify.checking.copies import Copies
from ddpify.checking.files import Group
from ddpify.checking.places import order
from ddpify.notebooks import is_notebook
from ddpify.rules.base import Finding, Severity
from ddpify.site import Site, Span
from ddpify.steps import StepListener, untold

if TYPE_CHECKING:
    from ddpify.judging import LintMemory

_OPTION = "DDP107"  # an option of the launcher's, which torchrun does not pass
_HINTS = re.compile(
    rb"distributed|lightning|accelerate|deepspeed|horovod|mpi4py|fsdp", re.IGNORECASE
)


@dataclass(frozen=True)
class Judge:
    """One group of files: ``contents`` are their bytes, ``texts`` those that are not as on disk."""

    group: Group
    contents: Mapping[Path, bytes]
    texts: Mapping[Path, bytes]

    def entry(
        self,
        assume_distributed: bool,
        step: StepListener = untold,
        memory: LintMemory | None = None,
    ) -> CacheEntry:
        """Everything that all rules find, what comments or settings silence included."""
        from ddpify.lint import lint

        linted = lint(
            self.group.root,
            self.group.python,
            texts=self.texts,
            assume_distributed=assume_distributed,
            launchers=self.group.launchers,
            step=step,
            memory=memory,
        )
        copies = Copies.of(self.group.root, self._readable(), linted.others)
        written = self._written(copies)
        fixable = map(copies.renewing, linted.findings)
        found = self._as_started(
            [*_unique((*self._left_to_do(), *written, *fixable, *self._launched()))]
        )
        return CacheEntry(
            tuple(sorted(found, key=order)),
            named({UNUSED, *(one.rule for one in found)}),
            any(_HINTS.search(raw) for raw in self.contents.values()),
            linted.programs,
            linted.others,
        )

    def _written(self, copies: Copies) -> list[Finding]:
        """What is said of files on disk, where one is read, and of no editor's buffer."""
        named = copies.findings() if set(self.group.python) - set(self.texts) else ()
        return [one for one in named if self.group.root / one.site.path not in self.texts]

    def _left_to_do(self) -> Iterator[Finding]:
        """What a partial migration has marked."""
        for file in self.group.python:
            path = file.relative_to(self.group.root).as_posix()
            for line, what in todo.marks(self.contents[file].decode("utf-8", "replace")):
                site = Site(path, Span(line, 0, line, 0))
                yield Finding(todo.CODE, site, what, Severity.ERROR, advice=todo.WAY)

    def _readable(self) -> list[Path]:
        return [f for f in self.group.python if self.contents[f] and f not in self.texts]

    def _launched(self) -> Sequence[Finding]:
        """Lines that start programs as before torchrun, torchrun where it cannot be, or several of
        what trains alone."""
        if not self.group.launchers:
            return ()
        from ddpify.launchers import legacy, no_group, per_task

        root, files = self.group.root, self.group.launchers
        scripts = [one for one in self.group.python if not is_notebook(one.name)]
        alone = no_group.findings(root, files, scripts)
        return [*legacy.findings(root, files), *per_task.findings(root, files), *alone]

    def _as_started(self, found: list[Finding]) -> list[Finding]:
        """Without what torchrun alone would do to programs that the old launcher starts, where
        nothing says torchrun: it passes the option that torchrun does not. It is a note where
        other programs alone are seen to be started."""
        root, files = self.group.root, self.group.launchers
        if all(one.rule != _OPTION for one in found) or any(
            b"torchrun" in self.contents[file] for file in files
        ):
            return found
        from ddpify.launchers import legacy

        given = legacy.given_option(root, files)
        others = [one for one in found if one.rule != _OPTION]
        if given is None:
            return others
        left = [one for one in found if one.rule == _OPTION and one.site.path not in given]
        if any(b"python" in self.contents[file] for file in files):
            left = [replace(one, severity=Severity.NOTE) for one in left]
        return [*others, *left]


def _unique(findings: Iterable[Finding]) -> Iterator[Finding]:
    """The first of each rule and place."""
    best: dict[tuple[str, Site], Finding] = {}
    for one in findings:
        best.setdefault((one.rule, one.site), one)
    return iter(best.values())
