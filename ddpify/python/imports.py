"""How an import finds its file: one search for every reader, nothing is imported."""

from __future__ import annotations

import ast
import os
from collections.abc import Collection, Iterator
from pathlib import Path

SOURCES = "src"  # the folder of the packages in a `src/` layout


class Finder:
    """The search for the files of one project.

    ``unsaved`` are files that are not on disk yet; ``added`` what the program puts on
    ``sys.path``, see `added_folders`.
    """

    def __init__(self, root: Path, unsaved: Collection[Path] = ()) -> None:
        self.root = root
        self.unsaved = unsaved
        self.added: list[Path] = []
        self._listings: dict[Path, frozenset[str]] = {}

    def absolute(self, folder: Path, dotted: str) -> Path | None:
        """The file that ``import dotted`` means in a program that is started in ``folder``."""
        parts = dotted.split(".")
        found = (self.file(at.joinpath(*parts)) for at in self._folders(folder, parts[0]))
        return next((file for file in found if file is not None), None)

    def relative(self, importer: Path, level: int, dotted: str) -> Path | None:
        """The file that ``from ..dotted import x`` means in ``importer``; two dots: level 2."""
        return self.file(_beside(importer, level, dotted))

    def package(self, folder: Path, dotted: str) -> Path | None:
        """The folder of a package without ``__init__.py``, where that is what a name means."""
        parts = dotted.split(".")
        found = (at.joinpath(*parts) for at in self._folders(folder, parts[0]))
        return next((at for at in found if self._holds_modules(at)), None)

    def relative_package(self, importer: Path, level: int, dotted: str) -> Path | None:
        """The same for a relative import."""
        found = _beside(importer, level, dotted)
        return found if self._holds_modules(found) else None

    def file(self, stem: Path) -> Path | None:
        """The file of a module, or of a package's ``__init__``: on disk or not saved yet."""
        named = [stem.with_name(f"{stem.name}.py")] if stem.name else []
        for file in (*named, stem / "__init__.py"):
            if file in self.unsaved or file.is_file():
                return file
        return None

    def _folders(self, folder: Path, top: str) -> Iterator[Path]:
        for at in (*self.added, *_upwards(folder, self.root), self.root / SOURCES):
            names = self._names(at)  # most imports are of libraries
            if top in names or f"{top}.py" in names:
                yield at

    def _names(self, folder: Path) -> frozenset[str]:
        if folder not in self._listings:
            try:
                names = frozenset(os.listdir(folder))
            except OSError:
                names = frozenset()
            new = (file for file in self.unsaved if file.is_relative_to(folder))
            names |= {file.relative_to(folder).parts[0] for file in new}
            self._listings[folder] = names
        return self._listings[folder]

    def _holds_modules(self, folder: Path) -> bool:
        names = self._names(folder) if folder != self.root else ()
        return any(name.endswith(".py") or self._is_package(folder / name) for name in names)

    def _is_package(self, folder: Path) -> bool:
        return any(name.endswith(".py") for name in self._names(folder))


def _beside(importer: Path, level: int, dotted: str) -> Path:
    folder = importer.parent
    for _ in range(level - 1):
        folder = folder.parent
    return folder.joinpath(*dotted.split(".")) if dotted else folder


def _upwards(folder: Path, root: Path) -> Iterator[Path]:
    """A folder and those above it, up to the root."""
    yield folder
    while folder not in (root, folder.parent):
        folder = folder.parent
        yield folder


def exported(body: list[ast.stmt]) -> list[str] | None:
    """What ``__all__`` says, None where a module has none or it is not written out."""
    for node in body:
        if isinstance(node, ast.Assign) and any(_is_all(target) for target in node.targets):
            try:
                return [str(name) for name in ast.literal_eval(node.value)]
            except (ValueError, TypeError):
                return None
    return None


def _is_all(target: ast.expr) -> bool:
    return isinstance(target, ast.Name) and target.id == "__all__"


def added_folders(tree: ast.AST, file: Path, home: Path) -> list[Path]:
    """The folders that ``sys.path.append(…)`` and ``.insert(0, …)`` add, if they are written out.

    ``sys.path.append(os.path.join(os.path.dirname(__file__), "lib"))``; ``home`` is what a
    relative path is taken from.
    """
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in _ADDING and node.args:
            folder = _path(node.args[-1], file)
            found += [(home / folder).resolve()] if folder is not None else []
    return found


_ADDING = ("sys.path.append", "sys.path.insert")
_SAME = ("abspath", "realpath", "resolve", "absolute", "str", "Path", "expanduser")


def _path(node: ast.expr, file: Path) -> Path | None:
    """The path that an expression means, None where it is not written out."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return Path(node.value)
    if isinstance(node, ast.Name):
        return file if node.id == "__file__" else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return _joined([node.left, node.right], file)
    if isinstance(node, ast.Attribute) and node.attr == "parent":
        inner = _path(node.value, file)
        return inner.parent if inner is not None else None
    return _path_called(node, file) if isinstance(node, ast.Call) else None


def _path_called(node: ast.Call, file: Path) -> Path | None:
    name = ast.unparse(node.func).rpartition(".")[2]
    method = isinstance(node.func, ast.Attribute) and not node.args
    inner = node.func.value if method and isinstance(node.func, ast.Attribute) else None
    given = [inner] if inner is not None else node.args
    if name == "join":
        return _joined(given, file)
    found = _path(given[0], file) if given else None
    if found is None or name not in (*_SAME, "dirname"):
        return None
    return found.parent if name == "dirname" else found


def _joined(parts: list[ast.expr], file: Path) -> Path | None:
    found = [_path(part, file) for part in parts]
    return Path(*[p for p in found if p is not None]) if found and None not in found else None
