"""What is done to the parameters of a model before it is called: drawn, overwritten, frozen."""

from __future__ import annotations

from ddpify.facts.events import Access, Call
from ddpify.facts.joining import flat_deps
from ddpify.facts.protocol import Machine
from ddpify.facts.roles import whole
from ddpify.facts.values import Kind, Thing, Value

DRAWS = "torch.nn.init."


def prepared(m: Machine, things: tuple[Thing, ...]) -> list[Access | Call]:
    """Where parameters of a model, or of others whose parts it has, are changed or frozen."""
    parts = (*things, *_taken_over(things))
    return [*_drawn(m, parts), *_frozen(m, parts)]


def _taken_over(things: tuple[Thing, ...], depth: int = 3) -> set[Thing]:
    """Other models, parts of which these have for their own: ``self.f = Encoder().layers``."""
    values = (value for thing in things for value in thing.attrs.values())
    others = {whole(t) for value in values for t in value.things} - set(things)
    found = {t for t in others if t.kind is Kind.MODEL}
    return found | _taken_over(tuple(found), depth - 1) if found and depth else found


def _frozen(m: Machine, things: tuple[Thing, ...]) -> list[Access | Call]:
    """Where some of the parameters are frozen, or others: ``p.requires_grad = "head" in name``."""
    calls = (e for e in m.events if isinstance(e, Call) and e.name == ".requires_grad_")
    given = [c for c in calls if c.receiver is not None and _has(c.receiver, things)]
    stored = (a for a in m.events.accesses("requires_grad") if a.stored)
    return [*given, *(a for a in stored if _has(a.base, things))]


def _has(value: Value, things: tuple[Thing, ...]) -> bool:
    """Whether a value is a parameter of the model, or made from one."""
    return any(t in things for t in _owners(value))


def _drawn(m: Machine, things: tuple[Thing, ...]) -> list[Call]:
    """``torch.nn.init.normal_(p)`` and ``p.data.normal_()`` for parameters of the model."""
    calls = [e for e in m.events if isinstance(e, Call)]
    drawn = [c for c in calls if c.name.startswith(DRAWS) and c.args and _has(c.args[0], things)]
    written = (c for c in calls if c.receiver is not None and writes(c.name))
    return [*drawn, *(c for c in written if c.receiver and _is_of(c.receiver, things))]


def writes(name: str) -> bool:
    """Whether a method of torch overwrites its tensor: ``normal_``, ``copy_``."""
    return name.startswith(".") and name.endswith("_") and not name.endswith("__")


def _is_of(value: Value, things: tuple[Thing, ...]) -> bool:
    """Whether a value is of the model's: before it is called nothing else is made from it."""
    return _has(value, things) or any(whole(t) in things for t in flat_deps(value))


def _owners(value: Value) -> list[Thing]:
    given = value.dep(Kind.PARAMETERS)
    return [whole(owner) for one in given for owner in one.stands_for]
