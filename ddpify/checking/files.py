"""From what was named to the files that are read, each with the project it belongs to."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ddpify.checking.ignored import Ignored, Patterns, above
from ddpify.checking.model import CheckError
from ddpify.notebooks import SUFFIX
from ddpify.programs import Skipped
from ddpify.roots import ARCHIVE_MARKS, ROOT_MARKS, SKIPPED, WEAK

Excluded = Callable[[Path], tuple[Patterns, ...]]
_STRONG = tuple(mark for mark in ROOT_MARKS if mark != WEAK)
_PYTHON = (".py", ".pyw", ".pyt", ".tac", ".wsgi", ".gyp", ".gypi")  # of folders, the first only
_LAUNCHERS = tuple(
    ".sh .bash .zsh .ksh .csh .bats .slurm .sbatch .mk .make .md .markdown "
    "akefile akefile.in akefile.am".split()
)
_RUN_COMMANDS = ("PKGBUILD", "direnvrc")  # shell, though nothing in them says so
_SHELL = re.compile(rb"#!.*\b\w*sh\b")
_INTERPRETER = re.compile(rb"#!.*python")
_LARGEST = 512 * 1024  # no launcher is larger


@dataclass(frozen=True)
class Group:
    """The files of one project: ``python``, and what may be ``launchers``. All absolute."""

    root: Path
    python: tuple[Path, ...] = ()
    launchers: tuple[Path, ...] = ()


@dataclass
class _Places:
    """The roots of folders, each looked up once; ``named`` are folders the user named."""

    named: Sequence[Path]
    known: dict[Path, Path] = field(default_factory=dict)

    def root(self, folder: Path) -> Path:
        """The project that ``folder`` belongs to."""
        if folder not in self.known:
            chain = (folder, *folder.parents)
            weak = (one for one in chain if os.path.exists(one / WEAK))
            named = (one for one in self.named if folder.is_relative_to(one))
            strong = (one for one in chain if any(os.path.exists(one / mark) for mark in _STRONG))
            archived = (o for o in chain if any(os.path.exists(o / m) for m in ARCHIVE_MARKS))
            ways = (strong, weak, archived, named)
            found = next((one for way in ways for one in way), None)
            self.known[folder] = found or folder
        return self.known[folder]


def find(
    paths: Sequence[Path], excluded: Excluded, skipped: list[Skipped] | None = None
) -> tuple[Group, ...]:
    """The groups of files, in order of their roots.

    A file that is named is read whatever its name or the .gitignore. ``excluded`` gives what the
    settings of a folder leave out; below it, those of the nearest pyproject.toml count. What is
    not read is added to ``skipped``.

    Raises:
        CheckError: there is no such file, or it is none that can be read.
    """
    files: dict[Path, None] = {}
    for path in paths:
        is_folder = _is_folder(path)
        absolute = path.resolve()
        if is_folder:
            files |= dict.fromkeys(_walk(absolute, excluded, skipped))
        else:
            _check_readable(path)
            files[absolute] = None
    return _grouped(files, _Places([p.resolve() for p in paths if p.is_dir()]))


def root_of(file: Path) -> Path:
    """The project of one file."""
    return _Places(()).root(file.parent)


def files_below(root: Path) -> Iterator[Path]:
    """Every file of a project that may matter."""
    return _walk(root, lambda folder: ())


def is_python(path: Path) -> bool:
    """Whether a named file is read as Python: also one without a suffix, unless a shell runs it."""
    if path.suffix in (*_PYTHON, SUFFIX):
        return True
    if _may_launch(path.name) or _is_shell(path):
        return False
    return not path.suffix or bool(_INTERPRETER.match(_first_line(path)))


def _grouped(files: dict[Path, None], places: _Places) -> tuple[Group, ...]:
    roots: dict[Path, tuple[list[Path], list[Path]]] = {}
    for file in sorted(files, key=lambda one: one.as_posix()):
        python, launchers = roots.setdefault(places.root(file.parent), ([], []))
        (python if is_python(file) else launchers).append(file)
    return tuple(Group(root, tuple(p), tuple(q)) for root, (p, q) in sorted(roots.items()))


def _is_folder(path: Path) -> bool:
    """Whether a path is a folder, not a file. Raises CheckError where it is neither."""
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError) as error:
        raise CheckError(f"{path}: no such file or folder") from error
    except (OSError, ValueError) as error:
        raise CheckError(f"{path}: cannot be read ({error})") from error
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
        raise CheckError(f"{path}: a pipe; `ddpify check -` reads standard input")
    return stat.S_ISDIR(mode)


def _check_readable(path: Path) -> None:
    if not is_python(path) and not _may_launch(path.name) and not _is_shell(path):
        raise CheckError(f"{path}: neither a Python file nor a launch script")


def _walk(folder: Path, excluded: Excluded, skipped: list[Skipped] | None = None) -> Iterator[Path]:
    ignored = above(folder, excluded(folder))
    yield from _below(folder.as_posix(), ignored, excluded, [] if skipped is None else skipped)


def _below(
    folder: str, ignored: Ignored, excluded: Excluded, skipped: list[Skipped]
) -> Iterator[Path]:
    try:
        with os.scandir(folder) as listing:
            items = list(listing)
    except OSError:  # not the user's to read either
        return
    names = {item.name for item in items}
    if "pyvenv.cfg" in names:
        skipped.append(Skipped(folder, "folder", "an environment"))
        return
    inner = ignored.below(folder) if ".gitignore" in names else ignored
    if "pyproject.toml" in names:
        inner = replace(inner, always=excluded(Path(folder)))
    for item in items:
        is_folder = item.is_dir(follow_symlinks=False)
        if _is_hidden(item.name) if is_folder else not _may_matter(item.name):
            continue
        why = _why_not(item, is_folder, inner)
        if why:
            skipped.append(Skipped(item.path, _kind(item.name, is_folder), why))
        elif is_folder:
            yield from _below(item.path, inner, excluded, skipped)
        else:
            yield Path(item.path)


def _is_hidden(name: str) -> bool:
    """A folder of other tools, of which nobody expects that it is read."""
    return name.startswith(".") or name == "__pycache__"


def _may_matter(name: str) -> bool:
    return name.endswith((".py", SUFFIX)) or _may_launch(name)


def _why_not(item: os.DirEntry[str], is_folder: bool, ignored: Ignored) -> str:
    """Why something in a folder is not read; "" if it is."""
    if is_folder and item.name in SKIPPED:
        return "made by tools, going by its name"
    if ignored.leaves_out(item.path, is_folder):
        return "left out by .gitignore or `exclude`"
    if is_folder:
        return ""
    try:
        if not item.is_file(follow_symlinks=False):
            return "a link: what it leads to is read there"
        large = not item.name.endswith((".py", SUFFIX)) and item.stat().st_size > _LARGEST
    except OSError:
        return "cannot be read"
    return "too large for a launch script" if large else ""


def _kind(name: str, is_folder: bool) -> str:
    if is_folder:
        return "folder"
    return "notebook" if name.endswith(SUFFIX) else "file"


def _may_launch(name: str) -> bool:
    """Whether a file may hold launch commands, by its name only: who reads it decides."""
    return name.endswith(_LAUNCHERS)


def _is_shell(path: Path) -> bool:
    """What a shell reads: .bashrc, .envrc, and what says so in its first line."""
    if not path.suffix and path.name.startswith("."):
        return True
    return path.name in _RUN_COMMANDS or bool(_SHELL.match(_first_line(path)))


def _first_line(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            return stream.readline(200)
    except OSError:
        return b""
