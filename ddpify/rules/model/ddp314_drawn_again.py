"""DDP314: parameters of a wrapped model are drawn again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from ddpify.ranks import words
from ddpify.ranks.model import RankCall, RankValue
from ddpify.ranks.modules import FunctionDefinition
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.gradients import trained
from ddpify.rules.shared.seeds import Stream, stream
from ddpify.rules.shared.wrapped import Wrap, comes_after, followed, modules_of, rewrapped, wraps

_INIT: Final = "torch.nn.init."
# What fills a parameter with random numbers; constants are the same on all ranks.
_DRAWS: Final = frozenset(
    """normal_ uniform_ trunc_normal_ xavier_uniform_ xavier_normal_ xavier_uniform xavier_normal
    kaiming_uniform_ kaiming_normal_ kaiming_uniform kaiming_normal orthogonal_ orthogonal sparse_
    random_ log_normal_ exponential_ cauchy_ reset_parameters""".split()
)


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per drawing of parameters that the wrapper has made equal already."""
    drawn = [(call, value) for call in run.calls for value in _filled(call)]
    for wrap in wraps(run) if drawn else ():
        for call, value in drawn:
            owners = modules_of(value)
            if not owners or not all(map(wrap.covers, owners)):
                continue
            if not comes_after(call, wrap) or rewrapped(run, wrap, call.order):
                continue
            severity = _severity(run, call)
            if severity is not None and followed(wrap, call.order, call.loops, run):
                yield _finding(wrap, call, severity)


def _filled(call: RankCall) -> Iterator[RankValue]:
    """What a call fills with random numbers: a parameter, or all of a model's."""
    if call.name.startswith(_INIT) and call.method in _DRAWS:
        yield from call.args[:1]
    elif call.receiver is not None and call.method in _DRAWS:
        yield call.receiver
    elif call.receiver is not None and call.method == "apply" and call.args:
        functions = [thing.info for thing in call.args[0].things if thing.kind == "function"]
        if functions and all(map(_draws, functions)):
            yield call.receiver


def _draws(info: FunctionDefinition, depth: int = 3) -> bool:
    """Whether a function, or one of its file that it calls, fills what it is given."""
    if not _DRAWS.isdisjoint(info.called()):
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


def _finding(wrap: Wrap, call: RankCall, severity: Severity) -> Finding:
    sure = severity is Severity.ERROR
    what = "each rank draws others" if sure else "right only while all ranks draw alike"
    here = (wrap.call.asked.site, "wrapped here: every rank got rank 0's parameters")
    return Finding(
        "DDP314",
        call.site,
        "parameters are drawn again after the wrap, which had made them equal on all ranks:"
        f" {what}",
        severity,
        advice="initialise the model before DistributedDataParallel()",
        because=(here,) if sure else (),
    )


RULE = Rule(
    "DDP314",
    "drawn-after-wrap",
    "DistributedDataParallel sends rank 0's parameters to all ranks once, when it is made. What is"
    " drawn anew afterwards, through whatever name of the model, is each rank's own: gradients are"
    " averaged, parameters never, so that the ranks train different models from there on.",
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
    ),
    good=(
        trained("""
            net = nn.Linear(16, 4)
            torch.manual_seed(dist.get_rank())
            net.reset_parameters()
            model = DDP(net)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            """),
    ),
)
