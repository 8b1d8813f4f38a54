"""Numbers of a rank's samples that nothing puts together later: reduced in each step.

total += loss.item() * n_tokens      # each rank has another number of tokens
recent.append(loss.item())           # a deque, of which the median is shown
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ddpify.facts import roles
from ddpify.facts.agreements import in_each_round
from ddpify.facts.model import Facts, TrainingLoop
from ddpify.facts.number_syntax import inside, is_item
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import functions_in
from ddpify.facts.sinks import SUMS, depends
from ddpify.facts.tree import Tree
from ddpify.facts.values import NOTHING, Kind, Measure, Value
from ddpify.source import Site

# What is made of its parts: no choice, no comprehension.
_COMPUTED = (ast.BinOp, ast.UnaryOp, ast.Tuple, ast.List, ast.Dict, ast.Call)
_MODULES = frozenset({"math", "statistics"})
_ARRAYS = frozenset({"np", "numpy", "torch"})
_OF_ARRAYS = frozenset(
    """abs array as_tensor asarray average exp log max mean median min round sqrt std sum
    tensor""".split()
)
_FUNCTIONS = frozenset("abs dict float int len list max min round sorted str sum tuple".split())
_Name = tuple[Tree, ast.AST, str]  # as it is written in a scope


def unclear(facts: Facts) -> frozenset[Site]:
    """What is shown of one rank's samples alone, but for bars, which are drawn in every step."""
    return frozenset(
        part.made or part.site
        for call, parts in facts.sinks
        if call.receiver is None or not call.receiver.of(Kind.PROGRESS)
        for part in parts
        if not part.how
    )


def in_steps(m: Machine, facts: Facts) -> dict[Site, str]:
    """The sums and means of a step that these are made of, each with the helper that reduces it.

    Only where all that is kept of a rank's samples are such, in rounds that all ranks share.
    """
    training = roles.training_loops(roles.calls_of(m))
    found: dict[Site, str] = {}
    for _, parts in facts.sinks:
        for part in parts:
            tree = m.tree(part.site.path)
            shown = tree.expression(part.site)
            if part.how or part.made is not None or shown is None:
                continue
            trace = _Trace(m, training)
            trace.follow(tree, shown)
            if trace.ends():
                found |= trace.found
    return found


@dataclass
class _Trace:
    """The way back from an expression to the numbers of single steps that it is made of."""

    m: Machine
    training: tuple[TrainingLoop, ...]
    found: dict[Site, str] = field(default_factory=dict)
    names: dict[_Name, None] = field(default_factory=dict)
    lost: bool = False

    def ends(self) -> bool:
        """Whether all ways end at such numbers."""
        done = 0
        while not self.lost and done < len(self.names):
            self._feeds(*list(self.names)[done])
            done += 1
        return not self.lost

    def follow(self, tree: Tree, node: ast.expr) -> None:
        """Go on with the names that an expression is of a rank's own samples by."""
        for call in (part for part in ast.walk(node) if isinstance(part, ast.Call)):
            self._returned(tree, call)
        for name in _named(node):
            value = self.m.values.get(tree.site(name), NOTHING)
            if depends(value, self.m) or value.of(Kind.INSTANCE):
                self._wanted(tree, name)

    def _wanted(self, tree: Tree, name: ast.expr) -> None:
        scope, text = tree.function(name), ast.unparse(name)
        first = text.partition(".")[0]
        known = first in tree.bound(scope) and not _is_receiver(tree, scope, first)
        self.names[tree, scope if known else tree.module, text] = None

    def _feeds(self, tree: Tree, scope: ast.AST, name: str) -> None:
        """What statements put into a name, or into the object that it is."""
        for statement in tree.nodes(scope):
            if not isinstance(statement, ast.stmt):
                continue
            for given in _given(statement, name):
                if isinstance(given, ast.Call) and self._returned(tree, given):
                    continue
                if not self._take(tree, given, name):
                    self.lost = True
                elif any(site.within(tree.site(statement)) for site in self.found):
                    self.lost |= not in_each_round(self.m, tree, statement, self.training)

    def _returned(self, tree: Tree, call: ast.Call) -> bool:
        """Go on in a function of the project that gives it."""
        infos = functions_in(self.m.values.get(tree.site(call.func)))
        for info in infos:
            inner = self.m.tree(info.module.source.path)
            for node in inner.nodes(info.node):
                if isinstance(node, ast.Return) and node.value is not None:
                    self.follow(inner, node.value)
        return bool(infos)

    def _take(self, tree: Tree, node: ast.expr, name: str) -> bool:
        """Note the numbers in an expression; whether it is made of nothing else."""
        value = self.m.values.get(tree.site(node), NOTHING)
        if not depends(value, self.m) or ast.unparse(node) == name:
            return True
        if _is_number(tree, node, value) and (how := _how(value)):
            self.found[tree.site(node)] = how
            return True
        if isinstance(node, (ast.Call, ast.Subscript)) and value.dep(Kind.LENGTH):
            return False
        if isinstance(node, ast.Call) and not _is_of_numbers(node):
            return False  # `net(torch.randn(x.size(0), 8))`: no number that is asked for
        if isinstance(node, (ast.Name, ast.Attribute)):
            self._wanted(tree, node)
            return not value.things
        if isinstance(node, ast.Subscript):
            return self._take(tree, node.value, name)
        known = isinstance(node, _COMPUTED)
        return known and all([self._take(tree, part, name) for part in inside(node)])


def _how(value: Value) -> str:
    """The helper that makes a number of a rank's samples one of all."""
    if value.measure in SUMS:
        return "reduce_sum"
    return "reduce_mean" if value.measure is Measure.MEAN else ""


def _is_number(tree: Tree, node: ast.expr, value: Value) -> bool:
    """Whether no gradient is lost with it: ``loss.item()``, or what is only assigned such."""
    if value.of(Kind.BATCH):
        return False
    if not value.dep(Kind.GRAPH) or is_item(node) or _is_converted(node):
        return True
    if not isinstance(node, ast.Name):
        return False
    every = [one for one in tree.nodes(tree.function(node)) if isinstance(one, ast.Assign)]
    own = [one.value for one in every if any(_is_of(t, node.id) for t in one.targets)]
    return bool(own) and all(is_item(one) or _is_converted(one) for one in own)


def _is_converted(node: ast.expr) -> bool:
    """``float(loss)``."""
    called = node.func if isinstance(node, ast.Call) else None
    return isinstance(called, ast.Name) and called.id in ("float", "int")


def _is_of_numbers(call: ast.Call) -> bool:
    """``round(total, 3)``, ``math.exp(mean)``, ``np.mean(losses)``."""
    module, _, name = ast.unparse(call.func).rpartition(".")
    known = _FUNCTIONS if not module else _OF_ARRAYS if module in _ARRAYS else frozenset()
    return module in _MODULES or name in known


def _named(node: ast.AST) -> Iterator[ast.expr]:
    """The names and attributes in an expression, each as far as it is one."""
    if isinstance(node, (ast.Name, ast.Attribute)) and _is_dotted(node):
        yield node
        return
    for child in ast.iter_child_nodes(node):
        yield from _named(child)


def _is_dotted(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) or (
        isinstance(node, ast.Attribute) and _is_dotted(node.value)
    )


def _is_receiver(tree: Tree, scope: ast.AST, name: str) -> bool:
    """Whether a name is the first parameter of a method, whose object others know, too."""
    arguments = scope.args.args if isinstance(scope, ast.FunctionDef) else []
    method = isinstance(tree.parent(scope), ast.ClassDef)
    return method and bool(arguments) and arguments[0].arg == name


def _given(statement: ast.stmt, name: str) -> Iterable[ast.expr]:
    """What a statement stores into what is written so, or gives to a method of it."""
    if isinstance(statement, ast.AugAssign) and _is_of(statement.target, name):
        return [statement.value]
    if isinstance(statement, ast.Assign):
        targets = [part for target in statement.targets for part in _each(target)]
        return [statement.value] if any(_is_of(target, name) for target in targets) else []
    called = statement.value if isinstance(statement, ast.Expr) else None
    owner = called.func if isinstance(called, ast.Call) else None
    if isinstance(called, ast.Call) and isinstance(owner, ast.Attribute):
        given = [*called.args, *(keyword.value for keyword in called.keywords)]
        return given if _is_of(owner.value, name) else []
    return []


def _each(target: ast.expr) -> list[ast.expr]:
    return target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]


def _is_of(node: ast.expr, name: str) -> bool:
    """Whether an expression is a name, or an entry or attribute of it, or it is one of that."""
    while isinstance(node, ast.Subscript):
        node = node.value
    text = ast.unparse(node)
    return text == name or text.startswith(f"{name}.") or name.startswith(f"{text}.")
