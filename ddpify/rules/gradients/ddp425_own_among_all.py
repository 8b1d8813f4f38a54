"""DDP425: labels that count this rank's samples, over the gathered samples of all ranks."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.gradients import trained
from ddpify.rules.gradients.own_rows import own_among_all


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per loss that takes rank 0's samples for the partners of every rank's."""
    for call, gather, certain in own_among_all(run):
        yield Finding(
            "DDP425",
            call.site,
            "row n is this rank's, column n is a sample of rank 0: on the other ranks they are"
            " no partners",
            Severity.ERROR if certain else Severity.WARNING,
            advice="the partner of row n is column rank * len(rows) + n",
            because=((gather.site, "the samples of all ranks are gathered here"),),
        )


_LOOP = """
    for x, y in loader:
        q, k = model(x), model(x.roll(1, 1))
        logits = q @ torch.cat(all_gather(k)).T / 0.1
        labels = {labels}
        optimizer.zero_grad()
        F.cross_entropy(logits, labels).backward(){mark}
        optimizer.step()
    """
_TOP = "from torch.distributed.nn.functional import all_gather"

RULE = Rule(
    "DDP425",
    "labels-without-offset",
    "A contrastive loss over this rank's rows and the gathered rows of all ranks has its partners"
    " on a diagonal that begins at rank * len(rows): the gathered rows lie rank by rank (measured:"
    " 0 of 4 labels of rank 1 are right without it). With the labels 0, 1, 2, … on every rank, all"
    " ranks but the first pull their rows to samples of rank 0.",
    "open_clip ClipLoss; torch.distributed.all_gather",
    lint=lint,
    bad=(trained(loop=_LOOP.format(labels="torch.arange(len(q))", mark="  # DDP425"), top=_TOP),),
    good=(
        trained(
            loop=_LOOP.format(labels="torch.arange(len(q)) + dist.get_rank() * len(q)", mark=""),
            top=_TOP,
        ),
    ),
    fixes=False,
)
