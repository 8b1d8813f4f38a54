"""How many samples there are, where the program says it: ``torch.randn(40, 5)``."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from ddpify.facts.tree import last_name
from ddpify.ranks.attempts import ends
from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.modules import Module
from ddpify.rules.shared.feeds import held

_FILLED: Final = frozenset(
    "rand randn zeros ones empty full arange".split()
)  # the first argument is how many
_LAST: Final = frozenset({"linspace", "logspace"})
_WORLDS: Final = 4  # shares of a multiple are equal on two and on four ranks


def divides_evenly(value: RankValue) -> bool:
    """Whether it was made from rows in a number that is known, and that few ranks share evenly."""
    numbers = list(_numbers(value))
    return bool(numbers) and all(number % _WORLDS == 0 for number in numbers)


def stops_if_uneven(module: Module) -> bool:
    """Whether a file asks that what it deals with a stride divides: ``assert n % world == 0``."""
    steps: set[str] = set()
    asked: set[str] = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Slice) and node.step is not None:
            steps.add(ast.unparse(node.step))
        elif isinstance(node, ast.Call) and last_name(node.func) == "range" and node.args[2:]:
            steps.add(ast.unparse(node.args[2]))
        elif isinstance(node, ast.Assert) or (isinstance(node, ast.If) and ends(node.body)):
            asked |= {ast.unparse(one) for one in _divisors(node.test)}
    return not steps.isdisjoint(asked)


def _divisors(test: ast.expr) -> Iterator[ast.expr]:
    """What a condition divides by."""
    for one in ast.walk(test):
        if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Mod):
            yield one.right


def _numbers(value: RankValue) -> Iterator[int]:
    """The numbers of rows of what it was made from; 1 where another shape hides one."""
    things = held(value)
    yield from (number for number in map(_said, things) if number is not None)
    made = [thing.call for thing in things if thing.kind == "result" and thing.call]
    shaped = [call for call in made if call.method in ("reshape", "view") and call.args]
    if shaped:
        yield from (_number(call.args[0]) or 1 for call in shaped)
        return
    for call in made:
        number = _rows(call)
        if number is not None:
            yield number


def _said(thing: RankThing) -> int | None:
    """What a data set of the program says of itself: ``def __len__(self): return 64``."""
    method = thing.cls.method("__len__") if thing.cls is not None else None
    body = getattr(method.node, "body", ()) if method is not None else ()
    last = body[-1] if body else None
    told = last.value if isinstance(last, ast.Return) else None
    number = told.value if isinstance(told, ast.Constant) else None
    return number if isinstance(number, int) else None


def _rows(call: RankCall) -> int | None:
    """How many rows a call makes, if it says so."""
    if not call.name.startswith(("torch.", "numpy.")):
        return None
    place = {**dict.fromkeys(_FILLED, 0), **dict.fromkeys(_LAST, 2)}.get(call.method)
    if call.method in ("randint", "randint_like"):
        size = call.arg(2, "size")
        size = size if size is not None and size.items else call.arg(1, "size")
        first = size.items[0] if size is not None and size.items else None
    else:
        first = call.arg(place, "") if place is not None and len(call.args) > place else None
        first = first.items[0] if first is not None and first.items else first
    return _number(first)


def _number(value: RankValue | None) -> int | None:
    number = value.constant if value is not None else None
    return int(number) if isinstance(number, (int, float)) and number > 1 else None
