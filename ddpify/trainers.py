"""Programs whose training loop is in Lightning's Trainer, which starts the processes itself.

They are judged as ``check`` judges them, as if the Trainer had several devices, and its fixes are
the migration; ``lightning`` changes what is set outside of hooks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from ddpify.advice.rates import rate_of_module
from ddpify.facts.model import Facts
from ddpify.lightning.configured import configured
from ddpify.lint import Linted, lint_scripts
from ddpify.names import INSTALLED, module_of
from ddpify.outcome import Note, Refusal
from ddpify.rules.base import Finding, Import
from ddpify.settings import Settings
from ddpify.source import Site, Span
from ddpify.strategies import of

_BATCHES: Final = "DDP965"  # found at each loader that is trained on
_SHARDS: Final = (
    "Lightning starts the processes: start the script as before. One device trains unsharded, and"
    " checkpoints are those of one device; one whose optimizer has several groups must not be gone"
    " on with in shards. Evaluations are dealt by Lightning, which repeats samples"
)
_SAMPLER: Final = (
    "Lightning's sampler shuffles what is trained on, without shuffle=True as well, and repeats"
    " samples where their number is no multiple of N, in training too"
)
_ORDER: Final = (
    "N processes divide the batches of one, which rank 0 draws; Lightning seeds anew before that,"
    " so a loader with shuffle=True has another order than on one device"
)
_ALONE: Final = (
    "with this strategy Lightning's sampler shuffles on one device, too: there, a loader that is"
    " made before fit has another order than before the migration; make it in train_dataloader"
)
_NOISE: Final = (
    "seed_everything seeds all processes alike: dropout and random transforms draw on each process"
    " what they draw on the others (DDP111)"
)
_PREDICT: Final = (
    "`predict` gives each process a part of the samples: let it have `--trainer.devices=1`"
)
_FOLDER: Final = (
    "processes that Lightning starts share hydra's folder; started by torchrun or srun each names"
    " one by its own clock: give them hydra.run.dir=FOLDER"
)
_BLIND: Final = (
    "what is trained here is not followed: a class that the project has, and that the script or its"
    " configuration files name, has to be"
)
_IDLE: Final = "a Trainer is made, but no call of its `fit` can be followed from here"


def asked_for(settings: Settings) -> Settings:
    """The settings without the rules whose fixes are not wanted."""
    off = [_BATCHES, "DDP978"] * (settings.batch_size == "per-rank")
    off += ["DDP966"] * of(settings).shards  # each forward waits for all ranks
    return replace(settings, ignore=(*settings.ignore, *off))


def judged(root: Path, entries: Sequence[str], settings: Settings, core: str) -> Linted:
    """What ``check`` finds in these scripts once their Trainers have several devices.

    ``core``: the module that fixes import helpers from.
    """
    files = [root / entry for entry in entries]
    linted = lint_scripts(root.resolve(), files, {}, settings.wants, assume_distributed=True)
    return replace(linted, findings=tuple(_importing(one, core) for one in linted.findings))


def _importing(found: Finding, core: str) -> Finding:
    fix = tuple(
        replace(edit, imports=tuple(_own(one, core) for one in edit.imports)) for edit in found.fix
    )
    return replace(found, fix=fix)


def _own(wanted: Import, core: str) -> Import:
    ours = wanted.module == INSTALLED
    return Import(module_of(core, wanted.name), wanted.name) if ours else wanted


def left_to_lightning(found: Sequence[Finding], settings: Settings) -> list[Finding]:
    """The findings, of which none puts together what an evaluation of shards keeps.

    Lightning deals that, and repeats samples: what is kept has them twice, in another order.
    """
    if not of(settings).shards:
        return list(found)
    return [replace(one, fix=()) if one.rule == "DDP968" else one for one in found]


def told(facts: Facts, found: Sequence[Finding], settings: Settings) -> tuple[Note, ...]:
    """What a person has to do, and to know, of each Trainer; ``found``: what ``check`` finds."""
    whole = settings.batch_size == "global"
    loaders = (one.site for one in found if one.rule == _BATCHES)
    shards = (_SHARDS,) if of(settings).shards else ()
    made = configured(facts)
    # LightningCLI seeds unless it is told not to
    seeded = any(call.name.endswith("seed_everything") for call in facts.calls)
    noise = (_NOISE,) if seeded or any(one.commandline for one in made) else ()
    order = _ORDER if whole else _SAMPLER
    texts = (*shards, rate_of_module(facts, loaders, whole), order, *noise)
    notes = [Note(site, text) for site in facts.trainers for text in texts]
    alone = [site for site in facts.trainers if _has_strategy(facts, site)]
    notes += [Note(site, _ALONE) for site in alone if whole]
    for one in made:
        predicts = any("def predict_" in tree.source.text for tree in facts.trees.values())
        if predicts or not one.commandline:
            site = one.tree.site(one.call)
            notes.append(Note(site, _PREDICT if one.commandline else _FOLDER))
    return tuple(notes)


def _has_strategy(facts: Facts, site: Site) -> bool:
    """Whether a Trainer is given a strategy, which may be one of several processes."""
    call = facts.tree(site).expression(site)
    given = [one.value for one in getattr(call, "keywords", ()) if one.arg == "strategy"]
    return any(getattr(one, "value", None) not in ("auto", "single_device") for one in given)


def unread(linted: Linted) -> Iterator[Refusal]:
    """Why nothing is said of programs that are too large to be read, or not followed."""
    for site in linted.blind:
        yield Refusal(f"{site}: {_BLIND}", site)
    for path in linted.idle:
        site = Site(path, Span(1, 0, 1, 0))
        yield Refusal(f"{site}: {_IDLE}", site)
    for path in linted.unread:
        site = Site(path, Span(1, 0, 1, 0))
        yield Refusal(f"{site}: what starts here is too large to be read to its end", site)
