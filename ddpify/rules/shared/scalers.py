"""Gradient scalers of torch, each of which looks for infs in what its own rank has."""

from __future__ import annotations

from typing import Final

from ddpify.ranks.model import RankThing, RankValue

SCALERS: Final = frozenset(
    f"torch.{place}.GradScaler"
    for device in ("", "cuda.", "cpu.")
    for place in (f"{device}amp", f"{device}amp.grad_scaler")
)
_OF_ANY_DEVICE: Final = ("torch.amp.GradScaler", "torch.amp.grad_scaler.GradScaler")


def is_on(value: RankValue | None) -> bool | None:
    """Whether these are scalers, and switched on; None where it is not known, or not everywhere."""
    found = {_is_on(thing) for thing in value.things} if value is not None else set()
    return found.pop() if len(found) == 1 else None


def _is_on(scaler: RankThing) -> bool | None:
    """Of what is no such scaler it is not on, unless it is not known what it is."""
    if scaler.name not in SCALERS:
        own = scaler.cls is not None and not SCALERS.isdisjoint(scaler.cls.external_bases())
        unknown = scaler.kind in ("parameter", "attribute") or scaler.name[:1] in (".", "?")
        return None if own or unknown else False
    given = None
    if scaler.call is not None:
        given = scaler.call.arg(5 if scaler.name in _OF_ANY_DEVICE else 4, "enabled")
    if given is None:
        return None if scaler.call is None or scaler.call.star else True
    return any(given.atoms) if given.known else None
