"""Losses: what criteria and loss functions make of a batch, and over how many terms."""

from __future__ import annotations

from ddpify.facts import (
    counts,
    measures,
    rows,
)
from ddpify.facts.details import (
    CountMean,
    Reduction,
    call_that_made,
)
from ddpify.facts.events import Call
from ddpify.facts.joining import computed, flat_measure
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import Frame
from ddpify.facts.values import Measure, Thing, Value, constant
from ddpify.source import Site

# What criteria take by position, a function after the input and the target.
_LEGACY = ("size_average", "reduce", "reduction")
_CLASSES = ("weight", "size_average", "ignore_index", "reduce", "reduction")
_POSITIONS = {
    **dict.fromkeys(("crossentropy", "nll", "nll2d"), _CLASSES),
    **dict.fromkeys(("bce", "bcewithlogits"), ("weight", *_LEGACY)),
    **dict.fromkeys(("binarycrossentropy", "binarycrossentropywithlogits"), ("weight", *_LEGACY)),
    **dict.fromkeys(("mse", "l1", "smoothl1", "kldiv", "softmargin"), _LEGACY),
}


def _order(call: Call) -> tuple[str, ...]:
    tail = call.name.rsplit(".", 1)[-1].lower().replace("_", "").replace("loss", "")
    before = ("input", "target") if call.name.startswith("torch.nn.functional.") else ()
    return (*before, *_POSITIONS.get(tail, ()))


def option(call: Call, name: str) -> Value | None:
    """What a criterion was given as this setting; None where it was not, or given None."""
    order = _order(call)
    place = order.index(name) if name in order else len(call.args)
    value = call.arg(place, name)
    return value if value != constant(None) else None


def option_site(call: Call, name: str) -> Site | None:
    """Where a setting of a criterion stands."""
    order = _order(call)
    return call.arg_site(order.index(name) if name in order else len(call.args), name)


def reduction_of(call: Call) -> Measure:
    """What is made of the terms; the old switches go before ``reduction``."""
    reduce, average = option(call, "reduce"), option(call, "size_average")
    if reduce is not None or average is not None:
        if not all(value is None or value.known for value in (reduce, average)):
            return Measure.MIXED
        if reduce is not None and not reduce.const:
            return Measure.SAMPLES
        return Measure.MEAN if average is None or average.const else Measure.SUM
    given = option(call, "reduction")
    if given is None:
        return Measure.MEAN
    names = {"mean": Measure.MEAN, "sum": Measure.SUM, "none": Measure.SAMPLES}
    return names.get(given.const, Measure.MIXED) if given.known else Measure.MIXED


def criterion_result(m: Machine, f: Frame, thing: Thing, call: Call) -> Value:
    """The loss a criterion object gives for a batch."""
    reduction = thing.detail(Reduction)
    loss = loss_of(call, reduction.measure if reduction is not None else Measure.MIXED)
    return over_count(m, f, loss, call, call_that_made(thing))


def over_count(m: Machine, f: Frame, loss: Value, call: Call, made: Call | None) -> Value:
    """A loss, as a mean over a count that differs between ranks where it is one."""
    varies = made is not None and varying_count(made)
    if loss.measure is Measure.RATIO or (loss.measure is Measure.MEAN and varies):
        mean = CountMean(m.where(f), call=call, made=made if varies else None)
        return counts.over(m, f, loss, call.site, mean)
    return loss


def varying_count(call: Call) -> bool:
    """Whether a cross entropy divides by class weights or by the targets not ignored.

    https://docs.pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html
    """
    given = (option(call, name) for name in ("weight", "ignore_index"))
    return "ignore_index" in _order(call) and any(value is not None for value in given)


def loss_of(call: Call, reduction: Measure) -> Value:
    values = (*call.args, *call.kwargs.values())
    local = {flat_measure(v) for v in values} - {Measure.UNIFORM}
    target = call.arg(1, "target")
    both = target is not None and flat_measure(target) is Measure.PICKED  # a model picked, too
    if local == {Measure.PICKED} or (both and local <= set(measures.ENTRIES)):
        reduction = measures.OF_PICKED.get(reduction, Measure.MIXED)
    elif local - {Measure.SAMPLES}:  # packed, or mixed with a mean: not one term per sample
        reduction = Measure.MIXED
    loss = computed(*values, measure=reduction if local else Measure.UNIFORM)
    return rows.operands(loss, *values) if reduction is Measure.SAMPLES else loss


def is_loss(tail: str) -> bool:
    return tail.endswith(("_loss", "cross_entropy", "_with_logits")) or tail == "kl_div"
