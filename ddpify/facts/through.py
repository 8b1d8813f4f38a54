"""Methods of a model that only call it: with the wrapper for ``self`` they do the same. ::

def score(self, x, y):
    return F.cross_entropy(self(x), y)  # `Net.score(net, x, y)` goes through a wrapped `net`
"""

from __future__ import annotations

import ast

from ddpify.facts.events import Call
from ddpify.facts.fresh import makes_anew, method_of
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import Frame, FunctionInfo
from ddpify.facts.values import Kind, Thing, Value, one

HIDDEN = frozenset({"super", "locals", "vars", "eval", "exec"})  # they may ask for ``self``


def entered(m: Machine, f: Frame, thing: Thing, name: str, call: Call) -> Value | None:
    """What such a method of a wrapped model gives; None for any other method."""
    info = method_of(thing, name)
    if info is None or call.receiver_site is None or makes_anew(thing, name):
        return None
    uses = _uses(thing, name)
    if uses is None or thing.inner is None:
        return None
    owner = one(thing) if uses else thing.inner  # one that asks nothing of it is the inner one's
    sites = (call.receiver_site, *call.arg_sites)
    return m.enter(f, info, (owner, *call.args), call.kwargs, call.site, sites, call.kwarg_sites)


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


def _own_name(info: FunctionInfo, nodes: list[ast.AST]) -> str:
    """``self`` of a plain method, "" of anything else."""
    node = info.node
    if not isinstance(node, ast.FunctionDef) or node.decorator_list:
        return ""
    own = next((a.arg for a in (*node.args.posonlyargs, *node.args.args)), "")
    again = [n for n in nodes if isinstance(n, ast.arg) and n.arg == own]
    later = any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in nodes)
    return own if len(again) == 1 and not later else ""
