"""Which evaluation loops give the same number when each rank takes a share of the samples.

Sums and counts do, also in arrays and in objects of the project, and lists with an entry for each
sample or batch. Means of batch means, printed batches and metric objects that cannot be looked
into depend on who sees which batch, and are evaluated whole on every rank.
"""

from __future__ import annotations

import ast

from ddpify.facts import dealing, outlives, own_counts, roles, rounds
from ddpify.facts.details import call_that_made, loader_arguments
from ddpify.facts.events import Bind, Call, LoopEnd
from ddpify.facts.library_classes import makes_its_own
from ddpify.facts.locality import loaders_in, way_to
from ddpify.facts.protocol import Machine
from ddpify.facts.rows import LIST_LIKE
from ddpify.facts.scopes import Loop
from ddpify.facts.values import NOTHING, Kind, Thing, Value
from ddpify.names import INSTALLED
from ddpify.source import Site

JOINS = frozenset({"cat", "concat", "concatenate", "vstack", "hstack"})
_SHARES = frozenset(f"{INSTALLED}.evaluation_{name}" for name in ("sampler", "share"))


def candidates(m: Machine) -> frozenset[Site]:
    """Calls whose loaders only evaluate."""
    calls = roles.calls_of(m)
    trained = {t.born for loop in roles.training_loops(calls) for t in loop.loaders}
    looped = {t for loop in m.loops for t in loaders_in(loop.over)}
    return frozenset(t.born for t in looped if t.born not in trained)


def _plain(loader: Thing) -> bool:
    given = loader_arguments(loader)
    drop_last = given.drop_last
    if drop_last is not None and not (drop_last.known and not drop_last.const):
        return False
    return all(s.known and s.const is None for s in given.samplers)


def _can_change(m: Machine, loader: Thing) -> bool:
    """A sampler can be made in a statement of its own right before the loader."""
    call = call_that_made(loader)
    if call is None or call.bound or makes_its_own(loader):
        return False
    if "sampler" in call.kwargs:
        return True
    return m.tree(call.site.path).can_be_preceded(call.site, call.arg_site(0, "dataset"))


def presharded(m: Machine) -> frozenset[Site]:
    """Calls whose evaluation loaders have the runtime's unpadded sampler already."""
    found = set()
    for loop in m.loops:
        for thing in loaders_in(loop.over):
            sampler = loader_arguments(thing).sampler
            names = [t.name for t in sampler.things] if sampler is not None else []
            if not _SHARES.isdisjoint(names):
                found.add(thing.born)
    return frozenset(found)


def dealt_already(m: Machine, sites: frozenset[Site]) -> frozenset[Site]:
    """Of presharded loaders, those whose sampler is told the batch size: it deals whole batches."""
    found = set()
    for thing in (t for t in m.made(Kind.LOADER) if t.born in sites):
        sampler = loader_arguments(thing).sampler or NOTHING
        calls = [call_that_made(t) for t in sampler.things if t.name in _SHARES]
        if any(call is not None and call.arg(1, "batch_size") is not None for call in calls):
            found.add(thing.born)
    return frozenset(found)


def dealable(m: Machine, sites: frozenset[Site]) -> frozenset[Site]:
    """Of ``sites``, the loaders whose batches could be dealt to the ranks whole."""
    refused = {
        t.born
        for t in m.made(Kind.LOADER)
        if t.born in sites
        if not (_plain(t) and _can_change(m, t) and dealing.can_deal(m, t))
    }
    return sites - refused


def shardable(trial: Machine, wanted: frozenset[Site]) -> frozenset[Site]:
    """Of ``wanted``, the loaders all of whose loops only add up; ``trial`` shards them all.

    Of those that it deals batch by batch the number of batches is that of one process.
    """
    refused: set[Site] = set()
    accepted: set[Site] = set()
    by_loop: dict[Site, set[Site]] = {}
    for loop in trial.loops:
        loaders = {t.born for t in loaders_in(loop.over)}
        by_loop.setdefault(loop.site, set()).update(loaders)
    for loop in trial.loops:
        loaders = by_loop[loop.site]
        if not loaders & wanted:
            continue
        plain = all(_plain(t) and _can_change(trial, t) for t in loaders_in(loop.over))
        fine = plain and loaders <= wanted and _only_adds_up(trial, loop)
        (accepted if fine else refused).update(loaders & wanted)
    sizes = {t.born for t in counted(trial) if t.born in wanted and not _same_batch(trial, t)}
    refused |= (sizes | _divided_by(trial)) - trial.target.dealt
    return frozenset(accepted - refused - _taken_apart(trial) - _listed(trial))


def _taken_apart(m: Machine) -> set[Site]:
    """Loaders that something else than a loop takes batches from: ``next(iter(loader))``.

    Which samples those are would differ between ranks.
    """
    loops = {loop.site for loop in m.loops}
    batches = {t for value in m.values.values() for t in value.dep(Kind.BATCH)}
    return {
        loader.born for batch in batches if batch.born not in loops for loader in batch.stands_for
    }


def _listed(m: Machine) -> set[Site]:
    """Loaders that are made lists of: `len(list(loader))` is how many batches a rank has itself."""
    lists = (c for c in roles.calls_of(m) if c.name in LIST_LIKE)
    given = (t for c in lists for v in c.args for t in v.of(Kind.LOADER, Kind.PROGRESS))
    return {loader.born for thing in given for loader in _behind(thing)}


def left_whole(
    trial: Machine, loaders: frozenset[Site], ways: frozenset[tuple[Site, ...]]
) -> tuple[LoopEnd, ...]:
    """What loops leave behind whose loaders, by call or way to it, every rank goes through."""
    return tuple(
        end
        for end in trial.ends.values()
        if any(t.born in loaders or way_to(t) in ways for t in loaders_in(end.loop.over))
    )


def counted(m: Machine) -> list[Thing]:
    """Loaders whose number of batches the program looks at."""
    return [
        t
        for c in roles.calls_of(m)
        if c.name == "builtins.len" and c.args
        for t in c.args[0].of(Kind.LOADER, Kind.PROGRESS)
        for t in _behind(t)
    ]


def _divided_by(m: Machine) -> set[Site]:
    """Loaders whose number of batches is calculated with: of shares, ranks have unequal many.

    Only to be shown it may differ: rank 0 shows it, and has as many as one process.
    """
    found = set()
    for call in roles.calls_of(m):
        if call.name == "builtins.len" and call.args:
            alone = isinstance(m.tree(call.site.path).statement(call.site), ast.Expr)
            if not alone:
                found |= {t.born for t in call.args[0].of(Kind.LOADER)}
            for sampler in call.args[0].of(Kind.SAMPLER):  # `len(loader.sampler)`: of the share
                found |= {t.born for t in loaders_in(sampler.inner or NOTHING)}
    return found


def _behind(thing: Thing) -> tuple[Thing, ...]:
    return loaders_in(Value((thing,)))


def _same_batch(m: Machine, loader: Thing) -> bool:
    """Whether a loader's batch size is written as the training loader's: both divide alike."""
    mine = _batch_text(m, loader)
    trained = {t for loop in roles.training_loops(roles.calls_of(m)) for t in loop.loaders}
    return mine is not None and any(_batch_text(m, t) == mine for t in trained)


def _batch_text(m: Machine, loader: Thing) -> str | None:
    call = call_that_made(loader)
    site = call.arg_site(1, "batch_size") if call is not None else None
    node = m.tree(site.path).expression(site) if site is not None else None
    if isinstance(node, ast.Call) and node.args:  # per_rank_batch_size(x) is x
        node = node.args[0] if ast.unparse(node.func).endswith("per_rank_batch_size") else node
    return ast.unparse(node) if node is not None else None


def _only_adds_up(m: Machine, loop: Loop) -> bool:
    end = m.ends.get((loop.site, loop.frame.stack))
    tree = m.tree(loop.site.path)
    node = tree.statement(loop.site)
    if end is None or node is None or end.means or end.others or _leaves_early(node):
        return False
    if not _evaluates(m, loop) or not _switched_to_eval(m, loop):
        return False
    happens = m.events.during(loop)
    inside = [e for e in happens if isinstance(e, (Call, Bind)) and e.where.runs_in(loop)]
    binds = [e for e in inside if isinstance(e, Bind)]
    if any(outlives.keeps(m, bind, end, node) for bind in binds) or not _all_of_it(loop.over):
        return False
    if end.batches and not all(_cut_alike(m, loop, name) for name in end.batches):
        return False
    if rounds.decide(m, tree, node, [c for c in inside if isinstance(c, Call)]):
        return False
    dealt = any(t.born in m.target.dealt for t in loaders_in(loop.over))
    if dealt and not dealing.alone(m, loop, node, end):
        return False
    understood = {bind.site for bind in binds}
    calls = [
        c for c in inside if isinstance(c, Call) and not outlives.is_followed(m, c, end, understood)
    ]
    return not any(outlives.shows_local(m, call) for call in calls)


def _all_of_it(over: Value, depth: int = 4) -> bool:
    """Whether a loop goes through its loader whole: a slice would be taken of each share, and
    what is not shared out would meet other batches."""
    for thing in over.things if depth else ():
        if thing.name.startswith("itertools."):
            return False
        if thing.name == "builtins.zip" and not all(map(loaders_in, thing.over)):
            return False
        inner = (*thing.over, *((thing.inner,) if thing.inner else ()))
        if thing.kind is not Kind.LOADER and not all(_all_of_it(v, depth - 1) for v in inner):
            return False
    return True


def _cut_alike(m: Machine, loop: Loop, name: str) -> bool:
    """Whether a list of batches has those of one process after ranks put theirs together.

    Where the size of a batch is split over the ranks, it only has when they are joined at once.
    """
    sizes = {t.born for t in counted(m)}
    if not any(t.born in sizes for t in loaders_in(loop.over)):
        return True
    tree = m.tree(loop.site.path)
    scope = tree.function(tree.statement(loop.site) or tree.module)
    reads = [n for n in ast.walk(scope) if isinstance(n, ast.Name) and n.id == name]
    after = [n for n in reads if isinstance(n.ctx, ast.Load) and not tree.site(n).within(loop.site)]
    return all(_is_joined(tree.parent(node)) for node in after)


def _is_joined(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in JOINS


def _leaves_early(node: ast.stmt) -> bool:
    return any(isinstance(n, (ast.Break, ast.Return, ast.Yield)) for n in ast.walk(node))


def _evaluates(m: Machine, loop: Loop) -> bool:
    """Whether models are called in this loop, all of them such that each call stands for itself."""
    called = [f for f in roles.forwards_of(m) if f.call.where.runs_in(loop)]
    return bool(called) and not any(own_counts.counts(m, forward) for forward in called)


def _switched_to_eval(m: Machine, loop: Loop) -> bool:
    """``model.eval()`` in the same function: batch statistics would depend on the share."""
    return any(
        c.name == ".eval" and c.where.function is loop.function and c.order < m.now
        for c in roles.calls_of(m)
    )
