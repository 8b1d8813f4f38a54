"""Decide by behaviour what each value is for: which loop trains, which loader feeds it."""

from __future__ import annotations

from dataclasses import replace

from ddpify.facts.details import Divided, NumbersPasses, Optimized, call_that_made
from ddpify.facts.events import Call, Forward
from ddpify.facts.gradients import behind
from ddpify.facts.joining import flat_deps
from ddpify.facts.locality import loaders_in
from ddpify.facts.model import Loader, Role, TrainingLoop
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import ClassInfo, Loop
from ddpify.facts.values import NOTHING, Kind, Thing, Value
from ddpify.source import Site

COUNTERS = ("builtins.range", "itertools.count")
NEXT = ("builtins.next", ".next", ".__next__")


def calls_of(m: Machine) -> tuple[Call, ...]:
    """Every call, in order."""
    return tuple(e for e in m.events if isinstance(e, Call))


def forwards_of(m: Machine) -> tuple[Forward, ...]:
    """Every model call, in order."""
    return tuple(e for e in m.events if isinstance(e, Forward))


def backwards(calls: tuple[Call, ...]) -> tuple[Call, ...]:
    """Calls that start a backward pass."""
    names = (".backward", "torch.autograd.backward")
    return tuple(c for c in calls if c.name in names or c.name.endswith(".backward"))


def steps(calls: tuple[Call, ...]) -> tuple[Call, ...]:
    """Calls that change parameters: ``optimizer.step()``, ``scaler.step(optimizer)``."""
    named = (c for c in calls if c.steps is not None or c.name == ".step")
    return tuple(c for c in named if stepped(c) and not _is_given_losses(c))


def _is_given_losses(call: Call) -> bool:
    """Whether an optimizer of the project's calls a closure, and may use a loss of this rank's."""
    return bool(call.args or call.kwargs) and any(
        isinstance(t.ref, ClassInfo) and t.ref.lookup("step") is not None
        for t in (call.receiver or NOTHING).of(Kind.OPTIMIZER)
    )


def stepped(call: Call) -> tuple[Thing, ...]:
    """The optimizers a step call steps."""
    receiver = call.receiver
    if call.steps is not None:
        return (call.steps,)
    if receiver is None:
        return ()
    if receiver.of(Kind.SCALER) and call.args:
        return call.args[0].of(Kind.OPTIMIZER)
    return receiver.of(Kind.OPTIMIZER)


def models_of_optimizer(optimizer: Thing, around: tuple[Thing, ...] = ()) -> tuple[Thing, ...]:
    """The modules whose parameters an optimizer was given, or the one ``around`` it was."""
    given = optimizer.detail(Optimized)
    if given is None:
        return ()
    found: list[Thing] = []
    for dep in sorted(flat_deps(given.parameters), key=lambda t: t.serial):
        if dep.kind is Kind.OPTIMIZER and dep is not optimizer and dep not in around:
            inner = models_of_optimizer(dep, (*around, optimizer))
            found += [model for model in inner if model not in found]
        owners = dep.inner.things if dep.kind is Kind.PARAMETERS and dep.inner else (dep,)
        for owner in owners:
            base = whole(owner)
            if base.kind is Kind.MODEL and base not in found:
                found.append(base)
    return tuple(found)


def whole(thing: Thing) -> Thing:
    """The module behind a wrapper, or that a part belongs to."""
    while True:
        if thing.unwrapped is not thing:
            thing = thing.unwrapped
        elif thing.part_of is not None:
            thing = thing.part_of
        else:
            return thing


def itself(thing: Thing) -> Thing:
    """The module behind a wrapper: what a method has for ``self`` that the wrapper calls, too."""
    inner = thing.unwrapped
    whole = inner.part_of
    return whole if whole is not None and whole.attrs is inner.attrs else inner


def training_forwards(calls: tuple[Call, ...], forwards: tuple[Forward, ...]) -> frozenset[Thing]:
    """Outputs that some backward pass goes through."""
    used: set[Thing] = set()
    for call in backwards(calls):
        values = (call.receiver, *call.args) if call.receiver is not None else call.args
        for value in values:
            used |= behind(flat_deps(value))
    return frozenset(f.output for f in forwards if f.output in used)


def training_loops(calls: tuple[Call, ...]) -> tuple[TrainingLoop, ...]:
    """One per loop and call chain in which a backward pass runs for each batch."""
    found: dict[tuple[object, ...], TrainingLoop] = {}
    for call in backwards(calls):
        loops = call.where.loops()
        if not loops:
            continue
        batch = next((one for one in loops if loaders_in(one.over)), loops[0])
        outer = [x for x in _outside(loops, batch) if not loaders_in(x.over)]
        outer = _begun_in(outer, call) or outer
        counting = [x for x in outer if counts(x)]
        epoch = next(iter(counting or outer), None)
        over = loaders_in(batch.over)
        fed = _fed_by_next(call, _taken_in(calls, batch) if over else None)
        key = (batch.site, call.where.stack)
        loop = found.setdefault(key, TrainingLoop(batch, epoch, (), call))
        loaders = dict.fromkeys((*loop.loaders, *made_by_calls((*over, *fed))))
        found[key] = replace(loop, loaders=tuple(loaders))
    return tuple(found.values())


def made_by_calls(loaders: tuple[Thing, ...]) -> tuple[Thing, ...]:
    """Without those that stand for batches which every rank makes."""
    return tuple(t for t in loaders if t.detail(Divided) is None)


def counts(loop: Loop) -> bool:
    """A loop whose passes are numbered: ``range``, ``count``, also behind a progress bar."""
    return loop.kind == "while" or _numbers(loop.over)


def _numbers(value: Value) -> bool:
    return any(
        t.name in COUNTERS
        or t.detail(NumbersPasses) is not None
        or (t.kind is Kind.PROGRESS and t.inner is not None and _numbers(t.inner))
        for t in value.things
    )


def _outside(loops: tuple[Loop, ...], batch: Loop) -> tuple[Loop, ...]:
    return loops[loops.index(batch) + 1 :]


def _begun_in(loops: list[Loop], call: Call) -> list[Loop]:
    """The loops in which ``iter(loader)`` stands: a pass of the others goes on with its batches."""
    batches = call.receiver.dep(Kind.BATCH) if call.receiver is not None else ()
    return [x for x in loops if any(batch.born.within(x.site) for batch in batches)]


def _taken_in(calls: tuple[Call, ...], loop: Loop) -> frozenset[Thing]:
    """What calls of ``next`` in a loop give, or make something of."""
    taken = (c.result for c in calls if c.name in NEXT and loop in c.where.loops())
    return frozenset(thing for value in taken for thing in flat_deps(value))


def _fed_by_next(call: Call, taken: frozenset[Thing] | None) -> tuple[Thing, ...]:
    """Loaders whose batches (``next(iterator)``) the loss was computed from.

    Of a loop over another loader only those whose batches are ``taken`` in it.
    """
    value = call.receiver
    batches = value.dep(Kind.BATCH) if value is not None else ()
    found = [t for b in batches for t in b.stands_for if _in(b, taken)]
    gathered = value.dep(Kind.LOADER) if value is not None and taken is None else ()
    return tuple(dict.fromkeys([*found, *gathered]))


def _in(batch: Thing, taken: frozenset[Thing] | None) -> bool:
    return taken is None or batch in taken


def loaders(
    calls: tuple[Call, ...], training: tuple[TrainingLoop, ...], m: Machine
) -> tuple[Loader, ...]:
    """Every call that makes loaders, with what they feed."""
    trained = {t for loop in training for t in loop.loaders}
    loops = _evaluations(m, training)
    taken = _taken(m)
    grouped: dict[Site, list[tuple[Call, Thing]]] = {}
    for call in calls:
        for thing in call.result.of(Kind.LOADER):
            if call_that_made(thing) is call or thing.born == call.site:
                grouped.setdefault(call.site, []).append((call, thing))
    return tuple(_loader(pairs, trained, loops, taken) for pairs in grouped.values())


def _evaluations(m: Machine, training: tuple[TrainingLoop, ...]) -> dict[Thing, list[Loop]]:
    """The loops over each loader that do not train with it."""
    found: dict[Thing, list[Loop]] = {}
    for loop in m.loops:
        if loop.frame.yields:  # a generator passes the batches on
            continue
        for thing in loaders_in(loop.over):
            if not any(loop.site == x.batch.site for x in training if thing in x.loaders):
                found.setdefault(thing, []).append(loop)
    return found


def _taken(m: Machine) -> dict[Thing, set[Site]]:
    """The statements that take batches from each loader."""
    found: dict[Thing, set[Site]] = {}
    for batch in m.made(Kind.BATCH):
        for thing in batch.stands_for:
            found.setdefault(thing, set()).add(batch.born)
    return found


def _loader(
    pairs: list[tuple[Call, Thing]],
    trained: set[Thing],
    loops: dict[Thing, list[Loop]],
    taken: dict[Thing, set[Site]],
) -> Loader:
    things = tuple(dict.fromkeys(t for _, t in pairs))
    roles = set()
    if any(t in trained for t in things):
        roles.add(Role.TRAINING)
    if any(t in loops for t in things):
        roles.add(Role.EVALUATION)
    if any(t not in trained and t not in loops for t in things):
        roles.add(Role.OTHER)
    used = {c for c, t in pairs if t in trained or t in loops or t in taken}
    by_hand = {c for c, t in pairs if taken.get(t, set()) - {x.site for x in loops.get(t, ())}}
    made = tuple(dict.fromkeys(c for c, _ in pairs))
    return Loader(
        pairs[0][0],
        made,
        tuple(dict.fromkeys(c for c, t in pairs if t in trained)),
        frozenset(roles),
        things,
        tuple(c for c in made if c not in used),
        tuple(c for c in made if c in by_hand),
        tuple(dict.fromkeys(loop for t in things for loop in loops.get(t, ()))),
    )
