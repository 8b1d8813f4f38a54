"""Models that may not be there: ``head = None``, and a model in one branch only.

Wrapped after the branch, None would be. ::

    head = None
    if args.extra:
        head = Head()
        head = wrap_model(head)
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass

from ddpify.facts.events import Bind, Forward
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import Frame
from ddpify.facts.tree import Tree
from ddpify.facts.values import Thing
from ddpify.source import Site

_ENDS = (ast.Raise, ast.Return, ast.Continue, ast.Break)


@dataclass(frozen=True)
class Absence:
    """Where a name becomes a model (``binds``), and what else it may be.

    ``none``: elsewhere it is None; ``half``: `head = Head() if extra else None`; ``asked``: whoever
    calls it asks something first.
    """

    tree: Tree
    binds: tuple[Site, ...]
    none: bool
    half: bool
    asked: bool

    def keeps(self, branch: ast.stmt) -> bool:
        """Whether the wrapper has to stay in the one branch of an `if` that makes a model."""
        return self._lacks(branch) and len(self._sides()) == 1

    def is_optional(self, statement: Site) -> bool:
        """Whether the name may be None after a statement."""
        if self.half:
            return True
        nodes = (self.tree.expression(site) for site in self.binds)
        above = {one for node in nodes if node for one in self.tree.ancestors(node)}
        ifs = (n for n in above if isinstance(n, ast.If) and not statement.within(self._site(n)))
        return self.none and any(self._lacks(n) for n in ifs)

    def _lacks(self, branch: ast.stmt) -> bool:
        if not isinstance(branch, ast.If) or not (self.none or self.asked):
            return False
        if any(not site.within(self._site(branch)) for site in self.binds):
            return False
        return not self._covers(branch)

    def _covers(self, branch: ast.If) -> bool:
        """Whether each side makes a model, or ends the job."""
        for side in (branch.body, branch.orelse):
            inner = next((n for n in side if isinstance(n, ast.If)), None)
            makes = any(site.within(self._site(n)) for n in side for site in self.binds)
            whole = makes and not (len(side) == 1 and inner and not self._covers(inner))
            if not whole and not (side and _ends(side[-1])):
                return False
        return True

    def _sides(self) -> set[tuple[ast.AST, int]]:
        """The innermost sides of conditions in which the name becomes a model."""
        found: set[tuple[ast.AST, int]] = set()
        for site in self.binds:
            node: ast.AST | None = self.tree.statement(site)
            above = self.tree.parent(node) if node is not None else None
            while above is not None and not isinstance(above, ast.If):
                node, above = above, self.tree.parent(above)
            if isinstance(above, ast.If):
                found.add((above, int(node in above.orelse)))
        return found

    def _site(self, node: ast.stmt) -> Site:
        return self.tree.site(node)


def absence(
    m: Machine, frame: Frame, target: str, things: tuple[Thing, ...], calls: list[Forward]
) -> Absence | None:
    """What is known of a name besides being a model; None where nothing is."""
    events = (e for e in m.events if isinstance(e, Bind) and e.target == target)
    binds = [e for e in events if e.where.stack[: len(frame.stack)] == frame.stack]
    ours = [b for b in binds if any(t in things for t in b.value.things)]
    if not ours or len({b.site.path for b in ours}) > 1:
        return None
    tree = m.tree(ours[0].site.path)
    none = any(b.value.known and b.value.const is None for b in binds)
    half = any(_is_half(tree, b) for b in ours)
    known = {guard.site for b in ours for guard in b.where.guards}
    asks = [{guard.site for guard in f.call.where.guards} - known for f in calls]
    return Absence(tree, tuple(b.site for b in ours), none, half, bool(asks) and all(asks))


def _is_half(tree: Tree, bind: Bind) -> bool:
    """``head = Head() if args.extra else None``."""
    node = tree.expression(bind.value_site) if bind.value_site is not None else None
    sides = (node.body, node.orelse) if isinstance(node, ast.IfExp) else ()
    return any(isinstance(side, ast.Constant) and side.value is None for side in sides)


def _ends(node: ast.stmt) -> bool:
    name = ast.unparse(node.value) if isinstance(node, ast.Expr) else ""
    return isinstance(node, _ENDS) or name.startswith(("sys.exit(", "exit(", "quit(", "os._exit("))


def pass_by(tree: Tree, home: Site, calls: Iterable[Site], other: Absence | None) -> bool:
    """Whether a model is called outside of a branch that its home is in: ``if resume: load(net)``.

    It would be bare there. What has a model in that branch alone is another matter.
    """
    node: ast.AST | None = tree.statement(home)
    for above in tree.ancestors(node) if node is not None else ():
        if isinstance(above, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            return False
        if isinstance(above, ast.If) and not (other is not None and other.keeps(above)):
            side = [tree.site(one) for one in (above.body if node in above.body else above.orelse)]
            if not all(any(call.within(site) for site in side) for call in calls):
                return True
        node = above
    return False
