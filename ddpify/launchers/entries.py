"""Which migrated entry a word on a command line names.

A script may be started from anywhere, so a path is first resolved where that is possible
and otherwise compared by its end; a name that fits two files is a question, not a guess.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from ddpify.launchers.script import Word

_OWN_FOLDER = re.compile(r"dirname.*(\$0|\$\{0|BASH_SOURCE|readlink|realpath)|\$\{(0|BASH_SOURCE)")


@dataclass(frozen=True)
class Match:
    """The entry a word names, or why that cannot be said."""

    entry: str
    problem: str = ""


@dataclass(frozen=True)
class Folders:
    """Where a command may be running, relative to the root; ``elsewhere``: or not known."""

    script: str  # the folder of the script itself
    known: tuple[str, ...]
    elsewhere: bool = False

    @classmethod
    def of_script(cls, path: str) -> Folders:
        """The script's own folder or the root: the two places people start scripts from."""
        own = posixpath.dirname(path)
        return cls(own, tuple(dict.fromkeys((own, ""))))

    def of_word(self, word: Word) -> Folders | None:
        """Where the literal end of a word starts: `"$(dirname "$0")/…"`; None if not known."""
        if word.literal is not None:
            return None if word.literal.startswith("/") else self
        own = len(word.parts) <= 2 and word.parts[0] is None and _OWN_FOLDER.search(word.text)
        return Folders(self.script, (self.script,)) if own else None

    def after_cd(self, target: Word | None) -> Folders:
        """The folders after ``cd target``."""
        if target is not None and target.parts and target.literal != "-":
            folders = self.of_word(target)
            if folders is not None:
                return folders._joined(target.tail)
        return Folders(self.script, (), elsewhere=True)

    def _joined(self, path: str) -> Folders:
        joined = tuple(dict.fromkeys(_resolved(base, path.lstrip("/")) for base in self.known))
        inside = tuple(folder for folder in joined if folder is not None)
        return Folders(self.script, inside, self.elsewhere or len(inside) < len(joined))


@dataclass(frozen=True)
class LaunchEntries:
    """The entries ddpify migrates and the project's other Python files."""

    migrated: tuple[str, ...]
    others: tuple[str, ...] = ()

    @classmethod
    def of(cls, entries: Iterable[str], files: Iterable[str]) -> LaunchEntries:
        """Sorted, each file once."""
        migrated = sorted(set(entries), key=lambda path: (path.count("/"), path))
        return cls(tuple(migrated), tuple(sorted(set(files) - set(migrated))))

    def script(self, word: Word, folders: Folders) -> Match | None:
        """The entry that ``word`` names as a path."""
        if word.literal is None and "/" not in word.tail:
            return self._built(word)
        known = folders.of_word(word)
        if known is not None:
            return self._relative((word.tail.lstrip("/"),), known)
        return self._by_end(_pieces(word.tail), longer=True)

    def module(self, word: Word, folders: Folders) -> Match | None:
        """The entry that ``word`` names as a module."""
        if word.literal is None:
            return self._built(word, dotted=True)
        stem = word.literal.replace(".", "/")
        return self._relative((f"{stem}.py", f"{stem}/__main__.py"), folders)

    def _relative(self, paths: tuple[str, ...], folders: Folders) -> Match | None:
        resolved = {_resolved(base, path) for base in folders.known for path in paths}
        ours = [entry for entry in self.migrated if entry in resolved]
        others = [path for path in self.others if path in resolved]
        if ours and others:
            return Match(ours[0], _question(others))
        if ours or others:
            return Match(ours[0]) if ours else None
        for path in paths:
            longer = folders.elsewhere or path.startswith("..")
            found = self._by_end(_pieces(path), longer)
            if found is not None:
                return found
        return None

    def _by_end(self, tail: tuple[str, ...], longer: bool) -> Match | None:
        found = _ending((*self.migrated, *self.others), tail, longer)
        ours = [path for path in found if path in self.migrated]
        others = [path for path in found if path not in self.migrated]
        if ours and others:
            return Match(ours[0], _question(others))
        return Match(ours[0]) if ours else None

    def _built(self, word: Word, dotted: bool = False) -> Match | None:
        pattern = "".join("*" if part is None else _plain(part) for part in word.parts)
        if dotted:
            pattern = pattern.replace(".", "/") + ".py"
        name = pattern.rsplit("/", 1)[-1]
        if not name.endswith(".py") or name.startswith("*.py"):
            return None
        fits = (e for e in self.migrated if fnmatchcase(posixpath.basename(e), name))
        entry = next(fits, None)
        problem = f"the name of the program, {word.text}, is put together when the script runs"
        return None if entry is None else Match(entry, problem)


def _plain(text: str) -> str:
    return re.sub(r"[*?\[]", "", text)


def _resolved(base: str, path: str) -> str | None:
    """``path`` from ``base``, relative to the root; None where it leaves the root."""
    joined = posixpath.normpath(posixpath.join(base, path))
    if joined == ".":
        return ""
    return None if joined.startswith("..") else joined


def _pieces(path: str) -> tuple[str, ...]:
    normal = posixpath.normpath("/" + path.replace("\\", "/"))
    return tuple(piece for piece in normal.split("/") if piece)


def _ending(paths: Iterable[str], tail: tuple[str, ...], longer: bool) -> list[str]:
    """Paths that end in ``tail``; with ``longer`` also the longest that ``tail`` ends in."""
    if not tail:
        return []
    split = [(path, tuple(path.split("/"))) for path in paths]
    found = [path for path, pieces in split if pieces[-len(tail) :] == tail]
    if found or not longer:
        return found
    within = [path for path, pieces in split if tail[-len(pieces) :] == pieces]
    deepest = max((path.count("/") for path in within), default=0)
    return [path for path in within if path.count("/") == deepest]


def _question(others: list[str]) -> str:
    return f"the name fits {others[0]} as well"
