"""The repeated submodules of a model, which compute one after the other: what is sharded alone.

``fully_shard`` gathers the weights of one unit at a time. A model that is one unit is whole on each
rank while it computes; of a stack of blocks one block is. Each call of a block waits for all ranks,
so that only what every forward calls equally often is one: no layers that are left out at times,
and none that are called for each step of a sequence.

Single parts of a model that every forward calls as a whole: what may be sharded alone by size.

``fully_shard`` gathers the weights of a part when it is called, and once more for its backward,
which the tensors in its output tell: no part whose weights are read from outside, or that returns
an object of the project, is one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Final

from ddpify.facts.constructed import LISTS, WITH_PARAMETERS, constructors, made_under, stored
from ddpify.facts.details import call_that_made
from ddpify.facts.model import Facts
from ddpify.facts.scopes import ClassInfo
from ddpify.facts.through import AT_REST
from ddpify.facts.tree import names_in
from ddpify.facts.values import NOTHING, Kind, Thing, Value

_STACKS: Final = {
    "torch.nn.TransformerEncoder": ("layers",),
    "torch.nn.TransformerDecoder": ("layers",),
    "torch.nn.Transformer": ("encoder.layers", "decoder.layers"),
}
_LISTS: Final = frozenset({"torch.nn.ModuleList", "torch.nn.Sequential"})
_BLOCKS: Final = frozenset(
    f"torch.nn.{name}" for name in ("TransformerEncoderLayer", "TransformerDecoderLayer")
)
_FILLS: Final = frozenset({"append", "extend", "insert", "add_module"})
_CUT = (ast.Break, ast.Continue, ast.Return)
_LOOPS = (ast.For, ast.While, ast.ListComp, ast.GeneratorExp)
_SOMETIMES = (*_LOOPS, ast.If, ast.IfExp, ast.Try, ast.BoolOp)


def blocks(facts: Facts, given: Iterable[Thing]) -> tuple[str, ...]:
    """The paths from a model to the lists of its blocks: ``transformer.h``, ``encoder.layers``.

    Of several of which it may be any, those that all have; of one class, which is read once, one
    speaks for the others.
    """
    models = [*given]
    full = [model for model in models if _layers(model)]
    bare = [model for model in models if not any(_is_alike(model, one) for one in full)]
    models = [*full, *bare]
    found = [tuple(dict.fromkeys(_stacks(facts, model, "", ()))) for model in models]
    return tuple(path for path in found[0] if all(path in one for one in found)) if found else ()


def _is_alike(model: Thing, read: Thing) -> bool:
    return model is read or (model.ref is not None and model.ref is read.ref)


def _layers(model: Thing) -> list[Value]:
    return [value for value in model.attrs.values() if value.of(Kind.MODEL)]


def _stacks(facts: Facts, one: Thing, path: str, around: tuple[Thing, ...]) -> Iterator[str]:
    if one.name in _STACKS:
        yield from (f"{path}{layers}" for layers in _STACKS[one.name])
    elif one.name in _LISTS and path:
        if _is_stack(facts, one):
            yield path.removesuffix(".")
    elif one.name == "torch.nn.ModuleDict":
        yield from _in_dict(facts, one, path, around)
    elif isinstance(one.ref, ClassInfo) and one not in around:
        for name, value in one.attrs.items():
            parts = value.of(Kind.MODEL)
            made = len(parts) == len(value.things) == 1 and is_always_made(one.ref, name)
            for found in _stacks(facts, parts[0], f"{name}.", (*around, one)) if made else ():
                if is_called_once(one.ref, found, name):
                    yield f"{path}{found}"


def is_always_made(info: ClassInfo, name: str) -> bool:
    """Whether a constructor makes a part whatever its arguments are."""
    nodes = (n for init in constructors(info) for n in ast.walk(init))
    made = any(isinstance(n, ast.Assign | ast.AnnAssign) and name in stored(n) for n in nodes)
    return made and not made_under(info, name)


def _in_dict(facts: Facts, one: Thing, path: str, around: tuple[Thing, ...]) -> Iterator[str]:
    """``nn.ModuleDict(dict(wte=…, h=nn.ModuleList(…)))``, whose entries are attributes, too."""
    made = call_that_made(one)
    for given in made.args[:1] if made is not None else ():
        for entries in given.of(Kind.DICT):
            for key, value in (entries.keys or {}).items():
                parts = value.of(Kind.MODEL)
                if len(parts) == 1 and isinstance(key, str) and key.isidentifier():
                    yield from _stacks(facts, parts[0], f"{path}{key}.", (*around, one))


def is_called_once(info: ClassInfo, path: str, name: str) -> bool:
    """Whether methods call what is at a path, or the part that it is in, once in each forward."""
    uses = []
    for one in info.mro():
        for method in one.node.body:
            if isinstance(method, ast.FunctionDef) and method.name != "__init__":
                uses += list(_uses(method, f"self.{name}", f"self.{path}", ()))
    return bool(uses) and all(uses)


def _uses(node: ast.AST, part: str, path: str, above: tuple[ast.AST, ...]) -> Iterator[bool]:
    """For each use of a path, or of the part it begins with, whether it is one call or loop."""
    text = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
    other = text != path and above and isinstance(above[-1], ast.Attribute)  # another child of it
    if text in (part, path) and not other and not _is_at_rest(above[-1]):
        yield _is_one_pass(node, above)
    for inner in ast.iter_child_nodes(node):
        yield from _uses(inner, part, path, (*above, node))


def _is_at_rest(parent: ast.AST) -> bool:
    """``len(self.layers)``, ``self.layers.parameters()``."""
    if isinstance(parent, ast.Call):
        return isinstance(parent.func, ast.Name) and parent.func.id == "len"
    return isinstance(parent, ast.Attribute) and parent.attr in AT_REST


def _is_one_pass(node: ast.AST, above: tuple[ast.AST, ...]) -> bool:
    over = above[-1]
    outer = above[:-1]
    if isinstance(over, ast.Call) and over.func is not node:  # enumerate(self.layers)
        over, outer = outer[-1], outer[:-1]
    if any(isinstance(one, _SOMETIMES) for one in outer):
        return False
    if not isinstance(over, ast.For):
        return isinstance(over, ast.Call) and over.func is node
    names = names_in(over.target)
    if not any(_calls(one, names) for one in over.body):  # `if hasattr(block, "mask"): …`
        return True
    cut = any(isinstance(n, _CUT) for one in over.body for n in ast.walk(one))
    return not cut and not any(_is_conditional(one, names) for one in over.body)


def _calls(node: ast.AST, names: set[str]) -> bool:
    """Whether blocks are called, or given to what may call them."""
    calls = (n for n in ast.walk(node) if isinstance(n, ast.Call))
    asks = ("hasattr", "getattr", "isinstance", "len")
    return any(
        isinstance(n, ast.Name) and n.id in names and getattr(call.func, "id", "") not in asks
        for call in calls
        for n in ast.walk(call)
    )


def _is_conditional(node: ast.AST, names: set[str]) -> bool:
    """Whether something in a loop's body names a block under a condition, or in another loop."""
    if isinstance(node, _SOMETIMES):
        return any(isinstance(n, ast.Name) and n.id in names for n in ast.walk(node))
    return any(_is_conditional(inner, names) for inner in ast.iter_child_nodes(node))


def _is_stack(facts: Facts, one: Thing) -> bool:
    """Whether a list has nothing but blocks, each made anew."""
    held = list(_items(facts, one))
    several = len(held) > 1 or any(_in_rounds(facts, part) for part in held)
    return several and all(_is_block(facts, part) for part in held) and len(set(held)) == len(held)


def _items(facts: Facts, one: Thing) -> Iterator[Thing]:
    """What a list is made of, and what is appended to it; the list itself for what is unclear."""
    made = call_that_made(one)
    node = facts.tree(made.site).expression(made.site) if made is not None else None
    if made is None or not isinstance(node, ast.Call):
        yield one
        return
    for arg in node.args:
        inner = arg.value if isinstance(arg, ast.Starred) else arg
        yield from _parts(facts.values.get(facts.tree(made.site).site(inner)), one)
    for call in facts.everywhere:
        name = call.name.rpartition(".")[2]
        owners = call.receiver.things if call.receiver is not None else ()
        if name in _FILLS and any(owner.born == one.born for owner in owners):
            plain = name == "append" and len(call.args) == 1
            yield from _parts(call.args[0], one) if plain else (one,)


def _parts(value: Value | None, unclear: Thing) -> Iterator[Thing]:
    """The modules that a value is or holds."""
    for thing in value.things if value is not None and value.things else (unclear,):
        inside = [*(thing.items or ()), *([thing.inner] if thing.inner is not None else [])]
        if thing.kind is Kind.MODEL:
            yield thing
        elif inside:
            for held in inside:
                yield from _parts(held, unclear)
        else:
            yield unclear


def _in_rounds(facts: Facts, part: Thing) -> bool:
    """Whether a block is made in a loop: once for each place."""
    tree = facts.tree(part.born)
    node = tree.expression(part.born)
    return node is not None and any(isinstance(one, _LOOPS) for one in tree.ancestors(node))


def _is_block(facts: Facts, part: Thing) -> bool:
    """Whether a module has several layers: a unit of one would be one message for each."""
    if not isinstance(part.ref, ClassInfo):
        return part.name in _BLOCKS
    return sum(_has_weights(value) for info in part.ref.mro() for value in _made(facts, info)) > 1


def _made(facts: Facts, info: ClassInfo) -> Iterator[Value]:
    """What the constructor of a class itself puts into attributes.

    A class is read for one of its objects: statements say more than an object.
    """
    tree = facts.tree(info.site)
    inits = (n for n in info.node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__")
    for node in (n for init in inits for n in ast.walk(init)):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value and stored(node):
            yield facts.values.get(tree.site(node.value), NOTHING)


def _has_weights(value: Value) -> bool:
    kinds = WITH_PARAMETERS | LISTS
    return any(t.name in kinds or isinstance(t.ref, ClassInfo) for t in value.of(Kind.MODEL))


def units(facts: Facts, given: Iterable[Thing]) -> tuple[str, ...]:
    """The paths from a model to such parts, inner ones first: ``encoder.embedding``, ``encoder``.

    Of several of which it may be any, those that all have.
    """
    models = [*given]
    found = [tuple(_single_parts(facts, model, "", ())) for model in models]
    alike = [path for path in found[0] if all(path in one for one in found)] if found else []
    return tuple(path for path in alike if path not in blocks(facts, models))


def _single_parts(facts: Facts, one: Thing, path: str, around: tuple[Thing, ...]) -> Iterator[str]:
    info = one.ref
    if not isinstance(info, ClassInfo) or one in around:
        return
    for name, value in one.attrs.items():
        parts = value.of(Kind.MODEL)
        single = len(parts) == len(value.things) == 1 and is_always_made(info, name)
        if not single or not is_called_once(info, name, name) or _is_tied(info, name):
            continue
        yield from _single_parts(facts, parts[0], f"{path}{name}.", (*around, one))
        if _is_unit(facts, parts[0]):
            yield f"{path}{name}"


def _is_tied(info: ClassInfo, name: str) -> bool:
    """Whether a constructor has weights of it elsewhere: ``self.head.weight = self.wte.weight``."""
    nodes = (n for init in constructors(info) for n in ast.walk(init) if isinstance(n, ast.Assign))
    parts = (one for n in nodes for one in (*n.targets, n.value))
    return any(isinstance(one, ast.Attribute) and _begins(one.value, name) for one in parts)


def _begins(node: ast.expr, name: str) -> bool:
    return f"{ast.unparse(node)}.".startswith(f"self.{name}.")


def _is_unit(facts: Facts, part: Thing) -> bool:
    if part.name in WITH_PARAMETERS or part.name == "torch.nn.Sequential":
        return True
    if not isinstance(part.ref, ClassInfo):
        return False
    return not any(_gives_object(facts, info) for info in part.ref.mro())


def _gives_object(facts: Facts, info: ClassInfo) -> bool:
    """Whether a forward makes an object of the project, which may be what it returns."""
    nodes = (n for tree in facts.trees.values() for n in tree.nodes())
    own = {n.name for n in nodes if isinstance(n, ast.ClassDef)}
    methods = (n for n in info.node.body if isinstance(n, ast.FunctionDef) and n.name == "forward")
    calls = (n for one in methods for n in ast.walk(one) if isinstance(n, ast.Call))
    return any(ast.unparse(call.func).rpartition(".")[2] in own for call in calls)
