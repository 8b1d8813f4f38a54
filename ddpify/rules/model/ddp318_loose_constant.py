"""DDP318: a model computes with numbers that each rank drew for itself, and nobody sends."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ddpify.ranks import words
from ddpify.ranks.events import Store
from ddpify.ranks.model import RankThing
from ddpify.ranks.origins import RANDOM
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.gradients import trained
from ddpify.rules.shared.fields import changed_later, read_in
from ddpify.rules.shared.wrapped import Wrap, forwards, wraps

_SENT: Final = ("torch.nn.",)  # parameters, and modules that hold some
_ARRAYS: Final = ("torch.rand", "torch.normal", "numpy.random.permutation", "numpy.random.rand")
_NUMBERS: Final = ("item", "tolist", "int", "float")
_KEPT: Final = ("register_buffer", "register_parameter")


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per attribute of a wrapped model that is drawn, and no part of its state."""
    drawn = [store for store in run.stores if _is_drawn(store)]
    for wrap in wraps(run) if drawn else ():
        for store in drawn if forwards(run, wrap) else ():
            owners = [thing for thing in store.base.things if thing in wrap.parts]
            used = any(_computes(one, store.key) for one in owners)
            if used and store.order < wrap.call.order and not _is_mended(run, store):
                yield _finding(wrap, store)


def _is_drawn(store: Store) -> bool:
    """``self.proj = torch.randn(…)``, where the ranks draw different numbers; no single one, which
    may be a seed."""
    things = store.value.things
    sent = any(one.name.startswith(_SENT) or one.kind == "instance" for one in things)
    single = any(one.call is not None and one.call.method in _NUMBERS for one in things)
    made = (thing.call for thing in store.value.sources() if thing.kind == "result")
    array = any(call is not None and call.args and call.name.startswith(_ARRAYS) for call in made)
    return not store.element and store.value.has(RANDOM) and array and not sent and not single


def _computes(owner: RankThing, name: str) -> bool:
    """Whether forward, or a method that it calls, reads it, and no other changes it."""
    cls = owner.cls
    return cls is not None and name in read_in(cls, "forward") - changed_later(cls)


def _is_mended(run: Run, store: Store) -> bool:
    """Whether it is a buffer by name, or something else is put there, or in it, later."""
    owners, drawn = {*store.base.things}, {*store.value.things}
    for other in run.stores:
        if (
            other is not store
            and other.key == store.key
            and not owners.isdisjoint(other.base.things)
        ):
            return True
    for call in run.calls:
        given = {t for value in call.given for t in value.things}
        sent = call.method in words.COLLECTIVE_OPS and not drawn.isdisjoint(given)
        own = call.receiver is not None and not owners.isdisjoint(call.receiver.things)
        named = call.method in _KEPT and own and call.args and call.args[0].constant == store.key
        filled = call.receiver.things if call.receiver and call.method.endswith("_") else ()
        if sent or named or not drawn.isdisjoint(filled):
            return True
    return False


def _finding(wrap: Wrap, store: Store) -> Finding:
    return Finding(
        "DDP318",
        store.site,
        f"each rank draws its own `{store.key}`: DDP sends parameters and buffers alone, so that"
        " the ranks compute with different models",
        Severity.ERROR,
        advice=f'keep it with self.register_buffer("{store.key}", …)',
        because=((wrap.call.asked.site, "wrapped here"),),
    )


def _net(keeps: str) -> str:
    return f"""

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        {keeps}
        self.head = nn.Linear(32, 4)

    def forward(self, x):
        return self.head((x @ self.proj).sin())
"""


_SETUP: Final = """
torch.manual_seed(dist.get_rank())
model = DDP(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
_PERMUTED: Final = """
import numpy as np


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.order = np.random.permutation(16)  # DDP318
        self.head = nn.Linear(16, 4)

    def mixed(self, x):
        return x[:, self.order]

    def forward(self, x):
        return self.head(self.mixed(x))
"""

RULE = Rule(
    "DDP318",
    "loose-constant",
    "DistributedDataParallel sends rank 0's parameters and buffers when it is made. A plain"
    " attribute is neither: a projection, a permutation or a mask that each rank has drawn for"
    " itself makes them compute different functions with equal weights (measured: outputs 0.25 and"
    " 0.36), and checkpoints do not hold it.",
    "DistributedDataParallel docstring (the state of rank 0 is broadcast in the constructor)",
    lint=lint,
    words=("torch.rand",),
    bad=(
        trained(_SETUP, top=_net("self.proj = torch.randn(16, 32)  # DDP318")),
        trained(top=_PERMUTED, setup=_SETUP),
    ),
    good=(
        trained(_SETUP, top=_net('self.register_buffer("proj", torch.randn(16, 32))')),
        trained(_SETUP, top=_net("self.proj = nn.Parameter(torch.randn(16, 32))")),
        trained(
            _SETUP.replace("dist.get_rank()", "0"), top=_net("self.proj = torch.randn(16, 32)")
        ),
    ),
    fixes=False,
)
