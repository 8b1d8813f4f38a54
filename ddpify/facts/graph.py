"""What the backward graph asks of the wrapper: repeated forwards, parameters without gradient."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from typing import Final

from ddpify.facts import roles
from ddpify.facts.chance import is_left_to_chance
from ddpify.facts.events import Forward
from ddpify.facts.gradients import behind
from ddpify.facts.joining import flat_deps
from ddpify.facts.norms import built, makers
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import ClassInfo
from ddpify.facts.through import AT_REST
from ddpify.facts.values import Kind, Thing
from ddpify.source import Site

_WITH_PARAMETERS: Final = frozenset(
    f"torch.nn.{name}"
    for name in """Linear Bilinear Embedding EmbeddingBag RNN LSTM GRU RNNCell LSTMCell GRUCell
    Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d BatchNorm1d BatchNorm2d
    BatchNorm3d LayerNorm GroupNorm PReLU MultiheadAttention Transformer TransformerEncoder
    TransformerEncoderLayer TransformerDecoder TransformerDecoderLayer Sequential""".split()
)
# What gives whole models; a tokenizer or a configuration has no parameters.
_MAKERS: Final = (
    "torchvision.models.",
    "torch.hub.load",
    "timm.",
    "pretrainedmodels.",
    "efficientnet_pytorch.",
    "segmentation_models_pytorch.",
)
_ENCODERS: Final = ("transformers.", "pytorch_transformers.", "pytorch_pretrained_bert.")
_LISTS: Final = frozenset({"torch.nn.ModuleList", "torch.nn.ModuleDict"})


def repeated(m: Machine) -> frozenset[Site]:
    """Models that are called at several places before one backward, or by a function that is."""
    found: set[Site] = set()
    for forwards in _before_backwards(m):
        places: dict[Site, set[tuple[Site, ...]]] = {}
        for forward in forwards:
            place = (*forward.call.where.stack, forward.call.site)
            places.setdefault(roles.whole(forward.model).born, set()).add(place)
        found |= {born for born, sites in places.items() if len(sites) > 1}
    return frozenset(found)


def _before_backwards(m: Machine) -> Iterator[set[Forward]]:
    """Of each backward the forwards that it goes back through."""
    by_output = {f.output: f for f in roles.forwards_of(m)}
    for call in roles.backwards(roles.calls_of(m)):
        values = [value for value in (call.receiver, *call.args) if value is not None]
        outputs = {o for value in values for o in behind(flat_deps(value))}
        yield {by_output[output] for output in outputs if output in by_output}


def unused(m: Machine, things: tuple[Thing, ...]) -> str:
    """Why some parameters may get no gradient in a step; "" when nothing suggests it."""
    born = {t.born for t in things}
    trained = {forward.call.site for forwards in _before_backwards(m) for forward in forwards}
    for forward in roles.forwards_of(m):
        own = roles.whole(forward.model).born in born and forward.call.site in trained
        if own and _drops_output(m, forward):
            return "not every output reaches the loss"
    parts = tuple(_parts(m, things))
    if any(is_left_to_chance(info, _layers(m, info)) for info in parts):
        return "layers are left out at random"
    return next(filter(None, (_reason(m, info) for info in parts)), "")


def _drops_output(m: Machine, forward: Forward) -> bool:
    """``validity, _ = D(x)``, or a name that nothing reads: the head behind it gets no gradient."""
    tree = m.tree(forward.call.site.path)
    node = tree.expression(forward.call.site)
    above = tree.parent(node) if node is not None else None
    if not isinstance(above, ast.Assign) or forward.call.where.no_grad:
        return False
    target, scope = above.targets[0], tree.function(above)
    names = [n for n in getattr(target, "elts", ()) if isinstance(n, ast.Name)]
    return any(n.id == "_" or not any(tree.reads(scope, n.id)) for n in names)


def _parts(m: Machine, things: tuple[Thing, ...]) -> Iterator[ClassInfo]:
    """The classes of the project that a model and its parts are of."""
    made = makers(roles.calls_of(m))
    found = {info: part for thing in things for info, part in built(thing, made).items()}
    return (i for i, part in found.items() if part.ref is i and part.kind is Kind.MODEL)


def _reason(m: Machine, info: ClassInfo) -> str:
    methods = [n for n in info.node.body if isinstance(n, ast.FunctionDef)]
    forward = next((n for n in methods if n.name == "forward"), None)
    init = next((n for n in methods if n.name == "__init__"), None)
    if forward is None or init is None:
        return ""
    if any(
        isinstance(n, ast.With) and "no_grad" in ast.unparse(n.items[0]) for n in ast.walk(forward)
    ):
        return "a part runs under no_grad"
    if any(_freezes(one) for one in methods if one.name == "train"):
        return "`train` freezes layers"  # after the wrap, in each epoch perhaps
    pieces = sorted(_in_pieces(m, info, init))
    if pieces:
        return f"of `{pieces[0]}` only parts are used"
    encoder = next(filter(None, (_without_pooler(m, info, n) for n in ast.walk(init))), "")
    if encoder:
        return f"nothing reads what the pooler of `{encoder}` gives"
    made = {n.attr for n in _own(init) if isinstance(n.ctx, ast.Store)}
    used = {n.attr for n in _own(info.node) if isinstance(n.ctx, ast.Load)}
    layers = {name for name in made - used if _is_part(m, info, init, name)}
    if any(isinstance(n, ast.Call) and _walks_modules(n) for n in ast.walk(forward)):
        return ""
    if layers:
        return f"`{sorted(layers)[0]}` is never used"
    others = (one for one in methods if one not in (forward, init))
    elsewhere = {n.attr for one in others for n in _own(one)}
    parts = {name for name in made & used - elsewhere if _is_part(m, info, init, name)}
    asked = {name for name in parts if _is_optional(name, _in_training(forward), init)}
    return f"`{sorted(asked)[0]}` is used under a condition only" if asked else ""


def _without_pooler(m: Machine, info: ClassInfo, made: ast.AST) -> str:
    """``self.bert = BertModel(…)`` of a class that reads neither ``outputs[1]`` nor its like."""
    if not isinstance(made, ast.Assign) or not isinstance(made.targets[0], ast.Attribute):
        return ""
    value = m.values.get(m.tree(info.module.source.path).site(made.value))
    if value is None or not any(t.name.startswith(_ENCODERS) for t in value.things):
        return ""
    read = any(
        (isinstance(n, ast.Subscript) and ast.unparse(n.slice) in ("1", "-1", "'pooler_output'"))
        or (isinstance(n, ast.Attribute) and n.attr in ("pooler_output", "logits", "loss"))
        or (isinstance(n, (ast.Tuple, ast.List)) and _is_second_kept(n))
        for n in ast.walk(info.node)
    )
    return "" if read else made.targets[0].attr


def _is_second_kept(target: ast.Tuple | ast.List) -> bool:
    """``_, pooled = self.bert(ids)``."""
    names = [n.id for n in target.elts if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    return len(names) > 1 and not names[1].startswith("_")


def _freezes(method: ast.FunctionDef) -> bool:
    stored = (n for n in ast.walk(method) if isinstance(n, ast.Attribute))
    return any(n.attr == "requires_grad" and isinstance(n.ctx, ast.Store) for n in stored)


def _in_pieces(m: Machine, info: ClassInfo, init: ast.FunctionDef) -> set[str]:
    """Models of a library of which a class only uses parts: ``self.net.features(x)``."""
    tree = m.tree(info.module.source.path)
    found = set()
    for name in {n.attr for n in _own(init) if isinstance(n.ctx, ast.Store)}:
        made = [n for n in ast.walk(init) if isinstance(n, ast.Assign) and name in _stored(n)]
        values = [m.values.get(tree.site(n.value)) for n in made]
        things = [t for value in values if value is not None for t in value.things]
        foreign = bool(things) and all(_is_foreign(thing) for thing in things)
        uses = [n for n in _own(info.node) if n.attr == name and isinstance(n.ctx, ast.Load)]
        around = [tree.parent(n) for n in uses]
        parts = [a for a in around if isinstance(a, ast.Attribute) and a.attr not in AT_REST]
        if foreign and parts and len(parts) == len(around):
            found.add(name)
    return found


def _is_foreign(thing: Thing) -> bool:
    """A model that a library made whole, with layers that nobody asked for."""
    return not isinstance(thing.ref, ClassInfo) and thing.name.startswith(_MAKERS)


def _is_optional(name: str, forward: ast.FunctionDef, init: ast.FunctionDef) -> bool:
    """``if USE_AUX: return x, self.aux(x)``, of a layer that is always made."""
    tests = [test for test, body in _branches(forward) if any(n.attr == name for n in _own(body))]
    uses = sum(n.attr == name for n in _own(forward))
    inside = sum(n.attr == name for _, body in _branches(forward) for n in _own(body))
    if not tests or inside < uses or not _is_always_made(init, name):
        return False
    asked = {n.attr for test in tests for n in _own(test)}
    return len(tests) == 1 and not asked & {name, "training"}


def _in_training(forward: ast.FunctionDef) -> ast.FunctionDef:
    """A copy without the sides that ``if self.training:`` leaves out while a model trains."""
    return _Training().visit(copy.deepcopy(forward))  # type: ignore[no-any-return]


class _Training(ast.NodeTransformer):
    def visit_If(self, node: ast.If) -> ast.If | list[ast.stmt]:
        """One side of ``if self.training:``."""
        self.generic_visit(node)
        asked = ast.unparse(node.test)
        if asked == "self.training":
            return node.body
        return node.orelse if asked == "not self.training" else node


def _branches(function: ast.FunctionDef) -> Iterator[tuple[ast.expr, ast.Module]]:
    """The tests of a function, and what stands under one side of each."""
    for node in ast.walk(function):
        if isinstance(node, ast.If):
            yield node.test, ast.Module(node.body, [])
            yield node.test, ast.Module(node.orelse, [])
        elif isinstance(node, ast.IfExp):
            yield node.test, ast.Module([ast.Expr(node.body)], [])
            yield node.test, ast.Module([ast.Expr(node.orelse)], [])


def _own(scope: ast.AST) -> list[ast.Attribute]:
    """Every ``self.x`` in a scope."""
    found = [n for n in ast.walk(scope) if isinstance(n, ast.Attribute)]
    return [n for n in found if isinstance(n.value, ast.Name) and n.value.id == "self"]


def _layers(m: Machine, info: ClassInfo) -> frozenset[str]:
    """The parts that a class and its bases make, and the lists of such."""
    found: set[str] = set()
    for one in info.mro():
        for init in (n for n in one.node.body if isinstance(n, ast.FunctionDef)):
            if init.name == "__init__":
                made = _made(m, one, init)
                found |= {n for names, part in made if _has_parameters(part, _LISTS) for n in names}
    return frozenset(found)


def _is_part(m: Machine, info: ClassInfo, init: ast.FunctionDef, name: str) -> bool:
    """Whether the constructor makes it a module that has parameters: of the project, or of torch.

    A class is read for one of its objects: what its statements made says more than an object.
    """
    return any(name in names and _has_parameters(part) for names, part in _made(m, info, init))


def _made(m: Machine, info: ClassInfo, init: ast.FunctionDef) -> Iterator[tuple[set[str], Thing]]:
    """The modules that statements of a constructor make, with the attributes that they become."""
    tree = m.tree(info.module.source.path)
    for node in ast.walk(init):
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value and _stored(node):
            value = m.values.get(tree.site(node.value))
            for part in value.of(Kind.MODEL) if value is not None else ():
                yield _stored(node), part


def _has_parameters(part: Thing, too: frozenset[str] = frozenset()) -> bool:
    return isinstance(part.ref, ClassInfo) or part.name in _WITH_PARAMETERS | too


def _stored(statement: ast.stmt) -> set[str]:
    return {n.attr for n in _own(statement) if isinstance(n.ctx, ast.Store)}


def _is_always_made(init: ast.FunctionDef, name: str) -> bool:
    """Whether the constructor makes it under no condition: not ``wide and nn.Linear(8, 8)``."""
    stored = (n for n in init.body if isinstance(n, (ast.Assign, ast.AnnAssign)))
    return any(isinstance(n.value, ast.Call) and name in _stored(n) for n in stored)


def _walks_modules(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    return name in ("children", "modules", "named_children", "named_modules") or (
        isinstance(call.func, ast.Name) and call.func.id == "getattr"
    )
