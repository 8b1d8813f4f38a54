"""DDP811: the process group is destroyed also when this rank has failed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ddpify.ranks import words
from ddpify.ranks.model import RankCall
from ddpify.ranks.run import Run
from ddpify.rules.base import Example, Finding, Rule, Severity
from ddpify.rules.examples.ranks import on_ranks
from ddpify.rules.shared.exchanges import exchanges
from ddpify.rules.shared.placing import may_be_nccl
from ddpify.site import Site


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per ``finally`` that meets the others, or leaves them, while its block holds
    collectives."""
    said: set[Site] = set()
    for call, closing, body in _closings(run):
        entered = next((c for c in exchanges(run) if c.place_in(body)), None)
        if entered is not None and closing not in said:
            said.add(closing)
            yield Finding(
                "DDP811",
                call.site,
                "a rank that fails waits here for peers that are inside a collective: its error"
                " may not be seen before the time limit",
                Severity.WARNING,
                advice="meet and destroy the group after success only; torchrun ends the others",
                because=((entered.site, "the others may be here"),),
            )


def _closings(run: Run) -> Iterator[tuple[RankCall, Site, Site]]:
    """The calls of a ``finally`` at which a rank waits, in order, with that and its block.

    With gloo destroy_process_group returns at once (measured), and the others' collectives fail.
    """
    named = run.named(f"{words.DIST}destroy_process_group")
    ends = list(named) if run.once(may_be_nccl) else []
    for call in sorted((*ends, *exchanges(run)), key=lambda one: one.order):
        for tried in (tried for one in call.way for tried in one.module.attempts):
            closing = tried.closing
            if closing is not None and call.place_in(closing):
                guarded = any(guard.site.within(closing) for guard in call.guards)
                if call in ends or not guarded:
                    yield call, closing, tried.body


_EITHER = '"nccl" if torch.cuda.is_available() else "gloo"'


def _closed(end: str, close: str = "    pass", backend: str = _EITHER) -> Example:
    text = f"""import torch
import torch.distributed as dist


def close():
{close}


def main():
    dist.init_process_group({backend})
    try:
        value = torch.ones(1)
        dist.all_reduce(value)
    finally:
        {end}


if __name__ == "__main__":
    main()
"""
    return Example((("main.py", text),))


RULE = Rule(
    "DDP811",
    "destroy-in-finally",
    "`finally` also runs on the rank that has just failed. destroy_process_group() then meets peers"
    " that wait inside a collective: with NCCL it may block until the time limit, so that the job"
    " hangs and the error is shown late or never. A rank that simply ends with its error is noticed"
    " by torchrun, which ends the others.",
    "torchtitan PR#1342; BUGS C19",
    lint=lint,
    bad=(
        _closed("dist.destroy_process_group()  # DDP811"),
        _closed("close()", "    dist.destroy_process_group()  # DDP811"),
        _closed("dist.barrier()  # DDP811\n        dist.destroy_process_group()"),
    ),
    good=(
        on_ranks("""
            stream = open(f"log{rank}.txt", "w")
            try:
                dist.all_reduce(value)
            finally:
                stream.close()
            """),
        _closed("dist.destroy_process_group()", backend='"gloo"'),
    ),
    severity=Severity.WARNING,
    fixes=False,
)
