"""Why a number is each rank's own, and not only what stands beside it in the same settings."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final

from ddpify.ranks.model import RankThing, RankValue
from ddpify.ranks.origins import CLOCK, ITEM, RANDOM, Origin, Symbol
from ddpify.ranks.values import spread
from ddpify.site import Site

# What makes numbers of numbers (`.item()` of what was computed); whatever else gives an object may
# give one with many entries.
_NUMBERS: Final = (".", "torch.", "numpy.", "random.", "math.", "statistics.", "time.")
_BUILTIN: Final = frozenset(
    f"builtins.{name}"
    for name in "int float round abs min max sum len range sorted list tuple enumerate zip".split()
)
_ASKING: Final = frozenset("get pop setdefault getattr".split())


def own_reasons(value: RankValue, kinds: Collection[str]) -> Iterator[Origin]:
    """Why a number is each rank's own. Of ``opt["root"]`` nothing is known where ``opt`` also holds
    a time or a seed that was drawn; entries that are known are read for themselves."""
    if any(map(_is_named, value.atoms)):
        return
    beside = {site for thing in value.sources() for site in _held(thing)}
    for origin in value.all_origins:
        if origin.kind in kinds and not origin.under and origin.site not in beside:
            yield origin


def _is_named(atom: Any) -> bool:
    """Whether an atom is what stands under a name somewhere, or is computed from such alone."""
    parts = atom.parts if isinstance(atom, Symbol) else ()
    if parts[:1] == (ITEM,):
        return isinstance(parts[2], str) or _is_named(parts[1])
    operands = [part for part in parts[1:] if isinstance(part, Symbol)]
    return bool(operands) and all(map(_is_named, operands))


def _held(thing: RankThing) -> Iterator[Site]:
    """Where what an object holds was drawn, or the time taken, of which it may give another entry:
    all but a number."""
    made = thing.call if thing.kind == "result" else None
    if made is None or made.result is None or thing.name in _BUILTIN:
        return
    asked = made.method in _ASKING
    if asked or not thing.name.startswith(_NUMBERS):
        yield from (o.site for o in spread(made.result) if asked or o.kind in (RANDOM, CLOCK))
