"""What a project's files were found to hold, kept beside them until a byte of them changes.

One JSON file for each choice of files, with what all rules find. A cache that cannot be read or
written is none: nothing here ever fails.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from ddpify import __version__
from ddpify.checking.files import Group, files_below
from ddpify.checking.model import Named
from ddpify.checking.records import finding, record
from ddpify.programs import Program
from ddpify.rules.base import Finding

FOLDER = ".ddpify_cache"
_MOST = 64  # choices of one project that are remembered
_BROKEN = (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError)


@dataclass(frozen=True)
class CacheEntry:
    """A group of files and its findings, as the cache keeps them: paths relative to the root."""

    findings: tuple[Finding, ...]
    rules: Mapping[str, Named]
    applies: bool = False
    programs: tuple[Program, ...] = ()
    others: tuple[Path, ...] = ()  # files that were not named, and read because others import them


@dataclass(frozen=True)
class Slot:
    """Where the answer for one choice of files is kept; of rules there is none in it."""

    file: Path
    group: Group
    whole: bool  # all files of the project are among those that are named

    @classmethod
    def of(cls, group: Group, assumed: bool, folder: Path | None, whole: bool) -> Slot:
        """The slot for these files, read as they are or as if they were distributed."""
        names = [one.as_posix() for one in (group.root, *group.python, *group.launchers)]
        key = _digest("\0".join((str(assumed), *names)).encode("utf-8", "surrogateescape"))
        return cls((folder or group.root / FOLDER) / __version__ / f"{key}.json", group, whole)

    def load(self, contents: Mapping[Path, bytes]) -> CacheEntry | None:
        """The remembered findings, if they still hold; ``contents``: the bytes of the files."""
        try:
            data = json.loads(self.file.read_bytes())
            current = data["state"] == self._state(contents)
            return _entry(data) if current and _unchanged(data["others"]) else None
        except _BROKEN:
            return None

    def store(self, contents: Mapping[Path, bytes], entry: CacheEntry) -> None:
        """Remember it, or not, where nothing may be written."""
        with suppress(*_BROKEN):
            _mark(self.file.parents[1])
            _write(self.file, json.dumps(_data(entry, self._state(contents))))
            _prune(self.file.parent)

    def _state(self, contents: Mapping[Path, bytes]) -> str:
        """A digest of everything that the answer rests on, ddpify's own files included.

        Files that were not named but are what an import may mean count by size and time.
        """
        parts = [sys.version, *_own()]
        parts += [f"{path}\0{_digest(raw)}" for path, raw in contents.items()]
        if not self.whole:
            others = (one for one in files_below(self.group.root) if one not in contents)
            parts += sorted(f"{one}\0{_stamp(one.stat())}" for one in others)
        return _digest("\1".join(parts).encode("utf-8", "surrogateescape"))


def _entry(data: Mapping[str, Any]) -> CacheEntry:
    return CacheEntry(
        tuple(finding(one) for one in data["findings"]),
        {code: Named(str(name), bool(safe)) for code, (name, safe) in data["rules"].items()},
        bool(data["applies"]),
        tuple(Program._make([*one[:-1], tuple(one[-1])]) for one in data["programs"]),
    )


def _data(entry: CacheEntry, state: str) -> dict[str, Any]:
    return {
        "state": state,
        "findings": [record(one) for one in entry.findings],
        "rules": {code: [named.name, named.safe] for code, named in entry.rules.items()},
        "applies": entry.applies,
        "programs": list(entry.programs),
        "others": {str(path): _stamp(path.stat()) for path in entry.others},
    }


def _unchanged(others: Mapping[str, str]) -> bool:
    """Whether what is imported, be it ignored by git, is what it was."""
    return all(_stamp(os.stat(path)) == stamp for path, stamp in others.items())


def _own() -> Iterable[str]:
    """What changes when ddpify does, also between two versions."""
    top = Path(__file__).parents[1]
    folders = (top, *(Path(item.path) for item in os.scandir(top) if item.is_dir()))
    for folder in folders:
        for item in os.scandir(folder):
            if item.name.endswith(".py"):
                yield f"{item.name}\0{_stamp(item.stat())}"


def _stamp(status: os.stat_result) -> str:
    return f"{status.st_size}\0{status.st_mtime_ns}"


_MARK = "# Made by ddpify.\n*\n"


def is_marked(folder: Path) -> bool:
    """Whether ddpify has made a folder: it is a cache and nothing else."""
    try:
        return (folder / ".gitignore").read_text("utf-8") == _MARK
    except (OSError, UnicodeDecodeError):
        return False


def _mark(folder: Path) -> None:
    """A new folder is no part of the project: git is told so, and backup programs."""
    if not folder.exists():
        folder.mkdir(parents=True)
        _write(folder / ".gitignore", _MARK)
        tag = "Signature: 8a477f597d28d172789f06886806bc55\n# https://bford.info/cachedir/\n"
        _write(folder / "CACHEDIR.TAG", tag)


def _write(file: Path, text: str) -> None:
    """All of it or nothing, also when two runs write at once."""
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f"{file.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, "utf-8", "surrogateescape")
        os.replace(temporary, file)
    finally:
        temporary.unlink(missing_ok=True)


def _prune(folder: Path) -> None:
    """The oldest go when there are too many."""
    kept = sorted(folder.glob("*.json"), key=lambda one: one.stat().st_mtime)
    for old in kept[:-_MOST]:
        old.unlink(missing_ok=True)


def _digest(raw: bytes) -> str:
    return blake2b(raw, digest_size=16).hexdigest()
