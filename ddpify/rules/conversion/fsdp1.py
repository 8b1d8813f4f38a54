"""DDP930: a program with FSDP1 (``FullyShardedDataParallel``), taken to ``fully_shard``."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

from ddpify.facts.events import Call
from ddpify.facts.model import Facts, Status
from ddpify.facts.tree import Tree
from ddpify.rules.base import Edit, Finding, How, Rule, Severity
from ddpify.rules.conversion import states, steps, wrapped, wrapping
from ddpify.rules.conversion.code import RULE as CODE
from ddpify.rules.conversion.code import NoCounterpart, tried, written
from ddpify.rules.conversion.left import dead, idle_assignment, idle_choices, left, tidied
from ddpify.rules.conversion.names import CLASS, called, mentions
from ddpify.rules.conversion.objects import converted, made
from ddpify.rules.conversion.options import not_followed
from ddpify.rules.conversion.replicas import replicas
from ddpify.rules.conversion.unlike import unlike
from ddpify.rules.edits import once
from ddpify.settings import Settings
from ddpify.strategies import of

_OPTIMIZER: Final = ("optim_state_dict", "full_optim_state_dict", "sharded_optim_state_dict")
_LATER: Final = f"{CLASS}.optim_state_dict_to_load"


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield what turns the program's FSDP1 into FSDP2, or what of it has no counterpart."""
    if not of(settings).shards or facts.status is not Status.DISTRIBUTED:
        return
    if facts.replicas or uses_fsdp1(facts):
        yield from not_followed(facts, settings)
    if facts.replicas:
        yield from replicas(facts, settings)
    if not uses_fsdp1(facts):
        return
    found = [*_findings(facts)]
    yield from found
    edits = [edit for finding in found for edit in finding.fix]
    if all(finding.fix or finding.severity is Severity.NOTE for finding in found):
        idle = [*idle_choices(facts, edits)]
        yield from idle
        edits += [edit for finding in idle for edit in finding.fix]
        yield from left(facts, edits)
        yield from tidied(facts, edits)


def uses_fsdp1(facts: Facts) -> bool:
    """Whether a program wraps a model in ``FullyShardedDataParallel``."""
    return any(
        called(tree, node) == CLASS
        for tree in facts.trees.values()
        for node in tree.nodes()
        if isinstance(node, ast.Call)
    )


def _findings(facts: Facts) -> Iterator[Finding]:
    for part in (_uses, _wraps, _objects, _states, _steps):
        yield from part(facts)
    yield from steps.norms(facts)
    yield from unlike(facts)


def _alive(facts: Facts) -> Iterator[tuple[Tree, ast.AST]]:
    """The nodes of all files, but for functions that nothing names."""
    for tree in facts.trees.values():
        gone = {inner for function in dead(facts, tree) for inner in ast.walk(function)}
        yield from ((tree, node) for node in tree.nodes() if node not in gone)


def _wraps(facts: Facts) -> Iterator[Finding]:
    for tree, node in _alive(facts):
        if isinstance(node, ast.Call) and called(tree, node) == CLASS:
            what = "FullyShardedDataParallel is deprecated: fully_shard takes its place"
            yield from tried(tree.site(node), what, partial(wrapping.wraps, facts, tree, node))
            yield from tried(tree.site(node), "", partial(_nested, tree, node))
            try:
                yield from wrapping.hints(facts, tree, node)
            except NoCounterpart:
                continue


def _nested(tree: Tree, node: ast.Call) -> Iterable[Edit]:
    """Raise NoCounterpart for a wrap within a model, which is a part of another one."""
    for above in tree.ancestors(node):
        methods = {one.name for one in getattr(above, "body", ()) if hasattr(one, "name")}
        if isinstance(above, ast.ClassDef) and "forward" in methods:
            raise NoCounterpart(
                tree.site(node),
                "a part of a model is wrapped where the model is built",
                "wrap the whole model with an auto_wrap_policy, then run again",
            )
    return ()


def _objects(facts: Facts) -> Iterator[Finding]:
    """Settings that are made elsewhere than in a call that is rewritten as a whole."""
    whole = {inner for node in _rewritten_texts(facts) for inner in ast.walk(node)}
    live = {node for _, node in _alive(facts)}
    for tree in facts.trees.values():
        for node in made(tree, tree.module):
            if node in live and node not in whole and (idle := idle_assignment(tree, node)):
                what = "nothing reads this object of FSDP1"
                gone = Edit(How.DELETE, tree.site(idle), "")
                yield Finding(CODE, tree.site(idle), what, Severity.ERROR, (gone,))
            elif node in live and node not in whole:
                what = "an object of FSDP1 is another one in FSDP2"
                yield from tried(tree.site(node), what, partial(_only, _object, tree, node))


def _rewritten_texts(facts: Facts) -> Iterator[ast.AST]:
    for tree, node in _rewritten(facts):
        yield node
        policies = [one.value for one in node.keywords if one.arg == "auto_wrap_policy"]
        yield from filter(None, (wrapping.only_here(tree, one) for one in policies))


def _rewritten(facts: Facts) -> Iterator[tuple[Tree, ast.Call]]:
    """The calls whose whole text is replaced."""
    names = (CLASS, f"{CLASS}.state_dict_type", f"{CLASS}.set_state_dict_type")
    for tree in facts.trees.values():
        for node in tree.nodes():
            if isinstance(node, ast.Call) and called(tree, node) in names:
                yield tree, node


def _states(facts: Facts) -> Iterator[Finding]:
    everywhere = [
        (t, n) for t, n in _rewritten(facts) if called(t, n).endswith(".set_state_dict_type")
    ]
    yield from _tried_setting(facts, everywhere)
    try:
        known = states.StateCalls(facts, everywhere[0] if len(everywhere) == 1 else None)
    except NoCounterpart:
        return
    for tree, statement in _alive(facts):
        if isinstance(statement, ast.With):
            opened = partial(_only, states.context, tree, statement)
            what = "the form of a state dict is an argument, no context"
            yield from tried(tree.site(statement), what, opened)
    for call, tree, node in _calls(facts):
        what = "a state dict of FSDP2 is gathered by the distributed state API"
        name = called(tree, node).rpartition(".")
        if name[0] == CLASS and name[2] in _OPTIMIZER:
            gathered = partial(_only, known.gathered, call, tree, node, name[2])
            yield from tried(call.site, what, gathered)
        elif call.name in (".state_dict", ".load_state_dict"):
            yield from tried(call.site, what, partial(known.edits, call, tree, node))
            yield from known.notes(call)


def _calls(facts: Facts) -> Iterator[tuple[Call, Tree, ast.Call]]:
    """The calls that are made, each place once."""
    for site, calls in once(facts.calls).items():
        tree = facts.tree(site)
        node = tree.expression(site)
        if isinstance(node, ast.Call):
            yield calls[0], tree, node


def _only(made: Callable[..., Edit | None], *given: object) -> Iterable[Edit]:
    """The one edit that something gives, or none."""
    edit = made(*given)
    return () if edit is None else (edit,)


def _object(tree: Tree, node: ast.expr) -> Edit:
    return written(How.REPLACE, tree.site(node), converted(tree, node))


def _tried_setting(facts: Facts, found: list[tuple[Tree, ast.Call]]) -> Iterator[Finding]:
    for tree, node in found:
        what = "the form of a state dict is an argument, no setting"
        yield from tried(tree.site(node), what, partial(_setting, facts, tree, node, len(found)))


def _setting(facts: Facts, tree: Tree, node: ast.Call, times: int) -> Iterable[Edit]:
    """The edit that drops a setting for all that comes. Raises NoCounterpart."""
    states.StateCalls(facts, (tree, node))
    order = min((c.order for c in facts.calls if c.site == tree.site(node)), default=None)
    taken = [c for c in facts.calls if c.name in (".state_dict", ".load_state_dict")]
    early = [c for c in taken if wrapped.is_wrapped(c.receiver) and c.order < (order or 0)]
    inline = all(isinstance(one, ast.Call | ast.Attribute) for one in node.args[2:])
    statement = tree.parent(node)
    if times > 1 or early or order is None or not inline or not isinstance(statement, ast.Expr):
        raise NoCounterpart(
            tree.site(node),
            "for which state dicts this is set is not followed",
            "write `with FSDP.state_dict_type(…)` around each, then run again",
        )
    return [Edit(How.DELETE, tree.site(statement), "")]


def _steps(facts: Facts) -> Iterator[Finding]:
    for call, tree, node in _calls(facts):
        if call.name == ".clip_grad_norm_" and wrapped.is_wrapped(call.receiver):
            what = "the method of FSDP1 is torch's function for shards that are tensors"
            yield from tried(call.site, "", partial(_nothing, steps.offloaded, facts, call))
            yield from tried(call.site, what, partial(_only, steps.clipped, tree, node))
    for tree, part in _alive(facts):
        if isinstance(part, ast.With):
            what = "FSDP2 has no no_sync(): whether gradients are averaged is a setting"
            yield from tried(tree.site(part), what, partial(steps.unsynced, facts, tree, part))
    yield from tried(facts.entry.site, "", partial(_nothing, steps.optimizers, facts))


def _nothing(asked: Callable[..., None], *given: object) -> Iterable[Edit]:
    asked(*given)
    return ()


def _uses(facts: Facts) -> Iterator[Finding]:
    yield from tried(facts.entry.site, "fully_shard wraps nothing", partial(wrapped.uses, facts))
    for tree, node in _alive(facts):
        if isinstance(node, ast.expr) and (tree, node) in _types(tree):
            what = "an object of FSDP1 is another one in FSDP2"
            edit = written(How.REPLACE, tree.site(node), "FSDPModule")
            yield Finding(CODE, tree.site(node), what, Severity.ERROR, (edit,))


def _types(tree: Tree) -> list[tuple[Tree, ast.expr]]:
    """Where the class stands for a type: in annotations, and in ``isinstance``."""
    found = []
    for node, name in mentions(tree):
        parent = tree.parent(node)
        annotation = isinstance(parent, ast.arg | ast.AnnAssign) and parent.annotation is node
        asked = isinstance(parent, ast.Call) and tree.text(parent.func) == "isinstance"
        if name == CLASS and (annotation or asked):
            found.append((tree, node))
    return found


RULE = Rule(
    CODE,
    "to-fully-shard",
    "FSDP1 (FullyShardedDataParallel) is deprecated. FSDP2 (fully_shard) shards each weight by"
    " itself: no wrapper, no flat parameters, states and clipping by torch's functions. With"
    " --strategy fsdp it takes the place of DistributedDataParallel, too.",
    "pytorch/tutorials FSDP_tutorial.rst (migration guide); Accelerate fsdp1_vs_fsdp2",
    check,
)
