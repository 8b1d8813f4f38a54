"""What a folder makes importable from anywhere: the packages that its build files install.

``pip install -e .`` lets ``scripts/train.py`` import the package beside ``scripts/``. Build files
are read, never run; what they compute is not guessed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from configparser import ConfigParser, Error
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ddpify.python.imports import SOURCES
from ddpify.settings import toml

# Folders that setuptools never takes for packages by itself.
_NO_PACKAGES = frozenset(
    """ci bin debian doc docs documentation manpages news newsfragments changelog test tests
    unit_test unit_tests example examples scripts tools util utils python build dist venv env
    requirements tasks fabfile site_scons benchmark benchmarks exercise exercises htmlcov""".split()
)
_FINDING = ("find_packages", "find_namespace_packages")


@dataclass(frozen=True)
class _Packages:
    """Those in a folder whose names fit, as ``find_packages`` has it."""

    where: str = "."
    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()

    def below(self, top: Path) -> Iterator[tuple[str, Path]]:
        """Each package, and the folder that it lies in."""
        for init in sorted((top / self.where).glob("*/__init__.py")):
            name = init.parent.name
            if _fits(name, self.include) and not _fits(name, self.exclude):
                yield name, init.parent.parent


def installed(top: Path) -> dict[str, Path]:
    """The packages that a folder installs, each with the folder that it lies in."""
    found = (_setup_py(top), _setup_cfg(top), _pyproject(top))
    said = next((one for one in found if one is not None), ())
    return {name: folder for one in said for name, folder in one.below(top)}


def _fits(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _listed(names: Iterable[Any], folders: Mapping[str, Any]) -> list[_Packages]:
    """Packages that are named; one that is said to lie under another name is not looked for."""
    tops = {str(name).partition(".")[0] for name in names}
    moved = tuple(name for name in folders if name)
    return [_Packages(str(folders.get("", ".")), tuple(tops), moved)]


# -- setup.py -------------------------------------------------------------------------------


def _setup_py(top: Path) -> list[_Packages] | None:
    """What ``setup(packages=…)`` says; None where it leaves that to others."""
    try:
        tree = ast.parse((top / "setup.py").read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    given = [call.keywords for call in calls if _named(call.func) == "setup"]
    keywords = {word.arg: word.value for words in given for word in words}
    if None in keywords or len(given) != 1:  # setup(**made): it may say anything
        return []
    packages = keywords.get("packages")
    if packages is None:
        return [] if {"py_modules", "ext_modules"} & set(keywords) else None
    try:
        folders = ast.literal_eval(keywords["package_dir"]) if "package_dir" in keywords else {}
        if isinstance(packages, ast.Call) and _named(packages.func) in _FINDING:
            return _sought(packages, dict(folders))
        return _listed(list(ast.literal_eval(packages)), dict(folders))
    except (ValueError, TypeError):
        return []


def _sought(call: ast.Call, folders: dict[str, str]) -> list[_Packages]:
    """``find_packages("src", exclude=["tests"])``. Raises ValueError where that is computed."""
    values = dict(zip(("where", "exclude", "include"), call.args, strict=False))
    given = {name: ast.literal_eval(node) for name, node in values.items()}
    given |= {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
    return _found(given, folders)


def _named(func: ast.expr) -> str:
    return ast.unparse(func).rpartition(".")[2]


# -- setup.cfg, pyproject.toml --------------------------------------------------------------


def _setup_cfg(top: Path) -> list[_Packages] | None:
    read = ConfigParser(interpolation=None)
    try:
        read.read(top / "setup.cfg", "utf-8")
    except (Error, UnicodeDecodeError):
        return []
    said = read["options"] if read.has_section("options") else {}
    packages = said.get("packages", "").split()
    pairs = (line.partition("=") for line in said.get("package_dir", "").splitlines())
    folders = {name.strip(): folder.strip() for name, is_pair, folder in pairs if is_pair}
    if [one.removesuffix(":") for one in packages] in (["find"], ["find_namespace"]):
        where = read["options.packages.find"] if read.has_section("options.packages.find") else {}
        split = {name: text.split() for name, text in where.items()}
        return _found(split, folders)
    return _listed(packages, folders) if packages else None


def _pyproject(top: Path) -> list[_Packages] | None:
    try:
        read = toml(top / "pyproject.toml")
    except (OSError, ValueError):
        read = {}
    tool = read.get("tool", {})
    backend = read.get("build-system", {}).get("build-backend", "setuptools.build_meta")
    if not backend.startswith("setuptools"):
        return _of_another_backend(top, read.get("project", {}), tool)
    if "project" not in read and not (top / "setup.py").exists():
        return None
    ours = tool.get("setuptools", {})
    packages, folders = ours.get("packages"), ours.get("package-dir", {})
    if isinstance(packages, dict):
        return _found(next(iter(packages.values()), {}), folders)  # find, or find-namespace
    if packages is not None or "py-modules" in ours:
        return _listed(packages or (), folders)
    return _automatic(top) if not folders else [_Packages(folders.get("", "."))]


def _found(given: dict[str, Any], folders: Mapping[str, Any]) -> list[_Packages]:
    """What is looked for in a folder, where that is the one from which packages are installed."""
    listed = {name: one for name, one in given.items() if isinstance(one, (str, list))}
    texts = {name: (one,) if isinstance(one, str) else tuple(one) for name, one in listed.items()}
    wheres = texts.get("where", (".",))
    include, exclude = texts.get("include", ("*",)), texts.get("exclude", ())
    moved = tuple(name for name in folders if name)
    home = Path(folders.get("", "." if folders else wheres[0]))
    return [_Packages(w, include, (*exclude, *moved)) for w in wheres if Path(w) == home]


def _automatic(top: Path) -> list[_Packages]:
    """What setuptools takes where nothing is said: all of src, or the only package."""
    if (top / SOURCES).is_dir():
        return [_Packages(SOURCES)]
    names = [path.name for path in top.iterdir() if path.is_dir() and path.name.isidentifier()]
    names = [name for name in names if name not in _NO_PACKAGES and not name.startswith("_")]
    return [_Packages(include=tuple(names))] if len(names) == 1 else []


def _of_another_backend(
    top: Path, project: Mapping[str, Any], tool: Mapping[str, Any]
) -> list[_Packages]:
    """Those that Poetry or Hatch are told of; else the one with the project's name."""
    poetry = tool.get("poetry", {})
    wheel = tool.get("hatch", {}).get("build", {}).get("targets", {}).get("wheel", {})
    said = [
        _Packages(str(one.get("from", ".")), (str(one.get("include")),))
        for one in poetry.get("packages", ())
    ]
    said += [
        _Packages(str(path.parent), (path.name,)) for path in map(Path, wheel.get("packages", ()))
    ]
    name = re.sub(r"[-.]", "_", str(project.get("name", poetry.get("name", "")))).lower()
    return said or [_Packages(where, (name,)) for where in (".", SOURCES)]
