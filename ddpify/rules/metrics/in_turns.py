"""Results of samples that a sampler dealt in turns, put together rank by rank: not in their order.

``torch.cat(parts)`` is 0, 2, 4, …, 1, 3, 5, …; ``dataset.names`` are 0, 1, 2, ….
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from ddpify.ranks import words
from ddpify.ranks.collective import collective
from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.origins import SLICE, Symbol
from ddpify.ranks.passes import loaders_in
from ddpify.ranks.run import Run
from ddpify.ranks.values import text
from ddpify.rules.shared.feeds import dataset_of, dealt_by

_GATHERS: Final = tuple(
    f"{words.DIST}{one}"
    for one in "all_gather gather all_gather_object gather_object all_gather_into_tensor".split()
)
_JOINS: Final = frozenset("cat concat concatenate vstack sum from_iterable".split())
_COLUMNS: Final = "torch.utils.data.TensorDataset"
_PART: Final = r"(?:\.\w+)*(?:\[(?:\d+|:)\])*"
_SAME: Final = frozenset("tolist numpy cpu list detach float squeeze flatten int".split())
# What leaves an entry, or a row, for each sample; and what compares one by one.
_BY_ROW: Final = frozenset("argmax softmax log_softmax sigmoid round long bool".split())
_COMPARES: Final = frozenset({"eq", "ne"})


def out_of_order(run: Run) -> Iterator[tuple[RankCall, RankCall]]:
    """(what puts the parts together, what pairs them with a list in the order of the samples)."""
    joined = {made.key: (call, loader) for made, call, loader in _joined(run)}
    done: set[str] = set()
    for call, keys, is_in_order in _pairs(run) if joined else ():
        found = next((key for key in keys if key in joined), "")
        if found and found not in done and any(is_in_order(k, joined[found][1]) for k in keys):
            done.add(found)
            yield joined[found][0], call


def _pairs(run: Run) -> Iterator[tuple[RankCall, list[str], Callable[[str, RankThing], bool]]]:
    """What takes one of each list after the other: ``zip``, a score of sklearn's, or ``a == b``,
    which may also be one number for all samples."""
    for call in run.calls:
        if call.name == "builtins.zip" or call.name.startswith("sklearn.metrics."):
            yield call, [_key(value) for value in call.given], _is_in_order
        for atom in (value.atoms[0] for value in call.inputs):
            if isinstance(atom, Symbol) and atom.parts[:1] in (("Eq",), ("NotEq",)):
                yield call, [text(_whole(part)) for part in atom.parts[1:]], _is_column
        if call.method in _COMPARES and call.receiver is not None and len(call.args) == 1:
            yield call, [_key(value) for value in call.inputs], _is_column


def _whole(atom: Any) -> Any:
    """``guesses`` of ``guesses[:5]``; None of another slice, ``guesses[5:]`` or ``guesses[::2]``,
    which may be of one rank's samples, in their order."""
    if not isinstance(atom, Symbol) or not atom.key.endswith("[:]"):
        return atom
    known = atom.parts[:1] == (SLICE,) and atom.parts[2] in (None, 0) and not any(atom.parts[4:])
    return _whole(atom.parts[1]) if known else None


def _joined(run: Run) -> Iterator[tuple[RankThing, RankCall, RankThing]]:
    """What is made of the ranks' parts, one after the other, and the loader they are from."""
    parts: dict[object, RankThing] = {}
    for call in run.named(*_GATHERS):
        shared = collective(call)
        sent = ("obj", "tensor", "input_tensor")
        given = next((v for n in sent if shared and (v := shared.given(n)) is not None), None)
        names = ("gather_list", "object_gather_list", "tensor_list", "object_list", "output_tensor")
        into = next((v for n in names if shared and (v := shared.given(n)) is not None), None)
        loaders = loaders_in(given)
        if into is None or not loaders or not all(map(_in_turns, loaders)):
            continue
        if call.method.endswith("_into_tensor"):
            yield from ((one, call, loaders[0]) for one in into.things[:1])
        else:
            parts[into.atoms[0]] = loaders[0]
    for call in run.calls if parts else ():
        made = call.result.things if call.result is not None else ()
        loader = parts.get(call.args[0].atoms[0]) if call.args else None
        if loader is not None and call.method in _JOINS and made and not _beside(call):
            yield made[0], call, loader


def _beside(call: RankCall) -> bool:
    """``cat(parts, dim=1)``: in turns."""
    along = (*call.args[1:2], *call.kwargs.values())
    return call.method != "sum" and any(one.constant != 0 for one in along)


def _in_turns(loader: RankThing) -> bool:
    samplers = dealt_by(loader)
    return bool(samplers) and all(one.name == words.SAMPLER for one in samplers)


def _root(value: RankValue) -> RankThing | None:
    """What a value is, as a list or a part of it from the start."""
    thing = value.things[0] if len(value.things) == 1 else None
    made = thing.call if thing is not None else None
    if made is not None and made.method in _SAME | _BY_ROW:
        inner = made.receiver or (made.args[0] if made.args else None)
        return _root(inner) if inner is not None else thing
    return thing


def _key(value: RankValue) -> str:
    root = _root(value)
    whole = _whole(value.atoms[0])
    if root is not None and root.kind == "result" and whole is not None:
        return root.key
    return text(value.atoms[0] if whole is None else whole)


def _is_in_order(key: str, loader: RankThing) -> bool:
    """Whether a list is the loader's data set, what that was made of, or a part of it:
    ``dataset.names``, and not what may be put into the order of the ranks."""
    data = dataset_of(loader)
    if data is None:
        return False
    kept = (text(value.atoms[0]) for thing in data.things for value in thing.attrs.values())
    held = (*(one.key for one in data.sources()), *kept)
    return any(re.fullmatch(re.escape(one) + _PART, key) for one in held)


def _is_column(key: str, loader: RankThing) -> bool:
    """Whether it has an entry for each sample: what a TensorDataset is made of."""
    data = dataset_of(loader)
    whole = data is not None and all(one.name == _COLUMNS for one in data.things)
    other = re.search(r"\.\w+$|\[:\]", key) is not None  # the columns, or a part of one
    return whole and not other and _is_in_order(key, loader)
