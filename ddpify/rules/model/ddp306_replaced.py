"""DDP306: a parameter or layer of a wrapped model is replaced."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ddpify.ranks.events import Store
from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.gradients import NET, trained
from ddpify.rules.shared.parameters import has_parameters
from ddpify.rules.shared.wrapped import (
    Wrap,
    comes_after,
    followed,
    rewrapped,
    wraps,
)
from ddpify.site import Site

_ADDERS = frozenset({"resize_token_embeddings", "add_module", "register_module"})
_ADDERS |= {"register_parameter"}


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per new parameter that a wrapper does not know of."""
    for wrap in wraps(run):
        for one, because in _changes(run, wrap):
            if not comes_after(one, wrap) or rewrapped(run, wrap, one.order):
                continue
            if followed(wrap, one.order, one.loops, run):
                yield Finding(
                    "DDP306",
                    _asked(one, wrap),
                    f"{because} after the wrap: its gradients are never averaged, or the second"
                    " iteration stops with an error",
                    Severity.ERROR,
                    advice="change the model before DistributedDataParallel(), or wrap it again",
                    because=((wrap.call.asked.site, "wrapped here"),),
                )


def _asked(one: Store | RankCall, wrap: Wrap) -> Site:
    """Where the program asks for it after the wrap: not in a method of the model, ``add_head``."""
    owner = one.function.owner if one.function is not None else None
    if owner is None or not owner.inherits("torch.nn.Module"):
        return one.site
    known = {call.site for call in wrap.call.stack}
    return next((call.site for call in one.stack if call.site not in known), one.site)


def _changes(run: Run, wrap: Wrap) -> Iterator[tuple[Store | RankCall, str]]:
    for store in run.stores:
        if store.element:
            if _inside(wrap, store.base) and _are_new(wrap, store.value):
                yield store, "a layer is added"
            continue
        if store.key in ("data", "grad") or not _inside(wrap, store.base):
            continue
        if _are_new(wrap, store.value):
            yield store, f"`{store.key}` is replaced"
    for call in run.methods(*_ADDERS):
        if call.receiver is not None and _inside(wrap, call.receiver):
            yield call, f"`{call.method}` makes new parameters"
    for call in run.methods("append", "insert"):
        grows = call.receiver is not None and _inside(wrap, call.receiver)
        if grows and any(_are_new(wrap, value) for value in call.args):
            yield call, "a layer is added"


def _inside(wrap: Wrap, value: RankValue) -> bool:
    return bool(value.things) and all(wrap.holds(thing) for thing in value.things)


def _are_new(wrap: Wrap, value: RankValue) -> bool:
    return bool(value.things) and all(_is_new(wrap, thing) for thing in value.things)


def _is_new(wrap: Wrap, thing: RankThing) -> bool:
    """Whether a layer was made after the wrap, and has parameters."""
    made = thing.call
    return made is not None and made.order > wrap.call.order and has_parameters(thing)


RULE = Rule(
    "DDP306",
    "parameters-replaced-after-wrap",
    "DistributedDataParallel takes a list of the parameters when it is made. A parameter or layer"
    " that is put into the model later is not on it: measured on two ranks, its gradient was .374"
    " on one and .748 on the other for ever, with no error; the one it replaced then counts as"
    " unused, and the second iteration stops with 'Expected to have finished reduction'.",
    "DistributedDataParallel docstring (never change parameters after wrapping); BUGS G03",
    lint=lint,
    words=("resize_token_embeddings", "add_module(", "register_module(", "] = nn.", ".append(nn."),
    bad=(
        trained(
            """
            model = DDP(Net())
            model.module.head = nn.Linear(32, 4)  # DDP306
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            """,
            top=NET,
        ),
    ),
    good=(
        trained(
            """
            net = Net()
            net.head = nn.Linear(32, 4)
            model = DDP(net)
            model.module.head.bias.data = torch.zeros(4)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            """,
            top=NET,
        ),
    ),
    fixes=False,
)
