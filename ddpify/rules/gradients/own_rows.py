"""Products of own rows with the gathered rows of all ranks, and what says their partners."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.origins import Symbol
from ddpify.ranks.run import Run
from ddpify.ranks.values import text
from ddpify.ranks.words import DIST
from ddpify.rules.shared.fields import makers
from ddpify.rules.shared.losses import reduction

_INTO: Final = frozenset({f"{DIST}all_gather", f"{DIST}all_gather_into_tensor"})
_GIVING: Final = frozenset(
    {f"{DIST}nn.all_gather", f"{DIST}_functional_collectives.all_gather_tensor"}
    | {"accelerate.Accelerator.gather"}
)
_JOINS: Final = frozenset({"torch.cat", "torch.concat", "torch.vstack"})
# What leaves each row, or each column, where it is.
_KEEPING: Final = frozenset(
    """t T mT transpose to cuda cpu float half bfloat16 type type_as detach contiguous long clone
    normalize exp log_softmax softmax""".split()
)
_PRODUCTS: Final = frozenset({"matmul", "mm"})
_REORDERS: Final = ("insert", "pop", "append", "remove", "reverse", "sort")

_NAMED: Final = re.compile(r"[^@()*]+@\d+")  # `torch.cat@1` of `torch.cat@1.T`


@dataclass(frozen=True)
class OwnAmongAll:
    """``call`` takes row n of this rank and sample n of all ranks for partners."""

    call: RankCall
    gather: RankCall
    certain: bool  # where the rows come from is known


def own_among_all(run: Run) -> Iterator[OwnAmongAll]:
    """Cross entropies whose labels say 0, 1, 2, … on every rank, and diagonals."""
    gathers = [call for call in run.calls if call.name in _INTO | _GIVING]
    for call in run.calls if gathers else ():
        logits = _compared(call) if call.grad and call.everywhere else None
        sides = _product(logits) if logits is not None else None
        if logits is None or sides is None:
            continue
        known = {thing.key: thing for thing in _whole(logits)}
        rows, columns = ([*_things(side, known)] for side in sides)
        gather = next((one for one in gathers if _is_of_all(run, one, columns)), None)
        if gather is not None and rows and all(_is_own(one, gathers) for one in rows):
            yield OwnAmongAll(call, gather, all(one.kind != "parameter" for one in rows))


def _compared(call: RankCall) -> RankValue | None:
    """The logits of a cross entropy with such labels, or that of which the diagonal is taken."""
    if reduction(call) is not None or _is_criterion(call):
        labels = call.arg(1, "target")
        return call.arg(0, "input") if labels is not None and _counts_up(labels) else None
    if call.method in ("diag", "diagonal") and not call.kwargs:
        given = (*((call.receiver,) if call.receiver is not None else ()), *call.args)
        return given[0] if len(given) == 1 else None
    return None


def _is_criterion(call: RankCall) -> bool:
    """``self.loss(…)`` of an object whose constructor, which was not read, makes a criterion."""
    owners = call.receiver.things if call.receiver is not None and call.target is None else ()
    names = [one for t in owners if t.cls is not None for one in makers(t.cls, call.method)]
    return bool(names) and all(one[0].endswith("CrossEntropyLoss") for one in names if one)


def _counts_up(value: RankValue) -> bool:
    """``torch.arange(len(rows))``, the same on all ranks."""
    thing = _kept(value)
    made = thing.call if thing is not None else None
    if made is None or made.name != "torch.arange" or value.by_rank:
        return False
    return len(made.args) == 1 or (len(made.args) == 2 and made.args[0].constant == 0)


def _kept(value: RankValue | None) -> RankThing | None:
    """The thing whose rows a value has, in their order."""
    while value is not None and len(value.things) == 1:
        thing = value.things[0]
        if not text(value.atoms[0]).startswith(thing.key):
            return None
        if thing.kind == "attribute" and thing.name.rpartition(".")[2] in _KEEPING:
            held = thing.receiver
            value = RankValue((Symbol(held.key),) * 2, (held,)) if held is not None else None
            continue
        made = thing.call
        if made is None or made.method not in _KEEPING:
            return thing
        value = made.receiver if made.receiver is not None else made.arg(0, "input")
    return None


def _product(value: RankValue) -> tuple[Any, Any] | None:
    """The two sides of ``scale * a @ b.T``, ``torch.matmul(a, b.t()) / tau``."""
    known = {thing.key: thing for thing in _whole(value)}
    atom = value.atoms[0]
    while isinstance(atom, Symbol):
        if atom.parts[:1] == ("MatMult",):
            return atom.parts[1], atom.parts[2]
        if atom.parts[:1] in (("Div",), ("Mult",), ("Sub",), ("Add",)):
            sides = [_product(RankValue((a, a), (), value.made_from)) for a in atom.parts[1:]]
            found = [side for side in sides if side is not None]
            return found[0] if len(found) == 1 else None
        thing = known.get(atom.key)
        made = thing.call if thing is not None else None
        if made is None:
            return None
        given = (*((made.receiver,) if made.receiver is not None else ()), *made.args)
        if made.method in _PRODUCTS and len(given) == 2:
            return given[0].atoms[0], given[1].atoms[0]
        if made.method not in _KEEPING or not given:
            return None
        value = given[0]
        known |= {one.key: one for one in _whole(value)}
        atom = value.atoms[0]
    return None


def _whole(value: RankValue) -> Iterator[RankThing]:
    """What a value was made from, and what this was made from."""
    for thing in value.sources():
        yield thing
        if thing.call is not None:
            yield from (one for given in thing.call.inputs for one in given.sources())


def _things(atom: Any, known: dict[str, RankThing]) -> Iterator[RankThing]:
    """The things that an atom names."""
    if isinstance(atom, Symbol):
        named = _NAMED.match(atom.key.lstrip("*"))
        if named is not None and named[0] in known:
            yield known[named[0]]
        for part in atom.parts[1:]:
            yield from _things(part, known)


def _is_of_all(run: Run, gather: RankCall, columns: list[RankThing]) -> bool:
    """Whether the columns are what a gather gave, rank by rank."""
    for one in columns:
        thing = _kept(RankValue((Symbol(one.key),) * 2, (one,)))
        joined = thing.call if thing is not None else None
        if joined is not None and joined.name in _JOINS and joined.args:
            if _is_list_of(run, gather, joined.args[0], joined):
                return True
        elif thing is not None and gather.method in ("all_gather_tensor", "gather"):
            if thing.call is gather:
                return True
        elif gather.method == "all_gather_into_tensor" and thing is not None:
            into = gather.arg(0, "output_tensor")
            if into is not None and into.things == (thing,):
                return True
    return False


def _is_list_of(run: Run, gather: RankCall, parts: RankValue, joined: RankCall) -> bool:
    """Whether a list has the parts of all ranks as they were gathered."""
    if gather.name in _GIVING:
        return len(parts.things) == 1 and parts.things[0].call is gather
    applied = parts.things[0].call if len(parts.things) == 1 else None
    if applied is not None and applied.target is not None and applied in gather.stack[-1:]:
        return _hands_back(applied.target.node, gather)
    into = gather.arg(0, "tensor_list")
    if into is None or text(into.atoms[0]) != text(parts.atoms[0]) or gather.order > joined.order:
        return False
    return gather.stack == joined.stack and not _reordered(run, gather, joined, text(into.atoms[0]))


def _hands_back(function: ast.AST, gather: RankCall) -> bool:
    """``return tuple(parts)`` of an autograd function that gathers into ``parts``."""
    given = gather.node_of(0, "tensor_list")
    for node in ast.walk(function):
        if isinstance(node, ast.Return) and isinstance(given, ast.Name):
            held = node.value
            if isinstance(held, ast.Call) and held.args:
                held = held.args[0]
            return isinstance(held, ast.Name) and held.id == given.id
    return False


def _reordered(run: Run, gather: RankCall, joined: RankCall, key: str) -> bool:
    """Whether parts change places after a gather: this rank's own is put back where it was."""
    later = [
        store
        for store in run.stores
        if store.element
        and gather.order < store.order < joined.order
        and text(store.base.atoms[0]) == key
    ]
    calls = run.methods(*_REORDERS)
    moved = any(c.receiver is not None and text(c.receiver.atoms[0]) == key for c in calls)
    return moved or len(later) > 1 or any(_is_constant(store.node) for store in later)


def _is_constant(node: ast.AST) -> bool:
    written = ast.walk(node)
    parts = [one for one in written if isinstance(one, ast.Subscript) and _is_set(one)]
    return not parts or any(isinstance(one.slice, ast.Constant) for one in parts)


def _is_set(node: ast.Subscript) -> bool:
    return isinstance(node.ctx, ast.Store)


def _is_own(thing: RankThing, gathers: list[RankCall]) -> bool:
    """Whether what the rows were made from has nothing of other ranks in it."""
    made = thing.call
    if made is None or thing.kind == "instance":
        return thing.kind in ("parameter", "attribute", "instance")
    if not made.name.startswith(("torch.", ".")) and made.target is None:
        return False
    before = [thing, *(made.result.sources() if made.result is not None else ())]
    return not any(_is_mixed(one, gathers) for one in before)


def _is_mixed(thing: RankThing, gathers: list[RankCall]) -> bool:
    """Whether a thing is filled by a gather, is what one gives, or is made from either."""
    calls = {one for gather in gathers for one in (gather, *gather.stack)}
    filled = tuple(
        text(gather.args[0].atoms[0]) for gather in gathers if gather.name in _INTO and gather.args
    )
    if thing.key.startswith(filled) or thing.call in calls:
        return True
    given = thing.call.inputs if thing.call is not None else ()
    return any(text(one.atoms[0]).startswith(filled) for one in given)
