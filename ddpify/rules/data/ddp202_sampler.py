"""DDP202: every rank would train on all samples."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.facts.details import loader_arguments
from ddpify.facts.events import Call
from ddpify.facts.model import Facts, Loader, Role
from ddpify.facts.values import Kind, Thing
from ddpify.ranks.model import RankCall
from ddpify.ranks.prepared import CALLS
from ddpify.ranks.run import Run
from ddpify.ranks.words import PREPARE
from ddpify.rules.base import Edit, Finding, How, Rule, Severity
from ddpify.rules.data import streams
from ddpify.rules.data.derived import is_undivided, shares_batches
from ddpify.rules.data.derived import share as share_undivided
from ddpify.rules.data.lengths import of_all_ranks
from ddpify.rules.data.loaders import (
    LISTED,
    dataset_name,
    direct,
    is_shared_out,
    none_before,
    sampler_name,
    shuffled,
)
from ddpify.rules.data.loading import shared_loading
from ddpify.rules.data.orders import share, why_not
from ddpify.rules.data.undealt import undealt
from ddpify.rules.edits import edit, fresh, proof, statement_of
from ddpify.rules.examples import (
    BY_HAND,
    CORRECT,
    LEARNER,
    LEGACY,
    SCRIPT,
    SINGLE,
    TRAINER,
    changed,
    marked,
)
from ddpify.rules.shared.apart import is_evaluated, told_apart, whole_again
from ddpify.rules.shared.last_batch import weighed
from ddpify.rules.shared.telling import deals, draws_itself
from ddpify.rules.shared.undivided import has_batch_sampler
from ddpify.settings import Settings
from ddpify.source import Site

EVALUATED = (
    "the same loader is evaluated too, and its shares are padded with repeated samples:"
    " evaluate a loader of its own over the same data set"
)


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per loader that gives each rank the same samples to train on."""
    for loader, wrapper in undealt(run):
        if loader.call is not None:
            yield _undealt(loader.call, wrapper)


def _undealt(loader: RankCall, wrapper: RankCall) -> Finding:
    """Where the loader is made; where another call prepares the model and could prepare it, too,
    there."""
    site, why = loader.site, (wrapper.site, "gradients are averaged over the ranks here")
    if wrapper.name == PREPARE and loader.order < wrapper.order:
        site, why = wrapper.site, (loader.site, "this loader is trained on, and is left out")
    prepared = wrapper.name in CALLS
    return Finding(
        "DDP202",
        site,
        "every rank trains on all samples: the loader has no distributed sampler",
        Severity.ERROR,
        (),
        (
            "prepare it as the model: it is dealt then"
            if prepared
            else "give it sampler=DistributedSampler(dataset), and shuffle=False"
        ),
        (why,),
    )


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per call that makes an unsharded training loader."""
    if facts.whole_batches:
        yield from shared_loading(facts)
        return
    yield from _evaluated_in_parts(facts)
    for loader in facts.loaders:
        if Role.TRAINING not in loader.roles or _sharded(loader):
            continue
        fix: tuple[Edit, ...] = ()
        if is_undivided(facts, loader, settings):  # `loader.sampler` stays that of all ranks
            fix, why_not = share_undivided(facts, loader, settings)
        elif not (why_not := streams.why_not(loader)):
            fix, why_not = _fix(facts, loader, settings)
            fix = (*fix, *of_all_ranks(facts, loader)) if fix else fix
        if fix and any(map(_batches_itself, loader.things)):
            fix, why_not = (), "`batch_size=None`: what it is given makes batches, to be divided"
        yield Finding(
            "DDP202",
            loader.call.site,
            "each rank would train on all samples: the loader has no distributed sampler",
            Severity.ERROR,
            fix,
            why_not,
            proof(loader.things),
        )
    yield from _in_memory(facts)


def _in_memory(facts: Facts) -> Iterable[Finding]:
    for loader in facts.loaders:
        if streams.over_pipes(loader) and streams.becomes_list(loader):
            yield Finding(
                "DDP202",
                loader.call.site,
                "each process keeps all samples of the stream in memory, for a sampler to deal",
                Severity.NOTE,
                (),
                "give the machine memory for as many copies, and fetch the files before where"
                " something else reads the stream first",
            )


def _batches_itself(loader: Thing) -> bool:
    """Whether the sampler, or the data set, gives whole batches: ``batch_size=None``."""
    size = loader_arguments(loader).batch_size
    return size is not None and size.known and size.const is None


def _sharded(loader: Loader) -> bool:
    """Whether a sampler or the data set itself gives each rank its share."""
    if all(shares_batches(t) for c in loader.training for t in c.result.of(Kind.LOADER)):
        return True
    given = (value for thing in loader.things for value in loader_arguments(thing).samplers)
    return any(deals(sampler) for value in given for sampler in value.things)


def _evaluated_in_parts(facts: Facts) -> Iterable[Finding]:
    """Loaders that DataLoader gives a part of the samples on each rank, unasked."""
    for loader in facts.loaders:
        if Role.TRAINING in loader.roles or not streams.over_pipes(loader):
            continue
        by_hand = streams.why_not(loader)
        if not by_hand and is_shared_out(facts, loader):
            continue  # DDP205 makes a list of it, and shares that out
        site = loader.call.arg_site(0, "dataset")
        listed = () if by_hand or site is None else (edit(facts, How.REPLACE, site, LISTED),)
        yield Finding(
            "DDP202",
            loader.call.site,
            "each rank would evaluate a part only, and rank 0 show the numbers of its own:"
            " DataLoader deals torchtext's streams to the ranks by itself",
            Severity.ERROR,
            listed,
            by_hand,
            proof(loader.things),
        )


def _fix(facts: Facts, loader: Loader, settings: Settings) -> tuple[tuple[Edit, ...], str]:
    call = loader.call
    if loader.call.bound or any(map(has_batch_sampler, loader.things)):
        return share_undivided(facts, loader, settings)
    statement = statement_of(facts, call.site)
    own = any(draws_itself(thing) for thing in loader.things)
    why_not_own = why_not(facts, loader) if own else ""
    if why_not_own:
        return (), why_not_own
    if not own and not direct(facts, call):
        return (), "made inside an expression: give it a statement of its own, then run again"
    if is_evaluated(loader):
        return (), EVALUATED
    apart = told_apart(loader)
    again = whole_again(facts, loader, apart.alike)
    if again is None or (apart.alike and (own or settings.batch_size != "global")):
        return (), (
            "one call makes the training and another loader and no argument tells them apart:"
            " make them in two calls"
        )
    seen = tuple(
        edit(facts, How.REPLACE, site, "whole_loader({})")
        for site, made in facts.again.items()
        if call.site in made
    )
    if seen and (own or settings.batch_size != "global"):
        return (), EVALUATED
    if own:
        return share(facts, loader, apart.condition), ""
    last = weighed(facts, settings, loader)
    edits = _edits(facts, loader, statement, apart.condition, last.size if last else "")
    return (*edits, *again, *seen, *(last.edits if last else ())), ""


def _edits(
    facts: Facts, loader: Loader, statement: Site, condition: str, size: str
) -> tuple[Edit, ...]:
    call = loader.call
    kept = _placeholder(facts, call)
    sampler = kept or fresh(facts, call.site, sampler_name(facts, loader))
    dataset = dataset_name(facts, call, sampler)
    shuffle = shuffled(facts, loader, sampler)
    arguments = [dataset.name, f"shuffle={True if kept else shuffle.given}"]
    drop_last = _drop_last(facts, call)
    if drop_last:
        arguments.append(f"drop_last={drop_last}")
    if size:
        arguments.append(f"batch_size={size}")
    value = f"distributed_sampler({', '.join(arguments)})"
    if condition:
        value += f" if {condition} else None"
    made = f"{sampler} = {value}"
    none = none_before(facts, statement, sampler) if kept and not dataset.edits else None
    if none is not None:
        return (edit(facts, How.REPLACE, none, value),)
    if kept:
        return (*dataset.edits, edit(facts, How.BEFORE, statement, dataset.lines + made))
    return (
        *dataset.edits,
        edit(facts, How.BEFORE, statement, dataset.lines + made + shuffle.lines),
        *shuffle.edits,
        edit(facts, How.ARGUMENT, call.site, sampler, "sampler"),
    )


def _placeholder(facts: Facts, call: Call) -> str:
    """The name in ``shuffle=(sampler is None), sampler=sampler``, which is None so far."""
    sampler, shuffle = call.kwarg_sites.get("sampler"), call.kwarg_sites.get("shuffle")
    if sampler is None or shuffle is None or not facts.text(sampler).isidentifier():
        return ""
    asked = facts.text(shuffle).strip("()") == f"{facts.text(sampler)} is None"
    known = call.kwargs["sampler"].known and call.kwargs["shuffle"].const is True
    return facts.text(sampler) if asked and known else ""


def _drop_last(facts: Facts, call: Call) -> str:
    """The argument's text, or what is known of it where it comes by ``**settings``."""
    site, value = call.kwarg_sites.get("drop_last"), call.kwargs.get("drop_last")
    if site is not None:
        return facts.text(site)
    return repr(value.const) if value is not None and value.known and value.const else ""


# A class that makes its loader itself.
DERIVED = (
    (
        "def accuracy",
        "class Feed(DataLoader):\n    def __init__(self, signals, labels, many):\n"
        "        rows = TensorDataset(signals, labels)\n"
        "        super().__init__(rows, many, shuffle=True)\n\n\ndef accuracy",
    ),
    (
        "DataLoader(TensorDataset(signals[:800], labels[:800]), opt.bs, shuffle=True)",
        "Feed(signals[:800], labels[:800], opt.bs)  # DDP202",
    ),
)

RULE = Rule(
    "DDP202",
    "missing-distributed-sampler",
    "Without a distributed sampler every rank iterates over the whole data set: N ranks do the"
    " same epoch N times, and with one seed they even train on the same batches. A rank may also"
    " take its rows of each batch, or every N-th batch, by its number.",
    "torch.utils.data.distributed.DistributedSampler; BUGS D04",
    check,
    bad=(
        changed(
            SCRIPT,
            ("feed = DataLoader(\n", "feed = DataLoader(  # DDP202\n"),
            ("    shuffle=row_sampler is None,\n    sampler=row_sampler,\n", "    shuffle=True,\n"),
        ),
        changed(
            TRAINER,
            ("past, size, shuffle=order is None, sampler=order),", "past, size),  # DDP202"),
        ),
        changed(
            BY_HAND,
            ("    data =", "    torch.manual_seed(0)\n    data ="),
            ("batch_size=16, sampler=sampler)", "batch_size=16, shuffle=True)  # DDP202"),
        ),
        marked(SINGLE, "DDP202", "opt.bs, shuffle=True)"),
        changed(  # a placeholder
            SINGLE,
            ("opt.bs, shuffle=True)", "opt.bs, sampler=order, shuffle=(order is None))  # DDP202"),
            ("    fitting = ", "    order = None\n    fitting = "),
        ),
        changed(  # an order of its own: each rank gets every N-th index of rank 0's
            SINGLE,
            ("import DataLoader, ", "import DataLoader, SubsetRandomSampler, "),
            ("opt.bs, shuffle=True)", "opt.bs, sampler=SubsetRandomSampler(range(700)))  # DDP202"),
        ),
        changed(  # batches of its own
            SINGLE,
            ("import DataLoader, ", "import BatchSampler, DataLoader, RandomSampler, "),
            (
                "opt.bs, shuffle=True)",
                "batch_sampler=BatchSampler(RandomSampler(range(800)), opt.bs, True))  # DDP202",
            ),
        ),
        changed(  # what gives it its batch size is made elsewhere
            SINGLE,
            ("import argparse\n", "import argparse\nfrom functools import partial\n"),
            (
                "DataLoader(TensorDataset(signals[:800], labels[:800]), opt.bs, shuffle=True)",
                "partial(DataLoader, batch_size=opt.bs)(TensorDataset(signals, labels))  # DDP202",
            ),
        ),
        changed(  # one that follows from what is trained is not rank 0's to say
            SINGLE,
            ("import DataLoader, ", "import DataLoader, WeightedRandomSampler, "),
            (
                "    fitting = ",
                "    order = WeightedRandomSampler(torch.ones(800), 800)\n    fitting = ",
            ),
            ("opt.bs, shuffle=True)", "opt.bs, sampler=order)  # DDP202"),
            (
                "            adam.step()\n",
                "            adam.step()\n            often[0] = objective.item()\n",
            ),
        ),
        changed(SINGLE, *DERIVED),
        changed(  # a pass of its own may go by other batches: by hand
            SINGLE,
            *DERIVED,
            (
                "shuffle=True)\n\n",
                "shuffle=True)\n\n    def __iter__(self):\n"
                "        yield from super().__iter__()\n\n",
            ),
        ),
        changed(  # torchtext's streams
            SINGLE,
            ("import argparse\n", "import argparse\n\nfrom torchtext.datasets import AG_NEWS\n"),
            (
                "DataLoader(TensorDataset(signals[:800], labels[:800]), opt.bs, shuffle=True)",
                'DataLoader(AG_NEWS(split="train"), opt.bs)  # DDP202',
            ),
            (
                "DataLoader(TensorDataset(signals[800:], labels[800:]), 100)",
                'DataLoader(AG_NEWS(split="test"), 100)  # DDP202',
            ),
        ),
        marked(LEARNER, "DDP202", "batch_size=64, shuffle=True),"),
        marked(LEGACY, "DDP202", "batch_size=128, shuffle=True)"),
    ),
    good=(
        *CORRECT,
        changed(
            SCRIPT,
            ("import reduce_mean\n", "import order_share, reduce_mean\n"),
            ("import DataLoader, ", "import DataLoader, RandomSampler, "),
            (
                "distributed_sampler(rows, shuffle=True)\n",
                "order_share(RandomSampler(rows, replacement=True))\n",
            ),
            ("    shuffle=row_sampler is None,\n", ""),
            ("    distributed_sampler,\n", ""),
            ("    begin_epoch(feed, n)\n", ""),
            ("    begin_epoch,\n", ""),
        ),
    ),
    lint=lint,
    severity=Severity.ERROR,
)
