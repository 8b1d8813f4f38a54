"""What the backward graph asks of the wrapper: repeated forwards, parameters without gradient."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from ddpify.facts import roles
from ddpify.facts.bindings import is_each
from ddpify.facts.certain_parts import passed_by
from ddpify.facts.chance import is_left_to_chance
from ddpify.facts.constructed import OwnPart, method, own, parts_of_class, stored
from ddpify.facts.events import Call, Forward
from ddpify.facts.gradients import behind
from ddpify.facts.joining import flat_deps
from ddpify.facts.norms import built, by_class
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import ClassInfo
from ddpify.facts.through import AT_REST
from ddpify.facts.values import Kind, Thing
from ddpify.source import Site

# What gives whole models; a tokenizer or a configuration has no parameters.
_MAKERS: Final = (
    "torchvision.models.",
    "torch.hub.load",
    "timm.",
    "pretrainedmodels.",
    "efficientnet_pytorch.",
    "segmentation_models_pytorch.",
)
_OPEN: Final = "?"
_ENCODERS: Final = ("transformers.", "pytorch_transformers.", "pytorch_pretrained_bert.")


def repeated(m: Machine) -> frozenset[Site]:
    """Models that are called at several places before one backward, or by a function that is."""
    found: set[Site] = set()
    for _, forwards in _before_backwards(m):
        places: dict[Site, set[tuple[Site, ...]]] = {}
        for forward in forwards:
            place = (*forward.call.where.stack, forward.call.site)
            places.setdefault(roles.whole(forward.model).born, set()).add(place)
        found |= {born for born, sites in places.items() if len(sites) > 1}
    return frozenset(found)


def apart(m: Machine, things: tuple[Thing, ...]) -> bool:
    """Whether several forwards before one backward may leave out other layers each: by chance, or
    by an argument that is not the same number, text or truth in all of them."""
    born = {t.born for t in things}
    if not born & (repeated(m) | _looped(m)):
        return False
    if any(is_left_to_chance(info, _layers(m, info)) for info in classes(m, things)):
        return True
    ours = [f for f in _trained(m) if roles.whole(f.model).born in born]
    read = {thing.ref for thing in things if isinstance(thing.ref, ClassInfo)}
    said = (said for info in read for said in _switches(m, info, ours).values())
    return any(_OPEN in one or len(one) > 1 for one in said)


def _looped(m: Machine) -> frozenset[Site]:
    """Models that are called in a loop before one backward."""
    return frozenset(
        roles.whole(forward.model).born
        for backward, forwards in _before_backwards(m)
        for forward in forwards
        if _is_looped(m, forward.call, backward)
    )


def _is_looped(m: Machine, call: Call, backward: Call) -> bool:
    loops = {loop.site for loop in call.where.loops()}
    if loops - {loop.site for loop in backward.where.loops()}:
        return True
    trees = ((m.tree(site.path), site) for site in call.way)
    return any(is_each(tree, node) for tree, site in trees if (node := tree.expression(site)))


def _before_backwards(m: Machine) -> Iterator[tuple[Call, set[Forward]]]:
    """Each backward, with the forwards that it goes back through."""
    by_output = {f.output: f for f in roles.forwards_of(m)}
    for call in roles.backwards(roles.calls_of(m)):
        values = [value for value in (call.receiver, *call.args) if value is not None]
        outputs = {o for value in values for o in behind(flat_deps(value))}
        yield call, {by_output[output] for output in outputs if output in by_output}


def _trained(m: Machine) -> list[Forward]:
    """The forwards of what some backward goes back through: not those of an evaluation."""
    sites = {forward.call.site for _, found in _before_backwards(m) for forward in found}
    return [forward for forward in roles.forwards_of(m) if forward.call.site in sites]


def unused(m: Machine, things: tuple[Thing, ...]) -> str:
    """Why some parameters may get no gradient in a step; "" when nothing suggests it."""
    born = {t.born for t in things}
    ours = [f for f in _trained(m) if roles.whole(f.model).born in born]
    if any(_drops_output(m, forward) for forward in ours):
        return "not every output reaches the loss"
    parts = classes(m, things)
    if any(is_left_to_chance(info, _layers(m, info)) for info in parts):
        return "layers are left out at random"
    told = {
        info: _omitted(info, ours) for thing in things for info in (thing.ref,) if info in parts
    }
    spared = {
        info: _chosen(m, info, ours) if born & repeated(m) else frozenset[str]() for info in told
    }
    reasons = (_reason(m, one, told.get(one), spared.get(one, frozenset())) for one in parts)
    return next(filter(None, reasons), "")


def _omitted(info: ClassInfo, calls: list[Forward]) -> dict[str, object]:
    """The arguments that no call gives, with their defaults."""
    forward = method(info, "forward")
    if forward is None or not calls or any(f.call.star or f.call.bound for f in calls):
        return {}
    names = [one.arg for one in forward.args.args]
    defaults = dict(zip(reversed(names), reversed(forward.args.defaults), strict=False))
    given = {name for f in calls for name in (*names[: len(f.call.args) + 1], *f.call.kwargs)}
    return {
        name: value.value
        for name, value in defaults.items()
        if name not in given and isinstance(value, ast.Constant)
    }


def _chosen(m: Machine, info: ClassInfo, calls: list[Forward]) -> frozenset[str]:
    """The arguments by which each of several calls surely uses other parts than the others."""
    forward = method(info, "forward")
    names = {one.arg for one in forward.args.args} if forward is not None else set()
    switches = _switches(m, info, calls).items()
    return frozenset(names.difference(name for name, said in switches if _OPEN in said))


def _switches(m: Machine, info: ClassInfo, calls: list[Forward]) -> dict[str, set[str]]:
    """What calls give, or leave at its default, for what ``forward`` decides by: ``if aux:``."""
    forward = method(info, "forward")
    if forward is None:
        return {}
    names = [one.arg for one in forward.args.args]
    defaults = dict(zip(reversed(names), reversed(forward.args.defaults), strict=False))
    asked = {name for node in ast.walk(forward) for name in _asked(node)}
    places = ((n, name) for n, name in enumerate(names) if n and name in asked)
    return {
        name: {_said(m, f.call, n - 1, name, defaults.get(name)) for f in calls}
        for n, name in places
    }


def _said(m: Machine, call: Call, place: int, name: str, default: ast.expr | None) -> str:
    """A constant as it is written; ``_OPEN`` where it is none, or another one in each round."""
    value, site = call.arg(place, name), call.arg_site(place, name)
    if value is None:
        if call.star or call.bound or not isinstance(default, ast.Constant):
            return _OPEN
        return repr(default.value)
    node = m.tree(site.path).expression(site) if site is not None else None
    alike = isinstance(node, ast.Constant) or not (node and is_each(m.tree(call.site.path), node))
    return repr(value.const) if value.known and alike else _OPEN


def _asked(node: ast.AST) -> Iterator[str]:
    """The names whose value a condition asks for: not whether they are None, nor of their shape."""
    tests = [node.test] if isinstance(node, ast.If | ast.IfExp | ast.While) else []
    while tests:
        test = tests.pop()
        if isinstance(test, ast.Name):
            yield test.id
        elif isinstance(test, ast.BoolOp):
            tests += test.values
        elif isinstance(test, ast.UnaryOp):
            tests.append(test.operand)
        elif isinstance(test, ast.Compare):
            sides = (test.left, *test.comparators)
            none = any(isinstance(one, ast.Constant) and one.value is None for one in sides)
            tests += () if none else (one for one in sides if isinstance(one, ast.Name))


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


def classes(m: Machine, things: tuple[Thing, ...]) -> list[ClassInfo]:
    """The classes of the project that a model and its parts are of."""
    made = by_class(roles.calls_of(m))
    found = {info: part for thing in things for info, part in built(thing, made).items()}
    return [i for i, part in found.items() if part.ref is i and part.kind is Kind.MODEL]


def _reason(
    m: Machine, info: ClassInfo, omitted: dict[str, object] | None, chosen: frozenset[str]
) -> str:
    methods = {n.name: n for n in info.node.body if isinstance(n, ast.FunctionDef)}
    forward, init = method(info, "forward"), methods.get("__init__")
    if forward is not None and any(
        isinstance(n, ast.With) and "no_grad" in ast.unparse(n.items[0]) for n in ast.walk(forward)
    ):
        return "a part runs under no_grad"
    if "train" in methods and _freezes(methods["train"]):
        return "`train` freezes layers"  # after the wrap, in each epoch perhaps
    if found := _of_library(m, info, init) if init is not None else "":
        return found

    def look(one: ClassInfo) -> dict[str, OwnPart]:
        found = parts_of_class(m, one)
        return {n: part for n, part in found.items() if one is not info or not _goes_out(m, n)}

    return passed_by(info, look, omitted, chosen)


def _goes_out(m: Machine, name: str) -> bool:
    """``criterion(model.decoder.weight, out, y)``: who has a part's weight gives it gradients."""
    for access in m.events.accesses(name):
        function, tree = access.where.function, m.tree(access.base_site.path)
        inside = function is not None and function.owner is not None
        if inside or not access.base.of(Kind.MODEL, Kind.WRAPPED):
            continue
        node: ast.AST | None = None
        above: ast.AST | None = tree.expression(access.base_site)
        while isinstance(above, ast.Attribute | ast.Name | ast.Subscript):
            node, above = above, tree.parent(above)
        weight = isinstance(node, ast.Attribute) and node.attr in ("weight", "bias")
        if weight and isinstance(above, ast.Call | ast.BinOp | ast.keyword):
            return True
    return False


def _of_library(m: Machine, info: ClassInfo, init: ast.FunctionDef) -> str:
    """Of models that a library made whole."""
    pieces = sorted(_in_pieces(m, info, init))
    if pieces:
        return f"of `{pieces[0]}` only parts are used"
    encoder = next(filter(None, (_without_pooler(m, info, n) for n in ast.walk(init))), "")
    if encoder:
        return f"nothing reads what the pooler of `{encoder}` gives"
    return ""


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
    for name in {n.attr for n in own(init) if isinstance(n.ctx, ast.Store)}:
        made = [n for n in ast.walk(init) if isinstance(n, ast.Assign) and name in stored(n)]
        values = [m.values.get(tree.site(n.value)) for n in made]
        things = [t for value in values if value is not None for t in value.things]
        foreign = bool(things) and all(_is_foreign(thing) for thing in things)
        uses = [n for n in own(info.node) if n.attr == name and isinstance(n.ctx, ast.Load)]
        around = [tree.parent(n) for n in uses]
        parts = [a for a in around if isinstance(a, ast.Attribute) and a.attr not in AT_REST]
        if foreign and parts and len(parts) == len(around):
            found.add(name)
    return found


def _is_foreign(thing: Thing) -> bool:
    """A model that a library made whole, with layers that nobody asked for."""
    return not isinstance(thing.ref, ClassInfo) and thing.name.startswith(_MAKERS)


def _layers(m: Machine, info: ClassInfo) -> frozenset[str]:
    """The parts that a class and its bases make, and the lists of such."""
    return frozenset(parts_of_class(m, info))
