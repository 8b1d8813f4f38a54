"""DDP214: samples are dealt by the number of the process on its node."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.ranks import words
from ddpify.ranks.model import RankCall, RankValue
from ddpify.ranks.origins import LOCAL_RANK, RANK
from ddpify.ranks.run import Run
from ddpify.ranks.values import spread
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples import BY_HAND, CORRECT, changed

# What deals by a number: the position and the name of that argument.
_DEALERS = {
    words.SAMPLER: (2, "rank"),
    "datasets.distributed.split_dataset_by_node": (1, "rank"),
}


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per sampler that is given the local rank for the rank."""
    for call in run.calls:
        if call.name not in _DEALERS:
            continue
        number = call.arg(*_DEALERS[call.name])
        if number is not None and _is_local(number) and not _is_the_rank(run, number):
            yield _finding(call, number)


def _finding(call: RankCall, number: RankValue) -> Finding:
    return Finding(
        "DDP214",
        call.site,
        "dealt by the number on the node: with several nodes, each has the same shares",
        Severity.WARNING,
        (),
        "deal by RANK of WORLD_SIZE: leave rank and num_replicas out, they are the defaults",
        tuple((o.site, "the local rank") for o in spread(number) if o.kind == LOCAL_RANK)[:1],
    )


def _is_local(number: RankValue) -> bool:
    """The local rank as it is: nothing of the node's number is added."""
    kinds = {origin.kind for origin in spread(number)}
    return kinds == {LOCAL_RANK} and number.atoms == (0, 1) and not number.deps


def _is_the_rank(run: Run, number: RankValue) -> bool:
    """The process group itself was opened with it: there is one node."""
    given = run.session.arg(3, "rank") if run.session is not None else None
    opened = {o.kind for o in spread(given)} if given is not None else set()
    return LOCAL_RANK in opened and RANK not in opened


RULE = Rule(
    "DDP214",
    "shard-by-local-rank",
    "LOCAL_RANK counts from 0 on each node. A sampler that deals by it (or by the devices of one"
    " node) gives process 0 of every node the same share; on one node nothing is seen of it.",
    "speculators#427; lightning#19898; torchrun; BUGS D07",
    bad=(
        changed(
            BY_HAND,
            (
                "DistributedSampler(data)",
                'DistributedSampler(data, rank=int(os.environ["LOCAL_RANK"]))  # DDP214',
            ),
        ),
        changed(
            BY_HAND,
            (
                "DistributedSampler(data)",
                "DistributedSampler(data, dist.get_world_size(), gpu)  # DDP214",
            ),
        ),
    ),
    good=(
        *CORRECT,
        changed(
            BY_HAND,
            (
                "DistributedSampler(data)",
                "DistributedSampler(data, dist.get_world_size(), dist.get_rank())",
            ),
        ),
    ),
    lint=lint,
    severity=Severity.WARNING,
    fixes=False,
)
