"""DDP320: a model without a parameter to train is wrapped."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ddpify.ranks.model import RankThing, RankValue
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.gradients import NET, trained
from ddpify.rules.model.freezing import Freezing, freezings
from ddpify.rules.shared.fields import called, read_elsewhere
from ddpify.rules.shared.wrapped import PLAIN, Wrap, wraps
from ddpify.site import Site

# What the constructor of a class may call that has no parameters itself.
_BARE: Final = frozenset(
    """super __init__ MSELoss L1Loss SmoothL1Loss HuberLoss BCELoss BCEWithLogitsLoss
    CrossEntropyLoss NLLLoss KLDivLoss CosineSimilarity ReLU GELU Sigmoid Tanh Softmax LogSoftmax
    Dropout Flatten Identity float int bool""".split()
)
_ADDS: Final = frozenset(
    "append extend add_module register_module register_parameter requires_grad_ apply".split()
)
# What is done with a model that puts nothing into it.
_KEEP: Final = PLAIN - _ADDS | frozenset(
    "__call__ __init__ forward deepcopy copy numel nelement size element_size dim".split()
)
_READS: Final = ("builtins.", "torch.optim.", "torch.nn.parallel.", "torch.save")


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per wrapped model all of whose parameters are frozen, or that has none."""
    changed = sorted(freezings(run), key=lambda one: one.where.order)
    for wrap in wraps(run):
        if wrap.call.module.ours or wrap.by_apex or not wrap.inner or _is_minded(wrap):
            continue
        frozen = _frozen(run, wrap, changed)
        if frozen is not None or all(_is_bare(run, wrap, thing) for thing in wrap.inner):
            yield _finding(wrap, frozen)


def _is_minded(wrap: Wrap) -> bool:
    """``if any(p.requires_grad for p in model.parameters())``, or a ``try`` around it."""
    asked = (guard.test for guard in wrap.call.guards)
    return bool(wrap.call.swallows) or any(_is_of(wrap, test) for test in asked)


def _frozen(run: Run, wrap: Wrap, changed: list[Freezing]) -> Site | None:
    """Where all that is wrapped was frozen, if nothing was unfrozen or put into it since."""
    before = [one for one in changed if one.where.order < wrap.call.order]
    mine = [one for one in before if _is_of(wrap, one.value)]
    last = mine[-1] if mine else None
    if last is None or last.on is not False or not _is_of_all(run, wrap, last):
        return None
    sure = all(guard in wrap.call.guards for guard in last.where.guards)
    sure = sure and not _may_gain(run, wrap, last.where.order)
    return last.where.site if sure else None


def _is_of_all(run: Run, wrap: Wrap, change: Freezing) -> bool:
    """``net.requires_grad_(False)``, or in each round of a loop over ``net.parameters()``."""
    one, inner = change.where, set(wrap.inner)
    if not inner.isdisjoint(change.value.things):
        return True
    loop = one.loops[-1] if one.loops else None
    over = loop.over.things if loop is not None and loop.over is not None else ()
    made = over[0].call if len(over) == 1 else None
    if made is None or made.receiver is None:
        return False
    left = any(exit.loops[-1:] == (loop,) for exit in run.exits)
    whole = not inner.isdisjoint(made.receiver.things)
    return whole and not left and made.method in ("parameters", "named_parameters")


def _may_gain(run: Run, wrap: Wrap, since: int) -> bool:
    """Whether the model may have got another layer before the wrap: ``net.fc = nn.Linear(…)``."""
    end = wrap.call.order
    stores = (s for s in run.stores if since < s.order < end and not s.value.known)
    if any(_is_of(wrap, store.base) for store in stores):
        return True
    for call in (c for c in run.calls if since < c.order < end and c.method not in _KEEP):
        read = call.name.startswith(_READS) and call.method != "setattr"
        if read or (call.target is not None and call.target.place in run.entered):
            continue
        if any(_is_of(wrap, value) for value in call.inputs):
            return True
    return False


def _is_of(wrap: Wrap, value: RankValue) -> bool:
    """Whether a value is the model, a part of it, or was made from one."""
    return any(map(wrap.holds, value.sources()))


def _is_bare(run: Run, wrap: Wrap, thing: RankThing) -> bool:
    """Whether an object keeps numbers and losses alone, as the constructors of its class say, and
    nobody puts anything else into it."""
    call, cls = thing.call, thing.cls
    if cls is None or call is None or cls.external_bases() != {"torch.nn.Module"}:
        return False
    if any(value.things for value in call.given):
        return False
    made = [info.methods["__init__"] for info in cls.mro() if "__init__" in info.methods]
    plain = all(called(one) <= _BARE and not read_elsewhere(one) for one in made)
    return plain and not _may_gain(run, wrap, call.order)


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
    fixes=False,
)
