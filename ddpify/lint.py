"""Rules applied to the two-rank reading of a project: what ``ddpify check`` finds in it."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ddpify.ranks.model import Run
from ddpify.ranks.modules import Modules
from ddpify.ranks.read import Reading, room
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.registry import all_rules
from ddpify.source import Site, Span

UNREADABLE = "DDP000"
FEW = 40  # files for which more processes are not worth starting


@dataclass(frozen=True)
class Linted:
    """Findings in the files that were asked for, by place, and the files that were looked at."""

    findings: tuple[Finding, ...]
    read: tuple[str, ...]


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
    found = list(_by_several(request, jobs) if several else _by_one(request))
    found = [one for one in found if wants(one.rule)]
    names = {_relative(root, file) for file in asked}
    unique = {(one.rule, one.site): one for one in reversed(found) if one.site.path in names}
    kept = sorted(unique.values(), key=lambda one: (one.site, one.rule))
    return Linted(tuple(kept), tuple(sorted(names)))


def judged(run: Run, rules: Iterable[Rule]) -> list[Finding]:
    """What these rules find in one run."""
    if not run.distributed:
        return []
    return [finding for rule in rules if rule.lint is not None for finding in rule.lint(run)]


def _relative(root: Path, file: Path) -> str:
    return file.relative_to(root).as_posix() if file.is_relative_to(root) else file.as_posix()


def _by_one(request: _Request) -> list[Finding]:
    rules = request.rules()
    with room():
        reading = request.reading()
        runs = (run for part in (reading.scripts(), reading.functions()) for run in part)
        found = [finding for run in runs for finding in judged(run, rules)]
        return found + list(_unreadable(reading.project.modules, request.files))


def _by_several(request: _Request, jobs: int) -> Iterable[Finding]:
    """Scripts first, then functions that none of them entered: both dealt to the processes."""
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        shares = [(request, number, jobs) for number in range(jobs)]
        first = list(pool.map(_scripts, *zip(*shares, strict=True)))
        seen = frozenset().union(*(entered for _, entered in first))
        second = pool.map(_functions, *zip(*((*share, seen) for share in shares), strict=True))
        shared = ([found for found, _ in first], second)
        return [one for part in shared for found in part for one in found]


def _scripts(
    request: _Request, part: int, parts: int
) -> tuple[list[Finding], frozenset[tuple[str, int]]]:
    rules = request.rules()
    with room():
        reading = request.reading()
        found = [one for run in reading.scripts(part, parts) for one in judged(run, rules)]
        return found, reading.seen()


def _functions(
    request: _Request, part: int, parts: int, seen: frozenset[tuple[str, int]]
) -> list[Finding]:
    rules = request.rules()
    with room():
        reading = request.reading()
        reading.skip(seen)
        found = [one for run in reading.functions(part, parts) for one in judged(run, rules)]
        return found + list(_unreadable(reading.project.modules, request.files[part::parts]))


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
