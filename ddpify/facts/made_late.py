"""Parameters that a model makes in a forward: its wrapper, made before, knows nothing of them. ::

if self.scale is None:
    self.scale = nn.Parameter(torch.ones(x.size(1)))
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpify.facts.constructed import (
    LISTS,
    WITH_PARAMETERS,
    method,
    own,
    own_name,
    parts_of_class,
    stored,
)
from ddpify.facts.events import Call
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import ClassInfo
from ddpify.facts.values import NOTHING
from ddpify.source import Site

_PARAMETER = "torch.nn.Parameter"
_ADDS = ("register_parameter", "add_module", "register_module")
_LAZY = "torch.nn.Lazy"


def made_late(m: Machine, classes: list[ClassInfo], calls: tuple[Call, ...]) -> tuple[Site, ...]:
    """Where models of these classes get parameters after they are built."""
    found = [site for info in classes for site in _in_forward(m, info)]
    sites = [info.site for info in classes]
    lazy = [call for call in calls if call.name.startswith(_LAZY)]
    found += [c.site for c in lazy if not sites or any(c.site.within(site) for site in sites)]
    return tuple(dict.fromkeys(found))


def _in_forward(m: Machine, info: ClassInfo) -> Iterator[Site]:
    todo, seen = ["forward"], set[str]()
    while todo:
        name = todo.pop()
        node = method(info, name)
        if name in seen or node is None or name == "__init__":
            continue
        seen.add(name)
        todo += [one.attr for one in own(node)]
        owner = next(one for one in info.mro() if node in one.node.body)
        for made in ast.walk(node):
            if isinstance(made, ast.Assign | ast.Expr) and _makes(m, owner, made):
                yield owner.module.source.site(made)


def _makes(m: Machine, info: ClassInfo, statement: ast.Assign | ast.Expr) -> bool:
    """``self.head = nn.Linear(…)``, ``self.register_parameter("shift", nn.Parameter(…))``."""
    value = statement.value
    calls = [n for n in ast.walk(value) if isinstance(n, ast.Call)]
    if isinstance(statement, ast.Assign):
        return bool(stored(statement)) and any(_has_parameters(m, info, call) for call in calls)
    return isinstance(value, ast.Call) and own_name(value.func) in _ADDS


def _has_parameters(m: Machine, info: ClassInfo, call: ast.Call) -> bool:
    root, _, rest = ast.unparse(call.func).partition(".")
    things = info.module.globals.get(root, NOTHING).things
    if any(isinstance(t.ref, ClassInfo) and not rest for t in things):
        classes = (t.ref for t in things if isinstance(t.ref, ClassInfo))
        return any(parts_of_class(m, one) for one in classes)
    names = {".".join((thing.name, rest)).rstrip(".") for thing in things}
    plain = WITH_PARAMETERS | LISTS | {_PARAMETER}
    return bool(names & plain) or any(name.endswith(".Parameter") for name in names)
