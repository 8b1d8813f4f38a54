"""DDP313: device_ids for a model on the CPU."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.ranks.model import RankValue
from ddpify.ranks.run import Run
from ddpify.rules.base import Edit, Finding, How, Rule, Severity
from ddpify.rules.examples.gradients import trained
from ddpify.rules.shared.parameters import on_cpu
from ddpify.rules.shared.wrapped import wraps


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per wrap with device ids in a program for the CPU."""
    for wrap in wraps(run):
        ids = wrap.call.arg(1, "device_ids")
        if ids is None or not ids.items:
            continue
        if _names_cpu(ids) or on_cpu(run):
            named = "device_ids" in wrap.call.kwargs
            edit = Edit(How.ARGUMENT, wrap.call.site, "", "device_ids")
            yield Finding(
                "DDP313",
                wrap.call.site,
                "device_ids with a model on the CPU: DistributedDataParallel raises ValueError",
                Severity.ERROR,
                (edit,) if named else (),
                "" if named else "pass device_ids=None on the CPU",
            )


def _names_cpu(ids: RankValue) -> bool:
    for item in ids.items or ():
        made = item.made_by("torch.device")
        if made is not None and made.call is not None and made.call.args:
            item = made.call.args[0]
        if item.constant == "cpu":
            return True
    return False


RULE = Rule(
    "DDP313",
    "device-ids-on-cpu",
    "device_ids is for modules on one GPU each. With a CPU module the constructor raises ValueError"
    " ('device_ids and output_device arguments only work with single-device/multiple-device GPU"
    " modules or CPU modules').",
    "DistributedDataParallel(device_ids); BUGS L16",
    lint=lint,
    bad=(
        trained("""
            model = DDP(nn.Linear(16, 4), device_ids=[torch.device("cpu")])  # DDP313
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            """),
    ),
    good=(
        trained("""
            model = DDP(nn.Linear(16, 4), device_ids=None)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            """),
    ),
)
