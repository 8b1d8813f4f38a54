"""What the classes of a project keep in ``self``: read from their text, for models are not run."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpify.ranks.modules import ClassInfo, Module
from ddpify.ranks.run import Run
from ddpify.ranks.words import canonical

_NN = "torch.nn."
_HOLDERS = frozenset({"Sequential", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict"})
_PARAMETRIC = frozenset(
    """Linear LazyLinear Bilinear Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d
    ConvTranspose3d Embedding EmbeddingBag LayerNorm GroupNorm RMSNorm BatchNorm1d BatchNorm2d
    BatchNorm3d SyncBatchNorm LSTM GRU RNN LSTMCell GRUCell RNNCell MultiheadAttention Transformer
    TransformerEncoder TransformerDecoder TransformerEncoderLayer TransformerDecoderLayer PReLU
    Parameter""".split()
)


def dotted(node: ast.AST) -> str:
    """``a.b.c`` of an expression of names and attributes; empty for any other."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join((node.id, *reversed(parts))) if isinstance(node, ast.Name) else ""


def qualified(module: Module, node: ast.AST) -> str:
    """The name under which a library or another file exports what is named here."""
    root, _, rest = dotted(node).partition(".")
    if root not in module.imports:
        return ""
    origin, attribute, _ = module.imports[root]
    return canonical(".".join(part for part in (origin, attribute, rest) if part))


def kept(cls: ClassInfo, name: str) -> Iterator[tuple[Module, ast.expr]]:
    """The expressions assigned to ``self.name`` in a class and its bases."""
    for info in cls.mro():
        for method in info.methods.values():
            for node in ast.walk(method.node):
                if isinstance(node, ast.Assign) and any(own(t) == name for t in node.targets):
                    yield info.module, node.value


def own(node: ast.AST) -> str:
    """``name`` of ``self.name``."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return node.attr if node.value.id == "self" else ""
    return ""


def holds_parameters(run: Run, cls: ClassInfo, name: str, depth: int = 5) -> bool:
    """Whether ``self.name`` is surely a layer with parameters, or a parameter."""
    return any(_parametric(run, module, value, depth) for module, value in kept(cls, name))


def _parametric(run: Run, module: Module, node: ast.AST, depth: int) -> bool:
    if not isinstance(node, ast.Call) or depth == 0:
        return False
    name = qualified(module, node.func)
    if name.startswith(_NN):
        last = name.rpartition(".")[2]
        return last in _PARAMETRIC or (last in _HOLDERS and _any_below(run, module, node, depth))
    cls = _class(run, module, node.func, name)
    return cls is not None and any(
        holds_parameters(run, cls, attribute, depth - 1) for attribute in _attributes(cls)
    )


def _any_below(run: Run, module: Module, node: ast.Call, depth: int) -> bool:
    below = (part for arg in node.args for part in ast.walk(arg))
    return any(_parametric(run, module, part, depth - 1) for part in below)


def _class(run: Run, module: Module, node: ast.AST, name: str) -> ClassInfo | None:
    if not name:
        return module.classes.get(dotted(node))
    home, _, last = name.rpartition(".")
    return next((m.classes[last] for m in run.modules.values() if _is(m, home, last)), None)


def _is(module: Module, home: str, last: str) -> bool:
    return last in module.classes and (module.name == home or module.name.endswith(f".{home}"))


def _attributes(cls: ClassInfo) -> set[str]:
    init = cls.method("__init__")
    return {own(node) for node in ast.walk(init.node) if own(node)} if init is not None else set()


def computing(cls: ClassInfo, method: str, seen: frozenset[str] = frozenset()) -> set[str]:
    """The attributes of ``self`` that a method computes with, by itself or in methods it calls."""
    info = cls.method(method)
    if info is None or method in seen:
        return set()
    found: set[str] = set()
    loops = _iterated(info.node)
    for node in ast.walk(info.node):
        for name in _operands(node, loops):
            if cls.method(name) is None:
                found.add(name)
            elif isinstance(node, ast.Call):
                found |= computing(cls, name, seen | {method})
    return found


def _operands(node: ast.AST, loops: dict[str, str]) -> Iterator[str]:
    """``self.x(…)``, ``self.x[i](…)``, ``self.x @ y``, and ``part(…)`` for a part of ``self.x``."""
    if isinstance(node, ast.BinOp):
        yield from filter(None, (own(node.left), own(node.right)))
    if isinstance(node, ast.Call):
        called = node.func.value if isinstance(node.func, ast.Subscript) else node.func
        name = own(called) or (loops.get(called.id, "") if isinstance(called, ast.Name) else "")
        if name:
            yield name


def _iterated(function: ast.AST) -> dict[str, str]:
    """The variables of ``for part in self.x`` loops."""
    return {
        node.target.id: own(node.iter)
        for node in ast.walk(function)
        if isinstance(node, ast.For) and isinstance(node.target, ast.Name) and own(node.iter)
    }
