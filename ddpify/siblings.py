"""Scripts beside a migrated program that load what it saves, and no longer can."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from pathlib import Path

from ddpify import discover
from ddpify.rules.base import Finding, Severity
from ddpify.site import Site
from ddpify.source import Source, UnreadableSource

_WRAPPER = "DataParallel"
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)


def findings(root: Path, read: Collection[str], mended: Collection[Site]) -> Iterator[Finding]:
    """Where another script below ``root`` loads a checkpoint into an ``nn.DataParallel``.

    ``read`` are the files of the program itself, which saved with ``module.`` before its keys where
    it ran on several GPUs, and does so no more; what it runs of them is ``mended``, a function that
    another script calls (``test.py``, which it imports from) is not.
    """
    lines = {(site.path, site.span.line) for site in mended}
    for file in discover.python_files(root):
        path = file.relative_to(root).as_posix()
        raw = file.read_bytes()
        trains = b".backward(" in raw or b"ddp_utils" in raw  # it loads what it saves itself
        if b"DataParallel" in raw and b".load_state_dict(" in raw and (path in read or not trains):
            yield from _in_script(file, path, {line for at, line in lines if at == path})


def _in_script(file: Path, path: str, mended: set[int]) -> Iterator[Finding]:
    try:
        source = Source.read(file, path)
        tree = source.parse()
    except UnreadableSource:
        return
    imported = (n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom))
    aliases = [alias for node in imported for alias in node.names if alias.name == _WRAPPER]
    names = {alias.asname or alias.name for alias in aliases}
    for scope in (node for node in ast.walk(tree) if isinstance(node, _SCOPES)):
        for call in _loads(scope, names, mended):
            yield Finding(
                "DDP603",
                source.site(call),
                "this loads into an nn.DataParallel, whose keys begin with `module.`: those of"
                " the migrated script's checkpoints do not",
                Severity.WARNING,
                advice="load before the model is wrapped, or into its `.module`",
            )


def _wraps(value: ast.expr, names: Collection[str]) -> bool:
    """``nn.DataParallel(net).cuda()``, or by what it is imported as; no DistributedDataParallel."""
    calls = (node.func for node in ast.walk(value) if isinstance(node, ast.Call))
    return any(
        (
            func.attr == _WRAPPER
            if isinstance(func, ast.Attribute)
            else isinstance(func, ast.Name) and func.id in names
        )
        for func in calls
    )


def _loads(scope: ast.AST, names: Collection[str], mended: set[int]) -> Iterator[ast.Call]:
    """``net = nn.DataParallel(net)`` and then ``net.load_state_dict(…)`` of the same name.

    Neither of them on a line that is ``mended``.
    """
    wrapped: dict[str, int] = {}
    calls: list[ast.Call] = []
    todo = list(ast.iter_child_nodes(scope))
    while todo:
        node = todo.pop()
        if isinstance(node, _SCOPES):
            continue
        todo += ast.iter_child_nodes(node)
        if isinstance(node, (ast.Assign, ast.Call)) and mended & set(
            range(node.lineno, (node.end_lineno or node.lineno) + 1)
        ):
            continue
        if isinstance(node, ast.Assign) and _wraps(node.value, names):
            wrapped |= {ast.unparse(target): node.lineno for target in node.targets}
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            calls += [node] if node.func.attr == "load_state_dict" else []
    for call in calls:
        name = ast.unparse(call.func).removesuffix(".load_state_dict")
        if call.lineno > wrapped.get(name, call.lineno):
            yield call
