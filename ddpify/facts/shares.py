"""Which counts and means of a training loss can be made those of all ranks, and where.

A count is replaced where it is made, so that all it divides is right: its gradient-free value must
be used for nothing else, and every rank must come by as often as the others.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from ddpify.facts import roles, targets
from ddpify.facts.counts import forms, is_bounded, pure
from ddpify.facts.details import CountMean, Tally, call_that_made
from ddpify.facts.events import Where
from ddpify.facts.joining import flat_deps
from ddpify.facts.locality import is_local
from ddpify.facts.loops import RANGE
from ddpify.facts.model import Share, TrainingLoop
from ddpify.facts.protocol import Machine
from ddpify.facts.rows import OUTPUTS
from ddpify.facts.scopes import Guard, Loop
from ddpify.facts.uses import only_divides
from ddpify.facts.values import OF_ONE_RANK, Kind, Measure, Thing, Value
from ddpify.source import Site

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def shares(m: Machine) -> tuple[Share, ...]:
    """What to replace in this reading, in the order of the text."""
    training = roles.training_loops(roles.calls_of(m))
    found: dict[Site, Share] = {}
    for ratio in _ratios(m):
        share = _share(m, training, ratio)
        if share is not None:
            found[share.site] = share
    return tuple(found[site] for site in sorted(found))


def _ratios(m: Machine) -> list[Thing]:
    """The means over varying counts that some backward pass goes through."""
    found: set[Thing] = set()
    for call in roles.backwards(roles.calls_of(m)):
        for value in (call.receiver, *call.args):
            deps = flat_deps(value) if value is not None else ()
            found.update(d for d in deps if d.kind is Kind.RATIO)
    return sorted(found, key=lambda t: t.serial)


def _share(m: Machine, training: tuple[TrainingLoop, ...], ratio: Thing) -> Share | None:
    if _mean(ratio).count is not None:
        return _count(m, training, ratio) or _divisor(m, training, ratio)
    counted = {targets.counted(m, one) for one in _all_made(m, ratio)}
    text = counted.pop() if len(counted) == 1 else None
    if text is None or not _together(m, training, ratio):
        return None
    return Share(ratio.born, _wheres(m, ratio), mean_over=text)


def _count(m: Machine, training: tuple[TrainingLoop, ...], ratio: Thing) -> Share | None:
    """Replace a count where it is made."""
    count = _mean(ratio).count
    for thing in _places(count.things[0]) if count is not None and pure(count) else ():
        if only_divides(m, thing.born) and _together(m, training, thing):
            wheres, tally = _wheres(m, thing), thing.detail(Tally)
            if tally is None or tally.of is None or tally.floor is None:
                return Share(thing.born, wheres)
            segment = m.tree(thing.born.path).source.segment
            counted, at_least = segment(tally.of.span), segment(tally.floor.span)
            return Share(thing.born, wheres, counted=counted, at_least=at_least)
    return None


def _divisor(m: Machine, training: tuple[TrainingLoop, ...], ratio: Thing) -> Share | None:
    """Replace a count that is used for other things, too, where it divides."""
    for other in _all_made(m, ratio):
        count = _mean(other).count
        if count is None or not pure(count) or is_bounded(count.things[0]):
            return None
    if not _together(m, training, ratio):
        return None
    at = _mean(ratio).at
    return Share(at, _wheres(m, ratio)) if at is not None else None


def _mean(ratio: Thing) -> CountMean:
    mean = ratio.detail(CountMean)
    assert mean is not None
    return mean


def _all_made(m: Machine, thing: Thing) -> list[Thing]:
    """The things made at one place in all calls of its function."""
    return [t for t in m.made(thing.kind) if t.born == thing.born]


def _places(tally: Thing) -> list[Thing]:
    """Where the count may be replaced: where it is bounded or, unbounded, from its first form on.

    What is bounded before the ranks' counts are added is not the count, and a share of a count is
    no whole number.
    """
    chain = forms(tally)
    details = [(i, form.detail(Tally)) for i, form in enumerate(chain)]
    rounded = [i for i, one in details if one is not None and one.rounded]
    bounded = [i for i, one in details if one is not None and one.floor is not None]
    places = bounded or [*range(len(chain))][::-1]
    if len(bounded) > 1:
        return []
    return [chain[i] for i in places if not rounded or i <= rounded[0]]


def _wheres(m: Machine, thing: Thing) -> tuple[Where, ...]:
    details = [t.detail(Tally) or t.detail(CountMean) for t in _all_made(m, thing)]
    return tuple(one.where for one in details if one is not None)


def _together(m: Machine, training: tuple[TrainingLoop, ...], thing: Thing) -> bool:
    """Whether all ranks come by here equally often wherever gradients are recorded."""
    tree = m.tree(thing.born.path)
    node = tree.expression(thing.born)
    if node is not None and _in_comprehension(tree.ancestors(node)):
        return False
    found = [where for where in _wheres(m, thing) if not where.no_grad]
    return bool(found) and all(once_per_batch(m, training, where) for where in found)


def _in_comprehension(above: Iterable[ast.AST]) -> bool:
    return any(isinstance(node, COMPREHENSIONS) for node in above)


def once_per_batch(m: Machine, training: tuple[TrainingLoop, ...], where: Where) -> bool:
    """Whether all ranks come by here in each pass of a training loop.

    What ends the loop around that one ends the backward passes, too, which are those of all ranks.
    """
    if _differs(m, where.guards):
        return False
    for loop in where.loops():
        if _differs(m, loop.exits):
            return False
        if any(_same(loop, other.batch) for other in training):
            return True
        if not _written_out(loop) and not _is_told(m, loop):
            return False
    return False


def _differs(m: Machine, guards: Iterable[Guard]) -> bool:
    return any(is_local(m, one.test) or one.test.dep(*OF_ONE_RANK) for one in guards)


def _same(loop: Loop, other: Loop) -> bool:
    return loop.site == other.site and loop.frame.stack == other.frame.stack


def _written_out(loop: Loop) -> bool:
    """A loop over a display, or over a model's list of outputs: it is as long on each rank."""
    return _as_long(loop.over)


def _is_told(m: Machine, loop: Loop) -> bool:
    """``for t in range(args.steps)``: so many times as the program is told, on each rank.

    ``x.size(1)`` may be the length of a rank's own longest sample.
    """
    calls = [call_that_made(thing) for thing in loop.over.things if thing.name == RANGE]
    if len(calls) != 1 or len(loop.over.things) != 1 or calls[0] is None or calls[0].star:
        return False
    pairs = zip(calls[0].args, calls[0].arg_sites, strict=True)
    return all(_is_setting(m, value, site) for value, site in pairs)


def _is_setting(m: Machine, value: Value, site: Site) -> bool:
    """A constant, an argument, or what an object read from a file: no statement sets it."""
    if value.known:
        return not value.deps
    node = m.tree(site.path).expression(site)
    if not isinstance(node, ast.Attribute) or value.measure is not Measure.UNIFORM:
        return False
    told = {thing.kind for thing in value.all_deps()} == {Kind.ARGUMENT}
    return told and not any(access.stored for access in m.events.accesses(node.attr))


def _as_long(value: Value) -> bool:
    """Whether a loop over a value has as many passes on each rank."""
    if len(value.things) != 1:
        return False
    thing = value.things[0]
    if thing.name in ("builtins.zip", "builtins.enumerate"):  # zip: as the shortest
        over = thing.over if thing.name.endswith("zip") else thing.over[:1]
        return bool(over) and all(map(_as_long, over))
    return thing.items is not None or thing.name == OUTPUTS
