"""Whether a function computes with parameters, gradients, state and numbers alone, by its text.

    def warmup(x, share):
        return x / share if x < share else 0.5 * (1 + math.cos(math.pi * x))

What it uses from outside has to be listed here, be a constant, or such a function.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from dataclasses import dataclass

from ddpify.facts.scopes import FunctionInfo, ModuleInfo
from ddpify.facts.tree import is_name
from ddpify.facts.values import NOTHING, Kind, Value
from ddpify.python import words

_OWN = frozenset("param_groups state defaults".split())
_BUILTINS = frozenset(
    """abs all any bool dict divmod enumerate filter float hasattr id int isinstance iter
    len list map max min next print range repr reversed round set sorted str sum super tuple type
    zip""".split()
)
_TORCH = frozenset(
    """Tensor abs add addcdiv addcmul atan atan2 baddbmm bmm cat clamp clamp_max clamp_min cos
    cosh diag div dot enable_grad exp eye finfo flatten float16 float32 float64 full full_like
    is_complex is_floating_point is_tensor isfinite isinf isnan kron lerp log matmul max maximum
    mean min minimum mm mul no_grad norm numel ones ones_like outer pow preserve_format reciprocal
    relu reshape round rsqrt sigmoid sign sin softmax sparse_coo_tensor sqrt square squeeze stack
    std sub sum tanh tensor trace transpose unsqueeze var view_as_complex view_as_real where zeros
    zeros_like""".split()
)
_NUMPY = frozenset(
    "abs ceil clip cos exp floor inf isnan log log2 maximum mean minimum pi power sign sin sqrt"
    " tanh".split()
)
_FROM = words.COPIES | {words.CHAIN, words.WARNS, *words.CLIPS}
_FROM |= frozenset("""collections.OrderedDict collections.defaultdict functools.reduce operator.mul
    torch.nn.utils.clip_grad_value_ torch.nn.Parameter torch.linalg.norm torch.linalg.vector_norm
    torch.optim.optimizer.required""".split())
_LIBRARIES = {"torch": _TORCH, "numpy": _NUMPY}
# What a method of a tensor does beyond computing: it draws, takes gradients, calls back, leaves
# this process, or has what lay in memory.
_DOES_MORE = frozenset(
    """backward bernoulli bernoulli_ cauchy_ data_ptr empty exponential_ geometric_ log_normal_
    multinomial new new_empty normal_ random_ register_hook register_post_accumulate_grad_hook
    register_forward_hook register_forward_pre_hook register_step_post_hook
    register_step_pre_hook resize_ resize_as_ share_memory_ tofile uniform_""".split()
)
_TRAITS = frozenset(
    "T data device dtype grad is_cuda is_leaf is_sparse layout ndim requires_grad shape".split()
)
_UNKNOWN_TO_IT = (ast.ClassDef, ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal)
_FLOWS_OTHERWISE = (ast.Yield, ast.YieldFrom, ast.Await, ast.NamedExpr, ast.AsyncFunctionDef)
DEPTH = 4


@dataclass(frozen=True)
class Allowed:
    """What the text of a function may use beside what everyone may."""

    module: ModuleInfo
    classes: frozenset[str] = frozenset()  # by name: ``super(Own, self)``
    kept: frozenset[str] = frozenset()  # what methods keep in ``self``, and they themselves
    closures: tuple[str, ...] = ()  # arguments that it may call
    method: bool = True
    depth: int = DEPTH


class PlainText:
    """One function: what names mean there, and whether all that it uses is allowed."""

    def __init__(self, use: Allowed, node: ast.FunctionDef) -> None:
        self._use, self._node = use, node
        given = node.args
        args = [*given.posonlyargs, *given.args, *given.kwonlyargs]
        args += [arg for arg in (given.vararg, given.kwarg) if arg is not None]
        self._nodes = tuple(_computing(node))
        lambdas = (n for n in self._nodes if isinstance(n, ast.Lambda))
        args += [arg for one in lambdas for arg in one.args.args]
        names = [n for n in self._nodes if isinstance(n, ast.Name)]
        stored = {n.id for n in names if not isinstance(n.ctx, ast.Load)}
        self._called = {n.func for n in self._nodes if isinstance(n, ast.Call)}
        self._local = stored | {arg.arg for arg in args}
        copied = {ast.unparse(n.value) for n in self._called if _is(n, "copy_")}  # type: ignore[attr-defined]
        assigned = (n for n in self._nodes if isinstance(n, ast.Assign))
        filled = (n for n in assigned if any(ast.unparse(t) in copied for t in n.targets))
        self._filled = {n.value.func for n in filled if isinstance(n.value, ast.Call)}

    def is_plain(self) -> bool:
        return all(map(self._is_allowed, self._nodes))

    def _is_allowed(self, node: ast.AST) -> bool:
        if isinstance(node, (*_UNKNOWN_TO_IT, *_FLOWS_OTHERWISE, ast.FunctionDef)):
            return False
        if isinstance(node, ast.Attribute):
            return self._is_read(node)
        if isinstance(node, ast.Call):
            called = node.func
            return isinstance(called, ast.Attribute) or self._is_function(called)
        return not isinstance(node, ast.Name) or node.id in self._local or self._is_known(node.id)

    def _is_function(self, node: ast.expr) -> bool:
        """A name that is not a variable's; the closure alone, which nobody gives it (`roles`)."""
        if isinstance(node, ast.Subscript):  # `SCHEDULES[name](...)`
            table = node.value
            return isinstance(table, ast.Name) and table.id not in self._local
        if not isinstance(node, ast.Name):
            return False
        if node.id not in self._local or node.id in self._use.closures:
            return True
        assigned = [n for n in self._nodes if isinstance(n, ast.Assign)]
        bound = [n.value for n in assigned if any(is_name(t, node.id) for t in n.targets)]
        stored = [n for n in self._nodes if is_name(n, node.id) and isinstance(n.ctx, ast.Store)]  # type: ignore[attr-defined]
        own = len(stored) == len(bound) > 0
        return own and all(isinstance(v, ast.Subscript) and self._is_function(v) for v in bound)

    def _is_read(self, node: ast.Attribute) -> bool:
        base = node.value
        if isinstance(base, ast.Call) and ast.unparse(base.func) == "super":
            return not node.attr.startswith("register")
        if self._is_of_library(node):
            return True
        if isinstance(base, ast.Name) and base.id not in self._local:
            return node in self._called and self._is_logger(base.id)
        if isinstance(base, ast.Name) and base.id == "self" and self._use.method:
            known = _OWN | self._use.kept
            return node.attr in known or isinstance(node.ctx, ast.Store)
        if node in self._called:
            return node.attr not in _DOES_MORE and not node.attr.startswith("__")
        return node.attr in _TRAITS

    def _is_of_library(self, node: ast.expr) -> bool:
        """``math.sqrt``, ``torch.nn.utils.clip_grad_norm_``, and what leads there."""
        names = ast.unparse(node).split(".")
        if not names[0].isidentifier() or names[0] in self._local:
            return False
        library = self._external(names[0])
        full = ".".join([library, *names[1:]])
        listed = _LIBRARIES.get(full.rpartition(".")[0], frozenset())
        leads = any(one.startswith(f"{full}.") for one in _FROM)
        raw = full == "torch.empty_like" and node in self._filled
        return bool(library) and (
            library == "math" or full in _FROM or names[-1] in listed or leads or raw
        )

    def _is_known(self, name: str) -> bool:
        """A name from outside: of the language, of torch, or of the project, and plain."""
        if name not in self._use.module.globals:
            made = getattr(builtins, name, None)
            raised = isinstance(made, type) and issubclass(made, Exception)
            return name in _BUILTINS or raised
        if name in self._use.classes or self._is_logger(name):
            return True
        library = self._external(name)
        if library:
            leads = library in ("torch", "numpy", "math", "copy", "warnings", "itertools")
            return leads or library in _FROM or library.startswith("torch.optim.")
        return self._is_plain_value(self._use.module.globals[name])

    def _is_plain_value(self, value: Value) -> bool:
        """A number, a plain function, or a table of those."""
        if value.known:
            return True
        return bool(value.things) and all(self._is_plain_thing(t) for t in value.things)

    def _is_plain_thing(self, thing: object) -> bool:
        ref, keys = getattr(thing, "ref", None), getattr(thing, "keys", None)
        if keys is not None:
            return bool(keys) and all(map(self._is_plain_value, keys.values()))
        if not isinstance(ref, FunctionInfo) or not self._use.depth or ref.decorators:
            return False
        if not isinstance(ref.node, ast.FunctionDef) or ref.owner or ref.closure:
            return False
        use = Allowed(ref.module, method=False, depth=self._use.depth - 1)
        return PlainText(use, ref.node).is_plain()

    def _is_logger(self, name: str) -> bool:
        things = self._use.module.globals.get(name, NOTHING).things
        return bool(things) and all(t.kind is Kind.LOGGER for t in things)

    def _external(self, name: str) -> str:
        things = self._use.module.globals.get(name, NOTHING).things
        return things[0].name if len(things) == 1 and things[0].kind is Kind.EXTERNAL else ""


def _computing(node: ast.FunctionDef) -> Iterator[ast.AST]:
    """All of a function but annotations, which compute nothing."""
    args = node.args
    defaults = [d for d in (*args.defaults, *args.kw_defaults) if d is not None]
    todo: list[ast.AST] = [*node.decorator_list, *defaults, *node.body]
    while todo:
        each = todo.pop()
        yield each
        skipped = each.annotation if isinstance(each, ast.AnnAssign) else None
        todo += [child for child in ast.iter_child_nodes(each) if child is not skipped]


def _is(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == name
