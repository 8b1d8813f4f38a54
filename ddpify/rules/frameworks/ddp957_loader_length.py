"""DDP957: a schedule counts the batches of a loader that Lightning has not dealt yet."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Final

from ddpify.ranks import words
from ddpify.ranks.hooks import TRAINER
from ddpify.ranks.model import RankCall, RankThing
from ddpify.ranks.modules import FunctionDefinition
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples import changed
from ddpify.rules.examples.lightning import FED, LIGHTNING
from ddpify.rules.frameworks.lightnings import hooks, several
from ddpify.rules.shared.rank_zero import in_hook

_HOOK: Final = "configure_optimizers"
_SAMPLERS: Final = ("sampler", "batch_sampler")


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per length of such a loader, where optimizers and schedules are made.

    In a program that gets its devices also for each number of an evaluation's batches.
    """
    if not several(run) or not _deals(run):
        return
    yield from _of_evaluations(run) if run.assumed else ()
    for call in run.named("builtins.len"):
        hook = any(f is not None and f.name == _HOOK for f in (one.function for one in call.way))
        if hook and in_hook(call) and any(map(_is_whole, _loaders(call))):
            yield Finding(
                "DDP957",
                call.site,
                "these are the batches of all processes, of which each takes its share:"
                " a schedule of this length is not over when the training is",
                Severity.ERROR,
                advice="self.trainer.estimated_stepping_batches counts the steps of the training",
            )


def _of_evaluations(run: Run) -> Iterator[Finding]:
    """``self.sum / self.trainer.num_val_batches[0]``: a process has its part of the batches."""
    for method in hooks(run):
        shown = _shown(method)
        for node in ast.walk(method.node):
            if _counts(node) and node not in shown:
                yield Finding(
                    "DDP957",
                    method.module.site(node),
                    "these are the batches of one process, of which all have more together",
                    Severity.ERROR,
                    advice="count the batches, or samples, in the step: self.seen += 1",
                )


def _shown(method: FunctionDefinition) -> set[ast.AST]:
    """What is in calls that compute nothing: ``print(f"{n} batches")``."""
    lines = (node for node in ast.walk(method.node) if isinstance(node, ast.Expr))
    return {
        node
        for line in lines
        if not any(isinstance(one, ast.BinOp) for one in ast.walk(line))
        for node in ast.walk(line)
    }


def _counts(node: ast.AST) -> bool:
    """``trainer.num_val_batches``, ``len(trainer.val_dataloaders)``."""
    if isinstance(node, ast.Attribute):
        return node.attr in ("num_val_batches", "num_test_batches")
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or not node.args:
        return False
    of = ast.unparse(node.args[0])
    return node.func.id == "len" and any(f"{one}_dataloader" in of for one in ("val", "test"))


def _deals(run: Run) -> bool:
    """Whether a Trainer puts samplers of its own into the loaders."""
    given = (call.kwargs.get("use_distributed_sampler") for call in run.named(TRAINER))
    return any(value is None or value.constant is not False for value in given)


def _loaders(call: RankCall) -> Iterator[RankThing]:
    for value in call.args[:1]:
        yield from (thing for thing in value.things if thing.name == words.LOADER)


def _is_whole(loader: RankThing) -> bool:
    """Whether a loader has no sampler that the program made."""
    made = loader.call
    if loader.deals:  # it is as long as on one device
        return False
    return made is not None and not any(name in made.kwargs for name in _SAMPLERS)


_MADE: Final = "        return torch.optim.Adam(self.parameters())\n"
_OPTIMIZER: Final = "        adam = torch.optim.Adam(self.parameters())\n"
_SCHEDULED: Final = (
    "        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(adam, {})\n"
    "        return [adam], [schedule]\n"
)
_LOADER: Final = "self.trainer.datamodule.train_dataloader()"

RULE = Rule(
    "DDP957",
    "length-of-undealt-loader",
    "Lightning puts a DistributedSampler into the loaders once fit has asked for them. A loader"
    " that configure_optimizers asks for itself is as long as on one device: with N processes the"
    " warm-up and the decay are N times too long (measured: 57.7% accuracy, not 80.2%).",
    "Trainer.estimated_stepping_batches",
    lint=lint,
    bad=(
        changed(
            LIGHTNING,
            (
                _MADE,
                f"{_OPTIMIZER}        steps = 3 * len({_LOADER})  # DDP957\n"
                + _SCHEDULED.format("steps"),
            ),
        ),
        changed(
            LIGHTNING,
            (
                _MADE,
                f"{_OPTIMIZER}        rows = {_LOADER}\n        n = len(rows)  # DDP957\n"
                + _SCHEDULED.format("3 * n"),
            ),
        ),
        changed(
            FED,
            (
                "    def configure_optimizers",
                "    def on_validation_epoch_end(self):\n"
                "        n = self.trainer.num_val_batches[0]  # DDP957\n"
                '        self.log("steps", n)\n\n    def configure_optimizers',
            ),
        ),
    ),
    good=(
        LIGHTNING,
        changed(
            LIGHTNING,
            (_MADE, _OPTIMIZER + _SCHEDULED.format("self.trainer.estimated_stepping_batches")),
        ),
    ),
)
