"""DDP826: a message that nobody receives, or one that nobody sends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from ddpify.ranks.model import RankGuard
from ddpify.ranks.origins import Symbol
from ddpify.ranks.run import Run
from ddpify.ranks.values import text
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.collectives.first_stop import left_at_first
from ddpify.rules.collectives.left_out import left_out
from ddpify.rules.collectives.neighbours import unmet_with_more
from ddpify.rules.collectives.store_keys import unset_keys
from ddpify.rules.examples.ranks import on_ranks
from ddpify.rules.shared.blocking import pairs, unmet
from ddpify.rules.shared.crossed import Given, crossed, exchanged
from ddpify.rules.shared.messages import Message, messages
from ddpify.rules.shared.sides import of_torch
from ddpify.rules.shared.tensors import dtype
from ddpify.site import Site

_ORDERS: Final = frozenset((name,) for name in "Lt LtE Gt GtE".split())


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per direction in which a message has no other side."""
    yield from _mixed(run)
    yield from _swapped(run)
    yield from _seldom(run)
    waiting = unmet_with_more(run)
    if waiting is not None:
        yield Finding(
            "DDP826",
            waiting.site,
            "with more than two ranks, whom this rank receives from sends to another one: a hang",
            Severity.WARNING,
            advice="send to one neighbour and receive from the other",
        )
    for server, last in left_at_first(run):
        yield Finding(
            "DDP826",
            last.site,
            "with more than two ranks, each sends this last message, and rank 0 leaves when it has"
            " received one: the others wait, a hang",
            Severity.WARNING,
            advice="count how many ranks have said so, and leave at the last one",
            because=((server.site, "rank 0 receives from any rank here"),),
        )
    for sent, waits in left_out(run):
        yield Finding(
            "DDP826",
            sent.site,
            "with more than two ranks, the last rank is left out here, and waits for a message that"
            " says it may leave: a hang",
            Severity.WARNING,
            advice="send it to range(1, world_size)",
            because=((waits.site, "where the last rank waits"),),
        )
    for waits, key, sets in unset_keys(run):
        yield Finding(
            "DDP826",
            waits.site,
            f"no rank ever sets the key `{key}` that this {waits.method}() waits for: a hang",
            Severity.WARNING,
            advice="wait for the very keys that are set",
            because=((sets.site, "keys are set here"),),
        )
    found = [*unmet(messages(run))]
    wrong = [(one, other) for one, other in found if one.way[0] == one.way[1]]
    if not any(one.names for one, _ in wrong):  # `if args.role == "server"`: who is who
        yield from (_finding(one, other) for one, other in wrong or found)


def _mixed(run: Run) -> Iterator[Finding]:
    """A pickle that is received as a buffer, or the other way round: ``send()`` and ``Recv()``."""
    for sent, received in pairs(run):
        if not of_torch(sent.call) and sent.call.method.islower() != received.call.method.islower():
            kinds = "a pickled object", "a buffer of numbers"
            given, taken = kinds if sent.call.method.islower() else kinds[::-1]
            yield Finding(
                "DDP826",
                received.call.site,
                f"{sent.call.method}() sends {given}, and {received.call.method}() receives"
                f" {taken}: a crash or numbers that nobody has sent",
                Severity.ERROR,
                advice="use send() with recv(), or Send() with Recv()",
                because=((sent.call.site, "it is sent here"),),
            )


def _swapped(run: Run) -> Iterator[Finding]:
    """Two messages that are received into each other's variables."""
    given: dict[object, list[tuple[Given, Given]]] = {}
    for one, other in pairs(run):
        sides = [side for side in (one, other) if side.call.args]
        if len({dtype(side.call.args[0], side.rank) for side in sides} - {None}) > 1:
            continue  # DDP809 speaks of that
        pair = ((one.call, exchanged(one.call)), (other.call, exchanged(other.call)))
        for way in (None, one.way):  # what comes back has names of its own
            given.setdefault(way, []).append(pair)
    found = (one for held in given.values() for one in crossed(held))
    for sent, first, received, second in islice(found, 1):
        yield Finding(
            "DDP826",
            received.site,
            f"`{first}` is received here as `{second}`, and the other way round: wrong numbers",
            Severity.WARNING,
            advice="receive in the order in which they are sent",
            because=((sent.site, f"`{first}` is sent here"),),
        )


def _seldom(run: Run) -> Iterator[Finding]:
    """Messages of which one side's numbers decide."""
    for one, guard, other in _unsteady(messages(run)):
        what = "is sent" if one.sends else "is received"
        waits = "waits for it" if one.sends else "sends it"
        yield Finding(
            "DDP826",
            one.call.site,
            f"this message {what} only where rank {one.rank}'s own numbers say so, and rank"
            f" {other.rank} {waits} in each round: a hang",
            Severity.WARNING,
            advice="send in each round whether something follows",
            because=((guard.site, "the condition"), (other.call.site, f"rank {other.rank} here")),
        )


def _unsteady(found: list[Message]) -> Iterator[tuple[Message, RankGuard, Message]]:
    """The message that is not there in each round, why, and the one that waits for it."""
    ways = {one.way for one in found}
    for way in ways:
        here = [one for one in found if one.way == way]
        sides = [[one for one in here if one.sends is sends] for sends in (True, False)]
        if len(sides[0]) != len(sides[1]):
            continue
        for some, others in (sides, sides[::-1]):
            guard = _varying(some[0])
            if guard is None or _is_answer(guard, some[0].rank, found):
                continue  # what comes back may say whether another one follows
            if all(one.names < some[0].names for one in others):
                yield some[0], guard, others[0]


def _is_answer(guard: RankGuard, rank: int, found: list[Message]) -> bool:
    """Whether a condition asks what the rank has received."""
    asked = set(guard.test.sources())
    for one in found:
        held = {t for v in (one.call.arg(0, "tensor"), one.call.result) if v for t in v.things}
        if one.rank == rank and not one.sends and (not held or held & asked):
            return True
    return False


def _varying(one: Message) -> RankGuard | None:
    """The only condition, if it says how large a number is that is computed in each round."""
    guard = one.tests[0] if len(one.tests) == 1 else None
    atom = guard.test.atoms[one.rank] if guard is not None else None
    if guard is None or not isinstance(atom, Symbol) or atom.parts[:1] not in _ORDERS:
        return None
    if any(text(part).startswith("len(") for part in atom.parts):
        return None
    made = (thing.call for thing in guard.test.sources())
    return guard if any(call and {*call.loops} & {*one.call.loops} for call in made) else None


def _finding(one: Message, other: Message | None) -> Finding:
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
    " both ranks; but a message that rank 0 sends where its own loss is better is not there in each"
    " round. Of a ring, peers are computed for three and four ranks, too: to the right and from the"
    " right is right with two alone (measured with three: a timeout). Messages of one tag arrive in"
    " order, so two that are received in another one are swapped (measured); and mpi4py's send()"
    " pickles what Recv() would take for numbers. NCCL does not look at tags. A root that closes"
    " with range(1, world_size - 1) leaves out the last rank; and a store's wait() and get() wait"
    " for the very key that is set (measured: a timeout).",
    "torch.distributed documentation, point-to-point communication; MPI-CorrBench, unmatched calls",
    lint=lint,
    words=("send(", "recv(", "Send(", "Recv(", "Store(", ".set(", ".wait(["),
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
    fixes=False,
)
