"""Keys of a store that a rank waits for, and that no rank ever sets."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from ddpify.ranks import words
from ddpify.ranks.model import RankCall, RankValue
from ddpify.ranks.origins import TEXT, Symbol
from ddpify.ranks.run import Run
from ddpify.rules.shared.messages import NotKnown, Turns
from ddpify.rules.shared.overlooked import loops

_STORES: Final = frozenset(f"{words.DIST}{name}" for name in ("TCPStore", "FileStore"))
_SETTING: Final = frozenset("set add compare_set append".split())
_WAITING: Final = frozenset("wait get".split())
_JOINING: Final = f"{words.DIST}init_process_group"
_NUMBER: Final = re.compile(r"\d+")
_Key = tuple[str, frozenset[str]]  # how it reads, and the unknown numbers of rounds it hangs on


def unset_keys(run: Run) -> Iterator[tuple[RankCall, str, RankCall]]:
    """The calls that wait for a key which no rank sets, the key, and where others are set."""
    calls = [one for one in run.calls if _is_of_store(one)]
    setting = [one for one in calls if one.method in _SETTING]
    waiting = [one for one in calls if one.method in _WAITING and not one.swallows]
    if not setting or not waiting or not run.complete or _may_be_set_elsewhere(run, setting):
        return
    try:
        held = {key for one in setting for key in _keys(run, one)}
        for call in waiting:
            missing = (key for key in _keys(run, call, surely=True) if not _may_be(key, held))
            for key, _ in islice(missing, 1):
                yield call, key, setting[0]
    except NotKnown:
        return


def _may_be(key: _Key, held: set[_Key]) -> bool:
    """Whether a key is among some, or may be with other numbers of rounds than are taken here."""
    text, names = key
    form = _NUMBER.sub("#", text)
    alike = [(one, other) for one, other in held if _NUMBER.sub("#", one) == form]
    return any(one == text or other != names for one, other in alike)


def _is_of_store(call: RankCall) -> bool:
    things = call.receiver.things if call.receiver is not None else ()
    return bool(things) and all(one.name in _STORES for one in things)


def _may_be_set_elsewhere(run: Run, setting: list[RankCall]) -> bool:
    """Whether a key is set where the reader did not come to, or by whom the store is given to."""
    read = {one.node for one in setting}
    for module in run.modules.values():
        for node in module.nodes:
            name = node.func if isinstance(node, ast.Call) else None
            sets = isinstance(name, ast.Attribute) and name.attr in _SETTING
            if isinstance(node, ast.Call) and sets and len(node.args) > 1 and node not in read:
                return True
    given = (one for one in run.calls if one.target is None and one.name != _JOINING)
    return any(t.name in _STORES for one in given for value in one.given for t in value.things)


def _keys(run: Run, call: RankCall, surely: bool = False) -> Iterator[_Key]:
    """What a call names, on each rank that makes it, in each round of its loops; ``surely``: in
    which it is made, whatever is not known."""
    for rank in (0, 1):
        turns = Turns(run, call, rank, {}, loops(run, call))
        names: set[str] = set()
        for _, known in turns.rounds(names) if call.ranks & (1 << rank) else ():
            if surely and turns.conditions(known) != {}:
                continue
            for value in _named(call):
                yield _spelled(turns, value.atoms[rank], known), frozenset(names)


def _named(call: RankCall) -> tuple[RankValue, ...]:
    value = call.arg(0, "keys" if call.method == "wait" else "key")
    if value is None or (call.method == "wait" and value.items is None):
        raise NotKnown
    return value.items or (value,)


def _spelled(turns: Turns, atom: Any, known: dict[str, int | None]) -> str:
    """How a key reads: ``f"prep/{epoch + 1}"`` in the third round."""
    if isinstance(atom, str):
        return atom
    parts = atom.parts if isinstance(atom, Symbol) else ()
    if parts[:1] == (TEXT,) or (parts[:1] == ("Add",) and isinstance(parts[1], str)):
        return "".join(_spelled(turns, one, known) for one in parts[1:])
    number = turns.number(atom, known)
    if not isinstance(number, int):
        raise NotKnown
    return str(number)
