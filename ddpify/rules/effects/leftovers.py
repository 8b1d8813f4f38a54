"""What a statement leaves behind besides its output: the other ranks would miss it."""

from __future__ import annotations

import ast

from ddpify.facts.events import Call
from ddpify.facts.marks_left import changes, leaves_marks
from ddpify.facts.model import Facts
from ddpify.facts.scopes import FunctionInfo
from ddpify.facts.values import Kind
from ddpify.source import Site

# What draws an input of its own to run the model on, from the stream of the program.
_DRAWS_INPUTS = frozenset({"torchsummary.summary", "torchinfo.summary"})


def leaves_more(facts: Facts, statement: Site) -> bool:
    """Whether a statement also changes what ranks go on with: ``print(net.load_state_dict(s))``."""
    tree = facts.tree(statement)
    node = tree.statement(statement)
    if not isinstance(node, ast.Expr):
        return False
    effects = {effect.call.site for effect in facts.effects}
    inner = (n for n in ast.walk(node) if isinstance(n, ast.expr))
    if any(_changes(n) for n in inner if tree.site(n) not in effects) or moves_stream(
        facts, statement
    ):
        return True
    layers = (c for c in facts.within if c.site.within(statement) and _runs_layer(c))
    return any(layers) or any(_leaves_marks(facts, info) for info in _entered(facts, statement))


def _runs_layer(call: Call) -> bool:
    """``print(self.norm(x))`` in a ``forward``: a layer may meet the others, or draw."""
    return any(output.born == call.site for output in call.result.dep(Kind.FORWARD))


def moves_stream(facts: Facts, statement: Site) -> bool:
    """Whether it draws before training: one rank's draw there shifts all that it draws later.

    Until they train ranks draw alike (splits, data sets), from there on each for itself.
    """
    loops = (loop.backward.where.loops()[-1] for loop in facts.training)
    begun = min((loop.first for loop in loops), default=0)
    early = [call for call in facts.calls if call.order < begun]
    mine = [call for call in early if _leads_to(statement, call)]
    if any(map(_draws, mine)):
        return True
    shown = [call.order for call in mine if call.name in _DRAWS_INPUTS]
    return bool(shown) and any(call.order > shown[0] and _draws(call) for call in early)


def _draws(call: Call) -> bool:
    """Whether it draws from a stream that ranks share: not from a generator with a seed."""
    made = (*call.result.things, *call.result.deps)
    return any(thing.kind is Kind.RANDOM and thing.born == call.site for thing in made)


def _leads_to(statement: Site, call: Call) -> bool:
    return any(site.within(statement) for site in (call.site, *call.where.stack))


def _changes(node: ast.AST) -> bool:
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "next":
        return isinstance(node.args[0], ast.Name | ast.Attribute) if node.args else False
    return isinstance(node, ast.NamedExpr) or changes(node, set())


def _entered(facts: Facts, statement: Site) -> set[FunctionInfo]:
    """The functions of the project that run while the statement does."""
    inside = (
        call
        for call in facts.everywhere
        if call.target is not None
        and any(site.within(statement) for site in (call.site, *call.where.stack))
    )
    return {call.target for call in inside if call.target is not None} - facts.helpers


def _leaves_marks(facts: Facts, info: FunctionInfo) -> bool:
    """A constructor may set what is its own."""
    name = getattr(info.node, "name", "")
    if name != "__init__":
        return leaves_marks(info.node, facts.trees.values())
    own = {arg.arg for arg in info.node.args.args[:1]}
    return any(changes(node, own) for node in ast.walk(info.node))
