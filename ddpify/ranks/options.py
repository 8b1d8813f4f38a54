"""The values that an option may have: argparse refuses what is not among its choices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.origins import Symbol
from ddpify.ranks.values import text

PARSE: Final = ("parse_args", "parse_known_args")
OPEN: Final = "$open"  # an attribute of parsed options into which anything may have been written
_LISTS: Final = ("nargs", "action")  # several values, or none of the command line
_FLAGS: Final = ("store_true", "store_false")
_BOOLEAN: Final = "argparse.BooleanOptionalAction"
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
    key = f"{parsed.key}.{name}"
    if not _is_said(calls, parsed, name):
        return Symbol(key)
    added = _additions(calls, name)
    values = [_values(one) for one in added]
    if not added or None in values:
        return NeverNone(key) if added and all(map(_is_given, added)) else Symbol(key)
    return OneOf(key, values=tuple(value for one in values if one is not None for value in one))


def or_default(calls: Sequence[RankCall], asked: RankCall, value: RankValue) -> RankValue:
    """``getattr(args, name, default)`` of an option that only some commands have, or some ways."""
    one = value.atoms[0]
    if len(asked.args) < 3 or not isinstance(one, (OneOf, NeverNone)):
        return value
    added = _additions(calls, str(asked.args[1].constant))
    if any(not c.conditions and not _is_of_command(c) for c in added):
        return value
    plain = Symbol(one.key)
    return replace(value, atoms=(plain, plain))


def _is_of_command(added: RankCall) -> bool:
    """``commands.add_parser("train").add_argument(…)``."""
    things = added.receiver.sources() if added.receiver is not None else ()
    return any(t.call is not None and t.call.method == "add_parser" for t in things)


def is_said(calls: Sequence[RankCall], value: RankValue) -> bool:
    """Whether a value is an option as the command line says it, or its default."""
    for thing in value.things:
        parsed, name = thing.receiver, thing.name.rpartition(".")[2]
        if parsed is None or text(value.atoms[0]) != f"{parsed.key}.{name}":
            return False
        if not _is_said(calls, parsed, name):
            return False
    return bool(value.things)


def _is_said(calls: Sequence[RankCall], parsed: RankThing, name: str) -> bool:
    if not parsed.name.endswith(PARSE) or OPEN in parsed.attrs or _has_before(parsed):
        return False
    return not any(_may_set(one, name) for one in calls)


def _additions(calls: Sequence[RankCall], name: str) -> list[RankCall]:
    return [one for one in calls if one.method == "add_argument" and destination(one) == name]


def _has_before(parsed: RankThing) -> bool:
    """``parse_args(rest, namespace=args)``: what this has is no option's default."""
    return parsed.call is not None and parsed.call.arg(1, "namespace") is not None


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
    action = added.kwargs.get("action")
    if added.star or not plain or "nargs" in added.kwargs:
        return False
    if action is not None and action.constant in _FLAGS:
        return default is None or (default.known and default.constant is not None)
    if action is not None and action.names() != {_BOOLEAN}:
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
