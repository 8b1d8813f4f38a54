"""DDP309: a wrapped model is cast or moved."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.facts.events import Call
from ddpify.facts.model import Facts
from ddpify.facts.roles import whole
from ddpify.ranks.model import RankCall, RankValue
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, How, Rule, Severity
from ddpify.rules.edits import edit, once
from ddpify.rules.examples import SINGLE, changed
from ddpify.rules.examples.gradients import trained
from ddpify.rules.shared.wrapped import Wrap, comes_after, followed, rewrapped, wraps
from ddpify.settings import Settings

_CASTS = frozenset({"half", "double", "bfloat16"})
_MOVES = frozenset({"to", "cuda", "cpu"})


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per move to the CPU of a model that trains on afterwards."""
    passes = {loop.batch.site for loop in facts.training}
    passes |= {loop.epoch.site for loop in facts.training if loop.epoch is not None}
    trained = {t.born for model in facts.models for t in model.things}
    for site, calls in once(tuple(c for c in facts.calls if _goes_to_cpu(c))).items():
        receiver, of = calls[0].receiver, calls[0].receiver_site
        if receiver is None or of is None or not calls[0].alone:
            continue
        if not any(whole(t).born in trained for t in receiver.things):
            continue
        if passes.isdisjoint(loop.site for loop in calls[0].where.loops()):
            continue
        yield Finding(
            "DDP309",
            site,
            "a model that goes to the CPU and back gets new storage: its gradients would no longer"
            " be averaged (what is saved meanwhile is saved from where it is)",
            Severity.ERROR,
            (edit(facts, How.REPLACE, site, facts.text(of)),),
        )


def _goes_to_cpu(call: Call) -> bool:
    if call.name == ".cpu":
        return True
    place = call.arg(0, "device") if call.name == ".to" else None
    return place is not None and place.known and place.const == "cpu"


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per cast or real move of a wrapped model that trains on."""
    for wrap in wraps(run):
        moves = [c for c in run.methods(*_CASTS, *_MOVES) if _of(wrap, c)]
        for call in moves:
            if not comes_after(call, wrap) or rewrapped(run, wrap, call.order):
                continue
            trained_on = followed(wrap, call.order, call.loops, run) and _trains(run, call)
            if trained_on and (_changes(call, wrap, moves) or _leaves_cpu(run, call, wrap)):
                yield Finding(
                    "DDP309",
                    call.site,
                    f"`.{call.method}()` of a wrapped model gives it new storage: gradients are no"
                    " longer averaged, with no error",
                    Severity.ERROR,
                    advice="cast and move the model before DistributedDataParallel()",
                    because=((wrap.call.asked.site, "wrapped here"),),
                )


def _trains(run: Run, after: RankCall) -> bool:
    """Whether gradients are computed after this moment, be it in the next round of a loop."""
    return any(
        one.order > after.order or any(loop in one.loops for loop in after.loops)
        for one in run.backwards
    )


def _of(wrap: Wrap, call: RankCall) -> bool:
    things = call.receiver.things if call.receiver is not None else ()
    return bool(things) and all(t is wrap.wrapper or t in wrap.inner for t in things)


def _changes(call: RankCall, wrap: Wrap, moves: list[RankCall]) -> bool:
    """Whether a move surely does something: to go where the model is already does not."""
    if call.method in _CASTS:
        casts = [c for c in moves if c.order < call.order and (c.method in _CASTS or _dtype(c))]
        return not casts or casts[-1].method != call.method
    if _dtype(call):
        return True
    there = [c for c in moves if c is not call and not _dtype(c) and c.method in _MOVES]
    if _to_cpu(call):
        return any(c.order < call.order and not _to_cpu(c) for c in there)
    return any(c.order > wrap.call.order and _to_cpu(c) for c in there) and any(
        not _to_cpu(c) for c in there
    )


def _leaves_cpu(run: Run, call: RankCall, wrap: Wrap) -> bool:
    """Whether the model was wrapped on the CPU, where it was made, and goes to a GPU now."""
    given = call.arg(0, "device")
    made = given.made_by("torch.device") if given is not None else None
    if made is not None and made.call is not None and made.call.args:
        given = made.call.args[0]
    name = given.constant if given is not None else None
    if call.method != "cuda" and not (isinstance(name, str) and name.startswith("cuda")):
        return False
    simple = all(t.kind == "result" and t.name.startswith("torch.nn.") for t in wrap.inner)
    own = all(t.kind == "instance" and t.cls is not None for t in wrap.inner)
    before = [c for c in run.calls if c.order <= wrap.call.order]
    return (simple or own) and not any(_may_place(c, wrap) for c in before)


def _may_place(call: RankCall, wrap: Wrap) -> bool:
    """Whether a call may have put the model, or what is made without a word, on a GPU."""
    if call.method.startswith("set_default_") or "device" in call.kwargs:
        return True
    if call.target is not None:
        return False
    if call.receiver is None and call.name.startswith(("torch.nn.", "torch.optim.")):
        return False
    moved = call.method in _MOVES or call.receiver is None
    return moved and any(wrap.covers(t) for v in call.inputs for t in v.things)


def _dtype(call: RankCall) -> bool:
    """Whether ``.to(…)`` is given a type of numbers."""
    given: list[RankValue] = [*call.args, *call.kwargs.values()]
    names = {name for value in given for name in value.names()}
    return call.method == "to" and any(
        name in {f"torch.{t}" for t in ("float16", "half", "bfloat16", "float64", "double")}
        for name in names
    )


def _to_cpu(call: RankCall) -> bool:
    if call.method == "cpu":
        return True
    value = call.arg(0, "device")
    if call.method != "to" or value is None:
        return False
    made = value.made_by("torch.device")
    if made is not None and made.call is not None and made.call.args:
        value = made.call.args[0]
    return bool(value.constant == "cpu")


RULE = Rule(
    "DDP309",
    "moved-after-wrap",
    "DistributedDataParallel reduces through buckets that were made for the parameters as they"
    " were. Casting the model or sending it away and back gives them new storage: measured, the"
    " ranks then had gradients of 1 and 2 with no error.",
    "pytorch#104336; DistributedDataParallel docstring; BUGS G17",
    check,
    lint=lint,
    bad=(
        changed(
            SINGLE,
            (
                '        print("round"',
                "        net.eval().cpu()  # DDP309\n"
                '        torch.save(net.state_dict(), "now.pth")\n'
                "        net.cuda()\n"
                '        print("round"',
            ),
        ),
        trained(
            """
            model = DDP(nn.Linear(16, 4))
            model.double()  # DDP309
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            """,
            """
            for x, y in loader:
                optimizer.zero_grad()
                F.cross_entropy(model(x.double()), y).backward()
                optimizer.step()
            """,
        ),
    ),
    good=(
        changed(SINGLE, ("    torch.save(net", "    net.eval().cpu()\n    torch.save(net")),
        trained(
            """
            model = DDP(nn.Linear(16, 4).double())
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            """,
            """
            for x, y in loader:
                optimizer.zero_grad()
                F.cross_entropy(model(x.double()), y).backward()
                optimizer.step()
            """,
        ),
    ),
)
