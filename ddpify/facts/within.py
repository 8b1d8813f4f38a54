"""What methods of a model do that torch calls by itself, or a wrapper: read beside the record. ::

    def train(self, mode=True):
        super().train(mode)
        print("batch norm is frozen")  # with each `net.train()`, that of the wrapper too

When they run is what calls of the model say, and what layers make of samples is taken for granted
there. Of these bodies is asked what a user sees of them, and what they look at.

Functions that a module calls in each forward, read where they are registered.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from ddpify.facts.events import Bind, Call
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import ClassInfo, Frame, FunctionInfo, functions_in
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


HOOKS: Final = ("register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook")
# What may be asked of a tensor or a module: nothing that samples are in.
_TOLD: Final = frozenset("shape size dim ndim dtype device numel __class__ training".split())
_ASKS: Final = frozenset("type len isinstance id str repr".split())
_GIVEN: Final = {".register_forward_hook": 2, ".register_forward_pre_hook": 1}  # and the module


def followed(call: Call) -> Iterator[Thing]:
    """The functions among the hooks that a call registers which change no output."""
    if call.name in _GIVEN and len(call.args) == 1 and not call.kwargs:
        yield from (t for t in call.args[0].things if _gives_nothing(t.ref))


def registered(m: Machine, f: Frame, module: Thing, call: Call) -> None:
    """Read a hook as it is registered; in a loss, what it keeps of the samples is not known."""
    for thing in followed(call):
        mark = m.make(Kind.UNREAD, f, call.site, call.name)
        seen = Value((), frozenset({mark}), Measure.MIXED)
        m.apply(f, one(thing), (one(module), *[seen] * _GIVEN[call.name]), call.site)


def _gives_nothing(info: object) -> bool:
    if not isinstance(info, FunctionInfo) or isinstance(info.node, ast.Lambda):
        return False
    return not any(isinstance(n, ast.Return) and n.value for n in ast.walk(info.node))


def looking(calls: Iterable[Call]) -> set[Site]:
    """The modules, by where they stand, that are given hooks which look at no more than shapes."""
    told = [c for c in calls if c.name.removeprefix(".") in HOOKS and len(c.args) == 1]
    given = ((call.receiver_site, call.args[0].things) for call in told)
    return {site for site, found in given if site and found and all(_looks(t.ref) for t in found)}


def _looks(info: object) -> bool:
    """``def hook(module, given, result): print(type(module).__name__, result.shape[1:])``."""
    if not isinstance(info, FunctionInfo) or not _gives_nothing(info):
        return False
    names = {arg.arg for arg in ast.walk(info.node.args) if isinstance(arg, ast.arg)}
    above = {child: each for each in ast.walk(info.node) for child in ast.iter_child_nodes(each)}
    uses = [n for n in ast.walk(info.node) if isinstance(n, ast.Name) and n.id in names]
    return all(_is_asked(use, above) for use in uses)


def _is_asked(node: ast.AST, above: dict[ast.AST, ast.AST]) -> bool:
    """``result.shape``, ``given[0].size(1)``, ``type(module)``."""
    around = above[node]
    while isinstance(around, ast.Subscript) and around.value is node:
        node, around = around, above[around]
    if isinstance(around, ast.Attribute):
        return around.attr in _TOLD
    called = around.func if isinstance(around, ast.Call) else None
    return isinstance(called, ast.Name) and called is not node and called.id in _ASKS
