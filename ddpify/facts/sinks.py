"""Numbers that leave the program, and which parts of them one rank alone computed."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from ddpify.facts import texts, trackers
from ddpify.facts.details import is_of_one
from ddpify.facts.effects import Effect, EffectKind
from ddpify.facts.events import Access, Call, KeptSums
from ddpify.facts.joining import flat_deps, flat_measure
from ddpify.facts.locality import Sharded, is_shared_out
from ddpify.facts.meter_texts import COMPREHENSIONS, is_of_meters
from ddpify.facts.number_syntax import inside, is_item, is_number_call
from ddpify.facts.scopes import FunctionInfo
from ddpify.facts.texts import Tellers
from ddpify.facts.tree import Tree
from ddpify.facts.values import NOTHING, Kind, Measure, Thing, Value
from ddpify.python import writers
from ddpify.source import Site

SHOWN = (Kind.TRACKER, Kind.FILE, Kind.PROGRESS, Kind.LOGGER)
# What draws numbers into a picture that is saved or shown later.
PLOTS = frozenset(
    """plot scatter bar hist semilogx semilogy loglog errorbar text title suptitle annotate
    set_title""".split()
)
# What makes a picture of a batch, a tile for each sample.
TILED = frozenset(("torchvision.utils.save_image", ".add_images"))
SUMS = (Measure.SUM, Measure.COUNT)
# How a count of samples is that of all ranks: of a loader that trains they have equally many.
COUNTED = "get_world_size()"
# How a number of a batch of one is that of the sample that is last of those of all ranks.
LAST = "gather_objects"


@dataclass(frozen=True)
class Own:
    """What each rank has samples of its own from: as ``read``, and the loaders that train."""

    read: Sharded
    trained: frozenset[Site]
    meters: frozenset[Thing] = frozenset()  # that loops over shares leave with sums of them
    tracked: dict[Thing, KeptSums] = field(default_factory=dict)  # objects with such sums


@dataclass(frozen=True)
class Part:
    """A sub-expression of a sink that ranks must combine first.

    ``how`` is the helper, ``COUNTED`` what it has to be multiplied by, and "" where it is unknown;
    ``made`` is the statement that puts it into words, where that comes before; ``given`` what the
    helper is told besides.
    """

    site: Site
    text: str
    how: str
    made: Site | None = None
    given: str = ""


def copied(tree: Tree, node: ast.expr, tracked: KeptSums) -> Part:
    """An object that adds up numbers, shown by a copy that has those of all ranks."""
    return Part(tree.site(node), tree.text(node), "global_copy", given=f", {tracked.words}")


def sinks(
    calls: tuple[Call, ...], effects: tuple[Effect, ...], helpers: frozenset[FunctionInfo]
) -> tuple[Call, ...]:
    """Calls for their own sake that show or store numbers, ``assigned`` ones among them."""
    kinds = (EffectKind.CONSOLE, EffectKind.TRACKER, EffectKind.FILE, EffectKind.CHECKPOINT)
    found = [e.call for e in effects if e.kind in kinds and e.call.alone]
    for call in calls:
        if call.target in helpers or (call.alone and _shows(call)):
            found.append(call)
    inside = [c for c in found if c.where.function not in helpers]
    return tuple(sorted(dict.fromkeys(inside), key=lambda c: c.order))


def assigned(accesses: tuple[Access, ...], trees: Mapping[str, Tree]) -> Iterator[Call]:
    """``bar.desc = text``, as the calls that would show the same: ``bar.set_description(text)``."""
    for one in accesses:
        where = one.where
        made = trees[where.statement.path].statement(where.statement) if one.stored else None
        source = made.value if isinstance(made, (ast.Assign, ast.AugAssign)) else None
        if source is not None and one.base.of(Kind.PROGRESS):
            site, base = trees[where.statement.path].site(source), one.base_site
            name = f".{one.attribute}"
            yield Call(
                one.order, name, site, base, where, (), {}, (), {}, one.base, base, alone=True
            )


def _shows(call: Call) -> bool:
    receiver = call.receiver
    if call.name.startswith("logging.") or _plots(call) or call.name in writers.INTO_FILES:
        return True
    if receiver is None or call.target is not None:
        return False
    return bool(receiver.of(*SHOWN)) or bool(receiver.dep(Kind.FILE, Kind.TRACKER))


def _plots(call: Call) -> bool:
    owner, _, name = call.name.rpartition(".")
    return name in PLOTS and call.target is None and owner in ("", "matplotlib.pyplot")


def parts(
    tree: Tree, call: Call, values: dict[Site, Value], local: Own, tellers: Tellers
) -> list[Part]:
    """The smallest named parts of a sink's arguments that only this rank computed.

    What a function is given to show is what its callers show; of their calls, only that counts.
    """
    node = tree.expression(call.site)
    if node is None:
        return []
    if _plots(call) or call.name in TILED:
        given = zip(call.arg_sites, call.args, strict=False)
        return [
            Part(at, tree.source.segment(at.span), "") for at, v in given if _of_one(v, local.read)
        ]
    arguments = [node]  # what an attribute is assigned
    if isinstance(node, ast.Call):
        arguments = [*node.args, *[k.value for k in node.keywords]]
    if call.target in tellers:
        told = {tree.expression(site) for site in texts.given(call, tellers)}
        arguments = [argument for argument in arguments if argument in told]
    found = [part for one in arguments for part in _visit(tree, one, values, local)]
    if call.name.startswith(".to_") and call.name[1:] in writers.METHODS and call.receiver_site:
        table = tree.expression(call.receiver_site)  # `table.to_csv(path)`: nobody adds up tables
        inside = _visit(tree, table, values, local) if table is not None else []
        found += [replace(part, how="") for part in inside]
    function = call.where.function
    handed_on = tellers.get(function, frozenset()) if function is not None else frozenset()
    own = (p for p in found if handed_on.isdisjoint(_names(tree, p.site)))
    unique = {(p.text, p.how, p.site): p for p in own}
    return list(unique.values())


def _names(tree: Tree, site: Site) -> set[str]:
    node = tree.expression(site)
    inner = ast.walk(node) if node is not None else ()
    return {n.id for n in inner if isinstance(n, ast.Name)}


def _visit(tree: Tree, node: ast.expr, values: dict[Site, Value], local: Own) -> list[Part]:
    if isinstance(node, ast.JoinedStr):
        inner = [part.value for part in node.values if isinstance(part, ast.FormattedValue)]
        return [found for part in inner for found in _visit(tree, part, values, local)]
    value = values.get(tree.site(node))
    if value is None or not depends(value, local.read) or _of_all(tree, node, values):
        return []
    said = _made_before(tree, node, value, local)
    if said:
        return [
            replace(part, made=part.made or site)
            for site, text in said
            for part in _visit(tree, text, values, local)
        ]
    if isinstance(node, COMPREHENSIONS) and is_of_meters(tree, node, values, local.meters):
        return []  # these are put together themselves
    how = _how(value, local.trained) or (LAST if is_item(node) and is_of_one(value) else "")
    whole = [Part(tree.site(node), tree.text(node), how)]
    kept = [] if how else _of_meter(tree, node, values, local)
    kept = kept or ([] if how else _of_object(tree, node, values, local))
    if kept:
        return kept
    if _is_whole(node, bool(whole[0].how)):
        # Pictures and the like are not numbers; what `.item()` gives of a model's output is one.
        return whole if value.measure is not Measure.SAMPLES or is_item(node) else []
    own = [found for child in inside(node) for found in _visit(tree, child, values, local)]
    known = {bool(part.how) for part in own}
    if isinstance(node, ast.Call) and whole[0].how and known != {True}:  # `sum(hits)`
        return whole
    if isinstance(node, ast.Attribute) and not own:
        return whole
    if _ratio(node) and len(known) > 1:
        return [replace(whole[0], how="")]  # one rank's part of all ranks' count is no mean
    return own


def _of_meter(tree: Tree, node: ast.expr, values: dict[Site, Value], local: Own) -> list[Part]:
    """``losses.val`` and ``losses.avg``, where they are no means over batches."""
    if not isinstance(node, ast.Attribute) or node.attr not in ("val", "avg"):
        return []
    things = values.get(tree.site(node.value), NOTHING).things
    known = things and all(thing in local.meters for thing in things)
    return [Part(tree.site(node.value), tree.text(node.value), "global_meter")] if known else []


def _of_object(tree: Tree, node: ast.expr, values: dict[Site, Value], local: Own) -> list[Part]:
    """What is made of numbers that an object of the project keeps: ``tracker.result()``."""
    parts = [values.get(tree.site(part), NOTHING) for part in inside(node)]
    if any(depends(part, local.read) for part in parts):
        return []
    kept = trackers.shown(tree, node, values, local.tracked)
    if kept is not None:
        return [copied(tree, *kept)]
    made = values.get(tree.site(node), NOTHING).of(Kind.DICT, Kind.TUPLE)  # a text may be of counts
    unknown = isinstance(node, ast.Call) and made and any(p.of(Kind.INSTANCE) for p in parts)
    return [Part(tree.site(node), tree.text(node), "")] if unknown else []


def _is_whole(node: ast.expr, known: bool) -> bool:
    """Whether a number is not looked into; ``known``: it is known what to do with it."""
    if isinstance(node, ast.Attribute):
        return not isinstance(node.value, ast.Call)  # `Table(x).text`
    if isinstance(node, ast.Name) or is_number_call(node) or not inside(node):
        return True
    return isinstance(node, ast.Subscript) and known


def _made_before(
    tree: Tree, node: ast.expr, value: Value, local: Own
) -> tuple[tuple[Site, ast.expr], ...]:
    """The statements that made the text that a name stands for, and what each puts into it."""
    if not isinstance(node, ast.Name) or _how(value, local.trained):
        return ()
    return texts.made_before(tree, node)


def _of_all(tree: Tree, node: ast.expr, values: dict[Site, Value]) -> bool:
    """``len(x) * get_world_size()``: the count of all ranks."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
        return False
    sides = (values.get(tree.site(side)) for side in (node.left, node.right))
    return any(side is not None and bool(side.of(Kind.WORLD)) for side in sides)


def _ratio(node: ast.expr) -> bool:
    """``part / whole`` or ``mean * count``: both of one rank, or both of all."""
    return isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.FloorDiv, ast.Mult))


def depends(value: Value, m: Sharded) -> bool:
    """Whether a value, or what it holds, comes from a sharded loader's batches."""
    if value.measure is Measure.UNIFORM and value.dep(Kind.LENGTH):
        return True
    if value.measure is Measure.UNIFORM and not value.of(Kind.TUPLE, Kind.DICT):
        return False
    return flat_measure(value) is not Measure.UNIFORM and _of_one(value, m)


def _of_one(value: Value, m: Sharded) -> bool:
    """Whether there is a share of the samples behind a value."""
    return any(
        is_shared_out(m, t) for d in flat_deps(value) if d.kind is Kind.BATCH for t in d.stands_for
    )


def _how(value: Value, trained: frozenset[Site]) -> str:
    if value.measure is Measure.COUNT and _born(value) <= trained:
        return COUNTED
    if value.measure in SUMS:
        return "reduce_sum"
    return "reduce_mean" if value.measure is Measure.MEAN else ""


def _born(value: Value) -> frozenset[Site]:
    """Where the loaders were made from whose batches a value comes."""
    batches = (dep for dep in flat_deps(value) if dep.kind is Kind.BATCH)
    return frozenset(loader.born for batch in batches for loader in batch.stands_for)
