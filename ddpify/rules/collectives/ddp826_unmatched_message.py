"""DDP826: a message that nobody receives, or one that nobody sends."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.ranks import on_ranks
from ddpify.rules.shared.blocking import unmet
from ddpify.rules.shared.messages import Message, messages
from ddpify.site import Site


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per direction in which a message has no other side, whatever the number of
    rounds that is not known."""
    held = [{one.way: (one, other) for one, other in unmet(found)} for found in messages(run)]
    if not held:
        return
    first, second = held
    wrong = {way: found for way, found in first.items() if way[0] == way[1]}
    if any(one.names for one, _ in wrong.values()):
        return  # `if args.role == "server"`: what is not known tells the ranks apart
    for way, (one, other) in (wrong or first).items():
        if way in second and second[way][0].call is one.call:
            yield _finding(run, one, other)


def _finding(run: Run, one: Message, other: Message | None) -> Finding:
    sender, receiver = one.way
    if sender == receiver:
        what, advice = f"rank {sender} exchanges this message with itself", "name the other rank"
    elif one.sends:
        what = f"rank {receiver} never receives this message of rank {sender}"
        advice = "receive as many messages as are sent, with the same tags"
    else:
        what = f"rank {sender} never sends what rank {receiver} waits for here"
        advice = "send as many messages as are received, with the same tags"
    because: tuple[tuple[Site, str], ...] = ()
    if other is not None and other.tag != one.tag:
        what = f"{what}: its tag is {other.tag}, not {one.tag}"
        because = ((other.call.site, f"what goes from rank {sender} to rank {receiver}"),)
    return Finding(
        "DDP826",
        one.call.site,
        f"{what}{',' if because else ':'} a hang or lost data",
        Severity.ERROR,
        advice=advice,
        because=because,
    )


RULE = Rule(
    "DDP826",
    "unmatched-message",
    "A message has two sides, with one tag. A send() waits until it is received, even one of ten"
    " numbers (measured with gloo: both ranks time out where the tags differ, and where a message"
    " is sent or received once more than on the other side). Only programs are judged of which"
    " every message is understood; numbers that are not known, such as --steps, are the same on"
    " both ranks. NCCL does not look at tags.",
    "torch.distributed documentation, point-to-point communication; MPI-CorrBench, unmatched calls",
    lint=lint,
    words=("send(", "recv(", "Send(", "Recv("),
    bad=(
        on_ranks("""
            if rank == 0:
                dist.send(value, dst=1, tag=1)
            else:
                dist.recv(value, src=0, tag=2)  # DDP826
            """),
        on_ranks("""
            if rank == 0:
                dist.send(value, dst=1)
                dist.send(value * 2, dst=1)  # DDP826
            else:
                dist.recv(value, src=0)
            """),
        on_ranks("""
            if rank == 0:
                for step in range(3):
                    dist.send(value, dst=1)
            else:
                for step in range(4):
                    dist.recv(value, src=0)  # DDP826
            """),
    ),
    good=(
        on_ranks("""
            if rank == 0:
                dist.send(value, dst=1, tag=2)
            else:
                dist.recv(value, src=0, tag=1 + 1)
            """),
        on_ranks("""
            if rank == 0:
                for peer in range(1, world):
                    dist.send(value, dst=peer)
                    dist.recv(value, src=peer)
            else:
                dist.recv(value, src=0)
                dist.send(value, dst=0)
            """),
        on_ranks("""
            steps = int(os.environ.get("STEPS", "3"))
            if rank == 0:
                for step in range(steps):
                    dist.send(value, dst=1)
                dist.send(-value, dst=1)
            else:
                for step in range(steps + 1):
                    dist.recv(value, src=0)
            """),
    ),
)
