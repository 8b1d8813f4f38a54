"""What ranks enter unequally, put into words; one finding per condition, of one rule."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, takewhile
from typing import Final

from ddpify.ranks import other_libraries, words
from ddpify.ranks.model import ALL, RANK0, RankCall, RankGuard
from ddpify.ranks.origins import CLOCK, DATA, FILES, RANDOM, Origin, Symbol
from ddpify.ranks.prepared import may_shard
from ddpify.ranks.run import Run
from ddpify.ranks.trace import RAISE, WRAPPING, Event, Mismatch
from ddpify.ranks.values import differs
from ddpify.rules.base import Edit, Finding, How, Severity
from ddpify.rules.collectives.made_up import is_made_up
from ddpify.rules.collectives.passed_over import is_passed_over
from ddpify.rules.collectives.unproven import is_doubtful
from ddpify.rules.shared.accelerators import option
from ddpify.rules.shared.exchanges import exchanges
from ddpify.site import Site

GUARDED, LEFT, DECIDED, FORWARD = "DDP801", "DDP802", "DDP803", "DDP804"
SHARDED, FRAMEWORK, GROUP = "DDP805", "DDP806", "DDP807"
_SPOKEN = {
    "forward": "a forward of the wrapped model",
    "backward": "a backward of the wrapped model",
    WRAPPING: f"the constructor of {WRAPPING}",
}
_MILD = "a hang where the model is sharded (FSDP, DeepSpeed ZeRO-3)"
_STATES = "the others' random states are not saved, and"
_ADVICE = {
    GUARDED: "let all ranks enter it, and keep the condition around what only one rank shall do",
    LEFT: "let all ranks go the same way: decide on one, broadcast or reduce it, then leave",
    DECIDED: "let the ranks agree first: all_reduce the value, or broadcast rank 0's decision",
    FORWARD: "call the inner module (model.module) under no_grad there, or run it on all ranks",
    SHARDED: "call it on all ranks, and keep the condition around the writing only",
    FRAMEWORK: "call it on all ranks: it does by itself on one rank what only one may do",
    GROUP: "make every group on all ranks, in the same order, members or not",
}


_Met = tuple[str, tuple[RankCall | Event, ...]]  # an operation, and the calls that lead to it


def findings(run: Run, code: str) -> Iterator[Finding]:
    """The findings of one rule: the first of each condition, if it is of that rule's kind."""
    firsts: dict[object, Mismatch] = {}
    for one in run.mismatches:
        if not any(excuses(run, one) for excuses in _EXCUSES):
            firsts.setdefault(_cause(one), one)
    for one in firsts.values():
        if _code(one) == code and not (code == FORWARD and is_made_up(run, one)):
            yield _finding(run, one, code)


def _ends_before_trainer(run: Run, one: Mismatch) -> bool:
    """Whether rank 0 ends in peace before a Trainer runs, or in a hook of it: where no launcher has
    started the others, the Trainer does so."""
    op = one.event.op
    fits = op.startswith(f"{words.TRAINER}.") and op.rpartition(".")[2] in words.LOOPS
    return fits and one.exit is not None and one.exit.kind == "stop"


def _at_the_end(run: Run, one: Mismatch) -> bool:
    """Whether some ranks leave the group where no other waits for them any more."""
    event = one.event.call
    if event is None or one.event.op != "destroy_process_group" or one.paths[1]:
        return False
    others = (ALL & ~one.ranks) or ALL
    return not any(call.ranks & others for call in _in_turn(run, event))


def _is_single(run: Run, one: Mismatch) -> bool:
    """Whether MPI's world may be one process: torchrun, not mpiexec, says the rank to a program
    that opens its group without one."""
    met, opened = one.event.call, run.session
    if met is None or opened is None or not met.name.startswith(other_libraries.MPI):
        return False
    told = opened.arg(4, "rank") is not None or any(store.key == "RANK" for store in run.stores)
    return not told and not any(run.named("os.environ.update", "os.environ.setdefault"))


def _is_swallowed(run: Run, one: Mismatch) -> bool:
    """Whether an error leads past it to a handler that DDP810 speaks of."""
    raised = one.exit is not None and one.exit.kind == RAISE
    return raised and one.event.call is not None and is_passed_over(one.event.call)


def _when_told(run: Run, one: Mismatch) -> bool:
    """Whether a rank leaves the group where a signal comes, at its end."""
    told = (str(atom) for guard in one.event.guards for atom in guard.test.atoms)
    return one.event.op == "destroy_process_group" and any("signal@" in text for text in told)


def _is_counted_out(run: Run, one: Mismatch) -> bool:
    """Whether those that end before the group is opened are left out of it: it is given a size that
    is a part of what the launcher said, ``os.environ["WORLD_SIZE"] = str(size // 4)``."""
    left = one.exit
    if left is None or left.kind != "stop":
        return False
    opened = [call for call in run.openings if left.order < call.order]
    sizes = [call.arg(3, "world_size") for call in opened]
    last = max((call.order for call in opened), default=left.order)
    sizes += [s.value for s in run.stores if s.key == _SIZE and left.order < s.order < last]
    atoms = (size.atoms[0] for size in sizes if size is not None)
    return any(isinstance(atom, Symbol) and atom.parts[:1] in _PARTS for atom in atoms)


_SIZE: Final = "WORLD_SIZE"
_PARTS: Final = (("FloorDiv",), ("Div",), ("Sub",))
_EXCUSES: Final = (
    _at_the_end,
    _when_told,
    _is_swallowed,
    _is_single,
    _ends_before_trainer,
    _is_counted_out,
)


def _cause(one: Mismatch) -> object:
    if one.exit is not None:
        return one.exit.node
    return one.guard.node if one.guard is not None else one.event.node


def _code(one: Mismatch) -> str:
    if one.kind != "guard":
        return LEFT if one.kind == "exit" else DECIDED
    op = one.event.op
    if op in ("forward", "backward"):
        return FORWARD
    if op in words.GROUP_OPS:
        return GROUP
    if op in words.FRAMEWORK_CALLS or op.startswith("log("):
        return FRAMEWORK
    if op.removeprefix(".") in words.COLLECTIVE_METHODS or _is_sharded(op) or op in words.CLIPS:
        return SHARDED
    return GUARDED


def _is_sharded(op: str) -> bool:
    named = op in words.COLLECTIVE_CALLS or f"{words.DIST}{op}" in words.COLLECTIVE_CALLS
    return named or op.rpartition(".")[2] in words.COLLECTIVE_METHODS


def spoken(name: str) -> str:
    """The operation, as a reader says it."""
    holder, _, last = name.rpartition(".")
    owner = holder.rpartition(".")[2]
    named = f"{owner}.{last}" if owner[:1].isupper() or owner == "checkpoint" else last
    return _SPOKEN.get(name, named)


def _finding(run: Run, one: Mismatch, code: str) -> Finding:
    return Finding(
        code,
        _in_its_own(run, one) if _is_in_each(run, one) else one.site,
        *_said(run, one),
        advice=_ADVICE[code],
        because=tuple(dict.fromkeys(_because(run, one))),
        mends=_mends(run, one) if code == DECIDED else (),
    )


def _is_in_each(run: Run, one: Mismatch) -> bool:
    """Whether some ranks enter one function and the others another one, and both have these
    collectives: where they are called, ``role(stats)``, nothing is wrong."""
    guard = one.guard
    if guard is None:
        return False
    held = (each for each in run.mismatches if each.guard and each.guard.node is guard.node)
    others = [each.event.op for each in held if each.ranks != one.ranks]
    if any(c.node.func is guard.node for c in one.event.stack):
        return bool(others)
    return one.event.op in others  # in another order


def _in_its_own(run: Run, one: Mismatch) -> Site:
    """The last place on the way to a collective that is not in a helper of both."""
    held = (m for m in run.mismatches if m.guard and one.guard and m.guard.node is one.guard.node)
    shared = {c.target for each in held if each.ranks != one.ranks for c in each.event.stack}
    inside = [c for c in one.event.stack if c.target in shared and one.guard in c.guards]
    return inside[0].site if inside else one.event.site


def _said(run: Run, one: Mismatch) -> tuple[str, Severity]:
    """What to say, and how bad it is: a note where nothing is lost unless something in the program
    is sharded, and where it is not proven."""
    if is_doubtful(run, one, _deciding(one)):
        return f"{_where(run, one)}, as far as is seen: not proven", Severity.NOTE
    events = (one.event, *one.paths[0])
    if not all(map(_is_of_shards, events)):
        return _message(run, one), Severity.ERROR
    sharded = any(map(may_shard, run.modules.values()))
    numbers = any(event.op in words.NUMBERING for event in events)
    return _said_of_shards(run, one), Severity.WARNING if sharded or numbers else Severity.NOTE


def _said_of_shards(run: Run, one: Mismatch) -> str:
    states = f"{_STATES} " if one.event.op in words.NUMBERING else ""
    return f"{_where(run, one)}: {states}{_MILD}"


def _is_of_shards(event: Event) -> bool:
    """Whether ranks meet in a call of Accelerate only where a model or its optimizer is sharded.

    And where it numbers the checkpoints itself: then it waits for all.
    """
    call = event.call
    if event.op not in words.MEETING_IF_SHARDED or call is None:
        return False
    config = option(call, "project_config")
    made = [t.call for t in config.things if t.call is not None] if config is not None else []
    numbered = [one.kwargs.get("automatic_checkpoint_naming") for one in made]
    return event.op not in words.NUMBERING or not any(
        value is not None and value.constant is not False for value in numbered
    )


def _mends(run: Run, one: Mismatch) -> tuple[Edit, ...]:
    """Rank 0's answer for all, where it is none about a rank's samples: the clock, a draw, files.

    Not in the steps of training, each of which would begin with a message.
    """
    guard, call = _deciding(one), one.event.call
    told = {origin.kind for origin in guard.test.origins} if guard is not None else set()
    if guard is None or not told or told - {CLOCK, RANDOM, FILES} or _askers(one) is not None:
        return ()
    if call is None or any(each.loop in call.loops for each in run.passes):
        return ()
    return (Edit(How.REPLACE, guard.site, "broadcast({})"),)


def _where(run: Run, one: Mismatch) -> str:
    what = spoken(_met_first(run, one)[0])
    if one.kind == "local":
        if _askers(one) is not None:
            return f"some ranks alone ask whether to leave before {what}"
        verb = "leaves before" if one.exit is not None else "enters"
        return f"each rank decides for itself whether it {verb} {what}"
    return f"only {_who(one.ranks)} enters {what}"


def _message(run: Run, one: Mismatch) -> str:
    what = spoken(_met_first(run, one)[0])
    if one.kind == "local":
        return f"{_where(run, one)}: wrong numbers or a hang"
    if one.kind == "exit":
        alone = "rank 0 alone leaves" if not one.ranks & RANK0 else "some ranks leave"
        return f"{alone} here, the others go on to {what}: wrong numbers or a hang"
    following = next(_following(run, one), None)
    follows = f"go on to {spoken(following[0])}" if following is not None else "do not"
    return f"{_where(run, one)}, the others {follows}: wrong numbers or a hang"


def _because(run: Run, one: Mismatch) -> Iterable[tuple[Site, str]]:
    yield from _condition(run, one)
    names = ("some ranks", "others") if one.kind == "local" else _sides(one)
    yield _met(one, names[0], *_met_first(run, one))
    if one.kind == "local":
        for event in one.paths[1][:1]:
            yield _met(one, names[1], event.op, (*event.stack, event))
    elif one.kind == "guard":
        for op, way in islice(_following(run, one), 1):
            yield _met(one, names[1], op, way)


def _met_first(run: Run, one: Mismatch) -> _Met:
    """What the ranks that go on come to: a model is wrapped once, its steps are what follows."""
    events: list[_Met] = [(e.op, (*e.stack, e)) for e in (one.event, *one.paths[0])]
    if one.exit is None or one.event.call is None:
        return events[0]
    later = ((_op(call), call.way) for call in _in_turn(run, one.event.call))
    return next((met for met in chain(events, later) if met[0] != WRAPPING), events[0])


def _met(one: Mismatch, who: str, op: str, way: Sequence[RankCall | Event]) -> tuple[Site, str]:
    """What ranks come to: where their way leaves that to the condition, not in a helper of both."""
    guard, known = _deciding(one), one.event.stack
    if guard is not None:
        known = tuple(c for c in known if all(g.node is not guard.node for g in c.guards))
    asked = next(each for each in way if each not in known)
    path, span = way[-1].site
    inside = f" (line {span.line})" if path == asked.site.path else f" ({way[-1].site})"
    return asked.site, f"{who}: {spoken(op)}{inside if asked is not way[-1] else ''}"


def _condition(run: Run, one: Mismatch) -> Iterator[tuple[Site, str]]:
    """The condition that tells the ranks apart, and where that comes from."""
    guard, text, asking = _deciding(one), "the condition", _askers(one)
    if guard is not None and asking is not None:
        yield asking.site, "who asks: by the number of the rank"
        yield guard.site, text
        return
    if guard is None:
        guard, text = _parted_before(run, one), "here the others go another way"
    if guard is None:
        return
    told = {str(o.site): (o.site, o.told) for o in _firing(one, guard)}
    _, why = told.pop(str(guard.site), (guard.site, ""))
    yield guard.site, f"{text} ({why})" if why else text
    yield from told.values()


def _firing(one: Mismatch, guard: RankGuard) -> list[Origin]:
    """The origins by which ranks come to different answers: one of each kind and name."""
    origins = sorted(guard.test.origins, key=lambda o: (o.site, o.kind, o.what))
    own = [o for o in origins if o.kind in (DATA, CLOCK)] or [o for o in origins if o.kind != FILES]
    held = own if own and one.kind == "local" else origins
    return list({(origin.kind, origin.what): origin for origin in reversed(held)}.values())[::-1]


def _parted_before(run: Run, one: Mismatch) -> RankGuard | None:
    """Why some ranks alone are where they leave: the others left before, by this condition."""
    left = one.exit
    if left is None or left.ranks == ALL:
        return None
    earlier = [each for each in run.exits_of.get(left.function, ()) if each.order < left.order]
    guards = (guard for each in reversed(earlier) for guard in reversed(each.guards))
    return next((g for g in guards if g.ranks != ALL or differs(g.test)), None)


def _deciding(one: Mismatch) -> RankGuard | None:
    left = one.exit.guards if one.exit is not None else ()
    return one.guard or next((g for g in reversed(left) if g.ranks != ALL), None)


def _askers(one: Mismatch) -> RankGuard | None:
    """The condition on the rank under which some ranks alone decide whether they leave."""
    left, guard = one.exit, _deciding(one)
    if one.kind != "local" or left is None or guard is None:
        return None
    shared = {each.node for each in one.event.guards}
    around = takewhile(lambda each: each.node is not guard.node, left.guards)
    return next((g for g in around if g.test.by_rank and g.node not in shared), None)


def _following(run: Run, one: Mismatch) -> Iterator[_Met]:
    """The collectives that the other ranks enter instead, each with the way there."""
    for event in one.paths[1]:
        yield event.op, (*event.stack, event)
    if one.event.call is not None and not one.paths[1]:
        for call in _in_turn(run, one.event.call):
            if call.ranks & ~one.ranks:
                yield _op(call), call.way


def _op(call: RankCall) -> str:
    return call.method if call.method == "backward" else call.name


def _in_turn(run: Run, event: RankCall) -> list[RankCall]:
    """The places at which ranks meet, as they come after one: first its loops, round again."""
    calls = [call for call in exchanges(run) if call is not event]
    later = [call for call in calls if call.order > event.order]
    rounds = [
        call
        for loop in reversed(event.loops)
        for part in (later, calls)
        for call in part
        if loop in call.loops
    ]
    return list(dict.fromkeys((*rounds, *later)))


def _who(ranks: int) -> str:
    return "rank 0" if ranks == RANK0 else "rank 1"


def _sides(one: Mismatch) -> tuple[str, str]:
    return _who(one.ranks), _who(ALL & ~one.ranks)
