"""What a rank keeps of parameters that are shared out, and what it has whole for a while.

``fully_shard`` cuts each parameter along its first dimension and pads the pieces to the largest, in
memory and in messages: 5 rows over 4 ranks are 2 on each. docs/plan.md has the sources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ddpify.advice.model import Measured, Sharding, Unit, Weight

_BF16 = 2  # bytes of a number


@dataclass(frozen=True)
class Held:
    """Bytes of one rank; ``gathered`` weights and ``reduced`` gradients are whole for a time."""

    parameters: int
    gradients: int
    state: int
    gathered: int | None = 0
    reduced: int | None = 0


def whole_formulas(sharding: Sharding) -> tuple[str, str]:
    """Of weights and gradients that are whole for a time, as ``held`` counts them."""
    if not sharding.blocks and not sharding.wrap:
        return "2P", "2T"
    return "R+3U", "T+U" if sharding.accumulates else "R+2U"


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
        *_whole(measured, sharding, ranks),
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


def units(measured: Measured, sharding: Sharding) -> tuple[Unit, ...]:
    """What is gathered together, in the order of the model."""
    return tuple(
        Unit(
            *key,
            size=sum(w.size for w in some),
            gathered=sum(compute_size(w, sharding) for w in some),
            trained=sum(map(trained_size, some)),
        )
        for key, some in _grouped(measured, sharding).items()
    )


def _grouped(measured: Measured, sharding: Sharding) -> dict[tuple[int, str], list[Weight]]:
    found: dict[tuple[int, str], list[Weight]] = {}
    for weight in measured.weights:
        found.setdefault((weight.model, _unit(weight, sharding)), []).append(weight)
    return found


def largest(sizes: Iterable[tuple[str, int]]) -> tuple[int, int]:
    """Bytes of the largest block, and of all that is in none, of some units' paths and sizes."""
    known = list(sizes)
    rest = sum(size for path, size in known if not path)
    return max((size for path, size in known if path), default=0), rest


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


def _whole(measured: Measured, sharding: Sharding, ranks: int) -> tuple[int, int]:
    """Weights of the rest, of the block that computes, and buffers of it and of the next.

    Gradients of the rest and of one block, and the buffer that one is reduced from; all that are
    trained where they are accumulated, because shards are made of what is reduced only. Buffers
    hold the padding, too.
    """
    found = _grouped(measured, sharding)

    def sizes(part: Callable[[Weight], int]) -> tuple[int, int]:
        return largest((path, sum(map(part, some))) for (_, path), some in found.items())

    def gathered(weight: Weight) -> int:
        return compute_size(weight, sharding)

    block, rest = sizes(gathered)
    block_buffer, rest_buffer = sizes(lambda w: ranks * _shard(gathered(w), w.rows, ranks))
    weights = rest + max(block + 2 * block_buffer, rest_buffer)
    block, rest = sizes(trained_size)
    block_buffer, rest_buffer = sizes(lambda w: ranks * _shard(trained_size(w), w.rows, ranks))
    if sharding.accumulates:
        every = sum(map(trained_size, measured.weights))
        return weights, every + max(block_buffer, rest_buffer)
    return weights, rest + max(block + block_buffer, rest_buffer)


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
