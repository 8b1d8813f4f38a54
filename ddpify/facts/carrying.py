"""What a model's ``forward`` keeps of a batch and reads again in later ones.

A rank would keep its own rows of each batch only. ::

    self.queue[:, here:there] = keys.T                          # keys of earlier batches
    self.sizes = 0.99 * self.sizes + 0.01 * codes.sum(0)        # an average of earlier batches

The state of a recurrent layer is no such thing: it has a row for each sample.

What an object keeps of its first batch: that was a rank's share, and later ones are whole. ::

if self.mask is None:  # and not: or self.mask.size(0) != x.size(0)
    self.mask = torch.ones(x.size(0), 1, 8, 8)
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from ddpify.facts.bodies import loaded
from ddpify.facts.events import Bind
from ddpify.facts.joining import flat_measure
from ddpify.facts.scopes import ClassInfo
from ddpify.facts.tree import FUNCTIONS, Tree, names_in
from ddpify.facts.values import NOTHING, Kind, Measure, Value
from ddpify.source import Site

# What tells of a tensor only what is the same for all batches, or makes one like it.
DESCRIBES = frozenset(
    """shape device dtype ndim is_cuda requires_grad size dim numel len isinstance type type_as
    zeros_like ones_like empty_like full_like rand_like randn_like new new_zeros new_ones new_full
    new_empty new_tensor""".split()
)
# What puts the rows of a batch together, unless along another axis.
TOGETHER = frozenset(
    "sum mean std var amax amin norm cat concat t T bincount index_add scatter_add histc".split()
)
Methods = dict[str, ast.FunctionDef]


def carried(info: ClassInfo) -> Iterator[Site]:
    """Where a ``forward``, or a method that it calls, keeps such a thing."""
    methods = _methods(info)
    of_batch = _of_batch(methods)
    nodes = [node for name in of_batch for node in ast.walk(methods[name])]
    for name, names in of_batch.items():
        together = _grown(methods[name], set(), _puts_together)
        for node in ast.walk(methods[name]):
            kept, part = _kept(node, names)
            if not kept or _is_begun(methods[name], kept, node):
                continue
            if not part and not _follows(node, kept, methods[name], together):
                continue
            own = set(ast.walk(node))
            if any(_is_own(one, kept) for one in nodes if one not in own):
                yield info.module.source.site(node)


def led_to(info: ClassInfo) -> list[ast.FunctionDef]:
    """A class's ``forward`` and the methods that it calls."""
    methods = _methods(info)
    return [methods[name] for name in _of_batch(methods)]


def _methods(info: ClassInfo) -> Methods:
    return {n.name: n for n in info.node.body if isinstance(n, ast.FunctionDef)}


def _of_batch(methods: Methods) -> dict[str, set[str]]:
    """By method that a forward leads to: the names that stand for something of the batch."""
    found: dict[str, set[str]] = {}
    todo = [("forward", _given(methods["forward"]))] if "forward" in methods else []
    while todo:
        name, given = todo.pop()
        if name in found and given <= found[name]:
            continue
        names = _grown(methods[name], given | found.get(name, set()))
        found[name] = names
        for call in (n for n in ast.walk(methods[name]) if isinstance(n, ast.Call)):
            called = call.func.attr if isinstance(call.func, ast.Attribute) else ""
            if called in methods and _is_own(call.func, called):
                todo.append((called, _handed_on(methods[called], call, names)))
    return found


def _given(method: ast.FunctionDef) -> set[str]:
    """The parameters, but for settings: ``forward(self, x, dtype=torch.float32)``."""
    given = method.args.args[1:]
    settings = zip(reversed(given), reversed(method.args.defaults), strict=False)
    plain = {n.arg for n, value in settings if ast.unparse(value) != "None"}
    return {n.arg for n in (*given, *method.args.kwonlyargs)} - plain


def _handed_on(method: ast.FunctionDef, call: ast.Call, names: set[str]) -> set[str]:
    wanted = [one.arg for one in method.args.args][1:]
    given = {n for n, value in zip(wanted, call.args, strict=False) if _tells(value, names)}
    return given | {k.arg for k in call.keywords if k.arg and _tells(k.value, names)}


def _grown(
    method: ast.FunctionDef, names: set[str], begins: Callable[[ast.AST], bool] = lambda _: False
) -> set[str]:
    """``names``, and those that are bound to what is made of them, or to what ``begins``."""
    while True:
        new = {
            name
            for node in ast.walk(method)
            if isinstance(node, ast.Assign | ast.AugAssign | ast.For)
            for value in [node.iter if isinstance(node, ast.For) else node.value]
            if _tells(value, names) or begins(value)
            for name in _bound(node)
        }
        if new <= names:
            return names
        names = names | new


def _bound(node: ast.Assign | ast.AugAssign | ast.For) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return {n.id for one in targets for n in ast.walk(one) if _is_bound(n)}  # type: ignore[attr-defined]


def _is_bound(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def _tells(node: ast.AST, names: set[str]) -> bool:
    """Whether a value is made of what such a name stands for: of more than its shape."""
    if isinstance(node, ast.Name):
        return node.id in names
    if _word(node) in DESCRIBES:
        return False
    return any(_tells(child, names) for child in ast.iter_child_nodes(node))


def _puts_together(value: ast.AST) -> bool:
    return any(_word(node) in TOGETHER and _is_first_axis(node) for node in ast.walk(value))


def _is_first_axis(node: ast.AST) -> bool:
    """Whether a call names no axis, or the first one among others: ``x.mean((0, 2))``."""
    if not isinstance(node, ast.Call):
        return _word(node) == "T"
    named = [k.value for k in node.keywords if k.arg in ("dim", "axis")]
    axes = named or [a for a in node.args if isinstance(a, ast.Constant | ast.UnaryOp | ast.Tuple)]
    numbers = [one for axis in axes for one in ast.walk(axis) if isinstance(one, ast.Constant)]
    return not numbers or any(n.value == 0 for n in numbers)


def _word(node: ast.AST) -> str:
    called = node.func if isinstance(node, ast.Call) else node
    if isinstance(called, ast.Attribute):
        return called.attr
    return called.id if isinstance(called, ast.Name) and isinstance(node, ast.Call) else ""


def _kept(node: ast.AST, names: set[str]) -> tuple[str, bool]:
    """The attribute that a statement fills from the batch, and whether the rest of it stays."""
    if isinstance(node, ast.Assign | ast.AugAssign) and _tells(node.value, names):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if len(targets) == 1 and (name := _root(targets[0])):
            return name, isinstance(targets[0], ast.Subscript) or isinstance(node, ast.AugAssign)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        call = node.value
        word = _word(call)
        if word[-1:] == "_" and word[:1] != "_" and any(_tells(a, names) for a in call.args):
            return _root(call.func), word != "copy_" or ".data." in ast.unparse(call.func)
    return "", False


def _follows(node: ast.AST, kept: str, method: ast.FunctionDef, together: set[str]) -> bool:
    """Whether what is stored anew is of all rows, and was looked at before it was."""
    value = node.value if isinstance(node, ast.Assign | ast.Expr) else None
    if value is None or not (_puts_together(value) or together & set(loaded(value))):
        return False
    reads = (n for n in ast.walk(method) if isinstance(n, ast.Attribute) and _is_own(n, kept))
    return any(isinstance(n.ctx, ast.Load) and n.lineno <= value.lineno for n in reads)


def _is_begun(method: ast.FunctionDef, kept: str, node: ast.AST) -> bool:
    """``self.found = {}`` at the head of the method: what it fills is of one batch."""
    first = [n for n in method.body if isinstance(n, ast.Assign) and not _reads(n.value, kept)]
    return any(one is not node and _is_own(one.targets[0], kept) for one in first)


def _reads(value: ast.AST, name: str) -> bool:
    return any(_is_own(n, name) for n in ast.walk(value))


def _is_own(node: ast.AST, name: str) -> bool:
    """``self.name``"""
    return isinstance(node, ast.Attribute) and ast.unparse(node) == f"self.{name}"


def _root(node: ast.AST) -> str:
    """``queue`` of ``self.queue[:, 0].data``"""
    while isinstance(node, ast.Subscript | ast.Attribute | ast.Call):
        if isinstance(node, ast.Attribute) and _is_own(node, node.attr):
            return node.attr
        node = node.func if isinstance(node, ast.Call) else node.value
    return ""


_SIZED = (Measure.SAMPLES, Measure.PICKED, Measure.COUNT, Measure.MIXED)
_ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_TESTS = (ast.If, ast.While, ast.IfExp, ast.Assert, ast.BoolOp, ast.UnaryOp)


def first_batches(
    binds: Sequence[Bind], values: Mapping[Site, Value], trees: Mapping[str, Tree]
) -> frozenset[Site]:
    """The statements that keep in ``self`` what has the size of a batch, in the first call only."""
    return frozenset(
        bind.where.statement
        for bind in binds
        if _is_of_batch(bind.value)
        and _attribute(bind)
        and not any(map(_is_made_again, _same(bind, binds)))
        and any(_asks(bind, test, values, binds) for test in _tests(bind, trees))
        and not _is_ordered(bind, trees)
    )


def _is_of_batch(value: Value) -> bool:
    return flat_measure(value) in _SIZED and bool(value.dep(Kind.BATCH))


def _attribute(bind: Bind) -> str:
    """``mask`` of ``self.mask``, "" of anything else."""
    own, _, name = bind.target.partition(".")
    return name if own == next(iter(bind.where.frame.parameters), "") else ""


def _same(bind: Bind, binds: Iterable[Bind]) -> Iterator[Bind]:
    """What binds an attribute of this name; of which object is not asked."""
    name = _attribute(bind)
    return (b for b in binds if b.target.rpartition(".")[2] == name and "." in b.target)


def _is_made_again(bind: Bind) -> bool:
    """``self.mask = None`` in a method that is called, so that the next call makes another."""
    made = bind.where.function is not None and bind.where.function.name == "__init__"
    return not made and bind.value.known and bind.value.const is None


def _tests(bind: Bind, trees: Mapping[str, Tree]) -> Iterator[tuple[Tree, ast.expr]]:
    """The conditions under which it is bound, in its function and in those that call it."""
    for guard in bind.where.guards:
        node = trees[guard.site.path].expression(guard.site)
        if node is not None:
            yield trees[guard.site.path], node
    for site in (bind.where.statement, *bind.where.stack):
        tree = trees[site.path]
        for above in tree.ancestors(tree.statement(site) or tree.module):
            if isinstance(above, FUNCTIONS):
                break
            if isinstance(above, ast.If):
                yield tree, above.test


def _asks(
    bind: Bind,
    test: tuple[Tree, ast.expr],
    values: Mapping[Site, Value],
    binds: Iterable[Bind],
) -> bool:
    """Whether a condition asks if there is one already, or for what is said beside it."""
    tree, node = test
    parts = (part for part in ast.walk(node) if isinstance(part, ast.expr))
    if any(_is_of_batch(values.get(tree.site(part), NOTHING)) for part in parts):
        return False
    said = {name for part in _meant(tree, node) for name in _names(part)}
    beside = (b for b in binds if b.where.frame is bind.where.frame)
    return not said.isdisjoint({_attribute(bind), *map(_attribute, beside)} - {""})


def _meant(tree: Tree, node: ast.expr) -> Iterator[ast.expr]:
    """A condition, and what the names in it were given in its function."""
    yield node
    names = names_in(node)
    for one in tree.nodes(tree.function(node)):
        if isinstance(one, ast.Assign) and any(
            isinstance(t, ast.Name) and t.id in names for t in one.targets
        ):
            yield one.value


def _is_ordered(bind: Bind, trees: Mapping[str, Tree]) -> bool:
    """Whether a decision is made of which is more, so that it is one number: the best so far."""
    if flat_measure(bind.value) is not Measure.MIXED:
        return False
    reads = (
        (tree, node) for tree in trees.values() for node in tree.loads.get(_attribute(bind), ())
    )
    return any(_decides(tree, node) for tree, node in reads)


def _decides(tree: Tree, node: ast.expr) -> bool:
    """``if score > self.best``, or ``better = score > self.best`` and ``if better``."""
    compare = tree.parent(node)
    if not isinstance(compare, ast.Compare) or not isinstance(compare.ops[0], _ORDERS):
        return False
    above = tree.parent(compare)
    if not isinstance(above, ast.Assign):
        return isinstance(above, _TESTS)
    names = {t.id for t in above.targets if isinstance(t, ast.Name)}
    uses = (
        n for n in tree.nodes(tree.function(above)) if isinstance(n, ast.Name) and n.id in names
    )
    return any(isinstance(tree.parent(use), _TESTS) for use in uses)


def _names(node: ast.expr) -> Iterator[str]:
    """The attributes that are read, and those that ``hasattr(self, "mask")`` asks for."""
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name):
            yield part.attr
        elif isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value
