"""DDP501: every rank prints."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.facts.effects import EffectKind
from ddpify.facts.model import Facts
from ddpify.ranks.model import ALL
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.effects.effects import gated
from ddpify.rules.examples import (
    BY_HAND,
    CORRECT,
    PROJECT,
    SCRIPT,
    SINGLE,
    TRAINER,
    changed,
    marked,
)
from ddpify.rules.shared.outputs import by_all
from ddpify.rules.shared.rank_zero import in_hook, of_trainer, on_rank_zero
from ddpify.settings import Settings

# What prints, besides `print`, in a migrated program.
_PRINTS = (*(f"tqdm.{way}tqdm.write" for way in ("", "auto.", "std.")), "sys.stdout.write")


BAR = "        bar = tqdm(fitting)\n        for signal, label in bar:\n"


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per console statement that all ranks run."""
    message = "every rank would print this line"
    yield from gated(facts, "DDP501", (EffectKind.CONSOLE,), message, Severity.WARNING)


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per line that every rank prints in a training loop.

    A migrated program prints each line once, wherever it stands; so does one with Lightning's
    Trainer that is migrated.
    """
    if run.quiet or any(s.key == "stdout" and s.ranks != ALL for s in run.stores):
        return
    for call in run.named("builtins.print", *(_PRINTS if run.helpers else ())):
        inside = any(loop.trains or loop.node in run.training_loops for loop in call.loops)
        hooks = of_trainer(run) and (run.assumed or in_hook(call))
        if not (inside or run.helpers or hooks) or call.module.ours or not by_all(run, call):
            continue
        says_rank = any(value.by_rank for value in call.given)
        some = any(guard.test.local and not guard.test.known for guard in call.guards)
        some = some and not (hooks and run.assumed)
        if not (says_rank or some or "file" in call.kwargs):
            yield Finding(
                "DDP501",
                call.site,
                "every rank prints this line",
                Severity.WARNING if run.helpers else Severity.NOTE,
                on_rank_zero(run, call),
                advice="print on the rank with number 0 only, or say the rank",
            )


_OVERRIDES = """class Loud(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 4)
        print("made")  # DDP501

    def train(self, mode=True):
        print("mode", mode)  # DDP501
        return super().train(mode)

    def forward(self, signal):
        print("rows")  # DDP501
        return self.layer(signal)


"""

RULE = Rule(
    "DDP501",
    "console-on-every-rank",
    "N processes share one terminal: each line appears N times, interleaved, and numbers of"
    " different ranks cannot be told apart.",
    "timm#1309; BUGS M07",
    check,
    bad=(
        changed(
            SCRIPT,
            (
                "    if is_main_process():\n        print(n, running / len(feed))\n",
                "    print(n, running / len(feed))  # DDP501\n",
            ),
        ),
        changed(
            BY_HAND,
            ('print("epoch", epoch, "done")', "pass"),
            (
                "        train(model, loader, optimizer, gpu)\n",
                '        train(model, loader, optimizer, gpu)\n        print("done")  # DDP501\n',
            ),
        ),
        changed(
            TRAINER,
            (
                "gap / count, number)\n",
                'gap / count, number)\n        tqdm.write(f"lesson {number}")  # DDP501\n',
            ),
        ),
        marked(SINGLE, "DDP501", "accuracy(net, holdout))"),
        marked(  # a line above a progress bar
            changed(
                SINGLE,
                ("import nn\n", "import nn\nfrom tqdm import tqdm\n"),
                ("        for signal, label in fitting:\n", BAR),
                (
                    "            adam.step()\n",
                    '            adam.step()\n        bar.write("on")  # DDP501\n',
                ),
            ),
            "DDP501",
            "accuracy(net, holdout))",
        ),
        changed(  # the wrapper's `train` calls that of the module in it
            PROJECT,
            (
                "    def forward(self, picture):\n",
                "    def train(self, mode=True):\n"
                "        print(mode)  # DDP501\n"
                "        return super().train(mode)\n\n"
                "    def forward(self, picture):\n",
            ),
        ),
        changed(  # methods that torch calls
            SINGLE,
            ("def accuracy", f"{_OVERRIDES}def accuracy"),
            ("nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))", "Loud()"),
            ("accuracy(net, holdout))", "accuracy(net, holdout))  # DDP501"),
        ),
    ),
    good=(
        *CORRECT,
        changed(
            BY_HAND,
            ("if dist.get_rank() == 0:", "if gpu == 0:"),
        ),
        changed(
            SCRIPT,
            (
                "    if is_main_process():\n        print(n",
                "    if not is_main_process():\n        continue\n    else:\n        print(n",
            ),
        ),
    ),
    lint=lint,
    words=("print(", "tqdm.write(", "stdout.write("),
    severity=Severity.NOTE,
)
