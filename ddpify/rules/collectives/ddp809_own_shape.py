"""DDP809: the tensors that meet in a collective differ in size or type between the ranks."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Final

from ddpify.ranks.collective import collective
from ddpify.ranks.model import Call, Value
from ddpify.ranks.run import Run
from ddpify.ranks.values import spread
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.ranks import on_ranks
from ddpify.rules.shared.syntax import resolved

# The parameter of each collective that takes the tensor that has to be alike on all ranks.
_SENT: Final = {
    "all_gather": "tensor",
    "all_gather_into_tensor": "input_tensor",
    "gather": "tensor",
    "all_reduce": "tensor",
    "reduce": "tensor",
}
_KEEPING: Final = frozenset(
    "cuda cpu to float double half bfloat16 int long bool contiguous detach clone squeeze".split()
)
_PICKING: Final = frozenset({"nonzero", "masked_select", "unique", "argwhere", "flatnonzero"})
_MASKS: Final = (ast.Compare, ast.BoolOp)
_DEPTH: Final = 6


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per tensor of a size or a type of this rank's own."""
    for call in run.calls:
        shared, name = collective(call), _SENT.get(call.method, "")
        value, node = (shared.given(name), shared.node(name)) if shared else (None, None)
        if value is None or node is None or shared is None or shared.group is not None:
            continue
        if spread(value) and _own_size(run, call, node, _DEPTH):
            yield _finding(call, "as long as this rank's data make it", "pad to the longest first")
        elif _own_type(value):
            yield _finding(call, "an integer on one rank and a float on another", "give the dtype")


def _finding(call: Call, what: str, advice: str) -> Finding:
    return Finding(
        "DDP809",
        call.site,
        f"the tensor is {what}: wrong numbers or a crash",
        Severity.ERROR,
        advice=f"{advice}, or use all_gather_object",
    )


def _own_size(run: Run, call: Call, node: ast.expr, depth: int) -> bool:
    """Whether an expression picks rows by their values, and nothing brings them to one length."""
    if depth == 0:
        return False
    if isinstance(node, (ast.Name, ast.Attribute)):
        found = [one for one in resolved(call, node) if one[1] is not node]
        return bool(found) and all(_own_size(run, *one, depth - 1) for one in found)
    if isinstance(node, ast.Subscript):
        return any(isinstance(index, _MASKS) for _, index in resolved(call, node.slice))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr in _KEEPING:
            return _own_size(run, call, node.func.value, depth - 1)
        if node.func.attr in _PICKING:
            return True
    found = _returned(run, node)
    return bool(found) and all(_own_size(run, *one, depth - 1) for one in found)


def _returned(run: Run, node: ast.expr) -> list[tuple[Call, ast.expr]]:
    """What a function of the project may return, each with a call that stands in it."""
    entered = next((c for c in run.calls if c.node is node and c.target is not None), None)
    if entered is None or entered.target is None:
        return []
    inside = next((c for c in run.calls if c.stack and c.stack[-1] is entered), None)
    returns = [one for one in ast.walk(entered.target.node) if isinstance(one, ast.Return)]
    if inside is None or inside.function is not entered.target:
        return []
    return [(inside, one.value) for one in returns if one.value is not None]


def _own_type(value: Value) -> bool:
    """``torch.tensor(x)`` of an integer on one rank and of a float on the other."""
    made = value.made_by("torch.tensor")
    if made is None or made.call is None or "dtype" in made.call.kwargs or not made.call.args:
        return False
    kinds = {type(atom) for atom in made.call.args[0].atoms}
    return len(kinds) == 2 and kinds <= {int, float, bool}


RULE = Rule(
    "DDP809",
    "shapes-may-differ",
    "A collective moves as many bytes as each rank's own tensor has. Rows that a mask, nonzero() or"
    " unique() leaves differ in number between ranks, and torch.tensor(x) takes its type from x:"
    " measured, an abort on one rank, 1065353216 instead of 1 where a float met an integer, 2e-41"
    " where lengths differed. Pad to the longest, state the dtype, or send objects.",
    "pytorch#156627; ignite#1569; lightning#7773; BUGS C17",
    lint=lint,
    bad=(
        on_ranks("""
            scores = torch.arange(4.0) + rank
            mine = scores[scores > 2]
            parts = [torch.zeros_like(mine) for _ in range(world)]
            dist.all_gather(parts, mine)  # DDP809
            """),
        on_ranks("""
            count = torch.tensor(1.0 if rank == 0 else 2)
            dist.all_reduce(count)  # DDP809
            """),
    ),
    good=(
        on_ranks("""
            scores = torch.arange(4.0) + rank
            mine = scores[scores > 2]
            parts = [None] * world
            dist.all_gather_object(parts, mine)
            """),
        on_ranks("""
            scores = torch.arange(4.0) + rank
            total = scores[scores > 2].sum()
            dist.all_reduce(total)
            """),
        on_ranks("""
            count = torch.tensor(1 if rank == 0 else 2, dtype=torch.float32)
            dist.all_reduce(count)
            """),
    ),
)
