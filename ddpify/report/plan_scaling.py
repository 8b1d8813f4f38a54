"""The part of a plan that compares the strategies on 1 to 1,024 ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ddpify.advice.model import Advice, Load
from ddpify.advice.shards import largest
from ddpify.report.plan_tables import MEBIBYTE, Table, cell


def scaling(advice: Advice) -> Iterator[str | Table]:
    """A table for each strategy: bytes of a rank, and what it sends in one optimizer step."""
    unit = "MiB of" if advice.measured is not None else "of"
    yield f"ddp, {unit} each rank, and what it sends in an optimizer step:"
    yield _table([(one.ranks, one.ddp) for one in advice.scales], "buckets")
    yield f"fsdp, {unit} each rank, and what it sends in an optimizer step:"
    yield _table([(one.ranks, one.fsdp) for one in advice.scales], "whole for a time")
    if not advice.shards:
        yield from sharded(advice)
    yield from _messages(advice)


def _table(rows: Sequence[tuple[int, Load]], whole: str) -> Table:
    kept = ("parameters", "gradients", "optimizer", whole, "sum")
    header = ("ranks", *kept, *(one.what for one in rows[-1][1].sent))
    return Table(header, tuple(_row(ranks, load) for ranks, load in rows), frozenset())


def _row(ranks: int, load: Load) -> tuple[str, ...]:
    cells = (load.parameters, load.gradients, load.state, load.whole)
    sizes = [one.size for one in cells if one.formula]
    known = [size for size in sizes if size is not None]
    whole = _digits(sum(known)) if len(known) == len(sizes) else ""
    sent = (cell(one.cell, _digits) for one in load.sent)
    return f"{ranks:,}", *(cell(one, _digits) for one in cells), whole, *sent


def _digits(size: int) -> str:
    """In MiB, with three digits of what is small: a share of a thousandth, too."""
    mib = size / MEBIBYTE
    return f"{mib:.1f}" if mib >= 100 else f"{mib:.3g}"


def sharded(advice: Advice) -> Iterator[str]:
    """How the model is divided, and what the options do to these numbers."""
    division, measured = advice.sharding, advice.measured
    lists = ", ".join(dict.fromkeys(f"`{path}`" for _, path in division.blocks))
    named = f"modules of {', '.join(division.wrap)}" if division.wrap else lists
    blocks = f"units: {named}, and what is in none" if named else "one unit: no blocks were found"
    yield blocks + _sizes(advice)
    if named and measured is not None and not any(one.path for one in advice.units):
        yield "none of these was in the measured run: it is counted as one unit"
    if division.accumulates:
        yield (
            "gradients are accumulated: until the last of k backwards, which reduces them, each"
            " rank has them whole (T), and weights are gathered for every one of them"
        )
    if division.bf16:
        yield "bfloat16: weights are gathered in 2 bytes; shards and what is reduced are as before"
    if division.offload:
        yield "offload: shards of P, G and S are in the memory of the host, not of the GPU"
    if division.hybrid:
        yield (
            f"hybrid: D = {division.hybrid} GPUs of a node share out (--nproc, or the launchers,"
            " say how many), and gradients of the shards are averaged over nodes"
        )


def _sizes(advice: Advice) -> str:
    """The largest block by name, so that it can be looked at."""
    inside = [one for one in advice.units if one.path]
    if not inside:
        return ""
    first = max(inside, key=lambda one: one.size)
    _, rest = largest((one.path, one.size) for one in advice.units)
    return f"; {first.path}: U = {_digits(first.size)} MiB of weights; R = {_digits(rest)} MiB"


def _messages(advice: Advice) -> Iterator[str]:
    measured, division = advice.measured, advice.sharding
    passes = "k" if measured is None else str(measured.passes)
    count = passes if division.accumulates else "one"
    yield (
        "fsdp gathers weights for each forward and again for its backward; the table has"
        f" {count} of each a step, of every model; of a tensor (N-1)/N are sent to gather or to"
        " reduce it, twice that to all-reduce it (docs/plan.md)"
    )
    if measured is not None:
        yield (
            "shards are cut along the first dimension and padded to the largest: 5 rows over 4"
            " ranks are 2 on each, so that on many ranks they are more than 1/N"
        )
