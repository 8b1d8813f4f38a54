"""What is read of a value after a loop or a block: of a variable in its function, of an attribute
anywhere.

An attribute of ``self`` that nothing in the project reads but the loop that binds it is as good as
a local. What could read it unseen (``__dict__``, ``getattr`` with a name that is made, ``self``
handed on, a base class or a decorator of a library) makes it one that is read.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from ddpify.facts.scopes import ClassInfo, Frame
from ddpify.facts.tree import Tree, written


def read_after(trees: Mapping[str, Tree], f: Frame, node: ast.stmt, name: str) -> bool:
    """Whether what a loop or block leaves in a name, or in ``self.x``, is read after it."""
    tree = trees[f.module.source.path]
    own, _, attribute = name.partition(".")
    if f.self_thing is None or own != next(iter(f.parameters), "") or not attribute.isidentifier():
        return tree.read_after(node, name)
    kind = f.self_thing.ref
    if not isinstance(kind, ClassInfo) or _is_shared(trees, kind):
        return True
    return any(_reads(one, attribute, tree, node) for one in trees.values())


def _is_shared(trees: Mapping[str, Tree], kind: ClassInfo) -> bool:
    """Whether code that does not say an attribute's name may read it."""
    for one in kind.mro():
        bases = len(one.local_bases()) + sum(written(b) == "object" for b in one.node.bases)
        if bases < len(one.node.bases) or one.node.keywords or one.node.decorator_list:
            return True
        tree = trees[one.module.source.path]
        methods = (s for s in one.node.body if isinstance(s, ast.FunctionDef) and s.args.args)
        if any(_hands_on(tree, method) for method in methods):
            return True
    return False


def _hands_on(tree: Tree, method: ast.FunctionDef) -> bool:
    own = method.args.args[0].arg
    said = (n for n in tree.nodes(method) if isinstance(n, ast.Name) and n.id == own)
    return any(not _is_owner(tree.parent(node)) for node in said)


def _is_owner(around: ast.AST | None) -> bool:
    """Whether it is ``self`` of ``self.x`` or of ``super(Kind, self)``."""
    if isinstance(around, ast.Call):
        return isinstance(around.func, ast.Name) and around.func.id == "super"
    return isinstance(around, ast.Attribute)


def _reads(tree: Tree, attribute: str, own: Tree, node: ast.stmt) -> bool:
    """Whether a file may read the attribute; ``getattr`` and ``"{meter.loss}"`` say its name."""
    formatted = (text for text in tree.texts if "{" in text)
    said = attribute in tree.texts or any(f".{attribute}" in text for text in formatted)
    if said or tree.reads_unnamed:
        return True
    found = tree.loads.get(attribute, [])
    return any(tree is not own or _is_left(tree, node, one) for one in found)


def _is_left(tree: Tree, node: ast.stmt, read: ast.Attribute) -> bool:
    """Whether this may read what the loop left: neither in it, nor after another value is bound
    in its function."""
    if node in tree.ancestors(read):
        return False
    inside = tree.nodes(tree.function(node))
    return read not in inside or not any(
        (tree.site(store) < tree.site(node)) is (tree.site(read) < tree.site(node))
        and tree.precedes(store, read)
        for store in inside
        if isinstance(store, ast.Assign) and written(read) in _bound(store)
        if node not in tree.ancestors(store)
    )


def _bound(store: ast.Assign) -> Iterator[str]:
    for target in store.targets:
        yield from map(written, target.elts if isinstance(target, ast.Tuple) else [target])
