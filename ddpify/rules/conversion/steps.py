"""Clipping, accumulation and optimizers of a model that FSDP1 wraps."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator
from typing import Final

from ddpify.facts.events import Call
from ddpify.facts.model import Facts
from ddpify.facts.tree import Tree
from ddpify.facts.values import Kind
from ddpify.rules.base import Edit, Finding, How, Severity
from ddpify.rules.conversion.code import RULE, NamedArguments, NoCounterpart, written
from ddpify.rules.conversion.names import short
from ddpify.rules.conversion.wrapped import is_wrapped
from ddpify.rules.shared.shards import BY_ENTRY
from ddpify.site import Site

_CLIP: Final = "torch.nn.utils.clip_grad_norm_"
_LEAVING = (ast.Break, ast.Continue, ast.Return, ast.Yield)
_WHOLE: Final = "the norm comes as a distributed tensor, which no format string takes"
_NEITHER: Final = "contextlib.nullcontext"


def clipped(tree: Tree, node: ast.Call) -> Edit:
    """``model.clip_grad_norm_(…)``: the norm of all shards. Raises NoCounterpart."""
    assert isinstance(node.func, ast.Attribute)
    model = tree.text(node.func.value)
    given = NamedArguments.of(tree, node, ["max_norm", "norm_type"])
    words = [tree.text(given.by_name["max_norm"])]
    if (kind := given.by_name.get("norm_type")) is not None:
        _finite(tree.site(node), kind.value if isinstance(kind, ast.Constant) else None)
        words.append(f"norm_type={tree.text(kind)}")
    code = f"clip_grad_norm_({model}.parameters(), {', '.join(words)})"
    shown = not isinstance(tree.parent(node), ast.Expr)
    return written(How.REPLACE, tree.site(node), f"{code}.full_tensor()" if shown else code)


def _finite(site: Site, kind: object) -> None:
    """Raise NoCounterpart but for the norms that torch takes of empty shards."""
    if not isinstance(kind, int | float) or not 0 < kind < math.inf:
        raise NoCounterpart(
            site,
            "a norm of this kind is not taken of a rank's empty shard (RuntimeError)",
            "give a norm_type that is a finite number, then run again",
        )


def offloaded(facts: Facts, call: Call) -> None:
    """Raise NoCounterpart for a norm over shards on the CPU that NCCL would have to add up."""
    opened = facts.named("torch.distributed.init_process_group")
    off = any(short(one.name) == "CPUOffload" for one in facts.calls)
    backends = [one.arg(0, "backend") for one in opened]
    if off and not all(b is None or (b.known and "gloo" in str(b.const)) for b in backends):
        raise NoCounterpart(
            call.site,
            "with cpu_offload this norm is added up on the CPU, which NCCL does not do",
            'call init_process_group("cpu:gloo,cuda:nccl"), then run again',
        )


def norms(facts: Facts) -> Iterator[Finding]:
    """Norms that were of one rank's shards, and are those of the model now."""
    for call in facts.named(_CLIP):
        given = call.arg(0, "parameters")
        if given is not None and given.dep(Kind.WRAPPED, Kind.PARAMETERS):
            kind, tree = call.arg(2, "norm_type"), facts.tree(call.site)
            try:
                offloaded(facts, call)
                _finite(call.site, kind.const if kind is not None and kind.known else kind or 2.0)
            except NoCounterpart as error:
                yield error.finding
                continue
            node = tree.expression(call.site)
            if node is not None and not isinstance(tree.parent(node), ast.Expr):
                fix = (Edit(How.REPLACE, call.site, "{}.full_tensor()"),)
                yield Finding(RULE, call.site, _WHOLE, Severity.ERROR, fix)
            yield Finding(
                RULE,
                call.site,
                "with FSDP1 each rank clipped by the norm of its own shards; now it is that of the"
                " model",
                Severity.NOTE,
            )


def optimizers(facts: Facts) -> None:
    """Raise NoCounterpart for an optimizer that needs more of a weight than a rank has."""
    for call in facts.calls:
        for thing in call.result.of(Kind.OPTIMIZER) if call.target is None else ():
            if thing.born == call.site and thing.name not in BY_ENTRY:
                raise NoCounterpart(
                    call.site,
                    f"`{thing.name}` may compute with whole weights, of which FSDP1 and FSDP2 give"
                    " it other parts",
                    "take one that steps entry by entry, as SGD, Adam and AdamW do",
                )


def of_fsdp1(call: Call) -> bool:
    """Whether a call is a method of a model that FSDP1 wraps."""
    return is_wrapped(call.receiver)


def unsynced(
    facts: Facts, tree: Tree, statement: ast.With, ours: Callable[[Call], bool] = of_fsdp1
) -> tuple[Edit, ...]:
    """``with model.no_sync():`` as the setting that it is. Raises NoCounterpart."""
    found = [(item, _paused(facts, tree, item.context_expr, ours)) for item in statement.items]
    wanted = [(item, code) for item, code in found if code is not None]
    if not wanted:
        return ()
    (item, (model, sync)), site = wanted[0], tree.site(statement)
    inside = [node for one in statement.body for node in ast.walk(one)]
    if any(isinstance(node, _LEAVING) for node in inside):  # the setting would stay
        what, way = "what no_sync() is around is left in its midst", "leave behind it"
        raise NoCounterpart(tree.site(item.context_expr), what, way)
    if len(statement.items) > 1 or item.optional_vars is not None:
        what, way = "no_sync() is opened together with something else", "give it its own `with`"
        raise NoCounterpart(tree.site(item.context_expr), what, way)
    cleared(facts)
    setting = f"{model}.set_requires_gradient_sync"
    return (
        Edit(How.BEFORE, site, f"{setting}({sync})"),
        Edit(How.BODY, site, ""),
        Edit(How.AFTER, site, f"{setting}(True)"),
    )


def _paused(
    facts: Facts, tree: Tree, node: ast.expr, ours: Callable[[Call], bool]
) -> tuple[str, str] | None:
    """The model whose gradients are not averaged in a context, and when they are."""
    if isinstance(node, ast.IfExp):
        asked = tree.text(node.test)
        for one, other, sync in (
            (node.body, node.orelse, f"not ({asked})"),
            (node.orelse, node.body, f"bool({asked})"),
        ):
            found = _paused(facts, tree, one, ours)
            if found is not None and _is_neither(facts, tree, other):
                return found[0], sync
        return None
    calls = [c for c in facts.calls if c.site == tree.site(node) and c.name == ".no_sync"]
    if any(map(ours, calls)) and isinstance(node, ast.Call):
        assert isinstance(node.func, ast.Attribute)
        return tree.text(node.func.value), "False"
    return None


def _is_neither(facts: Facts, tree: Tree, node: ast.expr) -> bool:
    return any(call.site == tree.site(node) for call in facts.named(_NEITHER))


def _is_step(call: Call) -> bool:
    """Of an optimizer or its scaler, not of a schedule."""
    whose = call.receiver.things if call.receiver is not None else ()
    kinds = (Kind.OPTIMIZER, Kind.SCALER)
    return call.name == ".step" and bool(whose) and all(one.kind in kinds for one in whose)


def cleared(facts: Facts) -> None:
    """Raise NoCounterpart where gradients may be cleared before they were averaged.

    FSDP2 keeps them aside until then, so that clearing does not reach them.
    """
    first = min((call.order for call in facts.calls if call.name == ".backward"), default=0)
    for call in facts.calls:
        if call.name != ".zero_grad" or (call.where.loop is None and call.order < first):
            continue
        tree = facts.tree(call.site)
        statement = tree.statement(call.site)
        before = tree.block(statement) if statement is not None else []
        steps = {tree.site(s) for s in before[: before.index(statement)]} if statement else set()
        stepped = [c for c in facts.calls if _is_step(c) and c.where.statement in steps]
        if not stepped:
            raise NoCounterpart(
                call.site,
                "gradients of batches before may not be averaged yet, and FSDP2 keeps these",
                "clear them right behind optimizer.step() alone, then run again",
            )
