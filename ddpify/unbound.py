"""Names that a rendered file reads and nothing binds any more: it would end there.

What a migration renames or moves into a branch may be read by other lines, too; each fix looks at
those that it knows of. This looks at the whole text, whatever wrote it. ::

    for epoch in range(3):       # was `for _ in range(3):`
        scheduler.step(_)        # NameError
"""

from __future__ import annotations

import ast
import builtins
import symtable
from collections.abc import Iterable, Iterator
from importlib.util import decode_source

from ddpify.outcome import Refusal
from ddpify.plan import Change

_GIVEN = frozenset(dir(builtins)) | {"__file__", "__path__"}


def refusals(changes: Iterable[Change]) -> tuple[Refusal, ...]:
    """One for each name that a file would read unbound, and did not before."""
    return tuple(_refusal(change, name) for change in changes for name in _lost(change))


def _lost(change: Change) -> list[str]:
    if not change.path.endswith(".py") or change.before is None:
        return []
    try:
        before = symtable.symtable(decode_source(change.before), change.path, "exec")
    except SyntaxError:  # respelled: see `respelling`
        return []
    after = symtable.symtable(decode_source(change.after), change.path, "exec")
    return sorted(_unbound(after) - _unbound(before) - _GIVEN)


def _unbound(module: symtable.SymbolTable) -> set[str]:
    """The global names that a module reads and does not bind."""
    found = [s for t in _tables(module) for s in t.get_symbols() if t is module or s.is_global()]
    read = {symbol.get_name() for symbol in found if symbol.is_referenced()}
    return read - {symbol.get_name() for symbol in found if _binds(symbol)}


def _binds(symbol: symtable.Symbol) -> bool:
    return symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()


def _tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for inner in table.get_children():
        yield from _tables(inner)


def _refusal(change: Change, name: str) -> Refusal:
    nodes = (n for n in ast.walk(ast.parse(change.after)) if isinstance(n, ast.Name))
    line = min((n.lineno for n in nodes if n.id == name and isinstance(n.ctx, ast.Load)), default=1)
    told = f"once migrated, `{name}` is read and nothing binds it any more"
    return Refusal(f"{change.path}:{line} of the migrated file: {told}; please report this")
