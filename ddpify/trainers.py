"""Programs whose training loop is in Lightning's Trainer, which starts the processes itself.

They are judged as ``check`` judges them, as if the Trainer had several devices, and its fixes are
the migration; nothing else is changed: neither how they are started nor what one device does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from ddpify.facts.model import Facts, Status
from ddpify.lint import Linted, lint_scripts
from ddpify.outcome import Note, Refusal
from ddpify.settings import Settings
from ddpify.source import Site, Span
from ddpify.strategies import of

_TRAINER: Final = "Lightning"  # as it is called in the facts' evidence
_DEVICES: Final = (
    'Lightning starts the processes: give this Trainer `devices` and `strategy="ddp"`, then start'
    " the script as before"
)
_SHARDS: Final = (
    "Lightning starts the processes: start the script as before. One device trains unsharded, and"
    " checkpoints are those of one device"
)
_BATCH: Final = (
    "each of N processes takes batches of the batch_size that is written, so a step sees N times as"
    " many samples: divide it by N to train as on one device, or choose a learning rate for it"
)
_SAMPLER: Final = (
    "Lightning's sampler shuffles what is trained on, without shuffle=True as well, and repeats"
    " samples where their number is no multiple of N, in validation and test too"
)


def is_trainers(facts: Facts) -> bool:
    """Whether Lightning's Trainer, and nothing else, makes a program a distributed one."""
    names = {name for _, name in facts.evidence}
    return facts.status is Status.DISTRIBUTED and names == {_TRAINER}


def judged(root: Path, entries: Sequence[str], settings: Settings) -> Linted:
    """What ``check`` finds in these scripts once their Trainers have several devices."""
    files = [root / entry for entry in entries]
    return lint_scripts(root.resolve(), files, {}, settings.wants, assume_distributed=True)


def told(facts: Facts, settings: Settings) -> tuple[Note, ...]:
    """What a person has to do, and to know, of each Trainer."""
    sites = dict.fromkeys(site for site, _ in facts.evidence)
    devices = (_SHARDS,) if of(settings).shards else (_DEVICES,)
    return tuple(Note(site, text) for site in sites for text in (*devices, _BATCH, _SAMPLER))


def unread(linted: Linted) -> Iterator[Refusal]:
    """Why nothing is said of programs that are too large to be read."""
    for path in linted.unread:
        site = Site(path, Span(1, 0, 1, 0))
        yield Refusal(f"{site}: what starts here is too large to be read to its end", site)
