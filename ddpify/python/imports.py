"""How an import finds its file: one search for every reader, nothing is imported."""

from __future__ import annotations

import ast
import builtins
import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

SOURCES = "src"  # the folder of the packages in a `src/` layout
# What `from … import *` of these libraries gives, and nothing else.
GIVES = {"tqdm": frozenset("tqdm trange tnrange tqdm_notebook tqdm_pandas tqdm_gui".split())}


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


def starred(name: str, libraries: Iterable[str]) -> str:
    """What a name is that nothing binds: a builtin, or of the library that may give it by ``*``."""
    owners = {one for one in libraries if one not in GIVES or name in GIVES[one]}
    sure = owners & set(GIVES) or owners
    builtin = hasattr(builtins, name) or len(sure) != 1
    return f"builtins.{name}" if builtin else f"{sure.pop()}.{name}"


def _is_all(target: ast.expr) -> bool:
    return isinstance(target, ast.Name) and target.id == "__all__"


def defined(body: Iterable[ast.stmt]) -> frozenset[str]:
    """The functions and classes that a module defines at its top level."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return frozenset(node.name for node in body if isinstance(node, kinds))


def added_folders(tree: ast.AST, file: Path, home: Path) -> list[Path]:
    """The folders that a module puts on ``sys.path``, if they are written out.

    ``sys.path.append(os.path.join(os.path.dirname(__file__), "lib"))``, also through names and
    a function of its own that is given them; ``home`` is what a relative path is taken from.
    """
    written = _Written(tree, file)
    found = []
    for node in ast.walk(tree):
        for given in _added(node):
            folders = [folder for one in written.meant(given) for folder in [written.path(one)]]
            found += [(home / folder).resolve() for folder in folders if folder is not None]
    return found


def written_path(tree: ast.AST, file: Path, node: ast.expr) -> Path | None:
    """The path that an expression of a module means, as ``Path(__file__).parent / "configs"``; None
    where it is not written out, or hangs on the folder that the program is started in."""
    found = _Written(tree, file).path(node)
    plain = isinstance(node, ast.Constant)
    return found if found is None or plain or found.is_absolute() else None


def _added(node: ast.AST) -> list[ast.expr]:
    """What a statement or call puts on ``sys.path``."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) in _ADDING and node.args:
        return _listed(node.args[-1])
    if isinstance(node, ast.AugAssign) and ast.unparse(node.target) == "sys.path":
        return _listed(node.value)
    if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in (
        "sys.path",
        "sys.path[:0]",
    ):
        sums = [n for n in ast.walk(node.value) if isinstance(n, (ast.List, ast.Tuple))]
        return [one for each in sums for one in each.elts]
    return []


def _listed(node: ast.expr) -> list[ast.expr]:
    return node.elts if isinstance(node, (ast.List, ast.Tuple)) else [node]


_ADDING = ("sys.path.append", "sys.path.insert", "sys.path.extend", "site.addsitedir")
_SAME = ("abspath", "realpath", "resolve", "absolute", "str", "Path", "expanduser", "normpath")
_MARKS = (".project-root", "setup.cfg", "setup.py", ".git", "pyproject.toml")
_INDICATORS = ast.List([ast.Constant(mark) for mark in _MARKS])
_DEPTH = 16  # of paths made from paths


class _Written:
    """What the names and expressions of a module mean as paths."""

    def __init__(self, tree: ast.AST, file: Path) -> None:
        self._file = file
        self._given: dict[str, list[ast.expr]] = {}
        functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self._given.setdefault(node.targets[0].id, []).append(node.value)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                for function in (one for one in functions if one.name == node.func.id):
                    for parameter, value in zip(function.args.args, node.args, strict=False):
                        self._given.setdefault(parameter.arg, []).append(value)

    def meant(self, node: ast.expr) -> list[ast.expr]:
        """The expressions that one may stand for: those that a name is given."""
        return self._given.get(node.id, []) if isinstance(node, ast.Name) else [node]

    def path(self, node: ast.expr, depth: int = 0) -> Path | None:
        """The path that an expression means, None where it is not written out."""
        if depth > _DEPTH:
            return None
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return Path(node.value)
        if isinstance(node, ast.Name):
            given = self._given.get(node.id, [])
            known = self._file if node.id == "__file__" else None
            return self.path(given[0], depth + 1) if len(given) == 1 else known
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            return self._joined([node.left, node.right], depth)
        return self._part(node, depth)

    def _part(self, node: ast.expr, depth: int) -> Path | None:
        """``x.parent``, ``x.parents[1]``, ``os.pardir``, a call."""
        if isinstance(node, ast.Attribute) and node.attr == "parent":
            inner = self.path(node.value, depth + 1)
            return inner.parent if inner is not None else None
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("os.pardir", "os.path.pardir"):
            return Path("..")
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute):
            inner = self.path(node.value.value, depth + 1)
            number = node.slice.value if isinstance(node.slice, ast.Constant) else None
            above = (
                list(inner.parents) if inner is not None and node.value.attr == "parents" else []
            )
            return above[number] if isinstance(number, int) and 0 <= number < len(above) else None
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):  # `root + "/configs"`
            text = getattr(node.right, "value", None)
            below = text[1:] if isinstance(text, str) and text[:1] == "/" else ""
            return self._joined([node.left, ast.Constant(below)], depth) if below else None
        return self._called(node, depth) if isinstance(node, ast.Call) else None

    def _called(self, node: ast.Call, depth: int) -> Path | None:
        name = ast.unparse(node.func).rpartition(".")[2]
        method = isinstance(node.func, ast.Attribute) and not node.args
        inner = node.func.value if method and isinstance(node.func, ast.Attribute) else None
        given = [inner] if inner is not None else node.args
        if name == "join":
            return self._joined(given, depth)
        if name in ("getcwd", "cwd"):
            return Path(".")
        if name in ("setup_root", "find_root"):
            return self._root(node, depth)
        found = self.path(given[0], depth + 1) if given else None
        if found is None or name not in (*_SAME, "dirname"):
            return None
        return found.parent if name == "dirname" else found

    def _root(self, node: ast.Call, depth: int) -> Path | None:
        """``rootutils.setup_root(__file__, indicator=".git")``: the folder above that has one."""
        given = {one.arg: one.value for one in node.keywords}
        given |= dict(zip(("search_from", "indicator"), node.args, strict=False))
        asked = given.get("indicator", _INDICATORS)
        marks = [getattr(one, "value", None) for one in _listed(asked)]
        start = self.path(given["search_from"], depth + 1) if "search_from" in given else None
        above = start.resolve().parents if start is not None else ()
        known = (f for f in above if any(isinstance(m, str) and (f / m).exists() for m in marks))
        return next(known, None)

    def _joined(self, parts: list[ast.expr], depth: int) -> Path | None:
        found = [self.path(part, depth + 1) for part in parts]
        return Path(*[p for p in found if p is not None]) if found and None not in found else None
