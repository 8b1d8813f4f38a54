"""DDP808: two ranks wait for each other's message before they send their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby, islice

from ddpify.ranks import words
from ddpify.ranks.model import RankCall
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.ranks import on_ranks
from ddpify.rules.shared.blocking import stuck, unmet
from ddpify.rules.shared.messages import Message, messages, of_torch, sent_first

_RECEIVE = f"{words.DIST}recv"
_SEND = f"{words.DIST}send"
_BUFFERED = frozenset({"send", "Send"})
_ADVICE = "let even ranks send first and odd ranks receive first, or use isend()"
_POSTED = (f"{words.DIST}isend", f"{words.DIST}batch_isend_irecv")


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per place at which both ranks wait for each other, for ever."""
    said = set()
    for call, following in _receives(run):
        said.add(call)
        yield Finding(
            "DDP808",
            call.site,
            "all ranks wait here for a message that its sender sends after its own receive: a hang",
            Severity.ERROR,
            advice=_ADVICE,
            because=((following.site, "what they wait for is sent here"),),
        )
    for one, other in _stuck(run):
        if said.isdisjoint((one.call, other.call)):
            said |= {one.call, other.call}
            yield _finding(one, other)
    if not said:
        yield from _all_send(run)


def _all_send(run: Run) -> Iterator[Finding]:
    """Whatever a rank receives, it sends something before: nobody is there to receive that."""
    for sent, received in islice(sent_first(run), 1):
        unsure = sent.method in _BUFFERED and not of_torch(sent)
        yield Finding(
            "DDP808",
            sent.site,
            "all ranks send here before any of them receives, and each waits for the other: a hang"
            + (" where MPI does not buffer the message" if unsure else ""),
            Severity.WARNING if unsure else Severity.ERROR,
            advice=_ADVICE,
            because=((received.site, "what was sent is received here"),),
        )


def _stuck(run: Run) -> Iterator[tuple[Message, Message]]:
    """Where both wait though every message has its other side."""
    found = next(iter(messages(run, meeting=True)), [])
    return stuck(found) if not any(True for _ in unmet(found)) else iter(())


def _finding(one: Message, other: Message) -> Finding:
    """Two ranks that wait for each other."""
    first, second = map(_does, (one, other))
    ways = f"rank 0 {first} here, while rank 1 {second}"
    if first == second:
        ways = f"both ranks {first.removesuffix('s')} here"
    buffered = any(side.sends and side.call.method in _BUFFERED for side in (one, other))
    unsure = buffered and not of_torch(one.call)
    return Finding(
        "DDP808",
        one.call.site,
        f"{ways}, and each waits for the other: a hang"
        + (" where MPI does not buffer the message" if unsure else ""),
        Severity.WARNING if unsure else Severity.ERROR,
        advice=_ADVICE,
        because=((other.call.site, f"rank 1 {second} here"),),
    )


def _does(one: Message) -> str:
    return f"enters {one.call.method}" if one.meets else "sends" if one.sends else "receives"


def _receives(run: Run) -> Iterator[tuple[RankCall, RankCall]]:
    """Receives from a peer that depends on the rank, with the send that follows."""
    messages = [c for c in run.calls if c.name in (_RECEIVE, _SEND, *_POSTED)]
    for _, group in groupby(messages, key=lambda c: (c.stack, c.loops, c.function)):
        first, *rest = list(group)
        source = first.arg(1, "src")
        apart = any(guard.test.by_rank for guard in first.conditions)
        if first.name != _RECEIVE or not first.everywhere or source is None or apart:
            continue
        if source.by_rank and rest and rest[0].name == _SEND and rest[0].everywhere:
            yield first, rest[0]


RULE = Rule(
    "DDP808",
    "same-order-point-to-point",
    "recv() returns when the message is there. If every rank first receives from its neighbour"
    " and sends afterwards, nobody ever sends (measured: a timeout on both). Nor does send()"
    " return before its message is received: with gloo two ranks that first send to each other"
    " time out, with ten numbers as with four million, and so do two that send and receive two"
    " tags in different orders. MPI may buffer what is short: with Open MPI Send() of 8 MB hangs"
    " (measured). Order the calls by parity, post one of them with isend() or irecv(), or hand"
    " both to batch_isend_irecv().",
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
)
