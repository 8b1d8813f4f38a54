"""DDP505: every rank draws a progress bar."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ddpify.facts.events import Call
from ddpify.facts.model import Facts
from ddpify.facts.values import NOTHING, Kind
from ddpify.ranks.model import RankCall
from ddpify.ranks.run import Run
from ddpify.rules.base import Edit, Finding, How, Import, Rule, Severity
from ddpify.rules.edits import MAIN, edit, gate, once
from ddpify.rules.examples import BY_HAND, CORRECT, SCRIPT, SINGLE, TRAINER, changed
from ddpify.rules.shared.meetings import at_once
from ddpify.rules.shared.outputs import by_all
from ddpify.settings import Settings
from ddpify.source import Site

# What a bar that is switched off has, too.
KEPT = frozenset({"total", "iterable", "disable", "leave", "pos"})


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per tqdm bar that is shown on all ranks."""
    bars = tuple(
        c for c in facts.calls if any(t.born == c.site for t in c.result.of(Kind.PROGRESS))
    )
    for site, calls in once(bars).items():
        disable = calls[0].kwargs.get("disable")
        if (disable is not None and disable.dep(Kind.RANK)) or calls[0].where.one_rank():
            continue
        asked = _asked(facts, site)
        silent = _draws_only(facts, calls[0]) and asked is not None
        fix = (*_fix(facts, calls[0]), *(asked or ())) if silent else ()
        yield Finding(
            "DDP505",
            site,
            "every rank would draw a progress bar",
            Severity.WARNING,
            fix,
            "" if fix else "pass disable=rank != 0 where it is one",
        )
    for calls in once(facts.named(*OLD_BARS)).values():
        if "file" not in calls[0].kwargs and not calls[0].where.one_rank():
            yield from _drawn_by_all(facts, calls[0])


def _asked(facts: Facts, bar: Site) -> tuple[Edit, ...] | None:
    """What shows a count of the bar's own, for rank 0; None where more is made of one.

    One that is switched off counts nothing: ``bar.set_postfix(mean=total / bar.n)``.
    """
    reads = [a for a in facts.accesses if not a.stored and not a.where.one_rank()]
    reads = [a for a in reads if any(t.born == bar for t in a.base.of(Kind.PROGRESS))]
    reads = [a for a in reads if a.attribute not in KEPT]
    shown = {call.where.statement for call in facts.calls if _shows(call)}
    called = {(call.receiver_site, call.name[1:]) for call in facts.calls}  # `bar.update(1)`
    reads = [a for a in reads if (a.base_site, a.attribute) not in called]
    counts = dict.fromkeys(a.where.statement for a in reads)
    return tuple(gate(facts, site) for site in counts) if shown.issuperset(counts) else None


def _shows(call: Call) -> bool:
    owner = call.receiver.things if call.receiver is not None else ()
    return call.alone and bool(owner) and all(thing.kind is Kind.PROGRESS for thing in owner)


def _draws_only(facts: Facts, call: Call) -> bool:
    """Whether nothing else is called there, which would not know the argument: `list(loader)`."""
    called = facts.values.get(call.callee, NOTHING).things
    return all(thing.name.startswith("tqdm.") for thing in called)


def _drawn_by_all(facts: Facts, call: Call) -> Iterable[Finding]:
    """A bar of the package `progress`, which writes to a file; and the numbers it is given."""
    silent = edit(facts, How.ARGUMENT, call.site, f"stderr if {MAIN} else NullWriter()", "file")
    silent = replace(silent, imports=(*silent.imports, Import("sys", "stderr")))
    message = "every rank would draw a progress bar"
    yield Finding("DDP505", call.site, message, Severity.WARNING, (silent,))
    frames = [loop.batch.frame for loop in facts.training]
    if any(call.where.stack == frame.stack for frame in frames):
        yield Finding(
            "DDP505",
            call.site,
            "the numbers that this bar shows while training would be of one rank's samples only",
            Severity.NOTE,
            (),
            "rank 0's bar shows its own: others would cost a message in every step",
        )


def _fix(facts: Facts, call: Call) -> tuple[Edit, ...]:
    code = "not is_main_process()"
    if "disable" in call.kwarg_sites:
        code = f"{{}} or {code}"
    return (edit(facts, How.ARGUMENT, call.site, code, "disable"),)


OLD_BARS = tuple(
    f"progress.bar.{name}"
    for name in (
        "Bar",
        "ChargingBar",
        "FillingCirclesBar",
        "FillingSquaresBar",
        "IncrementalBar",
        "PixelBar",
        "ShadyBar",
    )
)
BARS = frozenset(
    f"{place}{name}"
    for place in ("tqdm.", "tqdm.auto.", "tqdm.std.", "tqdm.notebook.", "tqdm.rich.")
    for name in ("tqdm", "trange", "tqdm_notebook")
)


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per bar that every rank draws in the same place."""
    for call in run.calls:
        if call.name not in BARS or _apart(call) or not by_all(run, call):
            continue
        if at_once(run, call):
            yield Finding(
                "DDP505",
                call.site,
                "every rank draws a progress bar",
                Severity.NOTE,
                advice="pass disable=rank != 0",
            )


def _apart(call: RankCall) -> bool:
    """Whether a bar is switched off somewhere, or has a place or a name of its rank."""
    disable = call.kwargs.get("disable")
    if call.star or "file" in call.kwargs:
        return True
    if disable is not None and disable.constant is not False:
        return True
    return any(value.by_rank for name, value in call.kwargs.items() if name != "iterable")


RULE = Rule(
    "DDP505",
    "progress-bar-on-every-rank",
    "N bars overwrite each other in one terminal.",
    "tqdm's `disable` argument; BUGS M07",
    check,
    bad=(
        changed(
            TRAINER,
            (
                'tqdm(self.streams["past"], disable=not is_main_process()):',
                'tqdm(self.streams["past"]):  # DDP505',
            ),
        ),
        changed(
            SINGLE,
            ("import argparse\n", "import argparse\n\nfrom progress.bar import Bar\n"),
            ("        net.train()\n", '        net.train()\n        bar = Bar("now")  # DDP505\n'),
            ("            adam.step()\n", "            adam.step()\n            bar.next()\n"),
        ),
        changed(
            SCRIPT,
            ("import torch\nimport", "import torch\nfrom tqdm.auto import trange\nimport"),
            ("for n in range(20):\n", "for n in trange(20):  # DDP505\n"),
        ),
        changed(
            BY_HAND,
            ("import os\n", "import os\n\nimport tqdm\n"),
            ("in loader:\n", "in tqdm.tqdm(loader):  # DDP505\n"),
        ),
    ),
    good=(
        *CORRECT,
        changed(
            BY_HAND,
            ("import os\n", "import os\n\nimport tqdm\n"),
            ("in loader:\n", "in tqdm.tqdm(loader, disable=dist.get_rank() != 0):\n"),
        ),
    ),
    lint=lint,
    words=("tqdm",),
    severity=Severity.NOTE,
)
