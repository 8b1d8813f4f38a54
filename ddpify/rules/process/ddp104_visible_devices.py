"""DDP104: the script chooses the visible GPUs itself."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.facts.events import Bind
from ddpify.facts.model import Facts
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, How, Rule, Severity
from ddpify.rules.edits import edit
from ddpify.rules.examples import CORRECT, SCRIPT, TRAINER, changed
from ddpify.rules.shared.placing import VISIBLE
from ddpify.rules.shared.visible import choices
from ddpify.settings import Settings

# Known from torchrun's environment: the assignment mostly runs before there is a group.
ALONE = "get_world_size() == 1"


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per assignment to ``CUDA_VISIBLE_DEVICES``."""
    sites = {
        bind.where.statement: None
        for bind in facts.binds
        if bind.target == f"os.environ['{VISIBLE}']" and not _is_guarded(facts, bind)
    }
    for site in sites:
        yield Finding(
            "DDP104",
            site,
            "every rank would hide all GPUs but these; the launcher chooses them",
            Severity.ERROR,
            (edit(facts, How.GATE, site, ALONE),),
        )


def _is_guarded(facts: Facts, bind: Bind) -> bool:
    tests = [facts.text(guard.site) for guard in bind.where.guards]
    return any(ALONE in test or "RANK" in test for test in tests)


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per choice of the visible GPUs that is the same on all ranks."""
    if run.session is None and not run.frameworks:
        return
    for store, numbers in choices(run):
        meant = run.session is None and "," not in numbers  # for one process, as far as is seen
        yield Finding(
            "DDP104",
            store.site,
            "every rank hides all GPUs but these, which the launcher has dealt out already",
            Severity.NOTE if meant else Severity.WARNING,
            advice="set CUDA_VISIBLE_DEVICES for torchrun, on its command line",
        )


RULE = Rule(
    "DDP104",
    "visible-devices-in-code",
    "CUDA_VISIBLE_DEVICES set inside the program renumbers the GPUs of each rank: with one id in it"
    " all ranks share that GPU. torchrun's command line is the place for it.",
    "pytorch#9158, #80876; BUGS L03",
    check,
    bad=(
        changed(
            SCRIPT,
            ("import torch\nimport", "import os\n\nimport torch\nimport"),
            (
                "setup_distributed()\ndev",
                'os.environ["CUDA_VISIBLE_DEVICES"] = "2"  # DDP104\nsetup_distributed()\ndev',
            ),
        ),
        changed(
            TRAINER,
            (
                "        self.pupil.to(",
                '        os.environ["CUDA_VISIBLE_DEVICES"] = "0"  # DDP104\n'
                "        self.pupil.to(",
            ),
        ),
    ),
    good=(
        *CORRECT,
        changed(
            SCRIPT,
            ("import torch\nimport", "import os\n\nimport torch\nimport"),
            (
                "setup_distributed()\ndev",
                'os.environ["OMP_NUM_THREADS"] = "4"\nsetup_distributed()\ndev',
            ),
        ),
    ),
    lint=lint,
    words=("CUDA_VISIBLE",),
)
