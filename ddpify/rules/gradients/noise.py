"""What is drawn and goes into weights or gradients: each rank's own, so that their models part.

p.grad += 0.01 * torch.randn_like(p.grad)
p.data.add_(torch.randn(p.size()))

Where ranks draw apart they are given rank 0's.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
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
    """Yield a finding per statement of a training loop that draws into what is trained."""
    if facts.whole_batches:  # the ranks draw alike
        return
    rounds = {loop.batch.site for loop in facts.training}
    rounds |= {loop.epoch.site for loop in facts.training if loop.epoch is not None}
    seen: set[Site] = set()
    for site, where, draws in _written(facts):
        if site in seen or not any(loop.site in rounds for loop in where.loops()):
            continue
        seen.add(site)
        yield Finding(
            "DDP419",
            site,
            "each rank would draw other numbers into the weights or their gradients: their models"
            " part, without an error",
            Severity.ERROR,
            _alike(facts, where, draws),
            advice="draw on rank 0 for all ranks, in a statement of its own: `broadcast(noise)`",
        )


def _written(facts: Facts) -> Iterator[tuple[Site, Where, tuple[Thing, ...]]]:
    """Where weights or gradients are written, and the draws that go into them: none where the
    write itself draws."""
    for bind in facts.binds:
        draws = bind.value.dep(Kind.RANDOM)
        if draws and _is_changed(facts, bind.site):
            yield bind.site, bind.where, draws
    for call in facts.calls:
        if call.name.startswith(INITIALISES):
            if call.args and _is_weight(call.args[0]) and not call.name.endswith(_CONSTANT):
                yield call.site, call.where, ()
        elif call.receiver is not None and writes(call.name) and _is_weight(call.receiver):
            given = [d for v in (*call.args, *call.kwargs.values()) for d in flat_deps(v)]
            draws = tuple(dict.fromkeys(d for d in given if d.kind is Kind.RANDOM))
            if draws or call.name in _FILLS:
                yield call.site, call.where, draws


def _is_weight(value: Value) -> bool:
    """Whether it is a parameter, its data or its gradient; nothing that a model computes."""
    return bool(value.dep(*_WEIGHTS)) and not value.dep(Kind.FORWARD, Kind.BATCH)


def _is_changed(facts: Facts, site: Site) -> bool:
    """Whether what is assigned there is a weight: ``p.data = …``, ``w[mask] = …``, ``p += …``."""
    tree = facts.tree(site)
    target = tree.expression(site)
    if isinstance(target, ast.Name):
        return isinstance(tree.parent(target), ast.AugAssign) and _is_looped_over(facts, target, tree)
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


def _alike(facts: Facts, where: Where, draws: tuple[Thing, ...]) -> tuple[Edit, ...]:
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
