"""What a program does with a model that FSDP1 has wrapped: each use means the same, or is named."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from ddpify.facts.events import Call
from ddpify.facts.model import Facts
from ddpify.facts.tree import Tree
from ddpify.facts.values import Kind, Value
from ddpify.rules.base import Edit, How
from ddpify.rules.conversion.code import NoCounterpart, is_simple
from ddpify.rules.conversion.left import dead
from ddpify.rules.conversion.names import CLASS, short
from ddpify.rules.edits import once

_SAME: Final = frozenset("train eval zero_grad to cuda buffers".split())
_ELSEWHERE: Final = frozenset(
    "parameters state_dict load_state_dict clip_grad_norm_ no_sync".split()
)
_STATES: Final = "torch.distributed.checkpoint.state_dict."
_SHOWN: Final = frozenset(f"builtins.{name}" for name in "print isinstance type id repr".split())
_AROUND: Final = (
    "torch.distributed.algorithms._checkpoint.checkpoint_wrapper.apply_activation_checkpointing"
)
_INNER: Final = frozenset({"module", "_fsdp_wrapped_module"})
_CLIPPED: Final = "torch.nn.utils.clip_grad_"
_OWN: Final = ".state_dict .load_state_dict .clip_grad_norm_ .no_sync .parameters".split()
_HIDDEN: Final = ".state_dict .load_state_dict .no_sync".split()
# Whose methods have these names, too.
_OTHERS = (Kind.MODEL, Kind.OPTIMIZER, Kind.SCHEDULER, Kind.SCALER, Kind.LOADER, Kind.SAMPLER)


def is_wrapped(value: Value | None) -> bool:
    """Whether a value is a model that FSDP1 wraps, whatever else it may be."""
    return value is not None and any(CLASS in t.name for t in value.of(Kind.WRAPPED))


def uses(facts: Facts) -> Iterator[Edit]:
    """The edits of other uses of wrapped models. Raises NoCounterpart."""
    for calls in once(facts.everywhere).values():
        for call in calls:
            _call(facts, call)
    _unseen(facts)
    seen = set()
    for access in facts.accesses:
        tree = facts.tree(access.base_site)
        node = tree.expression(access.base_site)
        parent = tree.parent(node) if node is not None else None
        if not is_wrapped(access.base) or not isinstance(parent, ast.Attribute) or parent in seen:
            continue
        seen.add(parent)
        if access.attribute in _INNER and node is not None and is_simple(node):
            yield Edit(How.REPLACE, tree.site(parent), tree.text(node))
        elif not _is_called(tree, parent):
            raise NoCounterpart(
                tree.site(parent),
                f"`{tree.text(parent)}` of a sharded model is not followed",
                "read it before the model is wrapped, then run again",
            )


def _unseen(facts: Facts) -> None:
    """Raise NoCounterpart for a call that may be of a wrapped model, where no reading comes."""
    entered = {call.site for call in facts.everywhere}
    for tree in facts.trees.values():
        gone = {inner for function in dead(facts, tree) for inner in ast.walk(function)}
        for node in tree.nodes():
            method = _method_of(node)
            if f".{method}" in _HIDDEN and node not in gone and tree.site(node) not in entered:
                raise NoCounterpart(
                    tree.site(node),
                    f"nothing that is followed comes to this `{method}()`",
                    "leave out what is not used, or call it where it can be followed",
                )


def _method_of(node: ast.AST) -> str:
    """The name of the method that a call calls; empty for another node."""
    func = node.func if isinstance(node, ast.Call) else None
    return func.attr if isinstance(func, ast.Attribute) else ""


def _is_called(tree: Tree, node: ast.AST) -> bool:
    parent = tree.parent(node)
    return isinstance(parent, ast.Call) and parent.func is node


def _call(facts: Facts, call: Call) -> None:
    if is_wrapped(call.receiver):
        _method(facts, call)
    elif call.name in _OWN and not _is_known(call.receiver):
        raise NoCounterpart(
            call.site,
            f"whose `{call.name[1:]}()` this is cannot be followed",
            "hand the model on by arguments or attributes, then run again",
        )
    given = any(is_wrapped(value) for value in (*call.args, *call.kwargs.values()))
    if given and not _may_have(call):
        raise NoCounterpart(
            call.site,
            f"what `{facts.text(call.callee)}` does with the sharded model is not followed",
            "call it with the model before that is wrapped, or leave it out",
        )


def _is_known(value: Value | None) -> bool:
    return value is None or bool(value.of(*_OTHERS, Kind.EXTERNAL, Kind.INSTANCE))


def _may_have(call: Call) -> bool:
    """Whether what is called is read, or known to leave the model as it is."""
    known = short(call.name).startswith(CLASS) or call.name.startswith(_STATES)
    own = any(thing.kind is Kind.INSTANCE and thing.ref for thing in call.result.things)
    return known or own or call.target is not None or call.name in (_AROUND, *_SHOWN)


def _method(facts: Facts, call: Call) -> None:
    name = call.name.removeprefix(".")
    whose = call.receiver.things if call.receiver is not None else ()
    if any(thing.kind is Kind.WRAPPED and CLASS not in thing.name for thing in whose):
        raise NoCounterpart(
            call.site, "this may be a model of DDP, too", "keep one of both, then run again"
        )
    if name == "parameters":
        _parameters(facts, call)
    elif call.name.startswith(".") and name not in _SAME | _ELSEWHERE:
        raise NoCounterpart(
            call.site,
            f"`{name}()` of a model that FSDP1 wraps has no counterpart that is written here",
            "call it before the model is wrapped, or see docs/fsdp1.md",
        )


def _parameters(facts: Facts, call: Call) -> None:
    """Raise NoCounterpart unless the parameters go to an optimizer or are clipped."""
    tree = facts.tree(call.site)
    node: ast.AST | None = tree.expression(call.site)
    parent = tree.parent(node) if node is not None else None
    if isinstance(parent, ast.Call) and tree.text(parent.func) == "filter":
        node, parent = parent, tree.parent(parent)
    taken = {c.site: c.name for c in facts.calls}
    if isinstance(parent, ast.keyword):
        parent = tree.parent(parent)
    to = taken.get(tree.site(parent), "") if isinstance(parent, ast.Call) else ""
    if not to.startswith(("torch.optim.", _CLIPPED)):
        raise NoCounterpart(
            call.site,
            "what is computed of weights that are shards is not followed",
            "compute it before the model is wrapped, then run again",
        )
