"""How many passes a loop makes over what is no loader: whether each rank may count another number.

Of a generator that is what its own loops and conditions decide, not what it yields. An order that
is drawn has as many entries on each rank::

    def batches(x, size):
        order = np.random.permutation(len(x))
        for start in range(0, len(x), size):
            yield x[order[start : start + size]]

Whether the last batch of a pass may have fewer samples, where no loader makes the batches.

What a loop over batches does with their number, which is another on ranks with shares.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterable, Iterator

from ddpify.facts import carried, roles, torchtext
from ddpify.facts.bodies import CutBody, flows
from ddpify.facts.effects import effect_of
from ddpify.facts.events import Call
from ddpify.facts.model import TrainingLoop
from ddpify.facts.places import TURNS
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import FunctionInfo
from ddpify.facts.sinks import SHOWN
from ddpify.facts.tree import Tree
from ddpify.facts.values import NOTHING, Kind, Thing, Value

# They put into another order, or pick so many; how many is no question of chance.
_ORDERS = frozenset("randperm permutation permuted shuffle sample".split())
Drawn = Callable[[Value], Collection[Thing]]  # what a rank may have drawn by itself of a value


def differ(m: Machine, over: Value, node: ast.expr | None, drawn: Drawn) -> bool:
    """Whether ranks may make different numbers of passes over a value, written as ``node``."""
    if not over.things or any(t.kind is not Kind.ITERATOR for t in over.things):
        return _decides(drawn(over), node)
    return any(_of_iterator(m, one, node, drawn) for one in over.things)


def _decides(found: Collection[Thing], node: ast.expr | None) -> bool:
    """Whether what was drawn decides a number: not an order, of which no entry is taken."""
    parts = list(ast.walk(node)) if node is not None else []
    entries = (n for n in parts if isinstance(n, ast.Subscript))
    taken = any(not isinstance(n.slice, ast.Slice) for n in entries)
    taken |= any(isinstance(n, ast.Attribute) and n.attr == "item" for n in parts)
    orders = all(t.name.rpartition(".")[2] in _ORDERS for t in found)
    return bool(found) and (taken or not orders)


def _of_iterator(m: Machine, one: Thing, node: ast.expr | None, drawn: Drawn) -> bool:
    if one.over:
        return any(differ(m, each, None, drawn) for each in one.over)
    made = {id(c.target): c.target for c in roles.calls_of(m) if c.site == one.born and c.target}
    if not made or not all(_yields(m, info) for info in made.values()):
        return _decides(drawn(Value((one,))), node)
    return any(_of_generator(m, info, drawn) for info in made.values())


def _own(m: Machine, info: FunctionInfo) -> list[ast.AST]:
    tree = m.tree(info.module.source.path)
    return [n for n in tree.nodes(info.node) if tree.function(n) is info.node]


def _yields(m: Machine, info: FunctionInfo) -> bool:
    """Whether it is a generator, and no exception or other generator decides when it ends."""
    nodes = _own(m, info)
    open_ended = any(isinstance(n, (ast.Try, ast.YieldFrom)) for n in nodes)
    return any(isinstance(n, ast.Yield) for n in nodes) and not open_ended


def _of_generator(m: Machine, info: FunctionInfo, drawn: Drawn) -> bool:
    tree = m.tree(info.module.source.path)
    for node in _own(m, info):
        if isinstance(node, (ast.If, ast.While)):
            if _decides(drawn(m.values.get(tree.site(node.test), NOTHING)), node.test):
                return True
        elif isinstance(node, ast.For):
            over = m.values.get(tree.site(node.iter), NOTHING)
            if differ(m, over, node.iter, drawn):
                return True
    return False


def may_end_short(
    m: Machine, loop: TrainingLoop, split: CutBody, names: tuple[str, ...], axis: int
) -> bool:
    """Whether the passes of a loop go through what there is, and nothing says it comes out even.

    Not where each batch is drawn: ``for step in range(steps): x, y = get_batch()``; and what is
    sliced along another axis than that of the samples has all of them.
    """
    node = m.tree(loop.batch.site.path).statement(loop.batch.site)
    if not isinstance(node, ast.For):
        return isinstance(node, ast.While) and not isinstance(node.test, ast.Constant)
    found = {name.partition(".")[0] for name in names}
    if axis and not found & split.targets and not _turns(m, loop, split):
        return False
    grown = -1
    while grown != len(found):
        grown = len(found)
        for targets, sources in flows(split.made_by, ()):
            found |= sources if targets & found else set()
    return bool(found & split.targets) and not _comes_out_even(m, loop, node)


def _turns(m: Machine, loop: TrainingLoop, split: CutBody) -> bool:
    """Whether a pass puts the samples that it slices along another axis: `torch.stack(rows, 1)`."""
    tree = m.tree(loop.batch.site.path)
    nodes = [node for statement in split.made_by for node in ast.walk(statement)]
    sites = {tree.site(node) for node in nodes if isinstance(node, ast.Call)}
    called = [c.target.node for c in roles.calls_of(m) if c.target and c.site in sites]
    nodes += [node for each in called for node in ast.walk(each)]
    return any(isinstance(n, ast.Attribute) and n.attr in TURNS | {"stack"} for n in nodes)


def _comes_out_even(m: Machine, loop: TrainingLoop, node: ast.For) -> bool:
    """``for start in range(0, 960, 32)``, columns of one text."""
    if torchtext.keeps_size(loop.batch.over):
        return True
    tree = m.tree(loop.batch.site.path)
    given = node.iter.args if isinstance(node.iter, ast.Call) else []
    numbers = [m.values.get(tree.site(one), NOTHING).const for one in given]
    if len(numbers) != 3 or not all(isinstance(one, int) for one in numbers):
        return False
    start, stop, step = (one for one in numbers if isinstance(one, int))
    return bool(step) and not (stop - start) % step


def numbers(m: Machine, tree: Tree, node: ast.For) -> Iterator[str]:
    """The names that ``enumerate`` gives the number of a batch and that the loop looks at."""
    body = [tree.site(statement) for statement in node.body]
    for inner in (n for statement in node.body for n in ast.walk(statement)):
        value = m.values.get(tree.site(inner)) if isinstance(inner, ast.Name) else None
        for index in value.dep(Kind.INDEX) if value is not None else ():
            outside = not any(index.born.within(site) for site in body)
            if index.name == "enumerate" and outside and isinstance(inner, ast.Name):
                yield inner.id


def decide(m: Machine, tree: Tree, node: ast.stmt, calls: Iterable[Call]) -> bool:
    """Whether anything but a message depends on how many batches there were, or on earlier ones.

    ``if i < 5: total += …`` takes other samples where each rank counts the batches of its share.
    """
    if not isinstance(node, ast.For):
        return False
    names = carried.carried(node) | set(numbers(m, tree, node))
    messages = {call.site for call in calls if _is_message(call)}
    for inner in (n for statement in node.body for n in ast.walk(statement)):
        if isinstance(inner, (ast.If, ast.While, ast.IfExp)) and _mentions(inner.test, names):
            blocks = [] if isinstance(inner, ast.IfExp) else [*inner.body, *inner.orelse]
            if not blocks or any(
                not isinstance(s, ast.Expr) or tree.site(s.value) not in messages for s in blocks
            ):
                return True
    return False


def _mentions(test: ast.expr, names: set[str]) -> bool:
    return any(isinstance(n, ast.Name) and n.id in names for n in ast.walk(test))


def _is_message(call: Call) -> bool:
    shown = call.receiver is not None and bool(call.receiver.of(*SHOWN))
    return shown or effect_of(call) is not None
