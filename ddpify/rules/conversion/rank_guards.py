"""What rank 0 did alone with a model in DDP, and all ranks have to do with a sharded one. ::

    if rank == 0 and epoch % 5 == 0:         if epoch % 5 == 0:
        accuracy = evaluate(net)                 with same_draws():
                                                     accuracy = evaluate(net)
        print(accuracy)                          if is_main_process():
                                                     print(accuracy)
        torch.save(net.state_dict(), path)       save_on_main(unsharded(net).state_dict(), path)

The rest stays rank 0's, and so are the numbers that decide what comes next. Other ranks draw what
rank 0 draws there, and go on with their own streams behind it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Final

from ddpify.facts.events import Call
from ddpify.facts.model import Facts
from ddpify.facts.tree import Tree
from ddpify.facts.values import NOTHING, Kind
from ddpify.rules.base import Edit, Finding, How, Severity
from ddpify.rules.conversion.code import RULE, NoCounterpart, tried
from ddpify.rules.conversion.first_rank import is_first_rank
from ddpify.rules.edits import edit, gate
from ddpify.rules.shared.shards import Shards
from ddpify.source import Site

_MODES: Final = (".train", ".eval", ".state_dict", ".load_state_dict")
_OWN: Final = {
    ".backward": "trains here",
    ".step": "steps an optimizer or a schedule here",
    ".load_state_dict": "loads a state here",
    "builtins.next": "takes the next of something here, and leaves other ranks where they were",
}
_SAVE: Final = "torch.save"
_BY_HAND: Final = "let all ranks do this, and rank 0 alone what it is for, then run again"
_ALIKE: Final = frozenset(
    {Kind.ARGUMENT, Kind.INDEX, Kind.WORLD, Kind.FUNCTION, Kind.EXTERNAL, Kind.INSTANCE}
    | {Kind.CHECKPOINT, Kind.MODULE}
)
_LEAVES: Final = (ast.Return, ast.Break, ast.Continue, ast.Raise, ast.Global, ast.Nonlocal)


def opened(facts: Facts) -> Iterator[Finding]:
    """The findings of conditions on the rank that stand before what all ranks have to do."""
    work = _Work(facts)
    yield from work.apart()
    for site, call in work.guards.items():
        what = "rank 0 alone would come to this, for which sharded models need all ranks"
        yield from tried(site, what, partial(work.open, site, call))
        if any(t.name == "LOCAL_RANK" for g in call.where.guards for t in g.test.dep(Kind.RANK)):
            yield Finding(
                RULE,
                site,
                "on several nodes, what the first rank of each has done rank 0 alone does now",
                Severity.NOTE,
                advice="where nodes share no files, copy what it writes to the others",
            )


@dataclass
class _Work:
    """The conditions of one program, and the functions that are called under them."""

    facts: Facts
    functions: set[ast.AST] = field(default_factory=set)

    @cached_property
    def needs(self) -> tuple[Call, ...]:
        """What all ranks have to do."""
        shards = Shards.of(self.facts)
        found = [f.call for f in self.facts.forwards if shards.is_sharded(f.model, f.order)]
        for call in self.facts.calls:
            owner = call.receiver or NOTHING
            things = owner.of(Kind.MODEL, Kind.WRAPPED)
            ours = any(shards.is_sharded(thing, call.order) for thing in things)
            if call.name in _MODES and (ours or owner.of(Kind.OPTIMIZER)):
                found.append(call)
        return tuple(found)

    @cached_property
    def forwards(self) -> frozenset[Site]:
        return frozenset(forward.call.site for forward in self.facts.forwards)

    @cached_property
    def guards(self) -> dict[Site, Call]:
        """The conditions that let rank 0 alone come to such a call, the outermost of each."""
        found: dict[Site, Call] = {}
        for call in self.needs:
            site = self._outermost(call)
            if site is not None and self._selects(site):
                found.setdefault(site, call)
        return found

    def apart(self) -> Iterator[Finding]:
        """Conditions on the rank that let in others than rank 0, or are not understood."""
        outer = ((self._outermost(call), call) for call in self.needs)
        sites = dict.fromkeys(site for site, _ in outer if site is not None)
        for site in sites:
            if not self._selects(site):
                what = "some ranks would come to what sharded models need all ranks for"
                yield NoCounterpart(site, what, "ask for `rank == 0`, then run again").finding

    @staticmethod
    def _outermost(call: Call) -> Site | None:
        guards = (guard for guard in call.where.guards if guard.test.dep(Kind.RANK))
        return next((guard.site for guard in guards), None)

    def _selects(self, site: Site) -> bool:
        tree = self.facts.tree(site)
        node = tree.expression(site)
        return any(is_first_rank(self.facts, tree, one) for one in _operands(node))

    # -- a condition ------------------------------------------------------------------------------

    def open(self, site: Site, call: Call) -> Iterable[Edit]:
        """The edits that let all ranks in. Raises NoCounterpart."""
        tree = self.facts.tree(site)
        statement, test = tree.statement(site), tree.expression(site)
        holds = [guard.holds for guard in call.where.guards if guard.site == site]
        simple = isinstance(statement, ast.If) and statement.test is test and not statement.orelse
        if not simple or not all(holds) or not self._is_first(tree, statement):
            raise NoCounterpart(
                site,
                "rank 0 alone comes to what sharded models need all ranks for",
                "write it as `if rank == 0:` around it, without `else`, then run again",
            )
        assert isinstance(statement, ast.If)
        assert test is not None
        for one in self.facts.calls:
            if (why := _OWN.get(one.name)) and self._is_in(one, statement):
                raise NoCounterpart(one.site, f"rank 0 alone {why}", _BY_HAND)
        ours = _operands(test)
        rest = [one for one in ours if not is_first_rank(self.facts, tree, one)]
        if rest:
            words = [self._of_all(tree, one) for one in rest]
            code = " and ".join(words)
            yield edit(self.facts, How.REPLACE, site, f"({code})" if "\n" in code else code)
        else:
            yield Edit(How.BODY, tree.site(statement), "")
        yield from self._block(tree, statement.body, set(), False)

    def _is_first(self, tree: Tree, statement: ast.stmt | None) -> bool:
        """Whether it is no ``elif``."""
        above = tree.parent(statement) if statement is not None else None
        other = isinstance(above, ast.If) and above.orelse == [statement]
        return not (other and tree.text(statement or ast.Pass()).startswith("elif"))

    def _of_all(self, tree: Tree, node: ast.expr) -> str:
        """A condition as rank 0 finds it."""
        text = tree.text(node)
        text = f"({text})" if isinstance(node, ast.BoolOp | ast.IfExp | ast.NamedExpr) else text
        return f"broadcast({tree.text(node)})" if self._is_own(tree, node) else text

    def _is_own(self, tree: Tree, node: ast.expr) -> bool:
        """Whether a condition may be another one on other ranks."""
        value = self.facts.values.get(tree.site(node))
        if value is None:
            return True
        return any(thing.kind not in _ALIKE for thing in value.all_deps())

    # -- what is under it --------------------------------------------------------------------

    def _block(
        self, tree: Tree, block: Sequence[ast.stmt], read: set[str], drawn: bool
    ) -> Iterator[Edit]:
        """Statements: those that all ranks run, with what they read; the others are rank 0's."""
        reads = set(read)
        for statement in reversed(block):
            if self._needed(statement, tree) or any(_inside(statement, _LEAVES)):
                reads |= _loaded(statement)
                yield from self._statement(tree, statement, reads, drawn)
            elif self._changes(tree, statement) & reads:
                self._harmless(tree, statement)
                reads |= _loaded(statement)
            elif not isinstance(statement, ast.Pass):
                yield gate(self.facts, tree.site(statement))

    def _statement(
        self, tree: Tree, statement: ast.stmt, reads: set[str], drawn: bool
    ) -> Iterator[Edit]:
        if isinstance(statement, ast.If):
            if self._is_own(tree, statement.test):
                yield edit(self.facts, How.REPLACE, tree.site(statement.test), "broadcast({})")
            yield from self._block(tree, statement.body, reads, drawn)
            yield from self._block(tree, statement.orelse, reads, drawn)
            return
        if not drawn and self._computes(statement, tree):
            yield edit(self.facts, How.INDENT, tree.site(statement), "with same_draws():")
            drawn = True
        if isinstance(statement, ast.With):
            for item in statement.items:
                self._harmless(tree, item.context_expr)
        if isinstance(statement, ast.With | ast.For):
            yield from self._block(tree, statement.body, reads, drawn)
            if isinstance(statement, ast.For) and statement.orelse:
                yield from self._block(tree, statement.orelse, reads, drawn)
        elif isinstance(statement, ast.Try | ast.While | ast.Match | ast.FunctionDef):
            raise NoCounterpart(tree.site(statement), "what rank 0 alone does here", _BY_HAND)
        else:
            yield from self._simple(tree, statement, drawn)

    def _simple(self, tree: Tree, statement: ast.stmt, drawn: bool) -> Iterator[Edit]:
        site = tree.site(statement)
        saves = [c for c in self.facts.named(_SAVE) if c.site.within(site)]
        for call in saves[:1]:
            path = call.arg(1, "f")
            given = len(call.arg_sites) > 1 and not (path or NOTHING).of(Kind.FILE)
            if not isinstance(statement, ast.Expr) or tree.site(statement.value) != call.site:
                given = False
            if not given:
                what = "what is written here is not followed to a path"
                raise NoCounterpart(call.site, what, "write torch.save(state, path)")
            yield edit(self.facts, How.REPLACE, call.callee, "save_on_main")
        self._harmless(tree, statement, {call.site for call in saves[:1]})
        for call in self.facts.calls:
            inner = call.target.node if call.target is not None and call.site.within(site) else None
            if inner is None or not any(call.site in need.where.stack for need in self.needs):
                continue
            yield from self._function(call, inner, drawn)

    def _function(self, call: Call, node: ast.AST, drawn: bool) -> Iterator[Edit]:
        """A function that rank 0 alone calls, for all ranks."""
        if node in self.functions or not isinstance(node, ast.FunctionDef):
            return
        self.functions.add(node)
        assert call.target is not None
        others = [c for c in self.facts.calls if c.target is call.target]
        free = [c for c in others if not any(g.site in self.guards for g in c.where.guards)]
        tree = self.facts.tree(call.target.site)
        edits = [*self._block(tree, node.body, set(), drawn)]
        if free and any(one.how is How.GATE for one in edits):
            raise NoCounterpart(
                free[0].site,
                f"`{node.name}` writes or prints on all ranks here, and elsewhere on rank 0 alone",
                "write on rank 0 alone in the function itself, then run again",
            )
        yield from edits

    def _changes(self, tree: Tree, node: ast.stmt) -> set[str]:
        """What a statement binds, or changes by a method of it."""
        found = set[str]()
        for one in ast.walk(node):
            stored = isinstance(getattr(one, "ctx", None), ast.Store)
            if isinstance(one, ast.Name | ast.Attribute) and stored:
                found.add(ast.unparse(one))
            elif isinstance(one, ast.Subscript) and stored:
                found.add(ast.unparse(one.value))
            elif isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute):
                owner = self.facts.values.get(tree.site(one.func.value), NOTHING)
                outside = owner.of(Kind.EXTERNAL, Kind.MODULE, Kind.INSTANCE, Kind.LOGGER)
                found |= set() if outside else {ast.unparse(one.func.value)}
        return found

    def _needed(self, node: ast.stmt, tree: Tree) -> bool:
        return any(self._comes_by(call, tree.site(node)) for call in self.needs)

    def _computes(self, node: ast.stmt, tree: Tree) -> bool:
        site = tree.site(node)
        return any(self._comes_by(c, site) for c in self.needs if c.site in self.forwards)

    def _is_in(self, call: Call, node: ast.stmt) -> bool:
        site = self.facts.tree(call.site).site(node) if call.where.stack == () else None
        tree = next(t for t in self.facts.trees.values() if node in t.nodes())
        return self._comes_by(call, site or tree.site(node))

    @staticmethod
    def _comes_by(call: Call, site: Site) -> bool:
        return any(one.within(site) for one in call.way)

    def _harmless(self, tree: Tree, node: ast.AST, known: Iterable[Site] = ()) -> None:
        """Raise NoCounterpart where all ranks would write or print what rank 0 did."""
        site = tree.site(node)
        for effect in self.facts.effects:
            call = effect.call
            direct = call.site.within(site) and call.site not in known
            through = any(one.within(site) for one in call.where.stack)
            if direct or (through and not self._needed_in(site)):
                raise NoCounterpart(
                    call.site,
                    "rank 0 alone does this, in one statement with what all ranks have to do",
                    "give the result a name in a statement of its own, then run again",
                )

    def _needed_in(self, site: Site) -> bool:
        return any(self._comes_by(call, site) for call in self.needs)


def _operands(node: ast.AST | None) -> list[ast.expr]:
    """The parts of a condition that all have to hold."""
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        return list(node.values)
    return [node] if isinstance(node, ast.expr) else []


def _inside(node: ast.AST, kinds: tuple[type[ast.AST], ...]) -> Iterator[bool]:
    return (isinstance(one, kinds) for one in ast.walk(node))


def _loaded(node: ast.AST) -> set[str]:
    """The names and attributes that a statement reads: ``best``, ``self.best``."""
    parts = (n for n in ast.walk(node) if isinstance(n, ast.Name | ast.Attribute))
    return {ast.unparse(n) for n in parts if isinstance(n.ctx, ast.Load)}
