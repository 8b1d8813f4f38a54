"""What of the findings is reported: those that no setting and no comment silences."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ddpify.checking.codes import UNUSED
from ddpify.checking.files import Group, find
from ddpify.checking.ignored import Patterns, matching
from ddpify.rules.base import Finding
from ddpify.settings import Settings, nearest_pyproject

_COMMENTED = re.compile(rb"ddpify:\s*ignore|noqa\s*:.*ddp")


@dataclass(frozen=True)
class Hearing:
    """One group of files under one choice of rules.

    ``contents`` are the bytes of its files; ``patterns`` the settings' per-file ignores with their
    codes; ``whole``: folders were named; ``comments``: what they silence is not reported.
    """

    group: Group
    contents: Mapping[Path, bytes]
    settings: Settings
    patterns: Sequence[tuple[Patterns, tuple[str, ...]]]
    whole: bool
    comments: bool = True

    def heard(self, findings: Iterable[Finding]) -> list[Finding]:
        """Those that no setting and no comment silences, and the comments that are unused."""
        by_path: dict[str, list[Finding]] = {}
        for one in findings:
            if self._on(one.site.path)(one.rule):
                by_path.setdefault(one.site.path, []).append(one)
        if not self.comments:
            return [one for found in by_path.values() for one in found]
        kept = []
        for path in dict.fromkeys((*self._commented(), *by_path)):
            kept += self._of_file(path, by_path.get(path, []))
        return kept

    def _of_file(self, path: str, findings: list[Finding]) -> list[Finding]:
        file = self.group.root / path
        raw = self.contents.get(file)
        if raw is None:  # reached from a file that was named
            raw = file.read_bytes() if file.is_file() else b""
        python = file in self.group.python or file.suffix == ".py"
        if b"ddpify:" not in raw and b"noqa" not in raw.lower():
            return findings
        # a tokenizer: loaded where there is a comment to be read
        from ddpify.checking.suppress import silenced

        text = _text(raw, file, path, python)
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
        root, exclude = self.group.root, self.settings.exclude
        file = nearest_pyproject(root)
        patterns = (matching(exclude, file.parent.resolve()),) if file and exclude else ()
        everything = find((root,), lambda _: patterns) if self.whole else ()
        return any(
            one.root == root and set(one.python) <= set(self.group.python) for one in everything
        )

    def _commented(self) -> Iterator[str]:
        """Files in which a comment may turn out to be unused."""
        for file in self.group.python:
            low = self.contents.get(file, b"").lower()
            words = b"ddpify:" in low or (b"noqa" in low and b"ddp" in low)  # most have none
            if words and _COMMENTED.search(low):
                yield file.relative_to(self.group.root).as_posix()

    def _on(self, path: str) -> Callable[[str], bool]:
        """Which rules are switched on in a file."""
        absolute = (self.group.root / path).as_posix()
        off = tuple(code for one, codes in self.patterns if one.cover(absolute) for code in codes)
        return lambda rule: self.settings.wants(rule) and not rule.startswith(off)


def _text(raw: bytes, file: Path, path: str, python: bool) -> str | None:
    from ddpify.source import Source, UnreadableSource

    read = Source.from_bytes if python else Source.plain
    try:
        return read(raw, file, path).text
    except UnreadableSource:
        return None
