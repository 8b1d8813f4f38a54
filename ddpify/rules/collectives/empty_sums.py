"""Sums of floats that a rank picks by what they are: where it picks none, ``sum([])`` is an int."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from ddpify.ranks.casts import casts
from ddpify.ranks.model import RankCall, RankValue
from ddpify.ranks.origins import Symbol, of_one_rank
from ddpify.ranks.run import Run
from ddpify.ranks.values import text

_MADE: Final = ("torch.tensor", "torch.as_tensor")
_FLOATS: Final = frozenset("mean std var norm softmax log_softmax sigmoid exp log sqrt".split())
_KEEPING: Final = frozenset("pow square abs sum squeeze flatten view detach cpu clamp".split())
_NUMBERS: Final = frozenset({"item", "tolist"})


def may_be_whole(run: Run, value: RankValue) -> bool:
    """Whether a tensor is made of nothing but such a sum, and nobody says of which type."""
    made = value.made_by(*_MADE)
    call = made.call if made is not None and len(value.things) == 1 else None
    if made is None or call is None or len(call.given) != 1 or casts(value, made, 0):
        return False
    given = call.args[0] if call.args else value
    sums = given.items if given.items is not None and not given.things else (given,)
    return bool(sums) and all(_is_of_picked(run, one) for one in sums)


def _is_of_picked(run: Run, value: RankValue) -> bool:
    made = value.made_by("builtins.sum")
    call = made.call if made is not None else None
    if call is None or len(call.given) != 1 or not call.args:
        return False
    items = call.args[0].items or ()
    own = of_one_rank(call.args[0].all_origins)
    return own and len(items) == 1 and _is_float(items[0]) and _is_picked(run, call, items[0])


def _is_float(value: RankValue) -> bool:
    """Whether it is ``loss.item()``, or an element of ``losses.tolist()``."""
    made = value.things or value.deps
    calls = [t.call for t in made if t.call is not None and t.call.method in _NUMBERS]
    of = calls[0].receiver if len(calls) == 1 else None
    return of is not None and _is_of_floats(of)


def _is_of_floats(tensor: RankValue) -> bool:
    call = tensor.things[0].call if len(tensor.things) == 1 else None
    if call is None:
        return False
    layer = call.method == "__call__" and call.name.startswith("torch.nn.")
    if layer or call.name == f"torch.nn.functional.{call.method}":
        return call.method != "one_hot"
    of = call.receiver if call.receiver is not None else next(iter(call.args), None)
    known = call.method in _KEEPING and of is not None
    return call.method in _FLOATS or (known and of is not None and _is_of_floats(of))


def _is_picked(run: Run, summed: RankCall, item: RankValue) -> bool:
    """Whether a comprehension leaves elements out by what they are, or a condition on this rank's
    data decides whether one is appended."""
    atom = summed.args[0].atoms[0]
    key = text(atom) if isinstance(atom, Symbol) else ""
    for node, name in _comprehensions(run):
        if key.rstrip(")").endswith(name):
            own = {n.id for n in ast.walk(node.generators[0].target) if isinstance(n, ast.Name)}
            tests = (n for test in node.generators[0].ifs for n in ast.walk(test))
            return any(isinstance(n, ast.Name) and n.id in own for n in tests)
    made = [c for c in run.methods("append") if c.args and c.args[0].things == item.things != ()]
    name = ast.unparse(summed.node.args[0]) if summed.node.args else ""
    mine = [c for c in made if ast.unparse(c.node.func) == f"{name}.append"]
    return bool(mine) and all(map(_is_conditional, mine))


def _comprehensions(run: Run) -> Iterator[tuple[ast.ListComp, str]]:
    """The comprehensions of one list, and how what they give is called."""
    for module in run.modules.values():
        for node in module.nodes:
            if isinstance(node, ast.ListComp) and len(node.generators) == 1:
                yield node, f"each@{module.site(node)}:{node.col_offset}"


def _is_conditional(call: RankCall) -> bool:
    inner = call.conditions_in(call.loops[-1]) if call.loops else ()
    return any(guard.test.local for guard in inner)
