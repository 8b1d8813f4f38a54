"""The reader: runs a program on abstract values and keeps a record of what happens.

Functions are entered at every call with the values they are given, so one loader factory
called twice yields two loaders. Nothing of the user's code is executed or imported.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from ddpify.facts import (
    accumulators,
    assignments,
    attributes,
    calls,
    entering,
    expressions,
    functional,
    gradients,
    iteration,
    special,
    statements,
    wrapping,
)
from ddpify.facts.forms import AS_IT_STANDS, Target
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import ClassInfo, Frame, FunctionInfo, Loop, ModuleInfo
from ddpify.facts.values import Thing, Value
from ddpify.project import Project
from ddpify.source import Site

# Against hanging: the largest public program that was read took 42,000 steps.
BUDGET = 400_000
ENOUGH = 60_000  # where a file says that the program is distributed, which is refused anyway


class OutOfBudget(Exception):
    """The program is too large to follow; what was read so far is kept."""


class ProgramReader(Machine):
    """One reading of one entry script, in which each part does what the others ask of it."""

    def __init__(self, project: Project, target: Target = AS_IT_STANDS) -> None:
        super().__init__(project, target)
        self.wraps = dict(target.wraps)
        self.spent = 0
        self.entry: ModuleInfo | None = None
        self._judged: set[ClassInfo] = set()

    def run(self) -> ModuleInfo | None:
        """Read the entry as Python would run it. None when it cannot be read."""
        module = self.entry = self._load("__main__", self.project.entry)
        if module is None:
            return None
        try:
            self._run_module(module)
        except OutOfBudget:
            self.exhausted = True
        return module

    def spend(self) -> None:
        self.spent += 1
        if self.spent > (ENOUGH if self.distributed else BUDGET):
            raise OutOfBudget

    def execute(self, f: Frame, body: Sequence[ast.stmt]) -> bool:
        return statements.execute(self, f, body)

    def evaluate(self, f: Frame, node: ast.expr) -> Value:
        return expressions.evaluate(self, f, node)

    def call(self, f: Frame, node: ast.Call, alone: bool = False) -> Value:
        value = calls.call(self, f, node, alone)
        if alone:
            self.remember(f, node, value)
        return value

    def apply_wraps(self, f: Frame, site: Site) -> None:
        for home in self.wraps.get(site, ()):
            wrapping.apply(self, f, home)

    def close_loop(self, f: Frame, loop: Loop) -> None:
        accumulators.close_loop(self, f, loop)

    def without_grad(self, value: Value, before: bool) -> bool:
        return gradients.without_grad(value, before)

    def entered(self, f: Frame, value: Value) -> Value:
        return special.entered(self, f, value)

    def assign(
        self, f: Frame, target: ast.expr, value: Value, source: ast.expr | None = None
    ) -> None:
        assignments.assign(self, f, target, value, source)

    def attribute(self, f: Frame, base: Value, name: str, node: ast.AST) -> Value:
        return attributes.attribute(self, f, base, name, node)

    def element_of(self, f: Frame, value: Value) -> Value:
        return iteration.element_of(self, f, value)

    def enter(
        self,
        f: Frame | None,
        info: FunctionInfo,
        args: tuple[Value, ...],
        kwargs: dict[str, Value],
        site: Site,
        arg_sites: tuple[Site, ...] = (),
        kwarg_sites: Mapping[str, Site] | None = None,
    ) -> Value:
        return entering.enter(self, f, info, args, kwargs, site, arg_sites, kwarg_sites or {})

    def apply(self, f: Frame, function: Value, args: tuple[Value, ...], site: Site) -> Value:
        return calls.apply(self, f, function, args, site)

    def follows(self, info: ClassInfo, thing: Thing) -> bool:
        read = info in self._functions or info not in self._judged
        self._judged.add(info)
        if read and functional.is_function(self, info, thing):
            self._functions.add(info)
            return True
        return False
