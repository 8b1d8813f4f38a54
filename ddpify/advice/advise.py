"""Put together what is said of one entry: strategy, batch, steps, learning rate, memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ddpify.advice.arguments import options
from ddpify.advice.division import sharding
from ddpify.advice.memory import fit, memory
from ddpify.advice.model import Advice, BatchSizeOrigin, Measured, Row
from ddpify.advice.optimizers import states
from ddpify.advice.origins import origins
from ddpify.advice.rates import rate
from ddpify.advice.rows import Setup, listed, rows
from ddpify.advice.scaling import scales
from ddpify.advice.shards import units
from ddpify.advice.starts import asked, starts
from ddpify.facts.events import Call
from ddpify.facts.model import Facts, Status
from ddpify.facts.values import Kind
from ddpify.outcome import Outcome
from ddpify.settings import Settings
from ddpify.strategies import of

AMP = ("torch.autocast", "torch.cuda.amp.autocast", "torch.amp.autocast", "torch.cpu.amp.autocast")


def advise(
    outcome: Outcome,
    facts: Facts,
    settings: Settings,
    nproc: int = 0,
    arguments: tuple[str, ...] = (),
    measured: Measured | None = None,
) -> Advice:
    """The advice for one entry of ``outcome``.

    ``nproc`` 0: as many GPUs as the launchers list, or 2, 4 and 8. ``arguments`` are the
    program's, instead of those that launchers pass.
    """
    parallel = data_parallel(facts)
    found = origins(facts)
    setup = _setup(outcome, facts, settings, parallel, found)
    spelled = tuple(s for option in options(facts) for s in option.spellings)
    begun = starts(Path(facts.root), facts.entry.path, spelled)
    if arguments:
        begun = (replace(asked(arguments, spelled), gpus=listed(begun)),)
    table = rows(setup, found, begun, nproc, measured)
    first = next((row for row in table if row.after), table[0] if table else None)
    shards = of(settings).shards
    divided = sharding(outcome, facts, settings, nproc or listed(begun) or 0)
    asked_for = divided if shards else None
    fits = [fit(row, bool(parallel), measured, asked_for) for row in table] if measured else []
    return Advice(
        entry=facts.entry.path,
        status=facts.status.value,
        data_parallel=tuple(call.site for call in parallel),
        split="global" if setup.whole else "per-rank",
        strategy=tuple(_strategy(facts, parallel, shards)),
        origins=found,
        starts=begun,
        rows=table,
        states=states(facts),
        memory=memory(first, bool(parallel), measured, asked_for) if first else (),
        memory_of=first,
        fits=tuple(one for one in fits if one is not None),
        measured=measured,
        notes=(*_notes(facts, setup, found, table, measured), *_not_counted(settings)),
        shards=shards,
        sharding=divided,
        units=units(measured, divided) if measured is not None else (),
        scales=scales(measured, divided),
    )


def data_parallel(facts: Facts) -> tuple[Call, ...]:
    """The calls of ``nn.DataParallel`` around trained models."""
    calls = {c.site: c for model in facts.models for c in model.data_parallel}
    return tuple(calls[site] for site in sorted(calls))


def _setup(
    outcome: Outcome,
    facts: Facts,
    settings: Settings,
    parallel: tuple[Call, ...],
    found: tuple[BatchSizeOrigin, ...],
) -> Setup:
    split = any(origin.shared_out for origin in found)
    return Setup(
        replicas=_replicas(parallel[0]) if parallel else None,
        norm=any(model.batch_norm for model in facts.models),
        synced=synced(outcome, facts),
        whole=split or (settings.batch_size == "global" and facts.status is not Status.MIGRATED),
    )


def synced(outcome: Outcome, facts: Facts) -> bool:
    """Whether the migration converts batch norm of this entry's models, on CUDA."""
    trees = facts.trees
    written = (
        edit.code for finding in outcome.findings for edit in finding.fix if edit.site.path in trees
    )
    kept = (
        c.kwargs.get("sync_batchnorm") for c in facts.calls if c.name == "ddpify.runtime.wrap_model"
    )
    asked = any(value is not None and value.known and value.const for value in kept)
    return asked or any("sync_batchnorm=True" in code for code in written)


def _replicas(call: Call) -> int:
    """How many GPUs the list names; 0: all that are visible."""
    given = call.arg(1, "device_ids")
    for thing in given.things if given is not None else ():
        if thing.kind in (Kind.TUPLE, Kind.ITERATOR) and thing.items is not None:
            return len(thing.items)
    return 0


def _strategy(facts: Facts, parallel: tuple[Call, ...], shards: bool) -> Iterator[str]:
    if facts.status is Status.MIGRATED:
        yield "DistributedDataParallel: migrated already"
        return
    models = len(facts.models)
    what = "the model" if models == 1 else f"each of the {models} trained models"
    if shards:
        yield (
            f"FSDP: every GPU gets a process of its own that keeps 1/N of the weights of {what}, of"
            " their gradients and of the optimizer's state, takes its share of each batch, and"
            " gathers weights, and reduces gradients, block by block"
        )
        return
    yield (
        f"DistributedDataParallel: every GPU gets a process of its own that holds {what} whole,"
        " takes its share of each batch, and averages gradients with the others during backward"
    )
    if parallel:
        yield (
            f"nn.DataParallel ({parallel[0].site}) goes: one process drove all GPUs and gathered"
            " outputs, loss, gradients and optimizer state on the first"
        )
    yield (
        "FSDP would share out parameters and optimizer state, too: needed where they do not fit one"
        " GPU (`plan --strategy auto` compares)"
    )


def _notes(
    facts: Facts,
    setup: Setup,
    found: tuple[BatchSizeOrigin, ...],
    table: tuple[Row, ...],
    measured: Measured | None,
) -> Iterator[str]:
    yield rate(setup.whole)
    yield from _steps(setup, found, measured)
    if setup.norm and setup.synced:
        yield (
            "batch norm becomes SyncBatchNorm on CUDA: statistics over the global batch, as before"
            " on one GPU; on CPU they are over each rank's samples"
        )
    if any(call.name in AMP for call in facts.calls):
        yield (
            "autocast: weights stay as they are; a half-precision copy of each (up to P/2) lives"
            " through a forward, before and after, and is not in the table"
        )
    if any(row.nearest for row in table):
        yield "a batch that N does not divide ends the job at start: use one of the sizes named"


def _not_counted(settings: Settings) -> Iterator[str]:
    if not settings.fsdp_reshard:
        yield (
            "no-fsdp-reshard: the tables are of blocks that give weights back after their forward;"
            " kept until the backward all are whole for a time (up to P), and gathered once"
        )


def _steps(
    setup: Setup, found: tuple[BatchSizeOrigin, ...], measured: Measured | None
) -> Iterator[str]:
    if measured is not None and measured.samples:
        return
    drop = any(origin.drop_last for origin in found)
    formula = "floor(samples / B)" if drop else "ceil(samples / B)"
    if setup.whole:
        yield f"steps per epoch: {formula} before and after; --measure counts the samples"
    else:
        yield f"steps per epoch: {formula} before, 1/N of it after; --measure counts the samples"
