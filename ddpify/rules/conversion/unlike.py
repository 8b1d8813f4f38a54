"""What FSDP1 and FSDP2 train differently, or save under other names: none of it is converted.

FSDP1 reduces the flat gradient of a unit, zeros included; FSDP2 the gradients that there are. So a
weight that a step does not use decays in the one and not in the other, and ranks that use other
weights than each other pair up gradients of different ones (measured: -50.5 and 0.0 for -0.5 and
-50). ``fully_shard`` makes another class of a module, in place.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from typing import Final

from ddpify.facts.details import Wrapper
from ddpify.facts.model import Facts
from ddpify.facts.roles import whole
from ddpify.facts.tree import Tree, last_name, names_in
from ddpify.facts.values import Kind, Thing
from ddpify.rules.base import Finding
from ddpify.rules.conversion.code import NoCounterpart
from ddpify.rules.conversion.names import CLASS
from ddpify.rules.edits import once

_PARTS: Final = frozenset({"weight", "bias"})
_LAYERS: Final = frozenset({"Embedding", "Linear"})
_BROAD: Final = frozenset({"size_based_auto_wrap_policy", "lambda_auto_wrap_policy"})
_BY_HAND: Final = "convert it by hand, or make it so that this does not matter, then run again"
_LOOKS: Final = frozenset(
    ".parameters .named_parameters .modules .named_modules .children .named_children .state_dict"
    " .load_state_dict .apply".split()
)
_PLACES: Final = frozenset({"device", "to", "set_default_device"})
_Branch = ast.If | ast.IfExp | ast.While | ast.Match


def unlike(facts: Facts) -> Iterator[Finding]:
    """One finding for each such thing."""
    for tree in facts.trees.values():
        for node in tree.nodes():
            why = _of_class(node) if isinstance(node, ast.ClassDef) else _of_node(tree, node)
            if why:
                at = why[1] or node
                yield NoCounterpart(tree.site(at), why[0], _BY_HAND).finding
    yield from _tied(facts)
    yield from _raw(facts)


_Why = tuple[str, ast.AST | None]


def _of_node(tree: Tree, node: ast.AST) -> _Why | None:
    if isinstance(node, ast.Call) and _is_compiled(tree, node):
        return "FSDP2 leaves `_orig_mod` out of the names in files", None
    if _is_meta(tree, node):
        what = "FSDP1 calls reset_parameters() for weights on the meta device, FSDP2 leaves them"
        return f"{what}: to_empty() and reset_parameters() behind fully_shard, by hand", None
    if _asks_class(tree, node):
        return "fully_shard makes another class of each unit, which this asks for", None
    return None


def _is_compiled(tree: Tree, node: ast.Call) -> bool:
    name = tree.text(node.func)
    return name == "torch.compile" or (name.endswith(".compile") and not name.startswith("re."))


def _is_meta(tree: Tree, node: ast.AST) -> bool:
    """``torch.device("meta")``, ``device="meta"``, ``.to("meta")``; a context of Accelerate."""
    if isinstance(node, ast.Call):
        return tree.text(node.func).rpartition(".")[2] == "init_empty_weights"
    return isinstance(node, ast.Constant) and node.value == "meta" and _is_device(tree, node)


def _is_device(tree: Tree, node: ast.AST) -> bool:
    above = tree.parent(node)
    if isinstance(above, ast.Call):
        return tree.text(above.func).rpartition(".")[2] in _PLACES
    return isinstance(above, ast.keyword) and above.arg == "device"


def _asks_class(tree: Tree, node: ast.AST) -> bool:
    """``type(m) is Block``, ``m.__class__ == Block``; not what is shown."""
    asked = isinstance(node, ast.Attribute) and node.attr == "__class__"
    asked |= isinstance(node, ast.Call) and tree.text(node.func) == "type" and len(node.args) == 1
    if not asked:
        return isinstance(node, ast.Constant) and node.value == CLASS
    above = tree.parent(node)
    above = tree.parent(above) if isinstance(above, ast.Attribute) else above
    return isinstance(above, ast.Compare) and not _is_with_plain(tree, above)


def _is_with_plain(tree: Tree, node: ast.Compare) -> bool:
    """``type(x) == torch.Tensor``: no module has that class, sharded or not."""
    sides = [tree.text(one) for one in (node.left, *node.comparators)]
    return any(one == "torch.Tensor" or hasattr(builtins, one) for one in sides)


def _raw(facts: Facts) -> Iterator[Finding]:
    """``model = FSDP(net)``, and ``net.parameters()`` later on, by whatever name it has then."""
    since: dict[Thing, int] = {}
    for call in facts.everywhere:
        for thing in call.result.of(Kind.WRAPPED):
            wrapper = thing.detail(Wrapper)
            if wrapper is not None and CLASS in wrapper.name:
                since.setdefault(whole(thing), wrapper.order)
    for calls in once(facts.everywhere).values():
        call = calls[0]
        parts = call.receiver.of(Kind.MODEL) if call.receiver is not None else ()
        late = any(since.get(whole(one), call.order) < call.order for one in parts)
        if call.name in _LOOKS and late:
            what = "the weights of the model before it was wrapped, which FSDP1 flattens"
            yield NoCounterpart(call.site, what, _BY_HAND).finding


# -- gradients that there are, or are not --------------------------------------------------------


def _of_class(node: ast.ClassDef) -> _Why | None:
    methods = [one for one in node.body if isinstance(one, ast.FunctionDef)]
    if not any(one.name == "forward" for one in methods):
        return None
    made = next((one for one in methods if one.name == "__init__"), None)
    others = [one for one in methods if one is not made]
    changing = {name for one in others for name in _own(one, ast.Store)}
    for method in others:
        names = _local(method)
        for part in ast.walk(method):
            if isinstance(part, _Branch) and not _is_fixed(part, changing) and _uses(part, names):
                what = "which weights get a gradient depends on this: FSDP2 reduces no others"
                return what, part
    read = {name for one in methods for name in _own(one, ast.Load)}
    goes_over = any(_goes_over(one) for one in others)
    unused = _layers(made) - read if made is not None and not goes_over else set[str]()
    if unused:
        what = f"`{min(unused)}` gets no gradient: FSDP1 gives it zeros, and lets it decay"
        return what, made
    return None


def _own(node: ast.AST, context: type[ast.expr_context]) -> Iterator[str]:
    for one in ast.walk(node):
        whose = one.value if isinstance(one, ast.Attribute) else None
        if isinstance(one, ast.Attribute) and isinstance(one.ctx, context):
            yield from [one.attr] if isinstance(whose, ast.Name) and whose.id == "self" else []


def _layers(made: ast.FunctionDef) -> set[str]:
    """What ``__init__`` keeps of what it calls: ``self.head = nn.Linear(…)``."""
    found = [one for one in ast.walk(made) if isinstance(one, ast.Assign)]
    calls = [one for one in found if isinstance(one.value, ast.Call)]
    named = {name for one in calls for target in one.targets for name in _own(target, ast.Store)}
    return {name for name in named if _is_layer(calls, name)}


def _is_layer(calls: list[ast.Assign], name: str) -> bool:
    """Whether it is made by a class: ``nn.Linear``, ``Block``."""
    made = [one.value for one in calls if name in set(_own(one, ast.Store))]
    funcs = [ast.unparse(one.func) for one in made if isinstance(one, ast.Call)]
    return any(func.rpartition(".")[2][:1].isupper() for func in funcs)


def _goes_over(method: ast.FunctionDef) -> bool:
    names = {"children", "modules", "named_children", "named_modules", "getattr", "_modules"}
    parts = map(last_name, ast.walk(method))
    return bool(names.intersection(parts))


def _local(method: ast.FunctionDef) -> set[str]:
    """The names that a method binds, which may be layers: ``for block in self.blocks``."""
    names = {n.id for n in ast.walk(method) if isinstance(n, ast.Name) and _is_stored(n)}
    return names | {one.arg for one in (*method.args.args[1:], *method.args.kwonlyargs)}


def _is_stored(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


def _is_fixed(branch: _Branch, changing: set[str]) -> bool:
    """Whether it asks for what ``__init__`` has set alone: ``self.down is not None``."""
    if isinstance(branch, ast.Match | ast.While):
        return False
    own = set(_own(branch.test, ast.Load))
    names = names_in(branch.test)
    calls = any(isinstance(n, ast.Call) for n in ast.walk(branch.test))
    return bool(own) and not own & changing and names == {"self"} and not calls


def _uses(branch: _Branch, names: set[str]) -> bool:
    """Whether what runs under the condition may call a layer, or take a weight."""
    bodies = branch.cases if isinstance(branch, ast.Match) else [branch.body, branch.orelse]
    flat = [n for body in bodies for n in (body if isinstance(body, list) else [body])]
    return any(_is_of_model(n, names) for part in flat for n in ast.walk(part))


def _is_of_model(node: ast.AST, names: set[str]) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id in names and not hasattr(builtins, node.func.id)
    if isinstance(node, ast.Call):
        return ast.unparse(node.func).startswith("self.")
    return isinstance(node, ast.Return | ast.Continue | ast.Break)


def _tied(facts: Facts) -> Iterator[Finding]:
    """``head.weight = words.weight`` of what are two units: ``fully_shard`` takes no such."""
    broad = [one for tree in facts.trees.values() for one in tree.nodes() if _is_broad(one)]
    for tree in facts.trees.values() if broad else ():
        for node in tree.nodes():
            if isinstance(node, ast.Assign) and all(map(_is_part, (node.value, *node.targets))):
                what = "this weight may be that of two units, of which fully_shard takes one"
                yield NoCounterpart(tree.site(node), what, _BY_HAND).finding


def _is_part(node: ast.expr) -> bool:
    return getattr(node, "attr", "") in _PARTS


def _is_broad(node: ast.AST) -> bool:
    """A policy by size or by a function, or one that has torch's layers among its classes."""
    if isinstance(node, ast.Name | ast.Attribute):
        return last_name(node) in _BROAD
    if not isinstance(node, ast.Call):
        return False
    policy = ast.unparse(node.func).endswith("ModuleWrapPolicy")
    policy |= any(one.arg == "transformer_layer_cls" for one in node.keywords)
    names = map(last_name, ast.walk(node))
    return policy and bool(_LAYERS.intersection(names))
