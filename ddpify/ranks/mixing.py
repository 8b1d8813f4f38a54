"""Numbers of all ranks and numbers of this one: what is computed from both is neither.

What is made from a value goes where the value goes, so that is where it is kept of whose samples a
number is: a ``Mark`` is a thing among its ``deps``. ``correct / total`` where only ``total`` was
reduced is *half*; where only ``correct`` was and ``total`` counts this rank's batches, it is
*N-fold*, until it is divided by the number of ranks.
"""

from __future__ import annotations

import ast
from collections.abc import Set
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

from ddpify.names import MEANS, SUMS
from ddpify.ranks import words
from ddpify.ranks.collective import Collective
from ddpify.ranks.frames import RankFrame
from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.modules import FunctionDefinition
from ddpify.ranks.origins import ITEM, SYNCED, Symbol, of_one_rank
from ddpify.ranks.padded import longest
from ddpify.ranks.protocol import RankMachine
from ddpify.ranks.sizes import Sized, is_world_size
from ddpify.ranks.values import key_of, text
from ddpify.site import Site


class Of(Enum):
    """Whose samples a number is of."""

    ALL = "a sum over the ranks"
    MEAN = "a mean over the ranks"
    COUNT = "how many this rank has, which is the same on each"
    HALF = "made from one of all ranks and one of this rank's samples"
    OVER = "a sum over the ranks, divided by what is of this rank's samples"
    FOLD = "a sum over the ranks, divided by the count of one"
    TWICE = "a mean over the ranks, divided by their number again"
    PER = "a sum over the ranks, divided by a number of which nothing is known"
    PART = "divided or multiplied in place, by something that is not a constant"


_OPERATIONS: Final = {
    f"{words.DIST}ReduceOp.SUM": Of.ALL,
    f"{words.DIST}ReduceOp.AVG": Of.MEAN,
}
# Calls and methods that say ``a / b`` and ``a * b``; with an underscore, in place.
_DIVIDING: Final = frozenset("div divide true_divide floor_divide".split())
_TIMES: Final = frozenset("mul multiply".split())
_REDUCED: Final = frozenset({Of.ALL, Of.MEAN})
# Reductions of other libraries: where they say how, and what they do where nothing is said.
_HOROVOD: Final = "horovod.torch.allreduce"
OTHERS: Final = {
    _HOROVOD: (4, "op", Of.MEAN),
    "accelerate.Accelerator.reduce": (1, "reduction", Of.ALL),
    "accelerate.utils.reduce": (1, "reduction", Of.MEAN),
    "lightning.fabric.Fabric.all_reduce": (2, "reduce_op", Of.MEAN),
    "lightning.pytorch.Trainer.strategy.reduce": (2, "reduce_op", Of.MEAN),
    "mpi4py.MPI.COMM_WORLD.allreduce": (1, "op", Of.ALL),
}
_SAID: Final = {"sum": Of.ALL, "mean": Of.MEAN, "avg": Of.MEAN, "average": Of.MEAN}
_SCALES: Final = frozenset("scale prescale_factor postscale_factor process_set group".split())
_OF_FRAMEWORKS: Final = (".world_size", ".num_processes")
_TURNS: Final = frozenset("T mT t transpose permute swapaxes swapdims movedim".split())
# What gives the number that it is given.
_SAME: Final = frozenset("item float cpu detach clone double to cuda numpy tolist round".split())


@dataclass(eq=False, repr=False)
class Mark(RankThing):
    """What is known of a number, among the things it was computed from."""

    of: Of = Of.ALL
    key: str = ""  # of the number itself, and what it is
    tensors: tuple[RankThing, ...] = ()
    parts: tuple[RankValue, ...] = ()  # what was summed; or divided, and by what

    __hash__ = RankThing.__hash__

    def is_of(self, value: RankValue) -> bool:
        """Whether a value is the number itself or an entry, not what was computed from it."""
        atom, made = value.atoms[0], value.things[0].call if len(value.things) == 1 else None
        entries = atom.parts[1:2] if isinstance(atom, Symbol) and atom.parts[:1] == (ITEM,) else ()
        if self.key and self.key in map(text, (atom, *entries)):
            return True
        if made is None or made.method not in _SAME or value.things[0] in self.tensors:
            return any(thing in self.tensors for thing in value.things)
        given = made.receiver or next(iter(made.args), None)
        return given is not None and self.is_of(given)


def marks(value: RankValue) -> dict[Of, Mark]:
    """What is known of a number and of what it was computed from."""
    return {one.of: one for one in value.made_from if isinstance(one, Mark)}


def helped(m: RankMachine, value: RankValue, helper: str, call: RankCall | None) -> RankValue:
    """``value`` as one of our helpers gives it."""
    of = Of.ALL if helper in SUMS else Of.MEAN if helper in MEANS else None
    return value if of is None or call is None else _reduced(m, value, of, call.site)


def reduced(m: RankMachine, value: RankValue, shared: Collective) -> RankValue:
    """``value`` after a collective has filled it in; a maximum is none of these."""
    op = shared.given("op")
    names = op.names() if op is not None else {f"{words.DIST}ReduceOp.SUM"}
    of = _OPERATIONS.get("".join(names)) if shared.call.method == "all_reduce" else None
    return value if of is None else _reduced(m, value, of, shared.call.site)


def of_library(m: RankMachine, value: RankValue, one: RankCall) -> RankValue:
    """What a call of another library gives that has put the ranks' numbers together."""
    of = of_other(one)
    return value if of is None or one.star else _reduced(m, value, of, one.site)


def of_other(one: RankCall) -> Of | None:
    """Whether another library's call gives a sum or a mean over the ranks."""
    if one.name not in OTHERS or not _SCALES.isdisjoint(one.kwargs):
        return None
    position, name, default = OTHERS[one.name]
    op = one.arg(position, name)
    if one.name == _HOROVOD:
        average = one.arg(1, "average")
        if average is not None:
            return Of.MEAN if average.constant is True and op is None else None
    if op is None:
        return default
    said = op.constant if isinstance(op.constant, str) else "".join(op.names())
    return _SAID.get(said.rpartition(".")[2].lower())


def counted(value: RankValue, given: RankValue, site: Site) -> RankValue:
    """``len(batch)``, ``batch.shape``: as many on each rank, of this rank's samples; not of what
    was turned, whose rows are no samples."""
    own = of_one_rank(given.origins) and not _is_turned(given)
    return _with(value, Of.COUNT, site) if own else value


def _is_turned(value: RankValue) -> bool:
    """``q.T``, ``q.t()``, ``q.transpose(0, 1)``."""
    named = (*(thing.name for thing in value.things), text(value.atoms[0]))
    return any(name.rpartition(".")[2].partition("@")[0] in _TURNS for name in named)


def axis(value: RankValue, shape: RankValue, index: RankValue) -> RankValue:
    """``batch.shape[1]``: how long a sample is, which is no count of samples."""
    named = (*(thing.name for thing in shape.things), text(shape.atoms[0]))
    of_shape = any(name.rpartition(".")[2] == "shape" for name in named)
    if not of_shape or index.constant in (None, 0):
        return value
    return _without(replace(value, origins=value.origins.union(longest(shape))), {Of.COUNT})


def combined(
    m: RankMachine, f: RankFrame, node: ast.BinOp, value: RankValue, a: RankValue, b: RankValue
) -> RankValue:
    """``a / b`` and ``a * b`` with what is known of them."""
    divides = isinstance(node.op, (ast.Div, ast.FloorDiv))
    if not m.marks or not (divides or isinstance(node.op, ast.Mult)):
        return value
    return _combined(value, a, b, divides, f.module.site(node))


def called(m: RankMachine, one: RankCall, value: RankValue) -> RankValue:
    """The same said as ``a.div(b)``, ``torch.mul(a, b)``."""
    method = one.method.rstrip("_")
    operands = (*((one.receiver,) if one.receiver is not None else ()), *one.args)
    if not m.marks or method not in _DIVIDING | _TIMES or len(operands) != 2:
        return value
    return _combined(value, *operands, method in _DIVIDING, one.site)


def _combined(value: RankValue, a: RankValue, b: RankValue, divides: bool, site: Site) -> RankValue:
    if divides and _is_twice(a, b, site):
        return _with(value, Of.TWICE, site)
    if _is_size(b) or (_is_size(a) and not divides):
        certain = _is_ranks(b) or _is_ranks(a)
        made = _by_size(value, divides, site, certain)
        return made if certain or Of.ALL not in marks(a) else _with(made, Of.PER, site, (a, b))
    top, below = marks(a), marks(b)
    if not divides:
        return value
    if _is_whole(a, top) and _is_own(b, below):
        return _with(_with(value, Of.HALF, site, (a, b)), Of.OVER, site)
    if _is_own(a, top) and _is_whole(b, below):
        return _with(value, Of.HALF, site, (a, b))
    own = Of.COUNT in below and _REDUCED.isdisjoint(below)
    if own and _is_whole(a, top) and not any(map(_is_scaled, top[Of.ALL].parts)):
        return _with(value, Of.FOLD, site, (a, b))
    return value


def attribute(
    m: RankMachine, f: RankFrame, thing: RankThing, name: str, value: RankValue, node: ast.AST
) -> RankValue:
    """``meter.avg``, marked where ``meter.sum`` is of all ranks by now, but not what it gave."""
    if not m.marks or thing.cls is None or not _is_own(value, marks(value)):
        return value
    others = [key for key, held in thing.attrs.items() if key != name]
    wholes = [key for key in others if _is_whole(thing.attrs[key], marks(thing.attrs[key]))]
    if not any(_computes(thing, name, key) for key in wholes):
        return value
    return _with(value, Of.HALF, f.module.site(node))


def _computes(thing: RankThing, name: str, key: str) -> bool:
    """Whether a method says ``self.avg = self.sum / …``."""
    assert thing.cls is not None
    nodes = (node for c in thing.cls.mro() for one in c.methods.values() for node in _sets(one))
    return any(
        any(_is_self(target, name) for target in node.targets)
        and any(_is_self(part, key) for part in ast.walk(node.value))
        for node in nodes
    )


def _sets(method: FunctionDefinition) -> list[ast.Assign]:
    return [node for node in ast.walk(method.node) if isinstance(node, ast.Assign)]


def _is_self(node: ast.AST, name: str) -> bool:
    base = node.value if isinstance(node, ast.Attribute) and node.attr == name else None
    return isinstance(base, ast.Name) and base.id == "self"


def _reduced(m: RankMachine, value: RankValue, of: Of, site: Site) -> RankValue:
    """With this mark alone, elements included: all ranks agree now."""
    m.marks = True
    items = value.items
    if items is not None:
        items = tuple(_reduced(m, item, of, site) for item in items)
    return _with(replace(_without(value, set(Of)), items=items), of, site, (value,))


def _is_scaled(value: RankValue) -> bool:
    """Whether a number was divided by that of the ranks before it was summed over them."""
    return any(map(_is_scaled, value.items or ())) or _holds_size(value.atoms[0])


def _holds_size(atom: Any) -> bool:
    parts = atom.parts[1:] if isinstance(atom, Symbol) else ()
    return isinstance(atom, Sized) or any(map(_holds_size, parts))


def _by_size(value: RankValue, divides: bool, site: Site, certain: bool) -> RankValue:
    """Divided by the number of ranks a sum is a mean; a count times it is that of all."""
    mean = _with(value, Of.MEAN, site) if certain and Of.ALL in marks(value) else value
    gone = {Of.ALL, Of.FOLD, Of.PER}
    return _without(mean, gone if divides else gone | {Of.COUNT, Of.MEAN, Of.TWICE})


def _is_twice(mean: RankValue, by: RankValue, site: Site) -> bool:
    """Whether a mean over the ranks, not what was made from it, is divided by their number."""
    known = marks(mean)
    mark = known.get(Of.MEAN)
    if mark is None or mark.site == site or Of.ALL in known or mean.origins:
        return False
    return mark.is_of(mean) and _is_number_of_ranks(by)


def _is_number_of_ranks(value: RankValue) -> bool:
    frameworks = [thing for thing in value.things if thing.name.endswith(_OF_FRAMEWORKS)]
    return is_world_size(value.constant) or bool(
        len(frameworks) == 1 and frameworks[0].name.startswith(("lightning.", "accelerate."))
    )


def scaled(value: RankValue, site: Site) -> RankValue:
    """A tensor after ``loss /= len(batch)``, which leaves it the one that a call has made."""
    return _with(value, Of.PART, site)


def _with(value: RankValue, of: Of, site: Site, parts: tuple[RankValue, ...] = ()) -> RankValue:
    key = key_of(value) if text(value.atoms[0]) != SYNCED else ""
    mark = Mark("mark", of.value, site, of=of, key=key, tensors=value.things, parts=parts)
    return replace(value, deps=value.deps | {mark})


def _without(value: RankValue, of: Set[Of]) -> RankValue:
    kept = (one for one in value.deps if not isinstance(one, Mark) or one.of not in of)
    return replace(value, deps=frozenset(kept))


def _is_size(value: RankValue) -> bool:
    """Whether it is, or may be, the number of ranks or made from it: ``args.gpus``."""
    unknown = not value.known and not value.origins and not marks(value)
    return unknown or _is_ranks(value)


def _is_ranks(value: RankValue) -> bool:
    return isinstance(value.atoms[0], Sized) or _is_number_of_ranks(value)


def _is_whole(value: RankValue, known: dict[Of, Mark]) -> bool:
    return not value.origins and Of.ALL in known


def _is_own(value: RankValue, known: dict[Of, Mark]) -> bool:
    """Whether it comes from this rank's samples alone."""
    return of_one_rank(value.origins) and _REDUCED.isdisjoint(known)
