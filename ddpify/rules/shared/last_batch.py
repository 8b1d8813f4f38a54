"""A short last batch in unequal parts, instead of parts that repeated samples fill up. ::

sampler = distributed_sampler(data, shuffle=True, batch_size=args.batch_size)
...
for i, (x, y) in enumerate(loader):
    loss = criterion(model(x), y)
    (loss * batch_weight(loader, i)).backward()

Gradients are averaged over ranks, so that a mean over a part counts as many samples as it has. That
holds where the loss is one, and nothing else in the loop asks how many samples a rank has.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace

from ddpify.facts.details import loader_arguments
from ddpify.facts.events import Call
from ddpify.facts.model import Facts, Loader, TrainingLoop
from ddpify.facts.roles import backwards
from ddpify.facts.sinks import COUNTED, Part
from ddpify.facts.values import Kind, Measure, Thing
from ddpify.rules.base import Edit, How
from ddpify.rules.edits import edit, once
from ddpify.rules.shared.apart import told_apart, whole_again
from ddpify.rules.shared.batch_numbers import counted
from ddpify.rules.shared.undivided import takes_no_sampler
from ddpify.rules.shared.weighed_means import is_of_batch, weighed_means
from ddpify.settings import Settings
from ddpify.source import Site

WEIGHT = "ddpify.runtime.batch_weight"
_SIZES = (ast.Name, ast.Attribute, ast.Constant, ast.Subscript, ast.Load)
_OF_PARTS = ("reduce_mean", "global_meter", COUNTED)
_TRAINS = (".backward", ".step", ".zero_grad")
_OTHERWISE = (
    Kind.AVERAGED,
    Kind.RATIO,
    Kind.WORLD,
    Kind.TALLY,
    Kind.COUPLED,
    Kind.UNREAD,
    Kind.LENGTH,
)


@dataclass(frozen=True)
class Weighed:
    """The global batch size as the program says it, and what weighs the means in its loops."""

    size: str
    edits: tuple[Edit, ...]


def weighed(facts: Facts, settings: Settings, loader: Loader) -> Weighed | None:
    """How a loader's last batch is dealt without repeating samples; None where that is unsure."""
    size = _size(facts, loader.call)
    loops = [one for one in facts.training if set(one.loaders) & set(loader.things)]
    if settings.batch_size != "global" or not size or not loops or not _is_plain(facts, loader):
        return None
    if not _parts_may_differ(facts) or any(_begins(call, loader) for call in facts.calls):
        return None
    edits: dict[Edit, None] = {}
    for loop in loops:
        own = _of_loop(facts, loader, loop)
        if own is None:
            return None
        edits.update(dict.fromkeys(own))
    return Weighed(size, tuple(edits))


def _is_plain(facts: Facts, loader: Loader) -> bool:
    """Whether one call makes loaders for training alone, whose order nothing else draws."""
    apart = told_apart(loader)
    if apart.condition or apart.alike or whole_again(facts, loader, ()):
        return False
    again = any(loader.call.site in made for made in facts.again.values())
    own = any(_has_sampler(t) or takes_no_sampler(facts, t) for t in loader.things)
    return not (again or own or loader.call.bound)


def _has_sampler(loader: Thing) -> bool:
    """Whether it has one already: what is dealt then is not for us to say."""
    given = loader_arguments(loader).sampler
    return given is not None and not (given.known and given.const is None)


def _begins(call: Call, loader: Loader) -> bool:
    """``batches = iter(loader)``: which batch is the last is for others to know."""
    given = call.args[0].things if call.name == "builtins.iter" and call.args else ()
    return not set(given).isdisjoint(loader.things)


def _size(facts: Facts, call: Call) -> str:
    """The text of the batch size; "" where it is not plain, or the last batch is dropped."""
    site, drops = call.arg_site(1, "batch_size"), call.arg(8, "drop_last")
    node = facts.tree(call.site).expression(site) if site is not None else None
    plain = node is not None and all(isinstance(part, _SIZES) for part in ast.walk(node))
    return ast.unparse(node) if node and plain and not (drops and drops.const is True) else ""


def _parts_may_differ(facts: Facts) -> bool:
    """Whether nothing in the program takes the parts of a batch for equal ones."""
    together = (facts.shares, facts.pooled, facts.whole, facts.summed, facts.compared)
    return not (any(together) or facts.agreements or facts.whole_batches)


def _of_loop(facts: Facts, loader: Loader, loop: TrainingLoop) -> tuple[Edit, ...] | None:
    calls = [c for c in facts.calls if loop.batch in c.where.loops()]
    forwards = {forward.call for forward in facts.training_forwards}
    training = [c for c in calls if c.name in _TRAINS or c in forwards]
    tests = [guard.test for call in training for guard in call.where.conditions()]
    plateaus = (c for c in calls if c.receiver is not None and c.receiver.of(Kind.SCHEDULER))
    asked = any(t.dep(Kind.BATCH) for t in tests) or any(map(_of_batch, plateaus))
    if asked or _shows_other_means(facts, loop):
        return None
    numbers = counted(facts, loop)
    losses, added = _means(loop, calls), weighed_means(facts, loop)
    if numbers is None or losses is None or added is None:
        return None
    name, number, edits = numbers
    weighs = f"{{}} * batch_weight({name}, {number})"
    made = [edit(facts, How.REPLACE, site, f"({weighs})") for site in losses]
    made += [edit(facts, How.REPLACE, site, weighs) for site in added]
    return (*edits, *made) if made else ()


def _means(loop: TrainingLoop, calls: list[Call]) -> list[Site] | None:
    """The losses of a loop that are means; None where one is neither that nor a sum."""
    found = []
    for backward in once(backwards(tuple(calls))).values():
        call = backward[0]
        loss, site = call.receiver, call.receiver_site
        here = call.where.loop is loop.batch and call.where.frame is loop.batch.frame
        if loss is None or site is None or not here or loss.dep(*_OTHERWISE):
            return None
        feeds = [batch.inner for batch in loss.dep(Kind.BATCH)]
        if any(one is None or not set(one.things) <= set(loop.loaders) for one in feeds):
            return None  # a mean over another batch, too
        if loss.measure is Measure.MEAN:
            found.append(site)
        elif loss.measure is not Measure.SUM:
            return None
    return found


def _of_batch(call: Call) -> bool:
    return any(value.dep(Kind.BATCH) for value in (*call.args, *call.kwargs.values()))


def _shows_other_means(facts: Facts, loop: TrainingLoop) -> bool:
    """Whether a mean is shown in the loop that is neither of a batch nor what the loop adds up, or
    where the loop's own names are not known."""
    for call, parts in facts.sinks:
        means = [part for part in parts if part.how in ("reduce_mean", "global_meter")]
        if not means or loop.batch not in call.where.loops():
            continue
        if call.where.frame is not loop.batch.frame:
            return True
        numbers = (p for p in means if p.how == "reduce_mean" and _meter(facts, loop, p) is None)
        if any(is_of_batch(facts, loop, part.text) is None for part in numbers):
            return True
    return False


def shown_of_parts(facts: Facts, settings: Settings, call: Call, part: Part) -> Part:
    """What a sink shows in a loop in which ranks' parts of a batch may differ in size.

    A mean over a batch is weighed, and how many samples there are is asked of all ranks.
    """
    loops = [one for one in facts.training if one.batch in call.where.loops()]
    for loop in loops if part.how in _OF_PARTS else ():
        weight = _weight(facts, settings, loop)
        if weight and part.how == COUNTED:
            return replace(part, how="reduce_sum")
        meter = _meter(facts, loop, part) if weight else None
        if meter is not None:
            part = replace(part, site=meter, text=facts.text(meter), how="global_meter")
        if weight and (part.how == "global_meter" or is_of_batch(facts, loop, part.text)):
            return replace(part, given=f", weight={weight}")
    return part


def _meter(facts: Facts, loop: TrainingLoop, part: Part) -> Site | None:
    """Whose mean is shown: a quotient of as many samples as its rank had, ``losses.avg``."""
    node = facts.tree(part.site).expression(part.site)
    if part.how != "reduce_mean" or not isinstance(node, ast.Attribute):
        return None
    held = {name for end in facts.ends if end.loop.site == loop.batch.site for name in end.held}
    shown = node.attr in ("val", "avg") and ast.unparse(node.value) in held
    return facts.tree(part.site).site(node.value) if shown else None


def _weight(facts: Facts, settings: Settings, loop: TrainingLoop) -> str:
    """``batch_weight(loader, i)`` in a loop that weighs its batches, or will; else ""."""
    for call in facts.named(WEIGHT):
        if call.where.loop is loop.batch:
            return facts.text(call.site)
    mine = (one for one in facts.loaders if set(loop.loaders) & set(one.things))
    numbers = counted(facts, loop)
    dealt = numbers is not None and any(weighed(facts, settings, one) for one in mine)
    return f"batch_weight({numbers[0]}, {numbers[1]})" if numbers is not None and dealt else ""
