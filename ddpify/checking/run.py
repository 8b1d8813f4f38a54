"""One run of ``check``: files, cache, findings, and what is done about them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from os.path import realpath
from pathlib import Path
from posixpath import normpath

from ddpify.checking.cache import CacheEntry, Slot
from ddpify.checking.cells import Cells
from ddpify.checking.codes import UNREADABLE, chosen
from ddpify.checking.files import Group, find, root_of
from ddpify.checking.ignored import Patterns, matching
from ddpify.checking.model import Checked, CheckRequest, Named
from ddpify.checking.places import moved, order
from ddpify.programs import Program, Skipped
from ddpify.roots import shown
from ddpify.rules.base import Finding
from ddpify.settings import Settings, SettingsError, load, nearest_pyproject


@dataclass(frozen=True)
class _Answer:
    """The findings and notes of one group of files."""

    group: Group
    entry: CacheEntry
    files: int


def check(asked: CheckRequest) -> Checked:
    """Everything that is wrong in the files that were named.

    Raises:
        CheckError: a path or a code makes no sense.
        SettingsError: a pyproject.toml cannot be used.
    """
    paths = (asked.stdin,) if asked.stdin else asked.paths
    chosen(load(paths[0], {}), asked)  # a wrong code is said before anything is read
    skipped: list[Skipped] = []
    found = check_groups(groups(asked, skipped), asked)
    near = (one._replace(path=shown(Path(one.path))) for one in skipped)
    return replace(found, skipped=tuple(sorted(set(near))))


def check_groups(found: Iterable[Group], asked: CheckRequest) -> Checked:
    """What is wrong in the files of these projects."""
    return _together([_answer(group, asked) for group in found])


def groups(asked: CheckRequest, skipped: list[Skipped]) -> tuple[Group, ...]:
    """The files that are to be read, by project."""
    paths = (asked.stdin,) if asked.stdin else asked.paths
    if asked.force_exclude:
        paths = tuple(path for path in paths if not is_excluded(Path(realpath(path))))
    if asked.stdin:
        files = [path.resolve() for path in paths]
        return tuple(Group(root_of(file), (file,)) for file in files)
    return find(paths, _excluded, skipped)


def _excluded(folder: Path) -> tuple[Patterns, ...]:
    """What the settings of a folder leave out."""
    try:
        patterns = load(folder, {}).exclude
    except SettingsError:  # said where a file of that folder is read
        return ()
    return (matching(patterns, _home(folder)),) if patterns else ()


def is_excluded(path: Path) -> bool:
    """Whether the settings leave out a path, or a folder that holds it."""
    return any(one.cover(path.as_posix(), path.is_dir()) for one in _excluded(path.parent))


def _home(start: Path) -> Path:
    """Where the patterns of its settings begin."""
    file = nearest_pyproject(start)
    return file.parent.resolve() if file else start


def _answer(group: Group, asked: CheckRequest) -> _Answer:
    settings = chosen(load(group.root, {}), asked)
    texts = {asked.stdin.resolve(): asked.text} if asked.stdin else asked.buffers
    contents = _contents((*group.python, *group.launchers), texts)
    whole = any(path.is_dir() for path in asked.paths)
    slot = _slot(group, settings, asked, whole) if asked.cache and not texts else None
    entry = slot.load(contents) if slot else None
    if entry is None:
        entry = _judged(group, contents, settings, asked, whole, texts)
        if slot:
            slot.store(contents, entry)
    return _Answer(group, entry, len(contents))


def _contents(files: Iterable[Path], texts: Mapping[Path, bytes]) -> dict[Path, bytes]:
    """The bytes of the files; one that cannot be read is for the linter to name."""
    found: dict[Path, bytes] = {}
    for file in files:
        try:
            found[file] = texts[file] if file in texts else file.read_bytes()
        except OSError:
            found[file] = b""
    return found


def _slot(group: Group, settings: Settings, asked: CheckRequest, whole: bool) -> Slot:
    flags = f"{settings!r}\0{_home(group.root)}\0{asked.assume_distributed}\0{whole}"
    everything = any(path.resolve() in (group.root, *group.root.parents) for path in asked.paths)
    return Slot.of(group, flags, asked.cache_dir, everything)


def _judged(
    group: Group,
    contents: Mapping[Path, bytes],
    settings: Settings,
    asked: CheckRequest,
    whole: bool,
    texts: Mapping[Path, bytes],
) -> CacheEntry:
    from ddpify.checking.judge import Judge

    home = _home(group.root)
    ignores = [(matching((one,), home), codes) for one, codes in settings.per_file_ignores]
    cells = Cells.of(group, contents)
    contents, texts = {**contents, **cells.texts}, {**texts, **cells.texts}
    judge = Judge(cells.group, contents, settings, ignores, whole)
    entry = judge.entry(asked.assume_distributed, asked.jobs, texts, asked.memory)
    return cells.told(entry, settings.wants(UNREADABLE))


def _together(answers: Iterable[_Answer]) -> Checked:
    """One answer; files are named as they are reached from the current folder."""
    findings: list[Finding] = []
    rules: dict[str, Named] = {}
    programs: list[Program] = []
    files, applies = 0, False
    for one in answers:
        findings += _shown(one)
        rules |= one.entry.rules
        programs += (each.named(_named_from(one.group)) for each in one.entry.programs)
        files += one.files
        applies = applies or one.entry.applies
    ordered = sorted(findings, key=order)
    return Checked(tuple(ordered), rules, files, applies, tuple(programs))


def _shown(answer: _Answer) -> Iterator[Finding]:
    named = _named_from(answer.group)
    return (moved(one, named) for one in answer.entry.findings)


def _named_from(group: Group) -> Callable[[str], str]:
    """How a place in a group is reached from the current folder."""
    root = group.root.as_posix()
    return lambda path: shown(Path(normpath(f"{root}/{path}")))
