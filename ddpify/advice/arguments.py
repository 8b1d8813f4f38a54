"""What the command line decides: the options a program declares, and what they are by default."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from ddpify.facts.events import Call
from ddpify.facts.model import Facts
from ddpify.facts.values import Kind, Value
from ddpify.source import Site

DECLARES = (".add_argument", ".add_option")
PARSES = (".parse_args", ".parse_known_args")
UNKNOWN: Final = object()  # a default that is not followed


@dataclass(frozen=True)
class Option:
    """One ``add_argument``: its spellings, its name on the namespace, its default.

    ``is_int``: what is given for it is read by ``int``.
    """

    spellings: tuple[str, ...]
    name: str
    default: object
    site: Site
    is_int: bool = False

    @property
    def number(self) -> float | None:
        """The default as a number, also where it is written as text; None if it is none."""
        try:
            return float(self.default)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            return None

    @property
    def whole(self) -> int | None:
        """The default, where it is a whole number."""
        number = self.number
        return int(number) if number is not None and number == int(number) else None

    @property
    def how(self) -> str:
        """In words, with its place."""
        shown = max(self.spellings, key=len, default=self.name)
        given = "no default" if self.default is None else f"default {self.default}"
        given = "default not followed" if self.default is UNKNOWN else given
        return f"{shown} ({given}, {self.site})"


def options(facts: Facts) -> tuple[Option, ...]:
    """Every option, in the order of the program."""
    later = facts.named(".set_defaults")
    return tuple(_set_later(later, option) for option in _declared(facts))


def argument_default(facts: Facts, value: Value) -> Option | None:
    """The option that ``value`` is, unchanged; None where it is not one, or more than one."""
    names = {t.name for t in value.of(Kind.ARGUMENT)}
    if len(value.things) != 1 or len(names) != 1:
        return None
    name = names.pop()
    found = {o.spellings: o for o in options(facts) if o.name == name}
    return next(iter(found.values())) if len(found) == 1 else None


def _declared(facts: Facts) -> Iterator[Option]:
    for call in facts.calls:
        if call.name in DECLARES:
            option = _option(call)
            if option is not None:
                yield option


def _set_later(later: tuple[Call, ...], option: Option) -> Option:
    """``parser.set_defaults(…)``, which wins over the option's own default."""
    for call in later:
        given = call.kwargs.get(option.name)
        if given is not None:
            site = call.kwarg_sites.get(option.name, call.site)
            option = replace(option, default=given.const if given.known else UNKNOWN, site=site)
    return option


def _option(call: Call) -> Option | None:
    spellings = tuple(v.const for v in call.args if v.known and isinstance(v.const, str))
    dest = call.kwargs.get("dest")
    if dest is not None and not dest.known:
        return None
    name = str(dest.const) if dest is not None else _name(spellings)
    default = call.kwargs.get("default")
    given = default.const if default is not None and default.known else UNKNOWN
    given = None if default is None else given
    kind = call.kwargs.get("type")
    is_int = kind is not None and [one.name for one in kind.things] == ["builtins.int"]
    return Option(spellings, name, given, call.site, is_int) if name else None


def _name(spellings: tuple[str, ...]) -> str:
    """As argparse makes it: of the first long spelling, or else of the first."""
    long = [s for s in spellings if s.startswith("--")]
    first = next(iter(long or spellings), "")
    return first.lstrip("-").replace("-", "_")
