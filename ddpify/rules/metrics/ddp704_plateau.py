"""DDP704: a learning rate that follows each rank's own metric."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.ranks.origins import DATA, RANDOM
from ddpify.ranks.run import Run
from ddpify.ranks.values import spread
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.gradients import SETUP, trained

_OWN = frozenset({DATA, RANDOM})
_STEP = "torch.optim.lr_scheduler.ReduceLROnPlateau.step"


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per step of a ReduceLROnPlateau with a value of this rank's data."""
    for call in run.named(_STEP):
        metric = call.arg(0, "metrics")
        origins = spread(metric) if metric is not None else frozenset()
        why = sorted({(o.site, o.what) for o in origins if o.kind in _OWN})
        if why and call.everywhere:
            yield Finding(
                "DDP704",
                call.site,
                "every rank follows its own metric: the learning rates part, and with them the"
                " weights, without an error",
                Severity.ERROR,
                advice="all_reduce the metric (sum and count) before the step",
                because=tuple(why),
            )


_LOOP = """
total = torch.zeros(1)
for x, y in loader:
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    total += loss.detach()
"""
_PLATEAU = "plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)\n"

RULE = Rule(
    "DDP704",
    "plateau-on-local-metric",
    "ReduceLROnPlateau decides from the number it is given. A loss or a score of this rank's part"
    " differs from the others', so one rank lowers its learning rate and the other does not:"
    " measured, 0.1 against 0.0001, after which equal gradients make different weights.",
    "DALLE-pytorch#268; MONAI tutorials#1461; BUGS C05",
    lint=lint,
    words=("ReduceLROnPlateau",),
    bad=(
        trained(SETUP + _PLATEAU, _LOOP + "plateau.step(total.item())  # DDP704"),
        trained(SETUP + _PLATEAU, _LOOP + "plateau.step(metrics=loss)  # DDP704"),
    ),
    good=(
        trained(SETUP + _PLATEAU, _LOOP + "dist.all_reduce(total)\nplateau.step(total.item())"),
        trained(
            SETUP + "cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=3)\n",
            _LOOP + "cosine.step()",
        ),
    ),
    fixes=False,
)
