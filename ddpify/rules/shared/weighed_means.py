"""The means that a loop adds up or shows, where ranks' parts of the last batch differ in size. ::

running += loss.item() * batch_weight(loader, i)
global_loss = reduce_mean(loss.item(), weight=batch_weight(loader, i))

A sum over samples needs no weight. Whatever else is a mean over a batch leaves the parts equal.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpify.facts.events import Bind, LoopEnd
from ddpify.facts.kinds import CONTAINERS
from ddpify.facts.model import Facts, TrainingLoop
from ddpify.facts.scopes import Frame
from ddpify.facts.values import NOTHING, Kind, Measure, Thing
from ddpify.source import Site


def weighed_means(facts: Facts, loop: TrainingLoop) -> tuple[Site, ...] | None:
    """The expressions to weigh where a loop adds up means; None where one cannot be."""
    ends = [end for end in facts.ends if end.loop.site == loop.batch.site]
    if facts.kept or any(_is_unseen(end) or _leaves_a_mean(facts, end) for end in ends):
        return None
    found = [_added(facts, loop, bind) for bind in _sums(facts, loop, ends)]
    found += [_appended(facts, loop, name) for end in ends for name in end.numbers]
    if any(sites is None for sites in found):
        return None
    return tuple(dict.fromkeys(site for sites in found for site in sites or ()))


def _sums(facts: Facts, loop: TrainingLoop, ends: list[LoopEnd]) -> Iterator[Bind]:
    """The statements of a loop that bind sums of means, here or in an object's methods."""
    names = {name for end in ends for name in end.means}
    for bind in facts.binds:
        own = bind.where.frame is loop.batch.frame and bind.target in names
        inside = any(one.site == loop.batch.site for one in bind.where.loops())
        if inside and (own or _is_kept(bind, ends)):
            yield bind


def _is_unseen(end: LoopEnd) -> bool:
    """Whether an object has a sum of means beside what is not known."""
    own = next(iter(end.loop.frame.parameters), "") if end.loop.frame.self_thing else ""
    kept = {name for thing, means in _trackers(end) for name in means if not _holds(thing, name)}
    held = [n.rpartition(".") for n in end.means if "." in n]
    lists = any(_holds(thing, name) for thing, means in _trackers(end) for name in means)
    return lists or any(owner != own and attribute not in kept for owner, _, attribute in held)


def _leaves_a_mean(facts: Facts, end: LoopEnd) -> bool:
    """Whether that of the last batch is read after the loop."""
    return any(
        bind.target in end.others and bind.value.measure is Measure.MEAN
        for bind in facts.binds
        if bind.where.frame is end.loop.frame and bind.site.within(end.loop.site)
    )


def _holds(thing: Thing, name: str) -> bool:
    """A list of means in an object."""
    return bool(thing.attrs.get(name, NOTHING).things)


def _trackers(end: LoopEnd) -> Iterator[tuple[Thing, tuple[str, ...]]]:
    yield from ((t, one.means) for t, one in end.tracked.items() if t not in end.keep)


def _is_kept(bind: Bind, ends: list[LoopEnd]) -> bool:
    owner, attribute = bind.where.frame.self_thing, bind.target.rpartition(".")[2]
    return any(
        owner is thing and attribute in means for end in ends for thing, means in _trackers(end)
    )


def _added(facts: Facts, loop: TrainingLoop, bind: Bind) -> list[Site] | None:
    """What a statement adds to a sum, as the loop's own function says it; None for others."""
    tree = facts.tree(bind.site)
    statement = tree.statement(bind.site)
    match statement:
        case ast.AugAssign(op=ast.Add(), value=value):
            added = value
        case ast.Assign([target], ast.BinOp(left, ast.Add(), added)):
            if ast.unparse(left) != ast.unparse(target):
                return None
        case ast.Assign(value=ast.Constant()):
            return []
        case _:
            return None
    if bind.where.frame is loop.batch.frame:
        given: Site | None = tree.site(added)
    else:
        given = _given(bind.where.frame, loop, added, tree.function(statement))
    return [given] if given is not None and _is_of_one(facts, loop, given) else None


def _is_of_one(facts: Facts, loop: TrainingLoop, site: Site) -> bool:
    """Whether it is a mean over one batch: not ``(loss - mean) / n`` of a mean that runs."""
    value, node = facts.values.get(site), facts.tree(site).expression(site)
    mean = value is not None and value.measure is Measure.MEAN
    return mean and node is not None and _is_made_anew(facts, loop, node)


def _given(frame: Frame, loop: TrainingLoop, added: ast.expr, function: ast.AST) -> Site | None:
    """The argument that a method adds, of a call in the loop, and does nothing else with."""
    if not isinstance(added, ast.Name) or frame.caller is not loop.batch.frame:
        return None
    named = [n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == added.id]
    return frame.parameters.get(added.id) if named == [added] else None


def _appended(facts: Facts, loop: TrainingLoop, name: str) -> list[Site] | None:
    """What a list of means gets."""
    found = []
    for call in facts.named(".append"):
        inside = loop.batch in call.where.loops() and call.receiver_site is not None
        if inside and call.receiver_site and facts.text(call.receiver_site) == name:
            if call.where.frame is not loop.batch.frame or not call.arg_sites:
                return None
            if not _is_of_one(facts, loop, call.arg_sites[0]):
                return None
            found.append(call.arg_sites[0])
    return found or None


def is_of_batch(facts: Facts, loop: TrainingLoop, text: str) -> bool | None:
    """Whether a mean that is shown in the loop is of one batch, and so to be weighed. It is not
    where the loop adds it up; None where that is not known."""
    ends = [end for end in facts.ends if end.loop.site == loop.batch.site]
    if any(text in (*end.means, *end.numbers) for end in ends):
        return False
    return True if _is_made_anew(facts, loop, ast.parse(f"({text})", mode="eval")) else None


def _is_made_anew(
    facts: Facts, loop: TrainingLoop, node: ast.AST, seen: frozenset[str] = frozenset()
) -> bool:
    """Whether all that an expression is computed from is of this round, or of no batch."""
    body = getattr(facts.tree(loop.batch.site).statement(loop.batch.site), "body", [])
    statements = [n for one in body for n in ast.walk(one) if isinstance(n, ast.stmt)]
    names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} - seen
    for name in names:
        bound = [one for one in statements if _binds(one, name)]
        if not bound and _is_object(loop.batch.frame, name):
            return False
        if bound and not any(isinstance(o, ast.Assign) and o in body for o in bound[:1]):
            return False  # `total += …`, and what only some rounds bind
        made = (one.value for one in bound if isinstance(one, (ast.Assign, ast.AugAssign)))
        if not all(_is_made_anew(facts, loop, value, seen | names) for value in made):
            return False
    return True


def _binds(node: ast.AST, name: str) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    inside = (n for target in targets if target is not None for n in ast.walk(target))
    return any(isinstance(n, ast.Name) and n.id == name for n in inside)


def _is_object(frame: Frame, name: str) -> bool:
    """An object, a list or a dict, which may keep what is of other rounds."""
    value = frame.lookup(name)
    return value is not None and bool(value.of(Kind.INSTANCE, *CONTAINERS))
