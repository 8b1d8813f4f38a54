"""DDP416: reentrant checkpointing in a model that looks for unused parameters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ddpify.ranks.modules import ClassDefinition
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.gradients import trained
from ddpify.rules.gradients.shared_blocks import CHECKPOINT, run_again
from ddpify.rules.shared.wrapped import Wrap, wraps
from ddpify.rules.shared.written import calls_with
from ddpify.site import Site


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per reentrant checkpoint in the class of such a model."""
    for wrap in wraps(run):
        unused = wrap.flag("find_unused_parameters")
        if unused is None or wrap.flag("static_graph") is not False:
            continue
        why = "with find_unused_parameters=True" if unused else "of a block that is run again"
        for site, certain in _reentrant(wrap) if unused else _again(wrap):
            yield Finding(
                "DDP416",
                site,
                f"reentrant checkpointing {why} stops with 'Expected to mark a variable ready only"
                " once'",
                Severity.ERROR if certain else Severity.WARNING,
                advice="use_reentrant=False",
                because=((wrap.call.site, "wrapped here"),),
            )


def _again(wrap: Wrap) -> Iterator[tuple[Site, bool]]:
    found: dict[Site, bool] = {}
    for thing in sorted(wrap.parts, key=lambda one: one.name):
        for site, certain in run_again(thing):
            found[site] = found.get(site, False) or certain
    yield from found.items()


def _classes(wrap: Wrap) -> list[ClassDefinition]:
    classes = {info for t in wrap.parts if t.cls is not None for info in t.cls.mro()}
    return sorted(classes, key=lambda one: one.name)


def _reentrant(wrap: Wrap) -> Iterator[tuple[Site, bool]]:
    for info in _classes(wrap):
        yield from ((site, True) for site in calls_with(info, CHECKPOINT, "use_reentrant"))


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
    " 'Expected to mark a variable ready only once'. So it does, whatever is looked for, where one"
    " forward runs a block several times; not with static_graph=True.",
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
    fixes=False,
)
