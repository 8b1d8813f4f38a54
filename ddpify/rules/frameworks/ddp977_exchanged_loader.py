"""DDP977: a hook puts a loader into the Trainer's own loop, past what deals it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Final

from ddpify.ranks.hooks import LOADS
from ddpify.ranks.modules import FunctionDefinition
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples import changed
from ddpify.rules.examples.lightning import FED, LIGHTNING
from ddpify.rules.frameworks.feeding import loaders, unknown
from ddpify.rules.frameworks.lightnings import hooks, several

_INNER: Final = frozenset({"_combined_loader", "_data_fetcher", "_data_source"})


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per loader that is put in, unless its own hook has it dealt."""
    if not several(run):
        return
    dealt = not any(one.trains for one in (*unknown(run), *(one.fed for one in loaders(run))))
    for method in hooks(run):
        yield from _exchanged(method, dealt)


def _exchanged(method: FunctionDefinition, dealt: bool) -> Iterator[Finding]:
    for node in ast.walk(method.node):
        if isinstance(node, ast.Assign) and _exchanges(node, dealt):
            yield Finding(
                "DDP977",
                method.module.site(node),
                "a loader in the Trainer's own loop is not dealt to the processes: all take the"
                " same samples",
                Severity.ERROR,
                advice=f"return it from train{LOADS}(), with reload_dataloaders_every_n_epochs",
            )


def _exchanges(node: ast.Assign, dealt: bool) -> bool:
    """``trainer.fit_loop._combined_loader.flattened = …`` and its kin; None has it asked for."""
    names = {n.attr for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Attribute)}
    if len(names) < 2 or _INNER.isdisjoint(names):
        return False
    given = node.value.elts if isinstance(node.value, (ast.List, ast.Tuple)) else [node.value]
    return not all(isinstance(one, ast.Constant) or (dealt and _is_of_hook(one)) for one in given)


def _is_of_hook(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and ast.unparse(value).endswith(f".train{LOADS}()")


_HOOK: Final = "    def configure_optimizers"
_START: Final = "    def on_train_epoch_start(self):\n        loop = self.trainer.fit_loop\n"
_PUT: Final = "        loop._combined_loader.flattened = [self.trainer.datamodule.{}()]"
_ASKED: Final = "        loop.epoch_loop.val_loop._combined_loader = None\n\n"


def _put(name: str, mark: str = "") -> tuple[str, str]:
    return _HOOK, f"{_START}{_PUT.format(name)}{mark}\n{_ASKED}{_HOOK}"


RULE = Rule(
    "DDP977",
    "exchanged-loader",
    "Lightning deals what train_dataloader returns when it asks for it. A loader that a callback"
    " puts into trainer.fit_loop for it, as progressive resizing does, is dealt by nobody: both of"
    " two ranks took the same 704 samples of 1500.",
    "lightning/pytorch/loops/fit_loop.py; docs/lightning.md",
    lint=lint,
    bad=(
        changed(
            LIGHTNING, _put("train_dataloader", "  # DDP977"), ("    L.seed_everything(0)\n", "")
        ),
        changed(FED, _put("val_dataloader", "  # DDP977")),
    ),
    good=(LIGHTNING, changed(FED, _put("train_dataloader"))),
)
