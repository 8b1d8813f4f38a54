"""The files of one project, parsed once, and how imports find them."""

from __future__ import annotations

import importlib.util
import os
import re
import warnings
from functools import cache, cached_property
from pathlib import Path
from symtable import symtable
from typing import Any

from ddpify.configs.trees import ConfigTree
from ddpify.names import HEADER_PREFIX, INSTALLED
from ddpify.python.imports import added_folders
from ddpify.ranks.modules import Module, index
from ddpify.source import Source, UnreadableSource, module_file

# Libraries of which is known what they do by name, and something that each has in its folder.
_KNOWN = {
    "torch": "nn",
    "lightning": "fabric",
    "pytorch_lightning": "trainer",
    "lightning_fabric": "strategies",
    "accelerate": "accelerator.py",
    "deepspeed": "runtime",
    "transformers": "trainer.py",
}
_DECORATOR = re.compile(r"^[ \t]*@([\w.]+)", re.MULTILINE)


class Modules:
    """The files of one project, and how imports find them."""

    def __init__(self, root: Path, texts: dict[Path, bytes] | None = None) -> None:
        self.root = root.resolve()
        self.texts = texts or {}
        self.loaded: dict[Path, Module | None] = {}
        self.failures: dict[str, str] = {}
        self.words: dict[Path, str] = {}
        self.added: list[Path] = []  # what the files put on sys.path
        self.configs: dict[Path, ConfigTree] = {}  # by their folder
        self._listings: dict[Path, frozenset[str]] = {}
        self._found: dict[tuple[Path, str], Path | None] = {}

    def relative(self, file: Path) -> str:
        """``file`` as reports name it."""
        try:
            return file.relative_to(self.root).as_posix()
        except ValueError:
            return file.as_posix()

    def load(self, file: Path) -> Module | None:
        """The module of a (resolved) file, parsed once; None when it cannot be read."""
        if file not in self.loaded:
            self.loaded[file] = self._parse(file)
        return self.loaded[file]

    def check(self, file: Path) -> None:
        """Note it among the failures if it cannot be parsed; the tree of one that compiles is not
        kept."""
        if file not in self.loaded and not self._compiles(file):
            self.load(file)  # which says where and why

    def _compiles(self, file: Path) -> bool:
        """By its table of symbols, half as dear as a tree of Python objects, which nobody needs."""
        raw = self.texts.get(file)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                text: Any = file.read_bytes() if raw is None else raw  # with its coding line
                symtable(text, file.name, "exec")
        except Exception:  # whatever it is, it is said by the slower way
            return False
        return True

    def says(self, file: Path, name: str) -> bool:
        """Whether a file may define a name; told from its text, so that it need not be parsed."""
        if file not in self.words:
            try:
                raw = self.texts.get(file) or file.read_bytes()
            except OSError:
                raw = b""
            self.words[file] = raw.decode("utf-8", "replace")
        text = self.words[file]
        return name in text or "import *" in text

    def _parse(self, file: Path) -> Module | None:
        path = self.relative(file)
        try:
            raw = self.texts.get(file)
            source = Source.read(file, path) if raw is None else Source.from_bytes(raw, file, path)
            tree = source.parse()
        except UnreadableSource as error:
            self.failures[path] = str(error)
            return None
        name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        module = Module(name, source, tree, file, is_ours(file, source.text))
        index(module, tree.body)
        return module

    def find(self, importer: Path, dotted: str, level: int) -> Path | None:
        """The project's file that an import of ``importer`` names, or None."""
        folder = importer.parent
        if dotted == INSTALLED:
            home = _installed()
            return module_file(home) if home is not None else None
        if level:
            for _ in range(level - 1):
                folder = folder.parent
            return self._file(folder.joinpath(*dotted.split(".")) if dotted else folder)
        key = (folder, dotted)
        if key not in self._found:
            found = self._search(folder, dotted)
            self._found[key] = None if found is not None and _is_library(found, dotted) else found
        found = self._found[key]
        if found == importer and folder != self.root:
            return self._search(folder.parent, dotted)  # `import utils` in pkg/utils.py
        return found

    def note_paths(self, file: Path, text: str) -> None:
        """The folders that a file puts on ``sys.path``, as far as they are written out."""
        if "sys.path" not in text:
            return
        try:
            tree = Source.from_bytes(text.encode(), file, str(file)).parse()
        except UnreadableSource:
            return
        for home in (file.parent, self.root):
            for folder in added_folders(tree, file, home):
                if folder not in self.added and folder.is_dir():
                    self.added.append(folder)
                    self._found.clear()

    @cached_property
    def decorated(self) -> dict[str, list[Path]]:
        """The files in which something is decorated with a name, by each part of that name."""
        found: dict[str, list[Path]] = {}
        for file, text in list(self.words.items()):
            for name in {part for one in _DECORATOR.findall(text) for part in one.split(".")}:
                found.setdefault(name, []).append(file)
        return found

    def _may_hold(self, folder: Path, parts: list[str]) -> bool:
        """Whether the first part of a name is there: most imports are of libraries."""
        if folder not in self._listings:
            new = (file for file in self.texts if file.is_relative_to(folder))
            names = frozenset(file.relative_to(folder).parts[0] for file in new)
            self._listings[folder] = _names(folder) | names
        names = self._listings[folder]
        return parts[0] in names or f"{parts[0]}.py" in names

    def _search(self, folder: Path, dotted: str) -> Path | None:
        parts = dotted.split(".")
        while True:
            found = self._file(folder.joinpath(*parts)) if self._may_hold(folder, parts) else None
            if found is not None:
                return found
            if folder == self.root or folder == folder.parent:
                break
            folder = folder.parent
        for folder in self.added:
            found = self._file(folder.joinpath(*parts)) if self._may_hold(folder, parts) else None
            if found is not None:
                return found
        return self._file(self.root.joinpath("src", *parts))

    def _file(self, stem: Path) -> Path | None:
        """The file of a module, on disk or among the texts that are not there yet."""
        file = stem.with_name(f"{stem.name}.py") if stem.name else stem
        return file if file in self.texts else module_file(stem)


def _is_library(file: Path, dotted: str) -> bool:
    """Whether a file is one of a known library's, in that library's own repository."""
    name = dotted.partition(".")[0]
    homes = (folder for folder in file.parents if folder.name == name)
    return name in _KNOWN and any((home / _KNOWN[name]).exists() for home in homes)


def is_ours(file: Path, text: str) -> bool:
    """Whether a file is the helpers: a project's copy, by its first line, or the installed one."""
    return text.startswith(HEADER_PREFIX) or file.parent == _installed()


@cache
def _installed() -> Path | None:
    spec = importlib.util.find_spec(INSTALLED)  # which runs nothing of it
    return Path(spec.origin).parent.resolve() if spec is not None and spec.origin else None


def _names(folder: Path) -> frozenset[str]:
    try:
        return frozenset(os.listdir(folder))
    except OSError:
        return frozenset()
