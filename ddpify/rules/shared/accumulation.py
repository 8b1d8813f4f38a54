"""Gradient accumulation in a run: micro-batches, the step that ends a window, what skips a sync."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from ddpify.ranks.collective import collective
from ddpify.ranks.events import Read, Store
from ddpify.ranks.model import RankCall, RankLoop, RankThing, RankValue
from ddpify.ranks.run import Run
from ddpify.rules.shared.syntax import scope_nodes
from ddpify.rules.shared.windows import Window, counted, evaluate, window
from ddpify.rules.shared.wrapped import (
    Wrap,
    backwards,
    forwards,
    parameters_of,
    reached,
    receives,
    wraps,
)
from ddpify.site import Site

SYNC = "require_backward_grad_sync"
_GOES_OVER = frozenset(f"builtins.{one}" for one in ("enumerate", "list", "tuple", "zip"))


@dataclass(frozen=True, eq=False)
class Accumulation:
    """Backwards of one wrapped model in a loop, and the step after some of them."""

    run: Run
    wrap: Wrap
    backward: RankCall
    step: RankCall
    loop: RankLoop

    @property
    def nested(self) -> bool:
        """Whether the loop is over one window, with the step after it."""
        return self.loop not in self.step.loops

    @cached_property
    def holds(self) -> tuple[RankCall, ...]:
        """The ``no_sync()`` of this model."""
        calls = self.run.methods("no_sync")
        return tuple(call for call in calls if receives(call, self.wrap.wrapper))

    @cached_property
    def switches(self) -> tuple[Store, ...]:
        """The assignments to the wrapper's own switch."""
        wrapper = self.wrap.wrapper
        return tuple(s for s in self.run.stores if s.key == SYNC and wrapper in s.base.things)

    @cached_property
    def forwards(self) -> list[RankCall]:
        """The forwards of the micro-batches."""
        return [c for c in forwards(self.run, self.wrap) if self.loop in c.loops]

    def window(self, extra: int) -> Window | None:
        """Sample rounds of the loop."""
        tests = [g.test for one in self._moments() for g in one.guards]
        tests += [g.test for s in self.switches for g in s.guards]
        path = self.loop_path
        tests += [g.test for e in self.run.exits if e.loops == path for g in e.guards]
        tests += [s.value for s in self.switches]
        return window(self.run, self.loop, tests, extra)

    def _moments(self) -> tuple[RankCall | Read, ...]:
        return (self.step, *self.holds, *self.chosen, *self.forwards)

    @property
    def loop_path(self) -> tuple[RankLoop, ...]:
        """The loops around a statement of the loop's body."""
        path = self.backward.loops
        return path[: path.index(self.loop) + 1]

    def unsynced(self, rounds: Window, number: int) -> bool | None:
        """Whether a micro-batch skips the all-reduce; None if it is not known."""
        answers = [self._held(rounds, number)]
        if self.switches:
            answers.append(self._switched(rounds, number))
        if True in answers:
            return True
        return None if None in answers else False

    def _held(self, rounds: Window, number: int) -> bool | None:
        answer: bool | None = False
        for hold in self.holds:
            for forward in self.forwards:
                around = _around(forward, hold)
                if around is None:
                    continue
                decision = self._decision(rounds, hold)
                if len(around.things) > 1 and not rounds.decides(decision):
                    answer = None  # one of several contexts, chosen elsewhere
                    continue
                both = (rounds.happens(decision, number), rounds.happens(forward, number))
                if both == (True, True):
                    return True
                if False not in both:
                    answer = None
        return answer

    def _decision(self, rounds: Window, hold: RankCall) -> RankCall | Read:
        """Where ``no_sync()`` is decided: it may be chosen uncalled, ``model.no_sync``."""
        if rounds.decides(hold):
            return hold
        for read in reversed(self.chosen):
            if read.order < hold.order and rounds.decides(read):
                return read
        return hold

    @cached_property
    def chosen(self) -> list[Read]:
        """Where ``no_sync`` of this model is named, in the loop."""
        wrapper = self.wrap.wrapper
        named = [r for r in self.run.reads if r.attribute == "no_sync" and self.loop in r.loops]
        return [read for read in named if wrapper in read.base.things]

    def _switched(self, rounds: Window, number: int) -> bool | None:
        first = min((f.order for f in self.forwards), default=0)
        answer: bool | None = False
        for store in self.switches:
            if store.order > first or self.loop not in store.loops:
                continue
            there = rounds.happens(store, number)
            if there is not False:
                value = evaluate(store.value.atoms[0], rounds.known(number))
                answer = None if there is None or value is None else not value
        return answer

    @property
    def site(self) -> Site:
        """What decides over the sync."""
        return (self.holds or self.switches)[0].site


def _around(call: RankCall, hold: RankCall) -> RankValue | None:
    """The open ``with`` block of a call that may be this ``no_sync()``."""
    things = hold.result.things if hold.result is not None else ()
    return next((v for v in call.contexts if any(thing in v.things for thing in things)), None)


def accumulations(run: Run) -> tuple[Accumulation, ...]:
    """The accumulating loops: the step happens in some rounds only, or after a loop over parts."""
    return run.once(_accumulations)


def _accumulations(run: Run) -> tuple[Accumulation, ...]:
    return tuple(_accumulating(run))


def _accumulating(run: Run) -> Iterator[Accumulation]:
    steps = list(steps_of(run))
    for wrap in wraps(run):
        mine = forwards(run, wrap)
        for backward in backwards(run):
            if not backward.loops or not reached(backward, mine):
                continue
            found = _found(run, wrap, backward, steps)
            if found is not None:
                yield found


def skips(run: Run) -> bool:
    """Whether the program leaves out a sync anywhere."""
    return any(run.methods("no_sync")) or any(store.key == SYNC for store in run.stores)


def steps_of(run: Run) -> Iterator[RankCall]:
    """Steps of optimizers, be it through a scaler; of one not seen made, if it clears gradients."""
    clears = {t for c in run.methods("zero_grad") if c.receiver for t in c.receiver.things}
    for call in run.methods("step"):
        known = call.name.startswith("torch.optim.") and "lr_scheduler" not in call.name
        things = call.receiver.things if call.receiver is not None else ()
        if known or call.name.endswith(".GradScaler.step") or not clears.isdisjoint(things):
            yield call


def _found(run: Run, wrap: Wrap, backward: RankCall, steps: list[RankCall]) -> Accumulation | None:
    for step in steps:
        loop = backward.loops[-1]
        if of_another(step, wrap):
            continue
        if step.loops and step.loops[-1] is loop:
            one = Accumulation(run, wrap, backward, step, loop)
            if _some_rounds(one):
                return one
        elif _after(step, backward) and _over_parts(run, loop) and not _cleared(run, loop):
            return Accumulation(run, wrap, backward, step, loop)
    return None


def of_another(step: RankCall, wrap: Wrap) -> bool:
    """Whether the optimizer that steps was made for the parameters of other models only."""
    scaled = step.arg(0, "optimizer") if step.name.endswith(".GradScaler.step") else step.receiver
    made = [t.call for t in scaled.things if t.call is not None] if scaled is not None else []
    given = [call.arg(0, "params") for call in made]
    models = {t for value in given if value is not None for t in parameters_of(value)}
    return bool(models) and all(t.kind != "parameter" and not wrap.covers(t) for t in models)


def _after(step: RankCall, backward: RankCall) -> bool:
    """Whether the step comes after the loop of the backward."""
    return step.order > backward.order and step.loops == backward.loops[:-1]


def _some_rounds(one: Accumulation) -> bool:
    rounds = one.window(0)
    if rounds is None or _apart(one, rounds):
        return False
    steps = [rounds.happens(one.step, n) for n in rounds.numbers]
    goes = [rounds.happens(one.backward, n) for n in rounds.numbers]
    some = True in steps or (None, None) in zip(steps, goes, strict=True)  # in an arm of both
    return some and sum(s is False for s in steps) > len(steps) // 3 and _more(goes, steps)


def _apart(one: Accumulation, rounds: Window) -> bool:
    """Whether a condition that no round decides leads to either: ``if accumulates: … else: …``."""
    held = {guard.node: guard.holds for guard in one.backward.guards}
    tests = [g.test for g in one.step.guards if held.get(g.node, g.holds) is not g.holds]
    return any(
        all(evaluate(test.atoms[0], rounds.known(n)) is None for n in rounds.numbers)
        for test in tests
    )


def _more(goes: list[bool | None], steps: list[bool | None]) -> bool:
    """Whether some round goes backward, perhaps in another arm, without a step."""
    return any(step is False and go is not False for go, step in zip(goes, steps, strict=True))


def _over_parts(run: Run, loop: RankLoop) -> bool:
    """Whether a loop counts micro-batches or takes the parts of one batch."""
    if loop.over is None:
        return False
    made = counted(run, loop)
    if made is not None and len(made.args) == 1:
        number = made.args[0]
        return number.constant is None or (isinstance(number.constant, int) and number.constant > 1)
    return any(_splits(thing.call) for thing in _gone_over(loop.over) if thing.kind == "result")


def _gone_over(over: RankValue) -> Iterator[RankThing]:
    """What a loop takes the elements of: of ``enumerate(zip(xs, ys))``, the two."""
    for thing in over.things:
        if thing.name in _GOES_OVER and thing.call is not None:
            yield from (one for part in thing.call.args for one in _gone_over(part))
        else:
            yield thing


def _splits(call: RankCall | None) -> bool:
    if call is None or call.method not in ("chunk", "split", "tensor_split"):
        return False
    number: RankValue | None = call.args[-1] if call.args else None
    return number is None or number.constant != 1


def _cleared(run: Run, loop: RankLoop) -> bool:
    return any(loop in call.loops for call in run.methods("zero_grad"))


def disagrees(one: Accumulation) -> bool:
    """Whether there is a round that steps without a sync, whatever the number of rounds."""
    answers = []
    for extra in (0, 1):
        rounds = one.window(extra)
        if rounds is None:
            return False
        numbers = list(rounds.numbers)
        if one.nested:
            answers.append(one.unsynced(rounds, numbers[-1]) is True)
        else:
            answers.append(
                any(
                    rounds.happens(one.step, n) is True and one.unsynced(rounds, n) is True
                    for n in numbers
                )
            )
    return any(answers) if not one.nested else all(answers)


def never_synced(run: Run) -> Iterator[tuple[RankCall, RankCall]]:
    """A ``no_sync()`` and a step, where all forwards of a model that trains are under one."""
    steps = list(steps_of(run))
    for wrap in wraps(run):
        holds = [c for c in run.methods("no_sync") if receives(c, wrap.wrapper)]
        trained = [c for b in backwards(run) for c in reached(b, forwards(run, wrap))]
        around = [next((h for h in holds if _surely_around(c, h)), None) for c in trained]
        first = around[0] if around else None
        step = next((s for s in steps if not of_another(s, wrap)), None)
        if first is None or step is None or None in around:
            continue
        if not any(averages_gradients(c) for c in run.calls if c.order > first.order):
            yield first, step


def averages_gradients(call: RankCall) -> bool:
    """Whether a collective may be one on gradients, packed or not: its function reads some."""
    if collective(call) is None:
        return False
    nodes = scope_nodes(call)
    return any(isinstance(node, ast.Attribute) and node.attr == "grad" for node in nodes)


def _surely_around(call: RankCall, hold: RankCall) -> bool:
    around = _around(call, hold)
    return around is not None and len(around.things) == 1


def reduced_by_hand(run: Run, one: Accumulation) -> bool:
    """Whether gradients are reduced between the backward and the step."""
    calls = (c for c in run.calls if one.backward.order < c.order < one.step.order)
    reduced = (node for c in calls if collective(c) is not None for node in ast.walk(c.node))
    return any(isinstance(node, ast.Attribute) and node.attr == "grad" for node in reduced)
