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


def reduction_of(call: Call) -> Measure:
    given = call.kwargs.get("reduction")
    for old in ("size_average", "reduce"):
        if old in call.kwargs and call.kwargs[old].known:
            return Measure.MEAN if call.kwargs[old].const else Measure.SUM
    if given is None:
        return Measure.MEAN
    names = {"mean": Measure.MEAN, "sum": Measure.SUM, "none": Measure.SAMPLES}
    return names.get(given.const, Measure.MIXED) if given.known else Measure.MIXED


def criterion_result(m: Machine, f: Frame, thing: Thing, call: Call) -> Value:
    """The loss a criterion object gives for a batch."""
    reduction = thing.detail(Reduction)
    loss = loss_of(call, reduction.measure if reduction is not None else Measure.MIXED)
    return over_count(m, f, loss, call, call_that_made(thing), 0)


def over_count(
    m: Machine, f: Frame, loss: Value, call: Call, made: Call | None, weight: int
) -> Value:
    """A loss, as a mean over a count that differs between ranks where it is one."""
    varies = made is not None and varying_count(made, weight)
    if loss.measure is Measure.RATIO or (loss.measure is Measure.MEAN and varies):
        mean = CountMean(m.where(f), call=call, made=made if varies else None)
        return counts.over(m, f, loss, call.site, mean)
    return loss


def varying_count(call: Call, weight: int) -> bool:
    """Whether a cross entropy divides by class weights or by the targets not ignored.

    https://docs.pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html
    """
    tail = call.name.rsplit(".", 1)[-1].lower().replace("_", "")
    if tail not in ("crossentropyloss", "nllloss", "crossentropy"):
        return False
    given = (call.arg(weight, "weight"), call.kwargs.get("ignore_index"))
    return any(value is not None and value != constant(None) for value in given)


def loss_of(call: Call, reduction: Measure) -> Value:
    values = (*call.args, *call.kwargs.values())
    local = {flat_measure(v) for v in values} - {Measure.UNIFORM}
    if local == {Measure.PICKED}:  # a term per picked entry
        reduction = measures.OF_PICKED.get(reduction, Measure.MIXED)
    elif local - {Measure.SAMPLES}:  # packed, or mixed with a mean: not one term per sample
        reduction = Measure.MIXED
    loss = computed(*values, measure=reduction if local else Measure.UNIFORM)
    return rows.operands(loss, *values) if reduction is Measure.SAMPLES else loss


def is_loss(tail: str) -> bool:
    return tail.endswith(("_loss", "cross_entropy", "_with_logits")) or tail == "kl_div"
