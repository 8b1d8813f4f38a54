"""Products of own rows with the gathered rows of all ranks, and what says their partners."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any, Final

from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.origins import Symbol
from ddpify.ranks.run import Run
from ddpify.ranks.values import text
from ddpify.rules.shared.fields import makers
from ddpify.rules.shared.gathers import FILLING, GIVING, arguments
from ddpify.rules.shared.losses import reduction

_JOINS: Final = frozenset({"torch.cat", "torch.concat", "torch.vstack"})
# What leaves each row, or each column, where it is.
_KEEPING: Final = frozenset(
    """t transpose to cuda cpu float half bfloat16 type type_as detach contiguous long clone
    normalize exp log_softmax softmax""".split()
)
_NAMED: Final = re.compile(r"\*?([^@()*\[\]]+@\d+)(?:\.(?:T|mT))*")  # `torch.cat@1.T`


def own_among_all(run: Run) -> Iterator[tuple[RankCall, RankCall, bool]]:
    """Cross entropies with the labels 0, 1, 2, … on every rank, and diagonals, of own rows by those
    of all; the gather; whether it is known where the rows come from."""
    gathers = [call for call in run.calls if call.name in FILLING | GIVING]
    for call in run.calls if gathers else ():
        logits = _compared(call) if call.grad and call.everywhere else None
        rows, columns = _sides(logits) if logits is not None else ([], [])
        gather = next((g for g in gathers for one in columns if _is_of_all(run, g, one)), None)
        if gather is not None and rows and all(_is_own(one, gathers) for one in rows):
            yield call, gather, all(one.kind != "parameter" for one in rows)


def _compared(call: RankCall) -> RankValue | None:
    """The logits of a cross entropy with such labels, or that of which the diagonal is taken."""
    if reduction(call) is not None or _is_criterion(call):
        labels = call.arg(1, "target")
        return call.arg(0, "input") if labels is not None and _counts_up(labels) else None
    taken = call.method in ("diag", "diagonal") and len(call.inputs) == 1
    return call.inputs[0] if taken else None


def _is_criterion(call: RankCall) -> bool:
    """``self.loss(…)`` of an object whose constructor, which was not read, makes a criterion."""
    owners = call.receiver.things if call.receiver is not None and call.target is None else ()
    names = [one for t in owners if t.cls is not None for one in makers(t.cls, call.method)]
    return bool(names) and all(one[0].endswith("CrossEntropyLoss") for one in names if one)


def _counts_up(value: RankValue) -> bool:
    """``torch.arange(len(rows))``, the same on all ranks."""
    thing = _bare(value)[1]
    made = thing.call if thing is not None else None
    if made is None or made.name != "torch.arange" or value.by_rank:
        return False
    return len(made.args) == 1 or (len(made.args) == 2 and made.args[0].constant == 0)


def _bare(value: RankValue) -> tuple[RankValue, RankThing | None]:
    """What a value was before what leaves its rows in their order, and the thing that it is."""
    named = _NAMED.fullmatch(text(value.atoms[0]))
    known = {thing.key: thing for thing in _whole(value)} if named is not None else {}
    thing = known.get(named[1]) if named is not None else None
    made = thing.call if thing is not None else None
    if made is None or made.method not in _KEEPING or not made.inputs:
        return value, thing
    return _bare(made.inputs[0])


def _whole(value: RankValue) -> Iterator[RankThing]:
    """What a value was made from, and what this was made from."""
    for thing in value.sources():
        yield thing
        if thing.call is not None:
            yield from (one for given in thing.call.inputs for one in given.sources())


def _part(value: RankValue, atom: Any) -> RankValue:
    return RankValue((atom, atom), (), frozenset(_whole(value)))


def _sides(value: RankValue) -> tuple[list[RankThing], list[RankThing]]:
    """What both sides of ``scale * a @ b.T``, ``torch.matmul(a, b.t()) / tau`` are made of."""
    value, thing = _bare(value)
    made = thing.call if thing is not None else None
    parts: tuple[Any, ...] = getattr(value.atoms[0], "parts", ())
    if made is not None and made.method in ("matmul", "mm") and len(made.inputs) == 2:
        return [*_leaves(made.inputs[0])], [*_leaves(made.inputs[1])]
    if parts[:1] == ("MatMult",):
        return [*_leaves(_part(value, parts[1]))], [*_leaves(_part(value, parts[2]))]
    scaled = parts[1:] if parts[:1] in (("Div",), ("Mult",), ("Sub",), ("Add",)) else ()
    found = [side for one in scaled if any(side := _sides(_part(value, one)))]
    return found[0] if len(found) == 1 else ([], [])


def _leaves(value: RankValue) -> Iterator[RankThing]:
    """The things that an expression names."""
    value, thing = _bare(value)
    yield from (thing,) if thing is not None else ()
    for part in getattr(value.atoms[0], "parts", ())[1:]:
        if isinstance(part, Symbol):
            yield from _leaves(_part(value, part))


def _is_of_all(run: Run, gather: RankCall, column: RankThing) -> bool:
    """Whether columns are what a gather gave, rank by rank."""
    joined, into = column.call, arguments(gather)[0]
    if joined is None or joined.name not in _JOINS or not joined.args:
        whole = into is not None and gather.method != "all_gather" and into.things == (column,)
        return whole or (joined is gather and gather.method != "all_gather")
    parts = joined.args[0]
    made = parts.things[0].call if len(parts.things) == 1 else None
    if gather.name in GIVING or made in gather.stack[-1:]:
        return made is gather or (made is not None and _hands_back(made, gather))
    if into is None or text(into.atoms[0]) != text(parts.atoms[0]) or gather.order > joined.order:
        return False
    return gather.stack == joined.stack and not _reordered(run, gather, joined, into)


def _hands_back(applied: RankCall, gather: RankCall) -> bool:
    """``return tuple(parts)`` of an autograd function that gathers into ``parts``."""
    given = gather.node_of(0, "tensor_list")
    nodes = ast.walk(applied.target.node) if applied.target is not None else ()
    held = (node.value for node in nodes if isinstance(node, ast.Return))
    plain = (one.args[0] if isinstance(one, ast.Call) and one.args else one for one in held)
    return any(isinstance(one, ast.Name) and one.id == getattr(given, "id", "") for one in plain)


def _reordered(run: Run, gather: RankCall, joined: RankCall, into: RankValue) -> bool:
    """Whether parts change places after a gather: this rank's own is put back where it was."""
    bases = [(s.base, s.key) for s in run.stores if gather.order < s.order < joined.order]
    keys = [key for base, key in bases if text(base.atoms[0]) == text(into.atoms[0])]
    calls = run.methods("insert", "pop", "append", "remove", "reverse", "sort")
    moved = any(c.receiver and text(c.receiver.atoms[0]) == text(into.atoms[0]) for c in calls)
    return moved or len(keys) > 1 or any(keys)


def _is_own(thing: RankThing, gathers: list[RankCall]) -> bool:
    """Whether what the rows were made from has nothing of other ranks in it."""
    made = thing.call
    if made is None or thing.kind == "instance":
        return thing.kind in ("parameter", "attribute", "instance")
    if not made.name.startswith(("torch.", ".")) and made.target is None:
        return False
    before = {thing, *(made.result.sources() if made.result is not None else ())}
    calls = {one.call for one in before if one.call is not None}
    filled = tuple(text(into.atoms[0]) for one in gathers if (into := arguments(one)[0]))
    used = [one.key for one in before] + [text(v.atoms[0]) for c in calls for v in c.inputs]
    gives = {one for gather in gathers for one in (gather, *gather.stack)}
    return calls.isdisjoint(gives) and not any(one.startswith(filled) for one in used)
