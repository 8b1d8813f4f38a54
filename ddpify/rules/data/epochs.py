"""Whether samplers are told the epoch: shared by the rules on ``set_epoch``."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from ddpify.ranks import words
from ddpify.ranks.model import RankCall, RankLoop, RankThing, RankValue
from ddpify.ranks.passes import Pass, is_loader, iterated, loaders_in
from ddpify.ranks.run import Run
from ddpify.ranks.values import truth
from ddpify.rules.base import Edit, How, Import
from ddpify.rules.shared.feeds import dealt_by, identifiers, in_one_process, samplers_of, taken_over

_BARS = ("enumerate", "tqdm", "trange", "track", "list")


@dataclass(frozen=True)
class Told:
    """A pass over a shuffling, dealt loader that is repeated, and who tells its sampler."""

    one: Pass
    epochs: RankLoop
    sampler: RankThing
    calls: tuple[RankCall, ...]


def repeated(run: Run) -> tuple[Told, ...]:
    """The repeated passes over loaders with a shuffling DistributedSampler."""
    return run.once(_repeated)


def _repeated(run: Run) -> tuple[Told, ...]:
    return tuple(_told(run))


def _told(run: Run) -> Iterator[Told]:
    for one in run.passes:
        epochs = one.epochs
        samplers = [t for t in dealt_by(one.loader) if _shuffles(t)]
        if epochs is None or not samplers or taken_over(run, one.loader):
            continue
        if samplers[0].call is not None and in_one_process(run, samplers[0].call):
            continue
        loaders = iterated(one.loop)  # `loaders[phase]`: any of them may be told
        told = tuple(
            c for c in run.methods("set_epoch") if any(_concerns(c, loader) for loader in loaders)
        )
        told += tuple(c for c in run.calls if any(_hands_on(c, loader) for loader in loaders))
        yield Told(one, epochs, samplers[0], told)


def _shuffles(sampler: RankThing) -> bool:
    """By the epoch: a class of the project may take it from elsewhere."""
    own = sampler.cls
    if own is not None:
        method = own.method("__iter__")
        if own.method("__init__") or (method and "epoch" not in identifiers(method.node)):
            return False
    shuffle = sampler.call.arg(3, "shuffle") if sampler.call is not None else None
    return shuffle is None or shuffle.constant is True


def _hands_on(call: RankCall, loader: RankThing) -> bool:
    """A library's ``set_epoch(loader, epoch)``, and ours where it is installed."""
    given = (
        call.method in ("set_epoch", "begin_epoch")
        and call.receiver is None
        and call.target is None
    )
    return given and any(loader in value.sources() for value in call.args)


def _concerns(call: RankCall, loader: RankThing) -> bool:
    """Whether a receiver is, holds or comes from the loader or its sampler; unknown ones may."""
    receiver = call.receiver
    assert receiver is not None
    known = {t for t in receiver.things if t.kind in ("result", "instance")}
    roots = {_root(t) for t in receiver.things}
    if not known and not any(t is not None and t.kind in ("result", "instance") for t in roots):
        return True
    ours = {loader, *(t for value in samplers_of(loader) for t in value.sources())}
    found = {t for t in (*receiver.sources(), *roots) if t is not None}
    if not ours.isdisjoint(found):
        return True
    holders = (thing for thing in found if thing.kind in ("instance", "result", "attribute"))
    return any(t in ours for one in holders for v in one.attrs.values() for t in v.sources())


def _root(thing: RankThing) -> RankThing | None:
    """``loader`` of the attribute ``loader.batch_sampler.sampler``."""
    while thing.kind == "attribute" and thing.receiver is not None:
        thing = thing.receiver
    return thing


def without_effect(told: Told) -> Iterator[tuple[RankCall, str]]:
    """Calls of ``set_epoch`` that do not do what they are for, and why; all of them or none."""
    found = [(call, _fault(call, told)) for call in told.calls]
    if all(why for _, why in found):
        yield from found


def _fault(call: RankCall, told: Told) -> str:
    if call.receiver is not None and _has_none(call):
        return "this object has no set_epoch: AttributeError"
    number = call.node_of(0, "epoch")
    if isinstance(number, ast.Constant):  # a name's value may change from epoch to epoch
        return f"it is always {number.value!r}: every epoch shuffles in the same order"
    if told.one.loop in call.loops:
        return "the pass has begun: it keeps the order of the epoch before"
    return ""


def _has_none(call: RankCall) -> bool:
    """A DataLoader or torch's BatchSampler, not asked with ``hasattr`` before."""
    asked = any("hasattr" in ast.unparse(g.node) for g in call.guards)
    if asked or call.swallows or call.receiver is None or not call.receiver.things:
        return False
    return all(_lacks(thing) for thing in call.receiver.things)


def _lacks(thing: RankThing) -> bool:
    if thing.kind == "result" and thing.name in (words.LOADER, "torch.utils.data.BatchSampler"):
        return True
    owner = thing.receiver
    if thing.kind != "attribute" or owner is None or not is_loader(owner):
        return False
    given = samplers_of(owner)
    own = [v for v in given if not v.made_by("torch.utils.data.BatchSampler")]
    return thing.name.endswith(".batch_sampler") and (not own or not _takes_batches(owner))


def _takes_batches(loader: RankThing) -> bool:
    return loader.call is not None and "batch_sampler" in loader.call.kwargs


# -- the fix -------------------------------------------------------------------------------------


def fix(told: Told, helpers: str) -> tuple[Edit, ...]:
    """``sampler.set_epoch(epoch)`` at the head of the epoch loop, where both have a name there.

    In a migrated program it is ``begin_epoch(loader, epoch)``: one process has no such sampler.
    """
    node = told.epochs.node
    if not isinstance(node, ast.For) or not node.body:
        return ()
    number = _counter(node, told.epochs.over)
    text = _loader_text(told) if number and (helpers or _has_one_sampler(told)) else ""
    if not text:
        return ()
    site = told.epochs.module.site(node.body[0])
    if helpers:
        wanted = Import(helpers, "begin_epoch")
        return (Edit(How.BEFORE, site, f"begin_epoch({text}, {number})", imports=(wanted,)),)
    return (Edit(How.BEFORE, site, f"{text}.sampler.set_epoch({number})"),)


def _counter(node: ast.For, over: RankValue | None) -> str:
    target = node.target
    counts = over is not None and over.made_by("builtins.range", "builtins.enumerate") is not None
    if over is not None and over.made_by("builtins.enumerate") and isinstance(target, ast.Tuple):
        target = target.elts[0]
    plain = counts and isinstance(target, ast.Name) and target.id != "_"
    return target.id if plain and isinstance(target, ast.Name) else ""


def _has_one_sampler(told: Told) -> bool:
    """Whether the loader has that sampler and no other, also in one process."""
    values = samplers_of(told.one.loader)
    direct = len(values) == 1 and values[0].things == (told.sampler,)
    return direct and all(truth(atom) is True for atom in values[0].atoms)


def _loader_text(told: Told) -> str:
    batches, epochs = told.one.loop, told.epochs
    assert isinstance(epochs.node, ast.For)
    if batches.module is epochs.module and batches.node in ast.walk(epochs.node):
        over = batches.node.iter if isinstance(batches.node, ast.For) else None
        return _plain(_unwrapped(over), told.one.loader, batches.over)
    for call in told.one.backward.stack:
        if call.loops and call.loops[-1] is epochs:
            for node, value in zip(call.node.args, call.args, strict=False):
                if value.things == (told.one.loader,):
                    return _plain(node, told.one.loader, value)
    return ""


def _unwrapped(node: ast.expr | None) -> ast.expr | None:
    while isinstance(node, ast.Call) and node.args:
        if ast.unparse(node.func).rpartition(".")[2] not in _BARS:
            return None
        node = node.args[0]
    return node


def _plain(node: ast.expr | None, loader: RankThing, value: RankValue | None) -> str:
    named = isinstance(node, (ast.Name, ast.Attribute)) and loaders_in(value) == (loader,)
    return ast.unparse(node) if named and node is not None else ""
