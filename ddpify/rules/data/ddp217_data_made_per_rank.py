"""DDP217: the ranks make different data sets and index them as if they were one."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from ddpify.facts.details import call_that_made
from ddpify.facts.events import Call
from ddpify.facts.model import Facts
from ddpify.facts.scopes import Frame, Loop
from ddpify.ranks import words
from ddpify.ranks.model import RankCall, RankThing
from ddpify.ranks.run import Run
from ddpify.ranks.words import NUMPY, PYTHON, TORCH
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples import BY_HAND, CORRECT, SINGLE, changed
from ddpify.rules.shared.feeds import dealt_sets, identifiers
from ddpify.rules.shared.seeds import Stream, stream
from ddpify.rules.shared.syntax import scope
from ddpify.rules.shared.written import indexed_attributes
from ddpify.settings import Settings
from ddpify.source import Site

_TORCH = "torch.randn torch.rand torch.randint torch.normal torch.randn_like torch.rand_like"
_NUMPY = "randn rand randint normal uniform random standard_normal choice integers"
_LISTINGS = frozenset({"os.listdir", "os.scandir", "glob.glob", "glob.iglob"})
_SORTS = frozenset({"sorted", "sort", "natsorted", "argsort"})
_PATHS = frozenset({"iterdir", "glob", "rglob"})


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per training loader that each epoch makes of what it has drawn."""
    done: set[Site] = set()
    for loop in facts.training:
        for loader in loop.loaders:
            made, epoch = call_that_made(loader), loop.epoch
            if made is None or epoch is None or made.site in done:
                continue
            done.add(made.site)
            inside = any(one.site == epoch.site for one in made.where.loops())
            for draw in [*_drawn(facts, made, epoch)][:1] if inside else ():
                yield Finding(
                    "DDP217",
                    draw,
                    "each epoch draws its data anew, and each rank for itself: the sampler's"
                    " indices mean other samples on each rank",
                    Severity.ERROR,
                    advice="draw on rank 0 and broadcast() what is drawn; where it is only noise,"
                    " or negatives beside the same samples, accept it",
                )


def _drawn(facts: Facts, made: Call, epoch: Loop) -> Iterator[Site]:
    """Draws in the functions that make a loader, and before it in the epoch's round."""
    frame: Frame | None = made.where.frame
    while frame is not None:
        inside = frame is epoch.frame
        tree = facts.trees[frame.module.source.path]
        scope = tree.statement(epoch.site) if inside else getattr(frame.function, "node", None)
        if scope is None:
            return
        depth = len(frame.stack)
        here = made.where.stack[depth] if len(made.where.stack) > depth else made.site
        for node in tree.nodes(scope):
            early = isinstance(node, ast.Call) and tree.site(node) < here
            if isinstance(node, ast.Call) and (early or not inside) and _draws(frame, node):
                yield tree.site(node)
        if inside:
            return
        frame = frame.caller


def _draws(frame: Frame, call: ast.Call) -> bool:
    """Whether a call draws from a process's stream: ``random.sample``, also in a lambda."""
    root, dot, rest = ast.unparse(call.func).partition(".")
    held = frame.module.globals.get(root)
    names = [f"{thing.name}{dot}{rest}" for thing in held.things] if held is not None else []
    starts = tuple(start for start, _ in words.DRAWS)
    seeds = rest.endswith("seed") or any(name in words.GENERATORS for name in names)
    return not seeds and any(name.startswith(starts) for name in names)


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per draw or listing that differs between ranks and is dealt by index."""
    sets = dealt_sets(run)
    for call in run.calls:
        if call.everywhere and call.loops == () and not sets.isdisjoint(_results(call)):
            why = _differs(run, call, sets)
            if why:
                yield Finding(
                    "DDP217",
                    call.site,
                    f"{why}: the sampler's indices mean other samples on each rank",
                    Severity.WARNING,
                    (),
                    "make the data with one seed on all ranks, or sort the names",
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
