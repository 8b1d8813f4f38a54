"""DDP979: ``training_step`` returns a mean over a count that each process has for itself."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Final

from ddpify.facts.tree import last_name
from ddpify.ranks.model import RankCall, RankValue
from ddpify.ranks.modules import FunctionDefinition
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples import changed
from ddpify.rules.examples.lightning import FED
from ddpify.rules.frameworks.lightnings import fitted, several
from ddpify.rules.frameworks.steps import librarys, losses, within
from ddpify.rules.frameworks.terms import COUNTS
from ddpify.rules.shared.fields import function_of, own
from ddpify.rules.shared.losses import counted
from ddpify.site import Site

_ADVICE: Final = (
    "divide the sum by the mean over processes of the count (self.all_gather), or accept what the"
    " processes' own counts make of it"
)
_UNKNOWN: Final = (
    "a library computes this loss: if it is a mean over what each process counts (labels that are"
    " not left out, boxes that are found), the mean over processes is another one"
)


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per such loss, in a program that gets its devices."""
    if not run.assumed or not several(run):
        return
    for step, loss in losses(run):
        made = (thing.call for thing in (*loss.things, *loss.sources()))
        for call in dict.fromkeys(one for one in made if one is not None and within(one, step)):
            if counted(call) or _divides(call):
                yield _finding(call.site, Severity.ERROR)
        for call in librarys(run, loss, step):
            yield Finding("DDP979", call.site, _UNKNOWN, Severity.WARNING, advice=_ADVICE)
    read = {call.function for call in run.calls}
    results = {_made_by(loss) for _, loss in losses(run)}
    for function in {*_called(run)} - read:  # only as a whole it may be known to give the loss
        for node in ast.walk(function.node):
            if _is_count(node) and _divides_by(function, node):
                sure = function.qualname in results and _gives(function, node)
                severity = Severity.ERROR if sure else Severity.WARNING
                yield _finding(function.module.site(node), severity)


def _finding(site: Site, severity: Severity) -> Finding:
    return Finding(
        "DDP979",
        site,
        "the loss is a mean over a count or weights that each process has for itself: the mean over"
        " processes is another one than that of all samples",
        severity,
        advice=_ADVICE,
    )


def _called(run: Run) -> Iterator[FunctionDefinition]:
    """What ``training_step`` calls of the project, and what that calls."""
    steps = ((cls, cls.method("training_step")) for _, cls in fitted(run))
    left = [(cls, step) for cls, step in steps if step is not None]
    seen = {step for _, step in left}
    while left:
        cls, function = left.pop()
        yield function
        calls = (n.func for n in ast.walk(function.node) if isinstance(n, ast.Call))
        found = (cls.method(own(f)) or function_of(run, function.module, f) for f in calls)
        new = {one for one in found if one is not None} - seen
        seen |= new
        left += [(cls, one) for one in new]


def _made_by(loss: RankValue) -> str:
    """The function, not read, whose result a loss is, unchanged."""
    return str(getattr(loss.atoms[0], "key", "")).partition("()@")[0]


def _gives(function: FunctionDefinition, count: ast.AST) -> bool:
    """Whether a function returns what is divided by a count, by a name that is set once at most."""
    nodes = [*ast.walk(function.node)]
    stores = [node for node in nodes if isinstance(node, ast.Assign)]
    for given in (node.value for node in nodes if isinstance(node, ast.Return)):
        name = given.id if isinstance(given, ast.Name) else ""
        sets = [one.value for one in stores if name and name in map(last_name, one.targets)]
        made = sets[0] if len(sets) == 1 else given
        if made is not None and count in ast.walk(made):
            return True
    return False


def _divides(call: RankCall) -> bool:
    """``(loss * mask).sum() / mask.sum()``: whether something is divided by what is counted."""
    return (
        call.function is not None and _is_count(call.node) and _divides_by(call.function, call.node)
    )


def _is_count(node: ast.AST) -> bool:
    """A count over a whole batch: not one of each sample, ``.sum(-1)``."""
    method = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    return method and not (node.args or node.keywords) and node.func.attr in COUNTS  # type: ignore[attr-defined]


def _divides_by(function: FunctionDefinition, count: ast.AST) -> bool:
    return any(
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Div)
        and any(below is count for below in ast.walk(node.right))
        for node in ast.walk(function.node)
    )


_MEAN: Final = "        return nn.functional.mse_loss(self.net(x), y)\n"
_MASKED: Final = "        off, mask = (self.net(x) - y).pow(2), y > 0\n        return {}\n"
_CROSS: Final = "        return nn.functional.cross_entropy(self.net(x), y.argmax(1){}){}\n"
_NET: Final = "        self.net = nn.Linear(8, 8)\n"
_LIBRARY: Final = ("import torch\n", "import torch\nfrom transformers import AutoModel\n")
_MODEL: Final = (_NET, '        self.net = AutoModel.from_pretrained("x")\n')
_OWN: Final = (
    "        out = self.net(x, labels=y)  # DDP979\n"
    '        self.log("loss", out.loss)\n        return 0.5 * out.loss\n'
)
_SCORED: Final = "        out = self.net(x)\n        return nn.functional.mse_loss({}, y)\n"

RULE = Rule(
    "DDP979",
    "mean-over-own-count",
    "DDP averages the gradients of the processes. Where each divides by what it has counted itself"
    " (a mask, padding, class weights), samples of a process with few count for more: on two with 1"
    " and 3 the average of means is not the mean of all 4.",
    "CONTRACT; torch.nn.CrossEntropyLoss (weight, ignore_index); DDP401",
    lint=lint,
    words=("CrossEntropyLoss", "NLLLoss"),
    bad=(
        changed(FED, (_MEAN, _MASKED.format("(off * mask).sum() / mask.sum()  # DDP979"))),
        changed(FED, (_MEAN, _CROSS.format(", ignore_index=0", "  # DDP979"))),
        changed(
            FED,
            (_MEAN, "        return self.loss(self.net(x), y.argmax(1))  # DDP979\n"),
            (_NET, f"{_NET}        self.loss = nn.CrossEntropyLoss(torch.ones(8))\n"),
        ),
        changed(FED, _LIBRARY, _MODEL, (_MEAN, _OWN)),
    ),
    good=(
        FED,
        changed(FED, _LIBRARY, _MODEL, (_MEAN, _SCORED.format("out.logits"))),
        changed(FED, (_MEAN, _CROSS.format("", ""))),
        changed(FED, (_MEAN, _MASKED.format("(off * mask).sum() / 8 * self.trainer.world_size"))),
    ),
    fixes=False,
)
