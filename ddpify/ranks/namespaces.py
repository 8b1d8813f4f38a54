"""Parsed options into which a program writes without spelling their names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from ddpify.python.words import NAMESPACES
from ddpify.ranks.model import RankThing, RankValue
from ddpify.ranks.modules import FunctionDefinition
from ddpify.ranks.options import OPEN, PARSE
from ddpify.ranks.origins import Symbol
from ddpify.ranks.protocol import RankMachine
from ddpify.ranks.values import TRUE
from ddpify.site import Site

# `args.x = …`, `options["x"] = …`, `vars(args)`: the name of what is set, or may be.
_SETS: Final = re.compile(
    r"\b(\w+)(?:\.\w+|\[[^]\n]*\])\s*=[^=]|\b(\w+)\.(?:update\(|__dict__)|\b(?:setattr|vars)\((\w+)"
)


def namespaces(value: RankValue) -> Iterator[RankThing]:
    """What a command line was parsed into, or an ``argparse.Namespace``, if that is what it is."""
    for thing in value.things:
        if thing.kind == "result" and (thing.name.endswith(PARSE) or thing.name in NAMESPACES):
            yield thing


def owners(value: RankValue) -> Iterator[RankThing]:
    """The namespaces whose attributes a dict is: ``vars(args)``, ``args.__dict__``."""
    for thing in value.things:
        if thing.name == "builtins.vars" and thing.call is not None and thing.call.args:
            yield from namespaces(thing.call.args[0])
        elif thing.name.endswith(".__dict__") and thing.receiver is not None:
            yield from namespaces(RankValue((None, None), (thing.receiver,)))


def forget(m: RankMachine, thing: RankThing, site: Site) -> None:
    """Something was written under a name that is not known: it may be any option."""
    for name in tuple(thing.attrs):
        unsettle(m, thing, name, site)
    m.write(thing.attrs, OPEN, TRUE)


def unsettle(m: RankMachine, thing: RankThing, name: str, site: Site) -> None:
    """An option is set somewhere. What tells the ranks apart is kept, and objects are."""
    made = RankThing("attribute", f"{thing.name}.{name}", site, receiver=thing)
    old = thing.attrs.get(name, RankValue((None, None), (made,), frozenset({thing})))
    if not old.by_rank and all(one.receiver is thing for one in old.things):
        any_ = Symbol(f"{thing.key}.{name}~{site}")
        m.write(thing.attrs, name, replace(old, atoms=(any_, any_)))


def may_set(
    m: RankMachine,
    info: FunctionDefinition,
    args: tuple[RankValue, ...],
    kwargs: dict[str, RankValue],
) -> bool:
    """Whether a function says that it sets something of such an object, or of its dict."""
    said = {name for found in _SETS.findall(info.text) for name in found if name}
    if not said:
        return False
    space = m.namespaces[info.module].attrs if info.module in m.namespaces else {}
    held = {**space, **dict(zip(info.parameters, args, strict=False)), **kwargs}
    return any(any((*namespaces(held[name]), *owners(held[name]))) for name in said & held.keys())
