"""Where a project keeps its copy of the helpers so that all of its files find it."""

from __future__ import annotations

import re
from pathlib import Path

from ddpify.installs import installed
from ddpify.project import Project
from ddpify.python.imports import SOURCES

PACKAGE = "core"
# What an import names without dots before it, and an import with dots.
_IMPORTED = re.compile(
    r"^[ \t]*(?:from[ \t]+(?=\w)|import[ \t]+)([\w.]+(?:[ \t]*,[ \t]*[\w.]+)*)", re.MULTILINE
)
_ADDED = re.compile(r"\bsys\.path\.(?:append|insert|extend)\(")
_RELATIVE = re.compile(r"^[ \t]*from[ \t]+\.", re.MULTILINE)


def common_place(project: Project) -> tuple[Path, str]:
    """Where every file of the program finds the copy: a folder Python searches, a package in it.

    The entry's folder, unless the program takes modules from above it: a module of the package
    ``nets`` must find the copy whoever imports ``nets``, so that it lies in ``nets`` then.
    """
    home = project.home
    above = _above(project)
    if above and not _found_late(project):
        folder = min(above, key=lambda path: len(path.parts))
        package = _package(project, folder, sorted(set(above[folder])))
        if package is not None:
            return folder, package
    if _RELATIVE.search(_text(project)):  # started with `python -m`
        folder = home.parent
        while (folder / "__init__.py").is_file() and folder != project.root:
            folder = folder.parent
        return folder, ".".join(home.relative_to(folder).parts)
    return home, PACKAGE if (home / PACKAGE / "__init__.py").is_file() else ""


def _package(project: Project, folder: Path, names: list[str]) -> str | None:
    """The package that all import the copy from, "" for the folder itself, None for neither.

    Of a folder whose packages are installed, they are all that Python is sure to find.
    """
    inits = [(name, folder / name / "__init__.py") for name in names]
    texts = {name: init.read_text("utf-8") for name, init in inits if init.is_file()}
    if len(names) == 1:
        return next(iter(texts), "")
    if not any(installed(project.root).get(name) == folder for name in names):
        return ""
    # In one that imports others it could make them import each other in a circle.
    return next((name for name, text in texts.items() if "import" not in text), None)


def _above(project: Project) -> dict[Path, list[str]]:
    """Folders above the entry's from which modules are imported, and what is taken from each."""
    found: dict[Path, list[str]] = {}
    named = {
        dotted.strip()
        for source in project.sources.values()
        for names in _IMPORTED.findall(source.text)
        for dotted in names.split(",")
    }
    for dotted in sorted(named):
        file = project.find(dotted)
        if file is not None and project.relative(file) in project.sources:
            folder = file.parents[dotted.count(".") + (file.stem == "__init__")]
            above = project.home.is_relative_to(folder) or folder == project.root / SOURCES
            if folder != project.home and above:
                found.setdefault(folder, []).append(dotted.partition(".")[0])
    return found


def _found_late(project: Project) -> bool:
    """Whether the entry imports modules beside it before it adds folders to look into."""
    text = _text(project)
    added = _ADDED.search(text)
    before = _IMPORTED.findall(text, 0, added.start()) if added is not None else ()
    files = (project.find(name.strip()) for names in before for name in names.split(","))
    return any(file is not None and file.is_relative_to(project.home) for file in files)


def _text(project: Project) -> str:
    source = project.sources.get(project.relative(project.entry))
    return source.text if source is not None else ""
