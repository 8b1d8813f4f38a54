"""Read the entries whole: their facts, or why they cannot be migrated."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from ddpify import discover, vendor
from ddpify.facts.configured import unfollowed
from ddpify.facts.frameworks import checked_by, hogwild, instead, loop_elsewhere, never_called
from ddpify.facts.link import TooLarge, analyze
from ddpify.facts.model import Facts, Status
from ddpify.names import INSTALLED, OF_MODELS, OF_REPLICAS
from ddpify.outcome import Refusal
from ddpify.project import Files, Project
from ddpify.settings import Settings
from ddpify.steps import StepListener, untold
from ddpify.strategies import of

_OPEN: Final = "torch.distributed.init_process_group"
# What wraps a model by hand, and what to do where it is to be sharded.
_NOT_SHARDED: Final = {
    "DistributedDataParallel": "DistributedDataParallel is not taken to fully_shard where something"
    " else wraps models, too; start from the script for one process, or keep one wrapper",
    "fully_shard": "the model is sharded by fully_shard; `ddpify check` finds its bugs",
}


@dataclass(frozen=True)
class ReadEntry:
    """One entry, read whole."""

    project: Project
    facts: Facts


def read_all(
    found: discover.Entries,
    settings: Settings,
    whole_batches: bool = False,
    shard_evaluation: bool = True,
    step: StepListener = untold,
) -> tuple[list[ReadEntry], list[Refusal]]:
    """The entries that can be read, and why others cannot."""
    shard_evaluation &= settings.wants("DDP205")
    reads, refusals, files = [], [], Files(step)
    for entry in found.scripts:
        project = Project(found.root, entry.resolve(), files=files)
        try:
            facts = _analyzed(project, settings, whole_batches, shard_evaluation)
        except TooLarge as error:
            refusals.append(Refusal(str(error)))
            continue
        refusals += [Refusal(message) for message in project.unreadable.values()]
        if facts is None:
            if not project.unreadable:
                refusals.append(Refusal(f"{project.relative(entry)}: is empty"))
        else:
            reads.append(
                ReadEntry(project, replace(facts, runtime=vendor.place(project, settings)))
            )
    return reads, refusals


def _analyzed(
    project: Project, settings: Settings, whole_batches: bool, evaluation: bool
) -> Facts | None:
    """The facts of an entry, which may have been migrated so that ranks are given whole batches."""
    axis, shards = settings.batch_dim, of(settings).shards
    facts = analyze(project, evaluation, axis, whole_batches, shards)
    if facts is not None and not whole_batches and facts.named(f"{INSTALLED}.{OF_MODELS}"):
        return analyze(project, evaluation, axis, whole_batches=True)
    return facts


def why_not(read: ReadEntry, settings: Settings) -> list[Refusal]:
    """The reasons not to migrate this entry; none when it can be."""
    replicas = read.facts.named(f"{INSTALLED}.{OF_REPLICAS}") if of(settings).shards else ()
    if replicas:
        why = "is migrated to DDP already: take the script as it was before, then run again"
        return [Refusal(f"{replicas[0].site}: {why}", replicas[0].site)]
    opened = read.facts.named(_OPEN) if read.facts.status is Status.MIGRATED else ()
    if opened:  # a program that was distributed by hand, and is converted
        why = f"already distributed ({_OPEN}); `ddpify check` finds its bugs"
        return [Refusal(f"{opened[0].site}: {why}", opened[0].site)]
    if is_converted(read.facts, settings):
        return []
    return _sharded_by_hand(read.facts) if of(settings).shards else _unfit(read.facts)


def _sharded_by_hand(facts: Facts) -> list[Refusal]:
    """Why a program that is distributed by hand is not sharded, where one line of it says that."""
    for call in facts.calls if facts.status is Status.DISTRIBUTED else ():
        why = _NOT_SHARDED.get(call.name.rpartition(".")[2])
        if why is not None:
            return [Refusal(f"{call.site}: already distributed: {why}", call.site)]
    idle = _idle(facts) if facts.status is Status.DISTRIBUTED else ""
    return [Refusal(idle)] if idle else _unfit(facts)


def _idle(facts: Facts) -> str:
    """Why the functions of an entry never run, as far as can be read."""
    entry = facts.trees.get(facts.entry.path)
    return never_called(entry, facts.trees.values()) if entry is not None else ""


def is_converted(facts: Facts, settings: Settings) -> bool:
    """Whether a program that is distributed already is taken to another way of being so."""
    by_hand = not any(instead(name) for _, name in facts.evidence)
    wrapped = any(call.name.endswith(".FullyShardedDataParallel") for call in facts.calls)
    wrapped |= bool(facts.replicas)
    shards = of(settings).shards and facts.status is Status.DISTRIBUTED
    return shards and by_hand and wrapped


def _unfit(facts: Facts) -> list[Refusal]:
    path = facts.entry.path
    if facts.status is Status.DISTRIBUTED:
        site, name = facts.evidence[0]
        how = f": {instead(name)}" if instead(name) else ""
        why = f"already distributed ({name}){how}; `{checked_by(name)}` finds its bugs"
        if site.path != path and not any(site.within(call.site) for call in facts.calls):
            why = f"already distributed: {path} imports this file, though it never comes by {name}"
            why += "; start the script that does, which `ddpify check` finds the bugs of"
        return [Refusal(f"{site}: {why}", site)]
    if facts.unsplit is not None:
        site, why = facts.unsplit
        return [Refusal(f"{site}: {why}", site)]
    if not facts.training:
        trees = facts.trees.values()
        why = f"{path}: no training loop found (nothing in a loop calls backward())"
        elsewhere = loop_elsewhere(trees)
        elsewhere = (elsewhere and unfollowed(facts)) or elsewhere
        return [Refusal(hogwild(trees) or elsewhere or _idle(facts) or why)]
    if not facts.steps:
        site = facts.training[0].backward.site
        why = "no optimizer that can be followed steps after this backward()"
        return [Refusal(f"{site}: {why}", site)]
    for loop in facts.training:
        site = loop.batch.site
        if unbound := facts.unbound(loop.batch.header):
            why = f"nothing binds `{unbound}`: the program stops here with a NameError"
            return [Refusal(f"{site}: {why}", site)]
        if not loop.loaders and site in dict(facts.undivided):
            why = "the training loop's batches do not come from a DataLoader that can be followed"
            why += f", and to divide each of them: {dict(facts.undivided)[site]}"
            return [Refusal(f"{site}: {why}; shard them by hand", site)]
    if not facts.models:
        site = facts.steps[0].site
        return [Refusal(f"{site}: the model whose parameters are stepped cannot be followed", site)]
    return []
