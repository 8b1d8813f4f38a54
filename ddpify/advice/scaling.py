"""One model on 1 to 1,024 ranks: what a rank holds, and sends in a step, under each strategy.

Bytes that are sent are those of the algorithms that send least; docs/plan.md has the sources.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from ddpify.advice.model import Cell, Load, Measured, Scale, Sent, Sharding
from ddpify.advice.shards import compute_size, degree, held, padded, trained_size, whole_formulas

_Kept = tuple[int | None, int | None, int | None]
_UNKNOWN: _Kept = (None, None, None)
RANKS = (1, 2, 4, 8, 64, 1024)


def scales(
    measured: Measured | None, sharding: Sharding, ranks: Sequence[int] = RANKS
) -> tuple[Scale, ...]:
    """One for each number of ranks; without ``measured`` they have formulas only."""
    return tuple(Scale(n, _ddp(measured, n), _fsdp(measured, sharding, n)) for n in ranks)


def _ddp(measured: Measured | None, ranks: int) -> Load:
    """Everything on each rank, and buckets of the gradients that are averaged."""
    m, kept, trained = measured, _UNKNOWN, None
    if m is not None:
        kept, trained = (m.parameters, m.gradients, m.state), m.trainable
    sent = Sent("all-reduced", _part(2 * _others(ranks), "T", trained))
    return _load(kept, "", Cell("T", trained) if ranks > 1 else Cell(), (sent,))


def _fsdp(measured: Measured | None, sharding: Sharding, ranks: int) -> Load:
    over, kept, whole = degree(sharding, ranks), _UNKNOWN, None
    if measured is not None:
        found = held(measured, sharding, ranks)
        kept = (found.parameters, found.gradients, found.state)
        if found.gathered is not None and found.reduced is not None:
            whole = found.gathered + found.reduced
    formula = " + ".join(whole_formulas(sharding))
    return _load(
        kept,
        f"/{over}" if over > 1 else "",
        Cell(formula, whole) if over > 1 else Cell(),
        tuple(_messages(measured, sharding, ranks)),
    )


def _load(kept: _Kept, share: str, whole: Cell, sent: tuple[Sent, ...]) -> Load:
    cells = [Cell(f"{one}{share}", size) for one, size in zip("PGS", kept, strict=True)]
    return Load(cells[0], cells[1], cells[2], whole, sent)


def _messages(measured: Measured | None, sharding: Sharding, ranks: int) -> Iterator[Sent]:
    """Gathered for each forward and again for its backward; gradients are reduced once a step."""
    over = degree(sharding, ranks)
    weights = gradients = None
    if measured is not None and measured.weights:
        weights = padded(measured, over, lambda w: compute_size(w, sharding))
        gradients = padded(measured, over, trained_size)
    passes = measured.passes if measured is not None and sharding.accumulates else 1
    letter = "k P" if sharding.accumulates and measured is None else "P"
    half = Fraction(1, 2 if sharding.bf16 else 1)
    yield Sent("gathered", _part(2 * passes * _others(over), letter, weights, half))
    yield Sent("reduced", _part(_others(over), "T", gradients))
    if sharding.hybrid:
        share = None if gradients is None else gradients // over
        yield Sent("all-reduced", _part(2 * _others(ranks // over), "T", share, Fraction(1, over)))


def _others(ranks: int) -> Fraction:
    """The part of a tensor that a rank does not have by itself."""
    return Fraction(ranks - 1, ranks)


def _part(times: Fraction, letter: str, size: int | None, of: Fraction = Fraction(1)) -> Cell:
    """``size`` so many times, which is ``of`` of what the letter stands for."""
    if not times:
        return Cell()
    shown = times * of
    formula = letter if shown == 1 else f"{float(shown):.4g} {letter}"
    return Cell(formula, None if size is None else round(times * size))
