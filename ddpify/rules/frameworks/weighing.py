"""What a mean that ``self.log`` takes over the processes counts the samples of a batch as.

Lightning averages the whole number of samples that processes have: 148 for 149 and 148. Times the
number of processes it is exact, and in one process as before.
"""

from __future__ import annotations

import ast
from typing import Final

from ddpify.ranks.hooks import BATCHES
from ddpify.ranks.model import RankCall
from ddpify.ranks.modules import FunctionDefinition
from ddpify.ranks.run import Run
from ddpify.rules.base import Edit, How, Import
from ddpify.rules.frameworks.feeding import are_dealt
from ddpify.rules.frameworks.lightnings import MODULE
from ddpify.rules.shared.hook_parts import evaluating
from ddpify.rules.shared.rank_zero import package

_EXTRACT: Final = "extract_batch_size"
_WHOLE: Final = (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Constant)


def is_rounded(run: Run, call: RankCall) -> bool:
    """Whether a call logs a mean of an evaluation in which processes have unequal numbers."""
    hook, how = evaluating(call), call.kwargs.get("reduce_fx")
    if hook is None or hook.name not in BATCHES or not run.assumed:
        return False
    mean = how is None or how.constant in ("mean", "avg") or "torch.mean" in how.names()
    weighed = "world_size" in ast.unparse(call.node)
    return mean and not weighed and not call.star and are_dealt(run, training=False)


def weighed(run: Run, call: RankCall) -> tuple[Edit, ...]:
    """The edit after which it counts rightly; none where the samples are not known."""
    hook, function = evaluating(call), call.function
    owner = function.owner if function is not None else None
    if hook is None or function is None or owner is None or not owner.inherits(MODULE):
        return ()
    times = f"{function.parameters[0]}.trainer.world_size * "
    given = call.node_of(-1, "batch_size")
    if given is not None and not isinstance(given, ast.Constant):
        code = "{}" if isinstance(given, _WHOLE) else "({})"
        return (Edit(How.ARGUMENT, call.site, times + code, "batch_size"),)
    batch = _batch(call, function, hook)
    if not batch:
        return ()
    wanted = (Import(f"{package(run)}.utilities.data", _EXTRACT),)
    code = f"{times}{_EXTRACT}({batch})"
    return (Edit(How.ARGUMENT, call.site, code, "batch_size", wanted),)


def _batch(call: RankCall, function: FunctionDefinition, hook: FunctionDefinition) -> str:
    """What the batch of the hook is called where a call is made; empty where it is not."""
    name = hook.parameters[1] if len(hook.parameters) > 1 else ""
    if function is not hook:
        led = next((one for one in call.stack if one.function is hook), None)
        if led is None or led.target is not function or not name:
            return ""
        names = [one.id if isinstance(one, ast.Name) else "" for one in led.node.args]
        own = function.parameters[1:]
        name = own[names.index(name)] if name in names[: len(own)] else ""
    stores = (n for n in ast.walk(function.node) if isinstance(n, ast.Name) and n.id == name)
    return "" if any(isinstance(one.ctx, ast.Store) for one in stores) else name
