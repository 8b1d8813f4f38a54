"""What methods of a model do that torch calls by itself, or a wrapper: read beside the record. ::

    def train(self, mode=True):
        super().train(mode)
        print("batch norm is frozen")  # with each `net.train()`, that of the wrapper too

When they run is what calls of the model say, and what layers make of samples is taken for granted
there. Of these bodies is asked what a user sees of them, and what they look at.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from ddpify.facts.events import Bind, Call
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import ClassInfo, FunctionInfo, functions_in
from ddpify.facts.values import NOTHING, Kind, Measure, Thing, Value, one
from ddpify.facts.whole_forwards import opened
from ddpify.source import Site

GIVEN_SAMPLES = frozenset({"forward", "__call__"})
CALLED = GIVEN_SAMPLES | frozenset(
    """train eval state_dict load_state_dict parameters named_parameters zero_grad to cuda cpu
    float double half requires_grad_ apply children named_children modules named_modules
    reset_parameters _apply _load_from_state_dict _save_to_state_dict""".split()
)
_MODELS = (Kind.MODEL, Kind.WRAPPED)


@dataclass(frozen=True)
class Within:
    """What happens in such methods, and what their expressions are."""

    calls: tuple[Call, ...]
    binds: tuple[Bind, ...]
    values: dict[Site, Value]


def within(m: Machine) -> Within:
    """One reading of each such method of each class that the program makes a model of."""
    if m.exhausted:
        return Within((), (), {})
    methods = dict(_methods(m, {*CALLED, *_asked(m)}))
    batches = frozenset(m.made(Kind.BATCH))
    with m.aside():
        for info, model in methods.items():
            m.enter(None, info, (one(_open(model)),), _given(info, batches), info.site)
        events = tuple(m.events)
        values = m.values
    calls = tuple(event for event in events if isinstance(event, Call))
    return Within(calls, tuple(event for event in events if isinstance(event, Bind)), values)


def _given(info: FunctionInfo, batches: frozenset[Thing]) -> dict[str, Value]:
    """Samples for a ``forward``; what may be anything for settings, and for other methods."""
    spec = info.node.args
    names = [arg.arg for arg in (*spec.posonlyargs, *spec.args)]
    settings = {
        name
        for name, default in zip(reversed(names), reversed(spec.defaults), strict=False)
        if not (isinstance(default, ast.Constant) and default.value is None)
    }
    settings |= {arg.arg for arg in spec.kwonlyargs}
    rows = Value((), batches, Measure.SAMPLES, rows=True)
    sampled = info.name in GIVEN_SAMPLES
    given = {name: rows if sampled and name not in settings else NOTHING for name in names[1:]}
    return given | {arg.arg: NOTHING for arg in spec.kwonlyargs}


def _open(model: Thing) -> Thing:
    """A module as it may be at any call: what is None at first will be something else later."""
    made = opened(model)
    made.attrs = {name: value.but(setting=value.known) for name, value in made.attrs.items()}
    return made


def _asked(m: Machine) -> Iterator[str]:
    """The methods that the program calls of a model or a wrapper, where they are not entered."""
    for event in m.events:
        owner = event.receiver if isinstance(event, Call) and event.target is None else None
        if isinstance(event, Call) and owner is not None and owner.of(*_MODELS):
            yield event.name[1:]


def _methods(m: Machine, names: set[str]) -> Iterator[tuple[FunctionInfo, Thing]]:
    entered = {event.target for event in m.events if isinstance(event, Call)}
    for model in m.made(Kind.MODEL):
        info = model.ref
        for name in names if isinstance(info, ClassInfo) else ():
            found = functions_in(info.lookup(name)) if isinstance(info, ClassInfo) else []
            yield from ((method, model) for method in found if method not in entered)
