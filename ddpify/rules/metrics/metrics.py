"""What evaluations leave behind and who shows it: shared by the rules on metrics."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ddpify.ranks import words
from ddpify.ranks.model import ALL, RANK0, RankCall, RankGuard, RankLoop, RankThing, RankValue
from ddpify.ranks.origins import DATA, IDENTITY
from ddpify.ranks.prepared import CALLS
from ddpify.ranks.run import Run
from ddpify.ranks.values import spread
from ddpify.rules.shared.feeds import is_whole, trained
from ddpify.rules.shared.quotients import loops_over
from ddpify.site import Site

_REDUCING = frozenset(
    "all_reduce reduce all_gather gather all_gather_object gather_object all_gather_into_tensor"
    " all_gather_single broadcast broadcast_object_list reduce_scatter_tensor gather_for_metrics"
    " isend send all_reduce_coalesced sync_all_reduce all_gather_coalesced".split()
)
# Libraries whose metrics are put together over the ranks by themselves.
_OWN_METRICS = ("torchmetrics.", "evaluate.", "ignite.", "torcheval.", "accelerate.", "lightning.")
_SEEN = ("torch.", "builtins.", "numpy.", "functools.", "einops.")
_SAYS_SO = re.compile("reduce|gather|sync|merge|broadcast")
_SPELLS = ("builtins.str", "builtins.int", "builtins.float", "builtins.round", "builtins.format")
_ASKS = frozenset(
    {*words.RANK_CALLS, *words.SIZE_CALLS, *words.RANK_AND_SIZE_CALLS, *words.TRUE_CALLS}
    | {f"{words.DIST}is_initialized"}
)
_STARTS = ("torch.zeros", "torch.tensor", "torch.zeros_like")
_KEEPS = ("save", "copy")
_SHOWN = frozenset(
    "print info warning log log_metric log_metrics add_scalar add_scalars dump dumps write writerow"
    " writerows writelines write_text record report scalar".split()
)
# What writes the rows that it is called on, or given, into a file.
_TABLES = frozenset("to_csv to_json to_parquet to_pickle to_excel to_feather tofile".split())
_SAVES = frozenset({"torch.save", *(f"numpy.{one}" for one in ("save", "savez", "savetxt"))})


@dataclass(frozen=True)
class Evaluation:
    """A loader that is gone over without learning, and the loops that do it.

    ``left_out``: where other results of it are put together, the tensors that are not.
    """

    loader: RankThing
    loops: tuple[RankLoop, ...]
    left_out: frozenset[RankThing] | None = None

    def inside(self, call: RankCall) -> bool:
        """Whether a call is made within the loops."""
        nodes = {loop.node for loop in self.loops}
        return any(loop.node in nodes for loop in call.loops)

    def gave(self, value: RankValue) -> bool:
        """Whether a value is this rank's own, from samples of the loader."""
        sites = {loop.site for loop in self.loops}
        if not any(o.kind == DATA and o.site in sites for o in spread(value)):
            return False
        sources = set(value.sources())
        return self.loader in sources and (self.left_out is None or bool(self.left_out & sources))


def evaluations(run: Run) -> Iterator[Evaluation]:
    """The evaluations of which nothing, or not everything, is put together over the ranks."""
    learning = trained(run)
    found: dict[RankThing, list[RankLoop]] = {}
    for loop, loader in loops_over(run):
        if loader not in learning and loader.call is not None and loader.call.everywhere:
            found.setdefault(loader, []).append(loop)
    uses = Counter(loop.node for loops in found.values() for loop in loops)
    for loader, loops in found.items():
        if any(uses[loop.node] > 1 for loop in loops) and is_whole(run, loader):
            continue  # its numbers look like those of the other, which is dealt
        some = _put_together(run, loader) or any(_may_hold(run, one, loops) for one in run.calls)
        yield Evaluation(loader, tuple(loops), _left_out(run) if some else None)


def learned(run: Run) -> Iterator[Evaluation]:
    """The loaders that are trained on, with their loops, as evaluations are given."""
    for loader in dict.fromkeys(one.loader for one in run.passes):
        yield Evaluation(loader, tuple(p.loop for p in run.passes if p.loader is loader))


def _left_out(run: Run) -> frozenset[RankThing]:
    """Tensors that start at a number in a function that reduces others such, and are not."""
    calls = run.named("torch.distributed.all_reduce", "torch.distributed.reduce")
    values = [call.arg(0, "tensor") for call in calls]
    reduced = {thing for value in values if value is not None for thing in value.things}
    functions = {t.call.function for t in reduced if t.call is not None and t.name in _STARTS}
    return frozenset(
        thing
        for call in run.named(*_STARTS)
        if call.function in functions and call.result is not None
        for thing in call.result.things
        if thing not in reduced and not thing.synced
    )


def _put_together(run: Run, loader: RankThing) -> bool:
    """Whether anything that comes from it is sent to other ranks."""
    for call in run.calls:
        own = call.name.startswith(_OWN_METRICS) and call.name not in CALLS and not shows(call)
        puts = own or reduces(call) or _hands_over(call)
        if puts and any(loader in value.sources() for value in call.inputs):
            return True
    return False


def _may_hold(run: Run, call: RankCall, loops: list[RankLoop]) -> bool:
    """Whether a function with such a loop leads to a reduction of what an object of the program
    holds, and nobody is seen to have put there: it may be what the loop has left."""
    if call.method not in _REDUCING or not call.stack:
        return False
    entered = [one.function.site for one in call.way if one.function is not None]
    held = (thing for value in call.inputs for thing in value.sources())
    given = run.once(_given_names)
    return any(_is_of_ours(one) and one.name.rpartition(".")[2] not in given for one in held) and (
        any(loop.site.within(site) for loop in loops for site in entered)
    )


def _is_of_ours(thing: RankThing) -> bool:
    """Whether it is an attribute of an object of a class of the program."""
    owner = thing.receiver if thing.kind == "attribute" else None
    return owner is not None and owner.cls is not None


def _given_names(run: Run) -> frozenset[str]:
    """The names of attributes that anything is put under."""
    return frozenset(store.key for store in run.stores)


def _hands_over(call: RankCall) -> bool:
    """Whether a call writes a file of this rank's own, ``part_{rank}.pkl``, for another to read."""
    return call.method in ("dump", "save") and any(map(_says_rank, call.given[1:]))


def reduces(call: RankCall) -> bool:
    """Whether a call sends values to other ranks, or its name says so where no code is seen."""
    if call.method in _REDUCING:
        return True
    unseen = call.target is None and not call.name.startswith(_SEEN)
    return unseen and _SAYS_SO.search(call.method) is not None


def shown(run: Run, of: Evaluation) -> Iterator[RankCall]:
    """Calls that present what it gave, after its loop, and not as one rank's of several."""
    for call in shown_by_one(run):
        if not of.inside(call) and any(of.gave(value) for value in presented(call)):
            yield call


def presented(call: RankCall) -> tuple[RankValue, ...]:
    """What a call shows or writes; a checkpoint says of which step it is by the way."""
    if call.name in _SAVES:
        return tuple(value for value in call.given if value.keys is None)
    return call.inputs if call.method in _TABLES else call.given


def shown_by_one(run: Run) -> Iterator[RankCall]:
    """Calls with which rank 0 presents something, and not as one rank's of several."""
    for call in run.calls:
        shown = shows(call) or call.method in _TABLES or call.name in _SAVES
        shown = shown and bool(call.ranks & RANK0) and call.target is None
        if shown and not (call.everywhere and any(map(_says_rank, call.inputs))):
            yield call


def shown_elsewhere(run: Run, site: Site, ranks: int) -> Iterator[RankCall]:
    """Calls that show a value with an origin at ``site``, none of these ranks among them, and not
    as one rank's of several."""
    for call in run.calls:
        if call.target is None and not call.ranks & ranks and shows(call):
            own = any(map(_says_rank, call.given))
            if not own and any(_has(value, site) for value in call.given):
                yield call


def shows(call: RankCall) -> bool:
    """Whether a call prints, writes or logs: ``torch.log`` does not."""
    computes = call.name.startswith(("torch.", "math.", "numpy."))
    return call.method in _SHOWN and (not computes or "tensorboard" in call.name)


def _says_rank(value: RankValue) -> bool:
    return any(origin.kind in IDENTITY for origin in spread(value))


def decided(run: Run, of: Evaluation) -> Iterator[RankGuard]:
    """Conditions on what it gave under which rank 0 keeps a model."""
    for call in run.calls:
        if call.ranks == RANK0 and call.method.startswith(_KEEPS) and not of.inside(call):
            yield from (guard for guard in call.guards if of.gave(guard.test))


def acted_on(run: Run, site: Site) -> Iterable[tuple[Site, str]]:
    """Where all ranks act on a value with an origin at ``site``, and how."""
    for guard in _guards(run):
        if guard.ranks == ALL and _decides(guard, site):
            yield guard.site, "all ranks decide by it"
    for store in run.stores:
        tuned = any(t.name.startswith("torch.optim.") for t in store.base.sources())
        if tuned and store.ranks == ALL and _has(store.value, site):
            yield store.site, "every rank sets its optimizer by it"
    for call in run.calls:
        stepped = call.method == "step" and call.name.startswith("torch.optim.lr_scheduler.")
        if call.everywhere and stepped and any(_has(value, site) for value in call.args):
            yield call.site, "every rank's schedule is stepped by it"
        sent = call.name == "torch.distributed.all_reduce" and call.site != site
        if call.everywhere and sent and any(_has(value, site) for value in call.given):
            yield call.site, "every rank goes on with what it has chosen by it"


def _guards(run: Run) -> Iterator[RankGuard]:
    """Conditions of what all ranks may do, apart from showing something or ending the job.

    A function that only spells a number, ``if x < 1: return f"{x:.3f}"``, does nothing, and one
    that asks for the rank neither: ``if best and is_main(): save()`` is what rank 0 does.
    """
    busy = {call.function for call in run.calls if _does(call)}
    ending = {(g.node, g.holds) for e in run.exits if e.kind == "abort" for g in e.guards[-1:]}
    for call in run.calls:
        if call.everywhere and _does(call) and not shows(call) and call.function in busy:
            yield from (guard for guard in call.guards if (guard.node, guard.holds) not in ending)
    for store in run.stores:
        if store.ranks == ALL:
            yield from store.guards
    for one in run.exits:
        spells = one.kind == "return" and one.function not in busy
        if one.ranks == ALL and one.kind != "abort" and not spells:
            yield from one.guards


def _does(call: RankCall) -> bool:
    """Whether a call may have an effect: of a function that is read, its own calls tell."""
    asks = call.name in _ASKS or call.name.startswith(_SPELLS)
    return call.target is None and not asks


def _decides(guard: RankGuard, site: Site) -> bool:
    """Whether the outcome depends on it: a dict is true if it has entries, whatever they are."""
    if guard.test.keys is not None or guard.test.items is not None:
        return any(origin.site == site for origin in guard.test.origins)
    return _has(guard.test, site)


def _has(value: RankValue, site: Site) -> bool:
    return any(origin.site == site for origin in spread(value))
