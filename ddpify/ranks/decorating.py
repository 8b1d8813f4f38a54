"""Decorators: those of the project are called, those of libraries mark what they decorate."""

from __future__ import annotations

import ast
from dataclasses import replace

from ddpify.ranks import words
from ddpify.ranks.frames import RankFrame
from ddpify.ranks.model import ALL, RankThing, RankValue
from ddpify.ranks.origins import RANK, Origin
from ddpify.ranks.protocol import RankMachine


def decorated(m: RankMachine, f: RankFrame, decorator: ast.expr, value: RankValue) -> RankValue:
    """A function with a decorator."""
    kept = (m.live, m.items)
    m.live, m.items = ALL, []
    made = m.evaluate(f, decorator)
    m.live, m.items = kept
    for thing in made.things:
        if thing.kind == "function":
            found = m.enter(f, thing, (value,), {}, None)
            return found if _takes_its_place(found, value) else value
        if thing.kind == "class" and any(t.kind == "function" for t in value.things):
            return m.apply(f, made, decorator, (value,))
        _mark(thing.name, value.things, Origin(RANK, thing.name, f.module.site(decorator)))
    return value


def _takes_its_place(found: RankValue, value: RankValue) -> bool:
    """Whether a decorator gives another function, or something that does not hide this one."""
    if any(thing.kind in ("function", "class", "instance") for thing in found.things):
        return True
    return bool(found.things) and found.made_from.isdisjoint(value.things)


def _mark(decorator: str, functions: tuple[RankThing, ...], why: Origin) -> None:
    """Note what a library's decorator does to the calls of these functions."""
    trait = words.DECORATORS.get(decorator)
    for one in functions:
        if trait is not None:
            one.traits = one.traits.also(trait)
        elif decorator.endswith(words.RANK0_DECORATORS):
            one.traits = replace(one.traits, rank0=why)
