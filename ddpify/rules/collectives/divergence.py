"""What ranks enter unequally, put into words; one finding per condition, of one rule."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from ddpify.ranks import words
from ddpify.ranks.model import ALL, RANK0, RankCall, RankGuard
from ddpify.ranks.origins import CLOCK, DATA, FILES, RANDOM
from ddpify.ranks.prepared import may_shard
from ddpify.ranks.run import Run
from ddpify.ranks.trace import RAISE, Event, Mismatch
from ddpify.rules.base import Edit, Finding, How, Severity
from ddpify.rules.collectives.made_up import is_made_up
from ddpify.rules.collectives.passed_over import is_passed_over
from ddpify.rules.shared.accelerators import option
from ddpify.rules.shared.exchanges import exchanges
from ddpify.site import Site

GUARDED, LEFT, DECIDED, FORWARD = "DDP801", "DDP802", "DDP803", "DDP804"
SHARDED, FRAMEWORK, GROUP = "DDP805", "DDP806", "DDP807"
_SPOKEN = {
    "forward": "a forward of the wrapped model",
    "backward": "a backward of the wrapped model",
}
_KINDS = {
    DATA: "each rank has its own",
    CLOCK: "each process has its own",
    RANDOM: "each process draws its own",
    FILES: "each machine has its own",
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


def findings(run: Run, code: str) -> Iterator[Finding]:
    """The findings of one rule: the first of each condition, if it is of that rule's kind."""
    firsts: dict[object, Mismatch] = {}
    for one in run.mismatches:
        if not _at_the_end(run, one) and not _is_swallowed(one):
            firsts.setdefault(_cause(one), one)
    for one in firsts.values():
        if _code(one) == code and not (code == FORWARD and is_made_up(run, one)):
            yield _finding(run, one, code)


def _at_the_end(run: Run, one: Mismatch) -> bool:
    """Whether some ranks leave the group where no other waits for them any more."""
    event = one.event.call
    if event is None or one.event.op != "destroy_process_group" or one.paths[1]:
        return False
    others = (ALL & ~one.ranks) or ALL
    return not any(call.ranks & others for call in _in_turn(run, event))


def _is_swallowed(one: Mismatch) -> bool:
    """Whether an error leads past it to a handler that DDP810 speaks of."""
    raised = one.exit is not None and one.exit.kind == RAISE
    return raised and one.event.call is not None and is_passed_over(one.event.call)


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
    severity = _severity(run, one)
    return Finding(
        code,
        one.site,
        _message(run, one) if severity is Severity.ERROR else _said_of_shards(one),
        severity,
        advice=_ADVICE[code],
        because=tuple(dict.fromkeys(_because(run, one))),
        mends=_mends(run, one) if code == DECIDED else (),
    )


def _severity(run: Run, one: Mismatch) -> Severity:
    """How bad it is: a note where nothing is lost unless something in the program is sharded."""
    events = (one.event, *one.paths[0])
    if not all(map(_is_of_shards, events)):
        return Severity.ERROR
    sharded = any(map(may_shard, run.modules.values()))
    numbers = any(event.op in words.NUMBERING for event in events)
    return Severity.WARNING if sharded or numbers else Severity.NOTE


def _said_of_shards(one: Mismatch) -> str:
    states = f"{_STATES} " if one.event.op in words.NUMBERING else ""
    return f"{_where(one)}: {states}{_MILD}"


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
    if guard is None or not told or told - {CLOCK, RANDOM, FILES}:
        return ()
    if call is None or any(each.loop in call.loops for each in run.passes):
        return ()
    return (Edit(How.REPLACE, guard.site, "broadcast({})"),)


def _where(one: Mismatch) -> str:
    what = spoken(one.event.op)
    if one.kind == "local":
        verb = "leaves before" if one.exit is not None else "enters"
        return f"each rank decides for itself whether it {verb} {what}"
    return f"only {_who(one.ranks)} enters {what}"


def _message(run: Run, one: Mismatch) -> str:
    what = spoken(one.event.op)
    if one.kind == "local":
        return f"{_where(one)}: wrong numbers or a hang"
    if one.kind == "exit":
        return f"some ranks leave here, the others go on to {what}: wrong numbers or a hang"
    following = next(_following(run, one), None)
    follows = f"go on to {following[1]}" if following is not None else "do not"
    return f"{_where(one)}, the others {follows}: wrong numbers or a hang"


def _because(run: Run, one: Mismatch) -> Iterable[tuple[Site, str]]:
    yield from _condition(one)
    names = ("some ranks", "others") if one.kind == "local" else _sides(one)
    enters = one.paths[0][:3] or (one.event,)
    yield from ((event.site, f"{names[0]}: {spoken(event.op)}") for event in enters)
    if one.kind == "local":
        yield from ((event.site, f"{names[1]}: {spoken(event.op)}") for event in one.paths[1][:3])
    else:
        yield from ((site, f"{names[1]}: {op}") for site, op in islice(_following(run, one), 2))


def _condition(one: Mismatch) -> Iterator[tuple[Site, str]]:
    """The condition that tells the ranks apart, and where that comes from."""
    guard = _deciding(one)
    if guard is None:
        return
    yield guard.site, "the condition"
    origins = sorted(guard.test.origins, key=lambda o: (o.site, o.kind, o.what))
    own = [origin for origin in origins if origin.kind in (DATA, CLOCK)]
    for origin in own if one.kind == "local" and own else origins:
        yield origin.site, f"{origin.what}: {_KINDS.get(origin.kind, 'the number of the rank')}"


def _deciding(one: Mismatch) -> RankGuard | None:
    left = one.exit.guards if one.exit is not None else ()
    return one.guard or next((g for g in reversed(left) if g.ranks != ALL), None)


def _following(run: Run, one: Mismatch) -> Iterator[tuple[Site, str]]:
    """The collectives that the other ranks enter instead."""
    yield from ((event.site, spoken(event.op)) for event in one.paths[1])
    if one.event.call is not None and not one.paths[1]:
        for call in _in_turn(run, one.event.call):
            if call.ranks & ~one.ranks:
                op = call.method if call.method == "backward" else call.name
                yield call.site, spoken(op)


def _in_turn(run: Run, event: RankCall) -> list[RankCall]:
    """The places at which ranks meet, as they come after one: first its loop, round again."""
    loop = event.loops[-1] if event.loops else None
    calls = [call for call in exchanges(run) if call is not event]
    inside = [call for call in calls if loop is not None and loop in call.loops]
    later = [call for call in calls if call.order > event.order]
    return [*(c for c in inside if c in later), *inside, *later]


def _who(ranks: int) -> str:
    return "rank 0" if ranks == RANK0 else "rank 1"


def _sides(one: Mismatch) -> tuple[str, str]:
    return _who(one.ranks), _who(ALL & ~one.ranks)
