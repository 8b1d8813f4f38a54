"""Discover, read, link, judge, plan, rewrite: the steps of every command, in order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ddpify import accepting, discover, launching, siblings, vendor
from ddpify.advice.lone import lone_starts
from ddpify.facts.frameworks import hogwild, instead, loop_elsewhere
from ddpify.facts.link import TooLarge, analyze
from ddpify.facts.model import Facts, Status
from ddpify.outcome import Account, Note, Outcome, Refusal
from ddpify.plan import Plan
from ddpify.project import Files, Project
from ddpify.rules.base import Finding, How, Severity
from ddpify.rules.registry import all_rules
from ddpify.settings import Settings
from ddpify.source import Source, UnreadableSource


@dataclass(frozen=True)
class ReadEntry:
    """One entry, read whole."""

    project: Project
    facts: Facts


def migrate(paths: Sequence[Path], settings: Settings) -> Outcome:
    """Everything that takes the entries to ``torchrun``, rendered; nothing is written."""
    return examine(paths, settings)[0]


def examine(paths: Sequence[Path], settings: Settings) -> tuple[Outcome, tuple[Facts, ...]]:
    """What ``migrate`` gives, and the facts of its entries, for who advises on them."""
    if settings.strategy == "fsdp":
        return _refused("--strategy fsdp is not there yet: ddpify migrates to DDP for now"), ()
    found = discover.entries(paths)
    if isinstance(found, Refusal):
        return Outcome(Path.cwd(), (), refusals=(found,)), ()
    reads, refusals = _read_all(found, settings)
    outcome = _migrated(found, reads, refusals, settings)
    return outcome, tuple(r.facts for r in reads if r.facts.entry.path in outcome.entries)


def _migrated(
    found: discover.Entries, reads: list[ReadEntry], refusals: list[Refusal], settings: Settings
) -> Outcome:
    reads, others = _training(found, reads)
    refusals += [r for read in reads for r in _why_not(read)]
    if refusals:
        return Outcome(found.root, _names(reads), refusals=tuple(refusals), files=_files(reads))
    findings = [f for read in reads for f in _judge(read.facts, settings)]
    findings, accepted = accepting.taken(findings, settings, found.root)
    refusals = [_avoidable(f) for f in findings if f.severity is Severity.ERROR and not f.fix]
    whole = settings.batch_size != "per-rank"
    lone = dict(pair for read in reads for pair in lone_starts(read.facts, whole))
    findings += launching.findings(found.root, _names(reads), lone)
    if any(f.rule == "DDP302" for f in findings):
        findings += siblings.findings(found.root, _files(reads))
    outcome = _outcome(found.root, reads, findings, (*others, *accepted))
    if refusals:
        outcome = replace(outcome, refusals=_unique(refusals))
    else:
        outcome = _disposed(outcome, reads, settings)
    return replace(outcome, notes=(*outcome.notes, *accepting.idle(outcome, settings)))


def status(script: Path, settings: Settings) -> Status | tuple[Refusal, ...]:
    """How far the program on ``script`` is from one process, or why it cannot be read."""
    found = discover.entries((script,))
    if isinstance(found, Refusal):
        return (found,)
    reads, refusals = _read_all(found, settings)
    return tuple(refusals) or reads[0].facts.status


def _read_all(found: discover.Entries, settings: Settings) -> tuple[list[ReadEntry], list[Refusal]]:
    reads, refusals, files = [], [], Files()
    for entry in found.scripts:
        project = Project(found.root, entry.resolve(), files=files)
        try:
            facts = analyze(project, settings.wants("DDP205"), settings.batch_dim)
        except TooLarge as error:
            refusals.append(Refusal(str(error)))
            continue
        refusals += [Refusal(message) for message in project.unreadable.values()]
        if facts is None:
            if not project.unreadable:
                refusals.append(Refusal(f"{project.relative(entry)}: is empty"))
        else:
            reads.append(
                ReadEntry(project, replace(facts, runtime=vendor.place(project, settings)))
            )
    return reads, refusals


def _training(
    found: discover.Entries, reads: Sequence[ReadEntry]
) -> tuple[list[ReadEntry], tuple[Note, ...]]:
    """The programs to migrate, and those of a folder that do not train: they stay as they are."""
    others = [r for r in reads if r.project.entry in found.guessed and not r.facts.training]
    if len(others) == len(reads):
        return list(reads), ()
    notes = (Note(r.facts.entry.site, "does not train: left as it is") for r in others)
    return [read for read in reads if read not in others], tuple(notes)


def _judge(facts: Facts, settings: Settings) -> list[Finding]:
    """Every wanted rule's findings, in order of place."""
    found = [
        finding
        for rule in all_rules()
        if settings.wants(rule.id)
        for finding in rule.check(facts, settings)
    ]
    return sorted(found, key=lambda finding: (finding.site, finding.rule))


def _why_not(read: ReadEntry) -> list[Refusal]:
    """The reasons not to migrate this entry; none when it can be."""
    facts = read.facts
    path = facts.entry.path
    if facts.status is Status.DISTRIBUTED:
        site, name = facts.evidence[0]
        how = f": {instead(name)}" if instead(name) else ""
        why = f"already distributed ({name}){how}; `ddpify check` finds its bugs"
        if site.path != path and not any(site.within(call.site) for call in facts.calls):
            why = f"already distributed: {path} imports this file, though it never comes by {name}"
            why += "; start the script that does, which `ddpify check` finds the bugs of"
        return [Refusal(f"{site}: {why}", site)]
    if not facts.training:
        trees = facts.trees.values()
        why = f"{path}: no training loop found (nothing in a loop calls backward())"
        return [Refusal(hogwild(trees) or loop_elsewhere(trees) or why)]
    if not facts.steps:
        where = facts.training[0].backward.site
        return [Refusal(f"{where}: no optimizer that can be followed steps after this backward()")]
    for loop in facts.training:
        site = loop.batch.site
        if unbound := facts.unbound(loop.batch.header):
            why = f"nothing binds `{unbound}`: the program stops here with a NameError"
            return [Refusal(f"{site}: {why}", site)]
        if not loop.loaders and site in dict(facts.undivided):
            why = "the training loop's batches do not come from a DataLoader that can be followed"
            why += f", and to divide each of them: {dict(facts.undivided)[site]}"
            return [Refusal(f"{site}: {why}; shard them by hand", site)]
    if not facts.models:
        site = facts.steps[0].site
        return [Refusal(f"{site}: the model whose parameters are stepped cannot be followed", site)]
    return []


def _avoidable(finding: Finding) -> Refusal:
    """A refusal that the user may take back."""
    refusal = _as_refusal(finding)
    way = f"`--accept {finding.rule}@{finding.site}` migrates it as it stands"
    return replace(refusal, message=f"{refusal.message}; {way}")


def _as_refusal(finding: Finding) -> Refusal:
    return Refusal(
        f"{finding.site}: {finding.rule} {finding.message}; {finding.advice}", finding.site
    )


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
        _names(reads),
        tuple(unique.values()),
        notes=(*notes, *dict.fromkeys(Note(u.site, u.why) for u in unknowns)),
        files=_files(reads),
        account=_account(reads),
    )


def _account(reads: Sequence[ReadEntry]) -> Account:
    """What was followed in all programs together; each place counts once."""
    found = [read.facts.followed for read in reads]
    left = dict.fromkeys(Note(one.site, one.told) for each in found for one in each.escapes)
    sites = {note.site for note in left}
    uses = {use for each in found for use in each.uses if not any(use.within(s) for s in sites)}
    return Account(len(uses), len({one for each in found for one in each.values}), tuple(left))


def _disposed(outcome: Outcome, reads: Sequence[ReadEntry], settings: Settings) -> Outcome:
    """The rendered outcome that the reading as several ranks accepts, or a refusal."""
    # the other reader: loaded for a program that is rewritten, as libcst and black are
    from ddpify.disposal import dispose

    while True:
        rendered = _rendered(outcome, reads, settings)
        if rendered.refusals or not rendered.changes:
            return rendered
        judged = dispose(rendered, settings)
        if judged.refusals or judged.changes:
            return judged
        outcome = judged  # some fixes were withdrawn: fewer in each round


def _rendered(outcome: Outcome, reads: Sequence[ReadEntry], settings: Settings) -> Outcome:
    # libcst and black: loaded for a program that is rewritten, a refused one is spared them
    from ddpify.rewrite import ReadOnlySource, Style, render

    sources = {path: s for read in reads for path, s in read.project.sources.items()}
    plan = Plan.of(outcome.findings, sources)
    if plan.clashes:
        sentences = [Refusal(f"{c.site}: {c.message}", c.site) for c in plan.clashes]
        return replace(outcome, clashes=plan.clashes, refusals=tuple(sentences))
    used = {wanted.name for one in plan.edits for wanted in one.edit.imports}
    outside = [one.edit.site for one in plan.edits if Path(one.edit.site.path).is_absolute()]
    if outside:  # a link leads there: others may share it
        why = "this file outside the project would have to change: copy it into the project first"
        return replace(outcome, refusals=(Refusal(f"{outside[0]}: {why}", outside[0]),))
    copy = vendor.finding(reads[0].facts.runtime, outcome.root, used)
    if copy is not None:
        if not copy.fix:
            return replace(outcome, refusals=(_as_refusal(copy),))
        outcome = replace(outcome, findings=(*outcome.findings, copy))
        plan = Plan.of(outcome.findings, sources)
    style = Style.of(settings.line_length)
    try:
        sources |= _text_sources(outcome.root, plan)
        return replace(outcome, changes=render(plan, sources, style))
    except (ReadOnlySource, UnreadableSource) as error:
        return replace(outcome, refusals=(Refusal(str(error)),))


def _text_sources(root: Path, plan: Plan) -> dict[str, Source]:
    """The launchers that the plan edits, and the copy of the helpers that it renews."""
    found = {}
    for one in plan.edits:
        path = one.edit.site.path
        whole = one.edit.how is How.NEW_FILE and (root / path).exists()
        if (whole or one.edit.how is How.TEXT) and path not in found:
            raw = (root / path).read_bytes()
            found[path] = Source.plain(raw, root / path, path)
    return found


def _names(reads: Sequence[ReadEntry]) -> tuple[str, ...]:
    return tuple(read.facts.entry.path for read in reads)


def _files(reads: Sequence[ReadEntry]) -> tuple[str, ...]:
    return tuple(sorted({path for read in reads for path in read.project.sources}))


def _unique(refusals: Iterable[Refusal]) -> tuple[Refusal, ...]:
    return tuple(dict.fromkeys(refusals))


def _refused(message: str) -> Outcome:
    return Outcome(Path.cwd(), (), refusals=(Refusal(message),))
