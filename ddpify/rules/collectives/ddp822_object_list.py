"""DDP822: an object list that cannot be read back, or that has another length on another rank."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.ranks import words
from ddpify.ranks.model import ALL, RankCall
from ddpify.ranks.origins import Symbol
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.ranks import on_ranks
from ddpify.rules.shared.arms import meeting
from ddpify.rules.shared.lengths import length
from ddpify.rules.shared.written import has_uneven_lists, is_collection


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per broadcast_object_list whose list is written in the call, or is uneven."""
    for call in run.named(f"{words.DIST}broadcast_object_list"):
        given = call.node_of(0, "object_list")
        if is_collection(given) and not _sends_only(call):
            message = (
                "the objects arrive in a list that nobody can read: the other ranks keep theirs"
            )
            yield _finding(call, message, "name the list, and read it back after the call")
        elif _is_empty_at_root(call):
            message = "the rank that sends has None in this list, and what another one has is lost"
            yield _finding(call, message, "let the rank send that has the objects")
        elif _by_rank(call) and has_uneven_lists(call, given):
            yield _uneven(call)
    for one, other in meeting(run):
        if one.call.method == other.call.method == "broadcast_object_list":
            first, second = one.given("object_list"), other.given("object_list")
            lengths = (first and length(first, 0), second and length(second, 1))
            if None not in lengths and lengths[0] != lengths[1]:
                yield _uneven(other.call)


def _uneven(call: RankCall) -> Finding:
    message = "the lists have different lengths on the ranks: a crash, or damaged objects"
    return _finding(call, message, "fill the other ranks' list up with None")


def _is_empty_at_root(call: RankCall) -> bool:
    """Whether the root's elements are None, and those of another rank are not."""
    value, source = call.arg(0, "object_list"), call.arg(1, "src")
    root = source.constant if source is not None else 0
    items = value.items if value is not None else None
    if not items or call.ranks != ALL or root not in (0, 1) or isinstance(root, bool):
        return False
    held = [item.atoms for item in items]
    return all(atoms[root] is None for atoms in held) and any(
        atoms[1 - root] is not None and not isinstance(atoms[1 - root], Symbol) for atoms in held
    )


def _finding(call: RankCall, message: str, advice: str) -> Finding:
    return Finding("DDP822", call.site, message, Severity.ERROR, advice=advice)


def _sends_only(call: RankCall) -> bool:
    """Whether the rank alone comes here that sends, and need not read anything back."""
    source = call.arg(1, "src")
    number = source.constant if source is not None else 0
    return number in (0, 1) and call.ranks == 1 << number


def _by_rank(call: RankCall) -> bool:
    value = call.arg(0, "object_list")
    return value is not None and value.by_rank


RULE = Rule(
    "DDP822",
    "object-list-misuse",
    "broadcast_object_list() replaces the elements of the list it is given. A list that is written"
    " in the call is thrown away with what arrived in it, so the other ranks go on with None"
    " (measured). It must be as long on every rank: with 2 and 1 elements gloo aborts, with 1 and 2"
    " ranks read what nobody has sent (measured: EOFError).",
    "torch.distributed.broadcast_object_list documentation; BUGS L10",
    lint=lint,
    bad=(
        on_ranks("""
            name = "run-7" if rank == 0 else None
            dist.broadcast_object_list([name], src=0)  # DDP822
            print(rank, name)
            """),
        on_ranks("""
            if rank == 0:
                objects = ["run-7", 3]
            else:
                objects = [None]
            dist.broadcast_object_list(objects, src=0)  # DDP822
            print(rank, objects[0])
            """),
    ),
    good=(
        on_ranks("""
            objects = ["run-7" if rank == 0 else None]
            dist.broadcast_object_list(objects, src=0)
            print(rank, objects[0])
            """),
        on_ranks("""
            if rank == 0:
                objects = ["run-7", 3]
            else:
                objects = [None, None]
            dist.broadcast_object_list(objects, src=0)
            print(rank, *objects)
            """),
    ),
    fixes=False,
)
