"""Which batch of its loader a loop is at: ``for i, batch in enumerate(tqdm(loader))``."""

from __future__ import annotations

import ast

from ddpify.facts.model import Facts, TrainingLoop
from ddpify.facts.tree import Tree
from ddpify.facts.values import NOTHING, Kind
from ddpify.rules.base import Edit, How
from ddpify.rules.edits import edit, fresh

_NAMED = (ast.Name, ast.Attribute)


def counted(facts: Facts, loop: TrainingLoop) -> tuple[str, str, tuple[Edit, ...]] | None:
    """The loader's name, that of a batch's number, and what counts the batches if nothing does."""
    tree = facts.tree(loop.batch.site)
    node = tree.statement(loop.batch.site)
    if not isinstance(node, ast.For):
        return None
    name, first = _loader(facts, loop, tree, node.iter)
    if not name:
        return None
    if first is not None:
        number = _number(node, first)
        return (name, number, ()) if number else None
    number = fresh(facts, loop.batch.site, "i")
    bare = isinstance(node.target, ast.Name) or tree.text(node.target)[:1] in ("(", "[")
    batch = "{}" if bare else "({})"
    counts = (
        edit(facts, How.REPLACE, tree.site(node.target), f"{number}, {batch}"),
        edit(facts, How.REPLACE, tree.site(node.iter), "enumerate({})"),
    )
    return name, number, counts


def _number(node: ast.For, first: list[ast.expr]) -> str:
    """What the script calls a batch's number, less what it begins at; "" where that may change."""
    match node.target:
        case ast.Tuple(elts=[ast.Name(number), _]):
            stored = {
                n.id
                for one in node.body
                for n in ast.walk(one)
                if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
            }
            plain = number not in stored and all(isinstance(one, ast.Constant) for one in first)
            begun = "".join(f" - {ast.unparse(one)}" for one in first).removesuffix(" - 0")
            return number + begun if plain else ""
    return ""


def _loader(
    facts: Facts, loop: TrainingLoop, tree: Tree, over: ast.expr
) -> tuple[str, list[ast.expr] | None]:
    """The name of the loader that a loop goes over, or "", and what ``enumerate`` is told if it is
    counted; progress bars are seen through."""
    first = None
    while True:
        bar = facts.values.get(tree.site(over), NOTHING).of(Kind.PROGRESS)
        match over:
            case ast.Call(ast.Name("enumerate"), [inner, *given], words) if first is None:
                first, over = [*given, *(word.value for word in words)], inner
            case ast.Call(args=[inner, *_]) if bar:
                over = inner
            case ast.Name() if bar and (made := _made(facts, loop, tree, over)) is not None:
                over = made
            case _:
                break
    value = facts.values.get(tree.site(over), NOTHING)
    plain = value.things and len(value.of(Kind.LOADER)) == len(value.things)
    return (ast.unparse(over) if plain and isinstance(over, _NAMED) else ""), first


def _made(facts: Facts, loop: TrainingLoop, tree: Tree, bar: ast.Name) -> ast.Call | None:
    """The call that makes a bar, which has no other name and whose loader keeps its own."""
    for bind in facts.binds:
        if bind.where.frame is not loop.batch.frame or bind.target != bar.id:
            continue
        match tree.statement(bind.site):
            case ast.Assign([ast.Name() as target], ast.Call() as made):
                names = (n for n in ast.walk(made) if isinstance(n, _NAMED))
                kept = all(tree.is_kept(name) for name in names)
                return made if kept and tree.is_bound_once(target) else None
    return None
