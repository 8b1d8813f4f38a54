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
from ddpify.facts.padding import filling, is_filled, says_ignored
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import Frame
from ddpify.facts.values import NOTHING, PERHAPS_ONE, UNKNOWN_AXIS, Measure, Thing, Value, constant
from ddpify.source import Site

# What torch's signatures take after the tensors that are compared: two, or as many as `_TENSORS`.
_PLAIN = "size_average reduce reduction"
_CLASSES = "weight size_average ignore_index reduce reduction"
_WEIGHED = "weight size_average reduce reduction"
_MARGIN = "margin size_average reduce reduction"
_SETTINGS = {
    **dict.fromkeys(("mse", "l1", "smoothl1", "kldiv", "softmargin", "multilabelmargin"), _PLAIN),
    "crossentropy": _CLASSES,
    "nll": _CLASSES,
    "nllloss2d": _CLASSES,
    "binarycrossentropy": _WEIGHED,
    "binarycrossentropywithlogits": _WEIGHED,
    "bce": _WEIGHED,
    "bcewithlogits": _WEIGHED,
    "multilabelsoftmargin": _WEIGHED,
    "ctc": "blank reduction zero_infinity",
    "huber": "reduction delta",
    "poissonnll": "log_input full size_average eps reduce reduction",
    "marginranking": _MARGIN,
    "cosineembedding": _MARGIN,
    "hingeembedding": _MARGIN,
    "tripletmargin": "margin p eps swap size_average reduce reduction",
    "multimargin": "p margin weight size_average reduce reduction",
}
_TENSORS = {"cosineembedding": 3, "marginranking": 3, "tripletmargin": 3, "ctc": 4}
_TERM_BY_TERM = frozenset(
    """mse l1 smoothl1 kldiv softmargin huber poissonnll binarycrossentropy bce bcewithlogits
    binarycrossentropywithlogits""".split()
)
_COUNTS = frozenset({"crossentropy", "nll", "nllloss2d"})
BATCH_MEAN = "batchmean"  # the sum by the length of the first axis


def _loss_name(call: Call) -> str:
    """``crossentropy`` of ``F.cross_entropy`` and of ``nn.CrossEntropyLoss``."""
    tail = call.name.rsplit(".", 1)[-1].lower().replace("_", "")
    return tail.removesuffix("loss")


def place_of(call: Call, setting: str) -> int:
    """The position of a setting of one of torch's losses; beyond all where it has none."""
    name = _loss_name(call)
    settings = _SETTINGS.get(name, "").split() if call.name.startswith("torch.nn.") else []
    if setting not in settings:
        return len(call.args)
    function = call.name.startswith("torch.nn.functional.")
    return settings.index(setting) + (_TENSORS.get(name, 2) if function else 0)


def option(call: Call, name: str) -> Value | None:
    """What a criterion was given as this setting; None where it was not, or given None."""
    value = call.arg(place_of(call, name), name)
    return value if value != constant(None) else None


def option_site(call: Call, name: str) -> Site | None:
    """Where a setting of a criterion stands."""
    return call.arg_site(place_of(call, name), name)


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
    names["elementwise_mean"] = Measure.MEAN  # the name that torch 0.4.1 had for it
    names[BATCH_MEAN] = Measure.MEAN  # if the samples come first: see `over_count`
    return names.get(given.const, Measure.MIXED) if given.known else Measure.MIXED


def criterion_result(m: Machine, f: Frame, thing: Thing, call: Call) -> Value:
    """The loss a criterion object gives for a batch."""
    reduction = thing.detail(Reduction)
    loss = loss_of(call, reduction.measure if reduction is not None else Measure.MIXED)
    return over_count(m, f, loss, call, call_that_made(thing))


def over_count(m: Machine, f: Frame, loss: Value, call: Call, made: Call | None) -> Value:
    """A loss, as a mean over a count that differs between ranks where it is one."""
    varies = made is not None and varying_count(made)
    if made is not None and _is_batch_mean(made) and any(value.axis for value in call.args):
        return loss.but(measure=Measure.MIXED)
    if loss.measure is Measure.SAMPLES and made is not None:
        loss = loss.but(axes=_axes_left(loss, made))
    if loss.measure is Measure.MEAN and not varies and is_filled(m, call):
        return counts.over(m, f, loss, call.site, _over_padding(m, f, call, made))
    if loss.measure is Measure.RATIO or (loss.measure is Measure.MEAN and varies):
        mean = CountMean(m.where(f), call=call, made=made if varies else None)
        return counts.over(m, f, loss, call.site, mean)
    return loss


def _is_batch_mean(made: Call) -> bool:
    given = option(made, "reduction")
    return given is not None and given.known and given.const == BATCH_MEAN


def _axes_left(loss: Value, made: Call) -> int:
    """How many axes a loss has that is not reduced: that of the classes is gone."""
    if _loss_name(made) in _TERM_BY_TERM:
        return loss.axes
    return loss.axes - 1 if loss.axes > 1 and _loss_name(made) in _COUNTS else PERHAPS_ONE


def _over_padding(m: Machine, f: Frame, call: Call, made: Call | None) -> CountMean:
    """A mean over targets that were filled up: with what is not counted, or it cannot be mended."""
    functions = filling(call.arg(1, "target") or NOTHING)
    classes = made is not None and _loss_name(made) in _COUNTS
    if classes and says_ignored(functions):
        return CountMean(m.where(f), call=call, made=made)
    return CountMean(m.where(f), at=functions[0].site)


def varying_count(call: Call) -> bool:
    """Whether a cross entropy divides by class weights or by the targets not ignored.

    https://docs.pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html
    """
    return _loss_name(call) in _COUNTS and any(
        option(call, name) is not None for name in ("weight", "ignore_index")
    )


def loss_of(call: Call, reduction: Measure) -> Value:
    values = (*call.args, *call.kwargs.values())
    local = {flat_measure(v) for v in values} - {Measure.UNIFORM}
    target = call.arg(1, "target")
    both = target is not None and flat_measure(target) is Measure.PICKED  # a model picked, too
    if local == {Measure.PICKED} or (both and local <= set(measures.ENTRIES)):
        reduction = measures.OF_PICKED.get(reduction, Measure.MIXED)
    elif local == {Measure.ENTRY}:
        reduction = Measure.ENTRY
    elif local - {Measure.SAMPLES}:  # packed, or mixed with a mean: not one term per sample
        reduction = Measure.MIXED
    loss = computed(*values, measure=reduction if local else Measure.UNIFORM)
    if reduction is Measure.SAMPLES:
        return rows.operands(loss, *values).but(axis=UNKNOWN_AXIS if loss.axis else 0)
    return loss.but(axis=0)


def is_loss(tail: str) -> bool:
    return tail.endswith(("_loss", "cross_entropy", "_with_logits")) or tail == "kl_div"
