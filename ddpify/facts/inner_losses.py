"""Losses that a model computes in its own ``forward``, from the targets that it is given.

What layers do is not read: an output has the samples of the inputs. A loss has not, and what it is
a sum or a mean of stands at the call that makes it. ::

    def forward(self, x, y=None):
        scores, loss = self.body(x), None
        if y is not None:
            loss = F.cross_entropy(scores.view(-1, 9), y.view(-1), ignore_index=-1)
        return scores, loss
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from ddpify.facts import entering, inner_means
from ddpify.facts.call_events import is_told
from ddpify.facts.coupling import transposed
from ddpify.facts.criteria import is_loss
from ddpify.facts.details import Bypass
from ddpify.facts.events import Call
from ddpify.facts.fresh import method_of
from ddpify.facts.locality import is_local
from ddpify.facts.measures import ENTRIES
from ddpify.facts.places import KEEPS, MERGES
from ddpify.facts.protocol import Machine
from ddpify.facts.roles import itself
from ddpify.facts.rows import has_rows
from ddpify.facts.scopes import Frame, FunctionInfo
from ddpify.facts.tree import Tree
from ddpify.facts.values import Kind, Measure, Thing, Value, one
from ddpify.facts.written_parts import made_of, parts_in, parts_of

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_PERHAPS = (ast.For, ast.While, ast.Try, ast.Match, ast.BoolOp, ast.Lambda, *_COMPREHENSIONS)
PRODUCTS = frozenset({"mm", "matmul"})
PAIRS = frozenset({"einsum", "cdist", "pdist"})
FUNCTIONAL = "torch.nn.functional."


def with_losses(m: Machine, f: Frame, model: Thing, whole: Value, event: Call) -> Value:
    """``whole``, the output of a model, with the losses among what it returns as what they are."""
    info = method_of(model, "forward")
    if info is None or isinstance(info.node, ast.Lambda) or not is_told(m, event):
        return whole
    reading = _Reading(m, f, model, info, whole, event)
    returned = [n.value for n in reading.tree.nodes(info.node) if isinstance(n, ast.Return)]
    compares = info.module.source.once(_compares, info.node)
    if len(returned) != 1 or returned[0] is None or compares:
        return whole
    if not whole.of(Kind.TUPLE, Kind.DICT, Kind.INSTANCE):
        return reading.loss(returned[0]) or reading.mean() or whole
    written, made = parts_of(returned[0], info, {}), whole.things[0]
    parts = parts_in(made)
    if written is None or len(written.values) != len(parts):
        return whole
    losses = [reading.loss(part) for part in written.values]
    if not any(losses):
        return whole
    given = [v for v in (*event.args, *event.kwargs.values()) if v.measure is not Measure.UNIFORM]
    rows = all(has_rows(value) for value in given)  # what is no loss is of the samples alone
    each = zip(parts.items(), losses, strict=True)
    left = {key: loss or part.but(rows=rows) for (key, part), loss in each}
    return whole.but(things=(made_of(made, left),))


def _is_own(dep: Thing) -> bool:
    """Whether it is what one of the model's own layers gives, or what leads back to that."""
    graph = dep.stands_for if dep.kind is Kind.GRAPH else ()
    return any(thing.detail(Bypass) is not None for thing in (dep, *graph))


@dataclass
class _Reading:
    """One call of a ``forward``, of which nothing is read but what makes the losses."""

    m: Machine
    f: Frame
    model: Thing
    info: FunctionInfo
    whole: Value
    event: Call
    tree: Tree = field(init=False)
    bound: dict[str, list[ast.AST]] = field(init=False)

    def __post_init__(self) -> None:
        self.tree = self.m.tree(self.info.site.path)
        self.bound = self.info.module.source.once(_stores, self.info.node)

    def loss(self, returned: ast.expr) -> Value | None:
        """What a criterion gives that is returned as it is, or under one name."""
        call = self._made(returned)
        if call is None:
            return None
        frame = self._frame(call)
        if frame is None or not self._is_criterion(frame, _weighed(call)):
            return None
        value = self.m.evaluate(frame, call)
        deps = {dep for dep in value.deps if not _is_own(dep)}
        return value.but(deps=self.whole.deps | deps)

    def mean(self) -> Value | None:
        """The mean over the batch that is returned, as critics do."""
        averages = self.info.module.source.once(inner_means.is_mean, self.info.node)
        return Value((), self.whole.deps, Measure.MEAN) if averages else None

    def _made(self, returned: ast.expr) -> ast.Call | None:
        if isinstance(returned, ast.Name):
            given = [self.tree.parent(node) for node in self.bound.get(returned.id, ())]
            if not all(isinstance(one, ast.Assign) for one in given):
                return None
            values = [one.value for one in given if isinstance(one, ast.Assign)]
            made = [v for v in values if not _is_none(v)]
            returned = made[0] if len(made) == 1 else returned
        if isinstance(returned, ast.IfExp):  # `F.cross_entropy(x, y) if y is not None else None`
            made = [v for v in (returned.body, returned.orelse) if not _is_none(v)]
            returned = made[0] if len(made) == 1 else returned
        return returned if isinstance(returned, ast.Call) else None

    def _frame(self, call: ast.Call) -> Frame | None:
        """Where the call is made; None where it may be made not at all, or more than once."""
        stands = self.tree.statement(self.tree.site(call))
        event = self.event
        frame = entering.frame_of(self.f, self.info, event.site)
        own = (one(itself(self.model)), *event.args)
        sites = (event.callee, *event.arg_sites)
        kwargs = (event.kwargs, sites, event.kwarg_sites)
        entering.bind_parameters(self.m, frame, self.info, own, *kwargs)
        if stands is None:
            return None
        frame.statement = self.tree.site(stands)
        plain = {name for name in frame.env if self._is_given(name)}
        for name in self.bound.keys() - plain:
            frame.env[name] = self.whole.but(things=())
        if not self._holds(frame, call, plain):
            return None
        return frame if self._targets(call) <= plain else None

    def _is_given(self, name: str) -> bool:
        """Whether a parameter is bound to nothing but itself, ``targets = targets.view(b * t)``."""
        stores = [self.tree.parent(node) for node in self.bound.get(name, ())]
        return all(isinstance(one, ast.Assign) and _reshaped(one.value) == name for one in stores)

    def _holds(self, frame: Frame, call: ast.Call, plain: set[str]) -> bool:
        """Whether the conditions around a call are the same on all ranks."""
        below: ast.AST = call
        for above in self.tree.ancestors(call):
            if above is self.info.node:
                return True
            match above:
                case ast.IfExp(test=test, body=body):
                    alike = below is not test and self._alike(frame, test, below is body, plain)
                case ast.If(test=test, body=statements):
                    alike = self._alike(frame, test, below in statements, plain)
                case _:
                    alike = not isinstance(above, _PERHAPS)
            if not alike:
                return False
            below = above
        return False

    def _alike(self, frame: Frame, asked: ast.expr, holds: bool, plain: set[str]) -> bool:
        given, there = _asked(asked)
        if given in plain and frame.env[given].measure in ENTRIES and not frame.env[given].known:
            return holds is there  # a tensor that is given is not None
        test = self.m.evaluate(frame, asked)
        if test.decided:
            return bool(test.const) is holds
        self.m.hold(frame, test, self.tree.site(asked), holds)
        return not is_local(self.m, test)

    def _is_criterion(self, frame: Frame, call: ast.Call) -> bool:
        callee = self.m.evaluate(frame, call.func)
        functions = [t.name for t in callee.of(Kind.EXTERNAL)]
        plain = [n for n in functions if n.startswith(FUNCTIONAL) and is_loss(n)]
        criteria = [t for t in callee.of(Kind.CRITERION) if t.ref is None]
        return bool(callee.things) and len(plain) + len(criteria) == len(callee.things)

    def _targets(self, call: ast.Call) -> set[str]:
        """The names in what the outputs are compared with, each an input of the model."""
        call = _weighed(call)
        given = [k.value for k in call.keywords if k.arg == "target"] or call.args[1:2]
        return set(_names(given[0])) if given else {""}


def _stores(function: ast.AST) -> dict[str, list[ast.AST]]:
    """Where each name is bound."""
    found: dict[str, list[ast.AST]] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.setdefault(node.id, []).append(node)
    return found


def _compares(function: ast.AST) -> bool:
    """Whether samples may be compared with each other: `rows @ rows.t()`."""
    nodes = list(ast.walk(function))
    products = [n for n in nodes if isinstance(n, ast.BinOp) and isinstance(n.op, ast.MatMult)]
    calls = [n for n in nodes if isinstance(n, ast.Call)]
    if any(_last(n.func) in PAIRS for n in calls):
        return True
    calls = [n for n in calls if _last(n.func) in PRODUCTS]
    operands = [o for n in products for o in (n.left, n.right)]
    operands += [o for n in calls for o in (n.func, *n.args)]
    return any(transposed(o) and not ast.unparse(o).startswith("self.") for o in operands)


def _weighed(call: ast.Call) -> ast.Call:
    """The criterion's call, also where a migration has made its mean that of all ranks."""
    inner = call.args[0] if call.args and _last(call.func) == "global_mean" else None
    return inner if isinstance(inner, ast.Call) else call


def _is_none(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


def _last(name: ast.expr) -> str:
    return ast.unparse(name).rpartition(".")[2]


def _names(node: ast.expr) -> Iterator[str]:
    return (n.id for n in ast.walk(node) if isinstance(n, ast.Name))


def _asked(test: ast.expr) -> tuple[str, bool]:
    """``y`` of ``y is not None``, of ``y is None``, and whether it holds where there is one."""
    match test:
        case ast.Compare(
            left=ast.Name(id=name),
            ops=[(ast.Is() | ast.IsNot()) as asked],
            comparators=[ast.Constant(value=None)],
        ):
            return name, isinstance(asked, ast.IsNot)
    return "", False


def _reshaped(value: ast.expr) -> str:
    """``y`` of ``y.view(-1)``, of ``y.contiguous().long()``."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        if value.func.attr not in KEEPS | MERGES:
            return ""
        value = value.func.value
    return value.id if isinstance(value, ast.Name) else ""
