"""DDP701: a loop's sums are those of one rank."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from textwrap import indent

from ddpify.facts.events import LoopEnd
from ddpify.facts.kinds import CONTAINERS
from ddpify.facts.model import Facts
from ddpify.facts.values import Kind
from ddpify.ranks.run import Run
from ddpify.ranks.ways import way_of
from ddpify.rules.base import Edit, Finding, How, Rule, Severity
from ddpify.rules.edits import edit
from ddpify.rules.examples import (
    CORRECT,
    LEARNER,
    PROJECT,
    SCRIPT,
    SINGLE,
    TRAINER,
    changed,
    marked,
)
from ddpify.rules.examples.collected import FORMS, NEAR
from ddpify.rules.examples.dealt import DEALT, HANDED_ON
from ddpify.rules.examples.dealt import NEAR as NOT_DEALT
from ddpify.rules.metrics.halves import halves
from ddpify.rules.metrics.in_turns import out_of_order
from ddpify.rules.metrics.metrics import decided, evaluations, shown
from ddpify.rules.metrics.own_slices import shown_slices
from ddpify.settings import Settings
from ddpify.source import Site


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per evaluated loader whose numbers only one rank's samples went into."""
    for one in evaluations(run):
        call = next(shown(run, one), None)
        guard = next(decided(run, one), None) if call is None else None
        use = call or guard
        if use is not None:
            yield Finding(
                "DDP701",
                use.site,
                "this is rank 0's share of the samples only: the other ranks' results are left out",
                Severity.ERROR,
                (),
                "all_reduce the sums and counts before they are divided",
                ((one.loader.site or use.site, "its loader deals the samples"),),
                way=way_of(run, call) if call is not None else (),
            )
    for call, cut in shown_slices(run):
        yield Finding(
            "DDP701",
            call.site,
            "this is of the samples that rank 0 took for itself: the other ranks' results are left"
            " out",
            Severity.WARNING,
            (),
            "all_reduce the sums and counts before they are divided",
            ((cut, "each rank takes its own"),),
        )
    for call, pairs in out_of_order(run):
        yield Finding(
            "DDP701",
            call.site,
            "DistributedSampler deals samples in turns: put together rank by rank, their results"
            " are in another order, and go to the wrong samples",
            Severity.ERROR,
            (),
            "gather the indices of the samples, too, and sort by them",
            ((pairs.site, "paired here with what is in the order of the data set"),),
        )


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per loop over a sharded loader whose results are used after it."""
    done: set[Site] = set()
    for end in facts.ends:
        lines = _lines(_everywhere(facts, end))
        if not lines or end.loop.site in done:
            continue
        done.add(end.loop.site)
        lists = (*end.samples, *end.batches, *end.numbers, *end.totals)
        names = ", ".join((*end.sums, *end.means, *end.entries, *end.meters, *lists))
        yield Finding(
            "DDP701",
            end.loop.site,
            f"after this loop {names} would be of one rank's samples only",
            Severity.ERROR,
            tuple(_after(facts, end, line) for line in lines),
        )


def _everywhere(facts: Facts, end: LoopEnd) -> LoopEnd:
    """The loops' ends without what another call of the same function leaves as something else."""
    twins = [e for e in facts.ends if e.loop.site == end.loop.site]
    others = {name for twin in twins for name in twin.others}
    others |= halves(facts, end, others)

    def kept(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in names if name not in others)

    return replace(
        end,
        sums=kept(end.sums),
        means=kept(end.means),
        samples=kept(end.samples),
        batches=kept(end.batches),
        numbers=kept(end.numbers),
        totals=kept(end.totals),
        entries=kept(end.entries),
    )


def _lines(end: LoopEnd) -> list[str]:
    lines = []
    for names, how in (
        (end.sums, "reduce_sum"),
        (end.means, "reduce_mean"),
        (end.entries, "reduce_entries"),
        (end.samples, "gather_samples"),
        (end.batches, "gather_batches"),
    ):
        if names:
            joined = ", ".join(names)
            lines.append(f"{joined} = {how}({joined})")
    lines += [f"{name}[:] = reduce_mean({name})" for name in end.numbers]
    lines += [f"{name}[:] = reduce_sum({name})" for name in end.totals]
    if end.meters:
        lines.append(f"reduce_meter({', '.join(_each(end, name) for name in end.meters)})")
    return ["\n".join(lines)] if lines else []


def _each(end: LoopEnd, meters: str) -> str:
    """``*meters.values()`` of a dict of them."""
    value = end.loop.frame.lookup(meters)
    if value is None or not value.of(*CONTAINERS):
        return meters
    return f"*{meters}.values()" if value.of(Kind.DICT) else f"*{meters}"


def _after(facts: Facts, end: LoopEnd, code: str) -> Edit:
    test = facts.phases.get(end.loop.site)
    if test:  # where it evaluates, every rank goes over all samples
        code = f"if {test}:\n{indent(code, '    ')}"
    return edit(facts, How.AFTER, end.loop.site, code)


RULE = Rule(
    "DDP701",
    "metric-not-reduced",
    "Each rank sees its share of the samples. Sums and counts are added over the ranks before they"
    " are divided, lists of predictions are put together in the order of the samples; batch means"
    " are averaged. Otherwise ranks print, compare and save different numbers, and a decision made"
    " from them splits the job.",
    "ignite#615, transformer-xl#14; BUGS M01, M02",
    check,
    bad=(
        changed(
            SCRIPT,
            ("    for x, y in feed:\n", "    for x, y in feed:  # DDP701\n"),
            ("    running = reduce_mean(running)\n", ""),
        ),
        changed(
            PROJECT,
            (
                "    for picture, kind in stream:\n        guess",
                "    for picture, kind in stream:  # DDP701\n        guess",
            ),
            ("    hits, seen = reduce_sum(hits, seen)\n", ""),
        ),
        changed(
            TRAINER,
            ("disable=not is_main_process()):\n", "disable=not is_main_process()):  # DDP701\n"),
            ("        gap, count = reduce_sum(gap, count)\n", ""),
        ),
        *(
            marked(form, "DDP701", "for signal, label in pairs:")
            for form in (SINGLE, *FORMS, *DEALT)
        ),
        changed(
            HANDED_ON,
            (
                "    for picture, kind in stream:\n        guess",
                "    for picture, kind in stream:  # DDP701\n        guess",
            ),
            ("    hits = reduce_sum(hits)\n", ""),
        ),
        changed(  # half of a quotient is not reduced: the loop that trains is not reported
            SINGLE,
            ("for signal, label in pairs:\n", "for signal, label in pairs:  # DDP701\n"),
            ("        net.train()\n", "        net.train()\n        odd, seen = 1.0, 0\n"),
            (
                "            adam.step()\n",
                "            adam.step()\n            seen += len(label)\n"
                "            odd = odd * signal[0].max().item()\n",
            ),
            ('        print("round"', '        print(odd / seen)\n        print("round"'),
        ),
        changed(  # a list with a mean of each batch, which decides
            SINGLE,
            ("in pairs:\n", "in pairs:  # DDP701\n"),
            ("        net.train()\n", "        net.train()\n        kept = []\n"),
            ("label in fitting:", "label in fitting:  # DDP701"),
            (
                "            adam.step()\n",
                "            adam.step()\n            kept.append(objective.item())\n"
                "        if max(kept) < 0.1:\n            break\n",
            ),
        ),
        changed(  # one with a sum
            SINGLE,
            ("in pairs:\n", "in pairs:  # DDP701\n"),
            ("        net.train()\n", "        net.train()\n        kept = []\n"),
            ("label in fitting:", "label in fitting:  # DDP701"),
            (
                "            adam.step()\n",
                "            adam.step()\n            kept.append(objective.item() * len(label))\n"
                "        if max(kept) < 0.1:\n            break\n",
            ),
        ),
    ),
    good=(
        *CORRECT,
        *NEAR,
        *NOT_DEALT,
        HANDED_ON,
        LEARNER,
        changed(  # nothing is read after the loop
            SCRIPT,
            ("    running = reduce_mean(running)\n", ""),
            ("print(n, running / len(feed))", "print(n)"),
        ),
    ),
    lint=lint,
    severity=Severity.ERROR,
)
