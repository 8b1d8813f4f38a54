"""What one run did: the vocabulary of every check. Read from the files an observer wrote."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

# A tensor's flattened float64 values or, of larger ones, a count sketch: the differences of two
# signatures have (on average) the norm of the tensors' difference.
Signature: TypeAlias = NDArray[np.float64]
Sample: TypeAlias = "int | str"  # index in the underlying data set; of streams a content digest


@dataclass(frozen=True)
class Parameter:
    """``name`` as the model's ``named_parameters`` has it, without wrappers' prefixes."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Optimizer:
    """Numbered by first step; ``initial`` are its parameters before that step."""

    number: int
    kind: str  # the class
    parameters: tuple[Parameter, ...]  # in the order of the parameter groups
    initial: tuple[Signature, ...]
    initial_digests: tuple[str, ...]


@dataclass(frozen=True)
class StepRecord:
    """One ``optimizer.step()``; tensors in the optimizer's order.

    ``losses`` are the values ``backward()`` was called on since the step before, ``seconds`` the
    time since then without the observer's own, ``memory`` the peak in bytes so far.
    ``random`` maps torch, numpy and random to a digest of the stream's state after the step.
    """

    number: int  # steps of any optimizer before
    optimizer: int
    learning_rates: tuple[float, ...]
    losses: tuple[float, ...]
    gradients: tuple[Signature | None, ...]
    gradient_digests: tuple[str, ...]  # "" where there was none
    parameters: tuple[Signature, ...]
    digests: tuple[str, ...]
    seconds: float
    memory: int
    random: dict[str, str]


@dataclass(frozen=True)
class EventRecord:
    """What happened, in order; ``steps`` optimizer steps had been taken."""

    steps: int
    seconds: float  # since the run began


@dataclass(frozen=True)
class Fetch(EventRecord):
    """A batch was handed to the script; ``contents`` are digests, one for each sample.

    ``alone`` are those of the samples before a ``collate_fn`` of the script's put them together,
    perhaps filled up to the longest; ``width`` is the number of bytes that each has in the batch.
    ``last``: its sampler has no more.
    """

    loader: int  # numbered by first use
    passed: int  # earlier passes over the loader
    samples: tuple[Sample, ...]
    contents: tuple[str, ...]
    grad: bool  # torch.is_grad_enabled()
    alone: tuple[str, ...] = ()
    width: int = 0
    last: bool = False


@dataclass(frozen=True)
class EndRecord(EventRecord):
    """A pass over a loader was exhausted."""

    loader: int
    passed: int


@dataclass(frozen=True)
class ForwardRecord(EventRecord):
    """Of a DDP (or FSDP) wrapper: ``sync`` if its backward will be all-reduced."""

    wrapper: int
    grad: bool
    sync: bool
    buffers: bool  # forwards of this wrapper are collectives, because buffers are broadcast


@dataclass(frozen=True)
class Backward(EventRecord):
    loss: float | None  # None: not one number


@dataclass(frozen=True)
class StepTaken(EventRecord):
    """Where the step ``number`` stands among the events."""

    number: int


@dataclass(frozen=True)
class CollectiveRecord(EventRecord):
    """``site`` is file:line of the nearest frame of the user's; ``done`` if it was left again."""

    name: str
    site: str
    size: int  # bytes of the tensors given, 0 if there are none
    done: bool
    ranks: int = 0  # of its group, 0 if that is all of them
    fsdp: bool = False  # FSDP's own, for weights and gradients


@dataclass(frozen=True)
class WaitRecord:
    """A collective, also of a wrapper's own: entered and left, in seconds since the run began.

    ``until`` None: it was still in it when the record ends.
    """

    name: str
    site: str
    since: float
    until: float | None


@dataclass(frozen=True)
class FileChange(EventRecord):
    """A path, relative to the project's copy, that was written, made, renamed or removed."""

    operation: str  # "open", "os.mkdir", "os.remove", "torch.save" …
    path: str
    existed: bool


@dataclass(frozen=True)
class Loaded(EventRecord):
    """A module's ``load_state_dict()`` was called."""


@dataclass(frozen=True)
class ShuffleRecord(EventRecord):
    """A pass over a loader began whose DistributedSampler shuffles by ``seed`` + ``epoch``.

    Without a seed ranks share the batches that its own sampler draws.
    """

    loader: int
    seed: int | None
    epoch: int


@dataclass(frozen=True)
class NoiseRecord:
    """How often legitimate sources of difference were met while training."""

    dropout: int = 0
    batchnorm: int = 0  # batch statistics of one process' share; not SyncBatchNorm
    augmentation: int = 0  # batches during whose loading a random stream was drawn from
    draws: int = 0  # steps before which the script drew random numbers that were not neutral
    rows: tuple[str, ...] = ()  # streams from which one was drawn for each sample of a batch
    shared: tuple[str, ...] = ()  # neutral draws that were the same in every process


@dataclass(frozen=True)
class LoaderRecord:
    """A DataLoader: class names of data set and sampler, sizes of data set and batch."""

    number: int
    dataset: str
    sampler: str
    samples: int  # 0: not known
    batch: int  # 0: not known


@dataclass(frozen=True)
class HeldRecord:
    """Bytes that a process keeps from step to step: of sharded tensors its shards.

    ``groups`` are FSDP's parameter groups that train: each is gathered and reduced as one.
    """

    parameters: int
    gradients: int
    states: int
    groups: int

    @property
    def total(self) -> int:
        return self.parameters + self.gradients + self.states


@dataclass(frozen=True)
class ProbeRecord:
    """What the trained model says, in eval mode, of the reference's first training batch."""

    output: Signature | None
    digest: str
    missing: str = ""  # why there is none
    module: str = ""  # the class of the outermost module called


@dataclass(frozen=True)
class RunRecord:
    """One rank (or the one process).

    ``status``: "finished", "exited", "stopped" (by ``--steps``), "running" (it was killed),
    "not started", or the exception's "Name: text", whose traceback ends in ``traceback``; a
    SystemExit with a sentence is such an exception, one with a number "exited".
    ``stack`` is set for a run that hung: all threads' frames, innermost last; ``waiting`` is then
    the collective it had entered ("all_reduce at main.py:12"), or "".
    """

    rank: int = 0
    world_size: int = 1
    status: str = "not started"
    exit_code: int | None = None
    traceback: str = ""
    group_left_open: bool = False
    backend: str = ""  # of the process group; "" if there was none
    device: str = "cpu"
    optimizers: tuple[Optimizer, ...] = ()
    steps: tuple[StepRecord, ...] = ()
    events: tuple[EventRecord, ...] = ()
    waits: tuple[WaitRecord, ...] = ()
    began: float = 0.0  # on a clock that all processes of the machine share
    ended: float = 0.0  # seconds since: the last that was recorded
    loaders: tuple[LoaderRecord, ...] = ()
    noise: NoiseRecord = field(default_factory=NoiseRecord)
    probe: ProbeRecord | None = None
    wrapped: tuple[str, ...] = ()  # names of the parameters DDP or FSDP synchronises
    data_parallel: bool = False  # an nn.DataParallel was made
    held: HeldRecord | None = None  # None: no step was taken
    trainer: str = ""  # arguments that Lightning's Trainer or Fabric was given in place of its own
    unsupported: str = ""  # why it was not run to its end: it cannot be compared
    stdout: str = ""
    stderr: str = ""
    stack: str = ""
    waiting: str = ""

    @property
    def crashed(self) -> bool:
        """Ended by an exception or a non-zero exit code of its own."""
        ends = ("finished", "stopped", "running", "not started")
        return self.status not in ends and self.exit_code != 0

    @property
    def over(self) -> bool:
        """Ended by itself, and not by an error."""
        known = self.status in ("finished", "exited", "stopped")
        return known or self.status.startswith("SystemExit: ")

    @property
    def ending(self) -> str:
        """The status; of an exit with a number the last line that was said before."""
        if self.status != "exited":
            return self.status
        last = [line.strip() for line in self.stderr.splitlines() if line.strip()][-1:]
        return ": ".join((f"exit code {self.exit_code}", *last))

    @property
    def collectives(self) -> tuple[CollectiveRecord, ...]:
        return tuple(event for event in self.events if isinstance(event, CollectiveRecord))

    @property
    def files(self) -> tuple[FileChange, ...]:
        return tuple(event for event in self.events if isinstance(event, FileChange))


@dataclass(frozen=True)
class Job:
    """One launch: one run for each rank. ``folder`` is where it ran (a copy of the project)."""

    runs: tuple[RunRecord, ...]
    folder: str
    command: str
    returncode: int
    seconds: float
    hung: bool = False
    launcher_output: str = ""

    @property
    def finished(self) -> bool:
        """Every rank came to its end, or to the last step asked for."""
        ends = ("finished", "stopped")
        return all(r.status in ends or r.exit_code == 0 for r in self.runs) and not self.hung
