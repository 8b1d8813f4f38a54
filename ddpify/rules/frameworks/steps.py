"""The losses that ``training_step`` returns: what they are over the batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ddpify.ranks.model import RankCall, RankValue
from ddpify.ranks.modules import FunctionDefinition
from ddpify.ranks.run import Run
from ddpify.rules.frameworks.lightnings import MODULE
from ddpify.rules.frameworks.terms import MEAN, SUM, Term, terms
from ddpify.rules.shared.fields import makers, own
from ddpify.rules.shared.losses import one_by_one, reduction
from ddpify.rules.shared.rank_zero import LOOKS

_TORCH: Final = ("torch", "lightning", "builtins", "math", "numpy", "")
BY_HAND: Final = "manual_backward"
KEY: Final = "loss"  # of a dictionary that is returned instead


def losses(run: Run) -> Iterator[tuple[FunctionDefinition, RankValue]]:
    """What a step returns, or the loss of the dictionary that it returns; or has gradients of."""
    for call in run.calls:
        if call.method == BY_HAND and call.args and call.function is not None:
            yield call.function, call.args[0]
    for step, value in run.stepped:
        found = [value] if value.keys is None else [v for key, v in value.keys if key == KEY]
        yield from ((step, loss) for loss in found)


def summed_steps(run: Run) -> list[tuple[FunctionDefinition, RankCall]]:
    """The steps whose loss is a plain sum over the batch, with the call that sums."""
    summed = [(step, made[0][1]) for step, made in stepped_terms(run) if _are(made, SUM)]
    return [(step, call) for step, call in summed if call is not None]


def mixed_steps(run: Run) -> Iterator[tuple[FunctionDefinition, RankCall | None, str]]:
    """The terms of other losses that are sums, or are not seen to be means over the batch."""
    for step, made in stepped_terms(run):
        if not _are(made, SUM):
            yield from ((step, call, kind) for kind, call in made if kind != MEAN)


def _are(made: list[Term], kind: str) -> bool:
    return bool(made) and all(one == kind for one, _ in made)


def stepped_terms(run: Run) -> list[tuple[FunctionDefinition, list[Term]]]:
    """The steps, each with the terms of its loss."""
    return run.once(_stepped_terms)


def _stepped_terms(run: Run) -> list[tuple[FunctionDefinition, list[Term]]]:
    found = []
    for step, loss in losses(run):
        calls = {call for call in run.calls if within(call, step) and _computes(call)}
        if not one_by_one(loss):
            found.append((step, list(terms(run, loss, calls))))
    return found


def librarys(run: Run, loss: RankValue, step: FunctionDefinition) -> list[RankCall]:
    """What gives a step its loss and is of a library other than torch, by no mean of torch's."""
    made = [thing.call for thing in (*loss.things, *loss.sources())]
    calls = [call for call in dict.fromkeys(made) if call is not None and within(call, step)]
    means = [call for call in calls if reduction(call) is not None or call.method == "mean"]
    inner = {t.call for mean in means for value in mean.inputs for t in value.sources()}
    return [call for call in calls if call not in inner and _is_librarys(run, call)]


def _is_librarys(run: Run, call: RankCall) -> bool:
    """Whether a function, or an object that ``self`` keeps, is of a library other than torch."""
    kept, function = own(call.node.func), call.function
    names = [call.name]
    if kept and function is not None and function.owner is not None:
        names = [made[0] for made in makers(function.owner, kept) if made]
    parts = (part for path in run.modules for part in path.removesuffix(".py").split("/"))
    ours = {*_TORCH, *parts}
    return call.target is None and any(
        "." in name and name.partition(".")[0] not in ours for name in names
    )


def within(call: RankCall, step: FunctionDefinition) -> bool:
    """Whether a call is made in a step, or in what that calls."""
    return step in (*(outer.function for outer in call.stack), call.function)


def _computes(call: RankCall) -> bool:
    """``self(x)`` and ``self.net(x)``, of which it may not be known what it is."""
    if not call.grad or reduction(call) is not None:
        return False
    owner, _, name = call.name.rpartition(".")
    own_call = owner == MODULE and name not in LOOKS and not name.startswith("log")
    return name in ("__call__", "forward") or own_call
