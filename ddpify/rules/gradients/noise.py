"""What each rank would write into weights or gradients for itself, so that their models part.

p.grad += 0.01 * torch.randn_like(p.grad)       # ranks draw apart: they are given rank 0's
p.grad.div_(n_tokens)                           # of its own samples
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from ddpify.facts.events import Call, Where
from ddpify.facts.joining import flat_deps
from ddpify.facts.model import Facts
from ddpify.facts.prepared import DRAWS as INITIALISES
from ddpify.facts.prepared import writes
from ddpify.facts.tree import Tree
from ddpify.facts.values import NOTHING, OF_ONE_RANK, Kind, Thing, Value
from ddpify.rules.base import Edit, Finding, How, Severity
from ddpify.rules.edits import edit, is_local
from ddpify.source import Site

_WEIGHTS: Final = (Kind.PARAMETERS, Kind.MODEL, Kind.WRAPPED)
_FILLS: Final = frozenset(
    ".normal_ .uniform_ .random_ .bernoulli_ .exponential_ .cauchy_ .log_normal_".split()
)
_CONSTANT: Final = ("constant_", "zeros_", "ones_", "eye_", "dirac_")


def noise(facts: Facts) -> Iterable[Finding]:
    """Yield a finding per statement of a training loop that writes another thing on each rank."""
    if facts.whole_batches:  # the ranks draw alike, and have the same samples
        return
    rounds = {loop.batch.site for loop in facts.training}
    rounds |= {loop.epoch.site for loop in facts.training if loop.epoch is not None}
    seen: set[Site] = set()
    for write in _writes(facts):
        draws = [d for value in write.values for d in flat_deps(value) if d.kind is Kind.RANDOM]
        own = any(is_local(facts, value) for value in write.values)
        if write.site in seen or not (draws or own or write.draws):
            continue
        if any(loop.site in rounds for loop in write.where.loops()):
            seen.add(write.site)
            what = "write its own samples' numbers" if own else "draw other numbers"
            yield Finding(
                "DDP419",
                write.site,
                f"each rank would {what} into the weights or their gradients: their models part,"
                " without an error",
                Severity.ERROR,
                () if own or write.draws else _alike(facts, write.where, draws),
                advice="give all ranks the same: `broadcast(noise)`, `reduce_sum(count)`, before",
            )


@dataclass(frozen=True)
class _Write:
    """A statement that writes weights or gradients: by ``values``, or what it ``draws`` itself."""

    site: Site
    where: Where
    values: tuple[Value, ...]
    draws: bool = False


def _writes(facts: Facts) -> Iterator[_Write]:
    for bind in facts.binds:
        if _is_changed(facts, bind.site):
            yield _Write(bind.site, bind.where, (bind.value,))
    for call in facts.calls:
        if call.name.startswith(INITIALISES):
            if call.args and _is_weight(call.args[0]) and not call.name.endswith(_CONSTANT):
                yield _Write(call.site, call.where, (), draws=True)
        elif call.receiver is not None and writes(call.name) and _is_weight(call.receiver):
            given = (*call.args, *call.kwargs.values())
            yield _Write(call.site, call.where, given, call.name in _FILLS)


def _is_weight(value: Value) -> bool:
    """Whether it is a parameter, its data or its gradient; nothing that a model computes."""
    return bool(value.dep(*_WEIGHTS)) and not value.dep(Kind.FORWARD, Kind.BATCH)


def _is_changed(facts: Facts, site: Site) -> bool:
    """Whether what is assigned there is a weight: ``p.data = …``, ``w[mask] = …``, ``p += …``."""
    tree = facts.tree(site)
    target = tree.expression(site)
    if isinstance(target, ast.Name):
        return isinstance(tree.parent(target), ast.AugAssign) and _is_looped_over(
            facts, target, tree
        )
    stored = isinstance(target, ast.Subscript) or (
        isinstance(target, ast.Attribute) and target.attr in ("data", "grad")
    )
    base = target.value if isinstance(target, (ast.Subscript, ast.Attribute)) else None
    value = facts.values.get(tree.site(base), NOTHING) if base is not None else NOTHING
    return stored and _is_weight(value)


def _is_looped_over(facts: Facts, name: ast.Name, tree: Tree) -> bool:
    """``for p in model.parameters(): p += …``: of other names it may be a copy that is changed."""
    for above in tree.ancestors(name):
        if isinstance(above, ast.For):
            names = {n.id for n in ast.walk(above.target) if isinstance(n, ast.Name)}
            if name.id in names:
                return _is_weight(facts.values.get(tree.site(above.iter), NOTHING))
    return False


def _alike(facts: Facts, where: Where, draws: list[Thing]) -> tuple[Edit, ...]:
    """Rank 0's draws for all, where each is made for this and by all ranks; else nothing."""
    for draw in draws:
        calls = [call for call in facts.calls if call.site == draw.born]
        if not calls or not all(_is_shared(facts, call, where) for call in calls):
            return ()
    return tuple(edit(facts, How.REPLACE, draw.born, "broadcast({})") for draw in draws)


def _is_shared(facts: Facts, call: Call, where: Where) -> bool:
    """Whether all ranks come by a draw, in the function in which it is used."""
    asked = [guard.test for guard in call.where.conditions()]
    apart = any(is_local(facts, test) or test.dep(*OF_ONE_RANK) for test in asked)
    return not apart and not call.alone and call.where.function is where.function
