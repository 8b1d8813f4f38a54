"""DDP423: each rank clips its own gradients, and the clipped ones are averaged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf
from typing import Final

from ddpify.ranks.collective import collective
from ddpify.ranks.model import RankCall, RankThing
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.gradients import trained
from ddpify.rules.shared.averaged_by_hand import Averaging, averagings, is_gradient
from ddpify.rules.shared.clips import CLIPS, measures
from ddpify.rules.shared.optimizers import trained_by
from ddpify.rules.shared.scalers import is_on
from ddpify.rules.shared.wrapped import exclusive, modules_of, wraps
from ddpify.site import Site

# What is said of what comes before the averaging, and what to do about it.
_CLIPPED: Final = (
    "each rank clips its own gradients, which are averaged only afterwards: the norm is not"
    " that of the gradient that is stepped with",
    "average the gradients first, then clip",
)
_STEPPED: Final = (
    "each rank steps with its own gradients, which are averaged only afterwards: the ranks"
    " drift apart",
    "average the gradients between backward() and step()",
)
_UNSCALED: Final = (
    "unscale_() looks for infs and NaNs in each rank's own gradients, which are averaged only"
    " afterwards: one rank skips the step, the others step with what it has sent them",
    "average the gradients first, then call unscale_(): what one rank has found all see",
)
_SKIPPED: Final = (
    "each rank decides by its own gradients whether it steps, and they are averaged only"
    " afterwards: some ranks step and others do not",
    "average the gradients first, or reduce what decides",
)


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per clip between a backward and the averaging of what it computed."""
    averaged = averagings(run)
    for clip in run.calls if averaged else ():
        if clip.method in CLIPS and clip.args and not measures(clip):
            after = _averaged_after(run, clip, modules_of(clip.args[0]), averaged)
            if after is not None:
                yield _early(clip.site, _CLIPPED, after, severity=Severity.WARNING)
    if averaged:
        yield from _decided(run, averaged)
        yield from _asked_for_infs(run, averaged)
    for step in run.methods("step") if averaged else ():
        models = trained_by(step.receiver) if step.receiver is not None else set()
        if any(wrap.covers(model) for wrap in wraps(run) for model in models):
            continue  # what is added up behind the step is shown
        after = _averaged_after(run, step, models, averaged)
        if after is not None and after.loops[: len(step.loops)] == step.loops:
            yield _early(step.site, _STEPPED, after)


def _early(
    site: Site,
    said: tuple[str, str],
    after: RankCall,
    *because: tuple[Site, str],
    severity: Severity = Severity.ERROR,
) -> Finding:
    """What a rank has done with its own gradients, which are averaged ``after`` that."""
    hops = (*because, (after.site, "averaged here"))
    return Finding("DDP423", site, said[0], severity, advice=said[1], because=hops)


def _asked_for_infs(run: Run, averaged: list[Averaging]) -> Iterator[Finding]:
    for call in run.methods("unscale_"):
        on = is_on(call.receiver)
        if on is False:
            continue
        models = trained_by(call.args[0]) if call.args else set()
        after = _averaged_after(run, call, models, averaged)
        if after is not None:
            severity = Severity.ERROR if on else Severity.WARNING
            yield _early(call.site, _UNSCALED, after, severity=severity)


def _decided(run: Run, averaged: list[Averaging]) -> Iterator[Finding]:
    """Steps that a rank takes or not by what it measured of its own gradients."""
    for step in run.methods("step"):
        skips = (e for e in run.exits if e.kind == "continue" and e.loops == step.loops)
        ahead = (g for e in skips if e.order < step.order for g in e.guards)
        for guard in (*step.conditions, *ahead):
            made = {t.call for t in guard.test.sources() if t.call is not None}
            for call in sorted(made, key=lambda one: one.order):
                models = {model for value in call.inputs for model in modules_of(value)}
                measured = call.method in CLIPS or any(map(is_gradient, call.inputs))
                after = _averaged_after(run, call, models, averaged) if measured else None
                if after is not None and not _is_agreed(run, call, step, made):
                    yield _early(guard.site, _SKIPPED, after, (call.site, "measured here"))
                    break


def _is_agreed(run: Run, measured: RankCall, step: RankCall, made: set[RankCall]) -> bool:
    """Whether what was measured, or made of it, is sent to other ranks before it decides."""
    since = {one for one in made if one.order >= measured.order}
    calls = (c for c in run.calls if measured.order < c.order < step.order and collective(c))
    return any(t.call in since for call in calls for value in call.given for t in value.sources())


def _averaged_after(
    run: Run, use: RankCall, models: set[RankThing], averaged: list[Averaging]
) -> RankCall | None:
    """The averaging of the gradients of these models that were used, if there was none before."""
    mine = [one.call for one in averaged if not models.isdisjoint(one.models)]
    start = max((c.order for c in run.backwards if c.order < use.order), default=None)
    if start is None or any(start < call.order < use.order for call in mine):
        return None
    steps = (*run.backwards, *run.methods("step"))
    of_library = (c for c in steps if c.target is None)  # a function's is what it calls
    end = min((c.order for c in of_library if c.order > use.order), default=inf)
    later = (call for call in mine if use.order < call.order < end)
    return next((call for call in later if not exclusive(use, call)), None)


_LOOP: Final = """
for x, y in loader:
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    {}
    for p in model.parameters():
        dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)
    {}
    optimizer.step()
"""
_SETUP: Final = """
model = nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
_CLIP: Final = "nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
_AVERAGE: Final = """

def average(module):
    flat = torch.cat([p.grad.view(-1) for p in module.parameters()])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    start = 0
    for p in module.parameters():
        p.grad.copy_(flat[start : start + p.numel()].view_as(p))
        start += p.numel()


"""

RULE = Rule(
    "DDP423",
    "clip-before-averaging",
    "Clipping bounds the gradient that is stepped with: the average over the ranks. Clipped before"
    " that, each rank's part is bounded by its own norm (measured: 3.0 and 154.1, where that of"
    " the average was 78.2), and ranks with large gradients count for less than their samples."
    " An optimizer that steps before the averaging has stepped with each rank's own. What is"
    " measured before it and decides over the step lets some ranks step and others not: so does"
    " GradScaler by what unscale_() has found (measured: parameters differ after one overflow on"
    " one rank).",
    "DistributedDataParallel (gradients are averaged in backward, before anybody clips)",
    lint=lint,
    words=(".grad", "unscale_("),
    severity=Severity.WARNING,
    bad=(
        trained(_SETUP, _LOOP.format(f"{_CLIP}  # DDP423", "")),
        trained(
            _SETUP,
            """
            for x, y in loader:
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                nn.utils.clip_grad_value_(model.parameters(), 0.5)  # DDP423
                average(model)
                optimizer.step()
            """,
            _AVERAGE,
        ),
    ),
    good=(
        trained(_SETUP, _LOOP.format("", _CLIP)),
        trained(_SETUP, _LOOP.format(_CLIP.replace("1.0", 'float("inf")'), "")),
    ),
)
