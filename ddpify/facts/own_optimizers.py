"""Optimizers that the project writes itself, and that step as those of torch do.

    class Lion(Optimizer):
        def step(self, closure=None):
            for group in self.param_groups: ...

Each rank takes the same step if all that the text of the class can come by are parameters, their
gradients (which are averaged), its own state and numbers: no draw, no gradient that it takes
itself, no sample, no number of this rank. So it may use what is listed in `plain_texts`, its own
methods, and functions of the project that use no more; any other name, method or attribute is a
reason not to say so: hooks and other methods may put samples there.

Steps that a program takes itself, without an optimizer. ::

for p in model.parameters():
    p.data.add_(p.grad, alpha=-lr)      # or `p -= lr * p.grad`
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from ddpify.facts.details import Optimized, call_that_made
from ddpify.facts.events import Call
from ddpify.facts.joining import flat_deps
from ddpify.facts.library_classes import class_kind
from ddpify.facts.plain_texts import Allowed, PlainText
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import ClassInfo, Frame, FunctionInfo, ModuleInfo
from ddpify.facts.tree import Tree
from ddpify.facts.values import NOTHING, Kind, Thing, Value, one
from ddpify.source import Site

# What may be called from outside with arguments: those of a checkpoint, or parameters.
_METHODS = ("__init__", "step", "__setstate__", "load_state_dict", "add_param_group", "zero_grad")
_GIVEN = frozenset({Kind.PARAMETERS, Kind.ARGUMENT})
_HOLDS = frozenset({Kind.TUPLE, Kind.DICT, Kind.ITERATOR})


def steps_as_torch(thing: Thing, modules: Iterable[ModuleInfo]) -> bool:
    """Whether an optimizer of the project's is one that a library might have made."""
    if thing.kind is not Kind.OPTIMIZER or not isinstance(thing.ref, ClassInfo):
        return False
    line = thing.ref.mro()
    return _given_numbers(thing) and all(_is_plain(info, modules) for info in line)


def _given_numbers(thing: Thing) -> bool:
    """Whether it is made from parameters and numbers alone."""
    call = call_that_made(thing)
    values = (*call.args, *call.kwargs.values()) if call is not None else (NOTHING,)
    kinds = {d.kind for value in values for d in flat_deps(value)}
    kinds |= {t.kind for value in values for t in value.things} - _HOLDS
    return call is not None and not call.star and kinds <= _GIVEN


def _is_plain(info: ClassInfo, modules: Iterable[ModuleInfo]) -> bool:
    known = all(class_kind(name) is Kind.OPTIMIZER for name in info.external_bases())
    if not known or info.node.keywords or info.node.decorator_list:
        return False
    methods = {n.name: n for n in info.node.body if isinstance(n, ast.FunctionDef)}
    own = _stored(methods.values()) | methods.keys()
    if not all(_is_plain_part(info, node, frozenset(own)) for node in info.node.body):
        return False
    told = {name for name, node in methods.items() if name not in _METHODS and _is_told(node)}
    return not _used_outside(told | (own - methods.keys()), info, modules)


def _stored(methods: Iterable[ast.FunctionDef]) -> set[str]:
    """What the methods keep in ``self``."""
    nodes = (n for method in methods for n in ast.walk(method) if isinstance(n, ast.Attribute))
    stored = (n for n in nodes if isinstance(n.ctx, ast.Store) and isinstance(n.value, ast.Name))
    return {n.attr for n in stored if n.value.id == "self"}  # type: ignore[attr-defined]


def _is_told(node: ast.FunctionDef) -> bool:
    """Whether others could give the method something."""
    given = node.args
    return len(given.args) > 1 or bool(given.kwonlyargs or given.vararg or given.kwarg)


def _used_outside(names: set[str], info: ClassInfo, modules: Iterable[ModuleInfo]) -> bool:
    """Whether one of these attributes is stored or called anywhere but in the class."""
    inside = set(ast.walk(info.node))
    uses = (module.source.once(_uses, module.tree) for module in modules)
    return any(node not in inside for each in uses for name in names for node in each.get(name, ()))


def _uses(module: ast.AST) -> dict[str, list[ast.AST]]:
    """The attributes that are stored or called in a file, by name."""
    found: dict[str, list[ast.AST]] = {}
    for node in ast.walk(module):
        used = node.func if isinstance(node, ast.Call) else node
        stored = isinstance(used, ast.Attribute) and isinstance(used.ctx, ast.Store)
        if isinstance(used, ast.Attribute) and (used is not node or stored):
            found.setdefault(used.attr, []).append(used)
    return found


def _is_plain_part(info: ClassInfo, node: ast.stmt, own: frozenset[str]) -> bool:
    if not isinstance(node, ast.FunctionDef):
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        return text or isinstance(node, ast.Pass)
    bound = info.env.get(node.name, NOTHING).things  # `Lion.step = other` may have followed
    written = [t.ref for t in bound if isinstance(t.ref, FunctionInfo) and t.ref.node is node]
    if len(written) != 1 or len(bound) != 1:
        return False
    args = node.args
    whole = node.name == "__init__" or (args.vararg is None and args.kwarg is None)
    if not args.args or args.args[0].arg != "self" or not whole:
        return False
    if node.name == "step" and (len(args.args) > 2 or args.kwonlyargs):
        return False
    closure = tuple(arg.arg for arg in args.args[1:]) if node.name == "step" else ()
    use = Allowed(info.module, frozenset(i.name for i in info.mro()), own, closure)
    return PlainText(use, node).is_plain()


ADDS = frozenset({".add_", ".sub_"})


def by_call(m: Machine, f: Frame, receiver: Value, call: Call) -> None:
    """Say of ``p.data.add_(p.grad, alpha=-lr)`` which parameters it steps."""
    node = m.tree(call.site.path).expression(call.site) if call.name in ADDS else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        given = [*node.args, *(keyword.value for keyword in node.keywords)]
        if _adds_gradients(m.tree(call.site.path), node.func.value, given):
            call.steps = _stepped(m, f, receiver, call.site)


def by_assignment(m: Machine, f: Frame, node: ast.AugAssign, target: ast.expr) -> None:
    """Record ``p -= lr * p.grad`` as a step."""
    plain = isinstance(node.op, (ast.Add, ast.Sub)) and not isinstance(target, ast.Subscript)
    if plain and _adds_gradients(m.tree(f.module.source.path), target, [node.value]):
        value, site = m.evaluate(f, target), m.site(f, node)
        call = Call(m.tick(), ".sub_", site, site, m.where(f), (), {}, (), {}, value)
        call.steps = _stepped(m, f, value, site)
        if call.steps is not None:
            m.record(call)


def _adds_gradients(tree: Tree, target: ast.expr, given: list[ast.expr]) -> bool:
    """Whether gradients are added to what is none."""
    parts = (part for each in given for part in ast.walk(each))
    return any(_is_gradient(tree, part) for part in parts) and not _is_gradient(tree, target)


def _stepped(m: Machine, f: Frame, value: Value, site: Site) -> Thing | None:
    """What stands for an optimizer of these parameters; an optimizer's own method is one."""
    parameters = value.dep(Kind.PARAMETERS)
    own = f.self_thing is not None and f.self_thing.kind is Kind.OPTIMIZER
    if not parameters or own:
        return None
    made = m.make(Kind.OPTIMIZER, f, site, "by hand")
    made.describe(Optimized(one(parameters[0], parameters)))
    return made


def _is_gradient(tree: Tree, node: ast.AST) -> bool:
    """``p.grad``, ``p.grad.data``, and a name that is bound to that."""
    while isinstance(node, ast.Attribute) and node.attr == "data":
        node = node.value
    if isinstance(node, ast.Name):
        return any(
            isinstance(each, ast.Assign)
            and any(isinstance(t, ast.Name) and t.id == node.id for t in each.targets)
            and any(
                isinstance(part, ast.Attribute) and part.attr == "grad"
                for part in ast.walk(each.value)
            )
            for each in tree.nodes(tree.function(node))
        )
    return isinstance(node, ast.Attribute) and node.attr == "grad"
