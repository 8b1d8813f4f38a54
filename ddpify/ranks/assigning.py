"""Binding values to names, attributes and elements."""

from __future__ import annotations

import ast
from dataclasses import replace

from ddpify.python.patterns import unpacked
from ddpify.ranks import containers, naming, picked
from ddpify.ranks.entries import Unset
from ddpify.ranks.frames import RankFrame
from ddpify.ranks.matching import Asked
from ddpify.ranks.model import ALL, RankValue
from ddpify.ranks.namespaces import forget, namespaces, owners
from ddpify.ranks.operations import is_dict
from ddpify.ranks.origins import Symbol, put_under
from ddpify.ranks.protocol import RankMachine
from ddpify.ranks.values import differs, key_of, merge, rooted, spread, text
from ddpify.site import Site


def assign(m: RankMachine, f: RankFrame, target: ast.expr, value: RankValue) -> None:
    """``target = value`` for the ranks that are live."""
    if isinstance(target, ast.Name):
        bind(m, f, target.id, _handed_back(f.names.get(target.id), value))
    elif isinstance(target, ast.Attribute):
        base = m.evaluate(f, target.value)
        held = base.things[0].attrs.get(target.attr) if len(base.things) == 1 else None
        value = _handed_back(held, value)
        m.store(f, base, target.attr, value, target, False)
        if m.set_property(f, base, target.attr, target, value):
            return
        set_attribute(m, base, target.attr, value, f.module.site(target))
    elif isinstance(target, ast.Subscript):
        _element(m, f, target, value)
    elif isinstance(target, (ast.Tuple, ast.List)):
        for one, part in unpacked(Asked(m, f), target.elts, value):
            assign(m, f, one, part)
    elif isinstance(target, ast.Starred):
        assign(m, f, target.value, replace(value, items=None))


def _handed_back(held: RankValue | None, value: RankValue) -> RankValue:
    """``control = callbacks.on_log(state, control, logs)`` of what is not read: an object that is
    handed in and given back; that it holds what else was handed in is not shown."""
    made = value.things[0] if len(value.things) == 1 else None
    if held is None or held.known or made is None or made.call is None or made.name[:1] != ".":
        return value
    given = made.call.args
    through = len(given) > 1 and any(one.atoms == held.atoms for one in given)
    return replace(value, origins=held.origins) if through else value


def bind(m: RankMachine, f: RankFrame, name: str, value: RankValue) -> None:
    """Bind a name where it belongs."""
    space = f.names
    if name in f.outward:
        space = naming.namespace(m, f.module).attrs
    elif name in f.nonlocals:
        frame = f.outer
        while frame is not None and name not in frame.names:
            frame = frame.outer
        space = frame.names if frame is not None else f.names
    m.write(space, name, value)


_UNKNOWN = ("attribute", "parameter", "config")  # what it has is told by its name, if by anything
_HELD = ("result", "instance", *_UNKNOWN)


def set_attribute(m: RankMachine, base: RankValue, name: str, value: RankValue, site: Site) -> None:
    """``base.name = value``; one of several possible objects keeps what it had as well."""
    for thing in namespaces(base) if name == "__dict__" else ():
        forget(m, thing, site)
    if name == "__dict__" and is_dict(value):
        _share(m, base, value)
        return
    for thing in base.things:
        if thing.kind == "external":
            m.patched.add(f"{thing.name}.{name}")
            continue
        if name not in thing.attrs and thing.kind in _HELD:
            # where a branch does not set it, it is what it was
            inherited = naming.class_attribute(m, thing.cls, name) if thing.cls else None
            told = m.by_name(name, site) if thing.kind in _UNKNOWN else None
            one = Unset(f"{thing.name}@{id(thing)}.{name}")
            thing.attrs[name] = inherited or told or RankValue((one, one))
        old = thing.attrs.get(name)
        if old is not None and len(base.things) > 1:
            value = merge(name, ([old, value], [old, value]), frozenset())
        m.write(thing.attrs, name, value)


def put_option(m: RankMachine, base: RankValue, name: object, value: RankValue, site: Site) -> None:
    """``vars(args)[name] = value``."""
    for thing in owners(base):
        if isinstance(name, str) and name:
            set_attribute(m, RankValue((None, None), (thing,)), name, value, site)
        else:
            forget(m, thing, site)


def _share(m: RankMachine, base: RankValue, value: RankValue) -> None:
    """``self.__dict__ = cls._state``: what one of these objects is given, all of them have."""
    for thing in base.things:
        if thing.kind == "instance":
            thing.attrs = m.shared.setdefault(_root(value), thing.attrs)
            for name, held in value.keys or ():
                if name not in thing.attrs and name != containers.ANY:
                    m.write(thing.attrs, name, held)


def _root(value: RankValue) -> str:
    """Which dict it is, whatever was put into it."""
    return text(rooted(value.atoms[0]))


def _element(m: RankMachine, f: RankFrame, target: ast.Subscript, value: RankValue) -> None:
    base = m.evaluate(f, target.value)
    index = m.evaluate(f, target.slice)
    key = index.constant if isinstance(index.constant, (str, int)) else ""
    m.store(f, base, str(key), value, target, True)
    picked.note_key(m, base, index, f.module.site(target))
    put_option(m, base, index.constant, value, f.module.site(target))
    if m.shared and key and is_dict(base) and _root(base) in m.shared:
        m.write(m.shared[_root(base)], str(key), value)
    _put(m, f, target, base, index, value)


def _put(
    m: RankMachine,
    f: RankFrame,
    target: ast.Subscript,
    base: RankValue,
    index: RankValue,
    value: RankValue,
) -> None:
    """What holds the element is another value afterwards."""
    own = base.keys is None and any(t.kind == "instance" for t in base.things)
    if own and m.call_method(f, base, "__setitem__", target, (index, value)) is not None:
        return
    changed = _with_element(m, target, base, index, value)
    if changed is base or m.aliases.change(m.write, base, changed):
        return
    if isinstance(target.value, (ast.Name, ast.Attribute, ast.Subscript)):
        assign_quietly(m, f, target.value, changed)


def _with_element(
    m: RankMachine, target: ast.Subscript, base: RankValue, index: RankValue, value: RankValue
) -> RankValue:
    """A list, a dict or a tensor with another element."""
    key = index.constant if isinstance(index.constant, (str, int)) else ""
    changed = base
    if base.keys is not None and not differs(index):
        changed = containers.with_entry(base, index, value)
    elif _is_all(target.slice):  # `losses[:] = reduce_mean(losses)`: nothing is left of it
        given = value.deps | frozenset(value.things)
        changed = replace(base, deps=given, items=value.items, keys=None, origins=spread(value))
    elif isinstance(target.slice, ast.Slice) and base.items is not None:
        changed = _with_slice(base, index, value)
    elif isinstance(key, int) and base.items is not None and -len(base.items) <= key:
        items = list(base.items)
        if key < len(items):
            items[key] = value
        changed = replace(base, items=tuple(items))
    elif base.items and not index.known and not index.by_rank:
        changed = containers.with_item_somewhere(base, index, value)
    elif not any(t.kind == "external" for t in base.things):
        changed = replace(
            base, deps=base.deps | value.deps | frozenset(value.things), items=None, keys=None
        )
        why = put_under(key, spread(value)) if isinstance(key, str) else spread(value)
        changed = replace(changed, origins=base.origins | why | index.origins)
        if m.live != ALL and is_tensor(base):
            one = Symbol(f"{key_of(base)}[{key_of(index)}]=@{m.order}")
            changed = replace(changed, atoms=(one, one))
    return changed


def _is_all(index: ast.expr) -> bool:
    return isinstance(index, ast.Slice) and not (index.lower or index.upper or index.step)


def _with_slice(base: RankValue, bounds: RankValue, value: RankValue) -> RankValue:
    """After ``base[a:b] = value``."""
    given = containers.elements(value)
    atoms = [bound.constant for bound in bounds.items or ()]
    if given is None or not all(bound.known for bound in bounds.items or ()):
        return replace(base, deps=base.deps | value.deps | frozenset(value.things))
    items = list(base.items or ())
    items[slice(*atoms[:2])] = given
    return replace(base, items=tuple(items))


def is_tensor(value: RankValue) -> bool:
    """Whether a value is a tensor that a call of torch made."""
    made = value.things
    return bool(made) and all(t.kind == "result" and t.name.startswith("torch.") for t in made)


def assign_quietly(m: RankMachine, f: RankFrame, target: ast.expr, value: RankValue) -> None:
    """Bind again after a change in place: nothing is recorded as an assignment."""
    if isinstance(target, ast.Name):
        frame: RankFrame | None = f
        while frame is not None:
            if target.id in frame.names:
                m.write(frame.names, target.id, value)
                return
            frame = frame.outer
        m.write(naming.namespace(m, f.module).attrs, target.id, value)
    elif isinstance(target, ast.Attribute):
        base = m.evaluate(f, target.value)
        set_attribute(m, base, target.attr, value, f.module.site(target))
    elif isinstance(target, ast.Subscript) and all(map(_is_plain, (target.value, target.slice))):
        base, index = m.evaluate(f, target.value), m.evaluate(f, target.slice)
        if base.keys is not None:
            _put(m, f, target, base, index, value)


def _is_plain(node: ast.expr) -> bool:
    """Whether nothing happens when it is evaluated once more."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, (ast.Name, ast.Constant))
