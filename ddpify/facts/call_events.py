"""Calls before they are made: their names and arguments, as the record keeps them."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from ddpify.facts import batch_entries, containers
from ddpify.facts.events import Call
from ddpify.facts.joining import join
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import Frame, functions_in
from ddpify.facts.values import MORE, NOTHING, REST, Kind, Value, constant
from ddpify.source import Site


@dataclass(frozen=True)
class Arguments:
    """The evaluated arguments of a call, and where each stands."""

    args: tuple[Value, ...]
    kwargs: dict[str, Value]
    arg_sites: tuple[Site, ...]
    kwarg_sites: dict[str, Site]
    star: bool
    unknown: tuple[Value, ...] = ()  # what a star gives, nobody knows how many of

    def all(self) -> tuple[Value, ...]:
        """Positional, then keyword."""
        return (*self.args, *self.kwargs.values())


def event_of(
    m: Machine,
    f: Frame,
    node: ast.Call,
    callee: Value,
    receiver: Value | None,
    arguments: Arguments,
    alone: bool,
) -> Call:
    targets = functions_in(callee)
    inner = node.func.value if isinstance(node.func, ast.Attribute) else None
    return Call(
        m.tick(),
        _call_name(node, callee),
        m.site(f, node),
        m.site(f, node.func),
        m.where(f),
        arguments.args,
        arguments.kwargs,
        arguments.arg_sites,
        arguments.kwarg_sites,
        receiver,
        m.site(f, inner) if inner is not None else None,
        targets[0] if targets else None,
        alone=alone,
        star=arguments.star,
    )


def _call_name(node: ast.Call, callee: Value) -> str:
    for thing in callee.things:
        if thing.kind is Kind.EXTERNAL or thing.ref is not None:
            return thing.name
    if isinstance(node.func, ast.Attribute):
        return f".{node.func.attr}"
    return node.func.id if isinstance(node.func, ast.Name) else ""


def arguments_of(m: Machine, f: Frame, node: ast.Call) -> Arguments:
    args: list[Value] = []
    sites: list[Site] = []
    star, unknown = False, []
    rest: list[Value] = []
    for arg in node.args:
        value = m.evaluate(f, arg)
        if isinstance(arg, ast.Starred):
            star = True
            items = [t.items for t in value.things if t.items is not None]
            unknown += [value] if not value.things else []
            rest += [t.inner for t in value.of(Kind.ITERATOR) if t.inner is not None]
            args.extend(items[0] if items else ())
            sites.extend([m.site(f, arg)] * (len(items[0]) if items else 0))
            continue
        args.append(value)
        sites.append(m.site(f, arg))
    kwargs, kwarg_sites, spread = _keywords(m, f, node)
    if rest:
        kwargs[REST] = join(*rest)
    return Arguments(tuple(args), kwargs, tuple(sites), kwarg_sites, star or spread, tuple(unknown))


def _keywords(
    m: Machine, f: Frame, node: ast.Call
) -> tuple[dict[str, Value], dict[str, Site], bool]:
    kwargs: dict[str, Value] = {}
    sites: dict[str, Site] = {}
    spread = False
    for keyword in node.keywords:
        value = m.evaluate(f, keyword.value)
        if keyword.arg is not None:
            kwargs[keyword.arg] = value
            sites[keyword.arg] = m.site(f, keyword.value)
            continue
        spread = True
        batches = value.of(Kind.BATCH)
        if batches and batches == value.things and all(map(batch_entries.keys_of, batches)):
            for batch in batches:
                for name in batch_entries.keys_of(batch):
                    entry = containers.item_of(batch, constant(name))
                    kwargs[name] = join(kwargs.get(name), entry)
            continue
        if not value.things or any(t.keys is None for t in value.things):
            entries = [containers.item_of(thing, NOTHING) for thing in value.of(Kind.BATCH)]
            kwargs[MORE] = join(*filter(None, entries)) if value.things else value
        for thing in value.things:
            for key, item in (thing.keys or {}).items():
                name = key if isinstance(key, str) else MORE
                kwargs[name] = join(kwargs.get(name), item)
    return kwargs, sites, spread


def is_told(m: Machine, event: Call) -> bool:
    """Whether all that is given is known, be it as one of the entries of a dict."""
    node = m.tree(event.site.path).expression(event.site) if event.star else None
    placed = not isinstance(node, ast.Call) or any(isinstance(a, ast.Starred) for a in node.args)
    return not event.bound and not (event.star and placed)
