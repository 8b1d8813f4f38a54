"""State dicts whose keys a program spells anew: with ``module.`` before them, or without."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from ddpify.ranks.model import RankCall
from ddpify.ranks.run import Run
from ddpify.rules.checkpoints.states import all_wrappers, is_strict
from ddpify.rules.shared.syntax import parents, scope

PREFIX = "module."


def misfits(run: Run) -> Iterator[tuple[RankCall, bool]]:
    """Loads of keys that the receiver surely does not have, and whether the prefix was taken off
    (the receiver is the wrapper) or put before them (it is a model that is not wrapped)."""
    for call in run.methods("load_state_dict"):
        given = call.node_of(0, "state_dict")
        if given is None or not is_strict(call):
            continue
        keys = list(_keys(call, given))
        if keys and all(map(_strips, keys)) and all_wrappers(call):
            yield call, True
        elif keys and all(map(_adds, keys)) and _is_bare(call):
            yield call, False


def _keys(call: RankCall, given: ast.expr) -> Iterator[ast.expr]:
    """The keys of the dict comprehensions that an argument is, or that its name is last given."""
    made = [given]
    if isinstance(given, (ast.Name, ast.Attribute)):
        made = [one for one in (_last(call, ast.unparse(given)),) if one is not None]
    return (one.key for one in made if isinstance(one, ast.DictComp))


def _last(call: RankCall, name: str) -> ast.expr | None:
    """What a name is given last before a call; None if that is under a condition, or in a loop."""
    above = parents(scope(call))
    before = [n for n in above if isinstance(n, ast.Assign) and n.lineno < call.node.lineno]
    given = [one for one in before if ast.unparse(one.targets[0]) == name]
    last = max(given, key=lambda one: one.lineno, default=None)
    held = [*_holders(above, last)] if last is not None else []
    around = set(_holders(above, call.node))
    return last.value if last is not None and all(one in around for one in held) else None


def _holders(above: Mapping[ast.AST, ast.AST], node: ast.AST) -> Iterator[ast.AST]:
    while node in above:
        node = above[node]
        yield node


def _strips(key: ast.expr) -> bool:
    """``k.replace("module.", "")``, ``k.removeprefix("module.")``, ``k[7:]``."""
    if isinstance(key, ast.Call) and isinstance(key.func, ast.Attribute):
        said = [one.value for one in key.args if isinstance(one, ast.Constant)]
        return (key.func.attr, *said[:2]) in (("replace", PREFIX, ""), ("removeprefix", PREFIX))
    if isinstance(key, ast.Subscript):
        return ast.unparse(key.slice) in (f"{len(PREFIX)}:", f"len('{PREFIX}'):")
    return False


def _adds(key: ast.expr) -> bool:
    """``"module." + k``, ``f"module.{k}"``."""
    first = key.left if isinstance(key, ast.BinOp) and isinstance(key.op, ast.Add) else key
    if isinstance(first, ast.JoinedStr):
        first = first.values[0]
    return isinstance(first, ast.Constant) and first.value == PREFIX


def _is_bare(call: RankCall) -> bool:
    """Whether it is a method of a model of the project that nothing has wrapped."""
    things = call.receiver.things if call.receiver is not None else ()
    return bool(things) and all(
        (
            thing.kind == "instance"
            and thing.cls is not None
            and thing.cls.inherits("torch.nn.Module")
        )
        or (
            thing.kind == "result"
            and thing.name.startswith("torch.nn.")
            and thing.name[9:].isalnum()
        )
        for thing in things
    )
