"""Tensors in flight: those that an asynchronous call sends or fills, and what is done with them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import Final

from ddpify.ranks import words
from ddpify.ranks.casts import Cast
from ddpify.ranks.collective import collective
from ddpify.ranks.events import Touch
from ddpify.ranks.frames import RankFrame
from ddpify.ranks.model import ALL, RankCall, RankThing, RankValue
from ddpify.ranks.origins import SLICE, Symbol
from ddpify.ranks.other_libraries import MPI
from ddpify.ranks.protocol import RankMachine
from ddpify.ranks.values import text

SENDS: Final = frozenset({f"{words.DIST}isend", "Isend"})
# mpi4py's collectives that return at once: what they send, and what they fill.
_BEGUN: Final = {
    **dict.fromkeys("Iallreduce Ireduce Iallgather Igather Iscatter Ialltoall".split(), 2),
    "Ibcast": 1,
}
BATCH: Final = f"{words.DIST}batch_isend_irecv"
# What collectives send beside what they fill.
_SENT: Final = {
    "all_gather": "tensor",
    "all_gather_into_tensor": "input_tensor",
    "reduce_scatter_tensor": "input",
    "all_to_all_single": "input",
    "gather": "tensor",
}
_OP: Final = f"{words.DIST}P2POp"
RECEIVES: Final = frozenset({f"{words.DIST}irecv", "Irecv"})
_PARTS: Final = frozenset({"parameters", "named_parameters"})
_ONE: Final = re.compile(r"element@[^\[\]~]*?(\[\d\])?(\.grad)?(\.data)?")
Models = frozenset[RankThing]
_SLICED, _FRONT = "[:]", "[0:"
_OF_RANK: Final = re.compile(r":[01](?=\[|$)")  # how the rank's own is told from the other's
# They give the same memory in another form; `contiguous`, `reshape` and `flatten` may copy it.
_VIEWS: Final = frozenset(
    "view detach narrow squeeze unsqueeze transpose permute t view_as expand unflatten".split()
)


def spelled(call: RankCall) -> str:
    """The name of a call; of a method that only mpi4py has, its last part alone."""
    return call.method if call.method in ("Isend", "Irecv") else call.name


def flown(call: RankCall) -> tuple[RankValue, ...]:
    """The tensors that an asynchronous call sends or fills, of a batch of messages those that it
    fills; none if the call waits."""
    return filled(call) or sent(call)


def sent(call: RankCall) -> tuple[RankValue, ...]:
    """Those that it only reads: nobody may change them before the wait."""
    if call.method in _BEGUN and call.name.startswith(MPI):
        return tuple(map(array_of, call.given[: _BEGUN[call.method] - 1]))
    if spelled(call) in SENDS:
        given = call.arg(0, "buf" if call.method == "Isend" else "tensor")
        return (array_of(given),) if given is not None else ()
    shared = collective(call)
    value = shared.given(_SENT.get(call.method, "")) if shared is not None else None
    return (value,) if value is not None and shared is not None and shared.waits is False else ()


def models_of(value: RankValue) -> Models:
    """The models one of whose parameters, or of whose gradients, a tensor is itself."""
    if value.things or not _ONE.fullmatch(key_of(value)):
        return frozenset()
    calls = (thing.call for thing in value.sources() if thing.call is not None)
    held = (call.receiver for call in calls if call.method in _PARTS)
    return frozenset(thing for one in held if one is not None for thing in one.things)


def array_of(value: RankValue) -> RankValue:
    """An array, without what MPI is told of it: ``[array, DOUBLE]``."""
    return value.items[0] if value.items else value


def filled(call: RankCall) -> tuple[RankValue, ...]:
    """Those in which something arrives: nobody may read them before the wait, either."""
    shared = collective(call)
    given = None
    if shared is not None:
        given = shared.given(shared.filled) if shared.waits is False else None
        listed = given is not None and call.method in ("all_gather", "all_to_all")
        if given is not None and listed and given.items:
            return (given, *given.items)
    elif call.method in _BEGUN and call.name.startswith(MPI):
        return tuple(map(array_of, call.given[_BEGUN[call.method] - 1 : _BEGUN[call.method]]))
    elif call.name == BATCH:
        return tuple(_received(call))
    elif spelled(call) in RECEIVES:
        given = call.arg(0, "buf" if call.method == "Irecv" else "tensor")
        given = array_of(given) if given is not None else None
    return (given,) if given is not None else ()


def _received(batch: RankCall) -> Iterator[RankValue]:
    for value in batch.given[:1]:
        for thing in value.sources():
            op = thing.call.arg(0, "op") if thing.name == _OP and thing.call is not None else None
            into = thing.call.arg(1, "tensor") if thing.call is not None else None
            if op is not None and into is not None and op.names() == {f"{words.DIST}irecv"}:
                yield into


def receiving(call: RankCall, value: RankValue) -> list[RankCall]:
    """The calls that say that something is received into a tensor: of a batch its messages."""
    if call.name != BATCH:
        return [call] if spelled(call) in RECEIVES else []
    ops = (thing.call for one in call.given[:1] for thing in one.sources() if thing.name == _OP)
    return [op for op in ops if op is not None and op.arg(1, "tensor") is value]


def key_of(value: RankValue, ranks: int = ALL) -> str:
    """Which memory a tensor lies in on these ranks, as far as that is known: the same for a view
    of it; empty if it may be one of several."""
    here = [thing for thing in value.things if value.ranks_of(thing) & ranks]
    if len(here) > 1:
        return ""
    thing = here[0] if here else None
    made = thing.call if thing is not None and thing.kind == "result" else None
    if made is not None and made.method in _VIEWS and made.receiver is not None:
        return key_of(made.receiver, ranks) + _turned(value, _named(thing), ranks)
    held = (value.atoms[rank] for rank in (0, 1) if ranks & (1 << rank))
    keys = (atom.key for atom in held if isinstance(atom, Symbol))  # None where no rank is
    key = _named(thing) if made is not None else _OF_RANK.sub("", next(keys, ""))
    key = _of_owner(thing) or key
    whole, bracket, part = key.partition("[")
    part = bracket + part if not part.endswith(_SLICED) else ""
    return whole + _turned(value, whole, ranks) + part + _ends(value, ranks)


def _ends(value: RankValue, ranks: int) -> str:
    """Which rows of a tensor a slice of it is: from the first one on, ``[0:n]``, between others, or
    some that are not known, ``[@...]``, which are the same where the slice is."""
    atom = value.atoms[ranks >> 1 & 1]
    if not isinstance(atom, Symbol) or not atom.key.endswith(_SLICED):
        return ""
    if atom.parts[:1] != (SLICE,) or atom.parts[4] or text(atom.parts[1]).endswith(_SLICED):
        return f"[@{id(atom)}]"
    start, end = atom.parts[2:4]
    return f"{_FRONT}{text(end)}]" if start in (None, 0) else f"[{text(start)}:{text(end)}]"


def _of_owner(thing: RankThing | None) -> str:
    """``self.net.weight.data``, told by the object that has the parameter, as the parameter is."""
    part = thing.receiver if thing is not None and thing.kind == "attribute" else None
    owner = part.receiver if part is not None and part.kind == "attribute" else None
    if thing is None or part is None or owner is None or not thing.name.endswith(".data"):
        return ""
    return f"{_named(owner)}.{part.name.rpartition('.')[2]}.data"


def _named(thing: RankThing | None) -> str:
    return f"{thing.name}@{id(thing)}" if thing is not None else ""


def _turned(value: RankValue, whole: str, ranks: int) -> str:
    """What a tensor was turned into, which may be a copy: ``x.float()``, ``x.contiguous()``."""
    turns = (one for one in value.made_from if isinstance(one, Cast) and one.ranks & ranks)
    calls = {one.call for one in turns if one.call is not None}
    mine = (c for c in calls if c.receiver and whole in map(_named, c.receiver.things))
    return "".join(f"~{order}" for order in sorted(call.order for call in mine))


def maker(value: RankValue, ranks: int) -> RankCall | None:
    """The call that made a tensor, or the one of which it is a part."""
    whole = re.split(r"[~\[]", key_of(value, ranks))[0]
    return next((thing.call for thing in value.sources() if _named(thing) == whole), None)


def overlap(one: str, other: str) -> bool:
    """Whether two keys are of the same memory, or one of a part of the other's."""
    if not one or not other:
        return False
    parts = ("[", ".data")
    front, begun = (key.partition(_FRONT) for key in (one, other))
    if front[1] and begun[1] and front[0] == begun[0]:
        return True  # both hold the first row
    return one == other or any(
        whole.startswith(part + mark)
        for whole, part in ((one, other), (other, one))
        for mark in parts
    )


def begin(m: RankMachine, call: RankCall) -> None:
    """Note what is in flight from now on."""
    keys = (key_of(value, m.live) for value in flown(call))
    m.flying.update(key for key in keys if key)
    m.flying.update(_named(thing) for value in flown(call) for thing in models_of(value))


def touch(
    m: RankMachine, f: RankFrame, value: RankValue, node: ast.AST, changes: bool = False
) -> None:
    """Note that the numbers of a tensor that is or was in flight are read, or changed."""
    if not m.flying:
        return
    key = key_of(value, m.live)
    if any(overlap(key, one) for one in m.flying):
        m.run.touches.append(Touch(m.tick(), key, node, f.module, m.live, m.here, changes))


def handles(m: RankMachine, given: Iterable[RankValue], own: RankThing | None) -> bool:
    """Whether a function is given what is or was in flight or holds it, or is a method of that."""
    if not m.flying:
        return False
    held = [*given]
    held += [one for value in held for thing in value.things for one in thing.attrs.values()]
    held += own.attrs.values() if own is not None else ()
    if any(overlap(key_of(value, m.live), one) for value in held for one in m.flying):
        return True
    holders = {_named(thing) for value in held for thing in value.things} | {_named(own)}
    return any(one.startswith(f"{name}.") for name in holders - {""} for one in m.flying)
