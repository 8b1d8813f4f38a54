"""``match``: which names a pattern binds, to which part of the subject."""

from __future__ import annotations

import ast

from ddpify.facts import containers
from ddpify.facts.assignments import assign
from ddpify.facts.joining import join
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import ClassInfo, Frame
from ddpify.facts.values import NOTHING, Kind, Thing, Value, constant, one
from ddpify.python import fields
from ddpify.python.targets import places


def bind(m: Machine, f: Frame, pattern: ast.pattern, subject: Value) -> bool | None:
    """Bind the names of a pattern; whether it matches, None when that is not known."""
    if isinstance(pattern, ast.MatchValue):
        return _equal(subject, m.evaluate(f, pattern.value))
    if isinstance(pattern, ast.MatchSingleton):
        return _equal(subject, constant(pattern.value))
    if isinstance(pattern, ast.MatchAs):
        return _as(m, f, pattern, subject)
    if isinstance(pattern, ast.MatchOr):
        found = [bind(m, f, one_of, subject) for one_of in pattern.patterns]
        return True if True in found else (None if None in found else False)
    if isinstance(pattern, ast.MatchSequence):
        _sequence(m, f, pattern, subject)
    elif isinstance(pattern, ast.MatchMapping):
        _mapping(m, f, pattern, subject)
    elif isinstance(pattern, ast.MatchClass):
        _class(m, f, pattern, subject)
    return None


def _equal(subject: Value, wanted: Value) -> bool | None:
    return bool(subject.const == wanted.const) if subject.decided and wanted.decided else None


def _as(m: Machine, f: Frame, pattern: ast.MatchAs, subject: Value) -> bool | None:
    inner = bind(m, f, pattern.pattern, subject) if pattern.pattern is not None else True
    if pattern.name is not None:
        _name(m, f, pattern, pattern.name, subject)
    return inner


def _name(m: Machine, f: Frame, at: ast.pattern, name: str, value: Value) -> None:
    assign(m, f, ast.copy_location(ast.Name(name, ast.Store()), at), value)


def _sequence(m: Machine, f: Frame, pattern: ast.MatchSequence, subject: Value) -> None:
    site = m.site(f, pattern)
    for place in places(pattern.patterns):
        if isinstance(place.target, ast.MatchStar):
            rest = [
                containers.sliced(thing, place.start, -(place.end or 0) or None, site)
                for thing in subject.of(*containers.LISTS)
            ]
            if place.target.name is not None:
                _name(m, f, place.target, place.target.name, join(*rest))
        elif isinstance(place.target, ast.pattern):
            found = [containers.item_of(t, constant(place.start)) for t in subject.things]
            bind(m, f, place.target, join(*found))


def _mapping(m: Machine, f: Frame, pattern: ast.MatchMapping, subject: Value) -> None:
    keys = [m.evaluate(f, key) for key in pattern.keys]
    for key, inner in zip(keys, pattern.patterns, strict=True):
        found = [containers.item_of(t, key) for t in subject.things if t.keys is not None]
        bind(m, f, inner, join(*found))
    if pattern.rest is not None:
        named = {key.const for key in keys if key.known}
        rest = {
            slot: value
            for thing in subject.things
            for slot, value in (thing.keys or {}).items()
            if slot not in named
        }
        made = Thing(Kind.DICT, m.site(f, pattern), keys=rest)
        _name(m, f, pattern, pattern.rest, one(made))


def _class(m: Machine, f: Frame, pattern: ast.MatchClass, subject: Value) -> None:
    m.evaluate(f, pattern.cls)
    names = _places(subject)
    positional = zip(names, pattern.patterns, strict=False)
    keywords = zip(pattern.kwd_attrs, pattern.kwd_patterns, strict=True)
    for name, inner in (*positional, *keywords):
        for thing in subject.of(Kind.ARGUMENT):
            m.summaries.looked_up(thing.attrs, name)
        found = [thing.attrs.get(name) for thing in subject.things]
        bind(m, f, inner, join(*found) if any(found) else NOTHING)


def _places(subject: Value) -> list[str]:
    """The attributes that positional patterns stand for."""
    for thing in subject.things:
        if isinstance(thing.ref, ClassInfo):
            said = thing.ref.lookup("__match_args__")
            for given in said.things if said is not None else ():
                return [str(item.const) for item in given.items or ()]
            every = (base.node for base in reversed(thing.ref.mro()))
            return fields.parameters(fields.fields(every, lambda *_: False))
    return []
