"""How many samples there are, where the program says it: ``torch.randn(40, 5)``."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any, Final

from ddpify.facts.tree import last_name
from ddpify.ranks.attempts import ends
from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.modules import Module
from ddpify.ranks.origins import ITEM, SLICE, Symbol
from ddpify.ranks.values import OwnRows, text
from ddpify.rules.shared.feeds import held

_FILLED: Final = frozenset(
    "rand randn zeros ones empty full arange".split()
)  # the first argument is how many
_SPLIT: Final = "torch.utils.data.random_split"
_LAST: Final = frozenset({"linspace", "logspace"})
_SPLITS: Final = frozenset({"tensor_split", "array_split"})
_WORLDS: Final = 4  # shares of a multiple are equal on two and on four ranks


def divides_evenly(value: RankValue) -> bool:
    """Whether it was made from rows in a number that is known, and that few ranks share evenly."""
    said = rows_of(value)
    numbers = [said] if said is not None else list(_numbers(value))
    return bool(numbers) and all(number % _WORLDS == 0 for number in numbers)


def in_equal_numbers(value: RankValue) -> bool:
    """Whether what was dealt are the parts of a split into a multiple of the world size, or of the
    stride by which they are dealt."""
    dealt = value.atoms[0]
    step = dealt.bounds[-1].atoms[0] if isinstance(dealt, OwnRows) and dealt.stride else None
    for thing in value.sources():
        call = thing.call
        if call is not None and call.method in _SPLITS:
            number = call.arg(0 if call.receiver is not None else 1, "indices_or_sections")
            if number is not None and _is_multiple(number.atoms[0], step):
                return True
    return False


def _is_multiple(atom: Any, step: Any) -> bool:
    """Of 2, for a run has two ranks, or of a number that is not known."""
    if isinstance(atom, Symbol):
        parts = atom.parts[1:] if atom.parts[:1] == ("Mult",) else ()
        return atom == step or any(_is_multiple(one, step) for one in parts)
    return isinstance(atom, int) and atom % 2 == 0


def rows_of(dataset: RankValue) -> int | None:
    """How many samples a data set surely has: its class says so, what its columns are made or cut
    to, or what the data was split into."""
    if len(dataset.things) != 1:
        return _rows_at(dataset.atoms[0], {one.key: one for one in dataset.made_from})
    (thing,) = dataset.things
    if thing.call is None or thing.name != "torch.utils.data.TensorDataset":
        return _said(thing)
    columns = thing.call.args[:1]
    return next((_rows_at(v.atoms[0], {t.key: t for t in v.sources()}) for v in columns), None)


def _rows_at(atom: Any, known: dict[str, RankThing]) -> int | None:
    """How many rows ``x``, ``x[order]`` or ``x[:80]`` has."""
    thing = known.get(getattr(atom, "key", ""))
    if thing is not None:
        return _rows(thing.call) if thing.call is not None else None
    parts = atom.parts if isinstance(atom, Symbol) else ()
    if parts[:1] == (SLICE,):
        rows = _rows_at(parts[1], known)
        said = all(one is None or type(one) is int for one in parts[2:])
        return len(range(rows)[slice(*parts[2:])]) if said and rows is not None else None
    by = known.get(getattr(parts[2], "key", "")) if parts[:1] == (ITEM,) else None
    if by is not None and by.name == "torch.randperm" and by.call is not None:
        return _number(by.call.args[0]) if by.call.args else None
    return next(_split_into(text(atom), known), None)


def _split_into(key: str, known: dict[str, RankThing]) -> Iterator[int | None]:
    """How many samples a part of ``random_split(data, [80, 21])`` has."""
    for made in known.values():
        sizes = made.call.arg(1, "lengths") if made.name == _SPLIT and made.call else None
        for number, size in enumerate(sizes.items or () if sizes is not None else ()):
            if key == f"{made.key}[{number}]":
                yield _number(size)


def stops_if_uneven(module: Module) -> bool:
    """Whether a file asks that what it deals with a stride divides: ``assert n % world == 0``."""
    nodes = list(module.nodes)
    given = {ast.unparse(t): n.value for n in nodes if isinstance(n, ast.Assign) for t in n.targets}
    asked = [one for node in nodes for one in _divisions(node)]
    return any(
        ast.unparse(step) == ast.unparse(one.right) and _words(of, given) & _words(one.left, given)
        for of, step in filter(None, map(_stride, nodes))
        for one in asked
    )


def _stride(node: ast.AST) -> tuple[ast.expr, ast.expr] | None:
    """``rows`` and ``n`` of ``rows[i::n]``, ``end`` and ``n`` of ``range(i, end, n)``."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
        return (node.value, node.slice.step) if node.slice.step is not None else None
    if isinstance(node, ast.Call) and last_name(node.func) == "range" and node.args[2:]:
        return node.args[1], node.args[2]
    return None


def _divisions(node: ast.AST) -> Iterator[ast.BinOp]:
    """What a condition divides by what, without which the program goes no further."""
    if isinstance(node, ast.Assert) or (isinstance(node, ast.If) and ends(node.body)):
        for one in ast.walk(node.test):
            if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Mod):
                yield one


def _words(node: ast.expr, given: dict[str, ast.expr]) -> set[str]:
    """The names in an expression and in what the file gives to it; ``args.size`` is one."""
    nodes = [*ast.walk(node), *ast.walk(given.get(ast.unparse(node), node))]
    owners = {id(one.value) for one in nodes if isinstance(one, ast.Attribute)}
    named = (one for one in nodes if isinstance(one, (ast.Name, ast.Attribute)))
    return {ast.unparse(one) for one in named if id(one) not in owners} - {"len", "list", "range"}


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
