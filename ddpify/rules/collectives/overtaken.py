"""Optimizers that step while the reductions that a hook has begun in backward are under way."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from ddpify.ranks import words
from ddpify.ranks.model import RankCall, RankThing
from ddpify.ranks.modules import FunctionDefinition, Module
from ddpify.ranks.run import Run
from ddpify.rules.shared.syntax import dotted
from ddpify.site import Site

_HOOKS: Final = ("register_post_accumulate_grad_hook", "register_hook")
_WAITS: Final = re.compile(r"wait|synchronize|result\(|barrier")
# They have something done between a backward and a step that stands nowhere in between.
_HIDDEN: Final = re.compile(r"step_pre_hook|queue_callback|full_backward_hook")


def overtaken(run: Run) -> Iterator[tuple[RankCall, Site]]:
    """The step, and the collective of the hook for which nothing waits in between."""
    hooks = [(call, site) for call in run.methods(*_HOOKS) for site in _begun(call)]
    if not hooks or any(_HIDDEN.search(one.source.text) for one in run.modules.values()):
        return
    for backward in run.backwards:
        after = [one for one in run.calls if one.order > backward.order]
        step = next(
            (one for one in after if one.name.startswith("torch.optim.") and _is(one)), None
        )
        if step is None or step.loops != backward.loops or step.function is not backward.function:
            continue
        between = [one for one in after if one.order < step.order]
        for call, site in hooks if not any(_may_wait(run, one) for one in between) else ():
            if _sources(call) & _sources(step):
                yield step, site
                return


def _sources(call: RankCall) -> frozenset[RankThing]:
    return call.receiver.made_from if call.receiver is not None else frozenset()


def _is(call: RankCall) -> bool:
    return call.method == "step" and "lr_scheduler" not in call.name


def _may_wait(run: Run, call: RankCall) -> bool:
    if call.target is not None:
        return call.target.place not in run.entered or bool(_WAITS.search(call.target.text))
    return bool(_WAITS.search(call.method)) or call.name.startswith(".")


def replaced(run: Run) -> Iterator[Site]:
    """Collectives of a hook of each parameter, which puts the handle in place of the last one."""
    for hook in run.methods(*_HOOKS):
        for info in _functions(hook) if hook.loops else ():
            for one in ast.walk(info.node):
                if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Attribute):
                    once = info.text.count(ast.unparse(one.targets[0])) == 1
                    if once and _is_begun(info.module, one.value):
                        yield info.module.site(one.value)


def _functions(hook: RankCall) -> Iterator[FunctionDefinition]:
    """What is called as a hook, and does not wait itself."""
    for value in hook.args[:1]:
        for thing in value.things:
            info = thing.info if isinstance(thing.info, FunctionDefinition) else None
            if info is not None and not _WAITS.search(info.text):
                yield info


def _begun(hook: RankCall) -> Iterator[Site]:
    """The collectives that it begins, and for which it does not wait itself."""
    for info in _functions(hook):
        for node in ast.walk(info.node):
            if _is_begun(info.module, node):
                yield info.module.site(node)


def _is_begun(module: Module, node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    asked = (one.value for one in node.keywords if one.arg == "async_op")
    begun = any(isinstance(one, ast.Constant) and one.value is True for one in asked)
    return begun and dotted(module, node.func) == f"{words.DIST}all_reduce"
