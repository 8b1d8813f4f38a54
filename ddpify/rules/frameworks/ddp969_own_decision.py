"""DDP969: one process stops, or leaves out a step, and the others wait for it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Final

from ddpify.ranks.modules import FunctionDefinition
from ddpify.ranks.run import Run
from ddpify.rules.base import Edit, Finding, How, Rule, Severity
from ddpify.rules.examples import changed
from ddpify.rules.examples.lightning import LIGHTNING
from ddpify.rules.frameworks.lightnings import MODULE, fitted, hooks, several
from ddpify.rules.shared.fields import called, own

_STOP: Final = "should_stop"
_AGREED: Final = ("reduce_boolean_decision", "all_reduce", "all_gather", "broadcast")
_OF_ALL: Final = ("callback_metrics", "logged_metrics")  # what is logged is reduced, or told
_MANUAL: Final = "automatic_optimization"


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per decision to stop, and per step that ``training_step`` leaves out."""
    if not several(run):
        return
    for method in hooks(run):
        yield from _stops(run, method)
    for cls in dict.fromkeys(cls for _, cls in fitted(run) if cls.inherits(MODULE)):
        step = cls.method("training_step")
        if step is not None and not any(map(_is_manual, ast.walk(cls.node))):
            yield from _left_out(step)


def _stops(run: Run, method: FunctionDefinition) -> Iterator[Finding]:
    read = {getattr(node, "attr", "") for node in ast.walk(method.node)}
    if called(method) & {*_AGREED} or (not run.assumed and read & {*_OF_ALL}):
        return
    for statement in getattr(method.node, "body", []):
        for node in ast.walk(statement):
            if (trainer := _stopped(node)) and not _is_false(node):
                fix = _decided(method, statement, trainer)
                yield Finding(
                    "DDP969",
                    method.module.site(node),
                    "a process that stops by its own numbers leaves the others waiting",
                    Severity.ERROR,
                    (fix,) if fix is not None else (),
                    f"ask {trainer}.strategy.reduce_boolean_decision, or use EarlyStopping",
                )


def _stopped(node: ast.AST) -> str:
    """``trainer`` of ``trainer.should_stop = …``."""
    target = node.targets[0] if isinstance(node, ast.Assign) else None
    stop = isinstance(target, ast.Attribute) and target.attr == _STOP
    return ast.unparse(target.value) if stop else ""  # type: ignore[union-attr]


def _is_false(node: ast.AST) -> bool:
    value = getattr(node, "value", None)
    return isinstance(value, ast.Constant) and value.value is False


def _decided(method: FunctionDefinition, statement: ast.stmt, trainer: str) -> Edit | None:
    """All stop behind the statement if one does; None where some may not come there."""
    body: list[ast.stmt] = getattr(method.node, "body", [])
    before = body[: body.index(statement)]
    if not method.name.startswith("on_") or any(map(_leaves, before)) or _leaves(statement):
        return None
    decision = f"{trainer}.strategy.reduce_boolean_decision({trainer}.{_STOP}, all=False)"
    return Edit(How.AFTER, method.module.site(statement), f"{trainer}.{_STOP} = {decision}")


def _leaves(statement: ast.stmt) -> bool:
    """Whether it may end the hook, but for what all processes' Trainers say alike."""
    test = statement.test if isinstance(statement, ast.If) else None
    if test is not None and ast.unparse(test).endswith("trainer.sanity_checking"):
        return False
    return any(isinstance(node, (ast.Return, ast.Raise)) for node in ast.walk(statement))


def _left_out(step: FunctionDefinition) -> Iterator[Finding]:
    for node in ast.walk(step.node):
        nothing = isinstance(node, ast.Return) and (
            node.value is None or (isinstance(node.value, ast.Constant) and not node.value.value)
        )
        if nothing:
            yield Finding(
                "DDP969",
                step.module.site(node),
                "a step that one process leaves out, the others wait for: Lightning stops there",
                Severity.ERROR,
                advice="return a loss in each: `loss * 0` adds nothing to the gradients",
            )


def _is_manual(node: ast.AST) -> bool:
    """``self.automatic_optimization = False``: a step returns what it likes."""
    return isinstance(node, ast.Assign) and own(node.targets[0]) == _MANUAL and _is_false(node)


_STEP: Final = "        x, y = batch\n        return nn"
_HOOK: Final = "    def configure_optimizers"
_END: Final = "    def on_train_batch_end(self, outputs, batch, batch_idx):\n{}\n"
_FAR: Final = "        if outputs['loss'] > 9:\n            self.trainer.should_stop = True"

RULE = Rule(
    "DDP969",
    "decision-of-one-process",
    "Trainer.should_stop belongs to one process: if it stops, the others wait in the next step"
    " until the timeout (measured: 1 epoch and 2). A training_step that returns None on one process"
    " takes no part in the averaging of gradients; Lightning raises an error.",
    "Trainer.should_stop; Strategy.reduce_boolean_decision; lightning#5243; BUGS C04",
    lint=lint,
    bad=(
        changed(LIGHTNING, (_HOOK, _END.format(f"{_FAR}  # DDP969") + _HOOK)),
        changed(
            LIGHTNING,
            (
                _STEP,
                "        x, y = batch\n        if x.isnan().any():\n"
                "            return None  # DDP969\n        return nn",
            ),
        ),
    ),
    good=(
        LIGHTNING,
        changed(LIGHTNING, (_HOOK, _END.format(_FAR.replace("True", "False")) + _HOOK)),
    ),
)
