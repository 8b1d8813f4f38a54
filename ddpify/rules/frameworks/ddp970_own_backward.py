"""DDP970: a backward that goes past what Accelerate, Fabric or DeepSpeed does around it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from ddpify.ranks.model import RankCall, RankThing
from ddpify.ranks.run import Run
from ddpify.ranks.values import Maybe, text
from ddpify.ranks.words import WRAPPERS
from ddpify.rules.base import Example, Finding, Rule, Severity
from ddpify.rules.examples import changed
from ddpify.rules.examples.accelerated import ACCELERATED, FABRICATED
from ddpify.rules.shared.accelerators import (
    FABRIC,
    HOLDS,
    micro_batches,
    of_framework,
    option,
    prepares,
    things_of,
    within,
)
from ddpify.rules.shared.exclusion import excludes
from ddpify.rules.shared.wrapped import live

_SCALED: Final = ("16-mixed", "16", 16)

_BACK: Final = (
    "the backward goes past the engine: DeepSpeed before its PR #7665 then neither averages the"
    " gradients over the ranks nor scales them",
    Severity.WARNING,
    (),
    "engine.backward(loss), then engine.step()",
)
_SCALE: Final = (
    "the backward goes past the engine: the DistributedDataParallel in it averages the gradients,"
    " but nobody scales the loss where fp16 is switched on",
    Severity.NOTE,
    *_BACK[2:],
)
_STEP: Final = (
    "the engine does not step: it neither counts the micro-batches nor clears what it has reduced",
    Severity.WARNING,
    (),
    "engine.step(), which steps the optimizer and its schedule",
)


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per ``loss.backward()`` of a prepared model that needs the framework's."""
    yield from _past_engines(run)
    calls = prepares(run)
    if not calls:
        return
    made = {thing: call for call in calls for value in call.given for thing in things_of(value)}
    for backward in run.backwards:
        if of_framework(backward) or backward.receiver is None or backward.method != "backward":
            continue
        call = next(
            (one for t in _forwards(backward) if (one := made.get(t, t.call)) in calls), None
        )
        own = (one for one in run.backwards if of_framework(one))
        if call is None or any(excludes(run, one, backward) for one in (call, *own)):
            continue  # a start without the framework
        found = _harm(run, backward, call)
        if found is not None:
            yield Finding("DDP970", backward.site, *found, because=((call.site, "prepared here"),))


def _past_engines(run: Run) -> Iterator[Finding]:
    """Backwards and steps that DeepSpeed's engine knows nothing of."""
    for engine in (call for call in run.named("deepspeed.initialize") if call.result is not None):
        made = engine.result.items[0].things[0] if engine.result and engine.result.items else None
        own = [c for c in run.calls if c.receiver is not None and made in c.receiver.things]
        called = {call.method for call in own}
        because = ((engine.site, "made here"),)
        arms = (engine, *(call for call in own if call.method == "backward"))
        for backward in run.backwards:
            if backward.method != "backward" or made not in set(_forwards(backward)):
                continue
            without = any(excludes(run, one, backward) for one in arms)
            if not (without or _needs_what_is_not_there(run, backward)):  # a start without it
                harm = _SCALE if _averages(engine) else _BACK
                yield Finding("DDP970", backward.site, *harm, because=because)
        for step in run.methods("step") if "step" not in called and "backward" in called else ():
            if text(step.receiver.atoms[0] if step.receiver else "") == f"optimizer@{engine.site}":
                yield Finding("DDP970", step.site, *_STEP, because=because)


def _averages(engine: RankCall) -> bool:
    """Whether what the engine is given is a wrapper already, torch's or Apex', or may be what a
    library has in its place: its hooks run in any backward."""
    model = engine.arg(1, "model")
    if model is None or any(thing.cls is not None for thing in model.things):
        return False
    made = {thing.call.node for thing in model.things if thing.call and thing.name in WRAPPERS}
    return bool(made) and all(thing.call and thing.call.node in made for thing in model.things)


def _needs_what_is_not_there(run: Run, backward: RankCall) -> bool:
    """Whether the same round uses what one way of making it all leaves ``None``, that with the
    engine: ``scaler = schedule = None``; ``schedule.step()`` is of the other way."""
    near = (c for c in run.calls if c.loops == backward.loops and c.function is backward.function)
    asked = (c.receiver for c in near if c.receiver is not None and c.guards == backward.guards)
    return any(isinstance(one.atoms[0], Maybe) for one in asked)


def _forwards(backward: RankCall) -> Iterable[RankThing]:
    """The models whose forwards a loss was computed with."""
    sources = live(backward.receiver) if backward.receiver is not None else ()
    calls = (thing.call for thing in sources if thing.call is not None)
    grown = (call for call in calls if call.grad and call.method == "__call__")
    models = (call.receiver for call in grown if call.receiver is not None)
    return (thing for model in models for thing in model.things)


def _harm(
    run: Run, backward: RankCall, call: RankCall
) -> tuple[str, Severity, tuple[()], str] | None:
    """What goes wrong, how bad that is, and what to write instead."""
    if call.name.startswith(FABRIC):
        precision = option(call, "precision")
        if precision is None or precision.constant not in _SCALED:
            return None
        text = "the loss is not scaled: Fabric raises RuntimeError"
        return text, Severity.ERROR, (), "fabric.backward(loss)"
    instead = "accelerator.backward(loss)"
    precision = option(call, "mixed_precision")
    if precision is not None and precision.constant == "fp16":
        text = "the loss is not scaled: step() of the prepared optimizer ends in an AssertionError"
        return text, Severity.ERROR, (), instead
    held = [hold for hold in run.named(HOLDS[0]) if within(backward, hold)]
    steps = micro_batches(held[0]) if held else 1
    if steps == 1:
        return None
    times = f"{steps} times" if steps else "gradient_accumulation_steps times"
    text = f"the loss is not divided: the gradient is {times} that of the whole batch"
    return text, Severity.WARNING, (), instead


_DEEPSPEED = """import deepspeed
import torch
from torch import nn


def main():
    net = nn.Linear(4, 1)
    engine, optimizer, _, _ = deepspeed.initialize(
        model=net, model_parameters=net.parameters(), config="ds.json"
    )
    for _ in range(10):
        loss = engine(torch.randn(8, 4, device=engine.device)).pow(2).mean()
        engine.backward(loss)
        engine.step()


if __name__ == "__main__":
    main()
"""
_ENGINE = Example((("main.py", _DEEPSPEED),))
_BACKWARD = ("accelerator.backward(loss)\n", "loss.backward()  # DDP970\n")
_ONE = ("(gradient_accumulation_steps=2)", "()")

RULE = Rule(
    "DDP970",
    "backward-past-framework",
    "accelerator.backward() divides the loss by gradient_accumulation_steps and scales it for"
    " fp16, fabric.backward() for 16-mixed. Without it the gradient of 4 micro-batches was 4 times"
    " as large (measured, Accelerate 1.15: 1.184, .296), and a GradScaler that has scaled nothing"
    " refuses to step. With one micro-batch in float32 or bf16 both are the same. DeepSpeed's"
    " engine averages in engine.backward(), and steps and counts in engine.step(); a backward of"
    " the starts without an engine is none of its business.",
    "accelerate docs (gradient accumulation; quick tour), Fabric docs (fabric.backward);"
    " DeepSpeed#7665; BUGS G10",
    lint=lint,
    words=("backward(", "prepare("),
    severity=Severity.WARNING,
    bad=(
        changed(_ENGINE, ("engine.backward(loss)\n", "loss.backward()  # DDP970\n")),
        changed(_ENGINE, ("engine.step()\n", "optimizer.step()  # DDP970\n")),
        changed(ACCELERATED, _BACKWARD),
        changed(ACCELERATED, _BACKWARD, (_ONE[0], '(mixed_precision="fp16")')),
        changed(
            FABRICATED,
            ("devices=2,", 'devices=2, precision="16-mixed",'),
            ("fabric.backward(loss)\n", "loss.backward()  # DDP970\n"),
        ),
    ),
    good=(
        _ENGINE,
        ACCELERATED,
        FABRICATED,
        changed(ACCELERATED, _ONE, (_BACKWARD[0], "loss.backward()\n")),
        changed(FABRICATED, ("fabric.backward(loss)\n", "loss.backward()\n")),
    ),
    fixes=False,
)
