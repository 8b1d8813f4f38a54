"""Words by which programs ask which rank they are on: they silence a rule, and never report.

Only what is left undecided is asked for its words: whatever was read is judged by its value.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Final

_PARTS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_ALONE: Final = frozenset("chief leader master primary".split())
_ROLES: Final = _ALONE | {"main", "root"}
_ASKING: Final = frozenset("is am not unless".split())
_PROCESSES: Final = frozenset("process proc worker only".split())
# What has number 0 on one rank.
_PLACES: Final = _PROCESSES | set("gpu device cuda node host".split())
_NUMBERS: Final = frozenset({"id", "index", "idx"})
_COUNTS: Final = frozenset({"n", "num", "count", "use"})
# A matrix has a rank, too; and a loss may rank.
_OF_MATRICES: Final = frozenset({"lora", "low", "matrix"})
_RANKED: Final = frozenset({"loss", "metric", "pattern"})
_ENDING: Final = frozenset("exit return stop skip".split())


@cache
def _parts(name: str) -> tuple[str, ...]:
    return tuple(part.lower() for part in _PARTS.findall(name))


@cache
def names_rank(name: str) -> bool:
    """Whether a name may be that of a rank's number, or of whether it is a certain one."""
    parts = _parts(name)
    if len(parts) == 1 and parts[0] in _ALONE:
        return True
    near = zip(("", *parts), parts, (*parts[1:], ""), strict=False)
    return any(_is_rank(*three) for three in near)


def _is_rank(before: str, word: str, after: str) -> bool:
    if word == "rank":
        return before not in _OF_MATRICES and after not in _RANKED
    if word in _ROLES:  # a tree has a root node, which is_root_node may ask for
        return after in _PROCESSES or (before in _ASKING and (not after or after in _PLACES))
    return (word, after) == ("dist", "info") or (word in _PROCESSES and after in _NUMBERS)


def ends_others(name: str) -> bool:
    """Whether a function's name says that some ranks do not come back: ``exit_unless_leader``."""
    return names_rank(name) and not _ENDING.isdisjoint(_parts(name))


def asks_rank(node: ast.expr) -> bool:
    """Whether an expression may ask which rank this is, by the words in it."""
    return any(_is_first(one) or any(map(names_rank, _named(one))) for one in asked(node))


def asked(node: ast.expr) -> Iterator[ast.expr]:
    """The parts of an expression that decide: neither the object of an attribute nor what a call
    is given, of which anything may be made."""
    yield node
    if isinstance(node, (ast.Name, ast.Attribute)):
        return
    inner: Iterable[ast.AST] = ast.iter_child_nodes(node)
    if isinstance(node, ast.Call) and ast.unparse(node.func) not in ("any", "all", "bool"):
        inner = [node.func]
    for one in inner:
        yield from asked(one) if isinstance(one, ast.expr) else ()


def _named(node: ast.AST) -> Iterator[str]:
    """The names in a part, those of entries included: ``cfg["rank"]``, ``get("rank")``.

    Variables of the environment are read elsewhere.
    """
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, (ast.Subscript, ast.Call)):
        keys = [node.slice] if isinstance(node, ast.Subscript) else node.args[:2]
        said = (key.value for key in keys if isinstance(key, ast.Constant))
        yield from (key for key in said if isinstance(key, str) and not key.isupper())


def _is_first(test: ast.expr) -> bool:
    """``gpu == 0``, ``not gpu``, ``device != "cuda:0"``."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return isinstance(test.operand, (ast.Name, ast.Attribute)) and _is_place(test.operand)
    if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], (ast.Eq, ast.NotEq)):
        return False
    said = test.comparators[0]
    zero = isinstance(said, ast.Constant) and re.fullmatch(r"(.*:)?0", str(said.value))
    return bool(zero) and _is_place(test.left)


def _is_place(node: ast.expr) -> bool:
    """Whether it may be the number of what this rank works on, and not how many there are."""
    names = (name for one in ast.walk(node) for name in _named(one))
    parts = {part for name in names for part in _parts(name)}
    return not parts.isdisjoint(_PLACES) and parts.isdisjoint(_COUNTS)


def writer(node: ast.expr) -> str:
    """The attribute of ``if self.writer:``, which may be there on one rank only; "" for none."""
    if isinstance(node, ast.UnaryOp):
        return writer(node.operand)
    if isinstance(node, ast.Compare):
        said = node.comparators[0]
        none = isinstance(said, ast.Constant) and said.value is None
        return writer(node.left) if none else ""
    return node.attr if isinstance(node, ast.Attribute) and "writer" in _parts(node.attr) else ""
