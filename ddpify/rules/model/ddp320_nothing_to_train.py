"""DDP320: a model without a parameter to train is wrapped."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ddpify.ranks.model import RankThing
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.gradients import NET, trained
from ddpify.rules.model.freezing import Freezing, freezings, is_partial
from ddpify.rules.shared.fields import called
from ddpify.rules.shared.wrapped import PLAIN, Wrap, wraps
from ddpify.site import Site

# What the constructor of a class may call that has no parameters itself.
_BARE: Final = frozenset(
    """super __init__ MSELoss L1Loss SmoothL1Loss HuberLoss BCELoss BCEWithLogitsLoss
    CrossEntropyLoss NLLLoss KLDivLoss CosineSimilarity ReLU GELU Sigmoid Tanh Softmax LogSoftmax
    Dropout Flatten Identity float int bool""".split()
)
# What is done with a model that puts nothing into it.
_KEEP: Final = PLAIN - {
    "append",
    "extend",
    "add_module",
    "register_module",
    "register_parameter",
} | {
    "__call__",
    "forward",
    "deepcopy",
    "copy",
    "DistributedDataParallel",
}
_HOLDS: Final = ("Parameter", "register_", "add_module", "setattr", "__getattr__")


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per wrapped model all of whose parameters are frozen, or that has none."""
    changed = list(freezings(run))
    for wrap in wraps(run):
        if wrap.call.module.ours or "apex" in wrap.call.module.source.text or not wrap.inner:
            continue
        frozen = _frozen(run, wrap, changed)
        if frozen is not None or all(map(_is_bare, wrap.inner)):
            yield _finding(wrap, frozen)


def _frozen(run: Run, wrap: Wrap, changed: list[Freezing]) -> Site | None:
    """Where all that is wrapped was frozen, if nothing was unfrozen or put into it since."""
    mine = [
        one
        for one in changed
        if one.where.order < wrap.call.order
        and (one.owners & wrap.parts or any(wrap.holds(owner) for owner in one.owners))
    ]
    last = mine[-1] if mine else None
    if last is None or last.on is not False or is_partial(wrap, last):
        return None
    sure = all(guard in wrap.call.guards for guard in last.where.guards)
    sure = sure and not _may_gain(run, wrap, last.where.order)
    return last.where.site if sure and last.where.ranks == wrap.call.ranks else None


def _may_gain(run: Run, wrap: Wrap, since: int) -> bool:
    """Whether the model may have got another layer before the wrap: ``net.fc = nn.Linear(…)``."""
    end = wrap.call.order
    stores = (s for s in run.stores if since < s.order < end and s.key != "requires_grad")
    if any(wrap.holds(thing) for store in stores for thing in store.base.things):
        return True
    calls = (c for c in run.calls if since < c.order < end and c.method not in _KEEP)
    return any(
        wrap.holds(thing)
        for call in calls
        for value in (call.receiver, *call.given)
        for thing in (value.things if value is not None else ())
        if call.target is None
    )


def _is_bare(thing: RankThing) -> bool:
    """Whether an object is of a class whose text shows that nothing in it has parameters."""
    call, cls = thing.call, thing.cls
    if cls is None or call is None or cls.external_bases() != {"torch.nn.Module"}:
        return False
    if any(value.things for value in call.given):
        return False
    for info in cls.mro():
        if any(word in info.module.text(info.node) for word in _HOLDS):
            return False
        made = info.methods.get("__init__")
        if made is not None and not called(made) <= _BARE:
            return False
    return True


def _finding(wrap: Wrap, frozen: Site | None) -> Finding:
    return Finding(
        "DDP320",
        wrap.call.asked.site,
        "no parameter of this module is trained, and DistributedDataParallel raises RuntimeError"
        " then",
        Severity.ERROR,
        advice="use the module as it is: there are no gradients to average",
        because=((frozen, "all of it is frozen here"),) if frozen is not None else (),
    )


_TEACHER: Final = """
teacher = Net()
{}
teacher = DDP(teacher){}
model = DDP(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
_DISTILLED: Final = """
for x, y in loader:
    optimizer.zero_grad()
    with torch.no_grad():
        wanted = teacher(x)
    F.mse_loss(model(x), wanted).backward()
    optimizer.step()
"""
_LOSS: Final = """

class Weighed(nn.Module):
    def __init__(self, factor=1.0):
        super().__init__()
        self.factor = factor

    def forward(self, out, y):
        return self.factor * F.cross_entropy(out, y)


"""

RULE = Rule(
    "DDP320",
    "nothing-to-train",
    "DistributedDataParallel is for gradients. Around a frozen teacher, or a loss without"
    " parameters, it stops the program where it is made: 'DistributedDataParallel is not needed"
    " when a module doesn't have any parameter that requires a gradient' (measured).",
    "torch.nn.parallel.DistributedDataParallel.__init__",
    lint=lint,
    words=("requires_grad",),
    bad=(
        trained(_TEACHER.format("teacher.requires_grad_(False)", "  # DDP320"), _DISTILLED, NET),
        trained(
            """
            model = DDP(nn.Linear(16, 4))
            criterion = DDP(Weighed())  # DDP320
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            """,
            """
            for x, y in loader:
                optimizer.zero_grad()
                criterion(model(x), y).backward()
                optimizer.step()
            """,
            _LOSS,
        ),
    ),
    good=(
        trained(_TEACHER.format("teacher.body.requires_grad_(False)", ""), _DISTILLED, NET),
        trained(
            """
            net = Net()
            net.requires_grad_(False)
            net.head = nn.Linear(32, 4)
            model = DDP(net)
            optimizer = torch.optim.SGD(net.head.parameters(), lr=0.1)
            """,
            top=NET,
        ),
        trained(
            """
            net = Net()
            net.requires_grad_(False)
            net.head.requires_grad_(True)
            model = DDP(net)
            optimizer = torch.optim.SGD(net.head.parameters(), lr=0.1)
            """,
            top=NET,
        ),
    ),
)
