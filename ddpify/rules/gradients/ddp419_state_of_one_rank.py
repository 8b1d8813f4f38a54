"""DDP419: only some ranks change what training goes on with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from ddpify.facts.model import Facts
from ddpify.ranks.events import Store
from ddpify.ranks.model import ALL, RankCall, RankValue
from ddpify.ranks.origins import ITEM, Symbol
from ddpify.ranks.run import Run
from ddpify.ranks.words import AGREEING_OPS
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.edits import is_local
from ddpify.rules.examples import SINGLE, changed
from ddpify.rules.examples.gradients import LOOP, SETUP, trained
from ddpify.rules.gradients.goings_on import states
from ddpify.rules.gradients.noise import noise
from ddpify.rules.gradients.steps_of_a_part import steps_of_a_part
from ddpify.rules.shared.averaged_by_hand import is_gradient
from ddpify.rules.shared.modes import parted_modes
from ddpify.rules.shared.wrapped import Wrap, comes_after, followed, parameters_of, wraps
from ddpify.settings import Settings
from ddpify.source import Site

_OPTIM: Final = "torch.optim."
_SCHEDULE: Final = "torch.optim.lr_scheduler."
_CLIPS: Final = "torch.nn.utils.clip_grad"
_IN_PLACE: Final = tuple(
    f"{name}_" for name in "add sub mul div clamp clip clamp_min clamp_max renorm fill zero".split()
)
_SPOKEN: Final = {
    "step": "step the optimizer",
    "zero_grad": "clear the gradients",
    "add_param_group": "give the optimizer more parameters",
}


@dataclass(frozen=True, eq=False)
class _Change:
    """A change of the state of an optimizer of these parameters; ``kind`` tells it from others."""

    where: RankCall | Store
    of: RankValue
    kind: str
    spoken: str


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield a finding per change of the state of training that hangs on a rank's own samples.

    And one per draw of its own that goes into the weights.
    """
    yield from noise(facts)
    seen: set[Site] = set()
    for site, where, value, spoken in states(facts):
        guard = next((g for g in where.conditions() if is_local(facts, g.test)), None)
        if site in seen or (guard is None and not is_local(facts, value)):
            continue
        seen.add(site)
        yield Finding(
            "DDP419",
            site,
            f"each rank would {spoken} by its own samples: their models part, without an error",
            Severity.ERROR,
            advice="reduce what decides it on all ranks first, in a statement of its own",
            because=((guard.site, "the condition"),) if guard is not None else (),
        )


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per change of the state of training that some ranks do not make."""
    for made, step in steps_of_a_part(run):
        yield Finding(
            "DDP419",
            step.site,
            "each rank steps with its own part of the parameters, and nothing sends what has become"
            " of them to the others: the ranks train different models",
            Severity.ERROR,
            advice="broadcast each parameter from the rank that has stepped with it, or use"
            " torch.distributed.optim.ZeroRedundancyOptimizer",
            because=((made.site, "made of the part of each rank"),),
        )
    changes = list(_changes(run))
    ranks: dict[str, int] = {}
    for change in changes:
        ranks[change.kind] = ranks.get(change.kind, 0) | change.where.ranks
    for wrap in wraps(run):
        for change in changes:
            where = change.where
            some = ranks[change.kind] != ALL
            if not (some or _differs(where)) or not _is_for(change.of, wrap):
                continue
            if _is_undone(change, wrap):
                continue
            if followed(wrap, where.order, where.loops, run):
                who = "only some ranks" if some else "the ranks, each to its own value,"
                yield _finding(wrap, where, f"{who} {change.spoken}")
        for call in parted_modes(run, wrap):
            found = _finding(wrap, call, "")
            yield replace(found, message=_MODES, severity=Severity.WARNING)


_MODES: Final = (
    "only some ranks go on to train in another mode (`train`, `eval`): dropout and batch norm work"
    " otherwise there, and their gradients are averaged with the others'"
)


def _changes(run: Run) -> Iterator[_Change]:
    for store in run.stores:
        if store.element and store.ranks and _is_group(store.base):
            yield _Change(store, store.base, store.key, f"set `{store.key}` of the optimizer")
    for call in run.calls:
        if call.name.startswith(_CLIPS) and call.args:
            yield _Change(call, call.args[0], call.method, "clip the gradients")
    yield from _in_place(run)
    for call in run.methods("step", *_SPOKEN):
        if call.receiver is None or not call.ranks:
            continue
        if call.name.startswith(_SCHEDULE):
            yield _Change(call, call.receiver, "schedule", "go on with the schedule")
        elif call.name.startswith(_OPTIM):
            yield _Change(call, call.receiver, call.method, _SPOKEN[call.method])


def _in_place(run: Run) -> Iterator[_Change]:
    """What some ranks change in weights or gradients themselves: ``p.clamp_(-c, c)``."""
    for call in run.methods(*_IN_PLACE):
        if call.receiver is None or call.ranks in (0, ALL) or not _is_held(call.receiver):
            continue
        if not _agreed(run, call):
            what = "gradients" if is_gradient(call.receiver) else "weights"
            yield _Change(call, call.receiver, f"{what} {call.method}", f"change the {what}")


def _is_undone(change: _Change, wrap: Wrap) -> bool:
    """Whether the wrapper is made afterwards, and gives all ranks the weights of rank 0."""
    where = change.where
    in_place = isinstance(where, RankCall) and where.method in _IN_PLACE
    return in_place and not comes_after(where, wrap)


def _is_held(value: RankValue) -> bool:
    """Whether a tensor is a parameter, or its gradient, itself: nothing computed from it."""
    atom = value.atoms[0]
    computed = isinstance(atom, Symbol) and atom.parts and atom.parts[0] != ITEM
    return not computed and all(thing.kind != "result" for thing in value.things)


def _agreed(run: Run, change: RankCall) -> bool:
    """Whether what is changed may be made the same on all ranks afterwards."""
    changed_now = parameters_of(change.receiver) if change.receiver is not None else set()
    later = [c for c in run.calls if c.order > change.order]
    rounds = {loop for loop in change.loops if loop.trains}
    if any(_loads(c) and rounds <= set(c.loops) for c in later):
        return True
    sent = (v for c in later if c.method in AGREEING_OPS for v in c.given)
    return any(not changed_now.isdisjoint(parameters_of(value)) for value in sent)


def _loads(call: RankCall) -> bool:
    """``model.load_state_dict(sent[0])``, which all ranks do."""
    return call.method == "load_state_dict" and call.everywhere


def _differs(where: RankCall | Store) -> bool:
    """Whether each rank surely stores something else."""
    if not isinstance(where, Store) or not where.value.known:
        return False
    one, other = where.value.atoms
    return bool(one != other)


def _is_group(value: RankValue) -> bool:
    """``optimizer.param_groups[0]``, or the ``group`` of a loop over them."""
    groups = any(thing.name.endswith(".param_groups") for thing in value.sources())
    return groups and value.keys is None  # of a dict that is written out, one may be an entry


def _is_for(value: RankValue, wrap: Wrap) -> bool:
    owners = parameters_of(value)
    return bool(owners) and all(map(wrap.covers, owners))


def _finding(wrap: Wrap, where: RankCall | Store, spoken: str) -> Finding:
    guard = next((one for one in reversed(where.guards) if one.ranks != ALL), None)
    because = [(wrap.call.asked.site, "trained by all ranks")]
    if guard is not None:
        because.append((guard.site, "the condition"))
    return Finding(
        "DDP419",
        where.site,
        f"{spoken}: gradients are averaged, but from here on the ranks make"
        " different weights of them, without an error",
        Severity.ERROR,
        advice="do it on all ranks; only what is printed or written belongs to rank 0",
        because=tuple(because),
    )


_MAIN: Final = "if dist.get_rank() == 0:"
_EPOCH: Final = SETUP + "plan = torch.optim.lr_scheduler.StepLR(optimizer, 1)\n"

_WORST: Final = (
    ("    for round_", "    worst, at = 0.0, adam.param_groups[0]\n    for round_"),
    (
        "            adam.step()\n",
        "            adam.step()\n            worst = max(worst, objective.item())\n"
        '        if worst > 2:\n            at["lr"] = 1e-4\n',
    ),
)

_STEPPED: Final = "            adam.step()\n"
_DRAWN: Final = (  # noise of its own on each rank
    "            for one in net.parameters():\n"
    "                one.grad += 0.1 * torch.randn_like(one.grad)  # DDP419\n" + _STEPPED,
    _STEPPED + "            for one in net.parameters():\n"
    "                one.data.mul_(1 + 0.1 * torch.rand(one.size()))  # DDP419\n",
    _STEPPED + "            with torch.no_grad():\n"
    "                for one in net.parameters():\n"
    "                    one += 0.1 * torch.randn(())  # DDP419\n",
)
_COUNTED: Final = (  # a number of its own samples
    "            for one in net.parameters():\n"
    "                one.grad.div_((label > 0).sum())  # DDP419\n" + _STEPPED
)
_QUIET: Final = (  # into a copy, and into what each sample is
    _STEPPED + "            for one in net.parameters():\n"
    "                moved = one + torch.randn(one.size())\n                print(moved.shape)\n",
    "            signal = signal + torch.randn_like(signal)\n" + _STEPPED,
)

RULE = Rule(
    "DDP419",
    "state-of-one-rank",
    "DistributedDataParallel averages gradients, and nothing else: the learning rate, the schedule,"
    " the optimizer's steps, training and evaluation mode are each rank's own. What rank 0 alone"
    " changes under the condition that was meant for its output makes it another model than that"
    " of the others, in every step, and only its own is saved (measured after three epochs: sums of"
    " weights 6.22 against 6.37).",
    "DistributedDataParallel docstring (gradients and buffers are all that is synchronised)",
    check,
    lint=lint,
    words=("param_groups", ".step(", ".eval()", ".train("),
    bad=(
        *(changed(SINGLE, (_STEPPED, written)) for written in (*_DRAWN, _COUNTED)),
        trained(
            loop=f"{LOOP}{_MAIN}\n    for group in optimizer.param_groups:\n"
            '        group["lr"] *= 0.5  # DDP419'
        ),
        trained(
            loop=f'{LOOP}{_MAIN}\n    optimizer.param_groups[0]["lr"] = 0.1 / (epoch + 1)  # DDP419'
        ),
        trained(_EPOCH, f"{LOOP}{_MAIN}\n    print(plan.get_last_lr())\n    plan.step()  # DDP419"),
        trained(
            loop=LOOP.replace("    optimizer.step", f"    {_MAIN}\n        optimizer.step").replace(
                ".step()", ".step()  # DDP419"
            )
        ),
        trained(
            loop=f"lr = 0.1\n{LOOP}{_MAIN}\n    lr = 0.01\n"
            'optimizer.param_groups[0]["lr"] = lr  # DDP419'
        ),
        trained(  # it trains on in evaluation mode
            loop=f"{LOOP}{_MAIN}\n    model.eval()  # DDP419\n    with torch.no_grad():\n"
            "        print(model.module(torch.ones(1, 16)))"
        ),
        changed(SINGLE, *_WORST, ("= 1e-4", "= 1e-4  # DDP419")),
        changed(  # an object that is not read keeps the losses of this rank
            SINGLE,
            *_WORST,
            ("import torch\n", "import torch\nfrom torchnet.meter import AverageValueMeter\n"),
            ("worst, at = 0.0, adam", "meter, at = AverageValueMeter(), adam"),
            ("worst = max(worst, objective.item())", "meter.add(objective.item())"),
            ("if worst > 2:", "if meter.value()[0] > 2:"),
            ("= 1e-4", "= 1e-4  # DDP419"),
        ),
    ),
    good=(
        *(changed(SINGLE, (_STEPPED, drawn)) for drawn in _QUIET),
        changed(SINGLE, *_WORST, ("if worst > 2:", "if round_ > 2:")),
        trained(
            _EPOCH,
            f"{LOOP}plan.step()\n{_MAIN}\n    print(plan.get_last_lr())\n    model.eval()\n"
            "    print(model.module(torch.ones(1, 16)))\n    model.train()",
        ),
        trained(
            loop=f"model.train()\n{LOOP}{_MAIN}\n    model.eval()\n"
            "    print(model.module(rows[0][0]))"
        ),
        trained(  # a model of its own
            f"{SETUP}own = nn.Linear(16, 4)\nalone = torch.optim.SGD(own.parameters(), lr=0.1)\n",
            f"{LOOP}{_MAIN}\n    alone.zero_grad()\n    own(x).sum().backward()\n    alone.step()",
        ),
        trained(  # the other ranks do so, too
            _EPOCH, f"{LOOP}{_MAIN}\n    print(epoch)\n    plan.step()\nelse:\n    plan.step()"
        ),
    ),
)
