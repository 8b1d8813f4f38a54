"""Loops over what is sorted by numbers that each rank has for itself."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from typing import Final

from ddpify.ranks.model import RankCall, RankLoop, RankThing, RankValue
from ddpify.ranks.origins import CLOCK, DATA, IDENTITY, RANDOM
from ddpify.ranks.run import Run
from ddpify.ranks.values import text

_NUMBERS: Final = frozenset("item norm sum mean abs max min".split())
_OWN: Final = {CLOCK, RANDOM, DATA, *IDENTITY}
_DRAWN: Final = {DATA, RANDOM}
_SORTED: Final = "builtins.sorted"
_BACK: Final = ("reversed",)
_STATES: Final = frozenset("state_dict parameters named_parameters".split())
_ENTRIES: Final = frozenset("items keys values".split())
_ALIKE: Final = frozenset(f"builtins.{name}" for name in "list tuple dict enumerate iter".split())


@dataclass(frozen=True)
class NamedOrder:
    """In which order a model's parameters, or the names of its state, are: ``by`` says how they
    were sorted or turned round, nothing that they are as the model has them."""

    of: tuple[RankThing, ...]
    by: tuple[str, ...] = ()


def order_of(value: RankValue, rank: int) -> NamedOrder | None:
    """The order of ``sorted(net.state_dict().items())`` on a rank; None if that is not known."""
    things, atom = value.things_on(rank), value.atoms[rank]
    made = things[0].call if len(things) == 1 else None
    if made is None or made.star:
        return None
    whole = text(atom).removesuffix(f":{rank}") == things[0].key
    on = made.receiver
    if not whole or made.method in _STATES:  # `rows[::-1]` is made by what made `rows`
        return NamedOrder(on.things) if whole and on is not None and on.things else None
    of = on if made.method in _ENTRIES else made.args[0] if made.args else None
    inner = order_of(of, rank) if of is not None else None
    if inner is None or made.method in _ENTRIES or made.name in _ALIKE:
        return inner
    if made.name == "builtins.reversed":
        return replace(inner, by=inner.by[:-1] if inner.by[-1:] == _BACK else (*inner.by, *_BACK))
    how = tuple(ast.unparse(one) for one in made.node.keywords)
    return replace(inner, by=(_SORTED, *how)) if made.name == _SORTED else None


def sorted_by_numbers(run: Run, loop: RankLoop) -> bool:
    """``sorted(parameters, key=lambda p: p.grad.norm())`` before the gradients are averaged."""
    made = loop.over.made_by(_SORTED) if loop.over is not None else None
    call = made.call if made is not None else _in_place(run, loop)
    key = call.kwargs.get("key") if call is not None else None
    if call is not None and made is not None and _is_own(call, key):
        return True
    body = _body(key) if key is not None else None
    return body is not None and any(map(_is_of_gradient, ast.walk(body)))


def _is_own(call: RankCall, key: RankValue | None) -> bool:
    """``sorted(seconds, key=seconds.get)`` of times that each rank has measured."""
    if key is None:
        return False
    body = _body(key)
    timed = call.result is not None and any(one.kind == CLOCK for one in call.result.all_origins)
    looked = body is not None and any(map(_looks_up, ast.walk(body)))
    if (timed and looked) or any(one.kind in _OWN for one in key.origins):
        return True
    return body is not None and _asks_entries(call, body)


def _asks_entries(call: RankCall, body: ast.AST) -> bool:
    """``sorted(losses, key=lambda name: losses[name].item())``, ``kv[1].item()`` of its items:
    numbers of this rank's samples."""
    given, node = call.arg(0, ""), call.node_of(0, "")
    if given is None or node is None or {one.kind for one in given.all_origins}.isdisjoint(_DRAWN):
        return False
    of, told = ast.unparse(node), [one for one in ast.walk(body) if _is_number(one)]
    below = [one for call_ in told for one in ast.walk(call_) if isinstance(one, ast.Subscript)]
    entries = of.endswith(".items()")
    return any(_looks_up(one) and (entries or ast.unparse(one.value) == of) for one in below)


def _is_number(node: ast.AST) -> bool:
    """``loss.item()``, ``float(loss)``."""
    asked = node.func if isinstance(node, ast.Call) else None
    return getattr(asked, "attr", "") == "item" or getattr(asked, "id", "") == "float"


def _looks_up(node: ast.AST) -> bool:
    """``item[1]`` of the items of a dict, ``spent[name]``."""
    if not isinstance(node, ast.Subscript):
        return False
    place = ast.unparse(node.slice)
    return place in ("1", "-1") or isinstance(node.slice, ast.Name)


def _in_place(run: Run, loop: RankLoop) -> RankCall | None:
    """``parameters.sort(key=…)`` of the list that a loop goes through."""
    things = set(loop.over.things) if loop.over is not None else set()
    for call in run.methods("sort"):
        own = call.receiver.things if call.receiver is not None else ()
        if not things.isdisjoint(own):
            return call
    return None


def _body(key: RankValue) -> ast.AST | None:
    """What computes a key of an element."""
    things: tuple[RankThing, ...] = key.things
    nodes = [thing.info.node for thing in things if thing.kind == "function"]
    return nodes[0] if len(nodes) == len(things) == 1 else None


def _is_of_gradient(node: ast.AST) -> bool:
    """``p.grad.norm()``: a number of this rank's."""
    asked = node.func if isinstance(node, ast.Call) else None
    return (
        isinstance(asked, ast.Attribute)
        and asked.attr in _NUMBERS
        and any(isinstance(one, ast.Attribute) and one.attr == "grad" for one in ast.walk(asked))
    )
