"""DDP824: an asynchronous collective that nobody waits for."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from ddpify.ranks.collective import collective
from ddpify.ranks.model import Call
from ddpify.ranks.run import Run
from ddpify.rules.base import Edit, Finding, How, Rule, Severity
from ddpify.rules.examples.ranks import on_ranks
from ddpify.rules.shared.syntax import definitions, parents, reads, scope, variable


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per handle of an asynchronous collective that is dropped."""
    if any(run.named("torch.cuda.synchronize")):
        return
    for call in run.calls:
        shared = collective(call)
        if shared is None or shared.waits is not False or call.method == "barrier":
            continue
        if _dropped(call):
            yield _finding(call)


def _dropped(call: Call) -> bool:
    if call.alone:
        return True
    if _only_collected(call):
        return True
    name = variable(call)
    return name is not None and not reads(scope(call), name, call.node) and not call.loops


def _only_collected(call: Call) -> bool:
    """Whether the handle goes into a list, of this function or of no name, that nothing reads."""
    above = parents(scope(call))
    holder = above.get(call.node)
    if isinstance(holder, (ast.ListComp, ast.SetComp)):
        return isinstance(above.get(holder), ast.Expr)
    if not isinstance(holder, ast.Call) or not _is_append(holder.func):
        return False
    assert isinstance(holder.func, ast.Attribute)
    name = holder.func.value
    if call.function is None or not isinstance(name, ast.Name) or not any(definitions(call, name)):
        return False
    return all(
        _is_append(above.get(node))
        for node in above
        if isinstance(node, ast.Name) and node.id == name.id and isinstance(node.ctx, ast.Load)
    )


def _is_append(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "append"


def _finding(call: Call) -> Finding:
    return Finding(
        "DDP824",
        call.site,
        "nobody waits for this collective: what is read afterwards may be the old value",
        Severity.ERROR,
        (
            (Edit(How.ARGUMENT, call.site, "", "async_op"),)
            if call.alone and "async_op" in call.kwargs
            else ()
        ),
        "keep the handle, and call its wait() before the tensor is used",
    )


RULE = Rule(
    "DDP824",
    "async-not-awaited",
    "With async_op=True the call returns at once, with a handle. Until its wait() has returned the"
    " tensor may hold the old value, the sum or a part of it (measured: 1.0 before, 3.0 after the"
    " wait).",
    "torch.distributed documentation, synchronous and asynchronous collectives; BUGS L12",
    lint=lint,
    bad=(
        on_ranks("""
            dist.all_reduce(value, async_op=True)  # DDP824
            print(rank, value / world)
            """),
        on_ranks("""
            work = dist.all_reduce(value, async_op=True)  # DDP824
            print(rank, value / world)
            """),
        on_ranks("""
            [dist.broadcast(one, src=0, async_op=True) for one in (value, value * 2)]  # DDP824
            print(rank, value / world)
            """),
    ),
    good=(
        on_ranks("""
            work = dist.all_reduce(value, async_op=True)
            work.wait()
            print(rank, value / world)
            """),
        on_ranks("""
            handles = [dist.all_reduce(value, async_op=True)]
            for handle in handles:
                handle.wait()
            """),
        on_ranks("dist.all_reduce(value, async_op=True).wait()"),
    ),
)
