"""DDP828: collectives one after the other, in an order that each process has for itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from ddpify.ranks import words
from ddpify.ranks.collective import collective
from ddpify.ranks.model import RankCall, RankLoop, RankValue
from ddpify.ranks.origins import DATA, RANDOM
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.ranks import on_ranks
from ddpify.rules.shared.orders import is_salted, ordered_by
from ddpify.rules.shared.reordered import forwards_of_elements, is_given_an_element, reordered
from ddpify.rules.shared.threads import in_threads
from ddpify.rules.shared.turned import turned
from ddpify.site import Site

_ELEMENTWISE: Final = ("all_reduce", "reduce", "broadcast")
_ALIKE: Final = tuple(f"builtins.{name}" for name in "list tuple set frozenset".split())
_HANDING_ON: Final = frozenset("sorted list tuple enumerate tolist cpu numpy long int".split())
_IN_GROUPS: Final = (
    "is entered in another group by the other ranks, which come to these groups in another order:"
    " all wait, a hang"
)
_OF_TENSORS: Final = (
    "meets another tensor on the other ranks: they have the same ones in another order: wrong"
    " numbers"
)
_SHUFFLES: Final = tuple(
    f"{of}.shuffle"
    for of in ("random", "random.Random", "numpy.random", "numpy.random.default_rng")
)
_LIBRARIES: Final = ("random.", "numpy.random.", "torch.randperm")
_ORDERS: Final = frozenset("sample choices permutation randperm permuted".split())
_ENTRIES: Final = frozenset("items values keys".split())
_ENTRY: Final = "an entry under what this rank's samples say"


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per collective that meets another one, or one on another element."""
    for told in (_in_loops, _packed, _in_threads, _reordered, _turned):
        yield from told(run)


def _in_loops(run: Run) -> Iterator[Finding]:
    """One finding per loop whose rounds do not meet on other ranks."""
    said = set()
    for loop in run.loops:
        if loop.over is None or loop.site in said:
            continue
        missing, order = _missing(run, loop.over), _order(run, loop, loop.over)
        meeting = next(_meetings(run, loop), None) if missing or order else None
        if meeting is None:
            continue
        said.add(loop.site)
        if missing is not None:
            yield _fewer(loop, meeting, missing)
        elif order is not None:
            yield _other(loop, meeting, *order)


def _in_threads(run: Run) -> Iterator[Finding]:
    for site, start, other in in_threads(run):
        yield _error(
            site,
            "a thread enters this while the main thread enters others in the same group: which of"
            " them comes first is another one on each rank, a hang or wrong numbers",
            "give the thread a process group of its own: new_group()",
            (start.site, "the thread starts"),
            (other.site, "the main thread enters"),
        )


def _reordered(run: Run) -> Iterator[Finding]:
    for call, place, site in reordered(run):
        shared = collective(call)
        apart = shared is not None and shared.group is not None and not shared.whole
        yield _error(
            place,
            f"{call.method}() {_IN_GROUPS if apart else _OF_TENSORS}",
            "go through them in one order on all ranks",
            (site, "in an order of each rank's own"),
        )


def _turned(run: Run) -> Iterator[Finding]:
    for one, other in turned(run):
        yield _error(
            other.site,
            f"rank 1 enters {other.method}() in this group while rank 0 enters {one.method}() in"
            " another that rank 1 comes to later: both wait, a hang",
            "use the groups in one order on all ranks",
            (one.site, "where rank 0 waits"),
        )


def _packed(run: Run) -> Iterator[Finding]:
    """One finding per collective on a tensor that holds what a dict of each rank has, in its
    order."""
    for call in run.named(*(f"{words.DIST}{name}" for name in _ELEMENTWISE)) if run.keyed else ():
        shared = collective(call)
        given = shared.given(shared.filled) if shared is not None and shared.group is None else None
        site = ordered_by(run, given) if given is not None and call.everywhere else None
        if site is not None:
            yield _error(
                call.site,
                f"{call.method}() puts numbers together that stand for other things on the other"
                " ranks: they are in the order of a dict that each rank fills as its samples come",
                "pack them in the order of sorted(…), or of the same list on all ranks",
                (site, _ENTRY),
            )


def _error(site: Site, message: str, advice: str, *because: tuple[Site, str]) -> Finding:
    return Finding("DDP828", site, message, Severity.ERROR, advice=advice, because=because)


def _missing(run: Run, over: RankValue) -> Site | None:
    """Where this rank's samples say how many rounds there are, in whatever order."""
    names = _sorted(over)
    return (_keyed(run, names) if names is not None else None) or _distinct(over)


def _order(
    run: Run, loop: RankLoop, over: RankValue
) -> tuple[str, tuple[tuple[Site, str], ...]] | None:
    """What has an order of each rank's own, and where that comes from."""
    keyed = _keyed(run, over)
    if keyed is not None:
        what = "a dict, whose entries and order are those of this rank's samples"
        return what, ((keyed, _ENTRY),)
    drawn = _drawn(run, loop, over)
    if drawn is not None:
        return "an order that each rank has drawn for itself", ((drawn, "drawn here"),)
    return ("a set, whose order is another one in each process", ()) if is_salted(over) else None


def _drawn(run: Run, loop: RankLoop, over: RankValue) -> Site | None:
    """Where each rank has drawn the order of a loop itself: ``random.sample(parameters, 4)``."""
    call = _draw(over)
    for one in run.named(*_SHUFFLES) if call is None else ():
        if _draws(one) and one.args and one.args[0].atoms == over.atoms:
            call = one
    if call is None:
        return None
    later = [one for one in run.calls if one.order > call.order]
    given = any(is_given_an_element(one, loop) for one in later)
    return call.site if given or forwards_of_elements(run, loop) else None


def _draw(over: RankValue) -> RankCall | None:
    made = next((thing.call for thing in over.things if thing.call is not None), None)
    if made is None or (made.method in _ORDERS and _draws(made)):
        return made
    of = made.receiver if made.receiver is not None else next(iter(made.args), None)
    return _draw(of) if made.method in _HANDING_ON - {"sorted"} and of is not None else None


def _draws(call: RankCall) -> bool:
    """Whether each rank draws another order."""
    origins = call.result.origins if call.result is not None else ()
    own = any(one.kind == RANDOM and one.site == call.site for one in origins)
    return own and call.name.startswith(_LIBRARIES)


def _other(
    loop: RankLoop, meeting: tuple[RankCall, Site], what: str, because: tuple[tuple[Site, str], ...]
) -> Finding:
    call, site = meeting
    met = "what DDP exchanges" if call.method == "__call__" else f"{call.method}()"
    return _error(
        site,
        f"{met} meets another element on the other ranks, since the loop goes through"
        f" {what}: wrong numbers or a hang",
        "go through sorted(…), or the same list on all ranks",
        (loop.site, "the loop"),
        *because,
    )


def _fewer(loop: RankLoop, meeting: tuple[RankCall, Site], keyed: Site) -> Finding:
    call, site = meeting
    return Finding(
        "DDP828",
        site,
        f"a rank comes to this {call.method}() as often as its samples say: where another has a"
        " class that it has not, a hang or wrong numbers",
        Severity.WARNING,
        advice="go through a list of all classes that is the same on all ranks",
        because=((loop.site, "the loop"), (keyed, "what this rank's samples say")),
    )


def _distinct(value: RankValue) -> Site | None:
    """Where the different values of this rank's samples are taken: ``labels.unique().tolist()``."""
    made = next((t.call for t in value.things if t.call is not None and t.kind == "result"), None)
    if made is None:
        return None
    of = made.receiver if made.receiver is not None else next(iter(made.args), None)
    if of is None or not any(one.kind in (DATA, RANDOM) for one in value.all_origins):
        return None
    if made.method == "unique" or made.name in ("builtins.set", "builtins.frozenset"):
        return made.site if of.items is None else None
    return _distinct(of) if made.method in _HANDING_ON else None


def _sorted(over: RankValue) -> RankValue | None:
    """What ``sorted(…)`` puts in order: the names are then in one order on all ranks."""
    made = over.made_by("builtins.sorted")
    given = made.call.args[0] if made is not None and made.call and made.call.args else None
    inner = given.made_by(*_ALIKE) if given is not None else None
    if inner is not None and inner.call is not None and inner.call.args:
        return inner.call.args[0]
    return given


def _meetings(run: Run, loop: RankLoop) -> Iterator[tuple[RankCall, Site]]:
    found = [one for one in run.calls if _exchanges(one)]
    for call in [*found, *forwards_of_elements(run, loop)]:
        site = call.place_in(loop.site)
        if site is not None:
            yield call, site


def _exchanges(call: RankCall) -> bool:
    """Whether something is exchanged, not only waited for."""
    shared = collective(call)
    if shared is None:
        return call.name in words.AGREEING_CALLS
    waits = call.method in ("barrier", "monitored_barrier", *words.SESSION_OPS)
    return shared.whole and not waits


def _keyed(run: Run, over: RankValue) -> Site | None:
    """Where a dict that a loop goes through got entries under names that each rank has."""
    made = [t.call for t in over.things if t.call is not None and t.call.method in _ENTRIES]
    held = [one.receiver for one in made if one.receiver is not None] or [over]
    for base, site in run.keyed:
        if any(base.atoms[0] == one.atoms[0] for one in held):
            return site
    return None


RULE = Rule(
    "DDP828",
    "order-of-each-process",
    "Collectives meet in the order in which they are called. Each process salts the hashes of"
    " texts, so that sets of them have another order in each, and objects hash by their address; a"
    " dict has the order in which its entries came. Measured with two gloo processes: in the order"
    " of a set of three names each rank got other sums of other pairs, and parameters of unequal"
    " sizes ended in a broken connection; per-class counts in the order of first occurrence gave"
    " 0.50 on one rank and 0.38 on the other where 0.31 was right. Two groups of which each rank"
    " uses another one first are a hang (measured). Lists of files and sets of numbers have one"
    " order. Sorted names are in one order, too, but a rank has only those of its samples; and a"
    " thread that communicates in the group of the main thread comes in between where it will.",
    "Python documentation, PYTHONHASHSEED and dict; MPI-CorrBench, call ordering",
    lint=lint,
    bad=(
        on_ranks("""
            model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 5))
            params = dict(model.named_parameters())
            for name in set(params) - {"0.bias"}:
                dist.broadcast(params[name].data, src=0)  # DDP828
            """),
        on_ranks("""
            counts = {}
            for label in torch.randint(0, 5, (9,)).tolist():
                if label not in counts:
                    counts[label] = torch.zeros(1)
                counts[label] += 1
            for count in counts.values():
                dist.all_reduce(count)  # DDP828
            """),
    ),
    good=(
        on_ranks("""
            model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 5))
            params = dict(model.named_parameters())
            for name in sorted(set(params) - {"0.bias"}):
                dist.broadcast(params[name].data, src=0)
            """),
        on_ranks("""
            counts = {label: torch.zeros(1) for label in range(5)}
            for label in torch.randint(0, 5, (9,)).tolist():
                counts[label] += 1
            for count in counts.values():
                dist.all_reduce(count)
            for layer in {0, 1, 2}:
                dist.all_reduce(torch.ones(layer + 1))
            """),
    ),
    fixes=False,
)
