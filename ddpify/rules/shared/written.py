"""What stands written at a place of a program: questions of rules that only its text answers."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from ddpify.ranks.model import RankCall
from ddpify.ranks.modules import ClassDefinition, FunctionDefinition, Module
from ddpify.ranks.run import Run
from ddpify.rules.shared.syntax import definitions, dotted, is_filled, scope, scope_nodes
from ddpify.site import Site

_COLLECTIONS = (ast.List, ast.ListComp, ast.Tuple, ast.Dict, ast.DictComp, ast.GeneratorExp)


def text(node: ast.AST) -> str:
    """An expression, but for its spaces and quotes."""
    return ast.unparse(node)


def text_around(call: RankCall) -> str:
    """The function, or the file, in which a call stands."""
    return call.function.text if call.function is not None else call.module.source.text


def holds(outer: ast.AST, node: ast.AST) -> bool:
    """Whether one syntax tree is a part of the other."""
    return any(one is node for one in ast.walk(outer))


def texts(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The texts in quotes that stand in them."""
    for node in nodes:
        for one in ast.walk(node):
            if isinstance(one, ast.Constant) and isinstance(one.value, str):
                yield one.value


def given_nodes(call: RankCall) -> list[ast.expr]:
    """The expressions of all arguments, by position or keyword."""
    return [*call.node.args, *(one.value for one in call.node.keywords)]


def written_with(call: RankCall) -> list[ast.expr]:
    """The arguments after the first, and what the names in them were given above the call."""
    found = given_nodes(call)[1:]
    for node in found:  # grows while it is read
        names = (n for n in ast.walk(node) if isinstance(n, (ast.Name, ast.Attribute)))
        made = (value for name in names for value in definitions(call, name))
        above = (value for value in made if value.lineno < call.node.lineno)
        found += [value for value in above if value not in found]
    return found


def given_texts(call: RankCall) -> list[str]:
    """The arguments as they are written, keywords with their names."""
    plain = [call.module.text(one) for one in call.node.args]
    named = ((one.arg, call.module.text(one.value)) for one in call.node.keywords)
    return [*plain, *(f"{name}={value}" for name, value in named)]


def is_literal_keyword(call: RankCall, name: str) -> bool:
    """Whether an argument is given by its name, as a constant."""
    return any(
        one.arg == name and isinstance(one.value, ast.Constant) for one in call.node.keywords
    )


def attribute_called(call: RankCall) -> str:
    """``forward`` of ``model.forward(x)``; empty for a plain name."""
    return call.node.func.attr if isinstance(call.node.func, ast.Attribute) else ""


def attribute_is_read(run: Run, name: str) -> bool:
    """Whether some file looks at ``anything.name``."""
    return any(
        isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.ctx, ast.Load)
        for module in run.modules.values()
        for node in module.nodes
    )


def indexed_attributes(function: FunctionDefinition) -> set[str]:
    """``paths`` of ``self.paths[index]``."""
    return {
        node.value.attr
        for node in ast.walk(function.node)
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute)
    }


def selects(call: RankCall) -> bool:
    """Whether a call decides what is taken: ``[i for i in rows if random.random() < share]``."""
    made = (n for n in scope_nodes(call) if isinstance(n, ast.comprehension))
    return any(holds(test, call.node) for one in made for test in one.ifs)


def alternatives(call: RankCall) -> Iterator[ast.AST]:
    """What happens where the test in which a call stands fails: ``else``, or what follows."""
    around = scope(call)
    for node in ast.walk(around):
        if isinstance(node, (ast.IfExp, ast.If)) and holds(node.test, call.node):
            yield from node.orelse if isinstance(node.orelse, list) else [node.orelse]
            yield from _after(node, around)


def _after(node: ast.If | ast.IfExp, around: ast.AST) -> list[ast.stmt]:
    """What follows an `if` that returns."""
    if isinstance(node, ast.IfExp) or node.orelse or not isinstance(node.body[-1], ast.Return):
        return []
    body = getattr(around, "body", [])
    return body[body.index(node) + 1 :] if node in body else []


def calls_with(cls: ClassDefinition, name: str, keyword: str) -> Iterator[Site]:
    """Where a class calls a library's function with ``keyword=True``."""
    for node in ast.walk(cls.node):
        if isinstance(node, ast.Call) and dotted(cls.module, node.func) == name:
            given = {one.arg: one.value for one in node.keywords}.get(keyword)
            if isinstance(given, ast.Constant) and given.value is True:
                yield cls.module.site(node)


def imports(module: Module) -> Iterator[tuple[Site, list[str]]]:
    """The imports that no ``try`` or ``if`` stands around, with the names that they import."""
    for node in _plain(module.tree.body):
        if isinstance(node, ast.Import):
            yield module.site(node), [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield module.site(node), [f"{node.module}.{alias.name}" for alias in node.names]


def _plain(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        yield node
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.With)):
            yield from _plain(node.body)


def repeated(call: RankCall, given: ast.expr) -> Iterator[tuple[Site, str, str]]:
    """``[made()] * times`` that an argument is: the place, how each element is made anew, and
    ``times``."""
    made = [given]
    if isinstance(given, (ast.Name, ast.Attribute)):
        made = [] if is_filled(call, given) else list(definitions(call, given))
    for node in made if len(made) == 1 else ():
        listed = node.body if isinstance(node, ast.IfExp) else node  # `… if rank == 0 else None`
        element, times = _once(listed)
        anew = call.module.text(element) if element is not None else ""
        if isinstance(element, (ast.Name, ast.Attribute)):
            anew = f"{anew}.clone()"
        if times is not None and isinstance(element, (ast.Name, ast.Attribute, ast.Call)):
            yield call.module.site(listed), anew, call.module.text(times)


def _once(node: ast.expr) -> tuple[ast.expr | None, ast.expr | None]:
    """The element that a list holds several times, and how often: ``[x] * n``, ``[x for _ in
    range(n)]``."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        for one, times in ((node.left, node.right), (node.right, node.left)):
            if isinstance(one, ast.List) and len(one.elts) == 1:
                return one.elts[0], times
    if isinstance(node, ast.ListComp) and isinstance(node.elt, ast.Name):
        over = node.generators[0]
        given = over.iter.args if isinstance(over.iter, ast.Call) else []
        counted = len(given) == 1 and text(over.iter).startswith("range(")
        if counted and len(node.generators) == 1 and node.elt.id != text(over.target):
            return node.elt, given[0]
    return None, None


def is_collection(node: ast.expr | None) -> bool:
    """Whether a list, a dict or what makes one is written out."""
    return isinstance(node, _COLLECTIONS)


def has_uneven_lists(call: RankCall, given: ast.expr | None) -> bool:
    """Whether both arms of a condition give this name, or attribute, lists of unequal lengths."""
    if not isinstance(given, (ast.Name, ast.Attribute)):
        return False
    name = text(given)
    for node in scope_nodes(call):
        if isinstance(node, ast.If):
            before = [d for d in definitions(call, given) if d.lineno < node.lineno]
            kept = _of_list(before[0], call) if len(before) == 1 else None
            other = _length(node.orelse, name, call) if node.orelse else kept
            one = _length(node.body, name, call)
            if one is None and kept is not None and not node.orelse:
                one = _grown(node.body, scope(call), name, kept)
            lengths = {one, other}
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.IfExp):
            arms = (node.value.body, node.value.orelse)
            lengths = {_of_list(arm, call) if _names(node, name) else None for arm in arms}
        else:
            continue
        if len(lengths) == 2 and None not in lengths:
            return True
    return False


def _length(body: list[ast.stmt], name: str, call: RankCall) -> int | None:
    """How long the list is that these statements assign to ``name``; None if that is not plain."""
    assigned = [n.value for n in body if isinstance(n, ast.Assign) and _names(n, name)]
    return _of_list(assigned[-1], call) if assigned else None


def _grown(body: list[ast.stmt], around: ast.AST, name: str, kept: int) -> int | None:
    """How long a list of ``kept`` elements is once these statements have put some more into it;
    None if others do, too."""
    adding = f"{name}.append("
    added = sum(isinstance(n, ast.Expr) and text(n).startswith(adding) for n in body)
    return kept + added if added and text(around).count(f"{name}.") == added else None


def _names(node: ast.Assign, name: str) -> bool:
    return text(node.targets[0]) == name


def _of_list(node: ast.expr | None, call: RankCall, depth: int = 3) -> int | None:
    """``[a, b]``, ``[None] * 3``, ``list(load())`` of a function that returns three values."""
    if isinstance(node, (ast.List, ast.Tuple)):
        return None if any(isinstance(one, ast.Starred) for one in node.elts) else len(node.elts)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        length, times = _of_list(node.left, call, depth), node.right
        if length is not None and isinstance(times, ast.Constant) and isinstance(times.value, int):
            return length * times.value
    if not isinstance(node, ast.Call) or not depth:
        return None
    name = text(node.func)
    if name in ("list", "tuple") and len(node.args) == 1:
        return _of_list(node.args[0], call, depth)
    function = call.module.functions.get(name)
    below = ast.walk(function.node) if function is not None else ()
    lengths = {_of_list(one.value, call, depth - 1) for one in below if isinstance(one, ast.Return)}
    return lengths.pop() if len(lengths) == 1 else None
