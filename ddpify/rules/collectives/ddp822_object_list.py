"""DDP822: an object list that cannot be read back, or that has another length on another rank."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from ddpify.ranks import words
from ddpify.ranks.model import Call
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.ranks import on_ranks
from ddpify.rules.shared.syntax import scope

_LITERALS = (ast.List, ast.ListComp, ast.Tuple, ast.Dict, ast.DictComp, ast.GeneratorExp)


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per broadcast_object_list whose list is written in the call, or is uneven."""
    for call in run.named(f"{words.DIST}broadcast_object_list"):
        given = call.node_of(0, "object_list")
        if isinstance(given, _LITERALS):
            message = (
                "the objects arrive in a list that nobody can read: the other ranks keep theirs"
            )
            yield _finding(call, message, "name the list, and read it back after the call")
        elif isinstance(given, ast.Name) and _uneven(call, given.id):
            message = "the lists have different lengths on the ranks: a crash, or damaged objects"
            yield _finding(call, message, "fill the other ranks' list up with None")


def _finding(call: Call, message: str, advice: str) -> Finding:
    return Finding("DDP822", call.site, message, Severity.ERROR, advice=advice)


def _uneven(call: Call, name: str) -> bool:
    """Whether the list is set in both arms of a condition on the rank, to unequal lengths."""
    value = call.arg(0, "object_list")
    if value is None or not value.by_rank:
        return False
    for node in ast.walk(scope(call)):
        if isinstance(node, ast.If):
            lengths = {_length(arm, name) for arm in (node.body, node.orelse)}
            if len(lengths) == 2 and None not in lengths:
                return True
    return False


def _length(body: list[ast.stmt], name: str) -> int | None:
    """How long the list is that these statements assign to ``name``; None if that is not plain."""
    for node in body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.List):
            target = node.targets[0]
            if isinstance(target, ast.Name) and target.id == name:
                starred = any(isinstance(one, ast.Starred) for one in node.value.elts)
                return None if starred else len(node.value.elts)
    return None


RULE = Rule(
    "DDP822",
    "object-list-misuse",
    "broadcast_object_list() replaces the elements of the list it is given. A list that is written"
    " in the call is thrown away with what arrived in it, so the other ranks go on with None"
    " (measured: half the length after the sum). It must be as long on every rank: with 2 and 1"
    " elements gloo aborts or asks for 3 exabytes.",
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
)
