"""Batches whose ``collate_fn`` fills samples up to the longest: shares differ in length. ::

    def collate(samples):
        return pad_sequence(samples, batch_first=True)

A mean over all entries is over some that one process has and no rank, or the other way round.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpify.facts.batch_entries import Place, collates, entry_at, unpacked
from ddpify.facts.events import Call
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import FunctionInfo, functions_in
from ddpify.facts.tree import Tree
from ddpify.facts.values import NOTHING, Kind, Thing, Value
from ddpify.facts.written_parts import parts_of
from ddpify.source import Site

FILLS = frozenset({"pad_sequence", "pad", "zip_longest"})
_MAKES = frozenset(
    """zeros ones full empty new_zeros new_ones new_full new_empty LongTensor FloatTensor Tensor
    tensor""".split()
)


def filling(value: Value) -> tuple[FunctionInfo, ...]:
    """The functions that fill up the batches a value is made of."""
    found = (info for loader in value.loaders() for info in collates(loader))
    return tuple(dict.fromkeys(info for info in found if _pads(info)))


def pads(loader: Thing) -> bool:
    """Whether what puts a loader's samples together fills them up."""
    return any(map(_pads, collates(loader)))


def is_filled(m: Machine, call: Call) -> bool:
    """Whether the targets of a criterion may be filled up: not ``labels`` beside filled texts."""
    functions = filling(call.arg(1, "target") or NOTHING)
    site = call.arg_site(1, "target")
    place = entry_at(m, call.where.frame, site) if site else None
    return any(place is None or not _is_plain(info, place) for info in functions)


def fills(m: Machine, value: Value, site: Site) -> bool:
    """Whether what stands somewhere is an entry of batches that is filled up."""
    functions = filling(value)
    tree = m.tree(site.path)
    place = _place(tree, tree.expression(site)) if functions else None
    return place is not None and any(not _is_plain(info, place) for info in functions)


def compares_filled(m: Machine, site: Site | None, value: Value) -> bool:
    """Whether entries of batches that were filled up stand in an expression: ``(out - y) ** 2``.

    What a model makes of them is another matter: ``critic(x)`` may be one number per sample.
    """
    functions = filling(value)
    if site is None or not functions:
        return False
    tree = m.tree(site.path)
    node = tree.expression(site)
    for name in _compared(node) if node is not None else ():
        place = _place(tree, name)
        if place is not None and any(not _is_plain(info, place) for info in functions):
            return True
    return False


def _compared(node: ast.AST) -> Iterator[ast.Name]:
    if isinstance(node, ast.Name):
        yield node
    called = node.func if isinstance(node, ast.Call) else None
    if called is not None and not isinstance(called, ast.Attribute):
        return
    if called is not None and ast.unparse(called).startswith("self."):
        return
    for inner in ast.iter_child_nodes(node):
        yield from _compared(inner)


def says_ignored(functions: tuple[FunctionInfo, ...]) -> bool:
    """``padding_value=-100``, which criteria ignore that were told nothing else."""
    return all("-100" in info.module.source.segment(info.site.span) for info in functions)


def _pads(info: FunctionInfo, deep: bool = True, given: frozenset[str] = frozenset()) -> bool:
    """Whether a function, or one that it calls, fills up, or makes a tensor of the longest.

    ``given`` are the parameters that its caller gives a length: ``max_len`` of what says
    ``if max_len is None: max_len = max(lengths)`` is that of all batches.
    """
    names = set(_called(info.node, given))
    if names & FILLS or ("max" in names and names & _MAKES):
        return True
    return deep and any(_pads(one, False, _given(info, one)) for one in _functions(info, names))


def _given(info: FunctionInfo, called: FunctionInfo) -> frozenset[str]:
    """The parameters that every call of a function gives it by name, other than ``None``."""
    calls = [n for n in ast.walk(info.node) if isinstance(n, ast.Call)]
    named = [
        {k.arg for k in n.keywords if k.arg and ast.unparse(k.value) != "None"}
        for n in calls
        if ast.unparse(n.func).rpartition(".")[2] == called.name
    ]
    return frozenset(set.intersection(*named)) if named else frozenset()


def _functions(info: FunctionInfo, names: set[str]) -> Iterator[FunctionInfo]:
    values = (info.module.globals.get(name) for name in names)
    return (found for value in values for found in functions_in(value))


def _called(node: ast.AST, given: frozenset[str] = frozenset()) -> Iterator[str]:
    if isinstance(node, ast.Call):
        yield ast.unparse(node.func).rpartition(".")[2]
    unless = isinstance(node, ast.If) and ast.unparse(node.test) in {f"{p} is None" for p in given}
    inner = node.orelse if unless and isinstance(node, ast.If) else ast.iter_child_nodes(node)
    for one in inner:
        yield from _called(one, given)


def _place(tree: Tree, node: ast.expr | None) -> int | None:
    """Which entry of a batch an expression is: 1 of ``y.view(-1)`` in ``for x, y in loader``."""
    while isinstance(node, (ast.Attribute, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return unpacked(tree, node) if isinstance(node, ast.Name) else None


def _is_plain(info: FunctionInfo, place: Place) -> bool:
    """Whether an entry of what a function returns is made without filling anything up."""
    returned = [n.value for n in ast.walk(info.node) if isinstance(n, ast.Return)]
    written = parts_of(returned[0], info, {}) if len(returned) == 1 else None
    if written is None:
        return False
    keys = written.form.keys if written.form.kind is Kind.DICT else range(len(written.values))
    entry = dict(zip(keys, written.values, strict=True)).get(place)
    if entry is None:
        return False
    made: set[ast.AST] = {entry}
    for _ in range(len(list(ast.walk(info.node)))):
        names = {n.id for one in made for n in ast.walk(one) if isinstance(n, ast.Name)}
        more = {n for n in ast.walk(info.node) if _stores(n, names)} - made
        if not more:
            break
        made |= more
    called = {name for one in made for name in _called(one)}
    own = any(_pads(one, False) for one in _functions(info, called))
    return not own and not called & (FILLS | {"max"})


def _stores(node: ast.AST, names: set[str]) -> bool:
    """Whether a statement binds or fills one of these names."""
    targets = getattr(node, "targets", None) or [getattr(node, "target", None)]
    if isinstance(node, ast.stmt) and not isinstance(node, (ast.For, ast.With)):
        roots = {n.id for t in targets if t for n in ast.walk(t) if isinstance(n, ast.Name)}
        return bool(roots & names)
    return False
