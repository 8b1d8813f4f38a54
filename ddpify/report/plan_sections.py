"""What a plan says, as titled sentences and tables: text and Markdown are renderings of these."""

from __future__ import annotations

from collections.abc import Iterator

from ddpify.advice.memory import total
from ddpify.advice.model import Advice, OptimizerState, Recommendation, Row, Start
from ddpify.outcome import Outcome
from ddpify.report.hunks import FileDiff, file_diffs
from ddpify.report.kinds import reasons
from ddpify.report.plan_scaling import scaling, sharded
from ddpify.report.plan_tables import Section, Table, cell, mebibytes
from ddpify.report.text import left_by_hand

SYMBOLS = (
    "P parameters, F buffers, G gradients, S optimizer state, T trained parameters; of n samples:"
    " X(n) the batch, A(n) what autograd keeps for backward, O(n) outputs, L(n) what the loss keeps"
)


def sections(outcome: Outcome, advice: tuple[Advice, ...]) -> Iterator[Section]:
    """Everything, in the order of reading; the entry is named where there are several."""
    yield _changes(outcome)
    by_hand = [f"{left.place}: {left.text}" for left in left_by_hand(outcome)]
    if by_hand:
        yield Section("Left to do by hand", tuple(by_hand))
    for one in advice:
        of = f" of {one.entry}" if len(advice) > 1 else ""
        if one.recommendation is not None:
            yield Section(f"Recommendation{of}", tuple(_recommendation(one.recommendation)))
        yield Section(f"Strategy{of}", one.strategy)
        yield Section(f"Batch size{of}", tuple(_batch(one)))
        yield Section(f"Training{of}", one.notes)
        yield Section(f"Memory of each GPU{of}", tuple(_memory(one)))
        yield Section(f"On more GPUs{of}", tuple(scaling(one)))
    notes = tuple(f"{note.site}: {note.message}" for note in outcome.notes)
    if notes:
        yield Section("Notes", notes)


def _recommendation(found: Recommendation) -> Iterator[str]:
    over = f" over {found.ranks} GPUs or more" if found.ranks else ""
    yield f"--strategy {found.strategy}{over}" if found.strategy else "not decided"
    yield from found.reasons


def _changes(outcome: Outcome) -> Section:
    diffs = file_diffs(outcome)
    if not diffs:
        return Section("What is done", ("nothing: there is nothing to change",))
    files = Table(("file", "hunks", "+", "-"), tuple(map(_file, diffs)))
    rows = tuple((one.rule, str(one.hunks), one.why) for one in reasons(diffs))
    rules = Table(("rule", "hunks", "why"), rows, frozenset({0, 2}))
    return Section("What is done (`ddpify diff` shows it)", (files, rules))


def _file(diff: FileDiff) -> tuple[str, ...]:
    name = f"{diff.path} (new)" if diff.is_new else diff.path
    return name, str(len(diff.hunks)), str(diff.count("+")), str(diff.count("-"))


def _batch(advice: Advice) -> Iterator[str | Table]:
    for origin in advice.origins:
        drop = ", drop_last" if origin.drop_last else ""
        yield f"loader {origin.loader}{drop}: {origin.how}"
    options = {name for origin in advice.origins for name in origin.options}
    yield from filter(None, (_start(start, options) for start in advice.starts))
    if advice.rows:
        yield Table(_HEADER, tuple(_row(row, advice) for row in advice.rows), frozenset({0}))


_HEADER = (
    "batch from",
    "GPUs",
    "batch",
    "on each GPU",
    "batch after",
    "on each rank",
    "batch norm over",
    "steps per epoch",
)


def _start(start: Start, options: set[str]) -> str:
    given = [
        f"{name} {value if value is not None else '(set by the shell)'}"
        for name, value in start.values
        if name in options
    ]
    said = [f"passes {', '.join(given)}"] if given else []
    said += [f"lists {start.gpus} GPU{'s' * (start.gpus > 1)}"] if start.gpus else []
    return f"{start.place}: {'; '.join(said)}" if said else ""


def _row(row: Row, advice: Advice) -> tuple[str, ...]:
    if row.batch is None:
        return _unknown(row, advice)
    after = "not possible" if row.after is None else str(row.after)
    if row.nearest:
        after = f"use {' or '.join(map(str, row.nearest))}"
    whole = "" if row.global_after is None else str(row.global_after)
    return (
        row.source,
        str(row.ranks),
        str(row.batch),
        _sizes(row.before),
        whole,
        after,
        _arrow(row.norm_before and _sizes(row.norm_before), row.norm_after),
        _arrow(row.steps_before, row.steps_after),
    )


def _unknown(row: Row, advice: Advice) -> tuple[str, ...]:
    before = f"B/{row.ranks}" if advice.data_parallel else "B"
    if advice.split == "per-rank":
        return row.source, str(row.ranks), "B", before, f"{row.ranks}B", "B", "", ""
    return row.source, str(row.ranks), "B", before, "B", f"B/{row.ranks}", "", ""


def _sizes(sizes: tuple[int, ...]) -> str:
    """16+16+16+16 as 4x16, and a smaller last one behind it."""
    first = sizes[0]
    count = sizes.count(first)
    shown = f"{count}x{first}" if count > 1 else str(first)
    return "+".join([shown, *map(str, sizes[count:])])


def _arrow(before: object, after: object) -> str:
    if before is None and after is None:
        return ""
    return f"{'?' if before is None else before} -> {'?' if after is None else after}"


def _memory(advice: Advice) -> Iterator[str | Table]:
    row, measured = advice.memory_of, advice.measured
    if row is None:
        return
    if measured is None:
        yield SYMBOLS
    else:
        yield (
            f"measured on {measured.device} (torch {measured.torch}) by `{measured.command}`, with"
            f" {measured.batch} samples; MiB; N = {row.ranks}; what grows with the batch is taken"
            " to grow in proportion"
        )
    yield Table(("", *_columns(advice)), tuple(_memory_rows(advice)))
    yield _difference(advice)
    yield from (_state(state) for state in advice.states)
    yield from _limits(advice)
    if advice.fits:
        yield (
            "the largest batch that takes no more memory after than the first GPU does now, by"
            " these sums (advice: a larger batch is another training, see the learning rate):"
        )
        yield Table(_FIT, tuple(_fits(advice)))


_FIT = ("GPUs", "first GPU before", "each GPU after", "fits per rank", "as global batch")


def _fits(advice: Advice) -> Iterator[tuple[str, ...]]:
    for one in advice.fits:
        yield (
            str(one.ranks),
            mebibytes(one.peak),
            mebibytes(one.after),
            str(one.per_rank),
            str(one.global_batch),
        )


def _columns(advice: Advice) -> tuple[str, ...]:
    if advice.data_parallel:
        return "before: first GPU", "before: others", "after: every GPU"
    return "before: one GPU", "after: every GPU"


def _memory_rows(advice: Advice) -> Iterator[tuple[str, ...]]:
    for row in advice.memory:
        cells = [row.first, *([row.others] if row.others is not None else []), row.after]
        yield row.what, *map(cell, cells)
    sums = total(advice.memory)
    if sums is not None:
        yield "sum", *(mebibytes(one) for one in sums if one is not None)


def _state(state: OptimizerState) -> str:
    if state.slots is None:
        return f"S of {state.kind} ({state.site}): {state.why}; --measure counts it"
    scalars = f" + {state.scalars} bytes per tensor" if state.scalars else ""
    why = f" ({state.why})" if state.why else ""
    return f"S of {state.kind} ({state.site}) = {state.slots} x T{scalars}{why}"


def _difference(advice: Advice) -> str:
    """What the table comes to."""
    if advice.shards and advice.sharding.offload:
        return (
            "so each GPU holds F as before, weights and gradients of some units whole for a time,"
            " and 1/N of what grows with B; 1/N of P, G and S are in the memory of the host"
        )
    if advice.shards:
        return (
            "so each GPU holds 1/N of P, G and S, F as before, weights and gradients of some units"
            " whole for a time, and 1/N of what grows with B"
        )
    if advice.data_parallel:
        return (
            "so the first GPU is rid of X, O and L of the others' samples, and each of the others"
            " gains S and T: from then on all are alike"
        )
    return "so each GPU holds P, F, G and S as before, T besides, and 1/N of what grows with B"


def _limits(advice: Advice) -> Iterator[str]:
    if advice.shards:
        yield (
            "b: samples of each rank after; U: weights or gradients of the largest block, R: of"
            " what is in none, which is gathered as long as the model computes (docs/plan.md)"
        )
        yield from sharded(advice)
    elif advice.data_parallel:
        yield (
            "b1, b2: samples of the first GPU and of the others before; b: of each rank after."
            " Replicas hold gradients until they are added up on the first GPU, whose own replica's"
            " are the second copy there; after, the second copy is DDP's buckets"
        )
    else:
        yield "b: samples of each rank after; the second copy of the gradients is DDP's buckets"
    yield (
        "a sum is an upper bound: gradients come while what backward needs goes. Not in it: the"
        " CUDA context, NCCL's and cuDNN's own memory, fragmentation (docs/plan.md)"
    )
