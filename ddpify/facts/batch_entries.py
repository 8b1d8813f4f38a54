"""Which entry of a batch that a function has put together an expression is, by place or by key. ::

for batch in loader:
    inputs = {k: v.to(device) for k, v in batch.items() if k != "labels"}
    model(**inputs, labels=batch["labels"])     # in its forward, `labels` is that entry
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpify.facts.details import call_that_made
from ddpify.facts.fresh import method_of
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import ClassInfo, Frame, FunctionInfo
from ddpify.facts.tree import Tree
from ddpify.facts.values import NOTHING, Kind, Thing
from ddpify.facts.written_parts import parts_of
from ddpify.source import Site

Place = int | str
DEPTH = 4


def collates(loader: Thing) -> Iterator[FunctionInfo]:
    """What a loader calls: a function, or an object's ``__call__``."""
    call = call_that_made(loader)
    given = call.arg(6, "collate_fn") if call is not None else None
    for thing in (given or NOTHING).things:
        own = thing.ref.lookup("__call__") if isinstance(thing.ref, ClassInfo) else None
        for one in (thing, *(own.things if own is not None else ())):
            if isinstance(one.ref, FunctionInfo):
                yield one.ref


def keys_of(batch: Thing) -> tuple[str, ...]:
    """The keys of a batch that is a dict, where they are written out; () where they are not."""
    found = {_keys(loader) for loader in batch.stands_for}
    return found.pop() if len(found) == 1 else ()


def _keys(loader: Thing) -> tuple[str, ...]:
    call = call_that_made(loader)
    if call is None or call.star:
        return ()
    makers = list(collates(loader))
    if call.arg(6, "collate_fn") is None:
        data = (call.arg(0, "dataset") or NOTHING).things
        methods = [method_of(thing, "__getitem__") for thing in data]
        makers = [info for info in methods if info is not None and len(methods) == len(data)]
    returned = [n.value for one in makers for n in ast.walk(one.node) if isinstance(n, ast.Return)]
    written = parts_of(returned[0], makers[0], {}) if len(returned) == 1 else None
    return written.form.keys if written is not None and written.form.kind is Kind.DICT else ()


def entry_at(m: Machine, f: Frame, site: Site) -> Place | None:
    """The entry that stands somewhere in a frame, also as what this was called with."""
    tree = m.tree(site.path)
    node = tree.expression(site)
    return _entry(m, f, tree, node, DEPTH) if node is not None else None


def _entry(m: Machine, f: Frame | None, tree: Tree, node: ast.expr, depth: int) -> Place | None:
    match _peeled(node):
        case ast.Subscript(value=ast.Name() as batch, slice=ast.Constant(value=str(key))):
            return key if _is_batch(tree, batch) else None
        case ast.Name(id=name) as read if depth:
            place = unpacked(tree, read)
            if place is not None:
                return place
            given = _bound(tree, read)
            if given is not None:
                return _entry(m, f, tree, given, depth - 1)
            if f is not None and f.caller is not None and name in f.parameters:
                return _passed(m, f, f.caller, name, depth - 1)
    return None


def _passed(m: Machine, f: Frame, caller: Frame, name: str, depth: int) -> Place | None:
    """What a function is given for a parameter, be it by a dict with the keys of a batch."""
    site = f.parameters[name]
    tree = m.tree((site or f.stack[-1]).path)
    node = tree.expression(site or f.stack[-1])
    if site is not None:
        return _entry(m, caller, tree, node, depth) if node is not None else None
    words = [k.value for k in node.keywords if k.arg is None] if isinstance(node, ast.Call) else []
    if len(words) != 1 or not isinstance(words[0], ast.Name):
        return None
    made = _bound(tree, words[0])
    same = _keeps_keys(tree, made) if made is not None else _is_batch(tree, words[0])
    return name if same else None


def _keeps_keys(tree: Tree, node: ast.expr) -> bool:
    """``{k: v.to(device) for k, v in batch.items()}``"""
    match node:
        case ast.DictComp(
            key=ast.Name(key),
            value=value,
            generators=[
                ast.comprehension(
                    target=ast.Tuple(elts=[ast.Name(word), ast.Name(entry)]),
                    iter=ast.Call(ast.Attribute(ast.Name() as batch, "items"), [], []),
                )
            ],
        ):
            own = _peeled(value)
            plain = key == word and isinstance(own, ast.Name) and own.id == entry
            return plain and _is_batch(tree, batch)
    return False


def _peeled(node: ast.expr) -> ast.expr:
    """``y`` of ``y.view(-1).long()``."""
    while isinstance(node, (ast.Attribute, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node


def _bound(tree: Tree, name: ast.Name) -> ast.expr | None:
    """What a name is bound to in its function, where that is one assignment and no other."""
    nodes = list(tree.nodes(tree.function(name)))
    stores = [n for n in nodes if isinstance(n, ast.Name) and n.id == name.id and _is_stored(n)]
    parents = [tree.parent(one) for one in stores]
    if len(parents) != 1 or not isinstance(parents[0], ast.Assign):
        return None
    return parents[0].value if len(parents[0].targets) == 1 else None


def _is_batch(tree: Tree, name: ast.Name) -> bool:
    """Whether a name is what a loop over a loader gives: ``for i, batch in enumerate(loader)``.

    It may be bound to what is made of it, ``batch = {k: v.cuda() for k, v in batch.items()}``.
    """
    loops = [n for n in tree.ancestors(name) if isinstance(n, ast.For)]
    return any(
        isinstance(n, ast.Name) and n.id == name.id for loop in loops for n in _heads(loop.target)
    )


def _heads(target: ast.expr) -> list[ast.expr]:
    return [target.elts[-1]] if isinstance(target, ast.Tuple) else [target]


def _is_stored(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


def unpacked(tree: Tree, node: ast.Name) -> int | None:
    """1 of ``y`` in ``for x, y in loader``."""
    name = node.id
    for loop in tree.ancestors(node):
        if isinstance(loop, ast.For):
            inner = (n for n in loop.body if isinstance(n, ast.Assign))
            given = [n for n in inner if ast.unparse(n.value) == ast.unparse(loop.target)]
            heads = (loop.target, *(target for n in given for target in n.targets))
            tuples = [t for head in heads for t in ast.walk(head) if isinstance(t, ast.Tuple)]
            names = [[ast.unparse(one) for one in t.elts] for t in tuples]
            found = [entries.index(name) for entries in names if name in entries]
            if len(found) == 1 and all(
                _keeps(n, name) for s in loop.body if s not in given for n in ast.walk(s)
            ):
                return found[0]
    return None


def _keeps(node: ast.AST, name: str) -> bool:
    """Whether a statement leaves a name what it was: ``x, y = x.cuda(), y.cuda()``."""
    for target in node.targets if isinstance(node, ast.Assign) else ():
        pairs = [(target, node.value)] if isinstance(node, ast.Assign) else []
        if isinstance(target, ast.Tuple) and isinstance(node, ast.Assign):
            values = node.value.elts if isinstance(node.value, ast.Tuple) else []
            values = values if len(values) == len(target.elts) else [node.value] * len(target.elts)
            pairs = [*zip(target.elts, values, strict=True)]
        if any(ast.unparse(t) == name and ast.unparse(_peeled(v)) != name for t, v in pairs):
            return False
    return True
