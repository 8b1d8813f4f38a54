"""DDP814: the model's size is counted from this rank's part of the data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.origins import Symbol
from ddpify.ranks.run import Run
from ddpify.ranks.words import AGREEING_OPS
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.collectives.numbered import embeds, is_kept, is_own, numbered
from ddpify.rules.examples.ranks import on_ranks
from ddpify.rules.shared.wrapped import Wrap, wraps

_COUNTED: Final = frozenset({"set", "Counter", "unique", "nunique", "max", "amax"})
_ALIKE: Final = ("shape", "size", "dim")  # of samples: the same on all ranks
_PLACING: Final = frozenset({"device", "dtype"})


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per wrapped model that was made with a number of this rank's data, and per
    numbering of what is in it, where a wrapped model has a vector for each number."""
    if any(embeds(part) for wrap in wraps(run) for part in wrap.parts):
        for place, what in numbered(run):
            yield Finding(
                "DDP814",
                place,
                "each rank numbers what is in its own part of the data: one number means other"
                " things on other ranks, and the model has one vector for it",
                Severity.WARNING,
                advice="number them before the data is dealt out, or send rank 0's numbering",
                because=((what, "numbered here"),),
            )
    for wrap in wraps(run):
        for made in _making(wrap):
            counted = [c for v in _arguments(made) if (c := _counted(run, v)) is not None]
            if counted:
                yield _finding(wrap.call, made, counted[0])
                break


def _making(wrap: Wrap) -> list[RankCall]:
    """The calls that made the model and its layers, the innermost first: ``nn.Linear(n, 2)``."""
    calls = {thing.call for thing in (*wrap.inner, *wrap.parts) if thing.call is not None}
    return sorted(calls, key=lambda call: call.order)


def _arguments(call: RankCall) -> Iterator[RankValue]:
    """What may say how large a layer is."""
    made = call.result.things if call.result is not None else ()
    classes = [thing.cls for thing in made if thing.cls is not None]
    init = classes[0].method("__init__") if classes else None
    names = init.parameters[1:] if init is not None else ()
    given = [*zip(names, call.args, strict=False)] if names else [("", one) for one in call.args]
    for name, value in (*given, *call.kwargs.items()):
        if name not in _PLACING and not (init is not None and is_kept(init.node, name)):
            yield value


def _counted(run: Run, value: RankValue) -> RankThing | None:
    """The data of this rank that a number was counted in; None if the ranks agree on it."""
    sources = list(value.sources())
    if any(t.synced or t.name.rpartition(".")[2] in _ALIKE for t in sources):
        return None
    length = isinstance(value.atoms[0], Symbol) and value.atoms[0].key.startswith("len(")
    for thing in sources:
        counts = thing.kind == "result" and thing.name.rpartition(".")[2] in _COUNTED
        counts = counts or (thing.kind == "instance" and length and not _exchanges(run, thing))
        if counts and thing.call is not None and is_own(thing.call):
            return thing
    return None


def _exchanges(run: Run, made: RankThing) -> bool:
    """Whether an object asks the other ranks while it is made."""
    return any(made.call in c.stack for c in run.calls if c.method in AGREEING_OPS)


def _finding(wrap: RankCall, made: RankCall, counted: RankThing) -> Finding:
    because = [(wrap.site, "the model is wrapped here")]
    if counted.site is not None:
        because.insert(0, (counted.site, "counted in this rank's part of the data"))
    return Finding(
        "DDP814",
        made.site,
        "the model is as large as this rank's data make it: DDP fails where the parts differ",
        Severity.ERROR,
        advice="count before the data is dealt out, or all_reduce the number with MAX",
        because=tuple(because),
    )


_BODY: Final = """
torch.manual_seed(0)
table = torch.tensor([[0, 1, 0, 1], [0, 1, 2, 3]])
labels = table[rank]
classes = {}
model = DDP(nn.Linear(2, classes)){}
model(torch.ones(4, 2)).mean().backward()
"""

RULE = Rule(
    "DDP814",
    "model-from-local-data",
    "A vocabulary or a set of labels that is taken from this rank's part gives layers of different"
    " widths. DDP compares the shapes when it wraps: measured, 'params[0] in this process with"
    " sizes [4, 2] appears not to match', and the others lose their connection. Where the"
    " widths fit, one number still means another word on each rank.",
    "DistributedDataParallel docstring; BUGS C13",
    lint=lint,
    bad=(
        on_ranks(_BODY.format("len(set(labels.tolist()))", "  # DDP814")),
        on_ranks(_BODY.format("int(labels.max()) + 1", "  # DDP814")),
    ),
    good=(
        on_ranks(_BODY.format("len(set(table.flatten().tolist()))", "")),
        on_ranks(
            _BODY.replace(
                "classes = ",
                "top = labels.max()\ndist.all_reduce(top, op=dist.ReduceOp.MAX)\nclasses = ",
            ).format("int(top.item()) + 1", "")
        ),
    ),
    fixes=False,
)
