"""The helper module: its text, and where a project keeps its own copy of it."""

from __future__ import annotations

import hashlib
import importlib.util
import re
from collections.abc import Iterable
from pathlib import Path

from ddpify import __version__
from ddpify.names import HEADER_PREFIX
from ddpify.project import Project
from ddpify.rules.base import Edit, Finding, How, Severity
from ddpify.settings import Settings
from ddpify.source import Site, Span

NAME = "ddp_utils"
PACKAGE = "core"
# What an import names without dots before it, and an import with dots.
_IMPORTED = re.compile(
    r"^[ \t]*(?:from[ \t]+(?=\w)|import[ \t]+)([\w.]+(?:[ \t]*,[ \t]*[\w.]+)*)", re.MULTILINE
)
_RELATIVE = re.compile(r"^[ \t]*from[ \t]+\.", re.MULTILINE)


def place(project: Project, settings: Settings) -> tuple[str, str]:
    """(module to import, file below the root or "" when the installed package is imported)."""
    if settings.runtime == "import":
        return "ddpify.runtime", ""
    known = _present(project)
    if known is not None:
        return _dotted(project, known), known.relative_to(project.root).as_posix()
    folder, package = _common(project)
    name = settings.runtime_module
    if name:
        folder = project.home
    else:
        name = f"{package}.{NAME}" if package else NAME
    file = folder.joinpath(*name.split(".")).with_suffix(".py")
    if file.exists() and not _is_runtime(file):
        name = f"{name}_ddpify"
        file = file.with_name(f"{file.stem}_ddpify.py")
    return name, file.relative_to(project.root).as_posix()


def _common(project: Project) -> tuple[Path, str]:
    """Where every file of the program finds the copy: a folder Python searches, a package in it.

    The entry's folder, unless the program takes modules from above it: a module of the package
    ``nets`` must find the copy whoever imports ``nets``, so that it lies in ``nets`` then.
    """
    home = project.home
    above = _above(project)
    if above:
        folder = min(above, key=lambda path: len(path.parts))
        package, *others = sorted(set(above[folder]))
        # In one of several packages it could make them import each other in a circle.
        inside = not others and (folder / package / "__init__.py").is_file()
        return folder, package if inside else ""
    if _RELATIVE.search(_text(project)):  # started with `python -m`
        folder = home.parent
        while (folder / "__init__.py").is_file() and folder != project.root:
            folder = folder.parent
        return folder, ".".join(home.relative_to(folder).parts)
    return home, PACKAGE if (home / PACKAGE / "__init__.py").is_file() else ""


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
            if folder != project.home:
                found.setdefault(folder, []).append(dotted.partition(".")[0])
    return found


def _text(project: Project) -> str:
    source = project.sources.get(project.relative(project.entry))
    return source.text if source is not None else ""


def _dotted(project: Project, file: Path) -> str:
    """The name under which all files import a copy that is there."""
    folder, package = _common(project)
    if package and file.parent == folder.joinpath(*package.split(".")):
        return f"{package}.{file.stem}"
    return project.dotted(file)


def _present(project: Project) -> Path | None:
    """The copy this project already imports."""
    for path, source in project.sources.items():
        if source.text.startswith(HEADER_PREFIX):
            return project.root / path
    folder, package = _common(project)
    default = folder.joinpath(*package.split("."), f"{NAME}.py")
    return default if _is_runtime(default) else None


def _is_runtime(file: Path) -> bool:
    return file.is_file() and file.read_bytes().startswith(HEADER_PREFIX.encode())


def opens_session(file: Path) -> bool:
    """Whether a script was migrated before: it begins a session of the helpers."""
    if _is_runtime(file):
        return False
    begins = rb"^\s*(with distributed_session\(|setup_distributed\()"
    return re.search(begins, file.read_bytes(), re.MULTILINE) is not None


def text() -> str:
    """The vendored file: a header with version and hash, then the module as it is."""
    spec = importlib.util.find_spec("ddpify.runtime")
    assert spec is not None
    assert spec.submodule_search_locations
    folder = Path(next(iter(spec.submodule_search_locations)))
    body = (folder / f"{NAME}.py").read_text("utf-8")
    return f"{HEADER_PREFIX}{__version__} {_digest(body)}\n{body}"


def _digest(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()[:12]


def drift(runtime: tuple[str, str], root: Path) -> Finding | None:
    """The finding that a copy is not the one its header names, None when it is."""
    path = runtime[1]
    if not path or not _is_runtime(root / path) or _untouched(root / path):
        return None
    message = "the copy of the helpers was changed after ddpify wrote it"
    advice = "delete it and run `ddpify migrate` again, or keep the changes in a module of your own"
    return Finding("DDP001", Site(path, Span(1, 0, 1, 0)), message, Severity.NOTE, (), advice)


def finding(runtime: tuple[str, str], root: Path, used: Iterable[str]) -> Finding | None:
    """The finding that adds the copy, or renews one without the helpers that are ``used``.

    None when the copy has them all, or none is wanted. A copy that was changed by hand is not
    overwritten: the finding has no fix then.
    """
    path = runtime[1]
    if not path:
        return None
    site = Site(path, Span(1, 0, 1, 0))
    fix = (Edit(How.NEW_FILE, site, text()),)
    if not (root / path).exists():
        message = "the helpers that the migrated code calls"
        return Finding("DDP001", site, message, Severity.NOTE, fix)
    missing = sorted(set(used) - _defined(root / path))
    if not missing:
        return None
    message = f"the copy of the helpers is of another version: it has no {', '.join(missing)}"
    if _untouched(root / path):
        return Finding("DDP001", site, message, Severity.NOTE, fix)
    advice = "it was changed by hand: move the changes into a module of your own and delete it"
    return Finding("DDP001", site, message, Severity.ERROR, (), advice)


def _untouched(file: Path) -> bool:
    """Whether a copy is as ddpify wrote it."""
    header, _, body = file.read_text("utf-8").partition("\n")
    return header.split()[-1] == _digest(body)


def _defined(file: Path) -> set[str]:
    """The functions and classes of a copy."""
    return set(re.findall(r"^(?:def|class) (\w+)", file.read_text("utf-8"), re.MULTILINE))
