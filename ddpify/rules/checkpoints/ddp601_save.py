"""DDP601: every rank writes the checkpoint."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.facts.effects import EffectKind
from ddpify.facts.model import Facts
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, How, Rule, Severity
from ddpify.rules.checkpoints.directories import directories
from ddpify.rules.edits import edit, once
from ddpify.rules.examples import (
    BY_HAND,
    CORRECT,
    LEARNER,
    SCRIPT,
    SINGLE,
    TRAINER,
    changed,
    marked,
)
from ddpify.rules.shared.meetings import at_once, done_before, for_missing, read_behind
from ddpify.rules.shared.outputs import (
    SAME,
    Write,
    by_all,
    checkpoints,
    difference,
    its_own,
    unequal,
)
from ddpify.rules.shared.rank_zero import named_apart, on_rank_zero
from ddpify.rules.shared.stored import Stored
from ddpify.settings import Settings
from ddpify.strategies import of


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per ``torch.save`` that all ranks run."""
    saves = tuple(e.call for e in facts.effects if e.kind is EffectKind.CHECKPOINT)
    strategy = of(settings)
    stored = Stored.of(facts, strategy)
    yield from directories(facts, stored)
    for site, calls in once(saves).items():
        if all(c.where.one_rank() for c in calls):
            continue
        helper = strategy.save if site in stored.saves else "save_on_main"
        yield Finding(
            "DDP601",
            site,
            "every rank would write this checkpoint at the same time",
            Severity.ERROR,
            (edit(facts, How.REPLACE, calls[0].callee, helper),),
        )


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per checkpoint that every rank writes to one path."""
    for write in checkpoints(run):
        if (its_own(run, write) and not named_apart(run, write.path)) or not by_all(
            run, write.call
        ):
            continue
        if at_once(run, write.call) and not done_before(run, write.call):
            damaged = unequal(run, write)
            mild = Severity.NOTE if _is_cache(run, write) else Severity.WARNING
            yield Finding(
                "DDP601",
                write.call.site,
                f"every rank writes this {write.noun}: {_DAMAGE if damaged else SAME}",
                Severity.ERROR if damaged else mild,
                on_rank_zero(run, write.call),
                "save on the rank with number 0 only",
                difference(run, write) if damaged else (),
            )


def _is_cache(run: Run, write: Write) -> bool:
    """Whether it is written where it is missing, and nobody reads it behind that."""
    path = write.path
    read = path is not None and read_behind(run, write.call, path)
    return for_missing(run, write.call) and not read


_DAMAGE = "a damaged file, when two write at once"

RULE = Rule(
    "DDP601",
    "save-on-every-rank",
    "Two processes that write one file leave it damaged (3 of 20 files unreadable when payload"
    " sizes differ). Rank 0 writes to a temporary name and renames; the others wait.",
    "pytorch#12042; BUGS K01, K03",
    check,
    bad=(
        changed(
            SCRIPT,
            (
                'save_on_main(unwrap(net).state_dict(), "net.pt")',
                'torch.save(unwrap(net).state_dict(), "net.pt")  # DDP601',
            ),
        ),
        changed(
            TRAINER,
            (
                'save_on_main(state, f"{self.folder}/pupil.pt")',
                'torch.save(state, f"{self.folder}/pupil.pt")  # DDP601',
            ),
        ),
        changed(
            BY_HAND,
            ("            torch.save(model.module.state", "        torch.save(model.module.state"),
            ('"model.pt")\n', '"model.pt")  # DDP601\n'),
        ),
        marked(SINGLE, "DDP601", '"net.pth")'),
        marked(LEARNER, "DDP601", '"core.pt")'),
        changed(  # a method of the model, of whichever a setting names
            SINGLE,
            (
                "def accuracy",
                "class Kept(nn.Sequential):\n    def save(self):\n"
                '        torch.save(self.state_dict(), "net.pth")  # DDP601\n\n\ndef accuracy',
            ),
            ("net = nn.Sequential(", "net = Kept("),
            ('torch.save(net.state_dict(), "net.pth")', "net.save()"),
        ),
    ),
    good=CORRECT,
    lint=lint,
    words=(".save(", "save_file", "save_model"),
)
