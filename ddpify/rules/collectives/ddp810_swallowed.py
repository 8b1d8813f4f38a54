"""DDP810: an error of one rank is passed over in a loop with collectives."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Final

from ddpify.ranks.model import Call, Loop
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.collectives.exchanges import exchanges
from ddpify.rules.examples.gradients import trained

# Errors that one rank meets alone; those that a `raise` in the block names count, too.
_ALONE: Final = frozenset(
    "Exception BaseException RuntimeError OutOfMemoryError DistBackendError"
    " FloatingPointError".split()
)


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per handler that lets a loop go on after a failed exchange."""
    for call in exchanges(run):
        for block in call.swallows:
            if not _repeated(call, block) or _agreed(run, block):
                continue
            for handler in block.handlers:
                if _catches(block, handler) and not _ends(handler):
                    yield _finding(call, block, handler)


def _finding(call: Call, block: ast.Try, handler: ast.ExceptHandler) -> Finding:
    where = next(one for one in (call, *reversed(call.stack)) if _holds(block.body, one.node))
    return Finding(
        "DDP810",
        where.module.site(handler),
        "a rank that fails here goes on alone: its later collectives pair with other ones of the"
        " others, which gives wrong numbers or a hang",
        Severity.ERROR,
        advice="let the error end the job, or let the ranks agree to skip before anything is sent",
        because=((call.site, "the ranks meet here"),),
    )


def _holds(body: list[ast.stmt], node: ast.AST) -> bool:
    return any(node is below for one in body for below in ast.walk(one))


def _repeated(call: Call, block: ast.Try) -> bool:
    """Whether a loop around the ``try`` goes on with the next round."""
    chain = [*call.stack, call]
    inner = next((n for n, one in enumerate(chain) if _holds(block.body, one.node)), None)
    if inner is None:
        return False
    outer = chain[inner]
    return any(_around(loop, block) for loop in outer.loops) or any(
        loop in outer.loops for one in chain[:inner] for loop in one.loops
    )


def _around(loop: Loop, block: ast.Try) -> bool:
    return any(node is block for node in ast.walk(loop.node))


def _agreed(run: Run, block: ast.Try) -> bool:
    """Whether a handler tells the others."""
    return any(
        _holds(handler.body, call.node) for call in exchanges(run) for handler in block.handlers
    )


def _catches(block: ast.Try, handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    caught = set(_names(handler.type))
    return bool(caught & (_ALONE | set(_raised(block))))


def _names(node: ast.expr) -> Iterator[str]:
    for one in node.elts if isinstance(node, ast.Tuple) else (node,):
        if isinstance(one, (ast.Name, ast.Attribute)):
            yield one.id if isinstance(one, ast.Name) else one.attr


def _raised(block: ast.Try) -> Iterator[str]:
    for statement in block.body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Raise) and node.exc is not None:
                yield from _names(node.exc.func if isinstance(node.exc, ast.Call) else node.exc)


def _ends(handler: ast.ExceptHandler) -> bool:
    """Whether a handler ends the program, or the loop by way of an error."""
    last = handler.body[-1]
    if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call):
        return "exit" in ast.unparse(last.value.func) or "abort" in ast.unparse(last.value.func)
    return isinstance(last, ast.Raise)


RULE = Rule(
    "DDP810",
    "swallowed-failure",
    "An error in one batch is an error of one rank: out of memory, a bad row, a loss that is not"
    " finite. A handler that goes on with the next batch leaves the collectives of that batch out,"
    " and every later one pairs with a wrong one (measured: exit code 0, shifted gradients). An"
    " error that is raised again ends the job on all ranks, which is what torchrun expects.",
    "ace#850; Megatron-DeepSpeed PR#48; BUGS C18",
    lint=lint,
    bad=(
        trained(loop="""
            for x, y in loader:
                optimizer.zero_grad()
                try:
                    F.cross_entropy(model(x), y).backward()
                except RuntimeError:  # DDP810
                    continue
                optimizer.step()
            """),
        trained(
            loop="""
            for x, y in loader:
                try:
                    learn(model, optimizer, x, y)
                except (RuntimeError, ValueError) as error:  # DDP810
                    print(dist.get_rank(), error)
            """,
            top="""

            def learn(model, optimizer, x, y):
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
            """,
        ),
    ),
    good=(
        trained(loop="""
            for x, y in loader:
                optimizer.zero_grad()
                try:
                    F.cross_entropy(model(x), y).backward()
                except RuntimeError as error:
                    raise RuntimeError(f"epoch {epoch} failed") from error
                optimizer.step()
            """),
        trained(loop="""
            for x, y in loader:
                optimizer.zero_grad()
                try:
                    x = x.clamp(-1, 1)
                except RuntimeError:
                    continue
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
            """),
    ),
)
