"""The values that an option may have: argparse refuses what is not among its choices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ddpify.ranks.model import RankCall, RankThing
from ddpify.ranks.origins import Symbol

PARSE: Final = ("parse_args", "parse_known_args")
_LISTS: Final = ("nargs", "action")  # several values, or none of the command line
_PLAIN: Final = ("builtins.int", "builtins.float", "builtins.str")  # types that give no None


@dataclass(frozen=True)
class OneOf(Symbol):
    """An option that is one of these values."""

    values: tuple[Any, ...] = field(default=(), compare=False, repr=False)
    __hash__ = Symbol.__hash__


@dataclass(frozen=True)
class NeverNone(Symbol):
    """An option that is never None."""

    __hash__ = Symbol.__hash__


def is_given(value: Any) -> bool:
    """Whether it is an option that is never None."""
    return isinstance(value, NeverNone) or (isinstance(value, OneOf) and None not in value.values)


def option(calls: Sequence[RankCall], parsed: RankThing, name: str) -> Symbol:
    """What ``args.name`` is, by the calls so far: of an option that has choices one of them, or its
    default, which is not asked for; one that has a default, or has to be said, is not None."""
    key = f"{parsed.name}@{id(parsed)}.{name}"
    if not parsed.name.endswith(PARSE) or any(_may_set(one, name) for one in calls):
        return Symbol(key)
    added = [c for c in calls if c.method == "add_argument" and destination(c) == name]
    values = [_values(one) for one in added]
    if not added or None in values:
        return NeverNone(key) if added and all(map(_is_given, added)) else Symbol(key)
    return OneOf(key, values=tuple(value for one in values if one is not None for value in one))


def _may_set(call: RankCall, name: str) -> bool:
    """``parser.set_defaults(name=…)``, which no choice restricts."""
    return call.method == "set_defaults" and (call.star or name in call.kwargs)


def _values(added: RankCall) -> list[Any] | None:
    """The choices of an option, and its default; None if they are not known."""
    choices, default = added.kwargs.get("choices"), added.kwargs.get("default")
    items = choices.items if choices is not None else None
    if not items or added.star or any(word in added.kwargs for word in _LISTS):
        return None
    held = [*items, *([default] if default is not None else [])]
    known = all(one.known and one.atoms[0] == one.atoms[1] for one in held)
    return [one.atoms[0] for one in held] + [None] * (default is None) if known else None


def _is_given(added: RankCall) -> bool:
    """Whether an option has a value, whatever the command line says."""
    kind, default = added.kwargs.get("type"), added.kwargs.get("default")
    plain = kind is None or (bool(kind.things) and all(t.name in _PLAIN for t in kind.things))
    if added.star or not plain or any(word in added.kwargs for word in _LISTS):
        return False
    required = added.kwargs.get("required")
    said = required is not None and required.constant is True
    return said or (default is not None and default.known and default.constant is not None)


def flags(call: RankCall) -> tuple[str, ...]:
    """`--local_rank` and its other spellings."""
    return tuple(v.constant for v in call.args if isinstance(v.constant, str))


def destination(call: RankCall) -> str:
    """The attribute that an option is kept in."""
    given = call.kwargs.get("dest")
    if given is not None and isinstance(given.constant, str):
        return given.constant
    long = [flag for flag in flags(call) if flag.startswith("--")] or list(flags(call))
    return long[0].lstrip("-").replace("-", "_") if long else ""
