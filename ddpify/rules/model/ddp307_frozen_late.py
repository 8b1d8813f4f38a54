"""DDP307: requires_grad of a part changes after the wrap."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.ranks.run import Run
from ddpify.ranks.wrapped import is_unsynced
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.gradients import NET, trained
from ddpify.rules.model.freezing import Freezing, freezings, is_partial
from ddpify.rules.shared.wrapped import (
    Wrap,
    comes_after,
    followed,
    forwards,
    rewrapped,
    wraps,
)
from ddpify.site import Site

ADVICE = (
    "freeze before the wrap, or wrap again (`model = DDP(model.module)`) when what is trained"
    " changes; with find_unused_parameters=True parts may be frozen later, and trained again"
)


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per change of what is trained that the wrapper does not see."""
    changes = list(freezings(run))
    for wrap in wraps(run) if changes else ():
        if _is_told(wrap) or all(is_unsynced(c, wrap.wrapper) for c in forwards(run, wrap)):
            continue  # or its gradients are averaged elsewhere
        mine = [c for c in changes if c.owners and all(wrap.covers(t) for t in c.owners)]
        for change in mine:
            order = change.where.order
            if not comes_after(change.where, wrap) or rewrapped(run, wrap, order):
                continue
            if not _matters(wrap, change, mine):
                continue
            if followed(wrap, order, change.where.loops, run):
                yield _finding(wrap, change, _apart(wrap, change, changes))


def _is_told(wrap: Wrap) -> bool:
    """``with unfrozen(model): model = wrap_model(model, find_unused_parameters=True)``"""
    entered = (thing.info for value in wrap.call.contexts for thing in value.things)
    told = any(i is not None and i.module.ours and i.name == "unfrozen" for i in entered)
    return told and wrap.flag("find_unused_parameters") is True


def _matters(wrap: Wrap, change: Freezing, changes: list[Freezing]) -> bool:
    """Freezing all and unfreezing all is how GANs take turns, and does no harm after the wrap."""
    partial = is_partial(wrap, change)
    if change.on is True:
        before = [c for c in changes if c.where.order < wrap.call.order and not is_partial(wrap, c)]
        if before and before[-1].on is not True:  # `wrap_model` leaves what is frozen whole bare
            return True
        frozen = [c for c in changes if c.on is not True]
        return any(
            is_partial(wrap, c) or (partial and c.where.order < wrap.call.order) for c in frozen
        )
    later = [c for c in changes if c.where.order > change.where.order and c.on is not False]
    partial = partial or any(is_partial(wrap, c) for c in later)
    return partial and wrap.flag("find_unused_parameters") is False


def _apart(wrap: Wrap, change: Freezing, changes: list[Freezing]) -> Site:
    """Where the program asks for it: not in a helper that makes other changes, too. How it came to
    the function that wraps says nothing: it may be started in several ways."""
    others = [one for one in changes if one.where.site == change.where.site and one is not change]
    known = {call.site for one in others for call in one.where.stack}
    below = (call for call in change.where.stack if others and call not in wrap.call.stack)
    return next((call.site for call in below if call.site not in known), change.where.site)


def _finding(wrap: Wrap, change: Freezing, site: Site) -> Finding:
    what = {
        True: "parameters that were frozen at the wrap are trained from here on, and DDP never"
        " averages their gradients: the ranks drift apart",
        False: "a part is frozen after the wrap: DDP waits for its gradients, one iteration is not"
        " averaged and the next one stops with an error",
        None: "what is trained changes after the wrap, and DDP does not see it: gradients are not"
        " averaged, or an iteration stops with an error",
    }[change.on]
    return Finding(
        "DDP307",
        site,
        what,
        Severity.ERROR,
        advice=ADVICE,
        because=((wrap.call.asked.site, "wrapped here"),),
    )


GROWN = """
class Grown(Net):
    def __init__(self):
        super().__init__()
        self.epochs = 0
        for parameter in self.body.parameters():
            parameter.requires_grad = False

    def train(self, mode=True):
        self.epochs += mode
        if self.epochs > 1:
            for parameter in self.body.parameters():
                parameter.requires_grad = True  # DDP307
        return super().train(mode)


"""

FROZEN = """
net = Net()
net.body.requires_grad_(False)
model = DDP(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""

RULE = Rule(
    "DDP307",
    "requires-grad-after-wrap",
    "DistributedDataParallel looks at requires_grad when it is made. What is unfrozen later is"
    " trained on local gradients for ever, with no error (.545 on one rank, .272 on the other)."
    " What is frozen later is waited for: the first iteration is silently not averaged, the second"
    " stops with 'Expected to have finished reduction'.",
    "lightning#20340, XPhoneBERT#7, detectron2#2486; BUGS G04",
    lint=lint,
    words=("requires_grad",),
    bad=(
        trained(
            FROZEN,
            """
            if epoch == 1:
                model.module.body.requires_grad_(True)  # DDP307
            for x, y in loader:
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
            """,
            NET,
        ),
        trained(  # all of it: the wrapper of the helpers leaves what is frozen whole bare
            """
            net = Net()
            for parameter in net.parameters():
                parameter.requires_grad = False
            model = DDP(net)
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            """,
            """
            if epoch == 1:
                for parameter in net.parameters():
                    parameter.requires_grad = True  # DDP307
            for x, y in loader:
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
            """,
            NET,
        ),
        trained(  # the wrapper calls that of the module inside
            """
            net = Grown()
            model = DDP(net, find_unused_parameters=True)
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            """,
            """
            model.train()
            for x, y in loader:
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
            """,
            f"{NET}{GROWN}",
        ),
        trained(
            """
            model = DDP(Net())
            for name, parameter in model.named_parameters():
                if "body" in name:
                    parameter.requires_grad = False  # DDP307
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            """,
            top=NET,
        ),
    ),
    good=(
        trained(
            FROZEN,
            """
            if epoch == 1:
                net.body.requires_grad_(True)
                model = DDP(net)
            for x, y in loader:
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
            """,
            NET,
        ),
        trained(
            """
            model = DDP(Net(), find_unused_parameters=True)
            model.module.body.requires_grad_(False)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            """,
            top=NET,
        ),
        trained(  # what is averaged by hand does not ask the wrapper
            FROZEN,
            """
            if epoch == 1:
                net.body.requires_grad_(True)
            for x, y in loader:
                optimizer.zero_grad()
                with model.no_sync():
                    F.cross_entropy(model(x), y).backward()
                for parameter in net.parameters():
                    if parameter.requires_grad:
                        dist.all_reduce(parameter.grad)
                optimizer.step()
            """,
            NET,
        ),
    ),
    fixes=False,
)
