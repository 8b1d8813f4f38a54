"""DDP308: the model has parameters that its forward never uses."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.facts.model import Facts
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.gradients import NET, trained
from ddpify.rules.model.conditions import is_a_setting
from ddpify.rules.model.submodules import Layers
from ddpify.rules.shared.wrapped import Wrap, forwards, wraps
from ddpify.settings import Settings
from ddpify.site import Site
from ddpify.strategies import of

# Why parameters get no gradient, where the same ones get none on each rank.
_ALIKE = (
    "layers are looked up",
    "not every output",
    "a part runs",
    "`train` freezes",
    "nothing reads",
    "of `",
    "methods are called",
)
_NEVER, _AT_TIMES = "is never used", "is used under a condition only"


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per model that is to be sharded and of which ranks may use other parts."""
    for model in facts.models if of(settings).shards else ():
        if model.unused and not _is_alike(facts, model.unused):
            yield Finding(
                "DDP308",
                model.things[0].born,
                f"{model.unused}: ranks that use other layers in one step would hang, or average"
                " what does not belong together, as sharded weights are averaged in groups",
                Severity.ERROR,
                advice="let each forward use all layers, or use --strategy ddp",
            )


def _is_alike(facts: Facts, reason: str) -> bool:
    """Whether the same parameters get no gradient on each rank."""
    if reason.endswith(_AT_TIMES):
        return is_a_setting(facts, reason.split("`")[1])
    return reason.startswith(_ALIKE) or reason.endswith(_NEVER)


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per wrapped model of the project with a layer that no gradient comes to."""
    for wrap in wraps(run):
        info = wrap.inner[0].cls if len(wrap.inner) == 1 else None
        calls = {call.node for call in forwards(run, wrap)}
        if info is None or not calls or _allowed(wrap) or _chosen(run):
            continue
        outside = {s.key for s in run.stores if any(t in wrap.inner for t in s.base.things)}
        layers = Layers(info, run.modules.values())
        if not layers.readable:
            continue
        for name, site in layers.unused():
            if name not in outside:
                yield _finding(wrap, name, site, f"`{name}` of {info.name} is never used")
                break
        else:
            for one, other, site in layers.alternatives() if len(calls) == 1 else ():
                what = f"a forward of {info.name} uses either `{one}` or `{other}`"
                yield _finding(wrap, f"{one}` or `{other}", site, what)


def _allowed(wrap: Wrap) -> bool:
    flags = (wrap.flag("find_unused_parameters"), wrap.flag("static_graph"))
    return flags != (False, False)


def _chosen(run: Run) -> bool:
    """Whether the program chooses what is trained."""
    return any(store.key == "requires_grad" for store in run.stores) or any(
        run.methods("requires_grad_")
    )


def _finding(wrap: Wrap, name: str, site: Site, what: str) -> Finding:
    return Finding(
        "DDP308",
        wrap.call.site,
        f"{what}: one iteration is not averaged, and the next one stops with 'Expected to have"
        " finished reduction'",
        Severity.ERROR,
        advice=f"use `{name}` in every forward, remove it, or pass find_unused_parameters=True",
        because=((site, "here"),),
    )


RULE = Rule(
    "DDP308",
    "unused-parameters",
    "DistributedDataParallel waits for the gradient of every parameter. One that is not part of the"
    " loss never comes: the first iteration is silently not averaged, the second stops with"
    " 'Expected to have finished reduction in the prior iteration'.",
    "pytorch#112152, accelerate#2017; DistributedDataParallel(find_unused_parameters); BUGS G05",
    check,
    lint=lint,
    bad=(
        trained(
            """
            model = DDP(Net())  # DDP308
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            """,
            top=NET.replace(
                "        self.head", "        self.extra = nn.Linear(8, 8)\n        self.head", 1
            ),
        ),
    ),
    good=(
        trained(
            """
            model = DDP(Net())
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            """,
            top=NET,
        ),
        trained(
            """
            model = DDP(Net(), find_unused_parameters=True)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            """,
            top=NET.replace(
                "        self.head", "        self.extra = nn.Linear(8, 8)\n        self.head", 1
            ),
        ),
    ),
)
