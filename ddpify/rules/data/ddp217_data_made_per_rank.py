"""DDP217: the ranks make different data sets and index them as if they were one."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.facts.model import Facts
from ddpify.python.choices import library_drawn
from ddpify.ranks.model import RankCall, RankThing
from ddpify.ranks.run import Run
from ddpify.ranks.words import NUMPY, PYTHON, TORCH
from ddpify.rules.base import Finding, How, Rule, Severity
from ddpify.rules.data.anew import drawn_anew, drawn_in_constructors, is_alike, stands_alone
from ddpify.rules.edits import edit
from ddpify.rules.examples import BY_HAND, CORRECT, SINGLE, changed
from ddpify.rules.shared.feeds import dealt_sets, identifiers
from ddpify.rules.shared.seeds import Stream, stream
from ddpify.rules.shared.syntax import scope
from ddpify.rules.shared.written import indexed_attributes, selects
from ddpify.settings import Settings
from ddpify.source import Site

_TORCH = "torch.randn torch.rand torch.randint torch.normal torch.randn_like torch.rand_like"
_NUMPY = "randn rand randint normal uniform random standard_normal choice integers"
_LISTINGS = frozenset({"os.listdir", "os.scandir", "glob.glob", "glob.iglob"})
_SORTS = frozenset({"sorted", "sort", "natsorted", "argsort"})
_PATHS = frozenset({"iterdir", "glob", "rglob"})


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per statement in which each epoch draws the data it trains on."""
    done: set[Site] = set()
    found = [pair for loop in facts.training for pair in drawn_anew(facts, loop)]
    for draw, place in (*found, *((site, site) for site in drawn_in_constructors(facts))):
        if place in done or is_alike(facts, place):
            continue
        done.add(place)
        alone = stands_alone(facts, place)
        yield Finding(
            "DDP217",
            draw,
            "each epoch draws its data anew, and each rank for itself: the sampler's"
            " indices mean other samples on each rank",
            Severity.ERROR,
            (edit(facts, How.INDENT, place, "with same_draws():"),) if alone else (),
            "" if alone else "draw it in a statement of its own, then run again",
        )


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per draw or listing that differs between ranks and is dealt by index."""
    sets = dealt_sets(run)
    sent = _sent(sets)
    for call in run.calls:
        made = _results(call)
        if call.everywhere and call.loops == () and not sets.isdisjoint(made) and not made & sent:
            why = _differs(run, call, sets)
            if why:
                yield Finding(
                    "DDP217",
                    call.site,
                    f"{why}: the sampler's indices mean other samples on each rank",
                    Severity.WARNING if _library(call) else Severity.NOTE,  # one disk has one order
                    (),
                    "make the data with one seed on all ranks, or sort the names",
                )
    yield from _drawn_inside(run, sets)


def _sent(sets: set[RankThing]) -> set[RankThing]:
    """What was sent to all ranks, and what that was made of: ``dist.broadcast(rows, 0)``."""
    sent = {thing for thing in sets if thing.synced}
    made = (thing.call for thing in sent if thing.call is not None)
    return sent | {one for call in made for value in call.inputs for one in value.sources()}


def _drawn_inside(run: Run, sets: set[RankThing]) -> Iterable[Finding]:
    """Where the constructor of a data set draws which samples it has."""
    made = {thing.call for thing in sets if thing.cls is not None and thing.call is not None}
    for call in run.calls if made else ():
        library = library_drawn(call.name)
        if not library or made.isdisjoint(call.way) or not selects(call):
            continue
        if stream(run, call, library)[0] is not Stream.SAME:
            yield Finding(
                "DDP217",
                call.site,
                "each rank draws for itself which samples its data set has: the sampler's indices"
                " mean other samples on each rank, and the sets are not equally long",
                Severity.WARNING,
                (),
                "draw with a generator of its own that has one seed on all ranks",
            )


def _results(call: RankCall) -> set[RankThing]:
    things = call.result.things if call.result is not None else ()
    return {thing for thing in things if thing.call is call}


def _differs(run: Run, call: RankCall, sets: set[RankThing]) -> str:
    library = _library(call)
    if library:
        how, _ = stream(run, call, library)
        return "drawn with a seed per rank" if how is Stream.APART else ""
    if _lists(call) and _indexed(call, sets) and not _sorted(call, sets):
        return "files come in the order of the disk"
    return ""


def _library(call: RankCall) -> str:
    if call.name in _TORCH.split():
        return TORCH
    if call.name.startswith("numpy.random.") and call.method in _NUMPY.split():
        return NUMPY
    return PYTHON if call.name in ("random.sample", "random.choices") else ""


def _lists(call: RankCall) -> bool:
    return call.name in _LISTINGS or (call.name.startswith("pathlib.") and call.method in _PATHS)


def _indexed(call: RankCall, sets: set[RankThing]) -> bool:
    """Whether ``__getitem__`` takes the n-th of what is made from the listing."""
    for thing in sets:
        method = thing.cls.method("__getitem__") if thing.cls is not None else None
        for name, value in thing.attrs.items() if method is not None else ():
            made = not _results(call).isdisjoint(value.sources())
            if made and method is not None and name in indexed_attributes(method):
                return True
    return False


def _sorted(call: RankCall, sets: set[RankThing]) -> bool:
    """Whether the names are sorted: by a function on the way, or in the class that lists."""
    nodes = [scope(one) for one in (call, *call.stack)]
    if call.function is not None and call.function.owner is not None:
        nodes.append(call.function.owner.node)
    return any(not _SORTS.isdisjoint(identifiers(node)) for node in nodes) or any(
        thing.name.endswith("sorted") for thing in sets
    )


_FEED = """def feed(signals, labels, opt):
    some = sorted(range(1000), key=lambda n: random.random())[:800]  # DDP217
    return DataLoader(TensorDataset(signals[some], labels[some]), opt.bs, shuffle=True)


"""
_PAIRS = """class Pairs(TensorDataset):
    def __len__(self):
        return 800

    def pair(self):
        self.order = torch.randperm(len(self.tensors[0]))  # DDP217

    def __getitem__(self, n):
        return super().__getitem__(int(self.order[n]))


"""
_SHUFFLED = """class Listed(TensorDataset):
    def __init__(self, signals, labels):
        order = list(range(len(signals)))
        random.shuffle(order)  # DDP217
        super().__init__(signals[order], labels[order])


"""
_ROWS = "    data = TensorDataset(torch.randn(512, 32), torch.randint(0, 10, (512,)))\n"
_APART = (
    "    torch.manual_seed(dist.get_rank())\n    rows = torch.randn(512, 32)  # DDP217\n"
    "    data = TensorDataset(rows, torch.zeros(512, dtype=torch.long))\n"
)
_DRAWN = (
    "    np.random.seed(7 + dist.get_rank())\n"
    "    rows = torch.from_numpy(np.random.normal(size=(512, 32)))  # DDP217\n"
    "    data = TensorDataset(rows.float(), torch.zeros(512, dtype=torch.long))\n"
)

RULE = Rule(
    "DDP217",
    "data-made-per-rank",
    "A sampler deals indices of one data set. Where every rank makes its own, with a seed per rank"
    " or from file names in the order in which its disk lists them, index 7 is another sample on"
    " each rank: some are trained on twice in an epoch and others never.",
    "torch.utils.data.distributed.DistributedSampler; BUGS D10, C12",
    check,
    bad=(
        changed(  # negatives, as in collaborative filtering
            SINGLE,
            ("import argparse\n", "import argparse\nimport random\n"),
            (
                "    fitting = DataLoader(TensorDataset(signals[:800], ",
                "    held = (signals[:800], (",
            ),
            ("labels[:800]), opt.bs, shuffle=True)", "labels[:800]))"),
            (
                "    for round_ in range(5):\n",
                "    for round_ in range(5):\n        fitting = feed(signals, labels, opt)\n",
            ),
            ("def main", f"{_FEED}def main"),
        ),
        changed(  # a part that the data set itself draws
            SINGLE,
            ("DataLoader(TensorDataset(signals[:800], labels[:800])", "DataLoader(pairs"),
            ("    fitting", "    pairs = Pairs(signals, labels)\n    fitting"),
            ("        net.train()\n", "        fitting.dataset.pair()\n        net.train()\n"),
            ("def main", f"{_PAIRS}def main"),
        ),
        changed(  # in the constructor of what an epoch makes anew
            SINGLE,
            ("import argparse\n", "import argparse\nimport random\n"),
            ("    fitting = DataLoader(TensorDataset(signals[:800], labels[:800]), opt.bs, ", ""),
            ("shuffle=True)\n", ""),
            (
                "        net.train()\n",
                "        fitting = DataLoader(Listed(signals[:800], labels[:800]), opt.bs)\n"
                "        net.train()\n",
            ),
            ("def main", f"{_SHUFFLED}def main"),
        ),
        changed(BY_HAND, (_ROWS, _APART)),
        changed(BY_HAND, (_ROWS, _DRAWN), ("import os\n", "import os\n\nimport numpy as np\n")),
    ),
    good=(
        *CORRECT,
        changed(
            BY_HAND,
            (_ROWS, _APART.replace("dist.get_rank()", "0").replace("  # DDP217", "")),
        ),
    ),
    lint=lint,
    words=("rand", "normal(", "listdir", "scandir", "glob(", "iterdir"),
    severity=Severity.WARNING,
)
