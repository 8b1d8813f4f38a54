"""What a rule yields: findings, and the symbolic edits that remove them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from ddpify.site import Site

if TYPE_CHECKING:
    from ddpify.facts.model import Facts
    from ddpify.ranks.run import Run
    from ddpify.settings import Settings
    from ddpify.source import Source


class How(Enum):
    """The kinds of edit the rewriter knows."""

    REPLACE = "replace"  # an expression; `{}` in the code stands for the (edited) expression itself
    ARGUMENT = (  # of a call: set keyword `name` to `code` (`{}` = the old value), "" removes;
        "argument"  # without a name `code` becomes the first argument
    )
    ENTRY = "entry"  # of what a call is given by `**`: `code` under the key `name`, beside the rest
    FIRST = "first"  # a call becomes its (edited) first argument
    BEFORE = "before"  # new statements before a statement
    AFTER = "after"  # new statements after a statement
    GATE = "gate"  # put a statement under `if code:`; neighbours with the same test share one `if`
    INDENT = "indent"  # put a statement under `code` (a `with …:` line); neighbours share one
    DELETE = "delete"  # a statement
    BODY = "body"  # a `with`, or an `if` alone, becomes what is in it
    NEW_FILE = "new-file"  # `code` is the whole text; the site's span is ignored
    TEXT = "text"  # a span of a file that is not Python (launchers)


class Severity(Enum):
    """How bad it is when left as found."""

    ERROR = "error"  # hangs, crashes, or trains something else
    WARNING = "warning"  # damaged files, repeated output
    NOTE = "note"  # worth knowing


@dataclass(frozen=True, order=True)
class Import:
    """``from module import name``; ``name`` is free to be renamed where it clashes."""

    module: str
    name: str


@dataclass(frozen=True)
class Edit:
    """One symbolic change.

    ``site`` is the exact span of the expression or statement it addresses. In ``code``,
    names listed in ``imports`` are spelled as there; the rewriter renames them when the
    file already uses the name for something else.
    """

    how: How
    site: Site
    code: str
    name: str = ""
    imports: tuple[Import, ...] = ()


@dataclass(frozen=True)
class Finding:
    """A difference between this project and one that is correct under torchrun.

    ``fix`` is all or nothing; without one, ``advice`` says what to do by hand.
    ``because`` are the hops that prove it, ``way`` the calls that lead there from the script that
    is started. ``mends``: what helps in a migrated program, of which
    `migrate` may make a fix; whether it does there is found by reading the program again.
    """

    rule: str
    site: Site
    message: str
    severity: Severity
    fix: tuple[Edit, ...] = ()
    advice: str = ""
    because: tuple[tuple[Site, str], ...] = ()
    mends: tuple[Edit, ...] = ()
    way: tuple[tuple[Site, str], ...] = ()


@dataclass(frozen=True)
class Example:
    """A small project: file name to text. ``entry`` is the script that is run.

    ``assumed``: one for one device, read as if it had several.
    """

    files: tuple[tuple[str, str], ...]
    entry: str = "main.py"
    assumed: bool = False


def _nothing(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """The ``check`` of a rule that has nothing to say to ``migrate``."""
    return ()


@dataclass(frozen=True)
class Rule:
    """A check with its reason, its source and its examples (its tests and its page).

    ``check`` compares one process with several, for ``migrate``; ``lint`` reads a program that is
    distributed already, as two ranks run it; ``lint_file`` any file by itself, whatever program it
    is a part of. ``words``: texts of which a function says one if
    ``lint`` has to see its calls (``.empty_cache(``); functions that say none may not be read.
    ``safe`` says that the fix, where there is one, cannot change what the program does otherwise;
    ``fixes``, that there may be one.
    """

    id: str
    name: str
    why: str
    source: str
    check: Callable[[Facts, Settings], Iterable[Finding]] = _nothing
    bad: tuple[Example, ...] = ()
    good: tuple[Example, ...] = ()
    lint: Callable[[Run], Iterable[Finding]] | None = None
    lint_file: Callable[[Source], Iterable[Finding]] | None = None
    severity: Severity = Severity.ERROR
    safe: bool = True
    fixes: bool = True
    words: tuple[str, ...] = ()
