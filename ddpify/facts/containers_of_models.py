"""Models that a list or a dict holds and no other name: ``nets = {"g": Maker(), "d": Judge()}``."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ddpify.facts.containers import GROWS, LISTS
from ddpify.facts.events import Bind, Call
from ddpify.facts.protocol import Machine
from ddpify.facts.values import Kind, Thing, Value


@dataclass(frozen=True)
class Holder:
    """A name of what holds models; ``each`` is "list" or "dict", or "" of an entry."""

    bind: Bind
    each: str


def holders(m: Machine, things: tuple[Thing, ...], trained: frozenset[Thing]) -> list[Holder]:
    """The names of lists and dicts that hold a model, and only such as are trained."""
    found = []
    for bind in (e for e in m.events if isinstance(e, Bind) and _is_name(e.target)):
        held = [list(_held(thing)) for thing in bind.value.things]
        models = [value for values in held for value in values]
        if not any(set(value.things) & set(things) for value in models):
            continue
        if all(held) and all(v.things and trained.issuperset(v.things) for v in models):
            kinds = {"dict" if t.keys is not None else "list" for t in bind.value.things}
            if len(kinds) == 1 and not is_of_rounds(m, bind):
                found.append(Holder(bind, kinds.pop()))
        elif len(bind.value.things) == 1 and not is_of_rounds(m, bind):
            found += _entries(bind, bind.value.things[0], frozenset(things))
    return found


def _entries(bind: Bind, holder: Thing, things: frozenset[Thing]) -> Iterator[Holder]:
    """The entries of a dict or list that hold a model, where others hold something else."""
    known = holder.keys.items() if holder.keys is not None else enumerate(holder.items or ())
    if holder.kind is Kind.TUPLE and holder.inner is not None:
        return
    for key, value in known:
        if value.things and things.issuperset(value.things) and isinstance(key, (str, int)):
            yield Holder(replace(bind, target=f"{bind.target}[{json.dumps(key)}]"), "")


def held_together(m: Machine) -> list[set[Thing]]:
    """What the lists and dicts hold that have a name."""
    named = [e for e in m.events if isinstance(e, Bind) and _is_name(e.target)]
    things = dict.fromkeys(thing for bind in named for thing in bind.value.things)
    return [{model for value in _held(thing) for model in value.things} for thing in things]


def _held(thing: Thing) -> Iterator[Value]:
    if thing.keys is not None:
        yield from thing.keys.values()
    elif thing.kind in LISTS and thing.name == "":
        yield from thing.items or ()
        yield from (thing.inner,) if thing.inner is not None else ()


def added(m: Machine, things: tuple[Thing, ...]) -> list[Call]:
    """Where a list gets a model: ``models.append(Net())``."""
    calls = (e for e in m.events if isinstance(e, Call) and e.name.rpartition(".")[2] in GROWS)
    return [c for c in calls if any(set(arg.things) & set(things) for arg in c.args)]


def is_of_rounds(m: Machine, bind: Bind) -> bool:
    """Whether a name is that of a loop or a comprehension."""
    tree = m.tree(bind.site.path)
    node: ast.AST | None = tree.expression(bind.site)
    above = tree.parent(node) if node is not None else None
    while isinstance(above, (ast.Tuple, ast.List, ast.Starred)):
        node, above = above, tree.parent(above)
    loops = (ast.For, ast.AsyncFor, ast.comprehension)
    return isinstance(above, loops) and above.target is node


def is_taken(m: Machine, bind: Bind) -> bool:
    """``net = nets[key]``: a name of what others hold."""
    if bind.value_site is None:
        return False
    node = m.tree(bind.site.path).expression(bind.value_site)
    return isinstance(node, ast.Subscript) and not bind.value.of(Kind.CLASS)


def _is_name(target: str) -> bool:
    parts = target.split(".")
    return all(part.isidentifier() for part in parts) and len(parts) <= 2
