"""Passes: the loops over batches that train, found by the ``backward`` in them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ddpify.ranks import words
from ddpify.ranks.model import RankCall, RankLoop, RankThing, RankValue

_TURNS = ("builtins.range", "itertools.count")


@dataclass(frozen=True)
class Pass:
    """A loop over a loader's batches, in which a ``backward`` is called."""

    loader: RankThing
    backward: RankCall
    depth: int  # which of ``backward.loops``

    @property
    def loop(self) -> RankLoop:
        """The loop over the batches."""
        return self.backward.loops[self.depth]

    @property
    def epochs(self) -> RankLoop | None:
        """The outermost loop that repeats the pass over one and the same loader."""
        made = self.loader.call.loops if self.loader.call is not None else ()
        repeating = [one for one in self.backward.loops[: self.depth] if one not in made]
        return next((one for one in repeating if not _once(one)), None)


def _once(loop: RankLoop) -> bool:
    """``for epoch in range(1)``."""
    made = loop.over.made_by(*_TURNS) if loop.over is not None else None
    numbers = [arg.constant for arg in made.call.args] if made is not None and made.call else []
    return numbers in ([1], [0, 1])


def is_loader(thing: RankThing) -> bool:
    """A DataLoader, or an object of a project class that is one."""
    if thing.kind == "result" and thing.name == words.LOADER:
        return thing.call is not None
    return thing.cls is not None and thing.call is not None and thing.cls.inherits(words.LOADER)


def loaders_in(value: RankValue | None) -> tuple[RankThing, ...]:
    """The loaders that this is or is made from."""
    if value is None:
        return ()
    direct = tuple(t for t in value.things if is_loader(t))
    return direct or tuple(dict.fromkeys(t for t in value.sources() if is_loader(t)))


def iterated(loop: RankLoop) -> tuple[RankThing, ...]:
    """The loaders whose batches a loop goes over."""
    if loop.over is None or loop.over.made_by(*_TURNS) is not None:
        return ()
    return loaders_in(loop.over)


def backwards(calls: Iterable[RankCall]) -> Iterator[RankCall]:
    """The calls that compute gradients: ``loss.backward()``, timm's ``scaler(loss, optimizer)``."""
    for call in calls:
        plain = call.receiver is not None and call.method in ("backward", "manual_backward")
        if plain or is_scaler(call):
            yield call


def is_scaler(call: RankCall) -> bool:
    """timm's ``scaler(loss, optimizer)``, which goes backward and steps."""
    return call.target is None and call.name.endswith("NativeScaler.__call__")


def differentiated(backward: RankCall) -> RankValue | None:
    """The loss of a backward."""
    given = is_scaler(backward) or backward.name.startswith(("accelerate.", "lightning."))
    return backward.arg(0, "loss") if given else backward.receiver


def training_loops(calls: Iterable[RankCall]) -> frozenset[ast.AST]:
    """The loops around a ``backward()``, those of its callers included."""
    return frozenset(loop.node for call in backwards(calls) for loop in call.loops)


def step_loops(calls: Iterable[RankCall]) -> frozenset[ast.AST]:
    """Those of them whose rounds are steps: over batches, or any where no loader is known."""
    found: set[ast.AST] = set()
    for call in backwards(calls):
        batches = tuple(loop for loop in call.loops if iterated(loop))
        found.update(loop.node for loop in batches or call.loops)
    return frozenset(found)


def passes(gradients: Iterable[RankCall]) -> tuple[Pass, ...]:
    """Every loader that is trained on, with its loop: the innermost around a ``backward``."""
    found: dict[tuple[RankThing, RankLoop], Pass] = {}
    for call in gradients:
        for depth in reversed(range(len(call.loops))):
            loaders = iterated(call.loops[depth])
            for loader in loaders:
                found.setdefault((loader, call.loops[depth]), Pass(loader, call, depth))
            if loaders:
                break
    return tuple(found.values())
