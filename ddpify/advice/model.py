"""What `ddpify plan` says of one entry, as plain data: the reports are renderings of it.

Sizes of batches are in samples, memory is in bytes. None is a number that is not known.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ddpify.source import Site


@dataclass(frozen=True)
class BatchSizeOrigin:
    """Where a training loader's batch size comes from.

    ``options`` are the command line's that set it; ``how`` says it in words. ``shared_out``: the
    program splits it over its ranks already. ``fixed``: it is a number in the program's text.
    """

    loader: Site
    how: str
    size: int | None = None
    site: Site | None = None
    options: tuple[str, ...] = ()
    drop_last: bool = False
    shared_out: bool = False
    fixed: bool = False


@dataclass(frozen=True)
class Start:
    """How the program is started: ``place`` is a launcher's line, or says that it was asked for.

    ``gpus`` is the length of the GPU list that is written there, ``values`` are the options it
    passes, None for those that only the shell knows. ``first`` is the word after the program;
    ``arguments`` are all, None where only the shell knows one.
    """

    place: str
    gpus: int | None = None
    values: tuple[tuple[str, str | None], ...] = ()
    first: str = ""
    arguments: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Row:
    """One global batch on ``ranks`` GPUs, before and after.

    ``before`` are the samples on each GPU in one forward; ``after`` those on each rank, None
    where the batch does not divide: then ``nearest`` are the sizes that do. ``norm_before`` and
    ``norm_after`` are the samples that batch-norm statistics are taken over, None without any.
    """

    source: str
    ranks: int
    batch: int | None
    before: tuple[int, ...] = ()
    after: int | None = None
    nearest: tuple[int, ...] = ()
    global_after: int | None = None
    norm_before: tuple[int, ...] | None = None
    norm_after: int | None = None
    steps_before: int | None = None
    steps_after: int | None = None


@dataclass(frozen=True)
class OptimizerState:
    """``slots`` tensors of a parameter's size and ``scalars`` bytes beside them, per parameter.

    ``slots`` None: it depends on a value that is not in the source, or the class is not known.
    """

    kind: str
    site: Site
    slots: int | None
    scalars: int
    why: str = ""


@dataclass(frozen=True)
class Cell:
    """A term of the memory of one GPU; ``formula`` "" where it is not there."""

    formula: str = ""
    size: int | None = None


@dataclass(frozen=True)
class MemoryRow:
    """One kind of memory on the first GPU and the others before, and on every GPU after."""

    what: str
    first: Cell
    others: Cell | None
    after: Cell


@dataclass(frozen=True)
class Fit:
    """The largest batch whose memory after the migration is at most that of the first GPU before.

    ``peak`` and ``after`` are bytes: the first GPU's before, and each GPU's after with the same
    global batch.
    """

    ranks: int
    peak: int
    after: int
    per_rank: int

    @property
    def global_batch(self) -> int:
        return self.ranks * self.per_rank


@dataclass(frozen=True)
class Weight:
    """One parameter of the trained module with the number ``model``, as the original has it.

    ``kinds`` are the classes of the modules on the way to it, the model's first. ``rows`` is the
    first dimension, the one that is shared out; ``element`` the bytes of one number, ``size`` of
    all, ``gradient`` of its gradient, ``state`` of what the optimizer keeps in its shape,
    ``scalars`` of what else it keeps.
    """

    name: str
    kinds: tuple[str, ...]
    model: int
    rows: int
    size: int
    element: int
    trained: bool
    gradient: int
    state: int
    scalars: int


@dataclass(frozen=True)
class Sharding:
    """How ``fully_shard`` is asked to divide the models.

    ``blocks`` are the lists whose entries are units: the class of a model, and the path from it.
    ``wrap`` are the classes that are units where the user names them. ``accumulates``: gradients
    are reduced in the last of several backwards. ``hybrid`` is the number of GPUs of a node within
    which is sharded; 0: over all.
    """

    blocks: tuple[tuple[str, str], ...] = ()
    wrap: tuple[str, ...] = ()
    bf16: bool = False
    offload: bool = False
    hybrid: int = 0
    accumulates: bool = False


@dataclass(frozen=True)
class Unit:
    """What is gathered together: a block at ``path`` in a model, or "": all that is in none.

    ``size`` are the bytes of its weights, ``gathered`` in the precision they are computed with,
    ``trained`` of those that have gradients.
    """

    model: int
    path: str
    size: int
    gathered: int
    trained: int


@dataclass(frozen=True)
class Sent:
    """Bytes that a rank sends in an optimizer step, by one kind of collective."""

    what: str
    cell: Cell


@dataclass(frozen=True)
class Load:
    """What one rank holds and sends under one strategy; ``whole``: of units that are gathered."""

    parameters: Cell
    gradients: Cell
    state: Cell
    whole: Cell
    sent: tuple[Sent, ...]


@dataclass(frozen=True)
class Scale:
    """The same model on ``ranks`` GPUs."""

    ranks: int
    ddp: Load
    fsdp: Load


@dataclass(frozen=True)
class Recommendation:
    """``strategy`` "": it depends on what is not known. ``ranks``: over how many is sharded."""

    strategy: Literal["ddp", "fsdp", ""]
    reasons: tuple[str, ...]
    ranks: int | None = None


@dataclass(frozen=True)
class Measured:
    """One training step of the original in one process; ``batch`` samples were in it.

    ``saved`` is what autograd keeps for backward from inside the trained modules, each storage
    once, without parameters, buffers and the batch itself; ``loss`` the same from outside them.
    ``outputs`` are what the modules returned, ``shared`` the part of it that is in ``saved`` too.
    ``samples`` is the length of the data set, ``batches`` of the loader; 0: not known.
    ``allocated`` is CUDA's own peak, ``capacity`` the memory of the GPU; both are 0 on the CPU.
    ``passes`` are the backwards of an optimizer's step.
    """

    device: str
    torch: str
    parameters: int
    buffers: int
    trainable: int
    gradients: int
    state: int
    batch: int
    inputs: int
    saved: int
    outputs: int
    shared: int
    loss: int
    samples: int = 0
    batches: int = 0
    batch_size: int = 0
    drop_last: bool = False
    allocated: int = 0
    capacity: int = 0
    command: str = ""
    passes: int = 1
    weights: tuple[Weight, ...] = ()


@dataclass(frozen=True)
class Advice:
    """All of it, for one entry."""

    entry: str
    status: str
    data_parallel: tuple[Site, ...] = ()
    split: Literal["global", "per-rank"] = "global"
    strategy: tuple[str, ...] = ()
    origins: tuple[BatchSizeOrigin, ...] = ()
    starts: tuple[Start, ...] = ()
    rows: tuple[Row, ...] = ()
    states: tuple[OptimizerState, ...] = ()
    memory: tuple[MemoryRow, ...] = ()
    memory_of: Row | None = None
    fits: tuple[Fit, ...] = ()
    measured: Measured | None = None
    notes: tuple[str, ...] = field(default=())
    shards: bool = False
    sharding: Sharding = field(default=Sharding())
    units: tuple[Unit, ...] = ()
    scales: tuple[Scale, ...] = ()
    recommendation: Recommendation | None = None
