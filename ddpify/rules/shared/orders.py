"""In which order a loop goes through what has none that all processes share."""

from __future__ import annotations

from typing import Any, Final

from ddpify.ranks.model import RankThing, RankValue
from ddpify.ranks.origins import Symbol
from ddpify.ranks.run import Run
from ddpify.ranks.values import Hashed, Many
from ddpify.site import Site

_SETS: Final = ("builtins.set", "builtins.frozenset")
_COMBINING: Final = frozenset({"Sub", "BitAnd", "BitOr", "BitXor"})
# What these give are texts, or objects, whose hashes each process has for itself.
_SALTED: Final = frozenset(
    """named_parameters parameters named_modules modules named_buffers buffers named_children
    children state_dict split listdir glob iterdir""".split()
)


# What gives as many, in the same order.
_KEEPING: Final = frozenset(
    "list tuple items values keys tensor as_tensor stack cat array asarray float to cuda".split()
)


def is_salted(value: RankValue) -> bool:
    """Whether it is a set of texts or objects, or a list in the order of one."""
    held = any(map(_is_set, value.atoms))
    return held and (any(map(_names, value.sources())) or any(map(_of_texts, value.atoms)))


def _is_set(atom: Any) -> bool:
    if isinstance(atom, Many):
        return _is_set(atom.over)
    if isinstance(atom, Hashed):
        return True
    if not isinstance(atom, Symbol):
        return False
    name, *operands = atom.parts or ("",)
    combined = name in _COMBINING and any(map(_is_set, operands))
    return combined or atom.key.startswith(tuple(f"{one}@" for one in _SETS))


def _of_texts(atom: Any) -> bool:
    """Whether constants in quotes are among the elements, as its key spells them."""
    if isinstance(atom, Many):
        return _of_texts(atom.over)
    if isinstance(atom, Hashed):
        return atom.key.startswith(("['", '["'))
    return isinstance(atom, Symbol) and any(map(_of_texts, atom.parts[1:]))


def _names(thing: RankThing) -> bool:
    return thing.name.rpartition(".")[2] in _SALTED


def ordered_by(run: Run, value: RankValue, depth: int = 6) -> Site | None:
    """Where the dict got an entry under a name of this rank's samples, in whose order a value is:
    ``torch.tensor([table[name] for name in list(table)])``."""
    found = next((s for base, s in run.keyed if base.atoms[0] == value.atoms[0]), None)
    if found is not None or not depth:
        return found
    atom, things = value.atoms[0], value.things
    if isinstance(atom, Many) and isinstance(atom.over, Symbol):
        found = next((s for base, s in run.keyed if base.atoms[0] == atom.over), None)
        things = tuple(t for t in value.sources() if atom.over.key == f"{t.name}@{id(t)}")
    for made in (thing.call for thing in things if found is None and thing.call is not None):
        given = made.receiver if made.receiver is not None else (*made.args, None)[0]
        if given is not None and made.method in _KEEPING:
            found = found or ordered_by(run, given, depth - 1)
    return found
