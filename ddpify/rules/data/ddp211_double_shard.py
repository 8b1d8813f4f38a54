"""DDP211: samples are dealt twice."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.ranks import words
from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.origins import IDENTITY, LOCAL_RANK, PART, PIECE, STRIDE
from ddpify.ranks.passes import is_loader
from ddpify.ranks.run import Run
from ddpify.ranks.sizes import Sized
from ddpify.ranks.values import key_of
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.feeds import DEALT_TWICE, PREPARED, PREPARED_ALONE
from ddpify.rules.examples.gradients import trained
from ddpify.rules.shared.accelerators import deals_otherwise
from ddpify.rules.shared.feeds import dealt_by
from ddpify.rules.shared.fields import read_in
from ddpify.site import Site

_SUBSET = "torch.utils.data.Subset"
_PREPARE = frozenset(
    {"accelerate.Accelerator.prepare", "accelerate.Accelerator.prepare_data_loader"}
)


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per DistributedSampler in a loader that accelerate deals once more, and
    per sampler over what is this rank's part already."""
    for call in run.named(words.SAMPLER):
        part = _part_of_rank(call)
        if part is not None:
            yield Finding(
                "DDP211",
                call.site,
                "these samples are this rank's part already, and the sampler deals them once more:"
                " half of the data is lost with two ranks",
                Severity.ERROR,
                (),
                "let the sampler alone deal, or shuffle a part with RandomSampler",
                ((part, "dealt by the rank here"),),
            )
    for call in run.calls:
        if call.name in _PREPARE and not deals_otherwise(call):
            for sampler in _samplers(call):
                yield Finding(
                    "DDP211",
                    sampler.site or call.site,
                    "accelerate deals this loader's batches once more: half of the data is lost"
                    " with two ranks",
                    Severity.ERROR,
                    (),
                    "make the loader with shuffle=True and no sampler: prepare() puts one in",
                    ((call.site, "prepared here"),),
                )


def _part_of_rank(sampler: RankCall) -> Site | None:
    """Where what a sampler of all ranks deals was taken by the rank's number."""
    dataset, replicas = sampler.arg(0, "dataset"), sampler.arg(1, "num_replicas")
    rank = sampler.arg(2, "rank")
    if rank is not None and rank.has(LOCAL_RANK):
        return None  # of its node
    of_all = replicas is None or replicas.constant is None or isinstance(replicas.atoms[0], Sized)
    if dataset is None or not of_all or (replicas is not None and not replicas.known):
        return None
    for thing in dataset.things:
        indices = thing.call.arg(1, "indices") if thing.call is not None else None
        if thing.name == _SUBSET and indices is not None and _is_by_rank(indices):
            return thing.site
    held = [
        value
        for thing in dataset.things
        for name, value in (thing.attrs.items() if thing.cls is not None else ())
        if thing.cls is not None and name in read_in(thing.cls, "__getitem__")
    ]
    origins = (origin for value in (dataset, *held) for origin in value.origins)
    return next(
        (one.site for one in origins if one.what in (PART, PIECE, STRIDE)), _listed(dataset)
    )


def _is_by_rank(value: RankValue) -> bool:
    return any(origin.kind in IDENTITY for origin in value.all_origins)


def _listed(dataset: RankValue) -> Site | None:
    """``[data[i] for i in range(rank * n, (rank + 1) * n)]``"""
    listed = dataset.items is not None and not dataset.things
    own = (origin.site for origin in dataset.origins if origin.kind in IDENTITY)
    return next(own, None) if listed else None


def _samplers(call: RankCall) -> dict[RankThing, None]:
    loaders = [t for value in call.args for t in value.things if is_loader(t)]
    samplers = (sampler for loader in loaders for sampler in dealt_by(loader))
    return dict.fromkeys(one for one in samplers if not _hang_apart(one.call, call))


def _hang_apart(sampler: RankCall | None, prepare: RankCall) -> bool:
    """Whether each hangs on an option of its own: where one is set, the other need not be."""
    first, second = (_options(call) for call in (sampler, prepare))
    return not first <= second and not second <= first


def _options(call: RankCall | None) -> set[str]:
    """The conditions of a call that are not decided."""
    guards = call.guards if call is not None else ()
    return {f"{key_of(one.test)} {one.holds}" for one in guards if not one.test.known}


_PARTED = """
part = Subset(rows, range({}))
sampler = DistributedSampler(part){}
loader = DataLoader(part, batch_size=4, sampler=sampler)
model = DDP(nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
_TOP = """from torch.utils.data import Dataset, Subset


class Part(Dataset):
    def __init__(self, rows, rank):
        self.rows = rows[rank :: dist.get_world_size()]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index], 0


"""
_CLASS = _PARTED.replace("Subset(rows, range({}))", "Part(rows.tensors[0], dist.get_rank())")
_BY_RANK = "dist.get_rank(), 256, dist.get_world_size()"

RULE = Rule(
    "DDP211",
    "double-shard",
    "accelerate's prepare() gives each rank every n-th batch of the loader that it is handed. Of a"
    " loader that has a DistributedSampler already, two ranks of two got 2 of 8 samples each: half"
    " of the data is never trained on, and no error is raised. So it is with a DistributedSampler"
    " over a part that was picked by the rank (measured: 20 of 40 samples on two ranks).",
    "accelerate#3520; BUGS D12",
    bad=(
        DEALT_TWICE,
        PREPARED_ALONE,
        trained(_PARTED.format(_BY_RANK, "  # DDP211"), top=_TOP),
        trained(_CLASS.format("  # DDP211"), top=_TOP),
    ),
    good=(
        PREPARED,
        trained(_PARTED.format("0, 256, 2", ""), top=_TOP),
        trained(
            _PARTED.format(_BY_RANK, "").replace("(part)", "(part, num_replicas=1, rank=0)"),
            top=_TOP,
        ),
    ),
    lint=lint,
    severity=Severity.ERROR,
    fixes=False,
)
