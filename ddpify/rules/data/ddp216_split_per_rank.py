"""DDP216: each rank splits or shuffles the data set in its own way before it is dealt."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.python.choices import library_drawn
from ddpify.ranks import words
from ddpify.ranks.model import RANK0, RANK1, RankCall, RankThing, RankValue
from ddpify.ranks.prepared import CALLS
from ddpify.ranks.run import Run
from ddpify.ranks.values import text
from ddpify.ranks.words import NUMPY, PYTHON, TORCH
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples import BY_HAND, CORRECT, changed
from ddpify.rules.examples.gradients import trained
from ddpify.rules.shared.feeds import dataset_of, dealt_sets
from ddpify.rules.shared.rank_zero import of_trainer
from ddpify.rules.shared.seeds import Stream, stream

_MADE = ("default_rng", "RandomState", "Generator")
_SPLITS = {
    "torch.utils.data.random_split": TORCH,
    "torch.randperm": TORCH,
    "numpy.random.permutation": NUMPY,
    "numpy.random.shuffle": NUMPY,
    "sklearn.model_selection.train_test_split": NUMPY,
    "random.shuffle": PYTHON,
    "random.sample": PYTHON,
}
# The same of a generator's own, whose seed says if ranks draw alike.
_OWN = {
    **{
        f"numpy.random.{made}.{name}": NUMPY
        for made in _MADE
        for name in ("permutation", "shuffle")
    },
    "random.Random.shuffle": PYTHON,
    "random.Random.sample": PYTHON,
}
_IN_PLACE = ("shuffle",)
_TRAINS = frozenset({"backward", "manual_backward", "fit", "train", "step", "train_batch"})


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per split whose draws differ between ranks."""
    parted = {thing for _, whole in run.parted for thing in whole.sources()}
    sets = dealt_sets(run) | parted
    for call in run.calls:
        library = _SPLITS.get(call.name) or _OWN.get(call.name) or _of_data(run, call)
        fixed = "shuffle" in call.kwargs and call.kwargs["shuffle"].constant is False
        if library and call.ranks in (RANK0, RANK1) and _is_of_one(run, call):
            yield _of_one(call)
        if not library or fixed or not call.everywhere:
            continue
        split = bool(_made(call) & sets) and not _fills_samples(run, call) and _may_train(run, call)
        if not split and not _is_parted(run, call) and not _made(call) & parted:
            continue
        how, seeding = stream(run, call, library)
        if how is not Stream.SAME and not _agreed(run, call):
            yield _finding(run, call, how, seeding)


def _is_of_one(run: Run, call: RankCall) -> bool:
    """Whether an order that one rank alone has drawn is dealt on all, each of which has its own."""
    if call.method in _IN_PLACE:
        return _is_parted(run, call) and not _agreed(run, call)
    made = _made(call)
    later = [whole for order, whole in run.parted if order > call.order]
    return any(
        whole.ranks_of(thing) == call.ranks and len(whole.things) > 1 and made & _turned(thing)
        for whole in later
        for thing in whole.things
    )


def _turned(thing: RankThing) -> set[RankThing]:
    """A thing, and what it was called on: ``order.chunk(world)``, ``order.tolist()``."""
    of = thing.call.receiver if thing.call is not None else None
    return {thing, *(of.sources() if of is not None else ())}


def _of_one(call: RankCall) -> Finding:
    return Finding(
        "DDP216",
        call.site,
        "one rank alone draws this order, and each takes its part of an order of its own: parts"
        " overlap, and leave some out",
        Severity.ERROR,
        (),
        "broadcast it before it is dealt, or draw it with one seed on all ranks",
    )


def _of_data(run: Run, call: RankCall) -> str:
    """The library that draws data, in a program whose Trainer gets several devices."""
    return library_drawn(call.name) if run.assumed and of_trainer(run) else ""


def _may_train(run: Run, split: RankCall) -> bool:
    """Whether it is trained on, or not all is seen: what is only scored has nothing to leak."""
    if not (run.script and run.complete):
        return True
    loaders = [one.loader for one in run.passes]
    fed = {t for v in map(dataset_of, loaders) if v is not None for t in v.sources()}
    seen = bool(loaders) and all(dataset_of(one) is not None for one in loaders)
    trains = any(call.method in _TRAINS for call in run.calls)
    return trains and not (seen and fed.isdisjoint(_made(split)))


def _fills_samples(run: Run, call: RankCall) -> bool:
    """Whether some of many are drawn again and again for one data set: examples for each sample."""
    dealt = {loop for one in run.named(words.SAMPLER, *CALLS) for loop in one.loops}
    return call.name == "random.sample" and not dealt.issuperset(call.loops)


def _finding(run: Run, call: RankCall, how: Stream, seeding: RankCall | None) -> Finding:
    dealt = next(iter(run.named(words.SAMPLER)), None)
    because = (
        ((dealt.site, "the indices are dealt as if all ranks had one data set"),) if dealt else ()
    )
    why = "with no seed" if how is Stream.UNSEEDED else "with a seed of its own"
    here = "the seed differs between ranks"
    if seeding is not None and library_drawn(seeding.name):
        why, here = "elsewhere in its stream", "some ranks alone draw here, and shift theirs"
    what = f"each rank splits {why}: what one holds out, another trains on"
    if not _made(call) & dealt_sets(run):
        what = (
            f"each rank shuffles {why} before it takes its part: parts overlap, and leave some out"
        )
    if call.name not in _SPLITS and call.name not in _OWN:
        what = f"each rank draws its data {why}: the samples of one are not those of another"
    return Finding(
        "DDP216",
        call.site,
        what,
        Severity.ERROR,
        (),
        "give it a generator with a fixed seed (random_state=0, Generator().manual_seed(0))",
        ((seeding.site, here),) if seeding is not None else because,
    )


def _made(call: RankCall) -> set[RankThing]:
    """What holds the drawn order afterwards."""
    if call.method in _IN_PLACE:
        return set(call.args[0].things) if call.args else set()
    value = call.result
    return {t for t in value.sources() if t.call is call} if value is not None else set()


def _is_parted(run: Run, call: RankCall) -> bool:
    """Whether a list is shuffled of which each rank takes its part: one that no call has made."""
    keys = _keys(call.args[0]) if call.args else []
    later = (whole for order, whole in run.parted if order > call.order)
    in_place = call.method in _IN_PLACE
    return in_place and any(keys == _keys(one) for one in later)


def _keys(value: RankValue) -> list[str]:
    return [text(atom) for atom in value.atoms]


def _agreed(run: Run, call: RankCall) -> bool:
    """Whether the order is told to the other ranks after it is drawn, before it is dealt."""
    made, keys = _made(call), _keys(call.args[0]) if call.args else []
    parted = (order for order, _ in run.parted)
    dealt = max((*parted, *(sampler.order for sampler in run.named(words.SAMPLER))), default=0)
    for other in run.calls:
        told = call.order < other.order < dealt and other.method in words.AGREEING_OPS
        told = told and other.asked.method != "distributed_sampler"  # tells its length alone
        if told and any(not made.isdisjoint(v.sources()) or _keys(v) == keys for v in other.given):
            return True
        ordered = other.receiver if other.method == "sort" else None
        if call.order < other.order < dealt and ordered is not None and _keys(ordered) == keys:
            return True
    return False


_SPLIT = "    data, held_out = random_split(data, [448, 64])  # DDP216\n    sampler ="
_FIXED = (
    "    data, held_out = random_split(data, [448, 64], torch.Generator().manual_seed(0))\n"
    "    sampler ="
)
_SEEDED = "    torch.manual_seed(0)\n    if dist.get_rank() == 0:\n        print(torch.rand(1))\n"
_SHUFFLED = """
names = [f"part{{number}}" for number in range(40)]
{}
for name in names[dist.get_rank() :: dist.get_world_size()]:
    print(name)
model = DDP(nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
_IMPORT = ("import DataLoader, TensorDataset", "import DataLoader, TensorDataset, random_split")

RULE = Rule(
    "DDP216",
    "split-per-rank",
    "Every process of a job that is not seeded starts with another random state. A split or a"
    " permutation drawn from it (or after torch.manual_seed(seed + rank)) differs between ranks:"
    " rank 1 trained on 3 of the 4 samples that rank 0 had held out (measured), and a sampler's"
    " indices mean other samples on each rank. So do the places of a list of files of which each"
    " rank takes every n-th (measured: two of twelve files were read by both ranks, two by none)."
    " An order that rank 0 alone draws has to be sent before it is dealt. Where nothing is trained"
    " nothing is held out, and what is drawn for each sample is no split.",
    "lightning#7728, #18638; OpenTau#498; BUGS D09",
    bad=(
        changed(BY_HAND, _IMPORT, ("    sampler =", _SPLIT)),
        changed(
            BY_HAND, _IMPORT, ("    sampler =", f"    torch.manual_seed(dist.get_rank())\n{_SPLIT}")
        ),
        changed(BY_HAND, _IMPORT, ("    sampler =", _SEEDED + _SPLIT)),  # one draws alone
        trained(_SHUFFLED.format("random.shuffle(names)  # DDP216"), top="import random"),
    ),
    good=(
        *CORRECT,
        trained(_SHUFFLED.format("random.Random(0).shuffle(names)"), top="import random"),
        changed(BY_HAND, _IMPORT, ("    sampler =", _FIXED)),
        changed(  # the streams are one again
            BY_HAND,
            _IMPORT,
            (
                "    sampler =",
                f"{_SEEDED}    torch.manual_seed(0)\n{_SPLIT.replace('  # DDP216', '')}",
            ),
        ),
        changed(  # the others draw as much
            BY_HAND,
            _IMPORT,
            (
                "    sampler =",
                f"{_SEEDED}    else:\n        torch.rand(1)\n{_SPLIT.replace('  # DDP216', '')}",
            ),
        ),
    ),
    lint=lint,
    words=("_split(", "randperm", "permutation", "shuffle"),
    severity=Severity.ERROR,
)
