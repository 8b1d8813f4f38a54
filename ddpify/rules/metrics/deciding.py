"""What rank 0 tells the others of an evaluation that all ranks repeat, and where."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from ddpify.facts.accumulators import accumulates
from ddpify.facts.containers import LISTS
from ddpify.facts.events import LoopEnd
from ddpify.facts.joining import flat_deps
from ddpify.facts.model import Facts
from ddpify.facts.tree import FUNCTIONS, Tree
from ddpify.facts.values import Kind, Value
from ddpify.source import Site


def left_behind(facts: Facts, end: LoopEnd) -> tuple[str, ...]:
    """What an evaluation adds up; of a meter with several sums the whole."""
    tree = facts.tree(end.loop.site)
    node = tree.statement(end.loop.site)
    if node is None:
        return ()
    summed = tuple(name for name in end.others if accumulates(tree, node, name))
    names = (*end.sums, *end.means, *end.entries, *end.meters, *summed)
    names = (*names, *end.samples, *end.batches)
    return tuple(dict.fromkeys(_owner(end, name, names) for name in names))


def _owner(end: LoopEnd, name: str, names: Sequence[str]) -> str:
    """``meter`` for ``meter.count`` where the meter holds more of the batches than these names."""
    owner, _, _ = name.rpartition(".")
    value = end.loop.frame.lookup(owner) if owner not in end.loop.frame.parameters else None
    things = value.things if value is not None else ()
    if not things or any(thing.kind is not Kind.INSTANCE for thing in things):
        return name
    held = {f"{owner}.{a}" for t in things for a, kept in t.attrs.items() if _of_batches(kept)}
    return owner if held - set(names) else name


def _of_batches(value: Value) -> bool:
    return any(dep.kind is Kind.BATCH for dep in flat_deps(value))


def results(facts: Facts, end: LoopEnd, names: Sequence[str]) -> tuple[list[Site], set[str]]:
    """Calls that make a result of whole lists, and those lists, where that is all they are for.

    ``score = rate(guesses, truths)``: the lists are as long as the data, the score is a number.
    Lists may also be gone through, to show what is in them.
    """
    tree = facts.tree(end.loop.site)
    node = tree.statement(end.loop.site)
    values = ((name, end.loop.frame.lookup(name)) for name in names)
    lists = {name for name, value in values if value is not None and value.of(*LISTS)}
    following = _after(tree, node) if node is not None and lists else []
    calls = [call for statement in following for call in _made_of(statement, lists)]
    known = {n for call in calls for n in ast.walk(call)}
    known |= {n for statement in following for n in _gone_through(statement)}
    reads = {n for statement in following for n in ast.walk(statement) if isinstance(n, ast.Name)}
    if not calls or any(n.id in lists for n in reads - known):
        return [], set()
    told = {c.arg_sites[0] for c in facts.calls if c.name.endswith(".broadcast") and c.arg_sites}
    return [tree.site(call) for call in calls if tree.site(call) not in told], lists


def _after(tree: Tree, node: ast.stmt) -> list[ast.stmt]:
    """The statements after one, to the end of its function; none where it is under a condition."""
    found = list(tree.following(node))
    above = tree.parent(node)
    while isinstance(above, ast.With):
        found += tree.following(above)
        above = tree.parent(above)
    return found if isinstance(above, (*FUNCTIONS, ast.Module)) else []


def _made_of(statement: ast.stmt, lists: set[str]) -> Iterator[ast.Call]:
    made = statement.value if isinstance(statement, ast.Assign) else None
    inner = made.args[0] if isinstance(made, ast.Call) and made.args else None
    for call in (made, inner):
        if not isinstance(call, ast.Call):
            continue
        given = {argument.id for argument in call.args if isinstance(argument, ast.Name)}
        if given & lists:
            yield call


def _gone_through(statement: ast.stmt) -> Iterator[ast.AST]:
    """The heads of loops that add nothing up."""
    for inner in ast.walk(statement):
        if isinstance(inner, ast.For):
            adds = any(isinstance(n, ast.AugAssign) for n in ast.walk(inner))
            yield from () if adds else ast.walk(inner.iter)
