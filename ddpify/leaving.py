"""Migrations that leave something out: what is refused, what was not chosen, what is missing."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from ddpify import todo, unbound, vendor
from ddpify.facts.model import Status
from ddpify.outcome import Outcome, Refusal
from ddpify.partial import marked
from ddpify.reading import ReadEntry
from ddpify.restoring import restored
from ddpify.rules.base import Edit, Finding, How, Severity
from ddpify.rules.registry import all_rules
from ddpify.settings import Settings
from ddpify.source import Site, Span
from ddpify.sourcing import sourced
from ddpify.stages import as_refusal, disposed, files, judge, line, names, rendered

_WIDTH = 88  # of the comments of a partial migration, where no settings say


def without(
    outcome: Outcome, left: Sequence[Finding], reads: Sequence[ReadEntry], settings: Settings
) -> Outcome:
    """An outcome with the findings that are to be fixed, rendered; ``left`` are not."""
    if not any(one.fix for one in outcome.findings):
        return replace(outcome, changes=(), account=None)
    sources = {path: s for read in reads for path, s in read.project.sources.items()}
    told = [replace(one, fix=(), advice="it was left out") for one in left]
    read = () if outcome.starts_itself else sources
    wrong = [one for one in told if _harms(one, read)]
    kept = (*outcome.findings, *(one for one in told if one not in wrong))
    outcome = replace(outcome, findings=kept, changes=())
    todos = _placed([as_refusal(one) for one in wrong], reads, sources)
    if not wrong:
        judged = disposed(outcome, reads, settings)
        if not judged.refusals:
            return judged
        todos = _placed(judged.refusals, reads, sources)
    made = rendered(outcome, reads, settings)
    if lost := unbound.refusals(made.changes):
        return replace(made, changes=(), refusals=lost)
    if made.refusals:
        return made
    return marked(made, todos, sources, settings.line_length or _WIDTH)


def _harms(left: Finding, read: Collection[str]) -> bool:
    """Whether a program without this change may train something else, hang or end.

    A rule may be a note, as it is of most programs, and find an error in this one. A launch line
    that is left starts one process; where files of none are ``read``, it may be of a configuration.
    """
    if left.severity is Severity.ERROR:
        return True
    notes = {rule.id for rule in all_rules() if rule.severity is Severity.NOTE}
    return left.rule not in notes and (not read or left.site.path in read)


def _placed(
    refusals: Sequence[Refusal], reads: Sequence[ReadEntry], sources: Collection[str]
) -> list[Refusal]:
    """Where they can be marked: at the entry, if they are of no file that is read."""
    entry = reads[0].facts.entry.site
    return [
        one if one.site and one.site.path in sources else replace(one, site=entry)
        for one in refusals
    ]


def partly(outcome: Outcome, reads: Sequence[ReadEntry], settings: Settings) -> Outcome | None:
    """What is certain of a refused migration, and marks for the rest; None where nothing is.

    Where a program was refused before it was judged, the rules judge what was read of it.
    """
    if (
        not reads
        or outcome.clashes
        or any(read.facts.trainers for read in reads)
        or not _one(reads)
    ):
        return None
    sources = {path: s for read in reads for path, s in read.project.sources.items()}
    left = _placed(outcome.refusals, reads, sources)
    findings = outcome.findings or [f for read in reads for f in judge(read.facts, settings)]
    certain = tuple(one for one in findings if one.fix and one.rule != vendor.RULE)
    said = {line(one.site) for one in left if one.site}
    unfixed = [one for one in findings if not one.fix]
    if not outcome.findings:
        errors = (one for one in unfixed if one.severity is Severity.ERROR)
        left += [as_refusal(one) for one in errors if line(one.site) not in said]
    told = tuple(one for one in unfixed if one.severity is not Severity.ERROR)
    found = replace(outcome, findings=(*certain, *told), refusals=())
    made = rendered(found, reads, settings)
    if made.refusals or not certain:
        return None
    helped = sourced(replace(made, refusals=tuple(left)), reads[0].facts.runtime)
    return marked(made, helped.refusals, sources, settings.line_length or _WIDTH)


def _one(reads: Sequence[ReadEntry]) -> bool:
    """Whether all programs train in one process, as far as they are followed."""
    one = (Status.SINGLE, Status.DATA_PARALLEL)
    return all(read.facts.status in one and read.facts.training for read in reads)


def to_do(reads: Sequence[ReadEntry]) -> tuple[list[Refusal], list[Finding]]:
    """What a partial migration has left that is still there; else the guards, which may go."""
    left, guards = [], []
    for path, source in {p: s for read in reads for p, s in read.project.sources.items()}.items():
        for number, what in todo.marks(source.text):
            site = Site(path, Span(number, 0, number, 0))
            left.append(Refusal(f"{site}: {todo.CODE} TODO {what}; {todo.WAY}", site))
        guard = todo.guard_in(source.text)
        if guard is not None:
            site = source.site(guard)
            fix = (Edit(How.DELETE, site, ""),)
            told = "what was left to do by hand is done: the program may start"
            guards.append(Finding(todo.CODE, site, told, Severity.WARNING, fix))
    return left, guards


def restored_copy(reads: Sequence[ReadEntry], settings: Settings) -> Outcome | None:
    """The missing copy of the helpers of a project that was migrated; None where none is."""
    for read in reads:
        lost = restored(read.project, settings)
        if lost is not None:
            finding, note = lost
            outcome = Outcome(
                read.project.root, names([read]), (finding,), notes=(note,), files=files([read])
            )
            return rendered(outcome, [read], settings)
    return None
