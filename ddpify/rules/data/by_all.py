"""Loops over data that every rank goes through whole, and who uses what comes of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from ddpify.ranks.collective import collective
from ddpify.ranks.mixing import Of, marks
from ddpify.ranks.model import RANK0, RANK1, RankCall, RankLoop, RankThing, RankValue
from ddpify.ranks.origins import Symbol
from ddpify.ranks.passes import differentiated, iterated
from ddpify.ranks.prepared import is_model
from ddpify.ranks.run import Run
from ddpify.ranks.words import COLLECTIVE_CALLS, COLLECTIVE_METHODS, COLLECTIVE_OPS, DDP, DIST
from ddpify.rules.shared.feeds import by_rank, held, is_whole
from ddpify.rules.shared.wrapped import PLAIN
from ddpify.site import Site

ONE, PART, COPIES = "one", "part", "copies"
_GATHERS: Final = frozenset(
    "gather gather_object all_gather all_gather_object all_gather_into_tensor".split()
)
_COUNTS: Final = ("builtins.range", "itertools.count")
_DATA: Final = (
    *("torch.", "numpy.", "sklearn.", "builtins.", "itertools.", "random.", "json.", "csv."),
    *("pandas.", "argparse."),
)
_PURE: Final = ("torch.", "numpy.", "math.", "statistics.", "sklearn.metrics.")
_NUMBERS: Final = frozenset(
    """float int round len max min sum sorted list tuple dict zip enumerate range abs str
    reversed""".split()
)
_JOINS: Final = frozenset(
    "stack cat concat concatenate vstack array asarray as_tensor tensor from_numpy len list".split()
    + "to cpu cuda float numpy tolist detach".split()
)
_COLLECTS: Final = frozenset("append extend".split())
_WRITES: Final = ("torch.save", "numpy.save", DIST)


@dataclass(frozen=True, eq=False)
class Work:
    """``loop`` is gone through by all ranks alike, and ``makes`` are the calls that matter in it:
    forwards, the models that it trains, functions of the project that take long."""

    loop: RankLoop
    inside: tuple[RankCall, ...]
    makes: frozenset[RankCall]
    computes: bool  # whether it has forwards: else it is said of parts alone
    holds: frozenset[RankThing] = frozenset()  # what results are put into: ``scores[fold] = …``

    def is_result(self, value: RankValue) -> bool:
        """Whether something of it is in a value."""
        return any(
            thing in self.holds or (thing.call is not None and self.makes_in(thing.call))
            for thing in value.sources()
        )

    def makes_in(self, call: RankCall) -> bool:
        """Whether a call is one of those, or made by one."""
        return not self.makes.isdisjoint(call.way)


def wasted(run: Run) -> Iterator[tuple[Work, str, Site]]:
    """(work, what becomes of the results, where): only one rank's results are used, or each uses a
    part, or all collect what is the same on each."""
    done: set[object] = set()
    for work in run.once(_works):
        found = _fate(run, work) if work.loop.node not in done else None
        if found is not None:
            done.add(work.loop.node)
            yield work, *found


def _works(run: Run) -> list[Work]:
    found: dict[RankLoop, Work | None] = {}
    comprehended = [one for one in run.comprehended if _is_same(run, one)]
    for call in run.calls:
        if not call.everywhere or not (call.loops or comprehended):
            continue
        if _is_forward(call) or _takes_long(call):
            around = (one for one in comprehended if call.place_in(one.site) is not None)
            loops = [*around, *call.loops]
            for loop in loops:
                if loop not in found:
                    found[loop] = _work(run, loop)
                if found[loop] is not None:
                    break  # the outermost
    return [work for work in found.values() if work is not None]


def _is_forward(call: RankCall) -> bool:
    """A model's forward, or what else of a model is called and not read: ``encoder.net(x)``."""
    own = call.method == "__call__" or (call.target is None and call.given != ())
    return own and call.method not in PLAIN and _models(call) != []


def _models(call: RankCall) -> list[RankThing]:
    return [
        t
        for t in (call.receiver.things if call.receiver else ())
        if is_model(t) and "__call__" not in t.name
    ]


def _takes_long(call: RankCall) -> bool:
    """Whether a function of the project has a loop of its own."""
    return call.target is not None and call.target.goes_round


def _work(run: Run, loop: RankLoop) -> Work | None:
    over = loop.over
    if over is None or not _is_same(run, loop):
        return None
    inside = _inside(run, loop)
    if any(map(_meets, inside)) or _leaves(run, loop):
        return None
    forwards = [c for c in inside if _is_forward(c)]
    backwards = [c for c in inside if c in run.backwards]
    made = {t.call for c in forwards for t in _models(c) if t.call is not None and t.call in inside}
    counts = over.made_by(*_COUNTS)
    steps = counts is not None and counts.call is not None and len(counts.call.args) < 3
    if steps and not (backwards and made):
        return None  # or repetitions
    if backwards and not all(_trains_its_own(one, inside) for one in backwards):
        return None
    if not all(_is_alike(run, one, loop, backwards != []) for one in forwards):
        return None
    long = [] if forwards else [c for c in inside if _takes_long(c)]
    work = Work(loop, inside, frozenset((*forwards, *made, *long)), forwards != [])
    kept = (s.base for s in run.stores if s.element and work.is_result(s.value))
    return replace(work, holds=frozenset(t for base in kept for t in base.things))


def _is_same(run: Run, loop: RankLoop) -> bool:
    """Whether it is seen that all ranks go over the same."""
    over = loop.over
    if over is None or over.all_origins or not _is_known(run, loop, over):
        return False
    return not by_rank(over)


def _inside(run: Run, loop: RankLoop) -> tuple[RankCall, ...]:
    if loop in run.comprehended:
        return tuple(call for call in run.calls if call.place_in(loop.site) is not None)
    return tuple(call for call in run.calls if loop in call.loops)


def _is_known(run: Run, loop: RankLoop, over: RankValue) -> bool:
    """Whether it is seen what a loop goes over: nothing that may deal samples has made it."""
    loaders = iterated(loop)
    if loaders:
        return all(is_whole(run, one) for one in loaders)
    return all(
        thing.kind == "mark"
        or (thing.kind == "result" and thing.name.startswith((".", *_DATA)))
        or (thing.kind == "attribute" and thing.name.startswith(_DATA))
        for thing in over.sources()  # none of a function that says nothing of ranks: it is not read
    )


def _meets(call: RankCall) -> bool:
    """Whether ranks meet in a call, or may: results of one round are no rank's own then."""
    dist = collective(call) is not None or call.method in (*COLLECTIVE_OPS, *COLLECTIVE_METHODS)
    return dist or call.name in COLLECTIVE_CALLS or call.name == DDP


def _leaves(run: Run, loop: RankLoop) -> bool:
    """Whether the loop ends early, or a rank leaves out what others do not."""
    return any(
        (one.ends(loop) and one.kind == "break") or any(g.test.by_rank for g in one.guards)
        for one in run.exits
        if loop in one.loops
    )


def _trains_its_own(backward: RankCall, inside: tuple[RankCall, ...]) -> bool:
    """Whether a loop trains only models that a round makes for itself."""
    loss = differentiated(backward)
    calls = [t.call for t in loss.sources() if t.call is not None] if loss is not None else []
    models = [t for c in calls if _is_forward(c) for t in _models(c)]
    return bool(models) and all(t.call in inside and t.wrapper is None for t in models)


def _is_alike(run: Run, forward: RankCall, loop: RankLoop, trains: bool) -> bool:
    """Whether all ranks compute this, each round for itself."""
    if any(v.all_origins for v in forward.inputs) or not forward.everywhere:
        return False
    if any(guard.test.by_rank for guard in forward.conditions_in(loop)):
        return False
    sharded = (t.sharded or (t.wrapper and t.wrapper.name != DDP) for t in _models(forward))
    before = (t.call for v in forward.given for t in v.sources() if t.call is not None)
    return not any(sharded) and (trains or all(c.node is not forward.node for c in before))


def _fate(run: Run, work: Work) -> tuple[str, Site] | None:
    """What becomes of the results; None where all ranks may need them, or that is not seen."""
    found: dict[str, Site] = {}
    if any(work.is_result(whole) and not whole.all_origins for _, whole in run.parted):
        found[PART] = work.loop.site
    elif not work.computes:
        return None
    if not all(note(run, work, found) for note in (_note_asked, _note_stored, _note_used)):
        return None
    first = COPIES if COPIES in found else next(iter(found), None)
    return None if first is None else (first, found[first])


def _note_asked(run: Run, work: Work, found: dict[str, Site]) -> bool:
    """Note which conditions rank 0 alone decides by results; False where others do."""
    for test, ranks, site in run.asked:
        if not work.is_result(test) or _is_inside(work, site) or (found and _is_own(test)):
            continue
        if ranks & RANK1 and isinstance(test.atoms[1], Symbol):
            return False
        found.setdefault(ONE, site)
    return True


def _note_stored(run: Run, work: Work, found: dict[str, Site]) -> bool:
    """Note where rank 0 alone keeps results; False where others do, and it is not followed."""
    for store in run.stores:
        if not work.is_result(store.value):
            continue
        if store.ranks == RANK0:
            found.setdefault(ONE, store.site)
        elif not _is_seen(store.base):
            return False
    return True


def _note_used(run: Run, work: Work, found: dict[str, Site]) -> bool:
    """Note who is given results; False where a rank beside 0 uses them for more than numbers."""
    for call in run.calls:
        used = [value for value in call.inputs if _has(work, value)]
        used = [value for value in used if PART not in found or not _is_own(value)]
        if not used or COPIES in found:
            continue
        if call.ranks == RANK0 or (run.quiet and call.name == "builtins.print"):
            found.setdefault(ONE, call.site)
        elif _collects(work, call, used):
            found[COPIES] = call.site  # N times, whatever is done with them
        elif not _is_plain(run, work, call) or (PART in found and not _joins(work, call)):
            return False
    return True


def _joins(work: Work, call: RankCall) -> bool:
    """Whether a call leaves each result as it is: of an average, a rank would need all."""
    known = call.method in _JOINS or call.method in _COLLECTS or call.target is not None
    return known or call in work.inside or work.makes_in(call)


def _is_inside(work: Work, site: Site) -> bool:
    """Whether it stands in a function that takes long, and gives what is asked about here."""
    targets = (call.target for call in work.makes if call.target is not None)
    return any(site.within(target.module.site(target.node)) for target in targets)


def _is_own(value: RankValue) -> bool:
    """Whether it is of this rank's part, or says how many there are in it."""
    return bool(value.all_origins) or Of.COUNT in marks(value)


def _has(work: Work, value: RankValue) -> bool:
    """Whether a result is in a value, or in what its objects hold."""
    return work.is_result(value) or any(
        work.is_result(inner)
        for thing in held(value)
        if thing.cls is not None
        for inner in thing.attrs.values()
    )


def _is_plain(run: Run, work: Work, call: RankCall) -> bool:
    """Whether a call only gives another value, or is read itself."""
    if call in work.makes or (call.target is not None and call.target.place in run.entered):
        return True
    if call in run.backwards or (call in work.inside and call.method in ("step", "zero_grad")):
        return True
    if call.method in _COLLECTS:
        return call.receiver is not None and call.receiver.items is not None
    if any(one in work.makes for one in call.stack):
        return not call.alone or call.method == "__init__"
    if call.name == "builtins.print" or call.alone or call.name.startswith(_WRITES):
        return False
    if call.name.startswith(_PURE) or call.name.removeprefix("builtins.") in _NUMBERS:
        return True
    return call.receiver is not None and (work.is_result(call.receiver) or _is_forward(call))


def _is_seen(base: RankValue) -> bool:
    """Whether it is followed what an object, a list or a dict holds."""
    known = base.items is not None or base.keys is not None
    return known or any(thing.kind in ("instance", "result") for thing in base.things)


def _collects(work: Work, call: RankCall, used: list[RankValue]) -> bool:
    reduces = call.method in ("all_reduce", "reduce") and not iterated(work.loop)  # else DDP205
    gathers = call.name.startswith(DIST) and (reduces or call.method in _GATHERS)
    return gathers and all(work.is_result(value) and not value.all_origins for value in used)
