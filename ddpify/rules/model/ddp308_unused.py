"""DDP308: the model has parameters that its forward never uses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from ddpify.facts.model import Facts
from ddpify.ranks.operations import COMPARISONS
from ddpify.ranks.origins import Symbol
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.gradients import NET, trained
from ddpify.rules.model.chosen_parts import chosen_parts
from ddpify.rules.model.conditions import is_a_setting
from ddpify.rules.model.submodules import Layers, Switch
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
    """Yield one finding per model whose forwards may use other parts where they must not: with
    shards, or in one step, in which a wrapper that looks for unused parameters can do so once."""
    for model in facts.models:
        if not model.unused or _is_alike(facts, model.unused):
            continue
        born = model.things[0].born
        if of(settings).shards:
            what = (
                "ranks that use other layers in one step would hang, or average what does not"
                " belong together, as sharded weights are averaged in groups"
            )
            advice = "let each forward use all layers, or use --strategy ddp"
        elif model.apart:
            what = (
                "of several forwards before one backward each may leave out other layers: DDP,"
                " which has to be told of it, would stop with 'marked as ready twice'"
            )
            advice = "let each forward use all layers, or one forward do all that a step needs"
        else:
            continue
        yield Finding("DDP308", born, f"{model.unused}: {what}", Severity.ERROR, advice=advice)


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
            yield from _in_some_rounds(run, wrap, layers)
            for name, by, site in islice(chosen_parts(run, wrap, layers), 1):
                what = f"each round uses one of `{name}`, as `{by}` says, and leaves out the others"
                yield _finding(wrap, name, site, what)


def _in_some_rounds(run: Run, wrap: Wrap, layers: Layers) -> Iterator[Finding]:
    """A layer that rounds use or leave out by their number: ``model(x, aux=step > 100)``."""
    for layer, switch in layers.switched():
        if switch.site is not None and _is_counted(run, wrap, switch):
            what = f"`{layer}` is used in some rounds, as `{switch.name}` says"
            yield _finding(wrap, layer, switch.site, what)
            return


def _is_counted(run: Run, wrap: Wrap, switch: Switch) -> bool:
    """Whether what switches a layer on compares the number of a round."""
    if switch.of_self:
        stores = (s for s in run.stores if s.key == switch.name and not s.element)
        given = [s.value for s in stores if any(t in wrap.inner for t in s.base.things)]
        return any(_counts(run, value.atoms[0]) for value in given)
    forward = wrap.inner[0].cls.method("forward") if wrap.inner[0].cls is not None else None
    place = forward.parameters.index(switch.name) - 1 if forward is not None else 0
    given = [one for c in forwards(run, wrap) if (one := c.arg(place, switch.name)) is not None]
    return any(_counts(run, value.atoms[0]) for value in given)


def _counts(run: Run, atom: object) -> bool:
    """Whether a condition compares what a loop counts, or what it goes over."""
    if not isinstance(atom, Symbol) or not atom.parts:
        return False
    name, *operands = atom.parts
    if name in COMPARISONS:
        return any(_is_of_round(run, one) for one in operands)
    return any(_counts(run, one) for one in operands)


def _is_of_round(run: Run, atom: object) -> bool:
    if not isinstance(atom, Symbol):
        return False
    if atom.parts:
        return any(_is_of_round(run, one) for one in atom.parts[1:])
    rounds = {f"@{loop.module.path}:{loop.site.span.line}" for loop in run.loops}
    return any(atom.key.endswith(one) for one in rounds)


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


_AUX = """

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(16, 4)
        self.extra = nn.Linear(16, 4)
        self.second = False

    def forward(self, x, extra=False):
        out = self.body(x)
        if extra:
            out = out + self.extra(x)
        return out
"""
_WRAPPED = """
model = DDP(Net()){}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
_TURNS = """
for number, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    F.cross_entropy(model(x, extra={}), y).backward()
    optimizer.step()
"""
_SET = """
model.module.second = epoch > 1
for x, y in loader:
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
"""

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
        trained(_WRAPPED.format("  # DDP308"), _TURNS.format("number % 4 == 0"), _AUX),
        trained(_WRAPPED.format("  # DDP308"), _SET, _AUX.replace("if extra", "if self.second")),
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
        trained(_WRAPPED.format(""), _TURNS.format("True"), _AUX),
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
