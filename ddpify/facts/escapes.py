"""Escapes: uses of tracked values by code that was not read.

What migration changes the meaning of is tracked: the trained models, their parameters and states,
optimizers, schedulers, scalers, loaders, samplers, and what is made of a batch. Each place that
names one is a use. It is followed where it is an operation, a call of a library that is known, or
of a function of the project; where it goes into code that was not read, it is an escape. ::

    trainer = hidden.Trainer(net, adam)     # two escapes: may step, save, or wrap
    loss = hidden.focal(net(x), y)          # one, if this loss is what trains
    hidden.log(loss.item())                 # one: of a rank's own samples
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set
from dataclasses import replace

from ddpify.facts.details import MakingCall, call_that_made, loader_arguments
from ddpify.facts.events import Call, Unknown
from ddpify.facts.holding import held_in, read_by
from ddpify.facts.joining import flat_deps
from ddpify.facts.locality import is_local
from ddpify.facts.model import Danger, Escape, Facts, Followed, shown
from ddpify.facts.roles import backwards, whole
from ddpify.facts.scopes import FunctionInfo
from ddpify.facts.unread import LATE, UNDERSTOOD
from ddpify.facts.values import NOTHING, Kind, Thing, Value, one
from ddpify.facts.within import followed
from ddpify.source import Site

TRACKED = frozenset(
    {
        Kind.MODEL,
        Kind.WRAPPED,
        Kind.CRITERION,
        Kind.PARAMETERS,
        Kind.OPTIMIZER,
        Kind.SCHEDULER,
        Kind.SCALER,
        Kind.DATASET,
        Kind.LOADER,
        Kind.SAMPLER,
        Kind.BATCH,
        Kind.FORWARD,
        Kind.STATE,
        Kind.CHECKPOINT,
        Kind.DEVICE,
        Kind.TRACKER,
        Kind.FILE,
        Kind.PROGRESS,
        Kind.INDEX,
        Kind.CLOCK,
        Kind.RANDOM,
    }
)
# Into unread code these may go: what it does with them it then does on each rank.
_OTHERS = frozenset(
    {
        Kind.CHECKPOINT,
        Kind.CRITERION,
        Kind.DATASET,
        Kind.FILE,
        Kind.LOADER,
        Kind.MODEL,
        Kind.SAMPLER,
        Kind.TRACKER,
    }
)


def with_escapes(facts: Facts) -> Facts:
    """The facts with what was followed and what was not."""
    found = tuple(dict.fromkeys(sorted(_escapes(facts), key=lambda e: (e.site, e.danger.value))))
    unknowns = (*facts.unknowns, *_late(facts, {escape.site for escape in found}))
    return replace(facts, followed=Followed(*_uses(facts), found), unknowns=unknowns)


def _late(facts: Facts, named: set[Site]) -> Iterator[Unknown]:
    """Calls of functions that are not known, with nothing that is tracked: what these write."""
    for call in facts.calls:
        nameless = call.unread == LATE or call.unread.startswith("builtins.")
        again = call.name.startswith(".") and (call.receiver or NOTHING).of(Kind.UNKNOWN)
        if nameless and not again and not any(site.within(call.site) for site in named):
            why = f"{shown(call.unread)} is called here: what it writes, each rank does"
            yield Unknown(call.site, why)


# ---- Uses
def _uses(facts: Facts) -> tuple[frozenset[Site], frozenset[tuple[Kind, Site]]]:
    """The places that name a tracked value or what is made of one, and these values."""
    uses, values = set[Site](), set[tuple[Kind, Site]]()
    for tree in facts.trees.values():
        for node in tree.nodes():
            if not isinstance(node, (ast.Name, ast.Attribute)):
                continue
            tracked = _tracked(facts.values.get(tree.site(node)))
            values |= tracked
            owner = tree.site(node.value) if isinstance(node, ast.Attribute) else None
            if tracked and not (owner and _tracked(facts.values.get(owner))):
                uses.add(tree.site(node))
    return frozenset(uses), frozenset(values)


def _tracked(value: Value | None) -> set[tuple[Kind, Site]]:
    things = value.all_deps() if value is not None else ()
    return {(thing.kind, thing.born) for thing in things if thing.kind in TRACKED}


# ---- Escapes
def _escapes(facts: Facts) -> Iterator[Escape]:
    trained = _Trained(facts)
    losses = {
        mark.born
        for call in backwards(facts.calls)
        for value in (call.receiver or NOTHING, *call.args)
        for mark in flat_deps(value)
        if mark.kind is Kind.UNREAD
    }
    entered = {call.where.function for call in facts.calls}
    entered |= {bind.where.function for bind in facts.binds}
    for call in facts.calls:
        to = _unread(facts, call, losses) or _lost_receiver(call)
        if to:
            yield from _of_call(facts, call, to, trained, losses)
        elif call.target is None:
            yield from _callbacks(call, trained, entered)
    yield from _chosen(facts, trained, entered)
    yield from _stored(facts, trained)
    yield from _made(facts)


def _unread(facts: Facts, call: Call, losses: set[Site]) -> str:
    """Who runs a call; what is done later may have shown that it is a model or an optimizer."""
    if call.site in losses:  # a hook's
        return call.unread or call.name[1:]
    method = call.name.startswith(".") and call.receiver is not None
    who = call.receiver if method else facts.values.get(call.callee)
    known = who is not None and who.things and all(t.kind in UNDERSTOOD for t in who.things)
    return "" if known else call.unread


def _of_call(
    facts: Facts, call: Call, to: str, trained: _Trained, losses: set[Site]
) -> Iterator[Escape]:
    if call.site in losses:
        yield Escape(call.site, Kind.BATCH, to, Danger.LOSS)
    optimizer = bool(call.result.of(Kind.OPTIMIZER))
    for value, site in _given(call):
        kind = trained.kind_in(value)
        if kind is Kind.PARAMETERS and optimizer:
            yield Escape(site, kind, to, Danger.OPTIMIZER)
        elif kind is Kind.STATE:
            yield Escape(site, kind, to, Danger.FILE)
        elif kind is not None:
            yield Escape(site, kind, to, Danger.TRAINING)
        elif call.unread and trained.is_batch_size(value):
            yield Escape(site, Kind.ARGUMENT, to, Danger.BATCH_SIZE)
        elif call.unread and call.site not in losses and _shown(facts, call, value):
            yield Escape(site, Kind.BATCH, to, Danger.OUTPUT)
        elif call.unread:
            others = (thing.kind for thing in held_in(value) if thing.kind in _OTHERS)
            yield from (Escape(site, one, to, Danger.EACH_RANK) for one in list(others)[:1])


def _shown(facts: Facts, call: Call, value: Value) -> bool:
    return value is not call.receiver and is_local(facts, value)


def _callbacks(call: Call, trained: _Trained, entered: Set[object]) -> Iterator[Escape]:
    """Functions that a library calls at a time of its own, and that nothing else calls.

    Not ``net.apply(initialized)`` and ``filter(asked, …)``: these call it there and then.
    """
    understood = call.receiver is not None and call.receiver.of(*UNDERSTOOD)
    of_number = call.name.startswith("torch.optim.lr_scheduler.")  # which gives one, too
    if understood or call.name in ("builtins.filter", "builtins.map"):
        return
    seen = {*entered, *(thing.ref for thing in followed(call))}
    for value, site in _given(call):
        for thing in value.things:
            unseen = isinstance(thing.ref, FunctionInfo) and thing.ref not in seen
            if of_number and _measures(thing, trained):
                continue
            if unseen and trained.kind_in(one(thing)) is not None:
                yield Escape(site, Kind.FUNCTION, call.name.lstrip("."), Danger.CALLBACK)


def _measures(thing: Thing, trained: _Trained) -> bool:
    """Whether a function asks nothing but lengths: ``lambda step: step / len(loader)``."""
    if not isinstance(thing.ref, FunctionInfo) or thing.receiver is not None:
        return False
    return not any(trained.kind_in(value) for value in read_by(thing.ref))


def _given(call: Call) -> Iterator[tuple[Value, Site]]:
    yield from zip(call.args, call.arg_sites, strict=False)
    for name, value in call.kwargs.items():
        yield value, call.kwarg_sites.get(name, call.site)
    if call.receiver is not None and call.unread and call.unread != LATE:
        yield call.receiver, call.receiver_site or call.callee


def _lost_receiver(call: Call) -> str:
    """A method of something that was not followed: a container, a registry, a trainer."""
    if not call.name.startswith(".") or call.receiver is None or call.target is not None:
        return ""
    made = any(dep.kind in TRACKED for dep in call.receiver.deps)
    lost = not call.receiver.things and not made and not call.receiver.known
    return call.name[1:] if lost and not call.result.things else ""


def _chosen(facts: Facts, trained: _Trained, entered: set[FunctionInfo | None]) -> Iterator[Escape]:
    """Calls of nobody knows what, where a function that nobody calls has hold of the training."""
    late = [call for call in facts.calls if call.unread == LATE]
    if not late:
        return
    modules = dict.fromkeys(call.where.frame.module for call in facts.calls)
    functions = [t for m in modules for v in m.globals.values() for t in v.of(Kind.FUNCTION)]
    uncalled = (t for t in functions if t.ref not in entered)
    may_be = any(trained.kind_in(one(thing)) for thing in uncalled)
    for call in late:
        made = (call_that_made(t) for t in facts.values.get(call.callee, NOTHING).things)
        owners = [value for each in made if each is not None for value in each.args[:1]]
        objects = [value for value in owners if value.of(Kind.INSTANCE)]
        if any(map(trained.kind_in, objects)) or (may_be and not objects):
            yield Escape(call.site, Kind.FUNCTION, LATE, Danger.CALLBACK)


def _stored(facts: Facts, trained: _Trained) -> Iterator[Escape]:
    """What is put into an object or a container that nobody followed."""
    for bind in facts.binds:
        if "." not in bind.target and "[" not in bind.target:
            continue
        node = facts.tree(bind.site).expression(bind.site)
        if not isinstance(node, (ast.Attribute, ast.Subscript)):
            continue
        kind = trained.kind_in(bind.value)
        owner = facts.values.get(facts.tree(bind.site).site(node.value), NOTHING)
        if kind is not None and _is_lost(owner):
            yield Escape(bind.site, kind, ast.unparse(node.value), Danger.TRAINING)


def _is_lost(owner: Value) -> bool:
    lost = (Kind.UNKNOWN, Kind.EXTERNAL)
    return all(t.kind in lost and t.part_of is None for t in owner.things)


def _made(facts: Facts) -> Iterator[Escape]:
    """The trained models that unread code made."""
    for model in facts.models:
        for thing in model.things:
            made = thing.detail(MakingCall)
            if made is not None and made.call.unread:
                yield Escape(thing.born, Kind.MODEL, made.call.unread, Danger.MODEL)


class _Trained:
    """The things that training is about, in whatever holds them."""

    def __init__(self, facts: Facts) -> None:
        self._models = {thing.born for model in facts.models for thing in model.things}
        self._loaders = {thing for loop in facts.training for thing in loop.loaders}
        given = [loader_arguments(thing) for thing in self._loaders]
        self._samplers = {t for each in given for value in each.samplers for t in value.things}
        sizes = (each.batch_size for each in given)
        self._sizes = {t for size in sizes if size is not None for t in size.of(Kind.ARGUMENT)}

    def is_batch_size(self, value: Value) -> bool:
        """Whether a value is the setting that a training loader has its batch size from."""
        return any(thing in self._sizes for thing in value.of(Kind.ARGUMENT))

    def kind_in(self, value: Value) -> Kind | None:
        """What of the training a value is or holds."""
        return next((kind for kind in map(self._kind, held_in(value)) if kind), None)

    def _kind(self, thing: Thing) -> Kind | None:
        if thing.kind in (Kind.MODEL, Kind.WRAPPED) or thing.part_of is not None:
            return Kind.MODEL if self._is_trained(thing) else None
        if thing.kind in (Kind.PARAMETERS, Kind.STATE):
            owners = thing.stands_for
            return thing.kind if any(map(self._is_trained, owners)) else None
        if thing.kind in (Kind.OPTIMIZER, Kind.SCALER, Kind.SCHEDULER):
            return thing.kind
        training = thing in self._loaders or thing in self._samplers
        return thing.kind if training else None

    def _is_trained(self, thing: Thing) -> bool:
        return whole(thing).born in self._models
