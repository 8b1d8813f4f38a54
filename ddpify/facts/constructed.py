"""The parts with parameters that a module's constructor makes, and on what that depends.

Parameters that a model makes in a forward: its wrapper, made before, knows nothing of them. ::

if self.scale is None:
    self.scale = nn.Parameter(torch.ones(x.size(1)))
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ddpify.facts.events import Call
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import ClassInfo, functions_in
from ddpify.facts.tree import names_in
from ddpify.facts.values import NOTHING, Kind, Thing
from ddpify.source import Site

LISTS: Final = frozenset(
    f"torch.nn.{name}" for name in "ModuleList ModuleDict ParameterList ParameterDict".split()
)
WITH_PARAMETERS: Final = frozenset(
    f"torch.nn.{name}"
    for name in """Linear Bilinear Embedding EmbeddingBag RNN LSTM GRU RNNCell LSTMCell GRUCell
    Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d BatchNorm1d BatchNorm2d
    BatchNorm3d LayerNorm GroupNorm PReLU MultiheadAttention Transformer TransformerEncoder
    TransformerEncoderLayer TransformerDecoder TransformerDecoderLayer Sequential""".split()
)

# What makes copies of the layer that it is given.
COPY: Final = frozenset({"TransformerEncoder", "TransformerDecoder", "deepcopy"})


@dataclass(frozen=True)
class OwnPart:
    """An attribute that has parameters; ``several`` is a list, ``info`` the class of one."""

    name: str
    several: bool = False
    info: ClassInfo | None = None


def parts_of_class(
    m: Machine, info: ClassInfo, around: tuple[ClassInfo, ...] = ()
) -> dict[str, OwnPart]:
    """What has parameters of what the constructors of a class and its bases make, by name."""
    found: dict[str, OwnPart] = {}
    for init in constructors(info):
        for names, part in made_by(m, info, init):
            if has_parameters(m, part, (*around, info)):
                ref = part.ref if isinstance(part.ref, ClassInfo) else None
                several = part.name in LISTS or part.name == "torch.nn.Sequential"
                found |= {name: OwnPart(name, several, ref) for name in names}
        for names in _parameters(init):
            found |= {name: OwnPart(name) for name in names}
    return found


def has_parameters(m: Machine, part: Thing, around: tuple[ClassInfo, ...] = ()) -> bool:
    """Whether a module has parameters, as far as its class says; a list of such has."""
    if not isinstance(part.ref, ClassInfo):
        return part.name in WITH_PARAMETERS | LISTS
    plain = {"torch.nn.Module", "torch.nn.modules.Module", "builtins.object"}
    if part.ref in around or not plain.issuperset(part.ref.external_bases()):
        return True
    return bool(parts_of_class(m, part.ref, around))


def constructors(info: ClassInfo) -> Iterator[ast.FunctionDef]:
    """Its own and those of its bases."""
    for one in info.mro():
        for node in one.node.body:
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                yield node


def made_by(m: Machine, info: ClassInfo, init: ast.FunctionDef) -> Iterator[tuple[set[str], Thing]]:
    """The modules that statements of a constructor make, with the attributes that they become.

    A class is read for one of its objects: what its statements made says more than an object.
    """
    module = next(one.module for one in info.mro() if init in one.node.body)
    tree = m.tree(module.source.path)
    for node in ast.walk(init):
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value and stored(node):
            value = m.values.get(tree.site(node.value))
            for part in value.of(Kind.MODEL) if value is not None else ():
                yield stored(node), part


def _parameters(init: ast.FunctionDef) -> Iterator[set[str]]:
    """``self.scale = nn.Parameter(…)``."""
    for node in ast.walk(init):
        value = node.value if isinstance(node, ast.Assign) else None
        name = ast.unparse(value.func) if isinstance(value, ast.Call) else ""
        if isinstance(node, ast.Assign) and name.rpartition(".")[2] == "Parameter":
            yield stored(node)


def taken_up(info: ClassInfo) -> set[str]:
    """Attributes of which the constructor makes others: ``self.low = self.features[:4]``.

    Not those that are copied: ``nn.TransformerEncoder(self.layer, 6)`` has six others.
    """
    nodes = (node for init in constructors(info) for node in ast.walk(init))
    assigned = [n.value for n in nodes if isinstance(n, ast.Assign) and stored(n)]
    calls = (n for value in assigned for n in ast.walk(value) if isinstance(n, ast.Call))
    copied = {id(a) for c in calls if _name(c) in COPY for given in c.args[:1] for a in own(given)}
    return {n.attr for value in assigned for n in own(value) if id(n) not in copied}


def _name(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2]


def own(scope: ast.AST) -> list[ast.Attribute]:
    """Every ``self.x`` in a scope."""
    found = [n for n in ast.walk(scope) if isinstance(n, ast.Attribute)]
    return [n for n in found if own_name(n)]


def own_name(node: ast.AST) -> str:
    """``x`` of ``self.x``, else ""."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return node.attr if node.value.id == "self" else ""
    return ""


def stored(statement: ast.stmt) -> set[str]:
    """The attributes of ``self`` that a statement sets."""
    return {n.attr for n in own(statement) if isinstance(n.ctx, ast.Store)}


def method(info: ClassInfo, name: str) -> ast.FunctionDef | None:
    """A method, inherited ones included."""
    nodes = (found.node for found in functions_in(info.lookup(name)))
    return next((node for node in nodes if isinstance(node, ast.FunctionDef)), None)


def behind(info: ClassInfo, test: ast.AST) -> frozenset[str]:
    """What a test asks, and of what the constructor makes the attributes in it."""
    words = names_in(test) - {"self"}
    asked = {n.attr for n in own(test)}
    texts = (n.value for n in ast.walk(test) if isinstance(n, ast.Constant))
    words |= {text for text in texts if isinstance(text, str) and text.isidentifier()}
    for node in (n for init in constructors(info) for n in ast.walk(init)):
        if isinstance(node, ast.Assign) and stored(node) & asked:
            words |= names_in(node.value) - {"self"}
    return frozenset(words | asked)


def made_under(info: ClassInfo, name: str) -> frozenset[str]:
    """What is asked wherever the constructor makes a part or fills it; nothing if it always is."""
    found: frozenset[str] = frozenset()
    for init in constructors(info):
        for told, fills in _makings(info, init.body, name, frozenset()):
            if not told and not fills:
                return frozenset()
            found |= told
    return found


def _makings(
    info: ClassInfo, body: list[ast.stmt], name: str, told: frozenset[str]
) -> Iterator[tuple[frozenset[str], bool]]:
    """For each statement that makes a part: what is asked before; whether it is filled later."""
    for node in body:
        if isinstance(node, ast.If):
            more = told | behind(info, node.test)
            yield from _makings(info, node.body, name, more)
            yield from _makings(info, node.orelse, name, more)
        elif isinstance(node, ast.For | ast.While | ast.With):
            yield from _makings(info, node.body, name, told)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and name in stored(node) and node.value:
            asks = (n.test for n in ast.walk(node.value) if isinstance(n, ast.IfExp))
            more = told.union(*(behind(info, test) for test in asks))
            if isinstance(node.value, ast.BoolOp):
                more |= behind(info, node.value)
            yield more, _is_empty(node.value)
        elif name in {n.attr for n in own(node)} and isinstance(node, ast.Expr):
            yield told, False


def _is_empty(value: ast.expr) -> bool:
    """``nn.ModuleList()``, ``None``: what is filled or made later."""
    none = isinstance(value, ast.Constant) and value.value is None
    empty = isinstance(value, ast.Call) and not value.args and not value.keywords
    return (
        none or (empty and "List" in ast.unparse(value)) or (empty and "Dict" in ast.unparse(value))
    )


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
