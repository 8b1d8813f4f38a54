"""The memory of each GPU before and after, term by term; docs/plan.md has the sources.

Everything is added up as if it were there at once. Gradients grow while activations go, so the
sums are upper bounds; the same on both sides, which is what they are compared for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from ddpify.advice.model import Cell, Fit, Measured, MemoryRow, Row, Sharding
from ddpify.advice.shards import Held, held, whole_formulas

_Part = Callable[[Measured], int]


def memory(
    row: Row, parallel: bool, measured: Measured | None, sharding: Sharding | None = None
) -> tuple[MemoryRow, ...]:
    """The table for one batch; without ``measured`` it has formulas only.

    ``b`` stands for the samples of one GPU: ``b1`` and ``b2`` before, ``b`` after. ``sharding``:
    each rank keeps a share of parameters, gradients and optimizer state, and has those of some
    units whole. None: all of them are whole.
    """
    return tuple(_Table(row, parallel, measured, sharding).rows())


def total(rows: tuple[MemoryRow, ...]) -> tuple[int, int | None, int] | None:
    """Bytes of the first GPU, the others and each GPU after; None where one is not known."""
    cells = [cell for row in rows for cell in (row.first, row.after)]
    if any(cell.formula and cell.size is None for cell in cells):
        return None
    others = [row.others for row in rows if row.others is not None]
    return (
        sum(row.first.size or 0 for row in rows),
        sum(cell.size or 0 for cell in others) if others else None,
        sum(row.after.size or 0 for row in rows),
    )


def fit(
    row: Row, parallel: bool, measured: Measured, sharding: Sharding | None = None
) -> Fit | None:
    """The largest batch that fits, if activations grow in proportion to the batch."""
    if not row.after:
        return None
    found = total(memory(row, parallel, measured, sharding))
    fixed = total(memory(replace(row, after=0), parallel, measured, sharding))
    if found is None or fixed is None:
        return None
    each = _per_sample(measured)
    largest = (found[0] - fixed[2]) * measured.batch // each if each else 0
    return Fit(row.ranks, found[0], found[2], max(0, largest))


def _per_sample(measured: Measured) -> int:
    """Bytes that grow with the batch, of the measured batch."""
    kept = measured.saved + measured.outputs - measured.shared
    return measured.inputs + kept + measured.loss


class _Table:
    def __init__(
        self, row: Row, parallel: bool, measured: Measured | None, sharding: Sharding | None
    ) -> None:
        self._row = row
        self._parallel = parallel
        self._measured = measured
        self._sharding = sharding
        self._held: Held | None = None
        if measured is not None and sharding is not None:
            self._held = held(measured, sharding, row.ranks)

    def rows(self) -> Iterator[MemoryRow]:
        shares = self._shares() if self._sharding is not None else {}
        yield self._fixed("parameters", "P", lambda m: m.parameters, shares.get("P"))
        yield self._fixed("buffers", "F", lambda m: m.buffers, None)
        yield self._fixed("gradients", "G", lambda m: m.gradients, shares.get("G"))
        yield self._fixed("optimizer state", "S", lambda m: m.state, shares.get("S"))
        yield from self._second_copies()
        yield self._batch("batch", "X", lambda m: m.inputs, whole=True, others=True)
        yield self._batch("kept for backward", "A", lambda m: m.saved, whole=False, others=True)
        yield self._outputs()
        yield self._batch("kept by the loss", "L", lambda m: m.loss, whole=True, others=False)

    def _fixed(self, what: str, letter: str, part: _Part, share: Cell | None) -> MemoryRow:
        cell = self._cell(letter, part)
        others = (cell if letter != "S" else Cell()) if self._parallel else None
        return MemoryRow(what, cell, others, cell if share is None else share)

    def _shares(self) -> dict[str, Cell]:
        """What a rank keeps of what is sharded: nothing on the GPU where it is offloaded."""
        held = self._held
        sizes = (held.parameters, held.gradients, held.state) if held else (None, None, None)
        over = "D" if self._sharding and self._sharding.hybrid else "N"
        offload = self._sharding is not None and self._sharding.offload
        return {
            letter: Cell() if offload else Cell(f"{letter}/{over}", size)
            for letter, size in zip("PGS", sizes, strict=True)
        }

    def _batch(
        self, what: str, letter: str, part: _Part, *, whole: bool, others: bool
    ) -> MemoryRow:
        """``whole``: DataParallel has all of the batch of it on the first GPU."""
        first, other = self._before()
        on_first = self._scaled(
            letter, "B" if whole else "b1", part, self._row.batch if whole else first
        )
        if not self._parallel:
            on_first = self._scaled(letter, "B", part, self._row.batch)
        on_others = self._scaled(letter, "b2", part, other) if others else Cell()
        after = self._scaled(letter, "b", part, self._row.after)
        return MemoryRow(what, on_first, on_others if self._parallel else None, after)

    def _second_copies(self) -> Iterator[MemoryRow]:
        """Of the gradients: DDP's buckets; of DataParallel, the first replica's own.

        Of a sharded model weights and gradients of the units in work, while they are whole.
        """
        others = Cell() if self._parallel else None
        own = self._cell("G", lambda m: m.gradients) if self._parallel else Cell()
        buckets = self._cell("T", lambda m: m.trainable)
        if self._sharding is not None:
            held = self._held
            weights, gradients = whole_formulas(self._sharding)
            gathered = Cell(weights, held.gathered if held else None)
            yield MemoryRow("weights, whole", Cell(), others, gathered)
            buckets = Cell(gradients, held.reduced if held else None)
        yield MemoryRow("gradients, again", own, others, buckets)

    def _outputs(self) -> MemoryRow:
        """Gathered, they are copies; else what backward keeps anyway is counted there."""
        own = self._scaled("O", "b", lambda m: m.outputs - m.shared, self._row.after)
        if self._parallel:
            gathered = self._scaled("O", "B", lambda m: m.outputs, self._row.batch)
            return MemoryRow("outputs", gathered, Cell(), own)
        before = self._scaled("O", "B", lambda m: m.outputs - m.shared, self._row.batch)
        return MemoryRow("outputs", before, None, own)

    def _before(self) -> tuple[int | None, int | None]:
        """Samples on the first GPU, and on the fullest of the others."""
        sizes = self._row.before
        if not sizes:
            return None, None
        return sizes[0], sizes[1] if len(sizes) > 1 else 0

    def _cell(self, letter: str, part: _Part) -> Cell:
        return Cell(letter, part(self._measured) if self._measured is not None else None)

    def _scaled(self, letter: str, samples: str, part: _Part, count: int | None) -> Cell:
        formula, measured = f"{letter}({samples})", self._measured
        if measured is None or count is None:
            return Cell(formula)
        return Cell(formula, -(-part(measured) * count // measured.batch))
