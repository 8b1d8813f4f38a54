"""DDP503: every rank makes the same directory."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.facts.effects import EffectKind
from ddpify.facts.model import Facts
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.effects import gated
from ddpify.rules.examples import BY_HAND, CORRECT, SCRIPT, TRAINER, changed
from ddpify.settings import Settings


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per directory that all ranks make."""
    message = "every rank would make this directory: whoever comes second fails"
    yield from gated(facts, "DDP503", (EffectKind.DIRECTORY,), message, Severity.WARNING)


RULE = Rule(
    "DDP503",
    "directory-on-every-rank",
    "Between `if not exists` and `makedirs` another rank makes the directory: FileExistsError."
    " Only the rank that writes needs it.",
    "neuralforecast#1460; BUGS K04 (12 FileExistsError in 400 runs)",
    check,
    bad=(
        changed(
            TRAINER,
            (
                "        if is_main_process():\n            os.makedirs(folder, exist_ok=True)\n",
                "        os.makedirs(folder, exist_ok=True)  # DDP503\n",
            ),
        ),
        changed(
            SCRIPT,
            ("import torch\nimport", "from pathlib import Path\n\nimport torch\nimport"),
            (
                "fork_random_streams()\nfor",
                'Path("plots").mkdir(exist_ok=True)  # DDP503\nfork_random_streams()\nfor',
            ),
        ),
        changed(BY_HAND, ("    gpu = int", '    os.mkdir("weights")  # DDP503\n    gpu = int')),
    ),
    good=CORRECT,
)
