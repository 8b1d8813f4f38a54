"""Everything the checks and the diagnosis look at; they read no other files and start nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ddpify.rules.base import Finding
from ddpify.verify.options import Options
from ddpify.verify.recording import Job


@dataclass(frozen=True)
class Text:
    """A text file both runs left (csv, log, json …), as each left it."""

    path: str
    reference: str
    distributed: str


@dataclass(frozen=True)
class Scalars:
    """What TensorBoard shows of a folder in both runs: for each tag steps and values."""

    folder: str
    reference: Mapping[str, Sequence[tuple[int, float]]]
    distributed: Mapping[str, Sequence[tuple[int, float]]]


@dataclass(frozen=True)
class CheckpointPair:
    """A checkpoint both runs left.

    ``problem`` says why one cannot be loaded where the other is (keys, shapes, an unreadable
    file), "" if it can; ``difference`` is the largest relative one of a tensor (L2), ``state`` that
    of the optimizers' state. ``unprefixed``: the original's keys have a `module.` that the ranks'
    have not.
    """

    path: str
    problem: str
    difference: float
    state: float = 0.0
    unprefixed: bool = False


@dataclass(frozen=True)
class Evidence:
    """``left`` are the paths each run created or changed and that still exist at its end.

    ``batch_factor`` is what verify multiplied the reference's batch size by, ``of_whole_batches``
    says that every rank makes all of each batch, for models to divide. ``unread`` names what
    both left and nothing compares, with the reason.
    """

    options: Options
    reference: Job
    distributed: Job
    left_by_reference: tuple[str, ...] = ()
    left_by_distributed: tuple[str, ...] = ()
    texts: tuple[Text, ...] = ()
    scalars: tuple[Scalars, ...] = ()
    unread: tuple[str, ...] = ()
    checkpoints: tuple[CheckpointPair, ...] = ()
    findings: tuple[Finding, ...] = ()  # of `check` in the distributed program
    batch_factor: int = 1
    of_whole_batches: bool = False
