"""DDP316: a model makes parameters in a forward, which its wrapper knows nothing of."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.facts.model import Facts
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples import CORRECT, SCRIPT, SINGLE, changed
from ddpify.settings import Settings


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per statement that gives a trained model parameters after it is built."""
    for site in dict.fromkeys(site for model in facts.models for site in model.late):
        yield Finding(
            "DDP316",
            site,
            "the model makes parameters here, after it is built: DistributedDataParallel averages"
            " those that it finds when it is made, and no others",
            Severity.ERROR,
            (),
            "make them in the constructor, with sizes that are given to it",
        )


_NET = """class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.scale = nn.Linear(16, 4), None

    def forward(self, x):
        if self.scale is None:
            self.scale = nn.Parameter(torch.ones(4, device=x.device))  # DDP316
        return self.body(x) * self.scale


def main():
"""
_IN_TIME = (
    _NET.replace("nn.Linear(16, 4), None", "nn.Linear(16, 4), nn.Parameter(torch.ones(4))")
    .replace("        if self.scale is None:\n", "")
    .replace(
        "            self.scale = nn.Parameter(torch.ones(4, device=x.device))  # DDP316\n", ""
    )
)
_SCALED = ("nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))", "Scaled()")

RULE = Rule(
    "DDP316",
    "parameters-made-late",
    "DistributedDataParallel finds a model's parameters when it is made. What the first forward"
    " adds has other values on every rank, and gradients that nobody averages; layers without a"
    " size are an error at the wrap.",
    "torch.nn.parallel.DistributedDataParallel (parameters are registered in the constructor)",
    check,
    bad=(
        changed(SINGLE, ("def main():\n", _NET), _SCALED),
        changed(
            SINGLE,
            (
                "def main():\n",
                _NET.replace("            self.scale = ", "            self.grow(x)\n")
                .replace("nn.Parameter(torch.ones(4, device=x.device))  # DDP316\n", "")
                .replace(
                    "\n\ndef main",
                    "\n    def grow(self, x):\n"
                    "        self.scale = nn.Linear(4, 4).to(x.device)  # DDP316\n\n\ndef main",
                )
                .replace("* self.scale", "* self.scale(x[:, :4])"),
            ),
            _SCALED,
        ),
    ),
    good=(*CORRECT, SCRIPT, changed(SINGLE, ("def main():\n", _IN_TIME), _SCALED)),
    fixes=False,
)
