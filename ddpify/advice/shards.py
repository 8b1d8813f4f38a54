"""What a rank keeps of parameters that are shared out, and what it has whole for a while.

``fully_shard`` cuts each parameter along its first dimension and pads the pieces to the largest, in
memory and in messages: 5 rows over 4 ranks are 2 on each. docs/plan.md has the sources.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from ddpify.advice.model import Measured, Sharding, Weight

_BF16 = 2  # bytes of a number


@dataclass(frozen=True)
class Held:
    """Bytes of one rank; ``gathered`` weights and ``reduced`` gradients are whole for a time."""

    parameters: int
    gradients: int
    state: int
    gathered: int | None = 0
    reduced: int | None = 0


@dataclass(frozen=True)
class Units:
    """Bytes of the largest block and of the rest, which is gathered while blocks compute."""

    block: int
    rest: int

    def at_once(self, count: int) -> int:
        """Of the rest and ``count`` blocks, or of the rest twice where that is more."""
        return self.rest + max(count * self.block, self.rest)


def degree(sharding: Sharding, ranks: int) -> int:
    """Over how many of ``ranks`` is sharded."""
    return min(ranks, sharding.hybrid) if sharding.hybrid else ranks


def held(measured: Measured, sharding: Sharding, ranks: int) -> Held:
    """Of one rank of ``ranks``. Where parameters are not known one by one: of equal shares."""
    ranks = degree(sharding, ranks)
    if ranks == 1:
        return Held(measured.parameters, measured.gradients, measured.state)
    if not measured.weights:
        sums = measured.parameters, measured.gradients, measured.state
        parameters, gradients, state = (-(-size // ranks) for size in sums)
        return Held(parameters, gradients, state, None, None)
    loose = _loose(measured)
    return Held(
        loose.parameters + _shards(measured, ranks, lambda w: w.size),
        loose.gradients + _shards(measured, ranks, lambda w: w.gradient),
        loose.state + _shards(measured, ranks, lambda w: w.state),
        *_whole(measured, sharding),
    )


def padded(measured: Measured, ranks: int, part: Callable[[Weight], int]) -> int:
    """Bytes of all ranks' pieces: what is gathered, or reduced, in one pass."""
    return ranks * _shards(measured, ranks, part)


def compute_size(weight: Weight, sharding: Sharding) -> int:
    """Bytes of a parameter where it is computed with."""
    return weight.size // weight.element * _BF16 if sharding.bf16 else weight.size


def trained_size(weight: Weight) -> int:
    """Bytes of the gradient that is reduced."""
    return weight.size if weight.trained else 0


def by_unit(measured: Measured, sharding: Sharding) -> dict[tuple[int, str], tuple[Weight, ...]]:
    """The parameters of each unit, by model and path; "" is what is in no block."""
    found: dict[tuple[int, str], list[Weight]] = {}
    for weight in measured.weights:
        found.setdefault((weight.model, _unit(weight, sharding)), []).append(weight)
    return {key: tuple(held) for key, held in found.items()}


def _unit(weight: Weight, sharding: Sharding) -> str:
    parts = weight.name.split(".")
    if sharding.wrap:
        wrapped = [at for at, kind in enumerate(weight.kinds) if at and kind in sharding.wrap]
        return ".".join(parts[: wrapped[-1]]) if wrapped else ""
    for at, kind in enumerate(weight.kinds):
        for model, path in sharding.blocks:
            end = at + path.count(".") + 1
            if kind == model and ".".join(parts[at:end]) == path and len(parts) > end + 1:
                return ".".join(parts[: end + 1])
    return ""


def units(
    measured: Measured, sharding: Sharding, part: Callable[[Weight], int] = lambda w: w.size
) -> Units:
    sizes: Counter[tuple[int, str]] = Counter()
    for key, weights in by_unit(measured, sharding).items():
        sizes[key] += sum(map(part, weights))
    blocks = [size for (_, path), size in sizes.items() if path]
    return Units(max(blocks, default=0), sum(sizes.values()) - sum(blocks))


def _whole(measured: Measured, sharding: Sharding) -> tuple[int, int]:
    """Weights of the rest, one block that computes, one that is gathered, and a buffer of one.

    Gradients of the rest and of one block, and the buffer that one is reduced from; all that are
    trained where they are accumulated, because shards are made of what is reduced only.
    """
    gathered = units(measured, sharding, lambda w: compute_size(w, sharding)).at_once(3)
    trained = units(measured, sharding, trained_size)
    if sharding.accumulates:
        every = sum(map(trained_size, measured.weights))
        return gathered, every + max(trained.block, trained.rest)
    return gathered, trained.at_once(2)


def _shards(measured: Measured, ranks: int, part: Callable[[Weight], int]) -> int:
    return sum(_shard(part(w), w.rows, ranks) for w in measured.weights)


def _shard(size: int, rows: int, ranks: int) -> int:
    """The largest piece, which every rank has memory for."""
    return -(-rows // ranks) * (size // rows) if rows else 0


def _loose(measured: Measured) -> Held:
    """What belongs to no parameter of a module: it is not shared out."""
    known = measured.weights
    return Held(
        max(0, measured.parameters - sum(w.size for w in known)),
        max(0, measured.gradients - sum(w.gradient for w in known)),
        max(0, measured.state - sum(w.state for w in known)),
    )
