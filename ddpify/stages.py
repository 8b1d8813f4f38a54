"""Steps of a migration that more than one way takes: judge, plan, render, dispose."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from ddpify import unbound, vendor
from ddpify.facts.model import Facts
from ddpify.names import module_of
from ddpify.outcome import Outcome, Refusal
from ddpify.plan import Plan
from ddpify.reading import ReadEntry, is_converted
from ddpify.rules.base import Finding, How
from ddpify.rules.registry import OF_SHARDS, OF_SHARES, all_rules, conversions
from ddpify.settings import Settings
from ddpify.source import Site, Source, UnreadableSource
from ddpify.steps import StepListener, untold


def judge(facts: Facts, settings: Settings) -> list[Finding]:
    """Every wanted rule's findings, in order of place."""
    rules = conversions() if is_converted(facts, settings) else all_rules()
    if facts.replicas:
        rules = (*rules, *(rule for rule in all_rules() if rule.id in OF_SHARDS))
    found = [
        finding
        for rule in rules
        if settings.wants(rule.id) and not (facts.whole_batches and rule.id in OF_SHARES)
        for finding in rule.check(facts, settings)
    ]
    return sorted(found, key=lambda finding: (finding.site, finding.rule))


def as_refusal(finding: Finding) -> Refusal:
    message = f"{finding.site}: {finding.rule} {finding.message}; {finding.advice}"
    return Refusal(message, finding.site, finding)


def disposed(
    outcome: Outcome,
    reads: Sequence[ReadEntry],
    settings: Settings,
    step: StepListener = untold,
) -> Outcome:
    """The rendered outcome that the reading as several ranks accepts, or a refusal."""
    # the other reader: loaded for a program that is rewritten, as libcst and black are
    from ddpify.disposal import dispose

    while True:
        found = rendered(outcome, reads, settings)
        if found.refusals or not found.changes:
            return found
        step("Reading the result as two ranks run it")
        if lost := unbound.refusals(found.changes):
            return replace(found, changes=(), refusals=lost)
        judged = dispose(found, settings, [read.facts for read in reads])
        if judged.refusals or judged.changes:
            return judged
        # some fixes were withdrawn, or one was added: it may call another helper
        kept = tuple(one for one in judged.findings if one.rule != vendor.RULE)
        outcome = replace(judged, findings=kept)


def rendered(outcome: Outcome, reads: Sequence[ReadEntry], settings: Settings) -> Outcome:
    # libcst and black: loaded for a program that is rewritten, a refused one is spared them
    from ddpify.rewrite import ReadOnlySource, Style, render

    sources = {path: s for read in reads for path, s in read.project.sources.items()}
    plan = Plan.of(outcome.findings, sources)
    if plan.clashes:
        sentences = [Refusal(f"{c.site}: {c.message}", c.site) for c in plan.clashes]
        return replace(outcome, clashes=plan.clashes, refusals=tuple(sentences))
    core = reads[0].facts.runtime[0]
    wanted = {wanted for one in plan.edits for wanted in one.edit.imports}
    used = {one.name for one in wanted if one.module == module_of(core, one.name)}
    outside = [one.edit.site for one in plan.edits if Path(one.edit.site.path).is_absolute()]
    if outside:  # a link leads there: others may share it
        why = "this file outside the project would have to change: copy it into the project first"
        return replace(outcome, refusals=(Refusal(f"{outside[0]}: {why}", outside[0]),))
    copy = vendor.finding(reads[0].facts.runtime, outcome.root, used)
    if copy is not None:
        if not copy.fix:
            return replace(outcome, refusals=(as_refusal(copy),))
        outcome = replace(outcome, findings=(*outcome.findings, copy))
        plan = Plan.of(outcome.findings, sources)
    style = Style.of(settings.line_length)
    try:
        sources |= text_sources(outcome.root, plan)
        return replace(outcome, changes=render(plan, sources, style))
    except (ReadOnlySource, UnreadableSource) as error:
        return replace(outcome, refusals=(Refusal(str(error)),))


def text_sources(root: Path, plan: Plan) -> dict[str, Source]:
    """The launchers that the plan edits, and the copy of the helpers that it renews."""
    found = {}
    for one in plan.edits:
        path = one.edit.site.path
        whole = one.edit.how is How.NEW_FILE and (root / path).exists()
        if (whole or one.edit.how is How.TEXT) and path not in found:
            raw = (root / path).read_bytes()
            found[path] = Source.plain(raw, root / path, path)
    return found


def names(reads: Sequence[ReadEntry]) -> tuple[str, ...]:
    return tuple(read.facts.entry.path for read in reads)


def files(reads: Sequence[ReadEntry]) -> tuple[str, ...]:
    return tuple(sorted({path for read in reads for path in read.project.sources}))


def unique(refusals: Iterable[Refusal]) -> tuple[Refusal, ...]:
    return tuple(dict.fromkeys(refusals))


def line(site: Site) -> tuple[str, int]:
    return site.path, site.span.line
