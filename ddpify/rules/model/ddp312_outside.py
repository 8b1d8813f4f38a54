"""DDP312: the optimizer trains a module that no wrapper averages."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.ranks import words
from ddpify.ranks.model import ALL, RankCall, RankThing
from ddpify.ranks.origins import of_one_rank
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.gradients import trained
from ddpify.rules.model.left_out import left_out
from ddpify.rules.shared.parameters import has_parameters
from ddpify.rules.shared.wrapped import (
    Wrap,
    backwards,
    forwards,
    live,
    parameters_of,
    receives,
    wraps,
)
from ddpify.rules.shared.written import holds
from ddpify.site import Site

_REDUCES = frozenset({"all_reduce", "all_reduce_coalesced", "all_gather", "reduce_scatter_tensor"})


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per optimizer that steps parameters outside every wrapper."""
    for call, name, average in left_out(run):
        yield Finding(
            "DDP312",
            average,
            f"the optimizer also trains `{name}`, whose gradients are not averaged: the ranks drift"
            " apart",
            Severity.ERROR,
            advice="average the gradients of all parameters that the optimizer has",
            because=((call.site, "the optimizer"),),
        )
    held = wraps(run)
    migrated = bool(run.helpers)
    if not (held or migrated) or _by_hand(run):
        return
    for call in run.calls:
        optimizer = call.name.startswith("torch.optim.") and "lr_scheduler" not in call.name
        if not optimizer or not call.args or call.ranks != ALL:
            continue  # what some ranks alone train, the others are sent
        owners = parameters_of(call.args[0])
        for owner in owners:
            # An optimizer of nothing is an error: the only owner has parameters, seen or not.
            certain = has_parameters(owner) or (migrated and len(owners) == 1)
            if not certain or not _outside(owner, held):
                continue
            if _trained(run, owner, held, migrated):
                yield _finding(run, call, owner)
                break
            if call.everywhere and _trained_apart(run, owner):
                yield _finding(run, call, owner, Severity.WARNING)
                break


def _outside(owner: RankThing, held: list[Wrap]) -> bool:
    if owner.wrapper is not None or owner.sharded is not None or owner.name in words.WRAPPERS:
        return False
    return not any(wrap.covers(owner) or _may_hold(wrap, owner) for wrap in held)


def _may_hold(wrap: Wrap, owner: RankThing) -> bool:
    """Whether what is wrapped comes of a helper that was given this module: it may be it."""
    module = wrap.wrapper.attrs["module"]
    return not any(map(has_parameters, wrap.inner)) and owner in module.sources()


def _trained(run: Run, owner: RankThing, held: list[Wrap], migrated: bool) -> bool:
    """Whether a loss goes through this module and through a wrapper.

    In a migrated program the data are dealt to the ranks: each loss is of one rank's share.
    """
    calls = [c for w in held for c in forwards(run, w)]
    for backward in backwards(run):
        assert backward.receiver is not None
        sources = live(backward.receiver)
        made = {thing.call for thing in sources}
        through = owner in sources or any(receives(c, owner) for c in made if c is not None)
        if through and (migrated or any(call in made for call in calls)):
            return True
    return False


def _trained_apart(run: Run, owner: RankThing) -> bool:
    """Whether a loss of this rank's own goes through this module, whose weights nobody is sent."""
    losses = (b.receiver for b in backwards(run) if b.everywhere and b.receiver is not None)
    if not any(owner in live(loss) and of_one_rank(loss.all_origins) for loss in losses):
        return False
    sent = (value for call in run.calls if call.name.startswith(words.DIST) for value in call.given)
    return not any(owner in parameters_of(value) or owner in value.sources() for value in sent)


def _by_hand(run: Run) -> bool:
    """Whether the program reduces gradients itself."""
    for call in run.calls:
        if call.name.startswith(words.DIST) and call.method in _REDUCES:
            for arg in call.given:
                if any(t.kind == "attribute" and t.name.endswith(".grad") for t in arg.sources()):
                    return True
                if parameters_of(arg) or ".grad" in call.module.text(call.node):
                    return True
        if call.method in ("register_hook", "register_post_accumulate_grad_hook"):
            return True
    return False


def _finding(
    run: Run, call: RankCall, owner: RankThing, severity: Severity = Severity.ERROR
) -> Finding:
    because = ((owner.site, "this module is in no wrapper"),) if owner.site is not None else ()
    return Finding(
        "DDP312",
        _given(run, call, owner) or call.site,
        f"the optimizer also trains `{owner.name.rpartition('.')[2]}`, which is outside"
        " DistributedDataParallel: its gradients are never averaged, and the ranks drift apart",
        severity,
        advice="put it into the wrapped module, or wrap it as well",
        because=because,
    )


def _given(run: Run, optimizer: RankCall, owner: RankThing) -> Site | None:
    """Where the call of an optimizer itself asks for the module's parameters."""
    asked = (one for one in run.methods("parameters") if holds(optimizer.node, one.node))
    found = (one.site for one in asked if one.receiver and owner in one.receiver.things)
    return next(found, None)


RULE = Rule(
    "DDP312",
    "parameters-outside-wrapper",
    "Only what is inside a wrapper is averaged. A head, a loss with learnt weights or a prompt"
    " that is trained next to the wrapped model gets each rank's own gradient, starts from each"
    " rank's own draw, and is saved from rank 0 only. So it is with what a program leaves out that"
    " averages gradients itself.",
    "DistributedDataParallel docstring (only parameters of the module are synchronised); BUGS 0.3",
    lint=lint,
    bad=(
        trained(
            """
            model = DDP(nn.Linear(16, 8))
            head = nn.Linear(8, 4)
            both = [*model.parameters(), *head.parameters()]
            optimizer = torch.optim.SGD(both, lr=0.1)  # DDP312
            """,
            """
            for x, y in loader:
                optimizer.zero_grad()
                F.cross_entropy(head(model(x)), y).backward()
                optimizer.step()
            """,
        ),
    ),
    good=(
        trained(
            """
            model = DDP(nn.Linear(16, 8))
            head = nn.Linear(8, 4)
            head = DDP(head)
            both = [*model.parameters(), *head.parameters()]
            optimizer = torch.optim.SGD(both, lr=0.1)
            """,
            """
            for x, y in loader:
                optimizer.zero_grad()
                F.cross_entropy(head(model(x)), y).backward()
                optimizer.step()
            """,
        ),
    ),
    fixes=False,
)
