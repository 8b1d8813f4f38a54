"""Learning rates for a batch that is N times as large: ``--batch-size per-rank --lr-scale linear``.

Goyal et al. 2017 (arXiv:1706.02677), section 2.1, multiply the rate by N and warm up (2.2);
Krizhevsky 2014 (arXiv:1404.5997) by the root of N. What sets a rate to a number of its own later
is multiplied, too; what changes the rate that is there (``group["lr"] *= 0.1``) is left.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpify.facts.details import call_that_made
from ddpify.facts.events import Call
from ddpify.facts.model import Facts
from ddpify.facts.tree import Tree
from ddpify.rules.base import Edit, Finding, How, Severity
from ddpify.rules.edits import edit
from ddpify.settings import Settings
from ddpify.source import Site

SCALED = "scaled_lr"
_CYCLES = {"OneCycleLR": ("max_lr",), "CyclicLR": ("base_lr", "max_lr")}


def scaled_rates(facts: Facts, settings: Settings) -> Iterator[Finding]:
    """Yield a finding for each optimizer, and for each place that sets a rate of its own."""
    if settings.lr_scale == "none":
        return
    how = "" if settings.lr_scale == "linear" else f', "{settings.lr_scale}"'
    code = f"scaled_lr({{}}{how})"
    made = {call_that_made(one) for model in facts.models for one in model.optimizers}
    for call in sorted(filter(None, made), key=lambda one: one.order):
        if not _is_scaled(facts, call):
            yield _of_optimizer(facts, settings, call, code)
    for site in (*_set_later(facts), *_cycles(facts)):
        yield _finding(site, (edit(facts, How.REPLACE, site, code),))


def _finding(site: Site, fix: tuple[Edit, ...]) -> Finding:
    advice = "" if fix else "multiply the learning rate by hand: it is not written here"
    message = "the global batch is N times as large: the learning rate grows with it, as asked"
    return Finding("DDP203", site, message, Severity.NOTE, fix, advice)


def _of_optimizer(facts: Facts, settings: Settings, call: Call, code: str) -> Finding:
    sites = list(_rates(facts, call))
    if call.star or call.bound or not sites:
        return _finding(call.site, ())
    fix = [edit(facts, How.REPLACE, site, code) for site in sites]
    tree = facts.tree(call.site)
    statement = tree.statement(call.site)
    match statement:
        case ast.Assign(targets=[ast.Name() | ast.Attribute() as target]) if settings.warmup_steps:
            how = "" if settings.lr_scale == "linear" else f', "{settings.lr_scale}"'
            begun = f"warm_up({ast.unparse(target)}, {settings.warmup_steps}{how})"
            fix.append(edit(facts, How.AFTER, tree.site(statement), begun))
    return _finding(call.site, tuple(fix))


def _rates(facts: Facts, call: Call) -> Iterator[Site]:
    """The rate of an optimizer, and those of groups of parameters that are written in its call."""
    own = call.arg_site(1, "lr")
    if own is not None:
        yield own
    tree = facts.tree(call.site)
    node = tree.expression(call.site)
    for inner in ast.walk(node) if node is not None else ():
        if isinstance(inner, ast.Dict):
            for key, value in zip(inner.keys, inner.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == "lr":
                    yield tree.site(value)


def _is_scaled(facts: Facts, call: Call) -> bool:
    return SCALED in facts.text(call.site)


def _set_later(facts: Facts) -> Iterator[Site]:
    """``group["lr"] = args.lr * 0.1``, but not what is made of the rate that is there."""
    for tree in facts.trees.values():
        for node in tree.nodes():
            targets = node.targets if isinstance(node, ast.Assign) else []
            if not isinstance(node, ast.Assign) or not any(_is_rate(tree, t) for t in targets):
                continue
            made = {ast.unparse(node.value), *_bound(tree, node)}
            if not any(_is_relative(text) for text in made):
                yield tree.site(node.value)


def _is_rate(tree: Tree, node: ast.expr) -> bool:
    """``optimizer.param_groups[0]["lr"]``, ``group["lr"]`` of these; not ``config["lr"]``."""
    match node:
        case ast.Subscript(value=owner, slice=ast.Constant("lr")):
            loops = (n for n in tree.ancestors(node) if isinstance(n, ast.For))
            heads = [n.iter for n in loops if ast.unparse(owner) in ast.unparse(n.target)]
            return any(".param_groups" in ast.unparse(one) for one in (owner, *heads))
    return False


def _bound(tree: Tree, node: ast.Assign) -> Iterator[str]:
    """What the names in a rate are bound to in its function."""
    names = {n.id for n in ast.walk(node.value) if isinstance(n, ast.Name)}
    for each in tree.nodes(tree.function(node)):
        if isinstance(each, ast.Assign) and names & {ast.unparse(t) for t in each.targets}:
            yield ast.unparse(each.value)


def _is_relative(text: str) -> bool:
    return any(word in text for word in ("['lr']", "['initial_lr']", "get_last_lr", SCALED))


def _cycles(facts: Facts) -> Iterator[Site]:
    """The highest rates of schedules that say them: ``OneCycleLR(optimizer, max_lr=0.1)``."""
    for name, words in _CYCLES.items():
        for call in facts.named(f"torch.optim.lr_scheduler.{name}"):
            for place, word in enumerate(words, 1):
                site = call.arg_site(place, word)
                if site is not None and SCALED not in facts.text(site):
                    yield site
