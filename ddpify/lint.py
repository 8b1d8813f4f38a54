"""Rules applied to the two-rank reading of a project: what ``ddpify check`` finds in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ddpify.judging import JudgedRun, LintMemory, is_serious, judged
from ddpify.programs import Program
from ddpify.ranks.imports import Modules
from ddpify.ranks.memory import TextMemory
from ddpify.ranks.read import Reading, room
from ddpify.ranks.words import LOOPS, TRAINER
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.registry import all_rules
from ddpify.source import LATER, Site, Span
from ddpify.steps import StepListener, untold

if TYPE_CHECKING:
    from ddpify.launchers.lone_starts import LoneStarts

UNREADABLE = "DDP000"
_WAYS = tuple(f"{TRAINER}.{way}" for way in LOOPS)
_BLANK = "{{"  # in the name of a file that is a template, which is filled in first
_AS_ONE = "starts this program as one process, and nothing that was seen starts it as several"


@dataclass(frozen=True)
class Linted:
    """Findings in the files that were asked for, by place; ``others``: files that they import;
    ``unread``: the programs that are too large to be read to the end; ``programs``: those that
    were read as several ranks run them; ``blind``: the calls by which a Trainer trains
    what is not followed; ``idle``: the programs in which no Trainer does anything."""

    findings: tuple[Finding, ...]
    others: tuple[Path, ...] = ()
    unread: tuple[str, ...] = ()
    programs: tuple[Program, ...] = ()
    blind: tuple[Site, ...] = ()
    idle: tuple[str, ...] = ()


@dataclass
class _LintPart:
    """What some runs of a project showed, and what they came to."""

    findings: list[Finding] = field(default_factory=list)
    lowered: list[Finding] = field(default_factory=list)  # of programs that are one process
    programs: list[Program] = field(default_factory=list)
    opened: frozenset[Path] = frozenset()

    @classmethod
    def of(cls, runs: Iterable[JudgedRun], asked: _LintRequest) -> _LintPart:
        part = cls()
        for run in runs:
            line = asked.start_of(run)
            if line is None:
                part.findings += run.findings
            else:
                part.lowered += (_lowered(one, line) for one in run.findings)
            part.programs += [run.program] if run.program is not None else []
        return part


@dataclass(frozen=True)
class _LintRequest:
    """The files to be read, and what is looked for in them."""

    root: Path
    files: tuple[Path, ...]
    texts: Mapping[Path, bytes]
    assume_distributed: bool
    codes: frozenset[str]
    launchers: tuple[Path, ...]

    def start_of(self, run: JudgedRun) -> Site | None:
        """The command that starts a program as one process, if it is one as far as is known."""
        if not self.launchers:
            return None
        lines = (self._lone.line(run.start, launched) for launched in run.alone)
        return next((line for line in lines if line is not None), None)

    def opened(self, reading: Reading) -> frozenset[Path]:
        """Every file that was looked into."""
        asked = "_lone" in vars(self)
        return reading.opened | (self._lone.read if asked else frozenset())

    @cached_property
    def _lone(self) -> LoneStarts:
        # its readers of shell are rarely needed
        from ddpify.launchers.lone_starts import LoneStarts

        return LoneStarts(self.root, self.launchers, self.files)

    def reading(self, memory: TextMemory | None = None) -> Reading:
        texts, assume = self.texts, self.assume_distributed
        return Reading.of(self.root, self.files, texts, assume, _words(), memory)

    def rules(self) -> list[Rule]:
        return [rule for rule in all_rules() if rule.id in self.codes]


def lint(
    root: Path,
    files: Sequence[Path],
    *,
    texts: Mapping[Path, bytes] | None = None,
    assume_distributed: bool = False,
    wants: Callable[[str], bool] = lambda code: True,
    launchers: Sequence[Path] = (),
    step: StepListener = untold,
    memory: LintMemory | None = None,
) -> Linted:
    """Read the project of ``files`` and judge it.

    ``texts`` stand for the contents of files (an editor's buffer), ``wants`` says which codes are
    switched on, ``launchers`` are files that may say how programs are started, ``step`` is told
    how far the reading is; ``memory`` is what the last reading left, with all else the same.
    """
    root = root.resolve()
    asked = tuple(file.resolve() for file in files)
    codes = frozenset(rule.id for rule in all_rules() if rule.lint is not None and wants(rule.id))
    request = _LintRequest(root, asked, texts or {}, assume_distributed, codes, tuple(launchers))
    part = _read(request, step, memory)
    found = [one for one in (*part.findings, *part.lowered) if wants(one.rule)]
    names = {_relative(root, file) for file in asked}
    found.sort(key=lambda one: not is_serious(one))  # one that is no note in another program
    unique = {(one.rule, one.site): one for one in reversed(found) if one.site.path in names}
    kept = sorted(unique.values(), key=lambda one: (one.site, one.rule))
    others = part.opened.difference(asked)
    programs = set(part.programs)
    left = (one.start for one in programs if not one.complete)
    unread = {start for start in left if start.split(":")[0] in names}
    return Linted(
        tuple(kept), tuple(sorted(others)), tuple(sorted(unread)), tuple(sorted(programs))
    )


def lint_scripts(
    root: Path,
    scripts: Sequence[Path],
    texts: Mapping[Path, bytes],
    wants: Callable[[str], bool] = lambda code: True,
    assume_distributed: bool = False,
) -> Linted:
    """Judge what these scripts run, and nothing else; ``unread``: what was not judged."""
    rules = [rule for rule in all_rules() if rule.lint is not None and wants(rule.id)]
    with room():
        reading = Reading.of(root, scripts, texts, assume_distributed, _words())
        runs = [run for run in map(reading.script, scripts) if run is not None]
        found = [one for run in runs for one in judged(run, rules) if wants(one.rule)]
    unique = {(one.rule, one.site): one for one in reversed(found)}
    unread = [run.start for run in runs if not (run.distributed and run.complete)]
    ordered = sorted(unique.values(), key=lambda one: (one.site, one.rule))
    blind = dict.fromkeys(call.site for run in runs for call in run.blind)
    idle = [run.start for run in runs if run.complete and not any(run.named(*_WAYS))]
    return Linted(tuple(ordered), unread=tuple(unread), blind=tuple(blind), idle=tuple(idle))


def _lowered(one: Finding, line: Site) -> Finding:
    """What would happen if several processes ran a program that is started as one."""
    return replace(one, severity=Severity.NOTE, way=((line, _AS_ONE), *one.way))


def _words() -> list[str]:
    """The words of all rules: what is found does not hang on which are switched on."""
    return [word for rule in all_rules() for word in rule.words]


def _relative(root: Path, file: Path) -> str:
    return file.relative_to(root).as_posix() if file.is_relative_to(root) else file.as_posix()


def _read(request: _LintRequest, step: StepListener, memory: LintMemory | None) -> _LintPart:
    memory = memory or LintMemory()
    memory.texts.begin()
    with room():
        step(f"Reading {len(request.files)} files")
        reading = request.reading(memory.texts)
        part = _LintPart.of(memory.judged(reading, request.rules(), step), request)
        part.findings += _unreadable(reading.project.modules, request.files)
        part.opened = memory.opened = request.opened(reading) | memory.opened
        return part


def _unreadable(modules: Modules, files: Iterable[Path]) -> Iterable[Finding]:
    """Files that are not today's Python; the others are judged without them."""
    for file in files:
        modules.check(file)
        module = modules.loaded.get(file)  # not one that says nothing of training, and compiles
        if module is not None and module.source.legacy is not None:
            for rule in all_rules():
                yield from rule.lint_file(module.source) if rule.lint_file is not None else ()
    for path, message in modules.failures.items():
        line, text = _told(path, message)
        site = Site(path, Span(line, 0, line, 0))
        severity = Severity.NOTE if LATER in text or _BLANK in path else Severity.ERROR
        yield Finding(UNREADABLE, site, text, severity, advice="")


def _told(path: str, message: str) -> tuple[int, str]:
    """The line and the reason in ``path:line: reason`` or ``path: reason``."""
    rest = message.removeprefix(f"{path}:")
    number, _, reason = rest.partition(": ")
    return (int(number), reason) if number.isdigit() else (1, rest.strip())
