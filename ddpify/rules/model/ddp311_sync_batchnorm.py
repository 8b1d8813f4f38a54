"""DDP311: SyncBatchNorm after the wrap, or on the CPU."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.ranks.model import RankCall, RankValue
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.gradients import trained
from ddpify.rules.shared.parameters import CONVERT, on_cpu
from ddpify.rules.shared.wrapped import comes_after, wraps


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per conversion that comes too late, or where it cannot run."""
    for call in run.named(CONVERT):
        module = call.arg(0, "module")
        if module is None:
            continue
        late = _wrapped(run, call, module)
        if late is not None:
            yield Finding(
                "DDP311",
                call.site,
                "SyncBatchNorm is put into a model that is already wrapped, behind the wrapper's"
                " back",
                Severity.WARNING,
                advice="convert first, then wrap",
                because=((late.site, "wrapped here"),),
            )
        elif _wrapped_later(run, call, module) and on_cpu(run):
            yield Finding(
                "DDP311",
                call.site,
                "DistributedDataParallel stops with 'SyncBatchNorm layers only work with GPU"
                " modules'",
                Severity.ERROR,
                advice="convert only where the model is on a GPU",
            )


def _wrapped(run: Run, call: RankCall, module: RankValue) -> RankCall | None:
    """The wrap that came before, if that is sure."""
    for wrap in wraps(run):
        things = module.things
        if comes_after(call, wrap) and things and all(wrap.covers(t) for t in things):
            return wrap.call
    return None


def _wrapped_later(run: Run, call: RankCall, module: RankValue) -> bool:
    things = set(module.things)
    return any(w.call.order > call.order and things & set(w.inner) for w in wraps(run))


RULE = Rule(
    "DDP311",
    "sync-batchnorm-order",
    "convert_sync_batchnorm replaces layers. torch wants it before the wrap, which looks at them."
    " Done after it, the inner module is changed in place: the new layers have the weights and"
    " buffers that the wrapper knows (measured on the CPU), but it has checked nothing. On the CPU,"
    " wrapping a converted model raises ValueError, and so does the first forward of one that was"
    " converted later.",
    "torch.nn.SyncBatchNorm docs (convert before wrapping), apex#109; BUGS G23",
    lint=lint,
    words=("BatchNorm",),
    severity=Severity.WARNING,
    bad=(
        trained("""
            model = DDP(nn.Sequential(nn.Linear(16, 4), nn.BatchNorm1d(4)))
            model = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # DDP311
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            """),
        trained("""
            model = nn.Sequential(nn.Linear(16, 4), nn.BatchNorm1d(4))
            model = DDP(nn.SyncBatchNorm.convert_sync_batchnorm(model))  # DDP311
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            """),
    ),
    good=(
        trained("""
            model = nn.Sequential(nn.Linear(16, 4), nn.BatchNorm1d(4))
            if torch.cuda.is_available():
                model = nn.SyncBatchNorm.convert_sync_batchnorm(model.cuda())
            model = DDP(model)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            """),
    ),
    fixes=False,
)
