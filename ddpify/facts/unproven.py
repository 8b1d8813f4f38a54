"""Why a loss could not be shown to be a mean: where on its way it begins not to be followed.

That is at an expression whose operands are followed while it is not itself. ::

    loss = criterion(net(x), y) + own(net.attention).mean() / loader.batch_size
    loss.backward()          # `own(net.attention)`: what it gives is not known
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpify.facts.containers import GROWS
from ddpify.facts.events import Bind, Call
from ddpify.facts.joining import parts_of
from ddpify.facts.measures import ENTRIES
from ddpify.facts.model import Facts
from ddpify.facts.scopes import FunctionInfo
from ddpify.facts.tree import Tree
from ddpify.facts.values import NOTHING, Kind, Measure, Value
from ddpify.source import Site

LONGEST = 60
WHAT = {
    Measure.UNIFORM: "a constant",
    Measure.SAMPLES: "what is there for each sample, or one number that a model makes",
    Measure.COUNT: "a number of samples",
    Measure.SUM: "a sum over the batch",
    Measure.MEAN: "a mean over the batch",
    Measure.PER_COUNT: "one over a number of samples",
    Measure.MIXED: "what is not known",
    Measure.PICKED: "what is there for some samples",
    Measure.RATIO: "a mean over a count of its own",
    Measure.ENTRY: "what is of one sample",
}


def unproven(facts: Facts, loss: Site) -> tuple[tuple[Site, str], ...]:
    """Where it begins that ``loss`` is not known to be a mean, each with the reason."""
    search, tree = _Search(facts, loss), facts.tree(loss)
    node = tree.expression(loss)
    if node is not None:
        search.visit(node, tree)
    return tuple((site, _reason(facts, site)) for site in search.first)


class _Search:
    """The way back from a loss, through operands, names and functions of the project."""

    def __init__(self, facts: Facts, loss: Site) -> None:
        self.facts = facts
        self.open = {Measure.MIXED, facts.values.get(loss, NOTHING).measure} - {Measure.MEAN}
        self.first: dict[Site, None] = {}
        self._models = {forward.call.site for forward in facts.training_forwards}
        self._seen: set[ast.AST] = set()

    def visit(self, node: ast.expr, tree: Tree) -> None:
        """Go on to what made ``node`` what it is, or note that it began here."""
        if node in self._seen:
            return
        self._seen.add(node)
        more = [site for site in dict.fromkeys(self._sources(node, tree)) if self._is_open(site)]
        for site in more:
            there = self.facts.tree(site)
            part = there.expression(site)
            if part is not None:
                self.visit(part, there)
        if not more:
            self.first[tree.site(node)] = None

    def _is_open(self, site: Site) -> bool:
        return self._holds_open(self.facts.values.get(site, NOTHING))

    def _holds_open(self, value: Value, depth: int = 3) -> bool:
        parts = [part for thing in value.things for part in parts_of(thing)] if depth else []
        if value.measure in self.open or value.dep(Kind.AVERAGED):
            return True
        return any(self._holds_open(part, depth - 1) for part in parts)

    def _sources(self, node: ast.expr, tree: Tree) -> Iterator[Site]:
        site = tree.site(node)
        if site in self._models and self.open & set(ENTRIES):  # its inputs have samples, too
            return
        returned = list(self._returned(site))
        if returned:
            yield from returned
        elif isinstance(node, (ast.Name, ast.Attribute)):
            yield from self._bound(node, tree)
        else:
            yield from (tree.site(part) for part in _operands(node))
            yield from self._added(site)

    def _bound(self, node: ast.Name | ast.Attribute, tree: Tree) -> Iterator[Site]:
        """What is bound to a name in its function, or to an attribute; or what a call gives it."""
        scope, text = tree.function(node), ast.unparse(node)
        for bind in self.facts.binds:
            if bind.target == text and bind.site.path == tree.source.path:
                made = _made(tree, bind)
                if made is not None and ("." in text or tree.function(made) is scope):
                    place = _place(tree, bind)
                    yield from list(self._returned(tree.site(made), place)) or [tree.site(made)]
        if isinstance(node, ast.Attribute):
            yield tree.site(node.value)
        for call in self.facts.calls:
            if call.target is not None and call.target.node is scope:
                yield from _given_as(call, call.target, text)

    def _returned(self, call: Site, place: int | None = None) -> Iterator[Site]:
        """What the function that is called there returns, or the entry of it at that place."""
        found = [c.target for c in self.facts.calls if c.site == call and c.target is not None]
        for target in dict.fromkeys(found):
            tree = self.facts.tree(target.site)
            given = (n.value for n in tree.nodes(target.node) if isinstance(n, ast.Return))
            for value in given:
                parts = value.elts if isinstance(value, ast.Tuple) and place is not None else []
                if value is not None:
                    yield tree.site(parts[place or 0] if (place or 0) < len(parts) else value)

    def _added(self, made: Site) -> Iterator[Site]:
        """What is appended to a list that is made there."""
        for call in self.facts.calls:
            held = call.receiver.things if call.receiver is not None else ()
            if call.name.rpartition(".")[2] in GROWS and any(t.born == made for t in held):
                yield from call.arg_sites


def _made(tree: Tree, bind: Bind) -> ast.expr | None:
    """The expression that a bound value comes from."""
    made = tree.statement(bind.site) if bind.value_site is None else None
    if isinstance(made, ast.For):
        return made.iter
    if isinstance(made, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
        return made.value
    return tree.expression(bind.value_site) if bind.value_site is not None else None


def _given_as(call: Call, target: FunctionInfo, name: str) -> Iterator[Site]:
    """What a call gives a parameter."""
    names = [one.arg for one in target.node.args.args]
    names = names[len(names) - len(call.arg_sites) :] if call.receiver is not None else names
    yield from (site for one, site in zip(names, call.arg_sites, strict=False) if one == name)
    if name in call.kwarg_sites:
        yield call.kwarg_sites[name]


def _place(tree: Tree, bind: Bind) -> int | None:
    """Which entry of what is unpacked is bound."""
    target = tree.expression(bind.site)
    around = tree.parent(target) if target is not None else None
    return around.elts.index(target) if target and isinstance(around, ast.Tuple) else None


def _operands(node: ast.expr) -> Iterator[ast.expr]:
    for part in ast.iter_child_nodes(node):
        if isinstance(part, (ast.keyword, ast.comprehension)):
            yield part.value if isinstance(part, ast.keyword) else part.iter
        elif isinstance(node, ast.Call) and part is node.func and isinstance(part, ast.Attribute):
            yield part.value
        elif isinstance(part, ast.expr):
            yield part


def _reason(facts: Facts, site: Site) -> str:
    text = " ".join(facts.text(site).split())
    text = text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
    return f"`{text}` {_why(facts, site)}"


def _why(facts: Facts, site: Site) -> str:
    calls, tree = [call for call in facts.calls if call.site == site], facts.tree(site)
    if any(forward.call.site == site for forward in facts.training_forwards):
        return "is made in a model: whether it is a mean there is not known"
    unread = next((call.unread for call in calls if call.unread), "")
    if unread:
        return f"is made by `{unread}`, which was not read"
    node = tree.expression(site)
    if isinstance(node, ast.BinOp):
        sides = [facts.values.get(tree.site(one), NOTHING) for one in (node.left, node.right)]
        return f"puts together {WHAT[sides[0].measure]} and {WHAT[sides[1].measure]}"
    given = [value for call in calls for value in _given(call)]
    if any(value.axis for value in given):
        return "goes along an axis of which it is not known whether it is that of the samples"
    if any(value.measure is Measure.PICKED for value in given):
        return "is of samples that are picked: how many differs between ranks"
    if any(v.dep(Kind.FORWARD) and v.measure is Measure.SAMPLES for v in given):
        return "is made of a model's output, and what it makes of it is not known"
    return "is not known to be of the samples one by one"


def _given(call: Call) -> tuple[Value, ...]:
    own = (call.receiver,) if call.receiver is not None else ()
    values = (*own, *call.args, *call.kwargs.values())
    return (*values, *(part for v in values for t in v.things for part in parts_of(t)))
