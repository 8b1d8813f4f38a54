"""Whether ranks part where they seem to: what is known there, and whether others tell them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ddpify.ranks.model import ALL, RankGuard
from ddpify.ranks.origins import Symbol
from ddpify.ranks.trace import Branch, End, Inline, Item, Repeat, Split, ends, events, flat
from ddpify.ranks.values import SHARDED, TENSOR, text


def _shared(atoms: tuple[Any, Any]) -> frozenset[str]:
    """What lets both ranks in: ``sharded`` in ``if sharded or is_main``."""
    held = [_alternatives(atom) for atom in atoms if isinstance(atom, Symbol)]
    return frozenset.intersection(*held) if held else frozenset()


def _alternatives(atom: Symbol) -> frozenset[str]:
    one_of = atom.parts[1:] if atom.parts[:1] == ("Or",) else (atom,)
    return frozenset(text(one) for one in one_of)


def _named(test: Any) -> set[str]:
    """An attribute's key, and its name alone: that of one of several possible objects."""
    return {text(test), text(test).partition("@")[0]}


def premises(item: Split) -> tuple[dict[str, bool], tuple[list[Item], list[Item]]]:
    """What is so where the ranks part, and the arms there: not where they were made to agree, and
    the first one without what lets both ranks in."""
    known = {} if item.agreed is None else {item.agreed[0]: not item.agreed[1]}
    first = known | dict.fromkeys(_shared(item.guard.test.atoms), False)
    return known, (where(item.arms[0], first), where(item.arms[1], known))


def where(items: Sequence[Item], known: Mapping[str, bool]) -> list[Item]:
    """The items where these conditions are so."""
    if not known:
        return list(items)
    found: list[Item] = []
    for item in items:
        if isinstance(item, (Inline, Repeat)):
            item = replace(item, body=where(item.body, known))
        elif isinstance(item, (Branch, Split)):
            tests = item.tests if isinstance(item, Branch) else ()
            answers = {_answer(test, known) for test in tests}
            if answers in ({True}, {False}):
                found += where(item.arms[0 if True in answers else 1], known)
                if found and isinstance(found[-1], End):
                    break
                continue
            one, other = (where(arm, known) for arm in item.arms)
            item = replace(item, arms=(one, other))
        found.append(item)
    return found


def _answer(test: Any, known: Mapping[str, bool]) -> bool | None:
    """Whether a condition holds, where others are known: of both, of either, of the opposite."""
    for key in _named(test) & known.keys():
        return known[key]
    opposite = text(test).removeprefix("not ")
    if opposite in known:
        return not known[opposite]
    kind, *parts = (test.parts if isinstance(test, Symbol) else ()) or ("",)
    if kind not in ("And", "Or"):
        return None
    held, decides = [_answer(part, known) for part in parts], kind == "Or"
    return decides if decides in held else None if None in held else not decides


def asks_the_kind(guards: Sequence[RankGuard], guard: RankGuard) -> bool:
    """Whether a helper, called under a condition on the rank, communicates if it is given a tensor,
    or a sharded model: here it may be given a number, or another model."""
    inner = guards[guards.index(guard) + 1 :]
    tests = (part for one in inner if one.holds for part in _all_of(one.test.atoms[0]))
    return any(text(test).startswith((TENSOR, SHARDED)) for test in tests)


def _all_of(atom: Any) -> Iterator[Any]:
    """The operands of ``a and b``."""
    parts = atom.parts if isinstance(atom, Symbol) else ()
    if parts[:1] == ("And",):
        for part in parts[1:]:
            yield from _all_of(part)
    else:
        yield atom


def telling(items: list[Item]) -> int:
    """The rank that tells others when to stop, who go round until then: how often is not known.

    ``while True: broadcast(order); if order == STOP: break``, of workers whose rank 0 sends orders.
    """
    loops = [one for one in flat(items) if isinstance(one, Repeat) and one.ranks != ALL]
    for loop in loops:
        told = next(events(loop.body), None)
        source = told.call.arg(1, "src") if told is not None and told.call is not None else None
        other = (ALL & ~loop.ranks).bit_length() - 1
        if told is None or source is None or source.constant != other:
            continue
        met = any(told.op == e.op and e.ranks & (1 << other) for e in events(items, other))
        if met and _is_left_as_told(loop):
            return 1 << other
    return 0


def _is_left_as_told(loop: Repeat) -> bool:
    """Whether what a rank was sent decides how often it goes round."""
    left = [guard.test for end in ends(loop.body) for guard in end.exit.guards[-1:]]
    left += [] if loop.asked is None else [loop.asked]
    return any(one.synced for test in left for one in test.sources())
