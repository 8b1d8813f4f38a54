"""DDP208: a loader is given a sampler and told to shuffle."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.ranks.model import RankCall
from ddpify.ranks.passes import is_loader
from ddpify.ranks.run import Run
from ddpify.ranks.values import truth
from ddpify.rules.base import Edit, Finding, How, Rule, Severity
from ddpify.rules.examples import BY_HAND, CORRECT, changed
from ddpify.rules.shared.written import is_literal_keyword
from ddpify.site import Site


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per loader that is given both."""
    for call in run.calls:
        things = call.result.things if call.result is not None else ()
        for loader in things:
            if loader.call is call and loader.kind == "result" and is_loader(loader):
                yield from _judged(call)


def _judged(call: RankCall) -> Iterable[Finding]:
    shuffle = call.arg(2, "shuffle")
    if shuffle is None or shuffle.constant is not True:
        return
    for position, keyword in ((3, "sampler"), (4, "batch_sampler")):
        given = call.arg(position, keyword)
        if given is not None and all(truth(atom) is True for atom in given.atoms):
            fix = _fix(call) if keyword == "sampler" else ()
            yield Finding(
                "DDP208",
                _place(call),
                f"{keyword} and shuffle=True exclude each other: DataLoader raises ValueError",
                Severity.ERROR,
                fix,
                "" if fix else "leave shuffle out: the sampler shuffles",
            )


def _place(call: RankCall) -> Site:
    """The argument that has to go, where the loader's takes lines of their own."""
    node = call.node_of(2, "shuffle")
    return call.module.site(node) if node is not None else call.site


def _fix(call: RankCall) -> tuple[Edit, ...]:
    if is_literal_keyword(call, "shuffle"):
        return (Edit(How.ARGUMENT, call.site, "False", "shuffle"),)
    return ()


RULE = Rule(
    "DDP208",
    "sampler-and-shuffle",
    "A loader takes its order from the sampler or shuffles by itself. Given both it raises"
    " 'sampler option is mutually exclusive with shuffle' on every rank. One script for one"
    " process and for many says shuffle=(sampler is None).",
    "torch/utils/data/dataloader.py; BUGS D03",
    bad=(
        changed(
            BY_HAND,
            (
                "DataLoader(data, batch_size=16, sampler=sampler)",
                "DataLoader(data, 16, True, sampler)  # DDP208",
            ),
        ),
        changed(
            BY_HAND,
            (
                "batch_size=16, sampler=sampler)",
                "batch_size=16, shuffle=True, sampler=sampler)  # DDP208",
            ),
        ),
    ),
    good=(
        *CORRECT,
        changed(BY_HAND, ("sampler=sampler)", "sampler=sampler, shuffle=sampler is None)")),
    ),
    lint=lint,
    severity=Severity.ERROR,
)
