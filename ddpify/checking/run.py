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
from ddpify.checking.files import Excluded, Group, find, root_of
from ddpify.checking.hearing import Hearing
from ddpify.checking.ignored import Patterns, matching
from ddpify.checking.model import Checked, CheckRequest, Named
from ddpify.checking.places import moved, order
from ddpify.programs import Program, Skipped
from ddpify.roots import shown
from ddpify.rules.base import Finding
from ddpify.settings import SettingsError, nearest_pyproject
from ddpify.steps import StepListener, untold


@dataclass(frozen=True)
class _Answer:
    """The findings and notes of one group of files."""

    group: Group
    entry: CacheEntry
    files: int


def check(asked: CheckRequest, step: StepListener = untold) -> Checked:
    """Everything that is wrong in the files that were named; ``step`` is told how far it is.

    Raises:
        CheckError: a path or a code makes no sense.
        SettingsError: a pyproject.toml cannot be used.
    """
    paths = (asked.stdin,) if asked.stdin else asked.paths
    chosen(asked.settings(paths[0]), asked)  # a wrong code is said before anything is read
    skipped: list[Skipped] = []
    found = check_groups(groups(asked, skipped), asked, step)
    near = (one._replace(path=shown(Path(one.path))) for one in skipped)
    return replace(found, skipped=tuple(sorted(set(near))))


def check_groups(
    found: Iterable[Group], asked: CheckRequest, step: StepListener = untold
) -> Checked:
    """What is wrong in the files of these projects."""
    return _together([_answer(group, asked, step) for group in found])


def groups(asked: CheckRequest, skipped: list[Skipped]) -> tuple[Group, ...]:
    """The files to be read, by project; what is not is added to ``skipped``."""
    paths = (asked.stdin,) if asked.stdin else asked.paths
    excluded = _excluded(asked)
    if asked.force_exclude:
        paths = tuple(path for path in paths if not is_excluded(Path(realpath(path)), asked))
    if asked.stdin:
        files = [path.resolve() for path in paths]
        return tuple(Group(root_of(file), (file,)) for file in files)
    return find(paths, excluded, skipped)


def _excluded(asked: CheckRequest) -> Excluded:
    """What the flags leave out, and the settings of a folder."""
    flags = (matching(asked.exclude, Path.cwd(), "--exclude"),) if asked.exclude else ()

    def excluded(folder: Path) -> tuple[Patterns, ...]:
        try:
            patterns = asked.settings(folder).exclude
        except SettingsError:  # said where a file of that folder is read
            return flags
        return (*flags, matching(patterns, _home(folder))) if patterns else flags

    return excluded


def is_excluded(path: Path, asked: CheckRequest) -> bool:
    """Whether flags or settings leave out a path, or a folder that holds it."""
    found = _excluded(asked)(path.parent)
    return any(one.cover(path.as_posix(), path.is_dir()) for one in found)


def _home(start: Path) -> Path:
    """Where the patterns of its settings begin."""
    file = nearest_pyproject(start)
    return file.parent.resolve() if file else start


def _answer(group: Group, asked: CheckRequest, step: StepListener) -> _Answer:
    settings = chosen(asked.settings(group.root), asked)
    texts = {asked.stdin.resolve(): asked.text} if asked.stdin else asked.buffers
    contents = _contents((*group.python, *group.launchers), texts)
    cells = Cells.of(group, contents)
    entry = _entry(cells, contents, texts, asked, step)
    home = _home(group.root)
    ignores = [(matching((one,), home), codes) for one, codes in settings.per_file_ignores]
    whole = any(path.is_dir() for path in asked.paths)
    read = {**contents, **cells.texts}
    hearing = Hearing(cells.group, read, settings, ignores, whole, asked.comments)
    entry = replace(entry, findings=tuple(hearing.heard(entry.findings)))
    return _Answer(group, cells.told(entry, settings.wants(UNREADABLE)), len(contents))


def _entry(
    cells: Cells,
    contents: Mapping[Path, bytes],
    texts: Mapping[Path, bytes],
    asked: CheckRequest,
    step: StepListener,
) -> CacheEntry:
    """What all rules find: which of them are switched on is asked afterwards."""
    slot = _slot(cells.group, asked) if asked.cache and not texts else None
    found = slot.load(contents) if slot else None
    if found is None:
        # rules and parsers
        from ddpify.checking.judge import Judge

        as_python = cells.texts
        judge = Judge(cells.group, {**contents, **as_python}, {**texts, **as_python})
        found = judge.entry(asked.assume_distributed, step, asked.memory)
        if slot:
            slot.store(contents, found)
    return found


def _contents(files: Iterable[Path], texts: Mapping[Path, bytes]) -> dict[Path, bytes]:
    """The bytes of the files; one that cannot be read is for the linter to name."""
    found: dict[Path, bytes] = {}
    for file in files:
        try:
            found[file] = texts[file] if file in texts else file.read_bytes()
        except OSError:
            found[file] = b""
    return found


def _slot(group: Group, asked: CheckRequest) -> Slot:
    whole = any(path.resolve() in (group.root, *group.root.parents) for path in asked.paths)
    return Slot.of(group, asked.assume_distributed, asked.cache_dir, whole)


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
