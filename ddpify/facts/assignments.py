"""Bind names, attributes and items to abstract values."""

from __future__ import annotations

import ast
from typing import cast

from ddpify.facts import containers, masks, special
from ddpify.facts.conditions import conditioned
from ddpify.facts.containers import item_of
from ddpify.facts.events import Access, Bind
from ddpify.facts.joining import computed, flat_deps, flat_measure, is_zero, join
from ddpify.facts.kinds import CONTAINERS
from ddpify.facts.lookups import otherwise
from ddpify.facts.measures import ADDITIVE
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import ClassInfo, Frame
from ddpify.facts.subscripts import is_shape, shape_entry
from ddpify.facts.tree import written
from ddpify.facts.values import Kind, Measure, Thing, Value, constant, one
from ddpify.python.targets import TargetPart, places
from ddpify.source import Site


def assign(
    m: Machine, f: Frame, target: ast.expr, value: Value, source: ast.expr | None = None
) -> None:
    """Bind ``target`` to ``value``, destructuring tuples."""
    if isinstance(target, (ast.Tuple, ast.List)):
        _destructure(m, f, target, value, source)
        return
    if isinstance(target, ast.Starred):
        assign(m, f, target.value, value)
        return
    if isinstance(source, ast.Constant) and _is_setting(m, f, target, source):
        value = value.but(setting=True)
    value = value if _starts(m, f, target, value) else conditioned(value, f.guards)
    site = m.site(f, target)
    value_site = m.site(f, source) if source is not None else None
    for thing in value.things:
        thing.hop(site, "assigned")
    if isinstance(target, ast.Name):
        f.bind(target.id, _under_guard(f, target.id, value))
    elif isinstance(target, ast.Attribute):
        _store_attribute(m, f, target, value)
    elif isinstance(target, ast.Subscript):
        _store_item(m, f, target, value)
    m.record(Bind(m.tick(), written(target), value, m.where(f), site, value_site))


def _is_setting(m: Machine, f: Frame, target: ast.expr, source: ast.Constant) -> bool:
    """``DEBUG = False`` or ``config.DEBUG = False`` in a module or a class, ``self.debug = False``
    in ``__init__``; what is None there is made late. In a function what is bound once, always."""
    if not isinstance(target, ast.Name | ast.Attribute):
        return False
    if f.function is None or (f.function.name == "__init__" and isinstance(target, ast.Attribute)):
        return isinstance(target, ast.Name) or source.value is not None
    always = f.loop is None and not f.guards and isinstance(source.value, bool)
    return always and m.tree(f.module.source.path).is_bound_once(target)


def _starts(m: Machine, f: Frame, target: ast.expr, value: Value) -> bool:
    """``if total is None: total = zeros``: says nothing about the samples that came first."""
    tests = [guard for guard in f.guards if guard.test.measure is not Measure.UNIFORM]
    if not tests or not is_zero(value):
        return False
    asked = f"{ast.unparse(target)} is None"
    nodes = [m.tree(guard.site.path).expression(guard.site) for guard in tests if guard.holds]
    return len(nodes) == len(tests) and all(
        n is not None and ast.unparse(n) == asked for n in nodes
    )


def _under_guard(f: Frame, name: str, value: Value) -> Value:
    """A global changed by a function may also keep its old value."""
    if name in f.globals_ and (f.guards or f.loop):
        return join(f.module.globals.get(name), value)
    return value


def _destructure(
    m: Machine, f: Frame, target: ast.Tuple | ast.List, value: Value, source: ast.expr | None
) -> None:
    parts = source.elts if isinstance(source, ast.Tuple) else None
    shape = source is not None and is_shape(source)
    for index, place in enumerate(places(target.elts)):
        element = target.elts[index]
        part = parts[index] if parts and len(parts) == len(target.elts) else None
        if place.end is not None:
            nth = _stretch(m, f, value, place, m.site(f, element))
        elif shape:
            nth = shape_entry(m, f, value, constant(index), m.site(f, element))
        else:
            nth = _nth(m, f, value, place.start)
        assign(m, f, element, nth, part)


def _stretch(m: Machine, f: Frame, value: Value, place: TargetPart, site: Site) -> Value:
    """What a starred target takes."""
    end = -place.end if place.end else None
    lists = value.of(*containers.LISTS)
    found = [containers.sliced(thing, place.start, end, site) for thing in lists]
    if found:
        return join(*found)
    return one(Thing(Kind.ITERATOR, site, inner=m.element_of(f, value)))


def _nth(m: Machine, f: Frame, value: Value, index: int) -> Value:
    found = [item_of(thing, constant(index)) for thing in value.things]
    items = [v for v in found if v is not None]
    if items:
        return join(*items)
    return computed(value, measure=value.measure).but(rows=value.rows)


def _store_attribute(m: Machine, f: Frame, target: ast.Attribute, value: Value) -> None:
    base = m.evaluate(f, target.value)
    site = m.site(f, target.value)
    m.record(Access(m.tick(), base, site, target.attr, m.where(f), stored=True))
    for thing in base.things:
        setter = special.setter(thing, target.attr)
        if setter is not None:
            m.enter(f, setter, (one(thing), value), {}, site)
            continue
        if _stored_elsewhere(thing, target.attr, value):
            continue
        _claim(thing, value)
        strong = len(base.things) == 1 and len(f.guards) == f.entered_with
        old = None if strong else otherwise(thing, target.attr, site)
        if thing.kind is Kind.MODULE and thing.ref is not None:
            m.module_globals(thing)[target.attr] = join(old, value)
        else:
            thing.attrs[target.attr] = join(old, value)


def _stored_elsewhere(thing: Thing, name: str, value: Value) -> bool:
    """Attributes of a class, which its objects have, too; and ``self.__dict__ = self``."""
    if thing.kind is Kind.CLASS and isinstance(thing.ref, ClassInfo):
        thing.ref.env[name] = join(thing.ref.env.get(name), value)
        return True
    given = [t for t in value.things if t.keys is not None]
    if name == "__dict__" and len(given) == 1 and given[0].keys is not None:
        thing.attrs = cast("dict[str, Value]", given[0].keys)
        return True
    return False


def _claim(owner: Thing, value: Value) -> None:
    """A module kept in an attribute of another one is a part of it."""
    for thing in value.of(Kind.MODEL):
        if owner.kind is Kind.MODEL and thing is not owner and thing.part_of is None:
            thing.part_of = owner


def _store_item(m: Machine, f: Frame, target: ast.Subscript, value: Value) -> None:
    base = m.evaluate(f, target.value)
    index = m.evaluate(f, target.slice)
    if flat_measure(index) is not Measure.UNIFORM and not value.things:
        sums = value.measure in ADDITIVE  # `hits[label] += 1` is one, of the samples of a label
        measure = Measure.SUM if sums else None
        value = computed(value, index, measure=measure).but(blocks=value.blocks)
    _taint(m, f, target, base, value)
    for thing in base.things:
        if special.special(m, f, thing, "__setitem__", (index, value), m.site(f, target)):
            continue
        if thing.keys is not None:
            slot: object = index.const if index.known else 0
            strong = index.known and len(f.guards) == f.entered_with
            thing.keys[slot] = value if strong else join(thing.keys.get(slot), value)
        elif thing.inner is not None or thing.items is not None:
            containers.replace_item(f, thing, index, value)


def _taint(m: Machine, f: Frame, target: ast.Subscript, base: Value, value: Value) -> None:
    """`matrix[truth, guess] += 1`: the whole tensor comes from the samples from here on."""
    plain = value.measure is Measure.UNIFORM
    if plain and not value.dep(Kind.FORWARD):
        return
    if any(t.keys is not None or t.kind in CONTAINERS for t in base.things):
        return  # which know what is stored in them
    if not isinstance(target.value, ast.Name):
        _taint_kept(m, f, target.value, value)
        return
    name = target.value
    rows = base.measure is Measure.SAMPLES  # `mask[i, y, x] = True`: still a row per sample
    measure = base.measure if plain else Measure.SAMPLES if rows else Measure.MIXED
    axis = masks.axis_behind(m, f, target, base)
    whole = Value(base.things, base.deps | flat_deps(value), measure, axis=axis)
    f.bind(name.id, whole)
    m.record(Bind(m.tick(), name.id, whole, m.where(f), m.site(f, name)))


def _taint_kept(m: Machine, f: Frame, node: ast.expr, value: Value) -> None:
    """``self.table.loc[key, "loss"] += loss``: so does all that the object has in ``table``."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        owners = m.evaluate(f, node.value).of(Kind.INSTANCE, Kind.CRITERION, Kind.MODEL)
        name = node.attr if isinstance(node, ast.Attribute) else ""
        for owner in owners:
            old = owner.attrs.get(name)
            if old is not None and all(thing.kind is Kind.UNKNOWN for thing in old.things):
                owner.attrs[name] = Value(old.things, old.deps | flat_deps(value), Measure.MIXED)
        if any(name in owner.attrs for owner in owners):
            return
        node = node.value
