"""The last resort of a loss that is not shown to be a mean: each rank computes that of the batch.

`nn.DataParallel` gathered what its replicas gave, and one loss was computed of it. Ranks do the
same where a loss is made by calls of which all that is of this rank's samples has a row, or an
entry of a list, for each of them. What it is a sum or a mean of need not be known then. ::

    loss = criterion(net(x), y)    # criterion(whole_batch(net(x)), whole_batch(y))
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from typing import Protocol

from ddpify.facts import batch_objects, batch_order, measures, roles
from ddpify.facts.coupling import certain
from ddpify.facts.details import call_that_made, is_of_one
from ddpify.facts.events import Call
from ddpify.facts.functional import LAYERS
from ddpify.facts.joining import computed, parts_of
from ddpify.facts.locality import is_local
from ddpify.facts.model import Gather, TrainingLoop
from ddpify.facts.output_rows import of_several
from ddpify.facts.protocol import Machine
from ddpify.facts.rows import has_rows
from ddpify.facts.shares import once_per_batch
from ddpify.facts.values import OF_ONE_RANK, Kind, Measure, Thing, Value, constant
from ddpify.python import words
from ddpify.source import Site

ROWS, ENTRIES = "whole_batch({})", "sum(gather_objects({}), [])"
MODELS = (Kind.MODEL, Kind.WRAPPED, Kind.PARAMETERS)
DROPOUT = frozenset({"torch.nn.Dropout"})
DRAWS = frozenset("""bernoulli bernoulli_ multinomial normal normal_ uniform_ random_ poisson
    gumbel_softmax""".split())
MOST = 4  # calls that a loss may be the sum of: each may be a reading of the program


class WholeReader(Protocol):
    """A reading in which what stands at these sites is that of the whole batch."""

    def __call__(self, whole: frozenset[Site]) -> Machine: ...


def pooled(read: WholeReader, afresh: Callable[[], Machine]) -> tuple[tuple[Gather, Site], ...]:
    """What to gather, each with the call it is for; nothing where losses are not right with it.

    ``afresh`` gives a reading that is not asked for anything else.
    """
    found = _candidates(read(frozenset()), afresh)
    if len(found) > MOST or not _right(read(_sites(found))):
        return ()
    for call in tuple(found):
        rest = {site: gathers for site, gathers in found.items() if site != call}
        if rest and _right(read(_sites(rest))):
            found = rest
    return tuple((gather, call) for call, gathers in found.items() for gather in gathers)


def followed(m: Machine) -> bool:
    """Whether each loss is a sum or a mean, perhaps over a count that differs between ranks."""
    known = (Measure.MEAN, Measure.SUM, Measure.RATIO)
    return all(
        loss.measure in known or is_of_one(loss) or not loss.dep(Kind.BATCH) for loss in _losses(m)
    )


def _right(m: Machine) -> bool:
    return followed(m) and not certain(_losses(m))


def _losses(m: Machine) -> list[Value]:
    calls = roles.backwards(roles.calls_of(m))
    return [call.receiver for call in calls if call.receiver is not None]


def _sites(found: dict[Site, tuple[Gather, ...]]) -> frozenset[Site]:
    return frozenset(gather.site for gathers in found.values() for gather in gathers)


def _candidates(m: Machine, afresh: Callable[[], Machine]) -> dict[Site, tuple[Gather, ...]]:
    """The outermost calls that make numbers of whole rows, and what to gather for each."""
    training, own = roles.training_loops(roles.calls_of(m)), own_ways(m)
    at: dict[Site, list[Call]] = {}
    for call in roles.calls_of(m):
        at.setdefault(call.site, []).append(call)
    found: dict[Site, tuple[Gather, ...]] = {}
    for site, calls in at.items():
        given = {_gathers(m, training, call, own) for call in calls}
        gathers = given.pop() if len(given) == 1 else ()
        rows = gathers and any(meets_rows(m, call) for call in calls)
        if gathers and not rows and _alike(m, afresh, calls, gathers):
            found[site] = gathers
    return {
        site: gathers
        for site, gathers in found.items()
        if all(found.keys().isdisjoint(call.where.stack) for call in at[site])
    }


def meets_rows(m: Machine, call: Call) -> bool:
    """Whether what it gives is computed with rows of one rank: ``x.sum(3) + log_probs(x)``.

    It has a row for each sample itself then, of which all ranks' would not fit.
    """
    tree = m.tree(call.site.path)
    node = tree.expression(call.site)
    above = tree.parent(node) if node is not None else None
    named = isinstance(above, ast.Assign) and isinstance(above.targets[0], ast.Name)
    uses: list[ast.AST] = [node] if node is not None else []
    if named and isinstance(above, ast.Assign):
        uses = tree.reads(tree.function(above), ast.unparse(above.targets[0]))
    for use in uses:
        around = tree.parent(use)
        while isinstance(around, (ast.Attribute, ast.Call, ast.Subscript)):
            use, around = around, tree.parent(around)
        if isinstance(around, ast.BinOp):
            other = around.left if around.right is use else around.right
            value = m.values.get(tree.site(other))
            if value is not None and value.measure in measures.ENTRIES and is_local(m, value):
                return True
    return False


def _gathers(
    m: Machine, training: tuple[TrainingLoop, ...], call: Call, own: frozenset[tuple[Site, ...]]
) -> tuple[Gather, ...]:
    """The arguments to gather; nothing where the call does not reduce rows, or calls a model."""
    result = computed(call.result)
    reduces = result.measure in (Measure.MIXED, Measure.RATIO) and result.dep(Kind.FORWARD)
    parts = [part for thing in call.result.things for part in parts_of(thing)]
    if any(part.measure in measures.ENTRIES for part in parts):  # a caller has fewer rows
        return ()
    if not reduces or call.unread or call.star or _has_model(call, own):
        return ()
    if call.receiver is not None and call.receiver.of(Kind.CLASS):  # `Hash.apply(x)`: rows, too
        return ()
    gathers = []
    for site, value in _given(call):
        if not (is_local(m, computed(value)) or value.of(Kind.BATCH)):
            if computed(value).dep(*OF_ONE_RANK):
                return ()
            continue
        code = _code(m, value)
        if site is None or site == call.callee or not code:
            return ()
        if code == ENTRIES and (call.where.no_grad or _switches(m)):
            return ()  # lists are gathered without asking for gradients
        gathers.append(Gather(site, code))
    trained = any(computed(value).dep(Kind.FORWARD) for _, value in _given(call))
    together = call.where.no_grad or once_per_batch(m, training, call.where)
    if gathers and batch_order.counts(m, call, (value for _, value in _given(call))):
        return ()
    return tuple(gathers) if trained and together else ()


def _code(m: Machine, value: Value) -> str:
    """How to gather a value, "" where it is not known to have rows.

    One of several outputs of a model may have none. Those of a tuple are compared when it is
    gathered.
    """
    if value.of(Kind.TUPLE, Kind.ITERATOR) and not value.rows:
        parts = [part for thing in value.things for part in parts_of(thing)]
        whole = value.of(Kind.TUPLE, Kind.ITERATOR) == value.things
        return ROWS if whole and all(map(has_rows, parts)) else ""
    if not has_rows(value) or value.of(Kind.BATCH):
        return ""
    if value.things:
        listed = value.of(Kind.ITERATOR, Kind.TUPLE) == value.things
        return ENTRIES if listed and not value.dep(Kind.FORWARD) else ""
    return "" if of_several(m, value) else ROWS


def _switches(m: Machine) -> bool:
    """Whether gradients are recorded or not as a value says."""
    return any(call.name.endswith(".set_grad_enabled") for call in roles.calls_of(m))


def _given(call: Call) -> list[tuple[Site | None, Value]]:
    named = [(call.kwarg_sites.get(name), value) for name, value in call.kwargs.items()]
    return [*zip(call.arg_sites, call.args, strict=False), *named]


def _has_model(call: Call, own: frozenset[tuple[Site, ...]]) -> bool:
    """Whether a model is given to a call, or called in it: of the whole batch on each rank.

    Or whether something is drawn in it: each rank would draw for all samples.
    """
    return any(value.of(*MODELS) for _, value in _given(call)) or call.way in own


def own_ways(m: Machine) -> frozenset[tuple[Site, ...]]:
    """The calls in which something learns or is drawn: they are more than functions of their rows.

    All at once: a loss that is one of many compares samples at very many places.
    """
    learning = [f.call for f in roles.forwards_of(m) if f.model.name not in LAYERS - DROPOUT]
    drawing = [c for c in roles.calls_of(m) if _draws(c.name)]
    ways = {call.way for call in (*learning, *drawing)}
    return frozenset(way[:depth] for way in ways for depth in range(1, len(way) + 1))


def _draws(name: str) -> bool:
    known = name.startswith(tuple(start for start, _ in words.DRAWS))
    return known or name.rpartition(".")[2] in DRAWS or "dropout" in name


def _alike(
    m: Machine, afresh: Callable[[], Machine], calls: Iterable[Call], gathers: Iterable[Gather]
) -> bool:
    """Whether the batches of these calls are known to be gathered as they are.

    Those that torch collates have rows, and in a list of theirs is no entry per sample. A
    ``collate_fn`` of the project's own is read; another may give anything.
    """
    given = [pair for call in calls for pair in _given(call)]
    loaders = {loader for _, value in given for loader in computed(value).loaders()}
    code = {gather.site: gather.code for gather in gathers}
    own = {code[s] for s, v in given if s in code and not computed(v).dep(Kind.FORWARD)}
    ways = [_collated(m, afresh, loader) for loader in loaders]
    return all(way and own <= way for way in ways)


def _collated(m: Machine, afresh: Callable[[], Machine], loader: Thing) -> set[str]:
    """How what a loader's batches hold can be gathered: as rows or as lists; nothing: unknown."""
    call = call_that_made(loader)
    if call is None:
        return set()
    if call.star and any("collate_fn" in one.source.text for one in m.modules.values()):
        return set()  # perhaps among them
    collate = call.arg(6, "collate_fn")
    if collate is None or collate == constant(None):
        return {ROWS}
    again = afresh()
    there = next((c for c in roles.calls_of(again) if _same(c, call)), None)
    given = there.arg(6, "collate_fn") if there is not None else None
    if there is None or given is None:
        return set()
    result = again.apply(there.where.frame, given, (batch_objects.samples(call.site),), call.site)
    parts = [part for thing in result.things for part in parts_of(thing)]
    if not parts or not all(map(has_rows, parts)):
        return set()
    return {ENTRIES} if any(part.things for part in parts) else {ROWS}


def _same(one: Call, other: Call) -> bool:
    return one.site == other.site and one.where.stack == other.where.stack
