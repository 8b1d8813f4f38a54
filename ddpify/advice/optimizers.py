"""How much state each optimizer of ``torch.optim`` keeps, from the arguments it is made with.

What each class makes in its ``_init_group`` (or ``__init__``); tests compare every row with the
state that the class really makes.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpify.advice.arguments import argument_default
from ddpify.advice.model import OptimizerState
from ddpify.facts.details import call_that_made
from ddpify.facts.events import Call
from ddpify.facts.model import Facts
from ddpify.facts.values import Kind, Value

# Tensors of the parameter's size and bytes of scalars, per parameter; then what adds a tensor:
# the argument, its place among the positional ones, and whether it is given by default.
_Extra = tuple[str, int]
KNOWN: dict[str, tuple[int, int, tuple[_Extra, ...]]] = {
    "SGD": (0, 0, (("momentum", 2),)),
    "Adam": (2, 4, (("amsgrad", 5),)),
    "AdamW": (2, 4, (("amsgrad", 5),)),
    "NAdam": (2, 8, ()),
    "RAdam": (2, 4, ()),
    "Adamax": (2, 4, ()),
    "Adadelta": (2, 4, ()),
    "Adagrad": (1, 4, ()),
    "RMSprop": (1, 4, (("momentum", 5), ("centered", 6))),
    "Rprop": (2, 4, ()),
    "ASGD": (1, 12, ()),
}


def states(facts: Facts) -> tuple[OptimizerState, ...]:
    """The state of every optimizer that steps a trained model, each once."""
    made = (t for model in facts.models for t in model.optimizers)
    things = sorted({t.born: t for t in made}.values(), key=lambda t: t.born)
    found = []
    for thing in things:
        call = call_that_made(thing)
        name = thing.name.removeprefix("torch.optim.") if thing.kind is Kind.OPTIMIZER else ""
        found.append(_state(facts, name, call) if call is not None else None)
    return tuple(one for one in found if one is not None)


def _state(facts: Facts, kind: str, call: Call) -> OptimizerState:
    kind = kind.rsplit(".", 1)[-1] or call.name.rsplit(".", 1)[-1]
    known = KNOWN.get(kind)
    if known is None:
        return OptimizerState(kind, call.site, None, 0, "its state is not in the table")
    slots, scalars, extras = known
    unsure = []
    for name, place in extras:
        given = _truth(facts, call.arg(place, name))
        slots += bool(given)
        unsure += [name] if given is None else []
    if call.star:
        unsure.append("its ** arguments")
    if unsure:
        why = f"depends on {', '.join(unsure)}"
        return OptimizerState(kind, call.site, None, scalars, why)
    return OptimizerState(kind, call.site, slots, scalars, ", ".join(_given(facts, call, extras)))


def _given(facts: Facts, call: Call, extras: tuple[_Extra, ...]) -> Iterator[str]:
    for name, place in extras:
        value = call.arg(place, name)
        if value is not None and _truth(facts, value):
            option = argument_default(facts, value)
            yield f"{name} from {option.how}" if option is not None else name


def _truth(facts: Facts, value: Value | None) -> bool | None:
    """Whether an argument switches its tensor on; None: not known."""
    if value is None:
        return False
    if value.known:
        return bool(value.const)
    option = argument_default(facts, value)
    return None if option is None or option.default is None else option.number != 0
