"""DDP971: a part of the training that Accelerate or Fabric was not given, or not taken from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from ddpify.ranks import words
from ddpify.ranks.model import RankCall, RankThing
from ddpify.ranks.passes import is_loader
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples import changed
from ddpify.rules.examples.accelerated import ACCELERATED, FABRICATED
from ddpify.rules.frameworks.as_before import as_before
from ddpify.rules.shared.accelerators import (
    HOLDS,
    everything_known,
    micro_batches,
    of_framework,
    prepared,
    prepares,
    things_of,
    within,
)
from ddpify.rules.shared.feeds import literals, trained
from ddpify.rules.shared.wrapped import parameters_of

_OPTIMIZERS: Final = "torch.optim."
_APART: Final = "this optimizer is not prepared: it steps after every micro-batch"
_GIVES: Final = "it gives back new objects, and these are used as they were"


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per model, optimizer or result of ``prepare()`` that is left out."""
    calls = prepares(run)
    if not calls or not everything_known(calls):
        return
    for call in calls:
        if call.alone and _is_used(run, call):
            yield _finding(call, f"what {call.method}() gives back is thrown away: {_GIVES}")
    if any(call.alone for call in calls):
        return
    for forward, call in as_before(run, calls):
        text = "this is the model as it was before setup(), whose gradients nobody averages"
        because = ((call.site, "what setup() gave back is what averages them"),)
        advice = "call the model that setup() gave back"
        yield replace(_finding(forward, text), advice=advice, because=because)
    known = prepared(run)
    for optimizer, call in _optimizers(calls):
        models = _models(optimizer)
        if models and models.isdisjoint(known) and all(map(_is_left_out, models)):
            text = "the model of this optimizer is not prepared: gradients are never averaged"
            yield _finding(call, text)
    for step, hold in _stepping_apart(run, known):
        text = f"{_APART}, with gradients of one rank"
        advice = "prepare the optimizer: its step() then waits for the last micro-batch"
        because = ((hold.site, "gradients are not averaged in here before the last one"),)
        yield replace(_finding(step, text), advice=advice, because=because)


def _finding(call: RankCall, text: str) -> Finding:
    advice = f"model, optimizer, loader = ….{call.method}(model, optimizer, loader)"
    return Finding("DDP971", call.site, text, Severity.ERROR, advice=advice)


def _is_used(run: Run, call: RankCall) -> bool:
    """Whether a model or a loader that a call was given is trained on as it was."""
    given = {thing for value in call.given for thing in things_of(value)}
    after = (c for c in run.methods("__call__", "forward") if c.order > call.order and c.grad)
    called = (one.receiver for one in after if one.receiver is not None)
    models = {thing for receiver in called for thing in receiver.things}
    return not given.isdisjoint(models | {t for t in trained(run) if is_loader(t)})


def _optimizers(calls: list[RankCall]) -> Iterator[tuple[RankThing, RankCall]]:
    for call in calls:
        for thing in (t for value in call.given for t in value.things):
            if thing.name.startswith(_OPTIMIZERS) and not thing.name.startswith(f"{_OPTIMIZERS}lr"):
                yield thing, call


def _models(optimizer: RankThing) -> set[RankThing]:
    """The models whose parameters an optimizer was made with."""
    given = optimizer.call.arg(0, "params") if optimizer.call is not None else None
    return parameters_of(given) if given is not None else set()


def _is_left_out(thing: RankThing) -> bool:
    """Whether a model is seen to be made, and nothing is around it."""
    made = thing.kind in ("instance", "result") and thing.call is not None
    own = thing.cls is not None or thing.name.startswith("torch.nn.")
    return made and own and thing.wrapper is None and thing.name not in words.WRAPPERS


def _stepping_apart(run: Run, known: set[RankThing]) -> Iterator[tuple[RankCall, RankCall]]:
    """Steps of optimizers that nobody prepared, under ``accumulate()`` of several micro-batches."""
    holds = [one for one in run.named(HOLDS[0]) if micro_batches(one) != 1]
    for step in run.methods("step") if holds else ():
        made = step.receiver.things if step.receiver is not None else ()
        plain = bool(made) and all(t.name.startswith(_OPTIMIZERS) for t in made)
        if not plain or not known.isdisjoint(made) or of_framework(step) or _asks(run, step):
            continue
        if any(".lr_scheduler." in thing.name for thing in made):
            continue
        yield from ((step, hold) for hold in holds if within(step, hold))


def _asks(run: Run, step: RankCall) -> bool:
    """``if accelerator.sync_gradients:``, or a ``continue`` before it where they are not."""
    rounds = step.loops[-1:]
    left = [e for e in run.exits if e.order < step.order and rounds and e.loops[-1:] == rounds]
    passed = {(key, not holds) for one in left for key, holds in literals(one.guards[-1:])}
    asked = literals(step.conditions) | passed
    return any(holds and ".sync_gradients" in key for key, holds in asked)


_GIVEN = "model, optimizer, loader, test = accelerator.prepare(model, optimizer, loader, test)"

RULE = Rule(
    "DDP971",
    "not-prepared",
    "prepare() and Fabric's setup() give back new objects: the model inside its wrapper, an"
    " optimizer whose step() waits for the last micro-batch, a loader that deals. What was left as"
    " it was trains as in one process. Measured on two ranks: without the model weights of .214 and"
    " .107; without the optimizer under accumulate() .1723 and .1699.",
    "accelerate docs (quick tour; gradient accumulation), accelerate#2882; BUGS G01",
    lint=lint,
    words=("prepare(", "setup(", "accumulate("),
    severity=Severity.ERROR,
    bad=(
        changed(ACCELERATED, (_GIVEN, f"{_GIVEN.partition(' = ')[2]}  # DDP971")),
        changed(
            ACCELERATED,
            (
                _GIVEN,
                "optimizer, loader, test = accelerator.prepare(optimizer, loader, test)  # DDP971",
            ),
        ),
        changed(
            ACCELERATED,
            (_GIVEN, "model, loader, test = accelerator.prepare(model, loader, test)"),
            ("optimizer.step()", "optimizer.step()  # DDP971"),
        ),
        changed(
            FABRICATED,
            (
                "model, optimizer = fabric.setup(model, optimizer)",
                "fabric.setup(model, optimizer)  # DDP971",
            ),
        ),
        changed(
            FABRICATED,
            ("model, optimizer = fabric", "wrapped, optimizer = fabric"),
            ("F.cross_entropy(model(x), y)", "F.cross_entropy(model(x), y)  # DDP971"),
        ),
    ),
    good=(
        ACCELERATED,
        FABRICATED,
        changed(
            ACCELERATED,
            (_GIVEN, "model, loader, test = accelerator.prepare(model, loader, test)"),
            ("(gradient_accumulation_steps=2)", "()"),
        ),
        changed(
            ACCELERATED,
            (
                _GIVEN,
                "things = (model, optimizer, loader, test)\n    "
                "model, optimizer, loader, test = (accelerator.prepare(one) for one in things)",
            ),
        ),
    ),
    fixes=False,
)
