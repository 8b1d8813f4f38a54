"""Methods of a model that only call it: with the wrapper for ``self`` they do the same. ::

def score(self, x, y):
    return F.cross_entropy(self(x), y)  # `Net.score(net, x, y)` goes through a wrapped `net`
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpify.facts.details import OpenForward
from ddpify.facts.events import Call
from ddpify.facts.fresh import makes_anew, method_of
from ddpify.facts.joining import join
from ddpify.facts.open_losses import pairs
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import ClassInfo, Frame, FunctionInfo
from ddpify.facts.values import NOTHING, Kind, Thing, Value, one

HIDDEN = frozenset({"super", "locals", "vars", "eval", "exec"})  # they may ask for ``self``
# What a module does without a pass through its layers, which who has its `children()` may call.
AT_REST = frozenset(
    "state_dict load_state_dict parameters named_parameters buffers named_buffers train eval"
    " zero_grad".split()
)


def entered(m: Machine, f: Frame, thing: Thing, name: str, call: Call) -> Value | None:
    """What such a method of a wrapped model gives; None for any other method."""
    inner = thing.stands_for if thing.kind is Kind.WRAPPED else ()
    if call.receiver_site is None or not inner or makes_anew(thing, name):
        return None
    uses = _uses(thing, name)
    if uses is None and not all(_is_at_rest(o, name) or _is_apart(o, name) for o in inner):
        return None
    owners = (thing,) if uses else inner  # one that asks nothing of it is the inner one's
    sites = (call.receiver_site, *call.arg_sites)
    whose: dict[FunctionInfo, Value] = {}
    for owner in owners:
        info = method_of(owner, name)
        if info is not None:
            whose[info] = join(whose.get(info), one(owner))
    results = [
        m.enter(f, info, (own, *call.args), call.kwargs, call.site, sites, call.kwarg_sites)
        for info, own in whose.items()
    ]
    return join(*results)


def criteria(thing: Thing, name: str) -> Value | None:
    """``net.loss``: what an inner module keeps beside its layers, if that trains nothing."""
    inner = thing.stands_for if thing.kind is Kind.WRAPPED else ()
    kept = [model.attrs.get(name, NOTHING) for model in inner]
    return join(*kept) if kept and all(map(_trains_none, kept)) else None


def _trains_none(value: Value) -> bool:
    """Whether these are criteria of torch, or such of the project that have no parameters."""
    plain = (t.ref is None or t.detail(OpenForward) for t in value.things)
    return all(t.kind is Kind.CRITERION for t in value.things) and bool(value.things and all(plain))


def _is_apart(model: Thing, name: str, around: tuple[FunctionInfo, ...] = ()) -> bool:
    """Whether a method of an inner module asks it for criteria and numbers, and no layer. ::

    def get_loss(self, out, y):
        return self.loss(out, y) * self.scale
    """
    info = _plain_method(model, name, around)
    if info is None:
        return False
    accounted: set[ast.AST] = set()
    for node in ast.walk(info.node):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            kept = model.attrs.get(node.attr)
            beside = kept is not None and (_trains_none(kept) or (kept.known and not kept.things))
            if beside or _is_apart(model, node.attr, (*around, info)):
                accounted.add(node.value)
    return _is_all(info, accounted)


def goes_through(call: Call) -> bool:
    """Whether a call is one of a wrapped model's method that has to be given the wrapper."""
    things = call.receiver.of(Kind.WRAPPED) if call.receiver is not None else ()
    return call.name.startswith(".") and any(_uses(t, call.name[1:]) for t in things)


def is_same(call: Call) -> bool:
    """Whether a method does the same on the wrapper, of all models that a call may be one of."""
    things = call.receiver.things if call.receiver is not None else ()
    models = all(t.kind in (Kind.MODEL, Kind.WRAPPED) and t.part_of is None for t in things)
    return models and all(_uses(t, call.name[1:]) is not None for t in things)


def _uses(thing: Thing, name: str, around: tuple[FunctionInfo, ...] = ()) -> int | None:
    """How often a method calls its model, None where it does anything else with it."""
    info = method_of(thing, name)
    inner = thing.inner.things if thing.kind is Kind.WRAPPED and thing.inner else (thing,)
    if name == "forward" or info is None or info in around or any(name in t.attrs for t in inner):
        return None
    nodes = list(ast.walk(info.node))
    own, called = _own_name(info, nodes), 0
    known: set[ast.AST] = set()
    for func in (n.func for n in nodes if isinstance(n, ast.Call)):
        owner = func.value if isinstance(func, ast.Attribute) else func
        if isinstance(owner, ast.Name) and owner.id == own:
            other = func.attr if isinstance(func, ast.Attribute) else "forward"
            found = 1 if other == "forward" else _uses(thing, other, (*around, info))
            if found is None:
                return None
            called += found
            known.add(owner)
    asked = (n for n in nodes if isinstance(n, ast.Name) and n.id in {own, *HIDDEN})
    return called if own and known.issuperset(asked) else None


def _is_at_rest(model: Thing, name: str, around: tuple[FunctionInfo, ...] = ()) -> bool:
    """Whether a method of an inner module only writes, reads or names its weights. ::

    def save(self, folder):
        torch.save(self.state_dict(), f"{folder}/{self.name}.pt")
    """
    info = _plain_method(model, name, around)
    if info is None:
        return False
    accounted: set[ast.AST] = set()
    for node in ast.walk(info.node):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            root, called = _root(node.func.value), node.func
            direct = root is called.value and _is_at_rest(model, called.attr, (*around, info))
            if called.attr in AT_REST or direct:
                accounted.add(root)
        elif isinstance(node, ast.Attribute) and _is_plain(model, node):
            accounted.add(node.value)
    return _is_all(info, accounted)


def _plain_method(model: Thing, name: str, around: tuple[FunctionInfo, ...]) -> FunctionInfo | None:
    """A method but ``forward`` that knows its object by its first argument alone."""
    info = method_of(model, name) if name != "forward" else None
    if info is None or info in around or not _own_name(info, list(ast.walk(info.node))):
        return None
    return info


def _is_all(info: FunctionInfo, accounted: set[ast.AST]) -> bool:
    """Whether these are all places of a method that name its object, or may ask for it."""
    nodes = list(ast.walk(info.node))
    names = {_own_name(info, nodes), *HIDDEN}
    return all(n in accounted for n in nodes if isinstance(n, ast.Name) and n.id in names)


def _root(node: ast.expr) -> ast.expr:
    """``self`` of ``self.encoder.layer``."""
    return _root(node.value) if isinstance(node, ast.Attribute) else node


def _is_plain(model: Thing, node: ast.Attribute) -> bool:
    """Whether an attribute is stored, or holds a number or a text, never a layer or a weight."""
    if isinstance(node.ctx, ast.Store):
        return True
    info = model.ref
    kept = list(_stored(info, node.attr)) if isinstance(info, ClassInfo) else []
    return bool(kept) and all(_is_text(value, info) for value in kept)


def _stored(owner: ClassInfo, name: str) -> Iterator[ast.expr]:
    """All that the methods of a class store in ``self`` under a name."""
    nodes = (node for info in owner.mro() for node in ast.walk(info.node))
    for node in (node for node in nodes if isinstance(node, ast.Assign)):
        given = (pair for target in node.targets for pair in pairs(target, node.value))
        yield from (value for kept, value in given if ast.unparse(kept) == f"self.{name}")


def _is_text(value: ast.expr, info: object) -> bool:
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id in ("str", "int", "float", "len")
    if isinstance(value, ast.Name) and isinstance(info, ClassInfo):  # what it was made with
        nodes = (node for one in info.mro() for node in ast.walk(one.node))
        return any(isinstance(node, ast.arg) and node.arg == value.id for node in nodes)
    return isinstance(value, (ast.Constant, ast.JoinedStr))


def _own_name(info: FunctionInfo, nodes: list[ast.AST]) -> str:
    """``self`` of a plain method, "" of anything else."""
    node = info.node
    if not isinstance(node, ast.FunctionDef) or node.decorator_list:
        return ""
    own = next((a.arg for a in (*node.args.posonlyargs, *node.args.args)), "")
    again = [n for n in nodes if isinstance(n, ast.arg) and n.arg == own]
    later = any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in nodes)
    return own if len(again) == 1 and not later else ""
