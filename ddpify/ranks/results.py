"""What a call of a library gives, if nothing more is known of it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from ddpify.python.words import OWN_FILES
from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.origins import (
    CLOCK,
    DATA,
    IDENTITY,
    PART,
    PICKED,
    PIECE,
    RANK,
    STRIDE,
    Origin,
    Symbol,
    of_text,
)
from ddpify.ranks.values import Made, differs, of, spread

# What is computed from the rank by these says it, too.
_PLAIN: Final = (
    "os.path.",
    "pathlib.",
    "builtins.",
    "torch.tensor",
    "torch.full",
    "math.",
    "numpy.",
    "hashlib.",
    "operator.",
    "glob.",
)
# What is asked about a file of each rank is taken to be answered alike.
_FILES: Final = ("os.", "pathlib.", "builtins.open")
_PLAIN_METHODS: Final = frozenset(
    "encode format hexdigest join joinpath replace with_suffix with_name with_stem strip zfill"
    " startswith endswith"
    " Subset Generator manual_seed DistributedSampler DataLoader range".split()
)


_SIZES: Final = (PART, PICKED, PIECE, STRIDE)  # why two ranks may have another number of entries
_FIELD: Final = re.compile(r"\{[^{}]*\}")
_TEXTS: Final = OWN_FILES | frozenset(
    "os.path.join os.path.abspath os.path.realpath os.getcwd".split()
)
_WRITES: Final = frozenset({"strftime", "isoformat"})
_TAKING_APART: Final = frozenset(
    "parse_args parse_known_args parse_intermixed_args parse_args_into_dataclasses".split()
)
_IMPORTING: Final = frozenset({"importlib.import_module", "builtins.__import__"})
# What a file holds, which is not each process's own because it lies in a folder of its own; one of
# several that is picked at random holds something else.
_LOADS: Final = frozenset(
    "torch.load torch.jit.load numpy.load numpy.loadtxt pandas.read_csv safetensors.torch.load_file"
    " joblib.load builtins.open".split()
)
_FILLED: Final = frozenset("zeros_like ones_like empty_like".split())


def result(one: RankCall) -> RankValue:
    """What an unknown call gives: a new object, made from its arguments."""
    thing = RankThing("result", one.name, one.site, one)
    parts = [*one.args, *one.kwargs.values()]
    if one.receiver is not None:
        parts.append(one.receiver)
    value = of(thing, *parts)
    if one.method in _TAKING_APART or one.name in _IMPORTING:
        # which argument says what is not known; what a module holds is not what it is called
        value = replace(value, origins=frozenset(o for o in value.origins if o.kind in IDENTITY))
    if one.name in _LOADS:
        value = replace(value, origins=frozenset(o for o in value.origins if o.kind != CLOCK))
    if one.method in _FILLED:  # as large as another one, which is all they have of it
        sizes = frozenset(o for o in value.origins if o.kind in IDENTITY or o.what in _SIZES)
        value = replace(value, origins=sizes)
    if value.origins and not one.name.startswith(_PLAIN) and one.method not in _PLAIN_METHODS:
        # a device or a map_location made from the rank does not make what is loaded there differ
        own = spread(one.receiver) if one.receiver is not None else frozenset()
        kept = frozenset(o for o in value.origins if o.kind not in IDENTITY) | own
        value = replace(value, origins=kept)
    key, kind = f"{one.name}@{id(thing)}", Made if _makes_object(one) else Symbol
    if one.method[:1].isupper():
        return value
    if kind is Made:
        value = replace(value, origins=of_text(value.origins))
    if value.by_rank and any(map(told_apart, parts)) and not one.name.startswith(_FILES):
        return replace(value, atoms=(kind(f"{key}:0"), kind(f"{key}:1")))
    return replace(value, atoms=(kind(key), kind(key)))


def rooted(one: RankCall, root: RankValue | None) -> RankValue:
    """What a call gives on its root, and None elsewhere."""
    made = result(one)
    number = root.constant if root is not None else 0
    if number not in (0, 1):
        return made
    there = Made(f"{one.name}@{one.site}")
    atoms = (None, there) if number else (there, None)
    why = Origin(RANK, f"{one.method}() gives None on the other ranks", one.site)
    return replace(made, atoms=atoms, origins=made.origins | {why})


def told_apart(value: RankValue) -> bool:
    """Whether a value, or an element of it, is known to be another one on each rank."""
    return differs(value) or any(map(told_apart, value.items or ()))


def _makes_object(one: RankCall) -> bool:
    """Class names make objects, which are not None; so is a path, and a text with words in it."""
    if one.method == "format" and one.receiver is not None:
        form = one.receiver.constant
        return isinstance(form, str) and bool(_FIELD.sub("", form))
    return one.method[:1].isupper() or one.name in _TEXTS or one.method in _WRITES


def dealt(value: RankValue, one: RankCall) -> RankValue:
    """This rank's part of what is the same on all ranks, elements included."""
    items = None if value.items is None else tuple(dealt(item, one) for item in value.items)
    own = Origin(DATA, PART, one.site)
    return replace(value.clean(), items=items, origins=frozenset({own}))


def with_origin(value: RankValue, kind: str, what: str, one: RankCall) -> RankValue:
    worded = one.name in _TEXTS or one.method in _WRITES
    return replace(value, origins=value.origins | {Origin(kind, what, one.site, worded=worded)})
