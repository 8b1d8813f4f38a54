"""The files of a project that take part: told from their texts, before anything is parsed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ddpify.configs import programs
from ddpify.ranks.imports import Modules, is_ours
from ddpify.ranks.interest import is_distributed
from ddpify.ranks.memory import TextMemory

_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+([.\w]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n#;]*)|import[ \t]+([\w., \t]+))",
    re.MULTILINE,
)


_SCRIPT = re.compile(r"^if[ \t(]+__name__[ \t]*==", re.MULTILINE)


MAX_FILES = 4000


@dataclass
class DistributedProject:
    """The files that take part, by (resolved) path."""

    modules: Modules
    texts: dict[Path, str] = field(default_factory=dict)
    imports: dict[Path, set[Path]] = field(default_factory=dict)
    distributed: set[Path] = field(default_factory=set)
    concerned: list[Path] = field(default_factory=list)  # distributed, or importing what is

    @classmethod
    def of(
        cls,
        root: Path,
        files: Sequence[Path],
        texts: Mapping[Path, bytes],
        memory: TextMemory | None = None,
    ) -> DistributedProject:
        """Read ``files`` and what they import."""
        given = {file.resolve(): raw for file, raw in texts.items()}
        project = cls(Modules(root, given, memory))
        todo = [file.resolve() for file in files]
        while todo and len(project.texts) < MAX_FILES + len(files):
            file = todo.pop()
            if file not in project.texts:
                project._take(file, given.get(file))
                todo += project.imports[file] - set(project.texts)
        project._concern()
        return project

    def _take(self, file: Path, raw: bytes | None) -> None:
        try:
            raw = file.read_bytes() if raw is None else raw
        except OSError:
            raw = b""
        text = raw.decode("utf-8", "replace").replace("\r\n", "\n")
        self.texts[file] = self.modules.words[file] = text
        self.modules.note_paths(file, text)
        self.imports[file] = {*self._imported(file, text), *self._configured(file, text)}
        if self.modules.memory.once(is_distributed, text):
            self.distributed.add(file)

    def _imported(self, file: Path, text: str) -> Iterable[Path]:
        for dotted, level in self.modules.memory.once(_imports, text):
            yield from self._found(file, dotted, level)

    def _configured(self, file: Path, text: str) -> Iterable[Path]:
        """The files of the classes that configurations name."""
        for tree in programs.trees_of(file, text, self.modules.root):
            for target in tree.targets():
                found = programs.located(target, lambda name: self.modules.find(file, name, 0))
                if found is not None and found[2] != file:
                    yield found[2]

    def _found(self, file: Path, dotted: str, level: int) -> Iterable[Path]:
        found = self.modules.find(file, dotted, level) if dotted or level else None
        if found is not None and found != file:
            yield found.resolve() if found.is_symlink() else found

    def _concern(self) -> None:
        importers: dict[Path, list[Path]] = {}
        for file, imported in self.imports.items():
            for one in imported:
                importers.setdefault(one, []).append(file)
        todo = list(self.distributed)
        found = set(todo)
        while todo:
            for importer in importers.get(todo.pop(), ()):
                if importer not in found:
                    found.add(importer)
                    todo.append(importer)
        self.concerned = sorted(found)
        self.imported = set(importers)

    def scripts(self) -> list[Path]:
        """Those of the concerned files that are run."""
        return [
            file for file in self.concerned if _SCRIPT.search(self.texts[file]) or self._runs(file)
        ]

    def _runs(self, file: Path) -> bool:
        """Whether a file without the usual ``if`` is run: not imported, and its top level acts."""
        if file in self.imported or file.name == "__init__.py":
            return False
        text = self.texts[file]
        if is_ours(file, text):
            return False
        return bool(re.search(r"^(?:for|while|with|try|if|match|[\w.]+\()", text, re.MULTILINE))


def _imports(text: str) -> tuple[tuple[str, int], ...]:
    """What a file imports, or may: dotted names, each with its level."""
    return tuple(_imported_names(text))


def _imported_names(text: str) -> Iterator[tuple[str, int]]:
    for start, names, plain in _IMPORT.findall(text):
        if plain:
            yield from ((part.split(" as ")[0].strip(), 0) for part in plain.split(","))
            continue
        dotted = start.lstrip(".")
        level = len(start) - len(dotted)
        yield dotted, level
        for name in re.findall(r"(\w+)(?:\s+as\s+\w+)?\s*(?:,|\)|$)", names):
            yield f"{dotted}.{name}".strip("."), level
