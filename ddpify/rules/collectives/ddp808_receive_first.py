"""DDP808: two ranks wait for each other's message before they send their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from ddpify.ranks import words
from ddpify.ranks.model import RankCall
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.ranks import on_ranks

_RECEIVE = f"{words.DIST}recv"
_SEND = f"{words.DIST}send"
_POSTED = (f"{words.DIST}isend", f"{words.DIST}batch_isend_irecv")


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per receive on all ranks whose message is sent only after it."""
    for call, following in _receives(run):
        yield Finding(
            "DDP808",
            call.site,
            "all ranks wait here for a message that its sender sends after its own receive: a hang",
            Severity.ERROR,
            advice="let even ranks send first and odd ranks receive first, or use isend()",
            because=((following.site, "what they wait for is sent here"),),
        )


def _receives(run: Run) -> Iterator[tuple[RankCall, RankCall]]:
    """Receives from a peer that depends on the rank, with the send that follows."""
    messages = [c for c in run.calls if c.name in (_RECEIVE, _SEND, *_POSTED)]
    for _, group in groupby(messages, key=lambda c: (c.stack, c.loops, c.function)):
        first, *rest = list(group)
        source = first.arg(1, "src")
        if first.name != _RECEIVE or not first.everywhere or source is None:
            continue
        if source.by_rank and rest and rest[0].name == _SEND and rest[0].everywhere:
            yield first, rest[0]


RULE = Rule(
    "DDP808",
    "same-order-point-to-point",
    "recv() returns when the message is there. If every rank first receives from its neighbour and"
    " sends afterwards, nobody ever sends (measured: a timeout on both). Order the calls by parity,"
    " post one of them with isend() or irecv(), or hand both to batch_isend_irecv().",
    "torch.distributed documentation, point-to-point communication; BUGS C16",
    lint=lint,
    words=("recv(", "isend("),
    bad=(
        on_ranks("""
            peer = 1 - rank
            other = torch.zeros_like(value)
            dist.recv(other, src=peer)  # DDP808
            dist.send(value, dst=peer)
            """),
        on_ranks("""
            other = torch.zeros_like(value)
            dist.recv(other, (rank - 1) % world)  # DDP808
            dist.send(value, (rank + 1) % world)
            """),
    ),
    good=(
        on_ranks("""
            peer = 1 - rank
            other = torch.zeros_like(value)
            if rank % 2 == 0:
                dist.send(value, dst=peer)
                dist.recv(other, src=peer)
            else:
                dist.recv(other, src=peer)
                dist.send(value, dst=peer)
            """),
        on_ranks("""
            peer = 1 - rank
            other = torch.zeros_like(value)
            sending = dist.isend(value, dst=peer)
            dist.recv(other, src=peer)
            sending.wait()
            """),
    ),
)
