"""What a loss is: a mean or a sum over the batch, as its making says."""

from __future__ import annotations

from typing import Final

from ddpify.ranks import words
from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.values import constant

_FUNCTIONS: Final = frozenset(
    """cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy
    binary_cross_entropy_with_logits kl_div gaussian_nll_loss poisson_nll_loss cosine_embedding_loss
    margin_ranking_loss triplet_margin_loss multi_margin_loss soft_margin_loss""".split()
)
_MODULES: Final = frozenset(
    """CrossEntropyLoss NLLLoss MSELoss L1Loss SmoothL1Loss HuberLoss BCELoss BCEWithLogitsLoss
    KLDivLoss GaussianNLLLoss PoissonNLLLoss CosineEmbeddingLoss MarginRankingLoss TripletMarginLoss
    MultiMarginLoss SoftMarginLoss""".split()
)
_BY_CLASS: Final = ("cross_entropy", "nll_loss", "CrossEntropyLoss", "NLLLoss")
# Calls that keep one entry per sample and feature.
_BY_ENTRY: Final = frozenset(
    """pow square abs neg log exp sqrt relu clamp view reshape flatten squeeze unsqueeze to cuda
    float double half sigmoid tanh softplus log_softmax softmax type contiguous""".split()
)


def made_by(value: RankValue) -> RankCall | None:
    """The call whose result a value is, unchanged; a scaler's ``scale()`` is looked through."""
    while len(value.things) == 1 and value.things[0].kind == "result":
        call = value.things[0].call
        if call is not None and call.name.endswith(".GradScaler.scale") and call.args:
            value = call.args[0]
            continue
        return call
    return None


def reduction(call: RankCall) -> str | None:
    """``mean``, ``sum`` or ``none`` of a call of one of torch's losses; None for others."""
    prefix, _, name = call.name.rpartition(".")
    if prefix == "torch.nn.functional" and name in _FUNCTIONS:
        return _given(call)
    if name in ("__call__", "forward") and call.receiver is not None:
        made = [t for t in call.receiver.things if _is_loss(t)]
        if len(made) == 1 and len(call.receiver.things) == 1 and made[0].call is not None:
            return _given(made[0].call)
    return None


def counted(call: RankCall) -> bool:
    """Whether a call of such a loss divides by weights of classes, or leaves out labels."""
    if reduction(call) != "mean":
        return False
    function = call.name.startswith("torch.nn.functional.")
    things = call.receiver.things if call.receiver is not None else ()
    made = call if function else next((t.call for t in things if _is_loss(t)), None)
    if made is None or made.name.rpartition(".")[2] not in _BY_CLASS:
        return False
    weight = made.arg(2 if function else 0, "weight")
    given = (weight, made.kwargs.get("ignore_index"))
    return any(one is not None and (not one.known or one.constant is not None) for one in given)


def _is_loss(thing: RankThing) -> bool:
    prefix, _, name = thing.name.rpartition(".")
    return thing.kind == "result" and prefix == "torch.nn" and name in _MODULES


def _given(call: RankCall) -> str | None:
    if call.star or any(name in call.kwargs for name in ("size_average", "reduce")):
        return None
    value = call.kwargs.get("reduction")
    if value is None:
        return "mean"
    return value.constant if isinstance(value.constant, str) else None


def one_by_one(loss: RankValue) -> bool:
    """Whether a batch is one sample: a sum over it is no sum over samples."""
    loaders = [t.call for t in loss.sources() if t.name == words.LOADER and t.call is not None]
    return bool(loaders) and all(
        not call.star
        and call.arg(4, "batch_sampler") is None
        and (call.arg(1, "batch_size") or constant(1)).atoms in ((None, None), (1, 1))
        for call in loaders
    )


def sums_entries(made: RankCall, calls: set[RankCall]) -> bool:
    """Whether a loss is ``(…).sum()`` over something that still has an entry per sample."""
    entries = made.receiver if made.receiver is not None else made.arg(0, "input")
    if made.method != "sum" or entries is None or made.name == "builtins.sum":
        return False
    if made.kwargs or len(made.args) > (made.receiver is None):
        return False
    first = min(call.order for call in calls)
    for thing in entries.sources():
        call = thing.call
        if thing.kind != "result" or call is None or call.order < first or call in calls:
            continue
        if call.name == "torch.device" or call.module.ours:
            continue  # where it lies, not what it is
        if call.method not in _BY_ENTRY and reduction(call) != "none":
            return False
    return True
