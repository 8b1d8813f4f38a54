"""``try`` statements: what is tried, which errors are handled, and which handlers go on."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from typing import Final

from ddpify.ranks import words
from ddpify.source import Site, Source

# Errors that one rank meets alone; those that a `raise` in the block names count, too.
_ALONE: Final = frozenset(
    "Exception BaseException RuntimeError OutOfMemoryError DistBackendError"
    " FloatingPointError".split()
)
_NO_MORE: Final[Set[str]] = frozenset()
_ALL: Final = frozenset({"Exception", "BaseException"})
# What says who a process is: without it, a program is one process.
_JOINS: Final = frozenset(
    {*words.RANK_VARIABLES, *words.SIZE_VARIABLES}
    | {*words.OTHER_RANK_VARIABLES, *words.OTHER_SIZE_VARIABLES}
)
_SEVERAL = ("get_world_size() > 1", "is_initialized()")  # asked by several ranks, it holds
_LEAVES: Final[dict[type[ast.stmt], str]] = {ast.Break: "break", ast.Return: "return"}
_EXITS = ("exit", "quit", "abort", "Abort")  # `sys.exit`, `os._exit`, `abort_job`


@dataclass(frozen=True)
class Handler:
    """An ``except``; ``names`` are the last parts of the errors it is for, none if for all.

    ``ends``: it ends the process, or leaves by way of an error; ``leaves``: the loop or function.
    """

    site: Site
    body: Site
    names: frozenset[str]
    ends: bool
    leaves: str = ""  # "break" or "return", where nothing but that can be its end

    def is_for(self, errors: Set[str]) -> bool:
        """Whether it surely catches one of these."""
        return bool(errors) and (not self.names or not self.names.isdisjoint(errors | _ALL))


@dataclass(frozen=True)
class Attempt:
    """A ``try``; ``raised``: errors that its block raises itself, ``closing``: its ``finally``."""

    site: Site
    body: Site
    handlers: tuple[Handler, ...]
    closing: Site | None
    raised: frozenset[str]

    @property
    def swallows(self) -> bool:
        """Whether the program may go on after an error in it."""
        return not all(handler.ends for handler in self.handlers)

    def catches(self, node: ast.Raise) -> bool:
        """Whether the program surely goes on after this error, in it or in what it calls."""
        names = {*raised_by(node)}
        first = next((h for h in self.handlers if not h.names or h.names & (names | _ALL)), None)
        return bool(names) and first is not None and not first.ends

    def passes_over(self, more: Set[str] = _NO_MORE) -> Iterator[Handler]:
        """The handlers after which a rank goes on that has met the error alone; ``more``: other
        errors that one rank meets alone in it."""
        for handler in self.handlers:
            alone = not handler.names or handler.names & (_ALONE | self.raised | more)
            if alone and not handler.ends:
                yield handler


def attempts(source: Source, nodes: Iterable[ast.AST]) -> Iterator[Attempt]:
    """The ``try`` statements among the nodes of a file."""
    yield from (attempt(source, node) for node in nodes if isinstance(node, ast.Try))


def attempt(source: Source, node: ast.Try) -> Attempt:
    """What a ``try`` statement says."""
    handlers = tuple(
        Handler(
            source.site(h),
            _whole(source, h.body),
            frozenset(_names(h.type)),
            ends(h.body),
            _LEAVES.get(type(h.body[-1]), ""),
        )
        for h in node.handlers
    )
    below = (one for statement in node.body for one in ast.walk(statement))
    raised = frozenset(
        name for one in below if isinstance(one, ast.Raise) for name in raised_by(one)
    )
    closing = _whole(source, node.finalbody) if node.finalbody else None
    return Attempt(source.site(node), _whole(source, node.body), handlers, closing, raised)


def is_alone(handler: ast.ExceptHandler, node: ast.Try) -> bool:
    """Whether a handler is for one process: the group, or the number of the process, is not there.

    ``except KeyError: rank = 0``: several ranks never run it.
    """
    plain = all(isinstance(one, (ast.Assign, ast.Return, ast.Expr)) for one in handler.body)
    return plain and any(_joins(one) for statement in node.body for one in ast.walk(statement))


def _joins(node: ast.AST) -> bool:
    if isinstance(node, ast.Subscript):
        key = node.slice
        return isinstance(key, ast.Constant) and key.value in _JOINS
    called = node.func if isinstance(node, ast.Call) else None
    return "init_process_group" in _names(called)


def _whole(source: Source, body: list[ast.stmt]) -> Site:
    """From the first to the last statement."""
    first, last = source.site(body[0]), source.site(body[-1])
    return first.until(last)


def _names(node: ast.expr | None) -> Iterator[str]:
    for one in node.elts if isinstance(node, ast.Tuple) else (node,):
        if isinstance(one, (ast.Name, ast.Attribute)):
            yield one.id if isinstance(one, ast.Name) else one.attr


def raised_by(node: ast.Raise) -> Iterator[str]:
    """The last part of the error's name."""
    yield from _names(node.exc.func if isinstance(node.exc, ast.Call) else node.exc)


def ends(body: list[ast.stmt]) -> bool:
    """Whether each of several ranks ends here, or leaves by way of an error."""
    last = body[-1] if body else None
    called = last.value if isinstance(last, ast.Expr) else None
    names = _names(called.func) if isinstance(called, ast.Call) else ()
    exits = any(word in name for name in names for word in _EXITS)
    return exits or any(isinstance(one, ast.Raise) or _ends_either_way(one) for one in body)


def _ends_either_way(node: ast.stmt) -> bool:
    """``if is_initialized(): raise``, or both arms of any condition."""
    if not isinstance(node, ast.If) or not ends(node.body):
        return False
    asked = not isinstance(node.test, ast.UnaryOp) and ast.unparse(node.test).endswith(_SEVERAL)
    return asked or ends(node.orelse)
