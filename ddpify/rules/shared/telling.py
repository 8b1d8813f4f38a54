"""Telling a loader's sampler the epoch, or which pass this is, at the head of a loop."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from itertools import pairwise

from ddpify.facts.details import SharesBatches, call_that_made, loader_arguments
from ddpify.facts.events import Call
from ddpify.facts.locality import loaders_in
from ddpify.facts.model import Facts, TrainingLoop
from ddpify.facts.scopes import ClassInfo, Frame, Loop
from ddpify.facts.tree import Tree
from ddpify.facts.values import Kind, Thing, Value
from ddpify.ranks.words import SEEDERS
from ddpify.rules.base import Edit, How
from ddpify.rules.edits import edit, fresh, statement_of
from ddpify.rules.shared import counters
from ddpify.rules.shared.counters import counter
from ddpify.rules.shared.undivided import takes_no_sampler
from ddpify.site import Site

SHARE = "ddpify.runtime.order_share"
BEGIN = "ddpify.runtime.begin_epoch"
_NAMES = (ast.Name, ast.Attribute, ast.Subscript)


def by_passes(
    facts: Facts, loop: Site, place: Site, loaders: tuple[str, ...], first: int = 0
) -> tuple[Edit, ...]:
    """A loop that counts nothing, or steps, gets a counter of its passes over the loaders."""
    variable = counters.counted(facts, loop) if not first else None
    passes = variable or fresh(facts, loop, "passes")
    told = [f"begin_epoch({name}, {passes})" for name in loaders]
    if variable:
        return (edit(facts, How.BEFORE, place, "\n".join(told)),)
    steps = counters.steps(facts, loop)
    begun = f"{steps} // len({loaders[0]}) + {first}" if steps and loaders else f"{first}"
    head = edit(facts, How.BEFORE, loop, f"{passes} = {begun.removesuffix(' + 0')}")
    return (head, edit(facts, How.BEFORE, place, "\n".join((*told, f"{passes} += 1"))))


def before_iter(facts: Facts, call: Call) -> tuple[Edit, ...]:
    """``batches = iter(loader)`` in a loop over steps begins a pass."""
    tree = facts.tree(call.site)
    node = tree.expression(call.arg_sites[0])
    loops = [x for x in call.where.loops() if x.frame is call.where.frame]
    if not loops or not isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
        return ()
    place, loader = statement_of(facts, call.site), ast.unparse(node)
    if isinstance(tree.statement(loops[0].site), ast.While):
        begun = any(c.order < loops[0].first for c in _begins_alike(facts, call))
        return by_passes(facts, loops[0].site, place, (loader,), int(begun))
    counted = counter(facts, loops[0])
    if counted is None:
        return ()
    variable, renamed = counted
    return (*renamed, edit(facts, How.BEFORE, place, f"begin_epoch({loader}, {variable})"))


def _begins_alike(facts: Facts, call: Call) -> Iterable[Call]:
    """The other calls of ``iter`` on what one is called on."""
    wanted = set(call.args[0].things)
    for other in facts.named("builtins.iter"):
        if other.site != call.site and other.args and wanted & set(other.args[0].things):
            yield other


def in_generator(
    facts: Facts, tree: Tree, node: ast.While, passes: list[ast.For]
) -> tuple[Edit, ...]:
    """``while True: for batch in loader: yield batch``."""
    if len(passes) != 1 or not isinstance(passes[0].iter, (ast.Name, ast.Attribute)):
        return ()
    place = tree.site(passes[0])
    return by_passes(facts, tree.site(node), place, (ast.unparse(passes[0].iter),))


# -- the epochs of a training loop ---------------------------------------------------------------


def is_at_head(facts: Facts, loop: TrainingLoop) -> bool:
    """Whether the first thing in each epoch is, or will be, to tell a sampler which it is."""
    if loop.epoch is None:
        return False
    for call in facts.named(BEGIN):
        begun = call.args and not set(call.args[0].things).isdisjoint(loop.loaders)
        if begun and call.where.statement == head(facts, loop.epoch):
            return True
    edits = tell(facts, loop, tuple(t for t in loop.loaders if not is_told(facts, t)))
    return any(one.site == head(facts, loop.epoch) and one.how is How.BEFORE for one in edits)


def head(facts: Facts, epoch: Loop) -> Site:
    """The first statement of an epoch but for those that seed random streams, of all ranks alike.

    ``torch.manual_seed(args.seed + epoch)`` after ``begin_epoch`` would undo what it does.
    """
    tree = facts.tree(epoch.site)
    node = tree.statement(epoch.site)
    body = node.body if isinstance(node, (ast.For, ast.While)) else []
    seeds = [c for c in facts.calls if c.name in SEEDERS and "state" not in c.name]
    place = epoch.body
    for before, after in pairwise(body):
        site = tree.site(before)
        values = (facts.values.get(tree.site(n)) for n in ast.walk(before) if isinstance(n, _NAMES))
        if any(value is not None and loaders_in(value) for value in values):
            break  # a pass may begin there
        own = isinstance(before, ast.Expr)
        if own and any(one.within(site) for seed in seeds for one in seed.way):
            place = tree.site(after)
    return place


def tell(facts: Facts, loop: TrainingLoop, loaders: tuple[Thing, ...]) -> tuple[Edit, ...]:
    """``begin_epoch(loader, epoch)`` for each loader; nothing where one has no name there."""
    assert loop.epoch is not None
    if isinstance(facts.tree(loop.epoch.site).statement(loop.epoch.site), ast.While):
        names = [_name_of(loop.epoch.frame, loader, loop.loaders) for loader in loaders]
        if any(_made_inside(loop.epoch, one) and one.hops for one in loaders) or None in names:
            return ()
        told = dict.fromkeys(name for name in names if name is not None)
        return by_passes(facts, loop.epoch.site, head(facts, loop.epoch), tuple(told))
    placed = [_at_epoch_head(facts, loop, loader) for loader in loaders]
    if None not in placed and (outer := _repeats(facts, loop, loaders)) is not None:
        names = [_name_of(loop.epoch.frame, loader, loop.loaders) for loader in loaders]
        told = dict.fromkeys(name for name in names if name is not None)
        return by_passes(facts, outer, head(facts, loop.epoch), tuple(told))
    if None in placed:  # a round may make one of them: told once it has
        placed = [_before_batches(facts, loop, loader) for loader in loaders]
    if None in placed:
        return ()
    return tuple(dict.fromkeys(one for edits in placed for one in edits or ()))


def _repeats(facts: Facts, loop: TrainingLoop, loaders: tuple[Thing, ...]) -> Site | None:
    """The outermost loop of this function that has all epochs again, and counts them alike."""
    assert loop.epoch is not None
    outer, found = loop.epoch.parent, None
    while outer is not None and outer.frame is loop.epoch.frame:
        if any(_made_inside(outer, one) for one in loaders) or loaders_in(outer.over):
            break
        if isinstance(facts.tree(outer.site).statement(outer.site), ast.For):
            found = outer.site
        outer = outer.parent
    return found


def _at_epoch_head(facts: Facts, loop: TrainingLoop, loader: Thing) -> tuple[Edit, ...] | None:
    assert loop.epoch is not None
    name = _name_of(loop.epoch.frame, loader, loop.loaders)
    if name is None or (loader.hops and _made_inside(loop.epoch, loader)):
        return None
    return _told_by(facts, loop.epoch, loop.epoch.frame, name, How.BEFORE, loop.epoch)


def _made_inside(epoch: Loop, loader: Thing) -> bool:
    """Whether a pass makes it anew: it has no name yet where the first pass begins."""
    made = call_that_made(loader)
    return made is not None and any(loop.site == epoch.site for loop in made.where.loops())


def _before_batches(facts: Facts, loop: TrainingLoop, loader: Thing) -> tuple[Edit, ...] | None:
    assert loop.epoch is not None
    frame = loop.batch.frame
    name = _name_of(frame, loader, loop.loaders)
    if name is None or not loaders_in(loop.batch.over):
        return None
    own = counter(facts, loop.epoch) if frame is loop.epoch.frame else None
    epoch, renamed = own or (_epoch_name(frame, loop.epoch), ())
    if epoch is None:
        return None
    return (*renamed, edit(facts, How.BEFORE, loop.batch.site, f"begin_epoch({name}, {epoch})"))


def _told_by(
    facts: Facts, epoch: Loop, frame: Frame, name: str, how: How, loop: Loop
) -> tuple[Edit, ...] | None:
    counted = counter(facts, epoch)
    if counted is None:
        return None
    variable, renamed = counted
    return (*renamed, edit(facts, how, head(facts, loop), f"begin_epoch({name}, {variable})"))


def _epoch_name(frame: Frame, epoch: Loop) -> str | None:
    """What the epoch's counter is called in another function."""
    span = epoch.site.span
    for name, value in frame.env.items():
        for thing in value.of(Kind.INDEX):
            if thing.born.path == epoch.site.path and thing.born.span.line == span.line:
                return name
    return None


def _name_of(frame: Frame, loader: Thing, trained: tuple[Thing, ...]) -> str | None:
    """An expression for the loader in a frame: a name, ``self.x``, a dict entry.

    It may stand for any of those ``trained`` in the loop, where a branch chose one.
    """
    known = {**frame.module.globals, **frame.env}
    for name, value in (*frame.env.items(), *frame.module.globals.items()):
        if _is(value, loader, trained):
            return name
    for name, value in known.items():
        for thing in value.of(Kind.INSTANCE, Kind.DICT):
            held = _held_as(thing, loader, trained, 2)
            if held is not None:
                return f"{name}{held}"
    return None


def _is(value: Value, loader: Thing, trained: tuple[Thing, ...]) -> bool:
    return loader in value.things and set(value.things) <= set(trained)


def _held_as(thing: Thing, loader: Thing, trained: tuple[Thing, ...], depth: int) -> str | None:
    """``.attribute``, ``["key"]`` or one within the other."""
    held = [(f".{name}", value) for name, value in thing.attrs.items()]
    held += [(f'["{k}"]', v) for k, v in (thing.keys or {}).items() if isinstance(k, str)]
    for text, value in held:
        if _is(value, loader, trained):
            return text
    for text, value in held if depth > 1 else ():
        for inner in value.of(Kind.INSTANCE, Kind.DICT):
            rest = _held_as(inner, loader, trained, depth - 1)
            if rest is not None and len(value.things) == 1:
                return text + rest
    return None


def is_told(facts: Facts, loader: Thing) -> bool:
    """Whether a loader's sampler is told the epoch, or draws an order without."""
    if draws_itself(loader) or takes_no_sampler(facts, loader):
        return True
    for call in facts.calls:
        begins = call.name == BEGIN and call.args
        if begins and loader in call.args[0].things:
            return True
        told = call.receiver if call.name == ".set_epoch" else None
        if told is not None and _concerns(told, loader):
            return True
    return False


def _concerns(receiver: Value, loader: Thing) -> bool:
    if loader in receiver.things:
        return True
    samplers = {t for value in loader_arguments(loader).samplers for t in value.things}
    for thing in receiver.of(Kind.SAMPLER):
        if thing in samplers or (thing.inner is not None and loader in thing.inner.things):
            return True
    return False


def deals(sampler: Thing) -> bool:
    """Whether it gives each rank its share: torch's DistributedSampler, or the runtime's."""
    names: tuple[str, ...] = (sampler.name,)
    if isinstance(sampler.ref, ClassInfo):
        names = sampler.ref.external_bases()
    torchs = [n for n in names if n.startswith("torch.") and n.endswith(".DistributedSampler")]
    return bool(torchs) or sampler.name in (SHARE, "ddpify.runtime.distributed_sampler")


def draws_itself(loader: Thing) -> bool:
    """Whether a loader's sampler draws an order without being told the epoch."""
    if loader.detail(SharesBatches) is not None:
        return True
    given = loader_arguments(loader).sampler
    if given is None or (given.known and given.const is None):
        return False
    return all(t.name == SHARE or not deals(t) for t in given.things)
