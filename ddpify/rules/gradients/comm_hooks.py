"""What the communication hooks of a wrapper do to gradients, as their text says."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from ddpify.facts.tree import last_name
from ddpify.ranks.model import RankCall
from ddpify.ranks.modules import FunctionDefinition
from ddpify.ranks.run import Run
from ddpify.rules.shared.wrapped import Wrap, receives, wraps
from ddpify.site import Site

_TORCH: Final = "torch.distributed.algorithms."
# What a hook may call of libraries that changes no number of its bucket.
_PLAIN: Final = frozenset(
    """all_reduce buffer get_future then value wait to half float bfloat16 copy_ clone detach
    gradients parameters index is_last type view""".split()
)


_COUNTS: Final = frozenset({"numel", "element_size", "nelement"})
_SCALES: Final = (ast.Div, ast.Mult, ast.FloorDiv)


def hooked(run: Run) -> Iterator[tuple[Wrap, RankCall]]:
    """The wrappers that are given a hook, and where."""
    for call in run.methods("register_comm_hook"):
        yield from ((wrap, call) for wrap in wraps(run) if receives(call, wrap.wrapper))


def averages(call: RankCall) -> bool:
    """Whether a hook is torch's own, which give the mean."""
    hook = call.arg(1, "hook")
    return hook is not None and all(t.name.startswith(_TORCH) for t in hook.things)


def summing(hook: FunctionDefinition) -> Site | None:
    """The collective of a hook that surely gives a sum: nothing in it divides or multiplies."""
    nodes = list(ast.walk(hook.node))
    inner = {one.name for one in nodes if isinstance(one, ast.FunctionDef)}
    calls = [one for one in nodes if isinstance(one, ast.Call)]
    scaled = any(isinstance(getattr(one, "op", None), _SCALES) for one in nodes if _scales(one))
    if scaled or not {last_name(one.func) for one in calls} <= _PLAIN | _COUNTS | inner:
        return None
    found = [one for one in calls if last_name(one.func) == "all_reduce"]
    sums = len(found) == 1 and _adds(found[0])
    return hook.module.site(found[0]) if sums else None


def _scales(node: ast.AST) -> bool:
    """Not ``sent += small.numel() * small.element_size()``, which counts bytes."""
    calls = {last_name(one.func) for one in ast.walk(node) if isinstance(one, ast.Call)}
    return not calls or not calls <= _COUNTS


def _adds(call: ast.Call) -> bool:
    op = next((one.value for one in call.keywords if one.arg == "op"), None)
    op = call.args[1] if op is None and len(call.args) > 1 else op
    return op is None or ast.unparse(op).endswith(".SUM")
