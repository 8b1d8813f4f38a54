"""Objects that a sink is given whole, and that keep numbers of one rank's samples."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import replace

from ddpify.facts import meter_texts, texts
from ddpify.facts.events import Call, LoopEnd
from ddpify.facts.joining import parts_of
from ddpify.facts.kinds import CONTAINERS
from ddpify.facts.sinks import Own, Part, copied, depends
from ddpify.facts.trackers import is_one
from ddpify.facts.tree import Tree
from ddpify.facts.values import NOTHING, Kind, Measure, Thing, Value
from ddpify.source import Site

SHOWN = (ast.keyword, ast.Call, ast.FormattedValue)


def meters(
    tree: Tree, call: Call, ends: Iterable[LoopEnd], values: dict[Site, Value], local: Own
) -> list[Part]:
    """The average meters that a sink in a loop over batches is given whole: ``loss=losses``.

    And objects that keep something else of this rank's samples, which nobody can combine.
    """
    node = tree.expression(call.site)
    if node is None:
        return []
    over = [end for end in ends if call.where.runs_in(end.loop)]
    held = frozenset(thing for end in over for thing in end.keep)
    found: dict[Site, Part] = {}
    for text, made in _texts(tree, node):
        for said in meter_texts.shown(tree, text, values, held):
            site = tree.site(said)
            found.setdefault(site, Part(site, tree.text(said), "global_meter", made))
        own = _of_meters(tree, text, values, held)
        for name in (n for n in ast.walk(text) if isinstance(n, ast.Name) and n.id not in own):
            site = tree.site(name)
            given = isinstance(tree.parent(name), SHOWN)
            value = values.get(site, NOTHING)
            kept = is_one(value, local.tracked)
            if given and site not in found and (kept or _keeps(value, local, bool(over))):
                part = copied(tree, name, kept) if kept else Part(site, name.id, "")
                found[site] = replace(part, made=made)
    return list(found.values())


def _of_meters(
    tree: Tree, text: ast.expr, values: dict[Site, Value], held: frozenset[Thing]
) -> frozenset[str]:
    """What comprehensions over such meters call each of them."""
    parts = (part for part in ast.walk(text) if isinstance(part, ast.expr))
    mine = (p for p in parts if meter_texts.is_of_meters(tree, p, values, held))
    return frozenset(name for part in mine for name in meter_texts.bound(part))


def _texts(tree: Tree, node: ast.expr) -> Iterator[tuple[ast.expr, Site | None]]:
    """A sink, and the texts that were made for it before, with their statements."""
    yield node, None
    for name in (n for n in ast.walk(node) if isinstance(n, ast.Name)):
        for site, text in texts.made_before(tree, name) if isinstance(name.ctx, ast.Load) else ():
            yield text, site


def _keeps(value: Value, local: Own, inside: bool, depth: int = 3) -> bool:
    """Whether an object of the project keeps numbers of this rank's samples, in a dict perhaps.

    After the loop it is a meter that is put together there.
    """
    things = value.things
    if not inside and meter_texts.are_meters(value, local.meters):
        return False
    objects = [thing for thing in things if thing.kind is Kind.INSTANCE]
    kept = [attribute for thing in objects for attribute in thing.attrs.values()]
    held = [part for thing in things if thing.kind in CONTAINERS for part in parts_of(thing)]
    if any(one.measure is not Measure.SAMPLES and depends(one, local.read) for one in kept):
        return True
    return depth > 0 and any(
        _keeps(one, local, inside, depth - 1) for one in (*kept, *held) if one.things
    )
