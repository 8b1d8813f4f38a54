"""What is wrong in one project's files: the readings put together, silenced findings taken out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from ddpify import todo
from ddpify.checking.cache import CacheEntry
from ddpify.checking.catalogue import named
from ddpify.checking.copies import Copies
from ddpify.checking.files import Group, find
from ddpify.checking.ignored import Patterns, matching
from ddpify.checking.places import order
from ddpify.checking.suppress import UNUSED, may_hold, silenced
from ddpify.rules.base import Finding, Severity
from ddpify.settings import Settings, nearest_pyproject
from ddpify.site import Site, Span
from ddpify.source import Source, UnreadableSource

_OPTION = "DDP107"  # an option of the launcher's, which torchrun does not pass
_HINTS = re.compile(
    rb"distributed|lightning|accelerate|deepspeed|horovod|mpi4py|fsdp", re.IGNORECASE
)


class Judge:
    """One group of files under one choice of rules.

    ``contents`` are the bytes of its files; ``texts`` those that are not as on disk. ``patterns``
    are the settings' per-file ignores with their codes; ``whole``: folders were named.
    """

    def __init__(
        self,
        group: Group,
        contents: Mapping[Path, bytes],
        settings: Settings,
        patterns: Sequence[tuple[Patterns, tuple[str, ...]]],
        whole: bool,
    ) -> None:
        self._group = group
        self._contents = contents
        self._settings = settings
        self._patterns = patterns
        self._whole = whole

    def entry(
        self, assume_distributed: bool, jobs: int, texts: Mapping[Path, bytes] | None = None
    ) -> CacheEntry:
        """Everything that is to be reported."""
        from ddpify.lint import lint

        linted = lint(
            self._group.root,
            self._group.python,
            texts=texts,
            assume_distributed=assume_distributed,
            wants=self._settings.wants,
            jobs=jobs,
            launchers=self._group.launchers,
        )
        copies = Copies.of(self._group.root, self._readable(texts or {}), linted.others)
        written = () if texts else copies.findings()  # of files on disk, no editor's buffer
        fixable = map(copies.renewing, linted.findings)
        found = self._as_started(
            [*_unique((*self._left_to_do(), *written, *fixable, *self._launched()))]
        )
        kept = self._heard([one for one in found if self._settings.wants(one.rule)])
        return CacheEntry(
            tuple(sorted(kept, key=order)),
            named({one.rule for one in kept}),
            any(_HINTS.search(raw) for raw in self._contents.values()),
            linted.programs,
            linted.others,
        )

    def _left_to_do(self) -> Iterator[Finding]:
        """What a partial migration has marked."""
        for file in self._group.python:
            path = file.relative_to(self._group.root).as_posix()
            for line, what in todo.marks(self._contents[file].decode("utf-8", "replace")):
                site = Site(path, Span(line, 0, line, 0))
                yield Finding(todo.CODE, site, what, Severity.ERROR, advice=todo.WAY)

    def _readable(self, texts: Mapping[Path, bytes]) -> list[Path]:
        return [f for f in self._group.python if self._contents[f] and f not in texts]

    def _launched(self) -> Sequence[Finding]:
        """Lines that start programs as before torchrun, torchrun where it cannot be, or several of
        what trains alone."""
        if not self._group.launchers:
            return ()
        from ddpify.launchers import legacy, no_group, per_task

        root, files = self._group.root, self._group.launchers
        old = legacy.findings(root, files) if self._settings.wants(legacy.CODE) else []
        more = per_task.findings(root, files) if self._settings.wants(per_task.CODE) else []
        alone: list[Finding] = []
        if self._settings.wants(no_group.CODE):
            alone = no_group.findings(root, files, self._group.python)
        return [*old, *more, *alone]

    def _as_started(self, found: list[Finding]) -> list[Finding]:
        """Without what torchrun alone would do to programs that the old launcher starts, where
        nothing says torchrun: it passes the option that torchrun does not. It is a note where
        other programs alone are seen to be started."""
        root, files = self._group.root, self._group.launchers
        if all(one.rule != _OPTION for one in found) or any(
            b"torchrun" in self._contents[file] for file in files
        ):
            return found
        from ddpify.launchers import legacy

        given = legacy.given_option(root, files)
        others = [one for one in found if one.rule != _OPTION]
        if given is None:
            return others
        left = [one for one in found if one.rule == _OPTION and one.site.path not in given]
        if any(b"python" in self._contents[file] for file in files):
            left = [replace(one, severity=Severity.NOTE) for one in left]
        return [*others, *left]

    def _heard(self, findings: Sequence[Finding]) -> list[Finding]:
        """Those that no setting and no comment silences, and the comments that are unused."""
        by_path: dict[str, list[Finding]] = {}
        for one in findings:
            if self._on(one.site.path)(one.rule):
                by_path.setdefault(one.site.path, []).append(one)
        kept = []
        for path in dict.fromkeys((*self._commented(), *by_path)):
            kept += self._of_file(path, by_path.get(path, []))
        return kept

    def _of_file(self, path: str, findings: list[Finding]) -> list[Finding]:
        file = self._group.root / path
        raw = self._contents.get(file)
        if raw is None:  # reached from a file that was named
            raw = file.read_bytes() if file.is_file() else b""
        python = file in self._group.python or file.suffix == ".py"
        text = _text(raw, file, path, python) if may_hold(raw) else None
        if text is None:
            return findings
        on = self._on(path)
        kept, unused = silenced(path, text, findings, on, python)
        told = bool(unused) and python and on(UNUSED) and self._complete
        return kept + (unused if told else [])

    @cached_property
    def _complete(self) -> bool:
        """Whether the whole project is read: what a comment silences may show only from another
        file, which calls what is here."""
        root, exclude = self._group.root, self._settings.exclude
        file = nearest_pyproject(root)
        patterns = (matching(exclude, file.parent.resolve()),) if file and exclude else ()
        everything = find((root,), lambda _: patterns) if self._whole else ()
        return any(
            one.root == root and set(one.python) <= set(self._group.python) for one in everything
        )

    def _commented(self) -> Iterator[str]:
        """Files in which a comment may turn out to be unused."""
        for file in self._group.python:
            raw = self._contents.get(file, b"")
            if b"ddpify:" in raw or (b"noqa" in raw.lower() and b"ddp" in raw.lower()):
                yield file.relative_to(self._group.root).as_posix()

    def _on(self, path: str) -> Callable[[str], bool]:
        """Which rules are switched on in a file."""
        absolute = (self._group.root / path).as_posix()
        off = tuple(code for one, codes in self._patterns if one.cover(absolute) for code in codes)
        return lambda rule: self._settings.wants(rule) and not rule.startswith(off)


def _unique(findings: Iterable[Finding]) -> Iterator[Finding]:
    """The first of each rule and place."""
    best: dict[tuple[str, Site], Finding] = {}
    for one in findings:
        best.setdefault((one.rule, one.site), one)
    return iter(best.values())


def _text(raw: bytes, file: Path, path: str, python: bool) -> str | None:
    read = Source.from_bytes if python else Source.plain
    try:
        return read(raw, file, path).text
    except UnreadableSource:
        return None
