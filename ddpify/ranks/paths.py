"""What one rank enters, as tokens: operations, and the conditions and loops that hold them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from ddpify.ranks.origins import Symbol
from ddpify.ranks.trace import (
    ABORT,
    CUT,
    ENDS,
    UNREAD,
    Branch,
    End,
    Event,
    Inline,
    Item,
    Repeat,
    Split,
    Unread,
)

ROUNDS = "rounds "  # so begins the key of a loop of which the number of rounds is known
MAX_STEPS = (
    400_000  # of all paths of a run: where each of many conditions may end it, they multiply
)
MAX_TWICE = 200  # how long what follows two open paths may be to be put at the end of both
MAX_TRIED = 20_000  # of these, for one comparison case by case
MAX_CASES = 4  # conditions that are taken to hold, and not to hold, one within the other
_CALLED = re.compile(r"([\w.]+\.\w+(?:\(\))?)@\d+")  # the answer of a call that is not read
Token = Any  # an operation's name, (kind, …) for a nested one, or one of ENDS


class TooManyPaths(Exception):
    """What a rank enters of a program cannot be told in a reasonable time."""


class _Steps:
    """How much was put together since the reading of a run began to be compared."""

    taken = 0


def begin() -> None:
    """The paths of another run."""
    _Steps.taken = 0


@contextmanager
def trial() -> Iterator[None]:
    """What is tried in here may take a part of the time, and none of it is counted. Raises
    TooManyPaths."""
    taken, _Steps.taken = _Steps.taken, max(_Steps.taken, MAX_STEPS - MAX_TRIED)
    try:
        yield
    finally:
        _Steps.taken = taken


def alike(a: tuple[Token, ...], b: tuple[Token, ...]) -> bool:
    """Whether two ranks enter the same, whatever the conditions are that hold on both; after an
    abort nothing is compared, nor what of one rank alone was read."""
    if _alike(a, b):
        return True
    with suppress(TooManyPaths), trial():
        a, b = _same_answers(a), _same_answers(b)
        return _alike(a, b) or _in_each_case(a, b, MAX_CASES)
    return False


def _in_each_case(a: tuple[Token, ...], b: tuple[Token, ...], depth: int) -> bool:
    """Whether both are alike where a condition of one of them holds, and where it does not: ``if
    not d and rank: return`` leaves nothing to those that go on, if they meet in ``if d:``."""
    apart = next(((x, y) for x, y in zip(a, b, strict=False) if x != y), ())
    key = next((t[1] for t in apart if isinstance(t, tuple) and t[0] == "branch"), None)
    if key is None or not depth:
        return False
    for holds in (True, False):
        one, other = (_assuming(key, holds, tokens) for tokens in (a, b))
        if not (_alike(one, other) or _in_each_case(one, other, depth - 1)):
            return False
    return True


def _alike(a: tuple[Token, ...], b: tuple[Token, ...]) -> bool:
    for one, other in zip(a, b, strict=False):
        if ABORT in (one, other) or UNREAD in (one, other):
            return True
        if one != other and not _loops_alike(one, other):
            return False
    longer = a[len(b) :] or b[len(a) :]
    return not any(map(has_operation, longer)) or longer[0] == ABORT or UNREAD in longer[-1:]


def _loops_alike(one: Token, other: Token) -> bool:
    """Whether both are loops with the same rounds, one in each arm of a condition on the rank: how
    often they go round is said in two ways, and may be sent from one to the other."""
    loops = isinstance(one, tuple) and isinstance(other, tuple) and one[0] == other[0] == "loop"
    counted = loops and one[1].startswith(ROUNDS) and other[1].startswith(ROUNDS)
    return loops and one[2] == other[2] and not counted


def _same_answers(tokens: tuple[Token, ...]) -> tuple[Token, ...]:
    """The tokens where a function's answer that is not read, ``is_available()``, is taken to be the
    same whenever it is asked: each arm of a condition on the rank may ask for itself."""
    out: list[Token] = []
    for token in tokens:
        if not isinstance(token, tuple):
            out.append(token)
            continue
        kind, key, *parts = token
        same = [_same_answers(part) for part in parts]
        key = _CALLED.sub(r"\1", key)
        out += _branch(key, *same) if kind == "branch" else ((kind, key, *same),)
    return tuple(out)


def has_operation(token: Token) -> bool:
    """Whether a token holds a collective."""
    if isinstance(token, tuple):
        return any(has_operation(one) for part in token[2:] for one in part)
    return token not in ENDS


def view(items: list[Item], rank: int) -> tuple[Token, ...]:
    """What ``rank`` enters, in order; what follows an early exit is put where it belongs."""
    out: list[Token] = []
    for number, item in enumerate(items):
        if not item.ranks & (1 << rank):
            continue
        tokens = _tokens(item, rank)
        out += tokens
        if _ended(tokens):
            break
        if _may_end(tokens):
            return (*out[:-1], *_then(tokens[-1:], view(items[number + 1 :], rank)))
    return tuple(out)


def _tokens(item: Item, rank: int) -> tuple[Token, ...]:
    if isinstance(item, Event):
        return (item.op,)
    if isinstance(item, End):
        return (item.exit.kind,)
    if isinstance(item, Unread):
        return (UNREAD,)
    if isinstance(item, Inline):
        return tuple(_stripped(view(item.body, rank), (item.ends,)))
    if isinstance(item, Repeat):
        return _repeated(item, rank)
    return _fork(item, rank)


def _repeated(item: Repeat, rank: int) -> tuple[Token, ...]:
    """A loop's tokens, and those of its ``else`` where no ``break`` skips it."""
    body, after = one_round(item.body, rank), view(item.orelse, rank)
    if item.endless:
        body = tuple(_stripped(_begun(view(item.body, rank)), ("continue",)))
    if UNREAD in body[-1:]:
        return body
    if ABORT in after[-1:]:
        after = ()
    if any(has_operation(token) for token in body):
        skipped = "break" in _exits_of(body)
        after = _branch(f"{item.key} to its end", after, ()) if skipped else after
        return (("loop", item.key, body), *after)
    body = () if ABORT in body[-1:] else _branch(f"some {item.key}", body, ())
    return tuple(_stripped(_then(body, after), ("break",)))


def _begun(body: tuple[Token, ...]) -> tuple[Token, ...]:
    """A round of an endless loop without the ways that begin it anew before anything is entered:
    ``if not prompt: continue``."""
    first = body[0] if body else None
    if isinstance(first, tuple) and first[0] == "branch" and ("continue",) in first[2:]:
        return _begun((*(first[3] if first[2] == ("continue",) else first[2]), *body[1:]))
    return body


def one_round(items: list[Item], rank: int) -> tuple[Token, ...]:
    """What ``rank`` enters in a loop's body; ``continue`` ends here."""
    return tuple(_stripped(view(items, rank), ("continue",)))


def _fork(item: Branch | Split, rank: int) -> tuple[Token, ...]:
    """The tokens of a condition."""
    test = item.tests[rank] if isinstance(item, Branch) else Symbol("local")
    if not isinstance(test, Symbol):
        return view(item.arms[0 if test else 1], rank)
    one, other = view(item.arms[0], rank), view(item.arms[1], rank)
    if one == other:
        return one
    for arm, instead in ((one, other), (other, one)):
        if arm and arm[-1] in CUT:
            return instead
    if isinstance(item, Split):
        return (one or other) if _ended(one) == _ended(other) else (one, other)[_ended(one)]
    return _branch(test.key, one, other)


def _may_end(tokens: tuple[Token, ...]) -> bool:
    """Whether what follows is for some of its paths only."""
    last = tokens[-1] if tokens else ""
    if isinstance(last, tuple):
        return last[0] == "branch" and any(_may_end(arm) for arm in last[2:])
    return last in ENDS


def last_exits(items: list[Item], rank: int) -> frozenset[str]:
    """How the paths of ``rank`` through ``items`` may end, where they do not go on; in any way if
    there are too many."""
    begin()
    try:
        return _exits_of(view(items, rank))
    except TooManyPaths:
        return ENDS


def leavers(items: list[Item], ranks: int, kind: str) -> int:
    """Those of ``ranks`` that may have left in this way."""
    return sum(1 << r for r in (0, 1) if ranks & (1 << r) and kind in last_exits(items, r))


def _exits_of(tokens: tuple[Token, ...]) -> frozenset[str]:
    last = tokens[-1] if tokens else ""
    if isinstance(last, tuple) and last[0] == "branch":
        return _exits_of(last[2]) | _exits_of(last[3])
    return frozenset({last} & ENDS)


def _then(tokens: tuple[Token, ...], following: tuple[Token, ...]) -> tuple[Token, ...]:
    """``tokens``, and ``following`` where they do not end: several times if not too long."""
    if _ended(tokens):
        return tokens
    if not _may_end(tokens):
        return tokens + following
    _, key, one, other = tokens[-1]
    if not _ended(one) and not _ended(other) and _count(following, MAX_TWICE) > MAX_TWICE:
        return tokens + following
    one, other = _then(one, following), _then(other, following)
    for arm, instead in ((one, other), (other, one)):
        if arm and arm[-1] in CUT:
            return tokens[:-1] + instead
    return tokens[:-1] + _branch(key, one, other)


def _ended(tokens: tuple[Token, ...]) -> bool:
    return bool(tokens) and isinstance(tokens[-1], str) and tokens[-1] in ENDS


def _count(tokens: tuple[Token, ...], limit: int) -> int:
    """The number of tokens, nested ones included; it does not count far beyond ``limit``."""
    total = 0
    for token in tokens:
        total += 1
        if isinstance(token, tuple):
            total += sum(_count(part, limit - total) for part in token[2:])
        if total > limit:
            break
    return total


def _branch(key: str, one: tuple[Token, ...], other: tuple[Token, ...]) -> tuple[Token, ...]:
    """A condition that is the same on all ranks; in its arms it is known, so that ``if not d or
    rank == 0: … if d: …`` compares equal to what the other ranks do in the ``else``."""
    if key.startswith("not "):
        key, one, other = key[4:], other, one
    one, other = _assuming(key, True, one), _assuming(key, False, other)
    return one if one == other else (("branch", key, one, other),)


def _assuming(key: str, holds: bool, tokens: tuple[Token, ...]) -> tuple[Token, ...]:
    """The tokens that are left where a condition is known. Raises TooManyPaths."""
    _Steps.taken += 1 + len(tokens)
    if _Steps.taken > MAX_STEPS:
        raise TooManyPaths
    out: list[Token] = []
    for token in tokens:
        if isinstance(token, tuple) and token[0] == "loop":
            body = _assuming(key, holds, token[2])
            out += (("loop", token[1], body),) if body else ()
        elif not isinstance(token, tuple):
            out.append(token)
        elif token[1] == key:
            out += _assuming(key, holds, token[2 if holds else 3])
        else:
            one, other = (_assuming(key, holds, arm) for arm in token[2:])
            out += one if one == other else (("branch", token[1], one, other),)
    return tuple(out)


def _stripped(tokens: tuple[Token, ...], kinds: tuple[str, ...]) -> list[Token]:
    """The path without exits of these kinds, which end here; branches with equal arms join."""
    out: list[Token] = []
    for token in tokens:
        if isinstance(token, tuple) and token[0] == "branch":
            one, other = (tuple(_stripped(arm, kinds)) for arm in token[2:])
            if one == other:
                out += one
            else:
                out.append(("branch", token[1], one, other))
        elif token not in kinds:
            out.append(token)
    return out
