"""Methods that change what they are called on: containers take things up, tensors in place."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from ddpify.ranks import assigning, containers, picked
from ddpify.ranks.frames import RankFrame
from ddpify.ranks.model import ALL, RankCall, RankValue
from ddpify.ranks.origins import DATA, Origin, put_under
from ddpify.ranks.protocol import RankMachine
from ddpify.ranks.results import result
from ddpify.ranks.values import InPlace, rooted, spread

_CONTAINERS: Final = frozenset("append extend add update insert setdefault put".split())


def changes(m: RankMachine, one: RankCall) -> bool:
    """Whether a method changes its object in a way that is followed."""
    if not isinstance(one.node.func, ast.Attribute):
        return False
    in_place = one.method.endswith("_") and not one.method.endswith("__")
    return one.method in _CONTAINERS or (in_place and m.live != ALL)


def changed(m: RankMachine, f: RankFrame, one: RankCall, receiver: RankValue) -> RankValue:
    """Make the change; what the method gives."""
    if one.method in _CONTAINERS:
        if one.method == "setdefault" and one.args:
            picked.note_key(m, receiver, one.args[0], one.site)
        _take_up(m, f, one, receiver)
        return _entry(one, receiver) or result(one)
    _overwrite(m, f, one, receiver)
    return receiver if receiver.things else result(one)


def _entry(one: RankCall, receiver: RankValue) -> RankValue | None:
    """``table.setdefault(name, [])``: what the table has, or what it is given."""
    if one.method != "setdefault" or receiver.keys is None or len(one.args) != 2:
        return None
    return _known_entry(receiver, one) or one.args[1]


def _known_entry(receiver: RankValue, one: RankCall) -> RankValue | None:
    found = containers.entry(receiver, one.args[0])
    return found if found is not None and found.lacks is None else None


def _holder(node: ast.expr) -> ast.expr:
    """The object that a method changes: ``table.setdefault(name, [])`` is ``table[name]``."""
    if not isinstance(node, ast.Call) or not node.args:
        return node
    if not isinstance(node.func, ast.Attribute) or node.func.attr != "setdefault":
        return node
    found = ast.Subscript(value=node.func.value, slice=node.args[0], ctx=ast.Load())
    return ast.copy_location(found, node)


def _take_up(m: RankMachine, f: RankFrame, one: RankCall, receiver: RankValue) -> None:
    """A container takes up what it is given."""
    assert isinstance(one.node.func, ast.Attribute)
    target = _holder(one.node.func.value)
    if one.method == "update":
        _into_options(m, one, receiver)
    parts = (*one.args, *one.kwargs.values())
    origins = frozenset().union(receiver.origins, *_taken_up(one))
    deps = frozenset().union(receiver.deps, *(part.deps | frozenset(part.things) for part in parts))
    if any(t.kind in ("instance", "module") for t in receiver.things) or _is_store(one, receiver):
        return
    items = receiver.items
    if (
        items is not None
        and one.method in ("append", "add", "put")
        and len(items) < containers.MAX_ITEMS
    ):
        items = (*items, *one.args)
    keys = _updated(receiver, one) if one.method in ("update", "setdefault") else receiver.keys
    new_value = replace(receiver, origins=origins, deps=deps, items=items, keys=keys)
    in_table = isinstance(target, ast.Subscript) and receiver.items is not None
    if new_value == receiver or m.aliases.change(m.write, receiver, new_value):
        return
    if in_table or isinstance(target, (ast.Name, ast.Attribute)):
        assigning.assign_quietly(m, f, target, new_value)


def _into_options(m: RankMachine, one: RankCall, receiver: RankValue) -> None:
    """``vars(args).update(config)``."""
    for given in one.args:
        for name, value in given.keys if given.keys is not None else (("", given),):
            assigning.put_option(m, receiver, name.strip("*"), value, one.site)
    for name, value in one.kwargs.items():
        assigning.put_option(m, receiver, name.strip("*"), value, one.site)


def _is_store(one: RankCall, receiver: RankValue) -> bool:
    """``client.put(path, file)``: no queue, and what is asked of it is another matter."""
    made = [t.name.rpartition(".")[2] for t in receiver.things if t.kind == "result"]
    return one.method == "put" and any("queue" not in name.lower() for name in made)


def _taken_up(one: RankCall) -> Iterator[frozenset[Origin]]:
    """Why what a container is given may differ; a dict that is updated differs in these entries."""
    named = one.method == "update" and all(part.keys is not None for part in one.args)
    if not named:
        yield from (spread(part) for part in (*one.args, *one.kwargs.values()))
        return
    entries = [entry for part in one.args for entry in part.keys or ()]
    for name, value in (*entries, *one.kwargs.items()):
        yield spread(value) if name == containers.ANY else put_under(name, spread(value))
    yield from (spread(replace(part, keys=None)) for part in one.args)


def _overwrite(m: RankMachine, f: RankFrame, one: RankCall, receiver: RankValue) -> None:
    """``stop.fill_(1)`` on some ranks only: afterwards the ranks have different numbers."""
    target = one.node.func.value if isinstance(one.node.func, ast.Attribute) else None
    if isinstance(target, (ast.Name, ast.Attribute)) and _is_made(receiver):
        new = [InPlace(f"{one.name}@{one.order}", before=rooted(atom)) for atom in receiver.atoms]
        own = Origin(DATA, f"{one.method}() on some ranks only", one.site)
        origins = receiver.origins.union({own}, *(spread(part) for part in one.args))
        new_value = replace(receiver, atoms=(new[0], new[1]), origins=origins)
        assigning.assign_quietly(m, f, target, new_value)


def _updated(receiver: RankValue, one: RankCall) -> tuple[tuple[str, RankValue], ...] | None:
    """The entries of a dict after ``update``; None when they are not known any more."""
    if one.method == "setdefault":
        known = receiver.keys is None or len(one.args) != 2 or _known_entry(receiver, one)
        return receiver.keys if known else containers.with_entry(receiver, *one.args).keys
    given = [arg.keys for arg in one.args]
    if receiver.keys is None or one.star or any(keys is None for keys in given):
        return None
    entries = dict(receiver.keys)
    for keys in given:
        entries.update(dict(keys or ()))
    return tuple({**entries, **one.kwargs}.items())


def _is_made(value: RankValue) -> bool:
    return bool(value.things) and value.things[0].kind == "result"
