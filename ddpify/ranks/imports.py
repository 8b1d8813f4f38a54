"""The files of one project, parsed once, and how imports find them."""

from __future__ import annotations

import importlib.util
import os
import re
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from symtable import symtable
from typing import Any, TypeVar, cast

from ddpify.configs.trees import ConfigTree
from ddpify.names import HEADER_PREFIX, INSTALLED
from ddpify.python.imports import added_folders
from ddpify.ranks.memory import TextMemory
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
Answered = TypeVar("Answered")


class Modules:
    """The files of one project, and how imports find them.

    ``looked`` are the files that were asked about, ``answered`` the questions to all of them, since
    whoever wants to know emptied these; ``ordered``: an answer hung on what was read before.
    """

    def __init__(
        self,
        root: Path,
        texts: dict[Path, bytes] | None = None,
        memory: TextMemory | None = None,
    ) -> None:
        self.root = root.resolve()
        self.texts = texts or {}
        self.memory = memory or TextMemory()
        self.looked: set[Path] = set()
        self.answered: dict[Callable[[Modules], object], object] = {}
        self.ordered = False
        self._answers: dict[Callable[[Modules], object], object] = {}
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
        self.looked.add(file)
        if file not in self.loaded:
            self.loaded[file] = self._parse(file)
        return self.loaded[file]

    def check(self, file: Path) -> None:
        """Note it among the failures if it cannot be parsed; the tree of one that compiles is not
        kept."""
        if file not in self.loaded and not self._compiles(file):
            self.load(file)  # which says where and why

    def _compiles(self, file: Path) -> bool:
        raw = self._raw(file)
        return raw is not None and self.memory.once(_compiles, raw, file.name)

    def _raw(self, file: Path) -> bytes | None:
        try:
            return self.texts[file] if file in self.texts else file.read_bytes()
        except OSError:
            return None

    def text(self, file: Path) -> str:
        """What a file holds; nothing, where it cannot be read."""
        if file not in self.words:
            self.words[file] = (self._raw(file) or b"").decode("utf-8", "replace")
        return self.words[file]

    def says(self, file: Path, name: str) -> bool:
        """Whether a file may define a name; told from its text, so that it need not be parsed."""
        self.looked.add(file)
        text = self.text(file)
        return name in text or "import *" in text

    def answer(self, question: Callable[[Modules], Answered]) -> Answered:
        """What all files together say to a question, which is asked once."""
        if question not in self._answers:
            looked, self.looked = self.looked, set()  # who hangs on the answer hangs on no more
            self._answers[question] = question(self)
            self.looked = looked
        found = self.answered[question] = self._answers[question]
        return cast(Answered, found)

    def _parse(self, file: Path) -> Module | None:
        path = self.relative(file)
        try:
            source = self._source(file, path)
            tree = source.parse()
        except UnreadableSource as error:
            self.failures[path] = str(error)
            return None
        name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        module = Module(name, source, tree, file, is_ours(file, source.text))
        index(module, tree.body)
        return module

    def _source(self, file: Path, path: str) -> Source:
        raw = self._raw(file)
        if raw is None:
            return Source.read(file, path)  # which says why
        found = self.memory.once(_read, raw, file, path)
        if isinstance(found, UnreadableSource):
            raise found
        return found

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
        added = self.memory.once(_added, text, file, self.root) if "sys.path" in text else ()
        for folder in added:
            if folder not in self.added and folder.is_dir():
                self.added.append(folder)
                self._found.clear()

    @property
    def decorated(self) -> dict[str, list[Path]]:
        """The files in which something is decorated with a name, by each part of that name."""
        return self.answer(_decorated)

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


def _compiles(raw: bytes, name: str) -> bool:
    """By its table of symbols, half as dear as a tree of Python objects, which nobody needs."""
    text: Any = raw  # with its coding line
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            symtable(text, name, "exec")
    except Exception:  # whatever it is, it is said by the slower way
        return False
    return True


def _read(raw: bytes, file: Path, path: str) -> Source | UnreadableSource:
    try:
        source = Source.from_bytes(raw, file, path)
        source.parse()
    except UnreadableSource as error:
        return error.with_traceback(None)
    return source


def _added(text: str, file: Path, root: Path) -> tuple[Path, ...]:
    try:
        tree = Source.from_bytes(text.encode(), file, str(file)).parse()
    except UnreadableSource:
        return ()
    homes = (file.parent, root)
    return tuple(folder for home in homes for folder in added_folders(tree, file, home))


def _decorated(modules: Modules) -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for file, text in list(modules.words.items()):
        for name in modules.memory.once(_decorators, text):
            found.setdefault(name, []).append(file)
    return found


def _decorators(text: str) -> frozenset[str]:
    return frozenset(part for one in _DECORATOR.findall(text) for part in one.split("."))


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
