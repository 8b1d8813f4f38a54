"""Loops over the samples of a batch, and what one pass hands on to the next.

What is computed from one sample alone is the same whichever rank sees the sample; what a pass
takes over from the pass before depends on who came before.
"""

from __future__ import annotations

import ast
from collections.abc import Container, Iterable, Iterator, Sequence

from ddpify.facts.details import loader_arguments
from ddpify.facts.protocol import Machine
from ddpify.facts.rows import LIST_LIKE, per_sample
from ddpify.facts.scopes import Frame, Loop
from ddpify.facts.tree import Tree
from ddpify.facts.values import NOTHING, Kind, Measure, Thing, Value

ENTRIES = (Measure.SAMPLES, Measure.PICKED)
LEAVES = (ast.Break, ast.Return, ast.Yield, ast.YieldFrom, ast.Await)


def over_entries(value: Value) -> bool:
    """Whether a loop over ``value`` goes through the entries of a batch, each once."""
    if per_sample(value) or (not value.things and value.measure in ENTRIES):
        return True
    if deals_one(value):
        return True
    for thing in value.of(Kind.ITERATOR):
        if thing.name in ("builtins.zip", "builtins.enumerate", *LIST_LIKE):
            over = thing.over[: _parts(thing.name)]
            return bool(over) and all(over_entries(each) for each in over)
    return False


def deals_one(value: Value) -> bool:
    """Whether it gives batches of one sample: a loader, perhaps counted or with a bar."""
    return bool(value.things) and all(map(_gives_one, value.things))


def _gives_one(thing: Thing) -> bool:
    if thing.kind is Kind.PROGRESS and thing.inner is not None:
        return deals_one(thing.inner)
    if thing.name == "builtins.enumerate" and thing.over:
        return deals_one(thing.over[0])
    return thing.kind is Kind.LOADER and loader_arguments(thing).of_one


def _parts(name: str) -> int | None:
    return None if name == "builtins.zip" else 1


def entry_loops(m: Machine, f: Frame) -> tuple[Loop, ...]:
    """The running loops up to one over the entries of a batch, none when there is no such loop.

    None of them may be left early: which entries had their turn would depend on the batch.
    """
    found = []
    loop = f.loop
    while loop is not None:
        found.append(loop)
        if over_entries(loop.over):
            whole = all(_is_whole(m, each) for each in found)
            return tuple(found) if whole else ()
        loop = loop.parent
    return ()


def _is_whole(m: Machine, loop: Loop) -> bool:
    node = m.tree(loop.site.path).statement(loop.site)
    return isinstance(node, ast.For) and not any(isinstance(n, LEAVES) for n in ast.walk(node))


def nodes_of(m: Machine, loops: Iterable[Loop]) -> list[ast.For]:
    """The statements of running loops."""
    nodes = [m.tree(loop.site.path).statement(loop.site) for loop in loops]
    return [node for node in nodes if isinstance(node, ast.For)]


def depends(nodes: list[ast.For], expressions: Iterable[ast.expr]) -> bool:
    """Whether an expression may be computed from what an earlier pass of a loop left behind."""
    sources = _sources_of(nodes, expressions)
    used = {name for source in sources for name in _names(source)}
    if any(name in used for node in nodes for name in carried(node)):
        return True
    kept = {text for node in nodes for text in _attributes(node, ast.Store)}
    return any(text in kept for source in sources for text in _attributes(source, ast.Load))


def makers(node: ast.For, expression: ast.expr) -> list[ast.AST]:
    """The statements of a pass in which an expression is computed, and the expression."""
    used = {name for source in _sources_of([node], [expression]) for name in _names(source)}
    stores = (
        n for n in ast.walk(node) if isinstance(n, (ast.Assign, ast.AugAssign, ast.AnnAssign))
    )
    return [expression, *(one for one in stores if used & set(_names(one, ast.Store)))]


def feeds(node: ast.For, expression: ast.expr) -> Iterator[ast.expr]:
    """What a pass may change of what an expression is computed from, and does not make itself:
    ``bank.append(x)``, ``remember(self.bank, x)``."""
    sources = _sources_of([node], [expression])
    used = {name for source in sources for name in _names(source)}
    used |= {text for source in sources for text in _attributes(source, ast.Load)}
    bound = set(_names(node, ast.Store))
    for inner in ast.walk(node):
        match inner:
            case ast.Expr(ast.Call(ast.Attribute(owner), args)):
                owners = [owner, *args]
            case ast.Expr(ast.Call(args=args)):
                owners = args
            case ast.Subscript(owner, ctx=ast.Store()):
                owners = [owner]
            case _:
                continue
        yield from (o for o in owners if ast.unparse(o) in used and ast.unparse(o) not in bound)


def _sources_of(nodes: list[ast.For], expressions: Iterable[ast.expr]) -> list[ast.expr]:
    """What an expression is computed from, through what the loops assign."""
    found = list(expressions)
    seen: set[str] = set()
    for expression in found:  # grows
        for name in set(_names(expression)) - seen:
            seen.add(name)
            found.extend(value for node in nodes for value in _sources(node, name))
    return found


def _attributes(node: ast.AST, context: type[ast.expr_context]) -> set[str]:
    found = (n for n in ast.walk(node) if isinstance(n, ast.Attribute))
    return {ast.unparse(n) for n in found if isinstance(n.ctx, context)}


def _sources(node: ast.For, name: str) -> list[ast.expr]:
    """What the loop's body assigns to a name."""
    found: list[ast.expr] = []
    for inner in ast.walk(node):
        targets: list[ast.expr] = []
        if isinstance(inner, ast.Assign):
            targets = inner.targets
        elif isinstance(inner, (ast.AugAssign, ast.AnnAssign, ast.NamedExpr, ast.For)):
            targets = [inner.target]
        if any(name in _names(target) for target in targets):
            value = inner.iter if isinstance(inner, ast.For) else getattr(inner, "value", None)
            found.extend([value] if value is not None else [])
            found.extend([inner.target] if isinstance(inner, ast.AugAssign) else [])
    return found


def carried(node: ast.For) -> set[str]:
    """Names that a pass reads before it has bound them itself, and binds later."""
    bound: set[str] = set(_names(node.target))
    early: set[str] = set()
    _visit(node.body, bound, early)
    return early & {name for statement in node.body for name in _names(statement, ast.Store)}


def read_early(
    body: Sequence[ast.stmt], bound: set[str], alike: Container[ast.AST] = ()
) -> set[str]:
    """Names that statements read before they have bound them themselves.

    What an ``if`` that is ``alike`` in each pass binds comes from no pass before: it is bound in
    every pass, or in none.
    """
    early: set[str] = set()
    _visit(body, set(bound), early, alike)
    return early


def same_in_each_pass(m: Machine, tree: Tree, node: ast.AST) -> set[ast.AST]:
    """The ``if`` statements of a loop that ask options of the command line, and nothing else."""
    found = [n for n in ast.walk(node) if isinstance(n, ast.If)]
    asked = ((n, m.values.get(tree.site(n.test), NOTHING).all_deps()) for n in found)
    return {n for n, deps in asked if deps and all(t.kind is Kind.ARGUMENT for t in deps)}


def _visit(
    body: Sequence[ast.stmt], bound: set[str], early: set[str], alike: Container[ast.AST] = ()
) -> None:
    """Follow a block; what only one branch binds does not count as bound after it."""
    for statement in body:
        for part in _own(statement):
            early |= {n for n in _names(part, ast.Load) if n not in bound}
        if isinstance(statement, ast.AugAssign):
            early |= set(_names(statement.target)) - bound
        if isinstance(statement, ast.With):
            bound |= {
                n for i in statement.items if i.optional_vars for n in _names(i.optional_vars)
            }
            _visit(statement.body, bound, early, alike)
        elif isinstance(statement, ast.If):
            left, right = set(bound), set(bound)
            _visit(statement.body, left, early, alike)
            _visit(statement.orelse, right, early, alike)
            bound |= left | right if statement in alike else left & right
        elif isinstance(statement, (ast.For, ast.While, ast.Try)):
            inner = set(bound)
            inner |= set(_names(statement.target)) if isinstance(statement, ast.For) else set()
            for name in ("body", "handlers", "orelse", "finalbody"):
                block = getattr(statement, name, [])
                _visit([s for s in block if isinstance(s, ast.stmt)], inner, early, alike)
        else:
            bound |= set(_names(statement, ast.Store))


def _own(statement: ast.stmt) -> list[ast.AST]:
    """The expressions of a statement, without those of the blocks in it."""
    return [
        child
        for child in ast.iter_child_nodes(statement)
        if not isinstance(child, (ast.stmt, ast.excepthandler))
    ]


def _names(node: ast.AST, context: type[ast.expr_context] = ast.expr_context) -> list[str]:
    """The names in a node, without those that a comprehension has for itself."""
    inside = {
        target.id
        for part in ast.walk(node)
        if isinstance(part, ast.comprehension)
        for target in ast.walk(part.target)
        if isinstance(target, ast.Name)
    }
    found = (n for n in ast.walk(node) if isinstance(n, ast.Name) and n.id not in inside)
    return [n.id for n in found if isinstance(n.ctx, context)]
