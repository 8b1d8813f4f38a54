"""DDP813: each rank draws for itself which layers a batch goes through."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Final

from ddpify.ranks.modules import ClassDefinition, FunctionDefinition, Module
from ddpify.ranks.run import Run
from ddpify.ranks.words import NUMPY, PYTHON, TORCH
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.gradients import trained
from ddpify.rules.shared.fields import classes_in, layers
from ddpify.rules.shared.seeds import Stream, stream
from ddpify.rules.shared.syntax import dotted
from ddpify.rules.shared.wrapped import forwards, wraps

_DRAWS: Final = {
    "random": (PYTHON, "random uniform choice choices randint randrange gauss sample"),
    "numpy.random": (NUMPY, "rand random uniform choice randint binomial randn random_sample"),
    "torch": (TORCH, "rand randn randint bernoulli randperm"),
}


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per random condition around a layer of a wrapped model."""
    for wrap in wraps(run):
        calls = forwards(run, wrap)
        flags = (wrap.flag("find_unused_parameters"), wrap.flag("static_graph"))
        if flags != (False, False) or not calls:
            continue
        for info in classes_in(run, (t.cls for t in wrap.inner if t.cls is not None)):
            for library, branch, draw, layer in _found(info, layers(run, info)):
                if stream(run, calls[0], library)[0] is not Stream.SAME:
                    yield _finding(info.module, branch, draw, layer)


def _found(
    info: ClassDefinition, layers: set[str]
) -> Iterator[tuple[str, ast.If, ast.Call, ast.expr]]:
    """What ``forward`` and the methods that it calls decide by a draw."""
    todo, seen = ["forward"], {"forward"}
    while todo:
        method = info.methods.get(todo.pop())
        if method is not None:
            yield from _Forward(method, layers).branches()
            called = {_spelled(n.func) for n in ast.walk(method.node) if isinstance(n, ast.Call)}
            todo += sorted(called & info.methods.keys() - seen)
            seen |= called


class _Forward:
    """The forward of one module, or a part of it: where a draw decides over its layers."""

    def __init__(self, info: FunctionDefinition, layers: set[str]) -> None:
        self.module = info.module
        self.node = info.node
        self.layers = layers
        self.layers = layers | self._of_loops()

    def branches(self) -> Iterator[tuple[str, ast.If, ast.Call, ast.expr]]:
        """(library, condition, draw, layer)."""
        for body in _bodies(self.node):
            for number, node in enumerate(body):
                draw = self._drawn(node.test) if isinstance(node, ast.If) else None
                if draw is None or not isinstance(node, ast.If):
                    continue
                leaves = any(isinstance(n, (ast.Return, ast.Continue)) for n in ast.walk(node))
                used = self._used(
                    [*node.body, *node.orelse, *(body[number + 1 :] if leaves else ())]
                )
                if used is not None:
                    yield draw[0], node, draw[1], used

    def _drawn(self, test: ast.expr) -> tuple[str, ast.Call] | None:
        """The draw in a condition, or behind a name in it."""
        names = {n.id for n in ast.walk(test) if isinstance(n, ast.Name)}
        tests = [test]
        for node in ast.walk(self.node):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                tests += [node.value] if node.targets[0].id in names else []
        for node in (below for one in tests for below in ast.walk(one)):
            if isinstance(node, ast.Call):
                start, _, name = (dotted(self.module, node.func) or "").rpartition(".")
                library, drawing = _DRAWS.get(start, ("", ""))
                if name in drawing.split() and not node.keywords:
                    return library, node
        return None

    def _used(self, body: list[ast.stmt]) -> ast.expr | None:
        """A layer with parameters that is called, or given to who calls it."""
        for node in (below for one in body for below in ast.walk(one)):
            if isinstance(node, ast.Call) and _spelled(node.func) in self.layers:
                return node
            given = node.value if isinstance(node, ast.Return) else None
            if given is not None and _spelled(given) in self.layers:
                return given
        return None

    def _of_loops(self) -> set[str]:
        """``layer`` in ``for layer in self.layers``."""
        found: set[str] = set()
        for node in ast.walk(self.node):
            if isinstance(node, ast.For):
                over = {_spelled(n) for n in ast.walk(node.iter) if isinstance(n, ast.Attribute)}
                if over & self.layers:
                    found |= {f".{n.id}" for n in ast.walk(node.target) if isinstance(n, ast.Name)}
        return found


def _spelled(node: ast.expr) -> str:
    """``name`` for ``self.name``, ``.name`` for a local one."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return node.attr if node.value.id == "self" else ""
    return f".{node.id}" if isinstance(node, ast.Name) else ""


def _bodies(root: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(root):
        for name in ("body", "orelse"):
            body = getattr(node, name, None)
            if isinstance(body, list):
                yield body


def _finding(module: Module, branch: ast.If, draw: ast.Call, layer: ast.expr) -> Finding:
    return Finding(
        "DDP813",
        module.site(branch.test),
        "each rank draws for itself whether this layer is used: where it is not, its gradients are"
        " missing, and DDP fails in the next step",
        Severity.ERROR,
        advice="draw from a generator that is seeded alike on all ranks, and set"
        " find_unused_parameters=True",
        because=(
            (module.site(draw), "drawn by each rank for itself"),
            (module.site(layer), "the layer"),
        ),
    )


def _net(draw: str) -> str:
    return f"""
import random


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(16, 16)
        self.second = nn.Linear(16, 16)
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        x = self.first(x)
        {draw}
        return self.head(x)
"""


_SETUP: Final = """
random.seed(dist.get_rank())
model = DDP(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""

RULE = Rule(
    "DDP813",
    "random-branch",
    "DDP waits in the backward for the gradient of every parameter. A layer that one rank skips and"
    " another uses, because each drew its own number, leaves gradients out: measured, 'Expected to"
    " have finished reduction in the prior iteration' on one rank and a closed connection on the"
    " other. With find_unused_parameters=True it runs.",
    "pytorch#112152; composer#9; BUGS C12",
    lint=lint,
    bad=(
        trained(
            _SETUP,
            top=_net("if random.random() < 0.5:  # DDP813\n            x = self.second(x)"),
        ),
        trained(
            _SETUP,
            top=_net(
                "draw = random.uniform(0, 1)\n        if draw > 0.9:  # DDP813\n"
                "            return self.head(x)\n        x = self.second(x)"
            ),
        ),
    ),
    good=(
        trained(
            _SETUP.replace("DDP(Net())", "DDP(Net(), find_unused_parameters=True)"),
            top=_net("if random.random() < 0.5:\n            x = self.second(x)"),
        ),
        trained(
            _SETUP,
            top=_net(
                "if random.random() < 0.5:\n            x = x.flip(-1)\n        x = self.second(x)"
            ),
        ),
    ),
)
