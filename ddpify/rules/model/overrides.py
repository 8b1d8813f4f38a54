"""Methods of torch's modules that a wrapper answers for itself, and models write anew."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from ddpify.facts.events import Access, Call
from ddpify.facts.fresh import method_of
from ddpify.facts.model import Facts, Status
from ddpify.facts.values import Kind
from ddpify.ranks.model import RankThing
from ddpify.ranks.modules import ClassDefinition
from ddpify.rules.base import Finding, How, Severity
from ddpify.rules.edits import edit
from ddpify.rules.examples import SINGLE, changed

# `wrapper.train(mode)` calls that of the model, `wrapper.eval()` its `train(False)`; what is done
# to all parameters goes around what a model writes for it.
_GIVE_SELF = frozenset(
    "eval requires_grad_ apply to cuda cpu float double half bfloat16 type share_memory".split()
)
_INHERITED = _GIVE_SELF | {"parameters", "zero_grad"}


def asked_of_inner(facts: Facts, access: Access) -> bool:
    """Whether the wrapper answers for itself, where the model has a method of its own.

    As nn.DataParallel did: what was asked of that stays as it was.
    """
    wrapped = access.base.of(Kind.WRAPPED)
    own = any(method_of(thing, access.attribute) is not None for thing in wrapped)
    if not own or not _is_alone(facts, access):
        return False
    if access.attribute == "train":
        return any(_says_more(call) for call in _calls(facts, access))
    return access.attribute in _INHERITED and facts.status is not Status.DATA_PARALLEL


def _is_alone(facts: Facts, access: Access) -> bool:
    """``net.eval()``; ``net = net.eval()`` would leave the name to the inner module."""
    return access.attribute not in _GIVE_SELF or all(c.alone for c in _calls(facts, access))


def _calls(facts: Facts, access: Access) -> list[Call]:
    name = f".{access.attribute}"
    return [c for c in facts.calls if c.name == name and c.receiver_site == access.base_site]


def _says_more(call: Call) -> bool:
    """``net.train(freeze=True)``, of which the wrapper's method knows nothing."""
    return len(call.args) > 1 or bool(call.kwargs.keys() - {"mode"})


def has(thing: RankThing, name: str) -> bool:
    """Whether the class of a module has an attribute or a method, its own or inherited."""
    if thing.cls is None:
        return False
    return any(
        name in one.methods or name in one.assigns or _sets(one, name) for one in thing.cls.mro()
    )


def _sets(info: ClassDefinition, name: str) -> bool:
    method = info.methods.get("__init__")
    return method is not None and any(
        isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.ctx, ast.Store)
        for node in ast.walk(method.node)
    )


_TUNED = """class Tuned(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 4)

    def train(self, mode=True, tuned=False):
        self.tuned = tuned
        return super().train(mode)

    def eval(self):
        self.tuned = False
        return super().eval()

    def forward(self, signal):
        return self.layer(signal) * (2 if self.tuned else 1)


"""
OVERRIDDEN = changed(  # an example of DDP303
    SINGLE,
    ("def accuracy", f"{_TUNED}def accuracy"),
    ("nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))", "Tuned()"),
    ("        net.train()\n", "        net.train(tuned=True)  # DDP303\n"),
    (
        "        for signal, label in fit",
        "        net.eval()  # DDP303\n        for signal, label in fit",
    ),
)


def of_parallel(facts: Facts) -> Iterable[Finding]:
    """Yield a finding per ``next(net.children())`` of an nn.DataParallel: no child of the model."""
    for site in dict.fromkeys(site for model in facts.models for site in model.listed):
        call = next((c for c in facts.calls if c.receiver_site == site), None)
        one = f"unwrap({facts.text(site)})"
        pair = f'("module", {one})' if call is not None and "named" in call.name else one
        fix = edit(facts, How.REPLACE, call.site, f"iter([{pair}])") if call is not None else None
        yield Finding(
            "DDP303",
            site,
            "nn.DataParallel has the model as its only child, the model has its own",
            Severity.ERROR,
            (fix,) if fix is not None else (),
            "" if fix is not None else "ask the model itself",
        )
