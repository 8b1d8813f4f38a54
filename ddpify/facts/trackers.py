"""Objects of the project that add up numbers of samples, whatever they call them. ::

tracker.update(loss.item(), hits, len(y))       # this rank's samples
...
global_tracker = global_copy(tracker, sums=("hits", "seen"), means=("loss",))
print(global_tracker.result())
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ddpify.facts.events import Call, KeptSums, LoopEnd
from ddpify.facts.joining import is_zero, parts_of
from ddpify.facts.kinds import CONTAINERS
from ddpify.facts.locality import Sharded, is_local
from ddpify.facts.measures import ADDITIVE
from ddpify.facts.number_syntax import inside
from ddpify.facts.tree import Tree
from ddpify.facts.values import NOTHING, Measure, Thing, Value
from ddpify.source import Site


def kept(m: Sharded, objects: Iterable[Thing]) -> dict[Thing, KeptSums]:
    """The objects whose numbers of this rank's samples are sums and means, or hold such, now."""
    found = ((thing, _tracked(m, thing)) for thing in objects)
    return {thing: tracked for thing, tracked in found if tracked is not None}


def _tracked(m: Sharded, thing: Thing) -> KeptSums | None:
    names: dict[Measure, list[str]] = {Measure.SUM: [], Measure.MEAN: []}
    for name, value in thing.attrs.items():
        numbers = [v for v in _numbers(value) if not is_zero(v)]
        if not any(is_local(m, number) for number in numbers):
            continue
        measures = {Measure.SUM if v.measure in ADDITIVE else v.measure for v in numbers}
        if len(measures) != 1 or not measures <= names.keys():
            return None
        names[measures.pop()].append(name)
    found = KeptSums(tuple(names[Measure.SUM]), tuple(names[Measure.MEAN]))
    return found if found.sums or found.means else None


def _numbers(value: Value) -> Iterator[Value]:
    """A number, or those that a list or a dict holds."""
    things = value.of(*CONTAINERS)
    for thing in things:
        yield from parts_of(thing)
    if not things:
        yield value


def known_at(
    call: Call, ends: Sequence[LoopEnd], later: dict[Thing, KeptSums]
) -> dict[Thing, KeptSums]:
    """What objects hold where a call is made: in a loop, what they hold before its end.

    After it what is not put together there, as it goes on in the next pass of an outer one.
    """
    over = [end for end in ends if call.where.runs_in(end.loop)]
    known = {thing: one for end in ends for thing, one in _left(end)} | later
    known |= {thing: one for end in over for thing, one in end.tracked.items()}
    meters = frozenset(thing for end in ends for thing in end.keep)  # `reduce_meter` is for them
    return {thing: one for thing, one in known.items() if thing not in meters}


def _left(end: LoopEnd) -> Iterator[tuple[Thing, KeptSums]]:
    for thing, one in end.tracked.items():
        names = {name for name in (*one.sums, *one.means) if not _is_combined(end, thing, name)}
        sums, means = (tuple(n for n in given if n in names) for given in (one.sums, one.means))
        if names:
            yield thing, KeptSums(sums, means)


def _is_combined(end: LoopEnd, thing: Thing, name: str) -> bool:
    held = thing.attrs.get(name, NOTHING).of(*CONTAINERS)
    return (thing, name) in end.owned or any(part.born in end.dicts for part in held)


def shown(
    tree: Tree, node: ast.expr, values: Mapping[Site, Value], known: Mapping[Thing, KeptSums]
) -> tuple[ast.expr, KeptSums] | None:
    """The one such object of which a method, a property or a function makes what is shown."""
    parts = [part for part in inside(node) if isinstance(part, (ast.Name, ast.Attribute))]
    found = [(part, is_one(values.get(tree.site(part), NOTHING), known)) for part in parts]
    mine = [(part, one) for part, one in found if one is not None]
    return mine[0] if len(mine) == 1 else None


def is_one(value: Value, known: Mapping[Thing, KeptSums]) -> KeptSums | None:
    """What such an object holds; None where a value may be something else."""
    found = {known.get(thing) for thing in value.things}
    return found.pop() if len(found) == 1 else None
