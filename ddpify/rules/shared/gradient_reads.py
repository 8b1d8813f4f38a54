"""Whether a round of a loop may look at gradients before they are averaged, or at the weights."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from ddpify.facts.events import Forward
from ddpify.facts.model import Facts, TrainingLoop
from ddpify.facts.values import Kind
from ddpify.rules.shared.step_conditions import StepWindow

# What has hold of a model, or of an optimizer, and leaves gradients as they are.
_HARMLESS = frozenset({".train", ".eval", ".zero_grad", ".parameters", ".scale", ".backward"})
_TRAINED = (Kind.MODEL, Kind.WRAPPED, Kind.PARAMETERS, Kind.OPTIMIZER)


def forwards_in(facts: Facts, loop: TrainingLoop) -> list[Forward]:
    return [f for f in facts.training_forwards if loop.batch in f.call.where.loops()]


def looked_at(facts: Facts, loop: TrainingLoop, window: StepWindow) -> bool:
    """Whether a round may look at gradients, or change them, that are averaged later.

    So may what is given a model, its parameters or an optimizer and was not read. Where the
    window's step is taken they are averaged.
    """
    forwards = {f.call.site for f in forwards_in(facts, loop)}
    synced = [window.tree.site(one) for one in window.synced]
    looking: list[ast.AST] = [window.tree.statement(window.rounds) or window.tree.module]
    for call in facts.calls:
        inside = [s for s in call.way if s.within(window.rounds)]
        stepping = any(s.within(one) for s in inside for one in synced)
        if not inside or stepping or call.site in forwards or call.name in _HARMLESS:
            continue
        if call.target is not None and not call.unread:
            looking.append(call.target.node)  # what it calls is asked, too
            continue
        given = [v for v in (call.receiver, *call.args, *call.kwargs.values()) if v is not None]
        if any(v.of(*_TRAINED) for v in given):
            return True
    nodes = (n for one in looking for n in _walk(one, window.synced))
    return any(isinstance(n, ast.Attribute) and n.attr == "grad" for n in nodes)


def _walk(node: ast.AST, without: Sequence[ast.stmt]) -> Iterator[ast.AST]:
    """What is in a node, but for some statements."""
    yield node
    for inner in ast.iter_child_nodes(node):
        if inner not in without:
            yield from _walk(inner, without)
