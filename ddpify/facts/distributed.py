"""What says that a program is distributed already, run or not: a dead branch counts, too."""

from __future__ import annotations

import ast
from collections.abc import Iterator

NAMES = frozenset("""init_process_group DistributedDataParallel FullyShardedDataParallel fully_shard
    DistributedSampler init_device_mesh""".split())


def mentions(module: ast.Module) -> Iterator[tuple[ast.Call, str]]:
    """The calls in a file that only a distributed program makes."""
    for node in ast.walk(module):
        if isinstance(node, ast.Call):
            func = node.func
            name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
            if name in NAMES:
                yield node, name
