"""Discover, read, link, judge, plan, rewrite: the steps of every command, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from ddpify import accepting, discover, launching, siblings, trainers, vendor
from ddpify.advice import after
from ddpify.advice.lone import lone_starts, single_batches
from ddpify.choosing import Proposal, choices
from ddpify.clusters.files import with_start_files
from ddpify.facts.frameworks import loop_elsewhere
from ddpify.facts.model import Facts, Status
from ddpify.hazards import hazards
from ddpify.leaving import partly, restored_copy, to_do, without
from ddpify.lightning import agreed, chosen, commandline, configs, devices, limits, nodes, starting
from ddpify.lightning.configured import configured
from ddpify.outcome import Account, Note, Outcome, Refusal
from ddpify.plan import Change, Plan
from ddpify.reading import ReadEntry, is_converted, read_all, why_not
from ddpify.rules.base import Finding, Severity
from ddpify.rules.registry import of_trainers
from ddpify.settings import Settings
from ddpify.sourcing import sourced
from ddpify.stages import as_refusal, disposed, files, judge, line, names, text_sources, unique
from ddpify.steps import StepListener, untold
from ddpify.strategies import of


def migrate(
    paths: Sequence[Path],
    settings: Settings,
    step: StepListener = untold,
    partial: bool = False,
) -> Outcome:
    """Everything that takes the entries to ``torchrun``, rendered; nothing is written.

    ``step`` is told how far it is. ``partial``: what is refused is marked in programs that do not
    start, where anything is certain.
    """
    return with_start_files(after.told(*examine(paths, settings, step, partial)), settings)


def selected(
    paths: Sequence[Path],
    settings: Settings,
    choose: Callable[[tuple[Proposal, ...], Path], tuple[Proposal, ...]],
) -> Outcome:
    """What ``migrate`` gives of the changes that are chosen.

    A program that lacks one that it needs is marked there, and does not start.
    """
    outcome, reads = _examined(paths, settings, untold, partial=False)
    if outcome.refusals or not outcome.changes:
        return outcome
    sources = {path: s for read in reads for path, s in read.project.sources.items()}

    def alone(findings: Sequence[Finding]) -> tuple[Change, ...]:
        from ddpify.rewrite import Style, render

        texts = sources | text_sources(outcome.root, Plan.of(findings))
        return render(Plan.of(findings, texts), texts, Style.of(settings.line_length))

    own = [one for one in outcome.findings if one.rule != vendor.RULE]
    wanted = {f for choice in choose(choices(own, alone), outcome.root) for f in choice.findings}
    left = [one for one in own if one.fix and one not in wanted]
    taken = [one for one in own if one not in left]
    found = without(replace(outcome, findings=tuple(taken)), left, reads, settings)
    return after.told(found, [read.facts for read in reads])


def examine(
    paths: Sequence[Path],
    settings: Settings,
    step: StepListener = untold,
    partial: bool = False,
) -> tuple[Outcome, tuple[Facts, ...]]:
    """What ``migrate`` gives, and the facts of its entries, for who advises on them."""
    outcome, reads = _examined(paths, settings, step, partial)
    followed = () if outcome.starts_itself else reads
    return outcome, tuple(r.facts for r in followed if r.facts.entry.path in outcome.entries)


def _examined(
    paths: Sequence[Path], settings: Settings, step: StepListener, partial: bool
) -> tuple[Outcome, Sequence[ReadEntry]]:
    found = discover.entries(paths)
    if isinstance(found, Refusal):
        return Outcome(Path.cwd(), (), refusals=(found,)), ()
    reads, refusals = read_all(found, settings, step=step)
    if (lost := restored_copy(reads, settings)) is not None:
        return lost, ()
    outcome = _migrated(found, reads, refusals, settings, step)
    if outcome.refusals and any(one.rule == "DDP205" for one in outcome.findings):
        again = read_all(found, settings, shard_evaluation=False, step=step)
        whole = _migrated(found, *again, settings, step)
        outcome, reads = (outcome, reads) if whole.refusals else (whole, again[0])
    wanted = settings.whole_batches and settings.batch_size == "global"
    wanted &= not of(settings).shards
    if outcome.refusals and wanted and _train(reads):
        outcome = _with_whole_batches(found, settings, outcome, step) or outcome
    if partial and outcome.refusals:
        outcome = partly(outcome, reads, settings) or outcome
    if reads:
        outcome = sourced(outcome, reads[0].facts.runtime)
    return outcome, reads


def _train(reads: Sequence[ReadEntry]) -> bool:
    """Whether programs of one process train models that are followed."""
    facts = [read.facts for read in reads]
    one = (Status.SINGLE, Status.DATA_PARALLEL)
    return any(each.training and each.steps and each.models for each in facts) and all(
        each.status in one for each in facts
    )


def _with_whole_batches(
    found: discover.Entries, settings: Settings, refused: Outcome, step: StepListener
) -> Outcome | None:
    """The last resort: all ranks have whole batches, of which models compute each its rows."""
    reads, refusals = read_all(found, settings, whole_batches=True, step=step)
    outcome = _migrated(found, reads, refusals, settings, step)
    if outcome.refusals or outcome.clashes:
        return None
    notes = [Note(one.site, _short(one.message)) for one in refused.refusals if one.site]
    told = "therefore every rank trains on whole batches, as one process with nn.DataParallel does,"
    told += " and only what models compute of them is divided"
    notes += [Note(r.facts.training[0].batch.site, told) for r in reads if r.facts.training]
    return replace(outcome, notes=(*outcome.notes, *notes))


def _short(message: str) -> str:
    """What a refusal says of a place, without the place and what to do about it."""
    said = message.partition(": ")[2].partition(";")[0]
    return said.split(" ", 1)[1] if said.startswith("DDP") else said


def _migrated(
    found: discover.Entries,
    reads: list[ReadEntry],
    refusals: list[Refusal],
    settings: Settings,
    step: StepListener,
) -> Outcome:
    step("Planning the changes")
    reads, others = _training(found, reads)
    if reads and not refusals and all(read.facts.trainers for read in reads):
        return _of_trainers(found.root, reads, others, settings, step)
    left, guards = to_do(reads)
    refusals += left or [r for read in reads for r in why_not(read, settings)]
    if refusals:
        return Outcome(found.root, names(reads), refusals=tuple(refusals), files=files(reads))
    findings = [*guards, *(f for read in reads for f in judge(read.facts, settings))]
    half = any(is_converted(read.facts, settings) for read in reads)  # is no program
    findings, accepted = (findings, ()) if half else accepting.taken(findings, settings, found.root)
    unfixed = [f for f in findings if f.severity is Severity.ERROR and not f.fix]
    refusals = [as_refusal(f) if half else _avoidable(f) for f in unfixed]
    whole = settings.batch_size != "per-rank"
    lone = dict(pair for read in reads for pair in lone_starts(read.facts, whole))
    if not half:
        findings += launching.findings(found.root, names(reads), lone)
    if any(f.rule == "DDP302" for f in findings):
        mended = {f.site for f in findings if f.rule in ("DDP302", "DDP603") and f.fix}
        findings += siblings.findings(found.root, files(reads), mended)
    single = (note for read in reads if whole for note in single_batches(read.facts))
    notes = (*others, *accepted, *dict.fromkeys(single))
    outcome = _outcome(found.root, reads, findings, notes)
    if refusals:
        outcome = replace(outcome, refusals=unique(refusals))
    else:
        outcome = disposed(outcome, reads, settings, step)
    return replace(outcome, notes=(*outcome.notes, *accepting.idle(outcome, settings)))


def _of_trainers(
    root: Path,
    reads: Sequence[ReadEntry],
    others: tuple[Note, ...],
    settings: Settings,
    step: StepListener,
) -> Outcome:
    """Programs in Lightning's Trainer: what ``check`` finds and fixes in them, nothing else."""
    judging = trainers.asked_for(settings)
    linted = trainers.judged(root, names(reads), judging, reads[0].facts.runtime[0])
    made = trainers.left_to_lightning(linted.findings, settings)
    for path in {edit.site.path for one in made for edit in one.fix}:
        reads[0].project.read(root / path)  # what only a command line imports, facts have not read
    for read in reads:
        made = [*agreed.fixed(read.facts, made)]
    # what `check` does not read of a program: it is not found again once the rest is fixed
    own = [f for read in reads for f in _of_trainer(root, read.facts, settings)]
    paths = {".".join(one.path) for read in reads for one in configured(read.facts)}
    own += starting.findings(root, names(reads), sorted(paths), settings)
    own += chosen.findings(root, names(reads), [read.facts for read in reads])
    own += nodes.findings(root, names(reads), [read.facts for read in reads])
    # entries may share configurations
    own = [one for one in dict.fromkeys(own) if settings.wants(one.rule)]
    findings, accepted = accepting.taken([*made, *own], settings, root)
    told = (note for read in reads for note in trainers.told(read.facts, made, settings))
    notes = (*others, *accepted, *told)
    outcome = Outcome(
        root, names(reads), tuple(findings), notes=notes, files=files(reads), starts_itself=True
    )
    unfixed = [one for one in findings if not one.fix]
    errors = [one for one in unfixed if one.severity is Severity.ERROR]
    refusals = [*trainers.unread(linted)]
    refusals += [one for read in reads for one in hazards(read.facts, settings)]
    if refusals or any(one in own for one in errors):
        refusals = [*map(_avoidable, errors), *refusals]
        outcome = replace(outcome, refusals=unique(refusals))
    else:
        outcome = _with_what_is_left(disposed(outcome, reads, judging, step), errors)
        lost = [one for one in unfixed if one in own and one not in outcome.findings]
        outcome = replace(outcome, findings=(*outcome.findings, *lost))
    notes = (*outcome.notes, *accepting.idle(outcome, settings))
    return replace(outcome, notes=tuple(dict.fromkeys(notes)))


def _of_trainer(root: Path, facts: Facts, settings: Settings) -> list[Finding]:
    """What is found at the Trainer itself, and in the configuration that makes it."""
    found = [*limits.findings(facts, settings), *configs.findings(root, facts, settings)]
    if of(settings).shards:
        own = (devices.RULE, devices.NORMS, devices.UNUSED)  # which are the strategy's
        found = [one for one in found if one.rule not in own]
        return [*found, *(one for rule in of_trainers() for one in rule.check(facts, settings))]
    return [*found, *devices.findings(facts, settings), *commandline.findings(facts)]


def _with_what_is_left(outcome: Outcome, unfixed: Sequence[Finding]) -> Outcome:
    """What has no fix of its own may be right once the rest is fixed: else it is refused."""
    left = [one for one in unfixed if one in outcome.findings]
    said = {line(one.site) for one in left}
    others = (r for r in outcome.refusals if r.site is None or line(r.site) not in said)
    refusals = unique([*map(_avoidable, left), *others])
    return replace(outcome, refusals=refusals, changes=() if refusals else outcome.changes)


def status(script: Path, settings: Settings) -> Status | tuple[Refusal, ...]:
    """How far the program on ``script`` is from one process, or why it cannot be read."""
    found = discover.entries((script,))
    if isinstance(found, Refusal):
        return (found,)
    reads, refusals = read_all(found, settings)
    return tuple(refusals) or reads[0].facts.status


def is_elsewhere(script: Path, settings: Settings) -> bool:
    """Whether the loop is in a framework that distributes it, wherever its trainer is made."""
    found = discover.entries((script,))
    reads, _ = ([], ()) if isinstance(found, Refusal) else read_all(found, settings)
    own = any(read.facts.training for read in reads)
    return not own and any(loop_elsewhere(read.facts.trees.values()) for read in reads)


def _training(
    found: discover.Entries, reads: Sequence[ReadEntry]
) -> tuple[list[ReadEntry], tuple[Note, ...]]:
    """The programs to migrate, and those of a folder that do not train: they stay as they are."""
    others = [r for r in reads if r.project.entry in found.guessed and not r.facts.training]
    if len(others) == len(reads):
        return list(reads), ()
    notes = (Note(r.facts.entry.site, "does not train: left as it is") for r in others)
    return [read for read in reads if read not in others], tuple(notes)


def _avoidable(finding: Finding) -> Refusal:
    """A refusal, which the user may take back if there is anything to migrate then."""
    refusal = as_refusal(finding)
    if not accepting.is_acceptable(finding.rule):
        return refusal
    accept = f"{finding.rule}@{finding.site}"
    message = f"{refusal.message}; `--accept {accept}` migrates it as it stands"
    return replace(refusal, message=message, accept=accept)


def _outcome(
    root: Path,
    reads: Sequence[ReadEntry],
    findings: Iterable[Finding],
    notes: tuple[Note, ...] = (),
) -> Outcome:
    unknowns = [u for read in reads for u in read.facts.unknowns]
    unique = {(f.rule, f.site, f.message, f.fix): f for f in findings}
    return Outcome(
        root,
        names(reads),
        tuple(unique.values()),
        notes=(*notes, *dict.fromkeys(Note(u.site, u.why) for u in unknowns)),
        files=files(reads),
        account=_account(reads),
    )


def _account(reads: Sequence[ReadEntry]) -> Account | None:
    """What was followed in all programs together; each place counts once.

    None where no values are tracked: a conversion from FSDP1 changes the meaning of none.
    """
    found = [read.facts.followed for read in reads]
    left = dict.fromkeys(Note(one.site, one.told) for each in found for one in each.escapes)
    sites = {note.site for note in left}
    uses = {use for each in found for use in each.uses if not any(use.within(s) for s in sites)}
    values = {one for each in found for one in each.values}
    return Account(len(uses), len(values), tuple(left)) if values or left else None
