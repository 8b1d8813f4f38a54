"""What one rank has and another has not is used on both: the result of ``comm.reduce``, a name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from ddpify.ranks import words
from ddpify.ranks.events import Lacking
from ddpify.ranks.frames import RankFrame
from ddpify.ranks.model import RankGuard, RankThing, RankValue
from ddpify.ranks.modules import ClassDefinition
from ddpify.ranks.origins import Symbol
from ddpify.ranks.protocol import RankMachine
from ddpify.ranks.values import counts, key_of


def note_absent(m: RankMachine, f: RankFrame, value: RankValue, node: ast.AST) -> None:
    """Keep that a value is used where it has to be something, and is None on a rank that is here.

    Not where a condition that is not known leads here: it may be one on the rank.
    """
    one, other = value.atoms
    if (one is None) is (other is None) or not value.by_rank:
        return
    rank = 0 if one is None else 1
    if _comes_here(m, rank):
        m.run.absent.append(Lacking(m.tick(), value, rank, node, f.module, f.function))


def note_unset(m: RankMachine, f: RankFrame, value: RankValue, node: ast.Name) -> None:
    """Keep that a rank reads a name that only the other one has set: ``if rank == 0: x = 1``."""
    held = f.partial.get(node.id)
    if held is not None and held[0] is value and _comes_here(m, held[1]):
        where = (node, f.module, f.function)
        m.run.absent.append(Lacking(m.tick(), value, held[1], *where, held[2]))


def note_missing(
    m: RankMachine, f: RankFrame, base: RankValue, found: RankValue, node: ast.Subscript
) -> None:
    """Keep that a rank asks its dict for an entry that only the other one's was given."""
    if found.lacks is None or base.things or _may_be_filled(m, f, base, node.value):
        return
    rank, why = found.lacks
    if _comes_here(m, rank):
        m.run.absent.append(Lacking(m.tick(), found, rank, node, f.module, f.function, why))


def note_unset_attribute(
    m: RankMachine, f: RankFrame, thing: RankThing, held: RankValue, node: ast.expr
) -> None:
    """Keep that a rank reads an attribute that only the other one's object was given."""
    if held.lacks is None or not isinstance(node, ast.Attribute) or thing.cls is None:
        return
    known = thing.cls.external_bases() <= {"torch.nn.Module", "builtins.object"}
    rank, why = held.lacks
    if known and _comes_here(m, rank) and _is_read(m, thing.cls, node.attr):
        m.run.absent.append(Lacking(m.tick(), held, rank, node, f.module, f.function, why))


def _is_read(m: RankMachine, cls: ClassDefinition, name: str) -> bool:
    """Whether all methods that say an attribute were read, and none makes up what is not there."""
    own = [info for one in cls.mro() for info in one.methods.values()]
    made = any(info.name in ("__getattr__", "__getattribute__") for info in own)
    return not made and all(info in m.entered for info in own if name in info.text)


def _may_be_filled(m: RankMachine, f: RankFrame, base: RankValue, node: ast.expr) -> bool:
    """Whether a dict was in the hands of what is not read, which may have put something in."""
    if isinstance(node, ast.Attribute):
        classes = (thing.cls for thing in m.evaluate(f, node.value).things)
        if not all(cls is None or _is_read(m, cls, node.attr) for cls in classes):
            return True
    elif not isinstance(node, ast.Name):
        return True
    given = (call for call in m.run.calls if any(_is_same(one, base) for one in call.given))
    return any(
        call.target not in m.entered if call.target else not call.name.startswith(_READERS)
        for call in given
    )


def _is_same(one: RankValue, base: RankValue) -> bool:
    return one.keys is not None and key_of(one) == key_of(base)


_READERS = ("builtins.", "json.", "torch.", "yaml.", "pprint.", "copy.")


def _comes_here(m: RankMachine, rank: int) -> bool:
    """Whether a rank is here in some round, and nothing catches what it raises."""
    guards = (guard for guard in m.here.guards if not guard.starts_script and guard.is_open(rank))
    known = all(map(_comes_in_time, guards))
    return known and not m.here.swallows and bool(m.live & (1 << rank))


def _comes_in_time(guard: RankGuard) -> bool:
    """Whether a condition compares numbers of the round, that all ranks have in turn:
    ``step % 50 == 0``, ``norm > limit``; no flag, which may be another one on each rank."""
    test, sources = guard.test, tuple(guard.test.sources())
    if test.by_rank or not all(map(_is_of_library, sources)):
        return False
    numbers = {one.key for one in sources if one.call and any(map(_is_made, one.call.inputs))}
    return all(_is_of_round(one, numbers) for one in _operands(test.atoms[0]))


def _is_made(value: RankValue) -> bool:
    """Whether it is something, no constant: what torch makes of none is told of the machine."""
    return bool(value.things or value.made_from)


def _operands(atom: Any) -> Iterator[Any]:
    """What has to hold of a condition that is not known: each part of ``a and b``."""
    parts = atom.parts if isinstance(atom, Symbol) else ()
    if parts[:1] == ("And",):
        for part in parts[1:]:
            yield from _operands(part)
    else:
        yield atom


def _is_of_round(atom: Any, numbers: set[str]) -> bool:
    parts = atom.parts if isinstance(atom, Symbol) else ()
    compares = parts[:1] != () and parts[0] in _ORDERS
    return compares and any(_is_number(one, numbers) for one in parts[1:])


def _is_number(atom: Any, numbers: set[str]) -> bool:
    """Whether a number is computed from one that a loop goes through, or torch from tensors."""
    if not isinstance(atom, Symbol):
        return False
    own = atom.key.startswith("element@") or atom.key in numbers or counts(atom)
    return own or any(_is_number(one, numbers) for one in atom.parts)


def _is_of_library(thing: RankThing) -> bool:
    return thing.name.startswith(_LIBRARIES) and not thing.name.startswith(words.DIST)


_ORDERS = ("Eq", "NotEq", "Lt", "LtE", "Gt", "GtE")
_LIBRARIES = ("torch.", "argparse.", "builtins.", "math.", "numpy.")
