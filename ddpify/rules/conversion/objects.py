"""The settings of FSDP1 that are objects become those of FSDP2 where they are made.

So they go the ways that they went: through functions, files and conditions.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Final

from ddpify.facts.tree import Tree
from ddpify.rules.conversion.code import NamedArguments, NoCounterpart
from ddpify.rules.conversion.names import called

_MIXED: Final = (
    "param_dtype reduce_dtype buffer_dtype keep_low_precision_grads cast_forward_inputs"
    " cast_root_forward_inputs"
).split()
_MIXED_ALONE: Final = {
    "keep_low_precision_grads": "leave it out: gradients have their weights' type",
    "cast_forward_inputs": "leave it out: then the model alone casts what it is given",
}
_FULL: Final = "StateDictOptions(full_state_dict=True"
_SCALED = "device init_scale backoff_factor growth_factor growth_interval enabled".split()
# Modules whose weights others use without calling them.
_LISTS: Final = "(nn.ModuleList, nn.ModuleDict, nn.modules.linear.NonDynamicallyQuantizableLinear)"


def text(tree: Tree, node: ast.expr) -> str:
    """An expression with the objects in it made those of FSDP2. Raises NoCounterpart."""
    base, found = tree.site(node).span, tree.text(node)
    lines = found.splitlines(keepends=True)
    for inner in reversed(list(made(tree, node))):
        span = tree.site(inner).span
        first = span.column - (base.column if span.line == base.line else 0)
        last = span.end_column - (base.column if span.end_line == base.line else 0)
        row, end = span.line - base.line, span.end_line - base.line
        lines[row : end + 1] = [lines[row][:first] + converted(tree, inner) + lines[end][last:]]
    return "".join(lines)


def made(tree: Tree, scope: ast.AST) -> Iterator[ast.expr]:
    """The objects made in a part of a file, in order of place, the outer of two."""
    found = [node for node in ast.walk(scope) if isinstance(node, ast.expr) and _way(tree, node)]
    for node in sorted(found, key=lambda one: (one.lineno, one.col_offset)):
        if not any(node in ast.walk(other) and node is not other for other in found):
            yield node


def converted(tree: Tree, node: ast.expr) -> str:
    """The code of an object. Raises NoCounterpart."""
    way = _way(tree, node)
    assert way is not None
    return way(tree, node)


def predicate(tree: Tree, node: ast.expr, module: str) -> str:
    """The condition on ``module`` that a policy is, where it is written there; else empty."""
    way = _TESTS.get(called(tree, node))
    return way(tree, node, module) if way is not None and isinstance(node, ast.Call) else ""


def _way(tree: Tree, node: ast.expr) -> Callable[[Tree, ast.expr], str] | None:
    name = called(tree, node)
    return _policy if name in _TESTS else _WAYS.get(name)


def _policy(tree: Tree, node: ast.expr) -> str:
    code = f"lambda module: {predicate(tree, node, 'module')}"
    ends = isinstance(tree.parent(node), ast.Assign | ast.Return | ast.keyword)
    return code if ends else f"({code})"


def _call(node: ast.expr) -> ast.Call:
    assert isinstance(node, ast.Call)
    return node


def _mixed(tree: Tree, node: ast.expr) -> str:
    given = NamedArguments.of(tree, _call(node), _MIXED)
    for name, way in _MIXED_ALONE.items():
        if given.flag(name, False):
            given.refuse({name: way})
    kept = [(name, given.get(name)) for name in _MIXED[:2]]
    words = [f"{name}={tree.text(one)}" for name, one in kept if one]
    if not given.flag("cast_root_forward_inputs", True):
        words.append("cast_forward_inputs=False")
    return f"MixedPrecisionPolicy({', '.join(words)})"


def _offload(tree: Tree, node: ast.expr) -> str:
    given = NamedArguments.of(tree, _call(node), ["offload_params"])
    on = given.flag("offload_params", False)
    return "CPUOffloadPolicy(pin_memory=cuda.is_available())" if on else "OffloadPolicy()"


def _full(tree: Tree, node: ast.expr) -> str:
    given = NamedArguments.of(tree, _call(node), ["offload_to_cpu", "rank0_only"])
    weights = called(tree, node) == "FullStateDictConfig"
    offload = given.flag("offload_to_cpu", not weights)
    return (
        f"{_FULL}, cpu_offload=True)"
        if offload and given.flag("rank0_only", False)
        else f"{_FULL})"
    )


def _sharded(tree: Tree, node: ast.expr) -> str:
    given = NamedArguments.of(tree, _call(node), ["offload_to_cpu"])
    weights = called(tree, node) == "ShardedStateDictConfig"
    offload = given.flag("offload_to_cpu", not weights)
    return f"StateDictOptions({'cpu_offload=True' if offload else ''})"


def _scaler(tree: Tree, node: ast.expr) -> str:
    given = NamedArguments.of(tree, _call(node), _SCALED)
    words = [f"{name}={tree.text(one)}" for name, one in given.by_name.items() if name != "device"]
    device = given.by_name.get("device")
    first = tree.text(device) if device is not None else '"cuda"'
    return f"GradScaler({', '.join([first, *words])})"


def _classes(tree: Tree, node: ast.Call, module: str) -> str:
    names = {word.arg: word.value for word in node.keywords}
    given = names.get("transformer_layer_cls") or names.get("module_classes")
    if called(tree, node) == "ModuleWrapPolicy" and node.args:
        given = node.args[0]
    if given is None:
        raise _unclear(tree, node)
    if isinstance(given, ast.Set | ast.List | ast.Tuple) and given.elts:
        classes = [tree.text(one) for one in given.elts]
        wanted = classes[0] if len(classes) == 1 else f"({', '.join(classes)})"
        return f"isinstance({module}, {wanted})"
    return f"isinstance({module}, tuple({tree.text(given)}))"


def _asked(tree: Tree, node: ast.Call, module: str) -> str:
    given = next((word.value for word in node.keywords if word.arg == "lambda_fn"), None)
    if given is None:
        raise _unclear(tree, node)
    asked = tree.text(given)
    return f"({asked})({module})" if isinstance(given, ast.Lambda) else f"{asked}({module})"


def _large(tree: Tree, node: ast.Call, module: str) -> str:
    words = {word.arg: word.value for word in node.keywords}
    if set(words) - {"min_num_params"} or len(node.args) > 1:
        raise _unclear(tree, node)
    least = tree.text(words["min_num_params"]) if words else "1e8"
    whole = f"p.numel() for p in {module}.parameters() if not isinstance(p, DTensor)"
    return f"sum({whole}) >= {least} and not isinstance({module}, {_LISTS})"


def _unclear(tree: Tree, node: ast.Call) -> NoCounterpart:
    what = f"which modules `{tree.text(node.func)}` chooses is not followed"
    return NoCounterpart(tree.site(node), what, "name their classes with ModuleWrapPolicy({…})")


_TESTS: Final[dict[str, Callable[[Tree, ast.Call, str], str]]] = {
    "transformer_auto_wrap_policy": _classes,
    "ModuleWrapPolicy": _classes,
    "lambda_auto_wrap_policy": _asked,
    "size_based_auto_wrap_policy": _large,
}
_WAYS: Final[dict[str, Callable[[Tree, ast.expr], str]]] = {
    "MixedPrecision": _mixed,
    "CPUOffload": _offload,
    "FullStateDictConfig": _full,
    "FullOptimStateDictConfig": _full,
    "ShardedStateDictConfig": _sharded,
    "ShardedOptimStateDictConfig": _sharded,
    "ShardedGradScaler": _scaler,
}
