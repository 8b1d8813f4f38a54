"""The names of FSDP1 in a file, whatever it calls them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from ddpify.facts.tree import Tree

_MODULE: Final = "torch.distributed.fsdp."
CLASS: Final = "FullyShardedDataParallel"
# What FSDP2 has of the same module.
_NEW: Final = frozenset(
    "fully_shard FSDPModule MixedPrecisionPolicy CPUOffloadPolicy OffloadPolicy UnshardHandle"
    " register_fsdp_forward_method".split()
)
# Choices without behaviour, which a program may keep in its settings.
CHOICES: Final = frozenset({"StateDictType", "ShardingStrategy", "BackwardPrefetch"})
_KNOWN: Final = CHOICES | frozenset(
    f"{CLASS} MixedPrecision CPUOffload FullStateDictConfig ShardedStateDictConfig"
    " LocalStateDictConfig FullOptimStateDictConfig ShardedOptimStateDictConfig"
    " LocalOptimStateDictConfig ShardedGradScaler ModuleWrapPolicy CustomPolicy wrap enable_wrap"
    " transformer_auto_wrap_policy size_based_auto_wrap_policy lambda_auto_wrap_policy"
    " always_wrap_policy".split()
)


def mentions(tree: Tree) -> Iterator[tuple[ast.expr, str]]:
    """Expressions that name something of FSDP1, and what: ``ShardingStrategy.FULL_SHARD``."""
    bound = _bound(tree)
    for node in tree.nodes():
        if not isinstance(node, ast.Name | ast.Attribute):
            continue
        parent = tree.parent(node)
        if isinstance(parent, ast.Attribute) and _dotted(parent, bound):
            continue
        if name := short(_dotted(node, bound)):
            yield node, name


def short(dotted: str) -> str:
    """``torch.distributed.fsdp.api.CPUOffload`` as ``CPUOffload``; "" for what is not FSDP1's."""
    if not dotted.startswith(_MODULE):
        return ""
    parts = dotted.removeprefix(_MODULE).split(".")
    if parts[0] in _NEW:
        return ""
    known = (n for n, part in enumerate(parts) if part in _KNOWN and part != "wrap")
    start = next(known, len(parts) - 1)
    return ".".join(parts[start:])


def called(tree: Tree, node: ast.AST) -> str:
    """What of FSDP1 a call calls, also through ``partial``; empty for another expression."""
    if not isinstance(node, ast.Call):
        return ""
    bound = _bound(tree)
    name = _dotted(node.func, bound)
    if name == "functools.partial" and node.args:
        return short(_dotted(node.args[0], bound))
    name = short(name)
    return f"{name}()" if name.endswith("_policy") else name  # a choice that is made there


def imports(tree: Tree) -> Iterator[ast.ImportFrom]:
    """The statements that import names of FSDP1."""
    for node in tree.nodes():
        if not isinstance(node, ast.ImportFrom) or node.level:
            continue
        if any(short(f"{node.module}.{alias.name}") for alias in node.names):
            yield node


@lru_cache(maxsize=256)
def _bound(tree: Tree) -> dict[str, str]:
    found: dict[str, str] = {}
    for node in tree.nodes():
        if isinstance(node, ast.Import):
            for one in node.names:
                top = one.name.partition(".")[0]
                found[one.asname or top] = one.name if one.asname else top
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            found |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
    return found


def dotted(tree: Tree, node: ast.AST) -> str:
    """The dotted name that an expression has by the imports of its file; empty for another."""
    return _dotted(node, _bound(tree))


def _dotted(node: ast.AST, bound: dict[str, str]) -> str:
    if isinstance(node, ast.Name):
        return bound.get(node.id, "")
    if isinstance(node, ast.Attribute):
        owner = _dotted(node.value, bound)
        return f"{owner}.{node.attr}" if owner else ""
    return ""
