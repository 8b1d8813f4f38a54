"""Optimizers that the project writes itself, and that step as those of torch do.

    class Lion(Optimizer):
        def step(self, closure=None):
            for group in self.param_groups: ...

Each rank takes the same step if all that the text of the class can come by are parameters, their
gradients (which are averaged), its own state and numbers: no draw, no gradient that it takes
itself, no sample, no number of this rank. So it may use what is listed here; any other name, method
or attribute is a reason not to say so: hooks and other methods may put samples there.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator

from ddpify.facts.details import call_that_made
from ddpify.facts.joining import flat_deps
from ddpify.facts.library_classes import class_kind
from ddpify.facts.scopes import ClassInfo, FunctionInfo
from ddpify.facts.values import NOTHING, Kind, Thing

_METHODS = ("__init__", "step", "__setstate__")
_OWN = frozenset("param_groups state defaults".split())
_BUILTINS = frozenset(
    """abs all any bool dict enumerate float int isinstance len list max min range reversed round
    sorted str sum super tuple zip""".split()
)
_TORCH = frozenset(
    """abs add addcdiv addcmul bmm clamp div enable_grad eye float16 float32 float64 full_like
    is_complex is_tensor isfinite isinf isnan lerp log matmul max maximum mean min minimum mm mul
    no_grad norm ones ones_like outer pow preserve_format rsqrt sign sqrt stack sub sum tensor
    view_as_real where zeros zeros_like""".split()
)
# What a method of a tensor does beyond computing: it draws, takes gradients, calls back, leaves
# this process, or has what lay in memory.
_DOES_MORE = frozenset(
    """backward bernoulli bernoulli_ cauchy_ data_ptr empty exponential_ geometric_ log_normal_
    multinomial new new_empty normal_ random_ register_hook register_post_accumulate_grad_hook
    resize_ resize_as_ share_memory_ tofile uniform_""".split()
)
_TRAITS = frozenset("T data device dtype grad is_cuda is_sparse ndim requires_grad shape".split())
_GIVEN = frozenset({Kind.PARAMETERS, Kind.ARGUMENT})
_HOLDS = frozenset({Kind.TUPLE, Kind.DICT, Kind.ITERATOR})
_UNKNOWN_TO_IT = (ast.Lambda, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal)
_FLOWS_OTHERWISE = (ast.Yield, ast.YieldFrom, ast.Await, ast.NamedExpr, ast.AsyncFunctionDef)


def steps_as_torch(thing: Thing) -> bool:
    """Whether an optimizer of the project's is one that a library might have made."""
    if thing.kind is not Kind.OPTIMIZER or not isinstance(thing.ref, ClassInfo):
        return False
    return _given_numbers(thing) and all(_is_plain(info) for info in thing.ref.mro())


def _given_numbers(thing: Thing) -> bool:
    """Whether it is made from parameters and numbers alone."""
    call = call_that_made(thing)
    values = (*call.args, *call.kwargs.values()) if call is not None else (NOTHING,)
    kinds = {d.kind for value in values for d in flat_deps(value)}
    kinds |= {t.kind for value in values for t in value.things} - _HOLDS
    return call is not None and not call.star and kinds <= _GIVEN


def _is_plain(info: ClassInfo) -> bool:
    known = all(class_kind(name) is Kind.OPTIMIZER for name in info.external_bases())
    if not known or info.node.keywords or info.node.decorator_list:
        return False
    return all(_is_plain_part(info, node) for node in info.node.body)


def _is_plain_part(info: ClassInfo, node: ast.stmt) -> bool:
    if not isinstance(node, ast.FunctionDef):
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        return text or isinstance(node, ast.Pass)
    bound = info.env.get(node.name, NOTHING).things  # `Lion.step = other` may have followed
    written = [t.ref for t in bound if isinstance(t.ref, FunctionInfo) and t.ref.node is node]
    return len(written) == len(bound) == 1 and _PlainText(info, node).is_plain()


class _PlainText:
    """One method: what names mean there, and whether all that it uses is allowed."""

    def __init__(self, info: ClassInfo, node: ast.FunctionDef) -> None:
        self._info, self._node = info, node
        given = node.args
        self._given = [arg.arg for arg in (*given.posonlyargs, *given.args)]
        names = (n for n in self._nodes() if isinstance(n, ast.Name))
        stored = {n.id for n in names if not isinstance(n.ctx, ast.Load)}
        self._called = {n.func for n in self._nodes() if isinstance(n, ast.Call)}
        self._local = stored | {*self._given, *(arg.arg for arg in given.kwonlyargs)}

    def is_plain(self) -> bool:
        args = self._node.args
        if (
            self._node.name not in _METHODS
            or not self._given
            or args.vararg is not None
            or args.kwarg is not None
        ):
            return False
        if self._node.name == "step" and (len(self._given) > 2 or args.kwonlyargs):
            return False
        return all(map(self._is_allowed, self._nodes()))

    def _nodes(self) -> Iterator[ast.AST]:
        """All of it but annotations, which compute nothing."""
        args = self._node.args
        defaults = (d for d in (*args.defaults, *args.kw_defaults) if d is not None)
        for part in (*self._node.decorator_list, *defaults, *self._node.body):
            yield from ast.walk(part)

    def _is_allowed(self, node: ast.AST) -> bool:
        if isinstance(node, (*_UNKNOWN_TO_IT, *_FLOWS_OTHERWISE, ast.FunctionDef, ast.AnnAssign)):
            return False
        if isinstance(node, ast.Attribute):
            return self._is_read(node)
        if isinstance(node, ast.Call):
            called = node.func
            return isinstance(called, ast.Attribute) or self._is_function(called)
        return not isinstance(node, ast.Name) or node.id in self._local or self._is_known(node.id)

    def _is_function(self, node: ast.expr) -> bool:
        """A name that is not a variable's; the closure alone, which nobody gives it (`roles`)."""
        closures = self._given[1:] if self._node.name == "step" else []
        return isinstance(node, ast.Name) and (node.id not in self._local or node.id in closures)

    def _is_read(self, node: ast.Attribute) -> bool:
        base = node.value
        if isinstance(base, ast.Call) and ast.unparse(base.func) == "super":
            return node.attr in _METHODS
        if isinstance(base, ast.Name) and base.id not in self._local:
            library = self._external(base.id)
            return library == "math" or (library == "torch" and node.attr in _TORCH)
        if isinstance(base, ast.Name) and base.id == self._given[0]:
            return node.attr in _OWN or isinstance(node.ctx, ast.Store)
        if node in self._called:
            return node.attr not in _DOES_MORE and not node.attr.startswith("__")
        return node.attr in _TRAITS

    def _is_known(self, name: str) -> bool:
        """A name from outside: of the language, of torch, or one of these classes."""
        if name in self._info.module.globals:
            things = self._info.module.globals[name].things
            mine = bool(things) and all(t.ref in self._info.mro() for t in things)
            library = self._external(name)
            return mine or library in ("torch", "math") or library.startswith("torch.optim.")
        made = getattr(builtins, name, None)
        raised = isinstance(made, type) and issubclass(made, Exception)
        return name in _BUILTINS or raised

    def _external(self, name: str) -> str:
        things = self._info.module.globals.get(name, NOTHING).things
        return things[0].name if len(things) == 1 and things[0].kind is Kind.EXTERNAL else ""
