"""DDP978: ``training_step`` returns a sum over the batch, and DDP averages."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Final

from ddpify.ranks.modules import FunctionDefinition
from ddpify.ranks.run import Run
from ddpify.rules.base import Edit, Finding, How, Rule, Severity
from ddpify.rules.examples import changed
from ddpify.rules.examples.lightning import FED, LIGHTNING
from ddpify.rules.frameworks.lightnings import several
from ddpify.rules.frameworks.steps import BY_HAND, KEY, librarys, losses, mixed_steps, summed_steps
from ddpify.rules.frameworks.terms import SUM
from ddpify.rules.shared.optimizers import steps_alike
from ddpify.site import Site

_ADVICE: Final = "return a mean, or the sum times self.trainer.world_size"
_PART: Final = (
    "a part of the loss is a sum over this process's samples, and DDP averages over processes:"
    " it counts for 1/N of what it does with one process"
)
_UNKNOWN: Final = (
    "this part of the loss is not seen to be a mean over the samples, of which DDP takes the mean"
    " over processes"
)
_SCALED: Final = "{} * self.trainer.world_size"


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per loss that is a plain sum over the samples of a process."""
    severity = Severity.NOTE if steps_alike(run, lambda _: True) else Severity.WARNING
    for step, made in summed_steps(run) if several(run) else ():
        yield Finding(
            "DDP978",
            made.site,
            "the loss is a sum over this process's samples, and DDP averages over processes:"
            " the gradient is 1/N of that of one process with all samples",
            Severity.ERROR if run.assumed else severity,  # it is to train as it did
            _fix(step),
            _ADVICE,
        )
    if run.assumed and several(run):
        yield from _mixed(run)


def _mixed(run: Run) -> Iterator[Finding]:
    """Losses with other terms, too: what is returned cannot be multiplied."""
    others = {(step, call) for step, loss in losses(run) for call in librarys(run, loss, step)}
    named = {*others, *((step, None) for step, _ in others)}  # by DDP979
    for step, call, kind in mixed_steps(run):
        site = call.site if call is not None else _returned(step)
        if kind == SUM:
            yield Finding("DDP978", site, _PART, Severity.ERROR, advice=_ADVICE)
        elif (step, call) not in named:
            yield Finding("DDP978", site, _UNKNOWN, Severity.WARNING, advice=_ADVICE)


def _fix(step: FunctionDefinition) -> tuple[Edit, ...]:
    """What is returned, times the number of processes, if there is one place where it is."""
    if BY_HAND in step.text:
        return ()
    places = [place for node in _returns(step.node) if (place := _place(node)) is not None]
    if len(places) != 1 or not step.parameters or step.parameters[0] != "self":
        return ()
    code = _SCALED if isinstance(places[0], (ast.Name, ast.Call)) else _SCALED.replace("{}", "({})")
    return (Edit(How.REPLACE, step.module.site(places[0]), code),)


def _returned(step: FunctionDefinition) -> Site:
    """Where a step ends with its loss."""
    return step.module.site(next(_returns(step.node), step.node))


def _returns(node: ast.AST) -> Iterator[ast.Return]:
    return (one for one in ast.walk(node) if isinstance(one, ast.Return))


def _place(node: ast.Return) -> ast.expr | None:
    """The expression of the loss."""
    if not isinstance(node.value, ast.Dict):
        return node.value
    pairs = zip(node.value.keys, node.value.values, strict=True)
    named = (v for k, v in pairs if isinstance(k, ast.Constant) and k.value == KEY)
    return next(named, None)


_MEAN: Final = "        return nn.functional.mse_loss(self.net(x), y)\n"
_RETURNED: Final = _MEAN.strip().removeprefix("return ")
_BY_OPTION: Final = '        return nn.functional.mse_loss(self.net(x), y, reduction="sum")'
_BY_HAND: Final = "        off = (self.net(x) - y).pow(2).sum()"
_NET: Final = "        self.net = nn.Linear(8, 8)\n"

RULE = Rule(
    "DDP978",
    "sum-of-a-step",
    "Lightning's DDP averages the gradients of the processes. For a training_step that returns a"
    " sum over its samples that gives 1/N of the gradient of one process with all samples"
    " (measured on two: 0.5 times, from the first step on).",
    "examples/pytorch/bug_report of pytorch-lightning; DDP401",
    lint=lint,
    words=("def training_step", "reduction="),
    bad=(
        changed(FED, (_MEAN, f"{_BY_OPTION}  # DDP978\n")),
        changed(FED, (_MEAN, f'{_BY_HAND}  # DDP978\n        return {{"loss": off}}\n')),
        changed(  # by a criterion of the module's
            FED,
            (_MEAN, "        return self.off(self.net(x), y)  # DDP978\n"),
            (_NET, f'{_NET}        self.off = nn.MSELoss(reduction="sum")\n'),
        ),
        changed(LIGHTNING, (_MEAN, f"{_BY_HAND}  # DDP978\n        return off\n")),
        changed(  # one of two terms
            FED,
            (_MEAN, f"{_BY_HAND}  # DDP978\n        return 0.1 * off + {_RETURNED}\n"),
        ),
        changed(FED, (_MEAN, "        return (self.net(x) - y).norm()  # DDP978\n")),
        changed(FED, (_MEAN, f"{_BY_HAND}  # DDP978\n        return off / self.weight\n")),
    ),
    good=(
        FED,
        changed(FED, (_MEAN, f"{_BY_HAND}\n        return off * self.trainer.world_size\n")),
        changed(FED, (_MEAN, f"{_BY_HAND}\n        return off / len(x)\n")),
        changed(FED, (_MEAN, f"{_BY_HAND}\n        return -0.5 * off / x.size(0) + {_RETURNED}\n")),
        changed(FED, (_MEAN, _MEAN.replace("(x), y)", "(x), y) + 1e-4 * self.net.weight.norm()"))),
        changed(FED, (_MEAN, _MEAN.replace("(x), y)", "(x), y).sum()"))),
    ),
)
