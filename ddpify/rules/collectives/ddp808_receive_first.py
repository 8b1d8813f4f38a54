"""DDP808: two ranks wait for each other's message before they send their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from ddpify.ranks.model import RankCall
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.ranks import on_ranks
from ddpify.rules.shared.blocking import stuck, unmet
from ddpify.rules.shared.messages import Message, messages
from ddpify.rules.shared.sides import of_torch, sent_first

_BUFFERED = frozenset({"send", "Send"})


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per place at which both ranks wait for each other, for ever."""
    found = messages(run, meeting=True)
    held = [*stuck(found)] if not any(True for _ in unmet(found)) else []
    yield from (_both(one, other) for one, other in held)
    if not held:
        yield from _all_send(run)


def _all_send(run: Run) -> Iterator[Finding]:
    """Whatever a rank receives, it sends something before: nobody is there to receive that."""
    for sent, received in islice(sent_first(run), 1):
        what = "all ranks send here before any of them receives"
        yield _finding(sent, received, what, "what was sent is received here")


def _both(one: Message, other: Message) -> Finding:
    """Two ranks that wait for each other."""
    first, second = map(_does, (one, other))
    ways = f"rank 0 {first} here, while rank 1 {second}"
    if first == second:
        ways = f"both ranks {first.removesuffix('s')} here"
    return _finding(one.call, other.call, ways, f"rank 1 {second} here")


def _does(one: Message) -> str:
    return f"enters {one.call.method}" if one.meets else "sends" if one.sends else "receives"


def _finding(one: RankCall, other: RankCall, what: str, there: str) -> Finding:
    unsure = not of_torch(one) and not _BUFFERED.isdisjoint({one.method, other.method})
    return Finding(
        "DDP808",
        one.site,
        f"{what}, and each waits for the other: a hang"
        + (" where MPI does not buffer the message" if unsure else ""),
        Severity.WARNING if unsure else Severity.ERROR,
        advice="let even ranks send first and odd ranks receive first, or use isend()",
        because=((other.site, there),),
    )


RULE = Rule(
    "DDP808",
    "same-order-point-to-point",
    "recv() returns when the message is there. If every rank first receives from its neighbour and"
    " sends afterwards, nobody ever sends (measured: a timeout on both). Nor does send() return"
    " before its message is received: with gloo two ranks that first send to each other time out,"
    " with ten numbers as with four million, and so do two that send and receive two tags in"
    " different orders. MPI may buffer what is short: with Open MPI Send() of 8 MB hangs"
    " (measured). So it is with partners that change in each phase, if whatever is received comes"
    " behind a send of the same turn. Order the calls by parity, post one of them with isend() or"
    " irecv(), or hand both to batch_isend_irecv().",
    "torch.distributed documentation, point-to-point communication; BUGS C16",
    lint=lint,
    words=("send(", "recv(", "Send(", "Recv("),
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
        on_ranks("""
            other = torch.zeros_like(value)
            dist.send(value, (rank + 1) % world)  # DDP808
            dist.recv(other, (rank - 1) % world)
            """),
        on_ranks("""
            if rank == 0:
                dist.send(value, dst=1, tag=1)  # DDP808
                dist.send(value, dst=1, tag=2)
            else:
                dist.recv(value, src=0, tag=2)
                dist.recv(value, src=0, tag=1)
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
    fixes=False,
)
