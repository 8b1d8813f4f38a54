"""Python's functions of iterables: what they give has the elements of what they are given."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import Final

from ddpify.python import words as names
from ddpify.ranks import iterating
from ddpify.ranks.containers import ANY, any_of, elements, entry_name, listed, pair
from ddpify.ranks.frames import RankFrame
from ddpify.ranks.model import RankCall, RankValue
from ddpify.ranks.origins import DATA, put_under
from ddpify.ranks.protocol import RankMachine
from ddpify.ranks.results import result, with_origin
from ddpify.ranks.values import spread, symbol

Handler = Callable[[RankMachine, RankFrame, RankCall], RankValue | None]
MAX_PRODUCT = 16
(_CHAIN,) = (name for name in names.ITERATES if name.endswith(".chain"))


def _elements(
    m: RankMachine, f: RankFrame, value: RankValue, node: ast.AST
) -> tuple[RankValue, ...] | None:
    """What iterating gives, that of an object of the project with ``__iter__`` included."""
    found = elements(value)
    if found is not None or not any(t.kind == "instance" for t in value.things):
        return found
    made = m.call_method(f, value, "__iter__", node)
    return elements(made) if made is not None else None


def _objects(items: Sequence[RankValue]) -> bool:
    """Whether there are objects or results among the elements, or lists of some: of constants
    nothing is said, for what a list of texts says of the ranks is another matter."""
    return any(item.things or not item.known or _objects(item.items or ()) for item in items)


def _given(m: RankMachine, f: RankFrame, one: RankCall) -> list[tuple[RankValue, ...]] | None:
    """The elements of each argument, if all are known."""
    if one.star or not one.args:
        return None
    held = [_elements(m, f, value, one.node) for value in one.args]
    found = [items for items in held if items is not None]
    return found if len(found) == len(held) else None


def _with(one: RankCall, items: Sequence[RankValue]) -> RankValue | None:
    return listed(result(one), items) if _objects(items) else None


def _same(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    """``list(x)``, ``sorted(x)``, ``iter(x)``: its elements."""
    if not one.args and one.name in ("builtins.list", "builtins.set"):
        return listed(result(one), ())
    given = _given(m, f, replace(one, args=one.args[:1]))
    return _with(one, given[0]) if given else None


def _reversed(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    given = _given(m, f, one)
    return _with(one, given[0][::-1]) if given else None


def _filter(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    given = _given(m, f, replace(one, args=one.args[1:2]))
    if not given:
        return None
    if one.args[0].things:
        for item in given[0]:
            m.apply(f, one.args[0], one.node, (item,))
    return _with(one, given[0])


def _map(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    given = _given(m, f, replace(one, args=one.args[1:]))
    if not given or not one.args[0].things:
        return None
    found = [m.apply(f, one.args[0], one.node, held) for held in zip(*given, strict=False)]
    return _with(one, found)


def _starmap(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    given = elements(one.args[1]) if len(one.args) == 2 else None
    if given is None or any(item.items is None for item in given):
        return None
    return _with(one, [m.apply(f, one.args[0], one.node, item.items or ()) for item in given])


def _zip(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    given = _given(m, f, one)
    return _with(one, [pair(*held) for held in zip(*given, strict=False)]) if given else None


def _product(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    given = _given(m, f, one)
    if not given:
        return None
    held = product(*given)
    return _with(one, [pair(*parts) for _, parts in zip(range(MAX_PRODUCT), held, strict=False)])


def _chain(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    given = _given(m, f, one)
    return _with(one, [item for items in given for item in items]) if given else None


def _chain_of(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    outer = elements(one.args[0]) if len(one.args) == 1 else None
    held = [elements(value) for value in outer or ()]
    if None in held:
        return None
    return _with(one, [item for items in held for item in items or ()])


def _repeat(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    return _with(one, one.args[:1])


def _tee(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    given = _given(m, f, replace(one, args=one.args[:1]))
    same = listed(result(one), given[0]) if given and _objects(given[0]) else None
    return _with(one, [pair(*given[0]), pair(*given[0])]) if given and same else None


def _next(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    """``next(x)``: one of its elements, or what its ``__next__`` gives."""
    if not one.args:
        return None
    items = elements(one.args[0])
    if items and _objects(items):
        return any_of((*items, *one.args[1:2]))
    found = m.call_method(f, one.args[0], "__next__", one.node)
    if found is None and len(one.args) == 2 and one.args[1].things:
        return replace(result(one), things=one.args[1].things)
    why = iterating.dealt_by_loader(one.args[0]) if found is None else None
    if why is None:
        return found
    item = with_origin(result(one), DATA, why, one)
    if not iterating.is_numbered(one.args[0]):
        return item
    number = symbol(f"index@{one.site}@{m.tick()}")
    return RankValue(number.atoms, items=(number, item))


def _best(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    """``max(models, key=…)``: one of them."""
    if "key" not in one.kwargs:
        return None
    items = one.args if len(one.args) > 1 else elements(one.args[0]) if one.args else None
    return any_of(items) if items and _objects(items) else None


def _sum(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    """``sum(lists, [])``."""
    if len(one.args) != 2 or one.args[1].items is None:
        return None
    held = [elements(value) for value in elements(one.args[0]) or ()]
    return _with(one, [item for items in held for item in items or ()])


def _reduce(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    items = elements(one.args[1]) if len(one.args) > 1 else None
    if not items or len(items) > MAX_PRODUCT or not one.args[0].things:
        return None
    total, *rest = (*one.args[2:3], *items)
    for item in rest:
        total = m.apply(f, one.args[0], one.node, (total, item))
    return total


def dict_of(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    """``dict(other, a=1)``, ``OrderedDict(pairs)``: its entries, where they are known."""
    if one.star or len(one.args) > 1:
        return None
    entries = _entries(one.args[0]) if one.args else {}
    if entries is None:
        return _grown(one)
    made = symbol(f"dict@{one.site}") if one.name == "builtins.dict" else result(one)
    return replace(made, keys=tuple({**entries, **one.kwargs}.items()))


def _grown(one: RankCall) -> RankValue | None:
    """``dict(other, a=1)`` of a dict that is not known: each entry differs for its own reasons."""
    base = one.args[0]
    if base.items is not None:
        return None
    why = (put_under(name, spread(value)) for name, value in one.kwargs.items())
    return replace(result(one), origins=base.origins.union(*why))


def _entries(given: RankValue) -> dict[str, RankValue] | None:
    """The entries of a dict, or of a list of pairs."""
    if given.keys is not None:
        return dict(given.keys)
    found: dict[str, RankValue] = {}
    for item in given.items if given.items is not None else (given,):
        if item.items is None or len(item.items) != 2:
            return None
        found[entry_name(item.items[0]) or ANY] = item.items[1]
    return found


def _from_keys(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    names = elements(one.args[0]) if one.args else None
    if names is None or len(one.args) != 2:
        return None
    made = symbol(f"dict@{one.site}")
    return RankValue(
        made.atoms, keys=tuple((entry_name(name) or ANY, one.args[1]) for name in names)
    )


def _deque(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    """``deque()`` and ``deque(items)``."""
    items = elements(one.args[0]) if one.args else ()
    return None if items is None else listed(result(one), items)


def _chain_map(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    """``ChainMap(own, defaults)``: the first that has an entry."""
    if any(value.keys is None for value in one.args):
        return None
    held = [entry for value in reversed(one.args) for entry in value.keys or ()]
    return replace(result(one), keys=tuple(dict(held).items()))


def _queue(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue:
    return listed(result(one), ())


HANDLERS: Final[dict[str, Handler]] = {
    **dict.fromkeys(
        (
            "builtins.tuple",
            "builtins.set",
            "builtins.frozenset",
            "builtins.iter",
            *names.ITERATES - {_CHAIN},
        ),
        _same,
    ),
    "builtins.reversed": _reversed,
    "builtins.filter": _filter,
    "builtins.map": _map,
    "builtins.zip": _zip,
    "builtins.next": _next,
    "itertools.starmap": _starmap,
    "itertools.zip_longest": _zip,
    "itertools.product": _product,
    _CHAIN: _chain,
    f"{_CHAIN}.from_iterable": _chain_of,
    "itertools.repeat": _repeat,
    "itertools.tee": _tee,
    "functools.reduce": _reduce,
    "builtins.dict": dict_of,
    "builtins.dict.fromkeys": _from_keys,
    "collections.OrderedDict": dict_of,
    "collections.UserDict": dict_of,
    "types.MappingProxyType": dict_of,
    "collections.ChainMap": _chain_map,
    **dict.fromkeys(("queue.Queue", "queue.LifoQueue", "queue.SimpleQueue"), _queue),
    "collections.deque": _deque,
}
same, best, added = _same, _best, _sum
