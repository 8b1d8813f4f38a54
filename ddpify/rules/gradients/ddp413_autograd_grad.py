"""DDP413: torch.autograd.grad with respect to the parameters of a wrapped model."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.ranks import words
from ddpify.ranks.model import RankCall
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.gradients import trained
from ddpify.rules.shared.wrapped import Wrap, forwards, live, parameters_of, wraps


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per call whose gradients nobody averages."""
    for wrap in wraps(run):
        calls = set(forwards(run, wrap))
        for call in run.named("torch.autograd.grad"):
            if _of_parameters(wrap, call, calls) and not _kept(call) and not _averaged(run, call):
                yield Finding(
                    "DDP413",
                    call.site,
                    "torch.autograd.grad() goes around DistributedDataParallel's hooks: each rank"
                    " gets its own gradient of the parameters",
                    Severity.ERROR,
                    advice="use loss.backward(), or all_reduce the gradients by hand",
                    because=((wrap.call.site, "wrapped here"),),
                )


def _of_parameters(wrap: Wrap, call: RankCall, calls: set[RankCall]) -> bool:
    outputs, inputs = call.arg(0, "outputs"), call.arg(1, "inputs")
    if outputs is None or inputs is None or not call.grad:
        return False
    owners = parameters_of(inputs)
    made = {thing.call for thing in live(outputs)}
    return bool(owners) and all(wrap.covers(t) for t in owners) and not calls.isdisjoint(made)


def _kept(call: RankCall) -> bool:
    """Whether the gradient is differentiated again, as penalties and inner loops do."""
    value = call.kwargs.get("create_graph")
    return value is not None and value.constant is not False


def _averaged(run: Run, call: RankCall) -> bool:
    made = set(call.result.things) if call.result is not None else set()
    return any(
        made & set(arg.sources())
        for one in run.calls
        if one.name.startswith(words.DIST) and one.method in words.COLLECTIVE_OPS
        for arg in one.given
    )


RULE = Rule(
    "DDP413",
    "autograd-grad",
    "DistributedDataParallel averages in hooks of .backward(). torch.autograd.grad() returns the"
    " gradient without calling them: measured 1 on one rank and 2 on the other, with no error.",
    "DistributedDataParallel docstring (torch.autograd.grad is not supported); BUGS G14",
    lint=lint,
    words=("autograd.grad",),
    bad=(
        trained(loop="""
            for x, y in loader:
                loss = F.cross_entropy(model(x), y)
                slopes = torch.autograd.grad(loss, list(model.parameters()))  # DDP413
                for parameter, slope in zip(model.parameters(), slopes):
                    parameter.grad = slope
                optimizer.step()
            """),
    ),
    good=(
        trained(loop="""
            for x, y in loader:
                loss = F.cross_entropy(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            """),
        trained(loop="""
            for x, y in loader:
                x.requires_grad_(True)
                out = model(x)
                (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
                optimizer.zero_grad()
                (F.cross_entropy(out, y) + slope.pow(2).mean()).backward()
                optimizer.step()
            """),
    ),
    fixes=False,
)
