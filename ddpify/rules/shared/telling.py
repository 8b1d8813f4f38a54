"""Telling a loader's sampler the epoch, or which pass this is, at the head of a loop."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from ddpify.facts.details import SharesBatches, call_that_made, loader_arguments
from ddpify.facts.events import Call
from ddpify.facts.locality import loaders_in
from ddpify.facts.model import Facts, TrainingLoop
from ddpify.facts.scopes import ClassInfo, Frame, Loop
from ddpify.facts.tree import Tree
from ddpify.facts.values import Kind, Thing, Value
from ddpify.rules.base import Edit, How
from ddpify.rules.edits import edit, fresh, statement_of
from ddpify.rules.shared.undivided import takes_no_sampler
from ddpify.site import Site

SHARE = "ddpify.runtime.order_share"
BEGIN = "ddpify.runtime.begin_epoch"


def by_passes(
    facts: Facts, loop: Site, place: Site, loaders: tuple[str, ...], first: int = 0
) -> tuple[Edit, ...]:
    """A loop that counts nothing, or steps, gets a counter of its passes over the loaders."""
    variable = _counted(facts, loop) if not first else None
    passes = variable or fresh(facts, loop, "passes")
    told = [f"begin_epoch({name}, {passes})" for name in loaders]
    if variable:
        return (edit(facts, How.BEFORE, place, "\n".join(told)),)
    head = edit(facts, How.BEFORE, loop, f"{passes} = {first}")
    return (head, edit(facts, How.BEFORE, place, "\n".join((*told, f"{passes} += 1"))))


def _counted(facts: Facts, loop: Site) -> str | None:
    """``epoch`` of ``while epoch < 10:``, to which each round adds 1 at its end."""
    node = facts.tree(loop).statement(loop)
    last = node.body[-1] if isinstance(node, ast.While) else None
    if node is None or not isinstance(last, ast.AugAssign) or " += 1" not in ast.unparse(last):
        return None
    name = ast.unparse(last.target)
    written = [n for n in ast.walk(node) if isinstance(n, ast.Name) and n.id == name]
    stores = [n for n in written if isinstance(n.ctx, ast.Store)]
    skipped = any(isinstance(n, ast.Continue) for n in ast.walk(node))
    return name if len(stores) == 1 and not skipped else None


def counter(facts: Facts, epoch: Loop) -> tuple[str, tuple[Edit, ...]] | None:
    """The loop's counter; a ``_`` that nothing reads gets the name ``epoch``."""
    tree = facts.tree(epoch.site)
    node = tree.statement(epoch.site)
    if not isinstance(node, ast.For):
        return None
    target = node.target
    counted = isinstance(node.iter, ast.Call) and ast.unparse(node.iter.func) == "enumerate"
    if counted and isinstance(target, ast.Tuple):
        target = target.elts[0]
    if not isinstance(target, ast.Name):
        return None
    scope = tree.function(node)
    written = [n for n in ast.walk(scope) if isinstance(n, ast.Name) and n.id == target.id]
    if target.id != "_" or any(isinstance(n.ctx, ast.Load) for n in written):
        bound = sum(isinstance(n.ctx, ast.Store) for n in written)
        return (target.id, ()) if target.id != "_" or bound == 1 else None
    if "epoch" in tree.names(scope):
        return None
    return "epoch", (edit(facts, How.REPLACE, tree.site(target), "epoch"),)


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
        if begun and call.where.statement == loop.epoch.body:
            return True
    edits = tell(facts, loop, tuple(t for t in loop.loaders if not is_told(facts, t)))
    return any(one.site == loop.epoch.body and one.how is How.BEFORE for one in edits)


def tell(facts: Facts, loop: TrainingLoop, loaders: tuple[Thing, ...]) -> tuple[Edit, ...]:
    """``begin_epoch(loader, epoch)`` for each loader; nothing where one has no name there."""
    assert loop.epoch is not None
    if isinstance(facts.tree(loop.epoch.site).statement(loop.epoch.site), ast.While):
        names = [_name_of(loop.epoch.frame, loader, loop.loaders) for loader in loaders]
        if any(_made_inside(loop.epoch, one) and one.hops for one in loaders) or None in names:
            return ()
        told = dict.fromkeys(name for name in names if name is not None)
        return by_passes(facts, loop.epoch.site, loop.epoch.body, tuple(told))
    placed = [_at_epoch_head(facts, loop, loader) for loader in loaders]
    if None not in placed and (outer := _repeats(facts, loop, loaders)) is not None:
        names = [_name_of(loop.epoch.frame, loader, loop.loaders) for loader in loaders]
        told = dict.fromkeys(name for name in names if name is not None)
        return by_passes(facts, outer, loop.epoch.body, tuple(told))
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
    return (*renamed, edit(facts, how, loop.body, f"begin_epoch({name}, {variable})"))


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
