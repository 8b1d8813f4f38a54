"""What in a program of Lightning's Trainer is not followed on several devices: refused, for now.

``check`` reads what hooks print, write and log. What decides over steps and samples is looked for
here by the names that Lightning and torch give it: a program that has one is not migrated.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from ddpify.facts.model import Facts
from ddpify.facts.tree import Tree
from ddpify.lightning.manual import faults
from ddpify.outcome import Refusal

_INNER: Final = frozenset({"_combined_loader", "_data_fetcher", "_data_source", "fit_loop"})
_SEEDS: Final = "seed_everything"
_DRAWN: Final = ("sampler", "batch_sampler")
_STREAM: Final = "IterableDataset"
_STEP: Final = "training_step"


def hazards(facts: Facts) -> Iterator[Refusal]:
    """One refusal per place."""
    found = [*_unseeded(facts), *faults(facts)]
    for tree in facts.trees.values():
        found += [(tree, node, why) for node in tree.nodes() if (why := _of(node))]
    for tree, node, why in found:
        site = tree.site(node)
        yield Refusal(f"{site}: {why}", site)


def _unseeded(facts: Facts) -> Iterator[tuple[Tree, ast.AST, str]]:
    """The Trainer, where no seed is set by which processes make the same data and splits."""
    trees = facts.trees
    calls = (n for tree in trees.values() for n in tree.nodes() if isinstance(n, ast.Call))
    if any(_last(call.func) == _SEEDS for call in calls):
        return
    why = (
        "processes that are not seeded alike split and draw data each for itself:"
        " call seed_everything(seed) before the Trainer is made"
    )
    site = next(site for site, _ in facts.evidence)
    tree = facts.tree(site)
    yield tree, tree.statement(site) or tree.module.body[0], why


def _of(node: ast.AST) -> str:
    if isinstance(node, ast.ClassDef):
        streams = any(_last(base) == _STREAM for base in node.bases)
        return "each process would read all of this data: shard it by rank and worker" * streams
    if isinstance(node, ast.keyword):
        drawn = node.arg in _DRAWN and not isinstance(node.value, ast.Constant)
        why = "samples that a sampler chooses are dealt by Lightning, but drawn by each process"
        return f"{why} for itself: is it the same on all? deal them by hand" * drawn
    if isinstance(node, ast.FunctionDef) and node.name == _STEP:
        why = "a step that one process leaves out, the others wait for: return a loss in each"
        return why * any(map(_is_none, ast.walk(node)))
    if isinstance(node, ast.Assign):
        return "".join(_of_target(target, node.value) for target in node.targets)
    return ""


def _of_target(target: ast.expr, value: ast.expr) -> str:
    names = [one.attr for one in ast.walk(target) if isinstance(one, ast.Attribute)]
    off = isinstance(value, ast.Constant) and value.value is False
    if names[:1] == ["should_stop"] and not off:
        return (
            "a process that stops by its own numbers leaves the others waiting: use EarlyStopping"
        )
    if len(names) > 1 and not _INNER.isdisjoint(names) and not isinstance(value, ast.Constant):
        return (
            "a loader in the Trainer's own loop is not dealt to the ranks; return it from"
            " train_dataloader(), with reload_dataloaders_every_n_epochs"
        )
    return ""


def _is_none(node: ast.AST) -> bool:
    """``return``, or ``return None``."""
    if not isinstance(node, ast.Return):
        return False
    return node.value is None or (isinstance(node.value, ast.Constant) and node.value.value is None)


def _last(node: ast.AST) -> str:
    return getattr(node, "attr", getattr(node, "id", ""))
