"""DDP812: ranks go over shards of different length, and meet in every round."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

from ddpify.ranks import words
from ddpify.ranks.model import RankCall, RankLoop, RankThing, RankValue
from ddpify.ranks.origins import IDENTITY, PIECE, STRIDE, Symbol
from ddpify.ranks.run import Run
from ddpify.ranks.values import counts
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.collectives.unproven import in_training_alone
from ddpify.rules.examples.gradients import trained
from ddpify.rules.shared.counted import divides_evenly, in_equal_numbers, stops_if_uneven
from ddpify.rules.shared.entries import entries
from ddpify.rules.shared.exchanges import JOINS, exchanges
from ddpify.rules.shared.feeds import dataset_of, held
from ddpify.site import Site

_SUBSET: Final = "torch.utils.data.Subset"
_READERS: Final = frozenset(
    "torch.load numpy.load builtins.open pandas.read_csv pandas.read_parquet pickle.load"
    " json.load safetensors.torch.load_file h5py.File".split()
)
_OPENS: Final = re.compile(r"\bopen\(|load\w*\(|read_\w+\(|h5py\.File\(")
_GOES_OVER: Final = frozenset({words.LOADER, "builtins.enumerate", "builtins.iter"})
_SAMPLED: Final = ((3, "sampler"), (4, "batch_sampler"))


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per loop over a strided shard with a collective in it."""
    seen: set[Site] = set()
    for call in exchanges(run):
        if not call.everywhere or call.within(*JOINS):
            continue
        for loop in (one for one in call.loops if one.site not in seen):
            if _is_bounded(call, loop):
                continue
            cut = _strided(run, loop)
            own = _own_file(run, loop) if cut is None else None
            rounds = _rounds(run, call, loop)
            apart = rounds is not None and rounds[0] != rounds[1]
            if apart or (rounds is None and (cut is not None or own is not None)):
                seen.add(loop.site)
                found = _finding(call, loop, cut, own)
                told = _counted(found, *rounds) if rounds is not None else _seldom(found, loop)
                unproven = in_training_alone(run, call.conditions_in(loop))
                yield replace(told, severity=Severity.NOTE) if unproven else told


def _rounds(run: Run, call: RankCall, loop: RankLoop) -> tuple[int, int] | None:
    """How often each rank comes to a call in a loop, where that is known."""
    if loop.over is None or loop.over.made_by("builtins.range"):  # DDP803 speaks of that
        return None
    if _ends_early(run, loop) or not run.in_every_round(call, loop):
        return None
    one, other = (entries(loop.over, rank) for rank in (0, 1))
    return (one, other) if one is not None and other is not None else None


def _counted(found: Finding, one: int, other: int) -> Finding:
    told = f"rank 0 goes through this {one} times and rank 1 {other} times: the last meets nobody"
    return replace(found, message=told, severity=Severity.ERROR)


def _seldom(found: Finding, loop: RankLoop) -> Finding:
    return replace(found, severity=Severity.NOTE) if _rarely(loop.over) else found


def _rarely(over: RankValue | None) -> bool:
    """Whether samples are dealt and then put into batches: n and n + 1 are as many of these,
    unless n is a multiple of their size."""
    if over is None:
        return False
    if any(thing.call is not None and thing.call.method == "split" for thing in over.things):
        return True
    loaders = [thing for thing in over.sources() if thing.name == words.LOADER]
    return any(_is_batched(thing.call) for thing in loaders if thing.call is not None)


def _is_batched(loader: RankCall) -> bool:
    """Not of what reads files of many samples, one after the other."""
    size, data = loader.arg(1, "batch_size"), loader.arg(0, "dataset")
    made = [thing.cls for thing in data.things] if data is not None else []
    streams = any(cls is not None and cls.method("__iter__") is not None for cls in made)
    return size is not None and 1 not in size.atoms and not streams


def _is_bounded(call: RankCall, loop: RankLoop) -> bool:
    """Whether only the first rounds come to it, as many on all ranks: ``if i < len(all) // n``."""
    return any(
        guard.holds and not guard.test.local and _bounds(guard.test.atoms[0])
        for guard in call.conditions_in(loop)
    )


def _bounds(test: Any) -> bool:
    """Whether a condition, or a part of it that has to hold, is about how far a count is."""
    kind, *parts = test.parts if isinstance(test, Symbol) and test.parts else ("",)
    if kind == "And":
        return any(map(_bounds, parts))
    return (kind in ("Lt", "LtE") and counts(parts[0])) or (
        kind in ("Gt", "GtE") and counts(parts[1])
    )


def _finding(call: RankCall, loop: RankLoop, cut: Site | None, own: Site | None) -> Finding:
    why = "one rank has a sample more than another where the samples do not divide evenly"
    files = "each rank goes over a file of its own, and nothing makes their batches equally many"
    told = [(cut, "dealt to the ranks here"), (own, "read by the rank's number")]
    because = [(site, what) for site, what in told if site is not None]
    return Finding(
        "DDP812",
        loop.site,
        f"{why if cut is not None else files}: its last round meets nobody",
        Severity.WARNING,
        advice="deal with DistributedSampler (it pads), cut to equal lengths, or train within Join",
        because=(*because, (call.site, "the ranks meet here")),
    )


def _own_file(run: Run, loop: RankLoop) -> Site | None:
    """Where the samples of a loop over a loader were read from a file that the rank names, and
    are all taken."""
    cut = {thing for value in run.cut for thing in value.sources()}
    if loop.over is None or _sampled(loop.over) or _ends_early(run, loop):
        return None
    for value in _fed(run, loop.over):
        for loader in (thing for thing in value.things if thing.name == words.LOADER):
            dataset = dataset_of(loader)
            for thing in held(dataset) - cut if dataset is not None else ():
                if thing.call is not None and _reads_own(thing, thing.call):
                    return thing.call.site
    return None


def _reads_own(thing: RankThing, call: RankCall) -> bool:
    """``torch.load(f"part{rank}.pt")``, or an object of a class that opens the path it is given."""
    if thing.cls is not None:
        made = thing.cls.method("__init__")
        paths = call.given if made is not None and _OPENS.search(made.text) else ()
        return any(map(_names_rank, paths))
    return call.name in _READERS and bool(call.args) and _names_rank(call.args[0])


def _names_rank(path: RankValue) -> bool:
    """Whether a text has the rank in it."""
    return not path.known and any(origin.kind in IDENTITY for origin in path.origins)


def _ends_early(run: Run, loop: RankLoop) -> bool:
    """Whether a number of rounds may end it, too."""
    breaks = (e for e in run.exits if e.kind == "break" and e.loops[-1:] == (loop,))
    return any(not any(guard.test.local for guard in one.guards) for one in breaks)


def _strided(run: Run, loop: RankLoop) -> Site | None:
    """Where what a loop goes over was dealt with a stride, without making the parts equal."""
    if loop.over is None or _sampled(loop.over):
        return None
    for value in _fed(run, loop.over):
        place = None if divides_evenly(value) else _dealt(value)
        if place is not None and not stops_if_uneven(run.modules[place.path]):
            return place
    return None


def _dealt(value: RankValue) -> Site | None:
    for origin in value.origins:
        equal = origin.what == STRIDE and in_equal_numbers(value)
        if origin.what in (STRIDE, PIECE) and not equal:
            return origin.site
    subset = value.made_by(_SUBSET)
    indices = subset.call.arg(1, "indices") if subset is not None and subset.call else None
    if indices is not None and _strides(indices):
        return subset.site if subset is not None else None
    numbers = value.made_by("builtins.range")
    return numbers.site if numbers is not None and _strides(value) else None


def _fed(run: Run, over: RankValue) -> Iterator[RankValue]:
    """What gives a loop its rounds: itself, what a loader or ``enumerate`` goes over, or, in
    ``range(len(rows))``, the rows."""
    yield over
    for thing in over.things:
        if thing.kind == "result" and thing.call is not None and thing.call.args:
            if thing.name in _GOES_OVER or thing.name.startswith("tqdm"):
                yield from _fed(run, thing.call.args[0])
            elif thing.name == "builtins.range" and len(thing.call.args) == 1:
                number = thing.call.args[0]
                counted = (c for c in run.named("builtins.len") if c.result is number and c.args)
                yield from (rows for call in counted for rows in _fed(run, call.args[0]))
        elif thing.cls is not None and (rounds := thing.cls.method("__iter__")) is not None:
            yield from (v for k, v in thing.attrs.items() if f"self.{k}" in rounds.text)


def _sampled(over: RankValue) -> bool:
    """Whether a sampler decides how many batches there are."""
    loaders = [t for t in over.sources() if t.name == words.LOADER and t.call is not None]
    return any(
        thing.call is not None and thing.call.arg(*place) is not None
        for thing in loaders
        for place in _SAMPLED
    )


def _strides(indices: RankValue) -> bool:
    """Whether these are ``range(rank, len(rows), world)``."""
    made: RankThing | None = indices.made_by("builtins.range")
    if made is None and indices.made_by("builtins.list") is not None:
        return any(_strides(arg) for arg in _arguments(indices.made_by("builtins.list")))
    args = list(_arguments(made))
    if len(args) != 3 or not args[0].by_rank or args[2].by_rank:
        return False
    end = args[1].atoms[0]
    return isinstance(end, Symbol) and end.key.startswith("len(") and "[:]" not in end.key


def _arguments(thing: RankThing | None) -> Iterator[RankValue]:
    if thing is not None and thing.call is not None:
        yield from thing.call.args


_SHARDED: Final = """
rows = TensorDataset(torch.randn(255, 16), torch.randint(0, 4, (255,)))
mine = Subset(rows, range(dist.get_rank(), {}, dist.get_world_size()))
own = DataLoader(mine, batch_size=1, shuffle=True)
model = DDP(nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
_LOOP: Final = """
for x, y in own:{}
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
"""
_FILES: Final = """
part = torch.load(f"part{{dist.get_rank()}}.pt")
own = DataLoader(TensorDataset(part["x"], part["y"]), batch_size=4, shuffle=True)
model = DDP(nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
_TOP: Final = (
    "from torch.distributed.algorithms.join import Join\nfrom torch.utils.data import Subset\n"
)

RULE = Rule(
    "DDP812",
    "uneven-inputs",
    "Dealt with a stride, nine samples are five for rank 0 and four for rank 1. Every round of"
    " training meets in the backward, so the fifth of rank 0 meets nobody: measured, a timeout, or"
    " a gradient that is added to a metric. DistributedSampler pads, so its parts are equal; Join"
    " lets the short ranks answer for the rest. Files of each rank are as long as they are.",
    "pytorch#38174, #33148; lightning#20404; torch.distributed.algorithms.Join; BUGS C11",
    lint=lint,
    severity=Severity.WARNING,
    bad=(
        trained(_FILES.format(), _LOOP.format("  # DDP812")),
        trained(_SHARDED.format("len(rows)"), _LOOP.format("  # DDP812"), _TOP),
        trained(
            loop="""
            files = sorted(os.listdir("rows"))
            for name in files[dist.get_rank() :: dist.get_world_size()]:  # DDP812
                optimizer.zero_grad()
                model(torch.load(f"rows/{name}")).square().mean().backward()
                optimizer.step()
            """,
            top="import os\n",
        ),
    ),
    good=(
        trained(
            _FILES.format(),
            "with Join([model]):" + _LOOP.format("").replace("\n", "\n    "),
            _TOP,
        ),
        trained(_SHARDED.format("248"), _LOOP.format(""), _TOP),
        trained(loop="""
            for x in rows.tensors[0][dist.get_rank() * 8 : dist.get_rank() * 8 + 8]:
                optimizer.zero_grad()
                model(x).square().mean().backward()
                optimizer.step()
            """),
        trained(  # as many on each of two ranks, and of four
            _SHARDED.format("len(rows)").replace("255", "256"), _LOOP.format(""), _TOP
        ),
        trained(
            _SHARDED.format("len(rows)"),
            "with Join([model]):" + _LOOP.format("").replace("\n", "\n    "),
            _TOP,
        ),
    ),
    fixes=False,
)
