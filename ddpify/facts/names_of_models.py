"""The names that a model has, and the one by which it is called.

Models that a list or a dict holds and no other name: ``nets = {"g": Maker(), "d": Judge()}``.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ddpify.facts.containers import GROWS, LISTS
from ddpify.facts.events import Bind, Call, Forward
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import Frame
from ddpify.facts.values import Kind, Thing, Value
from ddpify.source import Site

_KEY = re.compile(r"""('\w+'|"\w+"|\d+)]""")


def as_written(m: Machine, target: str, bind: Bind) -> str:
    """An entry with the quotes that the program uses."""
    written = m.tree(bind.site.path).source.segment(bind.site.span)
    return written if target == bind.target and "[" in written else target


def called_as(m: Machine, things: tuple[Thing, ...], names: list[Bind], last: Bind) -> str:
    """The name by which a model is called: after ``m = model.to(device)`` perhaps ``model``."""
    calls = [e.call for e in m.events if isinstance(e, Forward) and e.model in things]
    called = {text for call in calls for text in _handed_as(m, call)}
    known = {one.target for one in names} & called
    return known.pop() if len(known) == 1 else last.target


def _handed_as(m: Machine, call: Call) -> Iterator[str]:
    """By what it is called, and by what it was handed there: ``net`` of ``train(model=net)``."""
    site: Site | None = call.owner_site
    frame = call.where.frame
    while site is not None:
        node = m.tree(site.path).expression(site)
        yield ast.unparse(node) if node is not None else ""
        if not isinstance(node, ast.Name) or frame.caller is None:
            return
        site, frame = frame.parameters.get(node.id), frame.caller


def is_entry(target: str) -> bool:
    """``self.models["encoder"]``."""
    name, bracket, key = target.partition("[")
    return bool(bracket) and is_namable(name) and bool(_KEY.fullmatch(key))


def is_namable(target: str) -> bool:
    """``model``, ``self.model``."""
    parts = target.split(".")
    return all(p.isidentifier() for p in parts) and len(parts) <= 2


def is_alias(m: Machine, bind: Bind) -> bool:
    """``self.model = model``: another name for the same object."""
    if bind.value_site is None:
        return False
    node = m.tree(bind.site.path).expression(bind.value_site)
    return isinstance(node, (ast.Name, ast.Attribute))


def visible_bind(binds: list[Bind], frame: Frame) -> Bind | None:
    """The last name the model has in this activation or, failing that, in its callers."""
    here: Frame | None = frame
    while here is not None:
        found = [b for b in binds if b.where.stack == here.stack]
        if found:
            return found[-1]
        here = here.caller
    return binds[-1]


@dataclass(frozen=True)
class Holder:
    """A name of what holds models; ``each`` is "list" or "dict", or "" of an entry."""

    bind: Bind
    each: str


def holders(m: Machine, things: tuple[Thing, ...], trained: frozenset[Thing]) -> list[Holder]:
    """The names of lists and dicts that hold a model, and only such as are trained."""
    found = []
    for bind in (e for e in m.events if isinstance(e, Bind) and is_namable(e.target)):
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
    named = [e for e in m.events if isinstance(e, Bind) and is_namable(e.target)]
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
