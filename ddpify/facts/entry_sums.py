"""Dicts and lists of sums: what a loop adds to the entries of, here or in an object's methods. ::

totals["loss"] += criterion(out, y).item() * len(y)
hits[label] += 1
...
totals = reduce_entries(totals)
hits = reduce_sum(hits)
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ddpify.facts.containers import LISTS
from ddpify.facts.events import Bind, Call
from ddpify.facts.growth import MUTATES
from ddpify.facts.joining import is_zero, parts_of
from ddpify.facts.locality import is_local
from ddpify.facts.measures import ADDITIVE
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import Frame, Loop
from ddpify.facts.tree import Tree
from ddpify.facts.values import Kind, Measure, Thing, Value
from ddpify.source import Site

KINDS = (*ADDITIVE, Measure.COUNT)


@dataclass(frozen=True)
class LeftInEntries:
    """Names of dicts and of lists with sums, those of others with other numbers of samples, and
    where the first are made."""

    dicts: tuple[str, ...]
    lists: tuple[str, ...]
    others: tuple[str, ...]
    made: frozenset[Site]


def reduced_after(
    m: Machine, f: Frame, loop: Loop, tree: Tree, node: ast.stmt, done: set[str]
) -> LeftInEntries:
    """The dicts and lists that hold this rank's sums after a loop, which count as reduced."""
    found: dict[bool, list[str]] = {True: [], False: []}
    others: list[str] = []
    made: set[Site] = set()
    for thing, events in _stores(m, f, loop).items():
        names = set(_names(f, thing))
        read = [name for name in sorted(names) if _read_later(f, tree, node, name)]
        sums = len(names) == 1 and _is_own(f, *names) and holds_sums(m, thing)
        sums = sums and _begins_in_each_pass(m, f, loop, thing, min(names))
        if not sums or not all(_adds(m, event) for event in events):
            others += read if any(is_local(m, v) for v in parts_of(thing)) else []
            continue
        made.add(thing.born)
        if not names & done:
            found[thing.keys is not None] += read[:1]
            _bind(f, names.pop(), Value((_reduced(thing),)))
    dicts, lists = tuple(found[True]), tuple(found[False])
    return LeftInEntries(dicts, lists, tuple(others), frozenset(made))


def _stores(m: Machine, f: Frame, loop: Loop) -> dict[Thing, list[Bind]]:
    """Dicts, and lists that do not grow, with the statements of a loop that bind their entries."""
    found: dict[Thing, list[Bind]] = {}
    grown: set[Thing] = set()
    for event in m.events.during(loop):
        if isinstance(event, Bind):
            for thing in stored_in(event, f):
                found.setdefault(thing, []).append(event)
        elif isinstance(event, Call) and event.receiver and event.name[1:] in MUTATES:
            grown.update(event.receiver.of(*LISTS))
    return {thing: events for thing, events in found.items() if thing not in grown}


def _is_own(f: Frame, name: str) -> bool:
    """Whether who binds it anew binds it for all: no caller has it, and no other function."""
    own = name in f.env and name not in f.parameters
    return "." in name or (own and name not in f.globals_ | f.nonlocals)


def _begins_in_each_pass(m: Machine, f: Frame, loop: Loop, thing: Thing, name: str) -> bool:
    """A sum that goes on in the next pass of an outer loop would be summed over ranks again."""
    outer = loop.parent
    if outer is None or "." not in name:
        return outer is None or outer.frame is not f or thing.born.within(outer.site)
    attribute = name.rpartition(".")[2]
    binds = (event for event in m.events.during(outer) if isinstance(event, Bind))
    return any(
        event.target.rpartition(".")[2] == attribute
        and any(one.born == thing.born for one in event.value.things)
        for event in binds
    )


def _bind(f: Frame, name: str, value: Value) -> None:
    """As the statement that is added does: whoever else has the dict keeps this rank's."""
    path, _, attribute = name.rpartition(".")
    if not path:
        f.bind(name, value)
        return
    owner = f.value_of(path)
    for thing in owner.things if owner is not None else ():
        thing.attrs[attribute] = value


def holds_sums(m: Machine, thing: Thing) -> bool:
    """Whether it has sums over this rank's samples and zeros, and nothing else."""
    sums = [v for v in parts_of(thing) if not is_zero(v)]
    return bool(sums) and all(v.measure in KINDS and is_local(m, v) for v in sums)


def reduced(value: Value) -> Value | None:
    """Dicts and lists with the sums of all ranks; None of other values."""
    made = value.of(Kind.DICT, *LISTS)
    if not made or len(made) < len(value.things):
        return None
    return Value(tuple(_reduced(thing) for thing in made))


def _reduced(thing: Thing) -> Thing:
    made = Thing(thing.kind, thing.born, thing.name, details=thing.details)
    if thing.keys is not None:
        made.keys = {key: value.reduced() for key, value in thing.keys.items()}
    if thing.items is not None:
        made.items = tuple(value.reduced() for value in thing.items)
    made.inner = thing.inner.reduced() if thing.inner is not None else None
    return made


def stored_in(event: Bind, f: Frame | None = None) -> tuple[Thing, ...]:
    """What a statement binds an entry of: ``totals["loss"]``, ``self._total[key]``.

    Of a function that runs again, what it is in this run, ``f``.
    """
    owner, bracket, _ = event.target.partition("[")
    frame = event.where.frame
    frame = f if f is not None and f.stack == frame.stack else frame
    value = frame.value_of(owner) if bracket and event.target.endswith("]") else None
    made = value.of(Kind.DICT, *LISTS) if value is not None else ()
    return made if value is not None and len(made) == len(value.things) else ()


def _adds(m: Machine, event: Bind) -> bool:
    """``d[k] += x``, ``d[k] = d[k] + x``, ``d[k] = d.get(k, 0) + x``."""
    match m.tree(event.site.path).statement(event.site):
        case ast.AugAssign(op=op):
            return isinstance(op, (ast.Add, ast.Sub))
        case ast.Assign(value=ast.BinOp(left=left, op=ast.Add())):
            owner = event.target.partition("[")[0]
            return ast.unparse(left) == event.target or ast.unparse(left).startswith(
                f"{owner}.get("
            )
    return False


def _names(f: Frame, thing: Thing) -> Iterator[str]:
    """The expressions by which a function names it, or what an object keeps it by."""
    for name, value in f.named():
        if thing in value.things:
            yield name
        yield from (f"{name}.{own}" for own in _kept_as(value.of(Kind.INSTANCE), thing))


def _kept_as(owners: Iterable[Thing], thing: Thing) -> Iterator[str]:
    for owner in owners:
        yield from (name for name, value in owner.attrs.items() if thing in value.things)


def _read_later(f: Frame, tree: Tree, node: ast.stmt, name: str) -> bool:
    """Whether it, or the object that keeps it, is used after the loop, here or by others."""
    owner, first = name.rpartition(".")[0] or name, name.partition(".")[0]
    return first in f.parameters or first not in f.env or tree.read_after(node, owner)
