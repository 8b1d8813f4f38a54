"""The global random streams of torch, numpy and random: told apart, kept and put back."""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ddpify.verify.observer.signature import digest


def digests() -> dict[str, str]:
    """Of the state of each stream there is; "cuda" is the current device's."""
    found = {"torch": digest(torch.get_rng_state()), "random": _short(repr(random.getstate()))}
    if numpy := _numpy_random():
        kind, keys, *rest = numpy.get_state()
        found["numpy"] = _short(repr((kind, keys.tobytes(), rest)))
    if cuda_in_use():
        found["cuda"] = digest(torch.cuda.get_rng_state())
    return found


@contextmanager
def kept() -> Iterator[None]:
    """Whatever is drawn inside, the streams go on as if nothing had been."""
    numpy = _numpy_random()
    states = torch.get_rng_state(), random.getstate(), numpy and numpy.get_state()
    devices = torch.cuda.get_rng_state_all() if cuda_in_use() else []
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        random.setstate(states[1])
        if numpy:
            numpy.set_state(states[2])
        if devices:
            torch.cuda.set_rng_state_all(devices)


def begin(rank: int) -> None:
    """What a script that sets no seed starts from: known, and another one on each rank."""
    torch.manual_seed(rank)
    random.seed(rank)
    if numpy := _numpy_random():
        numpy.seed(rank)


def seed(key: object) -> None:
    """Start the host's streams anew at a place that ``key`` alone decides."""
    number = int(_short(repr(key))[:8], 16)
    torch.default_generator.manual_seed(number)
    random.seed(number)
    if numpy := _numpy_random():
        numpy.seed(number)


def cuda_in_use() -> bool:
    return torch.cuda.is_available() and bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


def _numpy_random() -> Any:
    """None without numpy; asking for the attribute loads it, where numpy does that late."""
    return getattr(sys.modules.get("numpy"), "random", None)


def _short(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
