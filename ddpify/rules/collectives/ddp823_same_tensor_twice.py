"""DDP823: the list that is gathered into holds one tensor several times."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.ranks.collective import collective
from ddpify.ranks.model import RankCall
from ddpify.ranks.run import Run
from ddpify.rules.base import Edit, Finding, How, Rule, Severity
from ddpify.rules.examples.ranks import on_ranks
from ddpify.rules.shared.written import repeated
from ddpify.site import Site

_FILLED = {
    "all_gather": "tensor_list",
    "gather": "gather_list",
    "all_to_all": "output_tensor_list",
}


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per gather into ``[tensor] * n``."""
    for call in run.calls:
        shared = collective(call)
        if shared is not None and call.method in _FILLED:
            given = shared.node(_FILLED[call.method])
            for found in repeated(call, given) if given is not None else ():
                yield _finding(call, *found)


def _finding(call: RankCall, site: Site, tensor: str, times: str) -> Finding:
    code = f"[{tensor} for _ in range({times})]"
    return Finding(
        "DDP823",
        call.site,
        "the list holds one tensor several times: every element is what the last rank sent",
        Severity.ERROR,
        (Edit(How.REPLACE, site, code),),
        because=((site, "the same tensor for every rank"),),
    )


RULE = Rule(
    "DDP823",
    "gather-list-aliased",
    "`[torch.zeros(1)] * n` is n times the same tensor. What the ranks send is written into it one"
    " after the other, and every element shows the last (measured: [2, 2] instead of [1, 2])."
    " A comprehension makes a tensor per rank.",
    "torch.distributed.all_gather documentation; BUGS L11",
    lint=lint,
    bad=(
        on_ranks("""
            parts = [torch.zeros_like(value)] * world
            dist.all_gather(parts, value)  # DDP823
            print(rank, torch.cat(parts))
            """),
        on_ranks("dist.all_gather(world * [torch.empty(1)], value)  # DDP823"),
    ),
    good=(
        on_ranks("""
            parts = [torch.zeros_like(value) for _ in range(world)]
            dist.all_gather(parts, value)
            print(rank, torch.cat(parts))
            """),
        on_ranks("""
            parts = [None] * world
            dist.all_gather_object(parts, value)
            print(rank, torch.cat(parts))
            """),
    ),
)
