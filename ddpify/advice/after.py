"""What is told once a migration is made: what is not as it was, and how to have it proven."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from ddpify.advice.advise import data_parallel, synced
from ddpify.advice.arguments import options
from ddpify.advice.model import Start
from ddpify.advice.starts import starts
from ddpify.facts.model import Facts, Status
from ddpify.launchers import LauncherKind, kind_of
from ddpify.outcome import Outcome

_DROPPING = ("dropout", "droppath", "transformerencoderlayer", "transformerdecoderlayer")
_SHUFFLING = ("distributed_sampler(", "share_training(")


def told(outcome: Outcome, facts: Sequence[Facts]) -> Outcome:
    """The outcome with what a user wants to know after it, of the programs whose facts these are.

    Of those that stay in one process there is nothing to say.
    """
    single = [one for one in facts if one.status in (Status.SINGLE, Status.DATA_PARALLEL)]
    if outcome.refusals or not outcome.changes or not single:
        return outcome
    found = (line for one in single for line in _differences(outcome, one))
    given = tuple((one.entry.path, _arguments(one)) for one in single)
    return replace(outcome, differences=tuple(dict.fromkeys(found)), arguments=given)


def _differences(outcome: Outcome, facts: Facts) -> Iterator[str]:
    written = [edit.code for finding in outcome.findings for edit in finding.fix]
    if any(name in code for code in written for name in _SHUFFLING):
        yield "samples come in another order (DistributedSampler's), each once per epoch as before"
    dropping = [c.site for c in facts.calls if c.name.rpartition(".")[2].lower() in _DROPPING]
    if dropping:
        yield f"dropout ({dropping[0]}): each rank draws masks of its own, as with another seed"
    elif any(finding.rule == "DDP111" and finding.fix for finding in outcome.findings):
        yield "what is drawn while training (augmentation, noise) is each rank's own draw"
    if any(model.batch_norm for model in facts.models):
        yield _batch_norm(outcome, facts)
    yield "sums are added in another order: numbers agree up to rounding"


def _batch_norm(outcome: Outcome, facts: Facts) -> str:
    if data_parallel(facts):
        return "batch norm: statistics over each rank's samples, as nn.DataParallel's replicas had"
    if synced(outcome, facts):
        return (
            "batch norm: statistics over the global batch on GPUs (SyncBatchNorm), as before; on"
            " CPUs over each rank's samples"
        )
    return "batch norm: statistics over each rank's samples, not over the whole batch"


def _arguments(facts: Facts) -> tuple[str, ...]:
    """Those that a launcher starts the program with, scripts before READMEs."""
    spelled = tuple(s for option in options(facts) for s in option.spellings)
    found = starts(Path(facts.root), facts.entry.path, spelled)
    known = [one for one in found if one.arguments is not None]
    first = min(known, key=_rank, default=None)
    return (first.arguments or ()) if first is not None else ()


def _rank(start: Start) -> bool:
    return kind_of(start.place.rpartition(":")[0]) is LauncherKind.MARKDOWN
