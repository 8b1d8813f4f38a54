"""DDP972: a scheduler that Accelerate steps as often as there are processes runs ahead."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.passes import is_loader, iterated
from ddpify.ranks.run import Run
from ddpify.ranks.values import key_of
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples import changed
from ddpify.rules.examples.accelerated import ACCELERATED
from ddpify.rules.frameworks.factors import enclosed
from ddpify.rules.shared.accelerators import ACCELERATE, option
from ddpify.rules.shared.written import holds, text, written_with

_PREPARES: Final = (f"{ACCELERATE}.prepare", f"{ACCELERATE}.prepare_scheduler")
_SCHEDULES: Final = (
    "torch.optim.lr_scheduler.",
    "transformers.get_",
    "transformers.optimization.get_",
    "diffusers.optimization.get_",
)
# Options with which a scheduler is stepped once, or the loaders deal in another way.
_ONCE: Final = (
    "step_scheduler_with_optimizer",
    "split_batches",
    "dataloader_config",
    "dispatch_batches",
    "**",
)
_SIZES: Final = ("num_processes", "world_size")


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per prepared schedule whose steps are no longer those it was made for."""
    for call in run.named(*_PREPARES):
        plans = [t for value in call.args for t in value.things if t.name.startswith(_SCHEDULES)]
        if plans and option(call, *_ONCE) is None:
            for plan in plans:
                yield from _ahead(run, call, plan)


def _ahead(run: Run, call: RankCall, plan: RankThing) -> Iterable[Finding]:
    because = ((call.site, "prepared here: it is stepped num_processes times at each step()"),)
    steps = [c for c in run.methods("step") if c.receiver and _is_of(c.receiver, plan, call)]
    if steps and all(_once_an_epoch(run, step) for step in steps):
        yield Finding(
            "DDP972",
            steps[0].site,
            "the schedule counts epochs, and goes as many of them at once as there are processes",
            Severity.WARNING,
            advice="do not prepare this scheduler",
            because=because,
        )
    elif steps and plan.call is not None and (made := _of_a_share(run, plan.call)) is not None:
        yield Finding(
            "DDP972",
            made.site,
            "the schedule counts the batches of one rank, and goes num_processes of them at once:"
            " it has ended early",
            Severity.WARNING,
            advice="take len() of the loader before prepare(), or multiply by num_processes",
            because=because,
        )


def _is_of(value: RankValue, plan: RankThing, call: RankCall) -> bool:
    """Whether it is the schedule, or what prepare_scheduler() made of it."""
    alone = call.method == "prepare_scheduler"
    return plan in value.things or (alone and any(thing.call is call for thing in value.things))


def _once_an_epoch(run: Run, step: RankCall) -> bool:
    """Whether a step is made after a pass over batches that trains, in the loop around that."""
    if any(iterated(loop) for loop in step.loops):
        return False
    return any(
        loop in one.backward.loops[: one.depth] and _goes_over(one.loop.over, one.loader)
        for loop in step.loops[-1:]
        for one in run.passes
    )


def _goes_over(value: RankValue | None, loader: RankThing, depth: int = 3) -> bool:
    """Whether a loop is over the loader itself, be it in ``tqdm(enumerate(…))``: not its parts."""
    if value is None or not depth:
        return False
    made = [t.call for t in value.things if t.call is not None and t is not loader]
    return loader in value.things or any(
        _goes_over(arg, loader, depth - 1)
        for call in made
        if call.receiver is None and call.method not in ("iter", "next")
        for arg in call.args[:1]
    )


def _of_a_share(run: Run, plan: RankCall) -> RankCall | None:
    """Where a schedule gets the length of a loader that was prepared before: the call that makes
    it, or that of the function which does."""
    every = [(c, t) for c in run.named("builtins.len") if c.args for t in c.args[0].things]
    of_loaders = [(call, loader) for call, loader in every if is_loader(loader)]
    lengths = [call for call, loader in of_loaders if _prepared_before(run, loader, call)]
    made = {thing for call in lengths if call.result is not None for thing in call.result.things}
    whole = [call for call, _ in of_loaders if call not in lengths]  # these look alike
    keys = {key_of(call.result) for call in lengths if call.result is not None}
    keys -= {key_of(call.result) for call in whole if call.result is not None}
    for call, values in ((plan, plan.given), (plan.way[-2:][0], enclosed(plan))):
        given = [
            value
            for value in values
            if not made.isdisjoint(value.sources()) or any(key in key_of(value) for key in keys)
        ]
        if any(not _knows_the_size(value) for value in given):
            return call
    written = written_with(plan)  # a function that gives the factor reads names around it
    places = {call.node for call in lengths}
    held = any(holds(node, place) for node in written for place in places)
    knows = any(size in text(node) for node in written for size in _SIZES)
    return plan if held and not knows else None


def _prepared_before(run: Run, loader: RankThing, call: RankCall) -> bool:
    return any(
        loader in value.things
        for one in run.named(f"{ACCELERATE}.prepare", f"{ACCELERATE}.prepare_data_loader")
        if one.order < call.order
        for value in one.args
    )


def _knows_the_size(value: RankValue) -> bool:
    names = {thing.name.rpartition(".")[2] for thing in value.sources()}
    return not names.isdisjoint(_SIZES)


_PREPARED = (
    "model, optimizer, loader, test = accelerator.prepare(model, optimizer, loader, test)",
    "model, optimizer, loader, test = accelerator.prepare(model, optimizer, loader, test)\n"
    "    plan = accelerator.prepare(plan)",
)
_BY_BATCH = (
    (
        "                optimizer.step()\n",
        "                optimizer.step()\n                plan.step()\n",
    ),
    ("        plan.step()\n        model.eval", "        model.eval"),
)

RULE = Rule(
    "DDP972",
    "schedule-runs-ahead",
    "step() of a prepared scheduler is num_processes steps, because one process would have gone"
    " through as many batches. Of a schedule that counts epochs, or the batches that prepare() has"
    " left to a rank, it makes another one: measured on two ranks, StepLR(10) came down after 5"
    " epochs, a linear decay over len(loader) * 3 was at 0 after the second of 3.",
    "accelerate#2318, #628, PR#301; transformers PR#24088",
    lint=lint,
    words=("LR(", "_schedule", "prepare(", "len("),
    severity=Severity.WARNING,
    bad=(
        changed(
            ACCELERATED, _PREPARED, ("        plan.step()\n", "        plan.step()  # DDP972\n")
        ),
        changed(
            ACCELERATED,
            _PREPARED,
            ("    plan = StepLR(optimizer, step_size=5)\n", ""),
            (
                "    plan = acc",
                "    plan = StepLR(optimizer, len(loader) * 2)  # DDP972\n    plan = acc",
            ),
            *_BY_BATCH,
        ),
    ),
    good=(
        ACCELERATED,
        changed(
            ACCELERATED,
            _PREPARED,
            ("step_size=5", "step_size=len(loader) * 2"),
            *_BY_BATCH,
        ),
        changed(
            ACCELERATED,
            _PREPARED,
            ("(gradient_accumulation_steps=2)", "(step_scheduler_with_optimizer=False)"),
        ),
    ),
    fixes=False,
)
