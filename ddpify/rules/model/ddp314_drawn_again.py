"""DDP314: parameters of a wrapped model are drawn again, or changed by what is drawn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from ddpify.ranks import words
from ddpify.ranks.events import Store
from ddpify.ranks.model import RankCall, RankValue
from ddpify.ranks.modules import FunctionDefinition
from ddpify.ranks.origins import DATA, RANDOM
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.gradients import trained
from ddpify.rules.model.drawn import DRAWS
from ddpify.rules.shared.averaged_by_hand import is_gradient
from ddpify.rules.shared.seeds import Stream, stream
from ddpify.rules.shared.wrapped import (
    Wrap,
    comes_after,
    followed,
    modules_of,
    parameters_of,
    rewrapped,
    wraps,
)

_INIT: Final = "torch.nn.init."
# What changes a parameter in place, by what it is given.
_CHANGES: Final = frozenset(
    "add_ sub_ mul_ div_ multiply_ divide_ lerp_ copy_ masked_fill_ addcmul_ where_ index_copy_"
    " index_add_ scatter_ masked_scatter_".split()
)
_PARAMETERS: Final = ("torch.nn.Parameter", "torch.nn.parameter.Parameter")
_WEIGHTS: Final = (".weight", ".bias", ".weight.data", ".bias.data")


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per drawing of parameters that the wrapper has made equal already."""
    drawn = [(call, value) for call in run.calls for value in _filled(call)]
    mixed = [(call, call.receiver) for call in run.calls if _is_mixed(call)]
    for wrap in wraps(run) if drawn or mixed else ():
        for call in (call for call, value in drawn if _is_of(run, wrap, call, value)):
            severity = _severity(run, call)
            if severity is not None:
                yield _finding(wrap, call, severity)
        for call in (call for call, value in mixed if _is_of(run, wrap, call, value)):
            yield _finding(wrap, call, Severity.ERROR, _how(call.given))
    for wrap in wraps(run):
        for put in filter(_is_put, run.stores):
            if _is_of(run, wrap, put, put.base):
                yield _finding(wrap, put, Severity.ERROR, _how((put.value,)))


def _how(given: Iterable[RankValue]) -> str:
    drawn = all(value.has(RANDOM) or not value.has(DATA) for value in given)
    return "changed by random numbers" if drawn else "changed by what this rank alone has computed"


def _is_put(store: Store) -> bool:
    """``self.codes[dead] = batch[picked]``, ``p.data = …``: of a parameter, no buffer."""
    if store.element and store.key:
        return False  # of a dict: `group["lr"] = …`
    if any(thing.name.startswith("torch.optim.") for thing in store.base.sources()):
        return False  # what an optimizer keeps for a parameter
    whole = store.key == "data" and bool(parameters_of(store.base))
    entry = store.element and _is_parameter(store.base)
    return (whole or entry) and not is_gradient(store.base) and _varies(store.value)


def _is_parameter(value: RankValue) -> bool:
    """Whether it is a parameter, not what was made of one."""
    made = (thing.name for thing in value.things)
    return any(name in _PARAMETERS or name.endswith(_WEIGHTS) for name in made)


def _is_of(run: Run, wrap: Wrap, call: RankCall | Store, value: RankValue | None) -> bool:
    """Whether a value is parameters of a wrapped model, which trains on after the call."""
    owners = modules_of(value) if value is not None else None
    if not owners or not all(map(wrap.covers, owners)):
        return False
    if not comes_after(call, wrap) or rewrapped(run, wrap, call.order):
        return False
    return followed(wrap, call.order, call.loops, run) and not _is_undone(run, wrap, call)


def _is_undone(run: Run, wrap: Wrap, call: RankCall | Store) -> bool:
    """Whether the parameters are sent to the others afterwards, or set back to what they were."""
    for other in (one for one in run.calls if one.order > call.order):
        back = other.method in ("copy_", "load_state_dict") and not any(map(_varies, other.given))
        sent = other.method in words.AGREEING_OPS and not any(map(is_gradient, other.given))
        models = (thing for value in other.inputs for thing in modules_of(value))
        if (back or sent) and any(map(wrap.covers, models)):
            return True
    return False


def _varies(value: RankValue) -> bool:
    """Whether it is drawn, or of this rank's batch: not a gradient, which may be averaged."""
    gradients = any(thing.name.endswith(".grad") for thing in value.sources())
    return value.has(RANDOM) or (value.has(DATA) and not gradients)


def _is_mixed(call: RankCall) -> bool:
    """``p.mul_(torch.rand_like(p) > 0.5)``, where the ranks draw different numbers.

    Not of gradients, which are averaged, or have been.
    """
    if call.receiver is None or call.method not in _CHANGES:
        return False
    drawn = any(value.has(RANDOM) for value in call.given) or _is_parameter(call.receiver)
    return drawn and not is_gradient(call.receiver) and any(map(_varies, call.given))


def _filled(call: RankCall) -> Iterator[RankValue]:
    """What a call fills with random numbers: a parameter, or all of a model's."""
    if call.name.startswith(_INIT) and call.method in DRAWS:
        yield from call.args[:1]
    elif call.receiver is not None and call.method in DRAWS:
        yield call.receiver
    elif call.receiver is not None and call.method == "apply" and call.args:
        functions = [thing.info for thing in call.args[0].things if thing.kind == "function"]
        if functions and all(map(_draws, functions)):
            yield call.receiver


def _draws(info: FunctionDefinition, depth: int = 3) -> bool:
    """Whether a function, or one of its file that it calls, fills what it is given."""
    if not DRAWS.isdisjoint(info.called()):
        return True
    below = [info.module.functions.get(name) for name in info.called()]
    return depth > 0 and any(
        _draws(one, depth - 1) for one in below if one is not None and one is not info
    )


def _severity(run: Run, call: RankCall) -> Severity | None:
    """An error where the ranks draw differently; None where they are seeded to draw alike.

    What migrate writes gives them streams of their own with ``fork_random_streams()``.
    """
    drawn, _ = stream(run, call, words.TORCH)
    migrated = run.session is not None and run.session.module.ours
    if drawn is Stream.APART or (drawn is Stream.UNSEEDED and not migrated):
        return Severity.ERROR
    return Severity.WARNING if migrated else None


def _finding(
    wrap: Wrap, call: RankCall | Store, severity: Severity, how: str = "drawn again"
) -> Finding:
    sure = severity is Severity.ERROR
    what = "each rank has others" if sure else "right only while all ranks draw alike"
    here = (wrap.call.asked.site, "wrapped here: every rank got rank 0's parameters")
    return Finding(
        "DDP314",
        call.site,
        f"parameters are {how} after the wrap, which had made them equal on all ranks: {what}",
        severity,
        advice="draw before DistributedDataParallel(), or from a generator that is seeded alike",
        because=(here,) if sure else (),
    )


_MASKED: Final = """
generator = torch.Generator().manual_seed({} + epoch)
for x, y in loader:
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
with torch.no_grad():
    for p in model.module.parameters():
        p.mul_(torch.rand(p.shape, generator=generator) > 0.1){}
"""

RULE = Rule(
    "DDP314",
    "drawn-after-wrap",
    "DistributedDataParallel sends rank 0's parameters to all ranks once, when it is made. What is"
    " drawn anew afterwards, through whatever name of the model, is each rank's own: gradients are"
    " averaged, parameters never, so that the ranks train different models from there on. So it is"
    " with masks and noise: two ranks pruned with generators of their own had 15 and 20 zeros; and"
    " with what is copied from a batch: dead codes that each rank replaces by vectors of its own.",
    "DistributedDataParallel docstring (the state of rank 0 is broadcast in the constructor)",
    lint=lint,
    words=("normal_(", "uniform_(", "orthogonal_(", "reset_parameters"),
    bad=(
        trained("""
            net = nn.Linear(16, 4)
            torch.manual_seed(dist.get_rank())
            model = DDP(net)
            net.reset_parameters()  # DDP314
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            """),
        trained(
            """
            model = DDP(nn.Linear(16, 4))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            """,
            _MASKED.format("dist.get_rank()", "  # DDP314"),
        ),
    ),
    good=(
        trained(
            """
            model = DDP(nn.Linear(16, 4))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            """,
            _MASKED.format("17", ""),
        ),
        trained("""
            net = nn.Linear(16, 4)
            torch.manual_seed(dist.get_rank())
            net.reset_parameters()
            model = DDP(net)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            """),
    ),
    fixes=False,
)
