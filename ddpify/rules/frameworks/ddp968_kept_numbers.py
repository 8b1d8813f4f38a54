"""DDP968: what hooks have added up, or put into a list, is of one process's batches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ddpify.names import INSTALLED
from ddpify.ranks.run import Run
from ddpify.rules.base import Edit, Finding, How, Import, Rule, Severity
from ddpify.rules.examples import changed
from ddpify.rules.examples.lightning import FED
from ddpify.rules.frameworks.feeding import are_dealt, is_one
from ddpify.rules.frameworks.keeping import KeptField, kept_fields
from ddpify.rules.frameworks.lightnings import hooked, several
from ddpify.site import Site

_HELPERS: Final = {"sum": "reduce_sum", "mean": "reduce_mean", "list": "gather_samples"}


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per statement that first reads such numbers at the end of an epoch."""
    if not run.assumed or not several(run):
        return
    for cls in hooked(run):
        found: dict[Site, list[KeptField]] = {}
        for one in kept_fields(run, cls):
            found.setdefault(one.reader.module.site(one.first), []).append(one)
        for site, fields in found.items():
            yield _finding(site, fields, all(_is_fixable(run, one) for one in fields))


def _finding(site: Site, fields: list[KeptField], fixable: bool) -> Finding:
    names = ", ".join(f"self.{one.name}" for one in fields)
    return Finding(
        "DDP968",
        site,
        f"{names}: what the batches of one process came to, not those of all",
        Severity.ERROR if fixable or fields[0].evaluated else Severity.WARNING,
        (_reduced(site, fields),) if fixable else (),
        "" if fixable else "self.log it with sync_dist=True, or keep it in a torchmetrics object",
    )


def _is_fixable(run: Run, one: KeptField) -> bool:
    """Whether all processes' numbers make that of one: their batches are dealt by our helpers."""
    if not one.how or not are_dealt(run, not one.evaluated):
        return False
    return one.how != "list" or is_one(run, one.hook)


def _reduced(site: Site, fields: list[KeptField]) -> Edit:
    lines, used = [], []
    for how, helper in _HELPERS.items():
        names = ", ".join(f"self.{one.name}" for one in fields if one.how == how)
        if names:
            lines.append(f"{names} = {helper}({names})")
            used.append(Import(INSTALLED, helper))
    return Edit(How.BEFORE, site, "\n".join(lines), imports=tuple(used))


_STEP: Final = "    def validation_step(self, batch, batch_idx):\n        x, y = batch\n"
_MADE: Final = "        self.net = nn.Linear(8, 8)\n"
_END: Final = "    def configure_optimizers"
_COUNTED: Final = (
    (_MADE, f"{_MADE}        self.rows = 0\n"),
    (_STEP, f"{_STEP}        self.rows += len(x)\n"),
)
_LISTED: Final = (
    (_MADE, f"{_MADE}        self.errors = []\n"),
    (_STEP, f"{_STEP}        self.errors.append((self.net(x) - y).abs().max().item())\n"),
)
_REDUCED: Final = (
    "import share_evaluation, share_training",
    "import reduce_sum, share_evaluation, share_training",
)


def _ended(*lines: str) -> tuple[str, str]:
    body = "".join(f"        {line}\n" for line in lines)
    return _END, f"    def on_validation_epoch_end(self):\n{body}\n{_END}"


RULE = Rule(
    "DDP968",
    "kept-by-one-process",
    "What validation_step adds to self.correct, or puts into a list, on_validation_epoch_end finds"
    " as it is in its own process: 149 of 297 samples, half of the predictions. The numbers of all"
    " are added up, or put together in the data set's order, before they are read.",
    "docs/lightning.md",
    lint=lint,
    bad=(
        changed(FED, *_COUNTED, _ended('self.log("n", self.rows)  # DDP968', "self.rows = 0")),
        changed(
            FED,
            *_LISTED,
            _ended("self.worst = max(self.errors)  # DDP968", "self.errors.clear()"),
        ),
        changed(FED, *_LISTED, _ended("self.median = sorted(self.errors)[3]  # DDP968")),
    ),
    good=(
        FED,
        changed(
            FED,
            *_COUNTED,
            _REDUCED,
            _ended(
                "self.rows = reduce_sum(self.rows)", 'self.log("n", self.rows)', "self.rows = 0"
            ),
        ),
    ),
)
