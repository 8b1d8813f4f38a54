"""A project on disk: its root, and the local modules that imports lead to (never executed)."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeVar, cast

from ddpify.python.imports import Finder, added_folders
from ddpify.roots import project_root as project_root
from ddpify.source import Source, UnreadableSource
from ddpify.steps import StepListener, untold

Made = TypeVar("Made")


@dataclass
class Files:
    """The files of one run, whichever entries they hang on: each is read and parsed once.

    ``step`` is told of each.
    """

    step: StepListener = untold
    _read: dict[Path, Source | UnreadableSource] = field(default_factory=dict)
    _made: dict[tuple[object, str], object] = field(default_factory=dict)

    def read(self, file: Path, path: str) -> Source:
        """The source of a file. Raises UnreadableSource."""
        if file not in self._read:
            self.step(f"Following the program: file {len(self._read) + 1}, {path}")
            try:
                source = Source.read(file, path)
                source.parse()
                self._read[file] = source
            except UnreadableSource as error:
                self._read[file] = error
        found = self._read[file]
        if isinstance(found, UnreadableSource):
            raise found
        return found

    def once(self, make: Callable[[Source], Made], source: Source) -> Made:
        """What ``make`` makes of a source, made once: an index of its tree, for one."""
        key = (make, source.path)
        if key not in self._made:
            self._made[key] = make(source)
        return cast(Made, self._made[key])


@dataclass
class Project:
    """The files reachable from one entry script.

    ``home`` is the folder of the entry: what Python puts first on ``sys.path``. ``files`` are
    those of the run, read for other entries, too. ``missed`` are the top names of imports that
    lead to no file of the project.
    """

    root: Path
    entry: Path
    sources: dict[str, Source] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)
    files: Files = field(default_factory=Files)
    missed: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, entry: Path) -> Project:
        """The project that hangs on ``entry``."""
        entry = entry.resolve()
        return cls(project_root(entry), entry)

    @property
    def home(self) -> Path:
        """The folder of the entry script."""
        return self.entry.parent

    def relative(self, file: Path) -> str:
        """``file`` as reports name it: a posix path below the root, where it is below it."""
        resolved = file.resolve()
        below = resolved.is_relative_to(self.root)
        return (resolved.relative_to(self.root) if below else resolved).as_posix()

    def read(self, file: Path) -> Source | None:
        """The source of a local file, each read once; None (and remembered) if unreadable."""
        path = self.relative(file)
        if path in self.unreadable:
            return None
        if path not in self.sources:
            try:
                self.sources[path] = self.files.read(file.resolve(), path)
            except UnreadableSource as error:
                self.unreadable[path] = str(error)
                return None
        return self.sources[path]

    def glance(self, file: Path) -> ast.Module | None:
        """The tree of a local file that need not be one of the program's."""
        try:
            return self.files.read(file.resolve(), self.relative(file)).parse()
        except UnreadableSource:
            return None

    def find(self, dotted: str) -> Path | None:
        """The local file an absolute import names: a module, a package, or None (not local).

        A package without ``__init__.py`` is its folder.
        """
        found = self._finder.absolute(self.home, dotted) or self._finder.package(self.home, dotted)
        if found is None:
            self.missed.add(dotted.partition(".")[0])
        return found

    def find_relative(self, importer: Path, level: int, dotted: str) -> Path | None:
        """The local file a relative import of ``importer`` names."""
        importer = importer.resolve()
        found = self._finder.relative(importer, level, dotted)
        return found or self._finder.relative_package(importer, level, dotted)

    def look_in_added(self, tree: ast.Module, file: Path) -> None:
        """Let imports also look where a module says: ``sys.path.append("lib")``."""
        known = self._finder.added
        for folder in added_folders(tree, file.resolve(), self.home):
            if folder.is_relative_to(self.root) and folder not in known:
                known.append(folder)

    @cached_property
    def _finder(self) -> Finder:
        return Finder(self.root)

    def dotted(self, file: Path) -> str:
        """The absolute name under which the entry's process imports ``file``."""
        for folder in self._search_path():
            try:
                relative = file.resolve().relative_to(folder)
            except ValueError:
                continue
            parts = list(relative.with_suffix("").parts)
            return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        return file.stem

    def _search_path(self) -> Iterator[Path]:
        yield self.home
        folder = self.home
        while folder != self.root and folder != folder.parent:
            folder = folder.parent
            yield folder
