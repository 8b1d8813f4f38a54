"""Runs judged by the rules, one by one; and which of them hold for the next reading of a project.

A run rests on the texts of the files that it asked about, and on what all files together say to a
few questions. While these are what they were, so is what was found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ddpify.programs import Program
from ddpify.ranks.imports import Modules
from ddpify.ranks.memory import TextMemory
from ddpify.ranks.modules import Place
from ddpify.ranks.read import Reading
from ddpify.ranks.run import Run
from ddpify.ranks.single import is_of_one, may_be_alone, runs_alone
from ddpify.ranks.ways import way_to
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.steps import StepListener, untold

_READING = "Reading as two ranks run it"


@dataclass(frozen=True)
class JudgedRun:
    """What one run came to. ``alone``: what may be asked of the commands that start it, whether
    one starts it as a single process: by plain python (False), by a launcher (True)."""

    start: str
    findings: tuple[Finding, ...]
    entered: frozenset[Place]
    program: Program | None
    alone: tuple[bool, ...] = ()

    @classmethod
    def of(cls, run: Run, rules: Iterable[Rule]) -> JudgedRun:
        """The run, judged."""
        found = tuple(judged(run, rules))
        program = _program(run) if run.distributed else None
        asked = ((may_be_alone, False), (is_of_one, True)) if any(map(is_serious, found)) else ()
        alone = tuple(launched for ask, launched in asked if ask(run))
        return cls(run.start, found, run.entered, program, alone)


@dataclass(frozen=True)
class _KeptRun:
    """A run that was judged, what it rests on, and what it spent."""

    run: JudgedRun | None
    texts: Mapping[Path, str]
    answers: Mapping[Callable[[Modules], object], object]
    spent: int

    def holds(self, modules: Modules) -> bool:
        """Whether the files say what they said."""
        return all(modules.text(file) == text for file, text in self.texts.items()) and all(
            modules.answer(question) == said for question, said in self.answers.items()
        )


class LintMemory:
    """What readings of one project, with the same rules and settings, keep for the next.

    It knows of texts only: where files come or go, or others than Python files change, it is to be
    thrown away.
    """

    def __init__(self) -> None:
        self.texts = TextMemory()
        self.opened: frozenset[Path] = frozenset()
        self._common: object = None
        self._before: dict[object, _KeptRun] = {}
        self._now: dict[object, _KeptRun] = {}

    def judged(
        self, reading: Reading, rules: list[Rule], step: StepListener = untold
    ) -> Iterator[JudgedRun]:
        """Every run of a reading, from scripts and from functions that none of them enters; those
        that still hold are not made again. ``step`` is told before each."""
        self._begin(reading, rules)
        scripts = reading.project.scripts()
        for number, file in enumerate(scripts):
            step(f"{_READING}: {file.name}", number, len(scripts))
            yield from self._one(file, reading, partial(reading.script, file), rules)
        for number, (place, info) in enumerate(reading.starts.items()):
            if place not in reading.entered:
                step(f"{_READING}: {info.name}()", number, len(reading.starts))
                yield from self._one(place, reading, partial(reading.function, place), rules)

    def _begin(self, reading: Reading, rules: list[Rule]) -> None:
        """What all runs rest on."""
        seen, modules = reading.interest, reading.project.modules
        asked = ([rule.id for rule in rules], reading.assumed, {*reading.project.texts})
        common = (asked, seen.hot, seen.talks, seen.words, seen.opens, seen.mpi, modules.added)
        if common != self._common:
            self._now = {}
        self._common = common
        self._before, self._now = self._now, {}

    def _one(
        self, start: object, reading: Reading, read: Callable[[], Run | None], rules: list[Rule]
    ) -> Iterator[JudgedRun]:
        key, modules = (start, reading.limit), reading.project.modules
        kept = self._before.get(key)
        if kept is not None and kept.holds(modules):
            reading.spent += kept.spent
            reading.entered |= kept.run.entered if kept.run is not None else frozenset()
        else:
            modules.looked, modules.answered, modules.ordered = set(), {}, False
            before = reading.spent
            run = read()
            found = JudgedRun.of(run, rules) if run is not None else None
            entered = {one.file for one in run.modules.values()} if run is not None else set()
            texts = {file: modules.text(file) for file in modules.looked | entered}
            kept = _KeptRun(found, texts, modules.answered, reading.spent - before)
        if not modules.ordered:
            self._now[key] = kept
        if kept.run is not None:
            yield kept.run


def judged(run: Run, rules: Iterable[Rule]) -> list[Finding]:
    """What these rules find in one run."""
    if not run.distributed:
        return []
    found = (one for rule in rules if rule.lint is not None for one in rule.lint(run))
    return [_weighed(run, one) for one in found if not run.is_ours(one.site.path)]


def is_serious(one: Finding) -> bool:
    """Whether it is more than a note."""
    return one.severity is not Severity.NOTE


def _weighed(run: Run, one: Finding) -> Finding:
    """The finding with the calls that lead there.

    Where no script is seen to call the function that was read, nothing is proven of a program:
    who calls it with what is not known. Then it is a note, unless the function opens the session
    itself or a framework calls it on all ranks. A test runs in one process, whatever could start
    more, unless it asks for several; and what it hands to other files no user may hand to them.
    """
    inside = not run.tested or one.site.path == run.start.partition(":")[0]
    severity = one.severity if inside and run.once(_is_proven) else Severity.NOTE
    return replace(one, way=one.way or way_to(run, one.site), severity=severity)


def _is_proven(run: Run) -> bool:
    if run.assumed or runs_alone(run):
        return run.assumed
    return run.hook or run.opener is not None or (run.script and bool(run.frameworks))


def _program(run: Run) -> Program:
    by, stopped = run.opener, run.stopped
    session = (str(by.place), by.name) if by is not None else ("", "")
    return Program(run.start, *session, run.complete, str(stopped or ""), run.missed)
