"""Decisions from what each rank evaluates, and no loop is seen to add up: rank 0's for all."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.facts.events import Bind, Forward
from ddpify.facts.joining import flat_deps
from ddpify.facts.locality import loaders_in
from ddpify.facts.model import Facts
from ddpify.facts.scopes import Loop
from ddpify.facts.values import Kind, Thing
from ddpify.rules.base import Finding, How, Severity
from ddpify.rules.edits import edit
from ddpify.rules.metrics.deciding import left_behind
from ddpify.source import Site


def received(facts: Facts, decided: set[Site]) -> Iterable[Finding]:
    """``score = evaluate(model, everything)``: decided from what each rank computed at once, or
    from what a loop leaves in an object that is not followed."""
    outside = {f.output for f in facts.evaluation_forwards if not _over_batches(f)}
    decisive = _asked(facts, outside) if outside else set()
    unseen = {e.loop.site for e in facts.replicated if not left_behind(facts, e)}
    for forward in facts.evaluation_forwards:
        loops = _over_batches(forward)
        over = {t.born for loop in loops for t in loaders_in(loop.over)}
        if loops and {loop.site for loop in loops} <= unseen and over & decided:
            decisive.add(forward.output)
    done: set[Site] = set()
    for forward in facts.evaluation_forwards if decisive else ():
        bind = _received(facts, forward) if forward.output in decisive else None
        if bind is None or bind.where.statement in done:
            continue
        done.add(bind.where.statement)
        code = f"{bind.target} = broadcast({bind.target})"
        yield Finding(
            "DDP703",
            bind.where.statement,
            f"a decision is made from {bind.target}: ranks may differ in the last digit, or in"
            " their batch norm, and part ways",
            Severity.ERROR,
            (edit(facts, How.AFTER, bind.where.statement, code),),
            because=((forward.call.site, "the model is called here"),),
        )


def _asked(facts: Facts, outputs: set[Thing]) -> set[Thing]:
    """Those that a condition looks at, whatever else it does."""
    tests = {guard.site for call in facts.calls for guard in call.where.conditions()}
    asked: set[Thing] = set()
    for site, value in facts.values.items():
        found = flat_deps(value) & outputs
        if found and any(site.within(test) for test in tests):
            asked |= found
    return asked


def _over_batches(forward: Forward) -> list[Loop]:
    return [loop for loop in forward.call.where.loops() if loaders_in(loop.over)]


def _received(facts: Facts, forward: Forward) -> Bind | None:
    """Where the function that calls the model has given what it computed."""
    inside, made = forward.call.where.stack, _made_of(forward)
    for bind in facts.binds:
        outer = bind.where.stack
        came = len(outer) < len(inside) and inside[: len(outer)] == outer
        here = came and inside[len(outer)].within(bind.where.statement)
        here = here and not bind.where.one_rank()
        if here and bind.target.isidentifier() and not made.isdisjoint(flat_deps(bind.value)):
            return bind
    return None


def _made_of(forward: Forward) -> set[Thing]:
    """What says of a number that it comes from this call, or from the batches of its loop."""
    batches = (thing for value in forward.call.args for thing in value.dep(Kind.BATCH))
    return {forward.output, *(batches if _over_batches(forward) else ())}
