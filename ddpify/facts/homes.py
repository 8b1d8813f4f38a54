"""Where a model is complete: after it is built, initialised and moved, before it is used.

That is the place to wrap it: DistributedDataParallel copies rank 0's weights at the wrap and
hooks the parameters it finds there; FSDP has to come before the optimizer.
"""

from __future__ import annotations

import ast
from dataclasses import replace

from ddpify.facts.events import Access, Bind, Call, Forward, Where
from ddpify.facts.missing import Absence, absence, pass_by
from ddpify.facts.model import Home
from ddpify.facts.names_of_models import (
    added,
    as_written,
    called_as,
    holders,
    is_alias,
    is_entry,
    is_namable,
    is_of_rounds,
    is_taken,
    visible_bind,
)
from ddpify.facts.prepared import DRAWS, prepared, writes
from ddpify.facts.protocol import Machine
from ddpify.facts.roles import calls_of, models_of_optimizer, training_forwards, whole
from ddpify.facts.scopes import Frame
from ddpify.facts.values import Kind, Thing, Value
from ddpify.python.words import APEX_AMP
from ddpify.source import Site

MOVES = frozenset(
    """.to .cuda .cpu .float .double .half .bfloat16 .apply .load_state_dict .requires_grad_ .type
    .to_empty .init_weights""".split()
)

_IN_PLACE = (
    ".apply",
    ".load_state_dict",
    ".requires_grad_",
)  # they move nothing and make no parameters
_CASTS = f"{APEX_AMP}initialize"  # which refuses a model that is wrapped


Event = Access | Bind | Call


def home_of(
    m: Machine,
    things: tuple[Thing, ...],
    trained: frozenset[Thing],
    early: bool = False,
    moved: bool = True,
) -> Home | None:
    """The home of a model that may be any of ``things``; None when it never has a name.

    ``trained`` are all models that are: who holds nothing else is wrapped entry by entry.
    ``early``: before its optimizer is made, whatever comes later. ``moved``: on its device, too.
    """
    binds = [b for b in _binds(m, things) if not is_of_rounds(m, b)]
    lists = holders(m, things, trained)
    if any(is_entry(b.target) for b in binds) or lists:
        binds = [b for b in binds if not is_taken(m, b)]
    names = [b for b in binds if is_namable(b.target)]
    entries = [b for b in binds if is_entry(b.target)]
    found = _home(m, things, names, early, moved) or _home(m, things, entries, early, moved)
    if found is None and lists:
        binds = [held.bind for held in lists]
        found = _home(m, things, binds, early, moved, added(m, things))
        each = next((held.each for held in lists if found and held.bind.target == found.target), "")
        found = replace(found, each=each) if found is not None else None
    return found


def _home(
    m: Machine,
    things: tuple[Thing, ...],
    names: list[Bind],
    early: bool,
    moved: bool,
    more: list[Call] | None = None,
) -> Home | None:
    first_use = _first_use(m, things)
    rounds, steps = _rounds(m, things), _steps(m, things)
    names = [b for b in names if not _is_in(b, rounds)]
    names = [b for b in names if not _is_missed(b, steps)] or names
    called = first_use if early else _first_call(m, things)
    made = [b for b in names if b.order < first_use]
    made = made or [b for b in names if b.order < called]  # around one that has an optimizer
    if not made:
        return None
    moves = [*(more or ()), *_moved(m, things, first_use, called if moved else first_use)]
    moves += [e for e in prepared(m, things) if e.order < called]
    moves = [
        c for c in moves if not _is_in_place(c) or not (_is_in(c, rounds) or _is_missed(c, steps))
    ]
    if any(c.order > first_use for c in moves):
        made = [b for b in names if b.order < called]
    built = [b for b in made if not is_alias(m, b)]
    events: list[Event] = [*built, *moves]
    last = max(events, key=_order, default=made[-1])
    bind = visible_bind(made, last.where.frame)
    if bind is None:
        return None
    depth = len(bind.where.stack)
    after = [e for e in events if e.where.frame.stack[:depth] == bind.where.stack]
    after = [e for e in after if not _is_late(e, depth, _forwards(m, things))]
    anchor, frame = max([*after, bind], key=_order), bind.where.frame
    if last.order > anchor.order and "." in bind.target:
        anchor, frame = last, _method_around(last, bind) or frame
    if _is_missed(anchor, steps):
        return None
    used = first_use if anchor.order < first_use else called
    here = [b for b in made if b.where.stack == bind.where.stack]
    target = called_as(m, things, here, bind)
    other = absence(m, frame, target, things, _forwards(m, things))
    statement = _statement_in(m, frame, anchor, used, other)
    calls = _trained_at(m, frame, things)
    if statement is not None and pass_by(m.tree(statement.path), statement, calls, other):
        statement = _statement_in(m, frame, anchor, called, other)
    if statement is None or pass_by(m.tree(statement.path), statement, calls, other):
        return None
    optional = other is not None and other.is_optional(statement)
    return Home(statement, as_written(m, target, bind), optional=optional)


def _moved(m: Machine, things: tuple[Thing, ...], use: int, end: int) -> list[Access | Call]:
    """What moves a model before it is used, to its device before another end."""
    return [c for c in _moves(m, things) if c.order < (end if _on_device(c) else use)]


def _method_around(event: Event, bind: Bind) -> Frame | None:
    """The method that led to an event, of the object whose attribute ``bind`` is: the outermost."""
    found: Frame | None = None
    frame: Frame | None = event.where.frame
    while frame is not None:
        if frame.self_thing is not None and frame.self_thing is bind.where.frame.self_thing:
            found = frame
        frame = frame.caller
    return found


def _rounds(m: Machine, things: tuple[Thing, ...]) -> set[Site]:
    """The loops that call a model and do not make it: there it is complete."""
    born = {thing.born for thing in things}
    makes = (e.where for e in m.events if isinstance(e, Call) and e.site in born)
    called = {loop.site for call in _forwards(m, things) for loop in call.call.where.loops()}
    return called - {loop.site for where in makes for loop in where.loops()}


def _is_in(event: Event, loops: set[Site]) -> bool:
    """``for epoch in …: model = model.apply(set_momentum).train()``."""
    return any(loop.site in loops for loop in event.where.loops())


def _order(event: Event) -> int:
    return event.order


def _first_use(m: Machine, things: tuple[Thing, ...]) -> int:
    """When the model's parameters go to an optimizer, or it is first called."""
    wanted = set(things)
    orders = [_first_call(m, things)]
    for event in m.events:
        if isinstance(event, Call):
            made = event.result.of(Kind.OPTIMIZER)
            if any(wanted & set(models_of_optimizer(t)) for t in made if t.born == event.site):
                orders.append(event.order)
    return min(orders)


def _first_call(m: Machine, things: tuple[Thing, ...]) -> int:
    """When a call first trains the model, moved and wrapped by then; tests may call it before."""
    steps, calls = _steps(m, things), _forwards(m, things)
    ours = [e for e in calls if any(not _other_way(e.call.where, step) for step in steps)]
    trained = training_forwards(calls_of(m), tuple(ours))
    ours = [e for e in ours if e.output in trained] or ours
    return min((e.order for e in ours or calls), default=m.now + 1)


def _forwards(m: Machine, things: tuple[Thing, ...]) -> list[Forward]:
    return [e for e in m.events if isinstance(e, Forward) and whole(e.model) in things]


def _steps(m: Machine, things: tuple[Thing, ...]) -> list[Where]:
    """Where a model may be trained."""
    steps = [e.where for e in m.events if isinstance(e, Call) and e.name == ".backward"]
    calls = _forwards(m, things)
    return [s for s in steps if any(not _other_way(call.call.where, s) for call in calls)]


def _is_late(event: Event, depth: int, calls: list[Forward]) -> bool:
    """``train(model)``, which moves the model and calls it: after that it would be too late."""
    way = event.where.stack[: depth + 1]
    return len(way) > depth and any(f.call.where.stack[: depth + 1] == way for f in calls)


def _is_missed(event: Event, steps: list[Where]) -> bool:
    """What some training passes by: ``if evaluate: load(model); test(model) else: train(model)``.

    Wrapped there, the model would be bare where it is trained.
    """
    return any(_other_way(event.where, step) for step in steps)


def _other_way(one: Where, other: Where) -> bool:
    """Whether a condition decides which of two things happens."""
    held = {guard.site: guard.holds for guard in one.guards}
    return any(held.get(guard.site, guard.holds) != guard.holds for guard in other.guards)


def _on_device(move: Call) -> bool:
    """A move that DistributedDataParallel must come after, even when the optimizer is there."""
    return move.name != ".load_state_dict"


def _is_model(value: Value, things: tuple[Thing, ...]) -> bool:
    return (
        bool(value.things)
        and all(
            whole(t) in things and t.part_of is None
            for t in value.things
            if t.kind in (Kind.MODEL, Kind.WRAPPED)
        )
        and any(t in things for t in value.things)
    )


def _binds(m: Machine, things: tuple[Thing, ...]) -> list[Bind]:
    return [e for e in m.events if isinstance(e, Bind) and _is_model(e.value, things)]


def _moves(m: Machine, things: tuple[Thing, ...]) -> list[Call]:
    moves = [e for e in m.events if isinstance(e, Call) and e.name in MOVES]
    moved = [c for c in moves if c.receiver is not None and _moves_it(c, c.receiver, things)]
    cast = (e for e in m.events if isinstance(e, Call) and e.name == _CASTS and e.args)
    return [*moved, *(c for c in cast if not _models(c.args[0]).isdisjoint(things))]


def _models(value: Value) -> set[Thing]:
    """The models that a value is, or a list of which."""
    return {
        t for one in value.things for t in (one, *(i for v in one.items or () for i in v.things))
    }


def _moves_it(call: Call, receiver: Value, things: tuple[Thing, ...]) -> bool:
    """Whether all of the model is moved, or a part of it changed: ``net.head.apply(draw)``.

    What is moved may be another model instead, where a branch chose one.
    """
    parts = call.name in _IN_PLACE and any(whole(t) in things for t in receiver.things)
    return parts or any(t in things and t.part_of is None for t in receiver.things)


def _is_in_place(call: Access | Call) -> bool:
    if isinstance(call, Access) or call.name in _IN_PLACE:
        return True
    return call.name.startswith(DRAWS) or writes(call.name)


def _statement_in(
    m: Machine, frame: Frame, anchor: Event, first_use: int, other: Absence | None
) -> Site | None:
    """The statement of ``frame`` with the anchor, lifted out of branches that end before use.

    Not out of the one branch in which there is a model at all.
    """
    depth = len(frame.stack)
    stack = anchor.where.stack
    site = stack[depth] if len(stack) > depth else anchor.where.statement
    tree = m.tree(site.path)
    node = tree.statement(site)
    if node is None:
        return None
    uses = _use_sites(m, frame, first_use)
    for above in tree.ancestors(node):
        if isinstance(above, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)):
            break
        if isinstance(above, ast.stmt):
            if any(use.within(tree.site(above)) for use in uses):
                break
            if other is not None and other.keeps(above):
                break
            node = above
    return tree.site(node)


def _trained_at(m: Machine, frame: Frame, things: tuple[Thing, ...]) -> list[Site]:
    """Where, in this activation, calls of a model train it, or lead to those."""
    depth, forwards = len(frame.stack), tuple(_forwards(m, things))
    trained = training_forwards(calls_of(m), forwards)
    ours = [e.call.where for e in forwards if e.output in trained]
    ours = [where for where in ours if where.stack[:depth] == frame.stack]
    return [w.stack[depth] if len(w.stack) > depth else w.statement for w in ours]


def _use_sites(m: Machine, frame: Frame, first_use: int) -> list[Site]:
    """Where, in this activation, things happen from the first use on."""
    depth = len(frame.stack)
    found = []
    for event in m.events:
        where = event.call.where if isinstance(event, Forward) else event.where
        if event.order >= first_use and where.stack[:depth] == frame.stack:
            found.append(where.stack[depth] if len(where.stack) > depth else where.statement)
    return found
