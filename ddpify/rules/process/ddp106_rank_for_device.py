"""DDP106: the global rank is used as the number of a GPU."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import TypeGuard

from ddpify.ranks.model import RANK, Call, Value
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples import changed
from ddpify.rules.examples.process import PROCESS, TRAINING
from ddpify.rules.shared.outputs import SPAWN
from ddpify.rules.shared.placing import choices, sources

# What a rank passes through and is still the rank.
_PLAIN = ("torch.distributed.", "builtins.", "os.", "torch.device")


def lint(run: Run) -> Iterable[Finding]:
    """Yield the first device whose number is the global rank."""
    if run.session is None or run.frameworks or any(run.named(SPAWN)):
        return
    for choice in choices(run):
        index = choice.index
        if index is None or not _is_rank(index) or choice.node is None:
            continue
        if not _is_computed(run, choice.call, choice.node, 4):
            yield Finding(
                "DDP106",
                choice.call.site,
                "the global rank as a GPU's number: `invalid device ordinal` on the second node",
                Severity.WARNING,
                advice="use the local rank, LOCAL_RANK, which counts from 0 on every node",
            )
            return


def _is_rank(index: Value) -> bool:
    """Whether a number was made of the rank that the program asked for, and of nothing else."""
    asked = all(o.kind == RANK and o.what in ("RANK", "get_rank()") for o in index.origins)
    whole = all(name.startswith(_PLAIN) for name in sources(index))
    return bool(index.origins) and asked and whole and index.atoms not in ((0, 0), (1, 1))


def _is_computed(run: Run, call: Call, node: ast.expr, depth: int) -> bool:
    """Whether there is arithmetic in an expression or in what its names were bound to.

    `rank % 8` is a local rank; with two ranks its values are those of the rank.
    """
    parts = list(ast.walk(node))
    if any(isinstance(p, ast.BinOp) and not isinstance(p.op, ast.Add) for p in parts):
        return True
    if not depth:
        return False
    names = {p.id for p in parts if isinstance(p, ast.Name)}
    keys = {p.attr for p in parts if isinstance(p, ast.Attribute)}
    bound = [s.node.value for s in run.stores if s.key in keys and isinstance(s.node, ast.Assign)]
    bound += list(_bindings(call, names))
    if any(value is not node and _is_computed(run, call, value, depth - 1) for value in bound):
        return True
    given = call.stack[-1] if call.stack and _takes(call, names) else None
    return given is not None and any(
        _is_computed(run, given, value, depth - 1)
        for value in (*given.node.args, *(k.value for k in given.node.keywords))
    )


def _bindings(call: Call, names: set[str]) -> Iterator[ast.expr]:
    """What these names are bound to, in the function of the call and at the top level."""
    around: list[ast.AST] = [*call.module.tree.body]
    if call.function is not None:
        around.append(call.function.node)
    for node in (inner for outer in around for inner in ast.walk(outer)):
        if isinstance(node, ast.Assign):
            bound = {t.id for target in node.targets for t in ast.walk(target) if _is_name(t)}
            if bound & names:
                yield node.value


def _is_name(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name)


def _takes(call: Call, names: set[str]) -> bool:
    """Whether a function has one of these names as a parameter."""
    if call.function is None:
        return False
    spec = call.function.node.args
    return any(a.arg in names for a in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs))


_SET_UP = """local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
"""

RULE = Rule(
    "DDP106",
    "rank-for-device",
    "The global rank counts over all nodes, GPUs count from 0 on each: on two nodes of eight, rank"
    " 8 asks for GPU 8 and stops with `invalid device ordinal`. It works only on one node.",
    "llama-cookbook#90, gpt-oss#266, LMCache#814; BUGS L02",
    bad=(
        changed(
            PROCESS,
            (
                _SET_UP,
                'dist.init_process_group("nccl")\n'
                "    torch.cuda.set_device(dist.get_rank())  # DDP106\n"
                "    local_rank = torch.cuda.current_device()\n",
            ),
        ),
        changed(
            TRAINING,
            ('int(os.environ["LOCAL_RANK"])', 'int(os.environ["RANK"])'),
            ("set_device(gpu)", "set_device(gpu)  # DDP106"),
        ),
    ),
    good=(
        PROCESS,
        TRAINING,
        changed(
            PROCESS,
            (
                _SET_UP,
                'dist.init_process_group("nccl")\n'
                "    local_rank = dist.get_rank() % torch.cuda.device_count()\n"
                "    torch.cuda.set_device(local_rank)\n",
            ),
        ),
    ),
    lint=lint,
    severity=Severity.WARNING,
)
