"""Put changes on disk, all of them or none, whatever happens on the way.

A half-migrated project is worse than none: what is going to be done is recorded first, every new
content is written next to its file, then the files are exchanged. A failure on the way brings the
old ones back; where the process itself ended, the next command does (``journal``).
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from ddpify.belongings import Belongings, TooMany, belongings
from ddpify.journal.disk import is_writable, state_of
from ddpify.journal.folder import WriteJournal
from ddpify.journal.record import WriteError as WriteError
from ddpify.journal.restore import settle, take_back
from ddpify.journal.transaction import Transaction, Wanted
from ddpify.plan import Change


def apply(
    changes: Iterable[Change],
    root: Path,
    command: str = "",
    home: Callable[[Path], Path] | None = None,
) -> tuple[Path, ...]:
    """Write the changes into the project, or nothing.

    ``command`` is the user's, if ``ddpify undo`` is to take it back; the folders in which the old
    contents are kept then are returned. ``home`` gives the project of a file that is not of
    ``root``.

    Raises:
        WriteError: a file cannot be written, or is no longer what was analysed.
    """
    wanted = tuple(changes)

    def files() -> list[Wanted]:
        return [_in_place(change, root) for change in wanted]

    return _install(files, home or (lambda target: root), command)


@dataclass(frozen=True)
class WrittenCopy:
    """What was written elsewhere: ``files`` by their paths there, and what else there is."""

    files: tuple[Path, ...]
    other: Belongings


def write_to(
    changes: Iterable[Change], root: Path, out: Path, also: Iterable[str], force: bool = False
) -> WrittenCopy:
    """Write the migrated project to ``out``: the changes, and all else that belongs to it.

    ``also`` are files of it that are sure to.

    Raises:
        WriteError: a file there has other content (and not ``force``), or cannot be written.
    """
    root, place = Path(os.path.realpath(root)), Path(os.path.realpath(out))
    other = _belongings(root, place)
    new = {change.path: change.after for change in changes}
    for outside in (path for path in new if os.path.isabs(path)):
        raise WriteError(f"{outside}: lies outside of the project and cannot be copied with it")
    links = {**other.links, **{path: str(root / path) for path in other.data}}
    links = {path: aim for path, aim in links.items() if path not in new}
    old = {path for path in (*other.files, *also) if path not in {*new, *links}}
    old = {path for path in old if not os.path.isabs(path)}

    def files() -> list[Wanted]:
        contents: dict[str, bytes | Path] = {**{path: root / path for path in old}, **new}
        found = [_elsewhere(*one, out, root) for one in sorted(contents.items())]
        found += [_link(*one, out) for one in sorted(links.items())]
        for file in found:
            _check_new(file, place, force)
        return found

    with ExitStack() as undo:
        _make_folders(place, undo)
        _install(files, lambda target: place, "", [place / one for one in other.folders])
        undo.pop_all()
    return WrittenCopy(tuple(out / path for path in sorted({*new, *old, *links})), other)


def _belongings(root: Path, place: Path) -> Belongings:
    if place == root:
        raise WriteError(f"{place}: is the project itself; use --inplace")
    if root.is_relative_to(place):
        raise WriteError(f"{place}: holds the project; name a folder of its own for the copy")
    try:
        return belongings(root, place, tracked(root))
    except TooMany as error:
        why = "holds too many files to be copied"
        raise WriteError(f"{root}: {why}; copy the project, and use --inplace there") from error
    except OSError as error:
        raise WriteError(f"{error.filename}: cannot be read ({error.strerror})") from error


def dirty_files(paths: Iterable[str], root: Path) -> tuple[str, ...]:
    """Which of these files git reports as changed or untracked; none without git."""
    prefix = _git(root, "rev-parse", "--show-prefix")
    status = _git(root, "status", "--porcelain", "-z", "--no-renames", "-uall", "--", ".")
    if prefix is None or status is None:
        return ()
    inside = prefix.rstrip("\n")
    changed = {entry[3:].removeprefix(inside) for entry in status.split("\0") if entry}
    return tuple(sorted(set(paths) & changed))


def tracked(root: Path) -> frozenset[str]:
    """The files that git keeps, relative to ``root``; none without git."""
    return frozenset((_git(root, "ls-files", "-z") or "").split("\0"))


def _git(root: Path, *arguments: str) -> str | None:
    command = ["git", "-c", "core.fsmonitor=false", *arguments]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, check=False)
    except OSError:
        return None
    return os.fsdecode(done.stdout) if done.returncode == 0 else None


def _in_place(change: Change, root: Path) -> Wanted:
    target = Path(os.path.realpath(root / change.path))
    if change.before is None and target.exists():
        raise WriteError(f"{change.path}: exists already and is not overwritten")
    if change.before is not None and _read(target, change.path) != change.before:
        raise WriteError(f"{change.path}: has changed since it was analysed; run ddpify again")
    return Wanted(change.path, target, change.after, target if target.exists() else None)


def _elsewhere(path: str, content: bytes | Path, out: Path, root: Path) -> Wanted:
    source, target = root / path, Path(os.path.realpath(out / path))
    return Wanted(str(out / path), target, content, source if source.exists() else None)


def _link(path: str, aim: str, out: Path) -> Wanted:
    link = out / path.rstrip("/")
    target = Path(os.path.realpath(link.parent)) / link.name
    return Wanted(str(link), target, aim=aim.rstrip("/"))


def _check_new(file: Wanted, place: Path, force: bool) -> None:
    """Whether it may be written: never through a link, which may lead to the original."""
    now = state_of(file.target)
    if now == file.state:
        return
    if not file.target.is_relative_to(place):
        raise WriteError(f"{file.path}: a link leads from there to {file.target}; remove it first")
    if now and not force:
        raise WriteError(f"{file.path}: exists with other content; use --force to overwrite it")


def _read(file: Path, path: str) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise WriteError(f"{path}: cannot be read ({error.strerror})") from error


def _install(
    wanted: Callable[[], list[Wanted]],
    home: Callable[[Path], Path],
    command: str,
    folders: Sequence[Path] = (),
) -> tuple[Path, ...]:
    """Check, and exchange under the locks of all projects that are concerned."""
    found = wanted()
    _check(found)
    projects = _by_project(found, home)
    with ExitStack() as locks:
        for project in projects:
            locks.enter_context(WriteJournal(project).locked())
            settle(WriteJournal(project))
        found = wanted()  # another ddpify may just have written
        _check(found)
        todo = _by_project((f for f in found if state_of(f.target) != f.state), home)
        return _exchange(
            [Transaction(WriteJournal(p), f, command, folders) for p, f in todo.items()]
        )


def _by_project(files: Iterable[Wanted], home: Callable[[Path], Path]) -> dict[Path, list[Wanted]]:
    """In one order for everybody, so that no two wait for each other's lock."""
    found: dict[Path, list[Wanted]] = {}
    for file in files:
        found.setdefault(home(file.target).resolve(), []).append(file)
    return dict(sorted(found.items()))


def _check(files: Sequence[Wanted]) -> None:
    """Whether all can be written."""
    for file in files:
        _check_writable(file)
    _check_distinct(files)


def _exchange(transactions: Sequence[Transaction]) -> tuple[Path, ...]:
    """What was done is taken back unless all of it is."""
    try:
        for one in transactions:
            one.prepare()
        for one in transactions:
            one.exchange()
        found = [one.finish() for one in transactions]
    except BaseException as error:
        current = next((one.current for one in transactions if one.current), "")
        for one in transactions:
            if one.journal.writing.exists():
                with suppress(OSError):  # the next command goes on with it
                    take_back(one.journal)
        if not isinstance(error, OSError):
            raise
        raise WriteError(f"{current}: cannot be written ({error.strerror})") from error
    return tuple(one for one in found if one)


def _check_writable(file: Wanted) -> None:
    """Also for the superuser, whom permission bits do not stop: they are the user's word."""
    folder = next(parent for parent in file.target.parents if parent.exists())
    there = file.target.exists() and not file.target.is_symlink()
    if there and not file.target.is_file():
        raise WriteError(f"{file.path}: is not a file")
    if not folder.is_dir():
        raise WriteError(f"{file.path}: {folder} is not a folder")
    if there and not is_writable(file.target):
        raise WriteError(f"{file.path}: is read-only; make it writable first")
    if not is_writable(folder):
        raise WriteError(f"{file.path}: its folder {folder} is read-only; make it writable first")


def _check_distinct(files: Sequence[Wanted]) -> None:
    """Two paths may be one file, by a link; it cannot have both contents."""
    by_target: dict[Path, Wanted] = {}
    for file in files:
        other = by_target.setdefault(file.target, file)
        if other.state != file.state:
            raise WriteError(f"{file.path}: is the same file as {other.path}; migrate one of them")


def _make_folders(folder: Path, undo: ExitStack) -> None:
    missing = [folder, *folder.parents]
    for one in reversed([path for path in missing if not path.exists()]):
        one.mkdir()
        undo.callback(one.rmdir)
