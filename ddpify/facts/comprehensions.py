"""Comprehensions: one element stands for all, or each is read for itself.

Of ``{x: DataLoader(sets[x]) for x in ("train", "val")}`` it is, as of a function that is called for
each word: two loaders, of which one may train and the other not.
"""

from __future__ import annotations

import ast
from typing import Any

from ddpify.facts import containers, rows
from ddpify.facts.joining import flat_deps, join
from ddpify.facts.loops import MOST_PASSES
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import Frame
from ddpify.facts.subscripts import is_copied, items_of
from ddpify.facts.values import Kind, Measure, Thing, Value, constant, one
from ddpify.source import Site

Turns = tuple[tuple[Site, Value], ...]


def comprehension(m: Machine, f: Frame, node: Any) -> Value:
    """What a comprehension makes."""
    first = m.evaluate(f, node.generators[0].iter)
    turns = _turns(m, f, node, first)
    if turns:
        return _turn_by_turn(m, f, node, turns)
    names = {n.id for g in node.generators for n in ast.walk(g.target) if isinstance(n, ast.Name)}
    before = {name: f.env.get(name) for name in names}
    made = _one_for_all(m, f, node, first)
    for name, value in before.items():  # what it binds is its own
        f.env.pop(name, None)
        if value is not None:
            f.env[name] = value
    return made


def _one_for_all(m: Machine, f: Frame, node: Any, first: Value) -> Value:
    """One element stands for all."""
    keys: dict[object, Value] = {}
    per_sample = False
    for generator in node.generators:
        over = first if generator is node.generators[0] else m.evaluate(f, generator.iter)
        per_sample = len(node.generators) == 1 and rows.per_sample(over)
        if is_copied(node, generator):
            return over
        more = [t.inner for t in over.things if t.items and t.inner is not None]
        for each in (*(items_of(over) or ()), *more) or (m.element_of(f, over),):
            m.assign(f, generator.target, each)
            for test in generator.ifs:
                m.evaluate(f, test)
            if isinstance(node, ast.DictComp) and generator is node.generators[-1]:
                key, value = m.evaluate(f, node.key), m.evaluate(f, node.value)
                slot: object = key.const if key.known else 0
                keys[slot] = join(keys.get(slot), value)
    if isinstance(node, ast.DictComp):
        return one(Thing(Kind.DICT, m.site(f, node), keys=keys))
    element = m.evaluate(f, node.elt)
    made = containers.comprehended(m.site(f, node), node, element)
    if not per_sample or isinstance(node, ast.SetComp) or node.generators[0].ifs:
        return made.but(measure=element.measure)
    single = element.measure is Measure.ENTRY
    return made.but(measure=Measure.SAMPLES if single else element.measure, rows=True)


def _turns(m: Machine, f: Frame, node: Any, over: Value) -> Turns:
    """The few words that it is made for, each with its place, and what the target is bound to."""
    generator, *more = node.generators
    if more or generator.ifs or not isinstance(node, (ast.DictComp, ast.ListComp)) or f.in_class:
        return ()
    call, entries = generator.iter, False
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and not call.args:
        entries = call.func.attr == "items"
        over = m.values.get(m.site(f, call.func.value), over) if entries else over
    thing = over.things[0] if len(over.things) == 1 else None
    if thing is None or thing.inner is not None or thing.born.path not in m.modules:
        return ()
    if thing.keys is not None and (entries or thing.items is None):
        pairs = [(constant(key), value) for key, value in thing.keys.items()]
    else:
        pairs = [(item, item) for item in thing.items or ()]
    places = _places(m.tree(thing.born.path).expression(thing.born))
    words = [key.const for key, _ in pairs if isinstance(key.const, str)]
    if not 0 < len(words) == len(pairs) == len(places) <= MOST_PASSES:
        return ()
    tree = m.tree(thing.born.path)
    sites = [tree.site(place) for place in places]
    bound = [one(Thing(Kind.TUPLE, s, items=p)) for s, p in zip(sites, pairs, strict=True)]
    return tuple(zip(sites, bound if entries else [key for key, _ in pairs], strict=True))


def _places(node: ast.expr | None) -> list[ast.expr]:
    """Where the entries of a list or dict are written; of a dict made in turns, where those are."""
    if isinstance(node, (ast.List, ast.Tuple)):
        return node.elts
    if isinstance(node, ast.Dict):
        return [key for key in node.keys if key is not None]
    return _places(node.generators[0].iter) if isinstance(node, ast.DictComp) else []


def _turn_by_turn(m: Machine, f: Frame, node: Any, turns: Turns) -> Value:
    """Each turn in a frame of its own, as Python has it."""
    keys: dict[object, Value] = {}
    for site, each in turns:
        inner = _frame_of(f, node, site)
        m.assign(inner, node.generators[0].target, each)
        if isinstance(node, ast.DictComp):
            key = m.evaluate(inner, node.key)
            slot: object = key.const if key.known else 0
            keys[slot] = join(keys.get(slot), m.evaluate(inner, node.value))
        else:
            keys[len(keys)] = m.evaluate(inner, node.elt)
    if isinstance(node, ast.DictComp):
        return one(Thing(Kind.DICT, m.site(f, node), keys=keys))
    made = Thing(Kind.TUPLE, m.site(f, node), items=tuple(keys.values()))
    return Value((made,), flat_deps(join(*keys.values())))


def _frame_of(f: Frame, node: Any, turn: Site) -> Frame:
    inner = Frame(f.module, f.function, {}, f, (*f.stack, turn), f, f.loop, f.guards, f.no_grad)
    inner.statement, inner.contexts, inner.self_thing = f.statement, f.contexts, f.self_thing
    inner.entered_with, inner.globals_ = f.entered_with, f.globals_
    kept = (n.target.id for n in ast.walk(node) if isinstance(n, ast.NamedExpr))
    inner.nonlocals = set(kept)
    names = (n for n in ast.walk(node.generators[0].target) if isinstance(n, ast.Name))
    inner.parameters = dict.fromkeys(name.id for name in names)
    return inner
