"""Numbers that leave the program, and which parts of them one rank alone computed."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from ddpify.facts import texts
from ddpify.facts.effects import Effect, EffectKind
from ddpify.facts.events import Access, Call, LoopEnd
from ddpify.facts.joining import flat_deps, flat_measure, parts_of
from ddpify.facts.kinds import CONTAINERS
from ddpify.facts.locality import Sharded, is_shared_out
from ddpify.facts.number_syntax import inside, is_item, is_number_call, puts_in_words
from ddpify.facts.scopes import FunctionInfo
from ddpify.facts.texts import Tellers
from ddpify.facts.tree import Tree
from ddpify.facts.values import Kind, Measure, Value
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


@dataclass(frozen=True)
class Own:
    """What each rank has samples of its own from: as ``read``, and the loaders that train."""

    read: Sharded
    trained: frozenset[Site]


@dataclass(frozen=True)
class Part:
    """A sub-expression of a sink that ranks must combine first.

    ``how`` is the helper, ``COUNTED`` what it has to be multiplied by, and "" where it is unknown;
    ``made`` is the statement that puts it into words, where that comes before.
    """

    site: Site
    text: str
    how: str
    made: Site | None = None


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


def meters(
    tree: Tree, call: Call, ends: Iterable[LoopEnd], values: dict[Site, Value], local: Own
) -> list[Part]:
    """The average meters that a sink in a loop over batches is given whole: ``loss=losses``.

    And objects that keep something else of this rank's samples, which nobody can combine.
    """
    node = tree.expression(call.site)
    if node is None:
        return []
    loops = {(loop.site, loop.frame.stack) for loop in call.where.loops()}
    over = [e for e in ends if (e.loop.site, e.loop.frame.stack) in loops]
    if not over or call.where.stack not in {e.loop.frame.stack for e in ends}:
        return []
    held = {name for e in over for name in e.held}
    found: list[Part] = []
    for name, made in _named(tree, node):
        if isinstance(tree.parent(name), (ast.keyword, ast.Call, ast.FormattedValue)):
            site = tree.site(name)
            if name.id in held or _keeps(values.get(site), local):
                how = "global_meter" if name.id in held else ""
                found.append(Part(site, name.id, how, made))
    return found


def _named(tree: Tree, node: ast.expr) -> Iterator[tuple[ast.Name, Site | None]]:
    """The names in a sink, and in the text that was made for it before, with its statement."""
    for name in (n for n in ast.walk(node) if isinstance(n, ast.Name)):
        yield name, None
        made = texts.made_before(tree, name) if isinstance(name.ctx, ast.Load) else None
        inside = ast.walk(made.value) if made is not None else ()
        yield from ((n, tree.site(made)) for n in inside if isinstance(n, ast.Name) and made)


def _keeps(value: Value | None, local: Own, depth: int = 3) -> bool:
    """Whether an object of the project keeps numbers of this rank's samples, in a dict perhaps."""
    things = value.things if value is not None else ()
    objects = [thing for thing in things if thing.kind is Kind.INSTANCE]
    kept = [attribute for thing in objects for attribute in thing.attrs.values()]
    held = [part for thing in things if thing.kind in CONTAINERS for part in parts_of(thing)]
    if any(one.measure is not Measure.SAMPLES and depends(one, local.read) for one in kept):
        return True
    return depth > 0 and any(_keeps(one, local, depth - 1) for one in (*kept, *held) if one.things)


def _visit(tree: Tree, node: ast.expr, values: dict[Site, Value], local: Own) -> list[Part]:
    if isinstance(node, ast.JoinedStr):
        return _formatted(tree, node, values, local)
    value = values.get(tree.site(node))
    if value is None or not depends(value, local.read) or _of_all(tree, node, values):
        return []
    made = _made_before(tree, node, value, local)
    if made is not None:
        said = _visit(tree, made.value, values, local)
        return [replace(part, made=part.made or tree.site(made)) for part in said]
    whole = [Part(tree.site(node), tree.text(node), _how(value, local.trained))]
    if _is_whole(node, bool(whole[0].how)):
        # Pictures and the like are not numbers; what `.item()` gives of a model's output is one.
        return whole if value.measure is not Measure.SAMPLES or is_item(node) else []
    own = [found for child in inside(node) for found in _visit(tree, child, values, local)]
    known = {bool(part.how) for part in own}
    if isinstance(node, ast.Call) and whole[0].how and known != {True}:  # `sum(hits)`
        return whole
    if not own and (isinstance(node, ast.Attribute) or puts_in_words(node)):
        return whole
    if _ratio(node) and len(known) > 1:
        return [replace(whole[0], how="")]  # one rank's part of all ranks' count is no mean
    return own


def _formatted(
    tree: Tree, node: ast.JoinedStr, values: dict[Site, Value], local: Own
) -> list[Part]:
    """What a text shows: numbers, or objects that tell their own."""
    inner = [part.value for part in node.values if isinstance(part, ast.FormattedValue)]
    found = [part for one in inner for part in _visit(tree, one, values, local)]
    value = values.get(tree.site(node))
    objects = any(v.of(Kind.INSTANCE) for one in inner if (v := values.get(tree.site(one))))
    if not found and objects and value is not None and depends(value, local.read):
        return [Part(tree.site(node), tree.text(node), "")]
    return found


def _is_whole(node: ast.expr, known: bool) -> bool:
    """Whether a number is not looked into; ``known``: it is known what to do with it."""
    if isinstance(node, ast.Attribute):
        return not isinstance(node.value, ast.Call)  # `Table(x).text`
    if isinstance(node, ast.Name) or is_number_call(node) or not inside(node):
        return True
    return isinstance(node, ast.Subscript) and known


def _made_before(tree: Tree, node: ast.expr, value: Value, local: Own) -> ast.Assign | None:
    """The statement that made the text that a name stands for."""
    if not isinstance(node, ast.Name) or _how(value, local.trained):
        return None
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
    if value.measure is Measure.UNIFORM and not value.of(Kind.TUPLE, Kind.DICT, Kind.ITERATOR):
        return False
    measure = flat_measure(value)
    drawn = value.of(Kind.ITERATOR) and measure is Measure.SAMPLES  # the batches of a loader
    return measure is not Measure.UNIFORM and not drawn and _of_one(value, m)


def _of_one(value: Value, m: Sharded) -> bool:
    """Whether there is a share of the samples behind a value."""
    return any(
        is_shared_out(m, t)
        for d in flat_deps(value)
        if d.kind is Kind.BATCH and d.inner is not None
        for t in d.inner.things
    )


def _how(value: Value, trained: frozenset[Site]) -> str:
    if value.measure is Measure.COUNT and _born(value) <= trained:
        return COUNTED
    if value.measure in SUMS:
        return "reduce_sum"
    return "reduce_mean" if value.measure is Measure.MEAN else ""


def _born(value: Value) -> frozenset[Site]:
    """Where the loaders were made from whose batches a value comes."""
    batches = (d.inner for d in flat_deps(value) if d.kind is Kind.BATCH and d.inner is not None)
    return frozenset(t.born for inner in batches for t in inner.things)
