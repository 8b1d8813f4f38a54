"""Rules applied to the two-rank reading of a project: what ``ddpify check`` finds in it."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ddpify.ranks.model import Place, Run
from ddpify.ranks.modules import Modules
from ddpify.ranks.read import Reading, room
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.registry import all_rules
from ddpify.source import Site, Span

_Found = tuple[list[Finding], frozenset[Path]]  # with the files that were read
UNREADABLE = "DDP000"
FEW = 40  # files for which more processes are not worth starting


@dataclass(frozen=True)
class Linted:
    """Findings in the files that were asked for, by place; ``others``: files they import."""

    findings: tuple[Finding, ...]
    others: tuple[Path, ...]


@dataclass(frozen=True)
class _Request:
    """What is to be read, as it is handed to other processes."""

    root: Path
    files: tuple[Path, ...]
    texts: Mapping[Path, bytes]
    assume_distributed: bool
    codes: frozenset[str]

    def reading(self) -> Reading:
        return Reading.of(self.root, self.files, self.texts, self.assume_distributed)

    def rules(self) -> list[Rule]:
        return [rule for rule in all_rules() if rule.id in self.codes]


def lint(
    root: Path,
    files: Sequence[Path],
    *,
    texts: Mapping[Path, bytes] | None = None,
    assume_distributed: bool = False,
    wants: Callable[[str], bool] = lambda code: True,
    jobs: int = 1,
) -> Linted:
    """Read the project of ``files`` and judge it.

    ``texts`` stand for the contents of files (an editor's buffer), ``wants`` says which codes are
    switched on, ``jobs`` is how many processes may be used.
    """
    root = root.resolve()
    asked = tuple(file.resolve() for file in files)
    codes = frozenset(rule.id for rule in all_rules() if rule.lint is not None and wants(rule.id))
    request = _Request(root, asked, texts or {}, assume_distributed, codes)
    several = jobs > 1 and len(asked) > FEW and "fork" in multiprocessing.get_all_start_methods()
    found, opened = _by_several(request, jobs) if several else _by_one(request)
    found = [one for one in found if wants(one.rule)]
    names = {_relative(root, file) for file in asked}
    unique = {(one.rule, one.site): one for one in reversed(found) if one.site.path in names}
    kept = sorted(unique.values(), key=lambda one: (one.site, one.rule))
    return Linted(tuple(kept), tuple(sorted(opened.difference(asked))))


def judged(run: Run, rules: Iterable[Rule]) -> list[Finding]:
    """What these rules find in one run."""
    if not run.distributed:
        return []
    return [finding for rule in rules if rule.lint is not None for finding in rule.lint(run)]


def _relative(root: Path, file: Path) -> str:
    return file.relative_to(root).as_posix() if file.is_relative_to(root) else file.as_posix()


def _by_one(request: _Request) -> _Found:
    rules = request.rules()
    with room():
        reading = request.reading()
        runs = (run for part in (reading.scripts(), reading.functions()) for run in part)
        found = [finding for run in runs for finding in judged(run, rules)]
        found += _unreadable(reading.project.modules, request.files)
        return found, reading.opened


@dataclass(frozen=True)
class _Scripts:
    """What one process found in its share of the scripts, what they enter, what was read."""

    findings: list[Finding]
    entered: frozenset[Place]
    opened: frozenset[Path]


@dataclass(frozen=True)
class _Part:
    """What one process found in its share of the functions that no script enters.

    ``runs``: by the place of the function, what was found and what was entered from there; None
    where a function was entered by another one of the share. ``order``: all places, also others'.
    """

    order: tuple[Place, ...]
    runs: Mapping[Place, tuple[list[Finding], frozenset[Place]] | None]
    unreadable: list[Finding]


def _by_several(request: _Request, jobs: int) -> _Found:
    """Scripts first, then functions that none of them entered: both dealt to the processes."""
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        shares = [(request, number, jobs) for number in range(jobs)]
        first = list(pool.map(_scripts, *zip(*shares, strict=True)))
        seen = frozenset().union(*(one.entered for one in first))
        parts = list(pool.map(_functions, *zip(*((*one, seen) for one in shares), strict=True)))
    found = [finding for part in first for finding in part.findings]
    found += [finding for part in parts for finding in part.unreadable]
    return found + _as_by_one(request, parts, seen), first[0].opened


def _as_by_one(request: _Request, parts: list[_Part], seen: frozenset[Place]) -> list[Finding]:
    """What one process finds, which goes in order and leaves out what it has entered already."""
    runs = {place: run for part in parts for place, run in part.runs.items()}
    found: list[Finding] = []
    entered = set(seen)
    reading: Reading | None = None
    for place in parts[0].order:
        if place in entered:
            continue
        run = runs[place]
        if run is None:  # only what is left out here has entered it
            reading = reading or request.reading()
            with room():
                run = _judged_at(request, reading, place)
        found += run[0]
        entered |= run[1]
    return found


def _scripts(request: _Request, part: int, parts: int) -> _Scripts:
    rules = request.rules()
    with room():
        reading = request.reading()
        found = [one for run in reading.scripts(part, parts) for one in judged(run, rules)]
        return _Scripts(found, frozenset(reading.entered), reading.opened)


def _functions(request: _Request, part: int, parts: int, seen: frozenset[Place]) -> _Part:
    with room():
        reading = request.reading()
        reading.entered |= seen
        order = tuple(reading.starts)
        share = order[part::parts]
        runs = {
            place: None if place in reading.entered else _judged_at(request, reading, place)
            for place in share
        }
        unreadable = list(_unreadable(reading.project.modules, request.files[part::parts]))
        return _Part(order, runs, unreadable)


def _judged_at(
    request: _Request, reading: Reading, place: Place
) -> tuple[list[Finding], frozenset[Place]]:
    run = reading.function(place)
    return judged(run, request.rules()), run.entered


def _unreadable(modules: Modules, files: Iterable[Path]) -> Iterable[Finding]:
    """Files that are not Python; the others are judged without them."""
    for file in files:
        modules.check(file)
    for path, message in modules.failures.items():
        line, text = _told(path, message)
        site = Site(path, Span(line, 0, line, 0))
        yield Finding(UNREADABLE, site, text, Severity.ERROR, advice="")


def _told(path: str, message: str) -> tuple[int, str]:
    """The line and the reason in ``path:line: reason`` or ``path: reason``."""
    rest = message.removeprefix(f"{path}:")
    number, _, reason = rest.partition(": ")
    return (int(number), reason) if number.isdigit() else (1, rest.strip())
