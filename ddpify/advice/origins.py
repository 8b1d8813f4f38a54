"""Where the batch size of the training loaders comes from: an option, a constant, a config."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from ddpify.advice.arguments import argument_default
from ddpify.advice.model import BatchSizeOrigin
from ddpify.facts.events import Call
from ddpify.facts.model import Facts, Role
from ddpify.facts.scopes import Frame
from ddpify.facts.values import Kind, Value
from ddpify.source import Site

SPLIT = "per_rank_batch_size"
_HOPS = 12


def origins(facts: Facts) -> tuple[BatchSizeOrigin, ...]:
    """One for each training loader and place its batch size comes from."""
    found = [
        _origin(facts, call)
        for loader in facts.loaders
        if Role.TRAINING in loader.roles
        for call in loader.training
    ]
    return tuple(dict.fromkeys(found))


def _origin(facts: Facts, call: Call) -> BatchSizeOrigin:
    value, site = call.arg(1, "batch_size"), call.arg_site(1, "batch_size")
    drop = call.kwargs.get("drop_last")
    found = BatchSizeOrigin(
        call.site,
        "DataLoader's own default",
        1,
        call.site,
        drop_last=bool(drop is not None and drop.known and drop.const),
    )
    if value is None:
        spread = replace(found, how="given through ** arguments", size=None, site=None)
        return spread if call.star else found
    inner = _shared_out(facts, site)
    if inner is not None:
        value, site = facts.values.get(inner, value), inner
        found = replace(found, shared_out=True)
    option = argument_default(facts, value)
    if option is not None:
        return replace(
            found,
            how=option.how,
            size=option.whole,
            site=option.site,
            options=option.spellings,
        )
    if value.known and isinstance(value.const, int):
        place = _written(facts, call.where.frame, site) or call.site
        how = f"written as {value.const} ({place})"
        return replace(found, how=how, size=value.const, site=place, fixed=True)
    return replace(found, how=_unknown(facts, value, site), size=None, site=site)


def _shared_out(facts: Facts, site: Site | None) -> Site | None:
    """The global batch in the ``per_rank_batch_size(…)`` of a program that is migrated."""
    if site is None:
        return None
    node = facts.tree(site).expression(site)
    for part in ast.walk(node) if node is not None else ():
        if isinstance(part, ast.Call) and part.args and _tail(part.func) == SPLIT:
            return facts.tree(site).site(part.args[0])
    return None


def _tail(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _unknown(facts: Facts, value: Value, site: Site | None) -> str:
    names = sorted({t.name for t in value.dep(Kind.ARGUMENT) if t.name})
    text = f"`{facts.text(site)}` ({site})" if site is not None else "a value that is not followed"
    return f"{text}, computed from {', '.join(names)}" if names else text


def _written(facts: Facts, frame: Frame | None, site: Site | None) -> Site | None:
    """The place of the literal, behind parameters and names; the last hop that is certain."""
    for _ in range(_HOPS):
        if site is None:
            return None
        node = facts.tree(site).expression(site)
        if not isinstance(node, ast.Name):
            return site if isinstance(node, ast.Constant) else _config(facts, node, site)
        given = frame.parameters.get(node.id) if frame is not None else None
        if given is not None and frame is not None:
            frame, site = frame.caller, given
            continue
        found = list(_assigned(facts, node.id, facts.values.get(site)))
        if len(found) != 1:
            return site
        site = found[0]
    return site


def _config(facts: Facts, node: ast.expr | None, site: Site) -> Site:
    """``config.batch`` or ``CONFIG["batch"]``: where that value is written, if in one place."""
    name = ""
    if isinstance(node, ast.Attribute):
        name = node.attr
    elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        name = str(node.slice.value)
    found = list(_assigned(facts, name, facts.values.get(site))) if name else []
    return found[0] if len(found) == 1 else site


def _assigned(facts: Facts, name: str, value: Value | None) -> Iterator[Site]:
    """Values written for ``name`` anywhere that are the one that arrived."""
    wanted = value.const if value is not None and value.known else None
    for tree in facts.trees.values():
        for node in ast.walk(tree.module):
            for given in _values(node, name):
                if isinstance(given, ast.Constant) and given.value == wanted:
                    yield tree.site(given)


def _values(node: ast.AST, name: str) -> Iterator[ast.expr]:
    if isinstance(node, ast.Assign) and any(_tail(t) == name for t in node.targets):
        yield node.value
    elif isinstance(node, ast.AnnAssign) and _tail(node.target) == name:
        yield from (node.value,) if node.value is not None else ()
    elif isinstance(node, ast.Dict):
        for key, given in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and key.value == name:
                yield given
    elif isinstance(node, ast.keyword) and node.arg == name:
        yield node.value
