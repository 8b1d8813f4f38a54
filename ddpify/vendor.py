"""The helpers: their text, and where a project keeps its own copy of it.

A copy is one file or two: the second holds what reduces and gathers, and is there only where an
edit imports from it. Each holds what the project calls (``assembly``). An older project imports
everything from the first file; it stays so when the copy is renewed.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ddpify import __version__
from ddpify.assembly import assemble, definitions, needed
from ddpify.discover import python_files
from ddpify.names import (
    CORE,
    EARLIER_NAMES,
    FITTED,
    FITTED_NAMES,
    HEADER_PREFIX,
    INSTALLED,
    METRICS,
    METRICS_NAMES,
    RUNTIME_NAMES,
    SHARDS,
    SHARDS_NAMES,
    STORED,
    STORED_NAMES,
    metrics_beside,
)
from ddpify.placing import common_place
from ddpify.project import Project
from ddpify.rules.base import Edit, Finding, How, Severity
from ddpify.seal import is_sealed, seal
from ddpify.settings import Settings
from ddpify.source import Site, Span

RULE = "DDP001"
_IMPORTABLE = RUNTIME_NAMES | {earlier for earlier, _ in EARLIER_NAMES}
_NOTE = "# What this project uses of them; `ddpify migrate` adds what else it comes to use."
_BEGINS = re.compile(rb"^\s*(with distributed_session\(|setup_distributed\()", re.MULTILINE)
_IMPORTS = re.compile(
    rb"^\s*from\s+([\w.]+)\s+import\s+(?:\([^)]*|[^(\n]*)\b(?:distributed_session|setup_distributed)\b",
    re.MULTILINE,
)


def place(project: Project, settings: Settings) -> tuple[str, str]:
    """(module to import, file below the root or "" when the installed package is imported)."""
    if settings.runtime == "import":
        return INSTALLED, ""
    known = _present(project)
    if known is not None:
        return _dotted(project, known), known.relative_to(project.root).as_posix()
    folder, package = common_place(project)
    name = settings.runtime_module
    if name:
        folder = project.home
    else:
        name = f"{package}.{CORE}" if package else CORE
    file = folder.joinpath(*name.split(".")).with_suffix(".py")
    if any(one.exists() and not _is_runtime(one) for one in (file, _beside(file))):
        name = f"{name}_ddpify"
        file = file.with_name(f"{file.stem}_ddpify.py")
    return name, file.relative_to(project.root).as_posix()


def _dotted(project: Project, file: Path) -> str:
    """The name under which all files import a copy that is there."""
    folder, package = common_place(project)
    if package and file.parent == folder.joinpath(*package.split(".")):
        return f"{package}.{file.stem}"
    return project.dotted(file)


def _present(project: Project) -> Path | None:
    """The copy this project already imports."""
    for path, source in project.sources.items():
        if source.text.startswith(HEADER_PREFIX) and _is_core(source.text):
            return project.root / path
    folder, package = common_place(project)
    default = folder.joinpath(*package.split("."), f"{CORE}.py")
    return default if _is_runtime(default) else None


def is_first(module: str) -> bool:
    """Whether a module has the name of the first file of a copy."""
    return module.rpartition(".")[2].startswith(CORE)


def _beside(core: Path) -> Path:
    return core.with_name(f"{metrics_beside(core.stem)}.py")


def is_core(file: Path) -> bool:
    """Whether a file is a copy of the first file of the helpers."""
    return _is_runtime(file) and _is_core(file.read_text("utf-8"))


def _is_core(text: str) -> bool:
    """Whether a copy is the first file, without which there is no second."""
    return re.search(r"^def (?:_launched|from_rank_zero)\(", text, re.MULTILINE) is not None


def _is_runtime(file: Path) -> bool:
    return file.is_file() and file.read_bytes().startswith(HEADER_PREFIX.encode())


def opens_session(file: Path, copies: Iterable[Path]) -> bool:
    """Whether a script was migrated before: it begins a session of the helpers, of which these
    are ``copies``, and not by a function of its own that has such a name."""
    raw = file.read_bytes()
    if raw.startswith(HEADER_PREFIX.encode()) or _BEGINS.search(raw) is None:
        return False
    modules = [found.group(1).decode() for found in _IMPORTS.finditer(raw)]
    stems = {copy.stem for copy in copies}
    return any(one == INSTALLED or one.rpartition(".")[2] in stems for one in modules)


def core_text(wanted: Collection[str] = _IMPORTABLE - METRICS_NAMES) -> str:
    """The first file, with the helpers that are ``wanted``: all that belong there, or some of any.

    The second one's are among them where a project imports them from here, as it once did.
    """
    sources = [_source(CORE)]
    more_of_them = (
        (METRICS_NAMES, METRICS),
        (SHARDS_NAMES, SHARDS),
        (STORED_NAMES, STORED),
        (FITTED_NAMES, FITTED),
    )
    for names, more in more_of_them:
        sources += [_source(more)] if names & set(wanted) else []
    return _sealed(assemble(sources, wanted))


def metrics_text(core: str = CORE, wanted: Collection[str] = METRICS_NAMES) -> str:
    """The second file, beside the first one, which is the module ``core``."""
    package, _, stem = core.rpartition(".")
    body = assemble([_source(METRICS)], wanted)
    # In a package its own name for the first file holds from wherever it is imported.
    first = f".{stem}" if package else stem
    return _sealed(body.replace(f"from .{CORE} import", f"from {first} import"))


def _sealed(body: str) -> str:
    """A header with version and seal, then the module."""
    return f"{HEADER_PREFIX}{__version__} {seal(body)}\n{_NOTE}\n{body}"


def _source(name: str) -> str:
    spec = importlib.util.find_spec(INSTALLED)
    assert spec is not None
    assert spec.submodule_search_locations
    folder = Path(next(iter(spec.submodule_search_locations)))
    return (folder / f"{name}.py").read_text("utf-8")


def drifts(path: str, root: Path) -> Iterator[Finding]:
    """The findings that a copy, or the file beside it, is not the one its header names."""
    core = root / path
    for file in (core, _beside(core)):
        if _is_runtime(file) and not is_sealed(file.read_text("utf-8")):
            message = "the copy of the helpers was changed after ddpify wrote it"
            advice = (
                "delete it and run `ddpify migrate` again, or keep the changes in a module of"
                " your own"
            )
            yield Finding(RULE, _top(file, root), message, Severity.NOTE, (), advice)


@dataclass(frozen=True)
class _Copy:
    """One file of the copy: as it is (None: not there) and as it should be."""

    site: Site
    before: str | None
    after: str
    wanted: frozenset[str]

    @property
    def missing(self) -> set[str]:
        """The helpers that are called and not there."""
        return set(self.wanted) - definitions(self.before or "")

    @property
    def is_ours(self) -> bool:
        """Whether the copy is as some ddpify wrote it, or not there yet."""
        return self.before is None or is_sealed(self.before)


def finding(runtime: tuple[str, str], root: Path, used: Iterable[str]) -> Finding | None:
    """The finding that adds the copy, or renews one that is older or lacks what is ``used``.

    None when there is nothing to do, or no copy is wanted. A copy that was changed by hand is not
    overwritten: where it lacks a helper, the finding has no fix.
    """
    used = frozenset(used)
    if not runtime[1] or not (used or (root / runtime[1]).exists()):
        return None
    copies = tuple(_copies(runtime, root, used))
    stale = tuple(copy for copy in copies if copy.missing or _outdated(copy, runtime[0]))
    if not stale:
        return None
    if all(copy.before is None for copy in copies):
        message = "the helpers that the migrated code calls"
    else:
        lacks = ", ".join(sorted(name for copy in stale for name in copy.missing))
        message = "the copy of the helpers is of another version"
        message += f": it has no {lacks}" if lacks else ""
    changed = next((copy.site for copy in stale if not copy.is_ours), None)
    if changed is not None:
        advice = "it was changed by hand: move the changes into a module of your own and delete it"
        return Finding(RULE, changed, message, Severity.ERROR, (), advice)
    fix = tuple(Edit(How.NEW_FILE, copy.site, copy.after) for copy in stale)
    return Finding(RULE, stale[0].site, message, Severity.NOTE, fix)


def _copies(runtime: tuple[str, str], root: Path, used: frozenset[str]) -> Iterator[_Copy]:
    """The files that the project imports helpers from, or will where edits ``use`` some."""
    core = root / runtime[1]
    second = (used & METRICS_NAMES) | _imported(root, _beside(core).stem)
    first = (used - METRICS_NAMES) | _imported(root, core.stem)
    if second:
        first |= needed(_source(METRICS), second, f".{CORE}")
        yield _Copy(
            _top(_beside(core), root),
            _read(_beside(core)),
            metrics_text(runtime[0], second),
            second,
        )
    yield _Copy(_top(core, root), _read(core), core_text(first), first)


def _outdated(copy: _Copy, core: str) -> bool:
    """Whether a copy that another ddpify wrote differs from what this one would write."""
    if copy.before is None or not copy.is_ours or _version(copy.before) > _version(copy.after):
        return False
    held = definitions(copy.before) & _IMPORTABLE
    now = core_text(held) if _is_core(copy.before) else metrics_text(core, held)
    return seal(now) != seal(copy.before)


def _version(text: str) -> tuple[int, ...]:
    """The version in a header, for comparison: 0.10.0 is later than 0.9.1."""
    word = text.removeprefix(HEADER_PREFIX).partition(" ")[0]
    return tuple(int(number) for number in re.findall(r"\d+", word))


def _top(file: Path, root: Path) -> Site:
    return Site(file.relative_to(root).as_posix(), Span(1, 0, 1, 0))


def _read(file: Path) -> str | None:
    return file.read_text("utf-8") if file.exists() else None


def _imported(root: Path, stem: str) -> frozenset[str]:
    """The helpers that files of the project take from a module of this name."""
    raws = (file.read_bytes() for file in python_files(root))
    texts = (raw.decode("utf-8", "replace") for raw in raws if stem.encode() in raw)
    return frozenset(
        name
        for text in texts
        if not text.startswith(HEADER_PREFIX)
        for name in _taken(text, stem) & _IMPORTABLE
    )


def _taken(text: str, stem: str) -> set[str]:
    try:
        nodes = tuple(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError):
        return set()
    names, whole = set(), False
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and (node.module or "").rpartition(".")[2] == stem:
            names |= {one.name for one in node.names}
        elif isinstance(node, ast.Import | ast.ImportFrom):
            whole |= any(one.name.rpartition(".")[2] == stem for one in node.names)
    # `import core.ddp_utils as ddp` or `from ddp_utils import *`: whatever has a helper's name.
    words = set(re.findall(r"\w+", text)) if whole or "*" in names else set()
    return names | words
