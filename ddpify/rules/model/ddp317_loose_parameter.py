"""DDP317: an optimizer steps a parameter that is in no model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ddpify.facts.details import Optimized
from ddpify.facts.events import Call
from ddpify.facts.joining import parts_of
from ddpify.facts.library_classes import instance_kind
from ddpify.facts.model import Facts
from ddpify.facts.scopes import Frame
from ddpify.facts.values import Kind, Thing, Value
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.edits import once
from ddpify.rules.examples import CORRECT, SINGLE, changed
from ddpify.settings import Settings

_PARAMETER = "torch.nn.Parameter"
DEEP = 6


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per parameter, made in no model, that goes into an optimizer."""
    optimizers = {t for call in facts.calls for t in call.result.of(Kind.OPTIMIZER)}
    given = (t.detail(Optimized) for t in optimizers)
    loose = {t for one in given if one is not None for t in _parameters(one.parameters)}
    calls = once(facts.named(_PARAMETER)).values()
    for call in (calls_[0] for calls_ in calls):
        if not loose.isdisjoint(call.result.things) and not _in_model(call):
            yield Finding(
                "DDP317",
                call.site,
                "this parameter is in no model, so that nothing averages its gradients: the ranks"
                " drift apart",
                Severity.ERROR,
                (),
                "make it in the model's constructor (`self.name = nn.Parameter(…)`) and use it in"
                " forward()",
            )


def _parameters(value: Value, depth: int = DEEP) -> Iterator[Thing]:
    """The single parameters among what an optimizer is given, in lists and groups, too."""
    for thing in value.things if depth else ():
        if thing.name == _PARAMETER:
            yield thing
        for part in parts_of(thing):
            yield from _parameters(part, depth - 1)


def _in_model(call: Call) -> bool:
    """Whether a module makes it for itself."""
    frame: Frame | None = call.where.frame
    while frame is not None:
        owner = frame.function.owner if frame.function is not None else None
        if owner is not None and instance_kind(owner) in (Kind.MODEL, Kind.CRITERION):
            return True
        frame = frame.caller
    return False


_OPT = "    adam = torch.optim.Adam(net.parameters())\n"
_LOSS = "cross_entropy(net(signal.cuda()), label.cuda())"
_HEATED = (_LOSS, "cross_entropy(net(signal.cuda()) * heat, label.cuda())")
_MADE = "    heat = nn.Parameter(torch.ones(1).cuda())  # DDP317\n"
_MODULE = """class Heated(nn.Module):
    def __init__(self, body):
        super().__init__()
        self.body = body
        self.heat = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return self.body(x) * self.heat


def main():
"""
_GLOBAL = "HEAT = nn.Parameter(torch.ones(1))  # DDP317\n"
_OF_MODULE = changed(
    SINGLE,
    ("def main():\n", _MODULE),
    ("nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))", "Heated(nn.Linear(16, 4))"),
    (_OPT, "    adam = torch.optim.Adam([net.heat, *net.body.parameters()])\n"),
)

RULE = Rule(
    "DDP317",
    "loose-parameter",
    "DistributedDataParallel averages the gradients of the parameters inside of the module that it"
    " wraps. One that the script makes for itself and hands to the optimizer is stepped by each"
    " rank's own gradient, and is another number on every rank from the first step on.",
    "torch.nn.parallel.DistributedDataParallel (parameters are registered in the constructor)",
    check,
    bad=(
        changed(
            SINGLE,
            (_OPT, f"{_MADE}    adam = torch.optim.Adam([*net.parameters(), heat])\n"),
            _HEATED,
        ),
        changed(
            SINGLE,
            (
                _OPT,
                f'{_MADE}    groups = [{{"params": net.parameters()}}, {{"params": [heat]}}]\n'
                "    adam = torch.optim.Adam(groups)\n",
            ),
            _HEATED,
        ),
        changed(  # a global one: no module has registered it
            _OF_MODULE,
            ("class Heated", f"{_GLOBAL}\n\nclass Heated"),
            ("        self.heat = nn.Parameter(torch.ones(1))\n", ""),
            ("self.body(x) * self.heat", "self.body(x) * HEAT"),
            ("[net.heat, *", "[HEAT, *"),
        ),
    ),
    good=(
        *CORRECT,
        _OF_MODULE,
    ),
)
