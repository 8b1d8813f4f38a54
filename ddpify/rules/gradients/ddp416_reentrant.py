"""DDP416: reentrant checkpointing in a model that looks for unused parameters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.gradients import trained
from ddpify.rules.shared.wrapped import Wrap, wraps
from ddpify.rules.shared.written import calls_with
from ddpify.site import Site

_CHECKPOINT = "torch.utils.checkpoint.checkpoint"


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per reentrant checkpoint in the class of such a model."""
    for wrap in wraps(run):
        if (
            wrap.flag("find_unused_parameters") is not True
            or wrap.flag("static_graph") is not False
        ):
            continue
        for site in _reentrant(wrap):
            yield Finding(
                "DDP416",
                site,
                "reentrant checkpointing with find_unused_parameters=True stops with 'Expected to"
                " mark a variable ready only once'",
                Severity.ERROR,
                advice="use_reentrant=False",
                because=((wrap.call.site, "wrapped here"),),
            )


def _reentrant(wrap: Wrap) -> Iterator[Site]:
    classes = {info for t in wrap.parts if t.cls is not None for info in t.cls.mro()}
    for info in sorted(classes, key=lambda one: one.name):
        yield from calls_with(info, _CHECKPOINT, "use_reentrant")


_DEEP = """
from torch.utils.checkpoint import checkpoint


class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Linear(16, 16)
        self.two = nn.Linear(16, 4)

    def forward(self, x):
        return checkpoint(self.two, self.one(x), use_reentrant=True)  # DDP416
"""

RULE = Rule(
    "DDP416",
    "reentrant-checkpoint",
    "Reentrant checkpointing runs a backward inside the backward. With find_unused_parameters=True"
    " the parameters of the block are marked ready twice, and the first iteration stops with"
    " 'Expected to mark a variable ready only once'.",
    "peft#313, accelerate#2017, pytorch#106985; BUGS G19",
    lint=lint,
    words=("use_reentrant",),
    bad=(
        trained(
            """
            model = DDP(Deep(), find_unused_parameters=True)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            """,
            top=_DEEP,
        ),
    ),
    good=(
        trained(
            """
            model = DDP(Deep(), find_unused_parameters=True)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            """,
            top=_DEEP.replace("True)  # DDP416", "False)"),
        ),
        trained(
            """
            model = DDP(Deep())
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            """,
            top=_DEEP.replace("  # DDP416", ""),
        ),
    ),
)
