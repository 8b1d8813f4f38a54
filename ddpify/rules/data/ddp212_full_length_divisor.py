"""DDP212: the sum of one rank's share is divided by the length of the whole data set."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ddpify.ranks.collective import collective
from ddpify.ranks.model import RankCall, RankThing
from ddpify.ranks.passes import is_loader
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.feeds import OVER_SHARE, OVER_WHOLE, SHOWN_OVER_WHOLE
from ddpify.rules.shared.feeds import dataset_of, dealt_by
from ddpify.rules.shared.quotients import Added, added, loops_over, quotients
from ddpify.rules.shared.syntax import resolved
from ddpify.rules.shared.written import given_nodes, text
from ddpify.site import Site


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per division of a share's sum by the whole length."""
    sums = [one for loop, loader in loops_over(run) for one in added(loop, loader)]
    for call in run.named("builtins.len"):
        for one in sums:
            site = _division(call, one)
            if site is not None and _stays_wrong(run, call, one):
                yield Finding(
                    "DDP212",
                    site,
                    "one rank's sum over the length of all samples: too small by the world size",
                    Severity.ERROR,
                    (),
                    "add the sums over the ranks first, or divide by len(loader.sampler)",
                    ((one.site, "added up over this rank's share"),),
                )
                break


def _division(call: RankCall, one: Added) -> Site | None:
    """Where what ``one`` adds up is divided by this length of the whole data set."""
    if one.counts or call.module is not one.loop.module:
        return None
    if not call.args or not _is_whole(call, one.loader) or not dealt_by(one.loader):
        return None
    shares = (q for q in quotients(call) if q.by is call.node and q.total == one.name)
    return next((share.site for share in shares if share.takes(one, one.name)), None)


def _is_whole(call: RankCall, loader: RankThing) -> bool:
    """``len(dataset)`` or ``len(loader.dataset)``."""
    dataset = dataset_of(loader)
    for thing in call.args[0].things:
        if dataset is not None and thing in dataset.things and not is_loader(thing):
            return True
        if thing.kind == "attribute" and thing.receiver is loader:
            return thing.name.endswith(".dataset")
    return False


def _stays_wrong(run: Run, call: RankCall, one: Added) -> bool:
    """No later sum over the ranks makes it right; a mean over them does not."""
    later = (c for c in _reductions(run) if c.order > call.order)
    return all(_averages(run, other) for other in later if _takes(other, one.loader))


def _reductions(run: Run) -> Iterator[RankCall]:
    names = ("all_reduce", "reduce", "all_gather", "all_gather_object", "gather", "gather_object")
    return (c for c in run.calls if c.method in names)


def _takes(call: RankCall, loader: RankThing) -> bool:
    return any(loader in value.sources() for value in call.given)


def _averages(run: Run, call: RankCall) -> bool:
    """Whether a mean is made: by the operation, or by dividing what was reduced afterwards."""
    shared = collective(call)
    operation = shared.node("op") if shared is not None else call.node_of(1, "op")
    if operation is not None and text(operation).endswith("AVG"):
        return True
    worlds = {c.node for c in run.named("torch.distributed.get_world_size")}
    names = {text(node) for node in given_nodes(call)}
    return any(
        one.total in names and one.site.span.line > call.site.span.line
        for one in quotients(call)
        if any(found in worlds for _, found in resolved(call, one.by))
    )


RULE = Rule(
    "DDP212",
    "full-length-divisor",
    "A loader with a DistributedSampler yields a share of the samples, but len(loader.dataset) is"
    " the number of all. The loss of one rank's share over the length of the whole was .5 instead"
    " of 1.0 with two ranks. A sum that is all-reduced before or after is right.",
    "narumiruna/pytorch-distributed-example#1; BUGS D13",
    bad=(OVER_WHOLE, SHOWN_OVER_WHOLE),
    good=(OVER_SHARE,),
    lint=lint,
    severity=Severity.ERROR,
    fixes=False,
)
