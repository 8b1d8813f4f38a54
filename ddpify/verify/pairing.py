"""Which two programs are compared: scratch copies of the original and the distributed one."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ddpify import pipeline, write
from ddpify.advice.undivided import undivided
from ddpify.facts.model import Facts, Status
from ddpify.journal.earlier import put_back
from ddpify.names import HEADER_PREFIX, OF_MODELS
from ddpify.outcome import Outcome
from ddpify.project import project_root
from ddpify.settings import Settings
from ddpify.verify.baseline import export
from ddpify.verify.options import Options
from ddpify.verify.scratch import copy_project
from ddpify.verify.snapshot import ScratchError

DISTRIBUTED = (Status.MIGRATED, Status.DISTRIBUTED)
_AS_IT_STANDS = "--distributed-only compares it as it stands, on several devices and on one"


class CannotCompare(Exception):
    """There are no two programs to compare; the message is for the user, a line each reason."""


@dataclass(frozen=True)
class Pair:
    """Both copies' root folders; ``migration`` if ddpify made the distributed one just now."""

    original: Path
    distributed: Path
    baseline: str
    migration: Outcome | None = None

    @property
    def of_whole_batches(self) -> bool:
        """Whether models divide the batches there, which every rank makes whole and alike."""
        files = (path for path in self.distributed.rglob("*.py") if path.is_file())
        texts = (path.read_text("utf-8", errors="replace") for path in files)
        own = (text for text in texts if not text.startswith(HEADER_PREFIX))
        return any(f"{OF_MODELS}(" in text for text in own)


def pair(options: Options, settings: Settings, workspace: Path) -> Pair:
    """Copy the project into ``workspace`` twice, one of them as the original.

    Raises:
        CannotCompare: the script cannot be migrated, or its original has to be named.
        ScratchError: a copy cannot be made.
    """
    # no start files: all runs on this machine
    settings = replace(settings, launcher="", nodes=None, gpus_per_node=None)
    root = project_root(options.script)
    script = options.script.resolve().relative_to(root)
    distributed = copy_project(root, workspace / "distributed")
    status = _status(distributed / script, settings)
    migration = None
    alone = options.distributed_only and pipeline.is_elsewhere(distributed / script, settings)
    if status not in DISTRIBUTED and not alone:
        if options.distributed_only:
            raise CannotCompare(
                f"{options.script}: trains in one process; leave out --distributed-only and "
                "a migrated copy is compared with it"
            )
        migration = _migrate(distributed / script, settings, options)
    if options.distributed_only:
        copy = copy_project(root, workspace / "original")
        return Pair(copy, distributed, "itself on 1 rank")
    if options.baseline:
        original, named = export(root, options.baseline, workspace / "original")
        if not (original / script).is_file():
            raise CannotCompare(f"{named}: has no {script}")
        return Pair(original, distributed, named, migration)
    if migration is not None:
        copy = copy_project(root, workspace / "original")
        return Pair(copy, distributed, "the working tree", migration)
    found, facts = pipeline.examine((distributed / script,), settings)
    _refuse_batch(found, facts, options)
    if found.starts_itself:
        return _trainers(options, settings, distributed, found, workspace)
    return _committed(options, settings, root, distributed, workspace / "original")


def _trainers(
    options: Options, settings: Settings, distributed: Path, found: Outcome, workspace: Path
) -> Pair:
    """Of a program in Lightning's Trainer, which one device and several can run as it stands.

    Where there is nothing to migrate, and was nothing in the last commit, it is its own original.
    """
    if found.refusals:
        said = "\n".join(refusal.message for refusal in found.refusals)
        raise CannotCompare(f"{said}\n{options.script}: {_AS_IT_STANDS}")
    root = project_root(options.script)
    script = options.script.resolve().relative_to(root)
    if found.changes:
        write.apply(found.changes, found.root)
        copy = copy_project(root, workspace / "original")
        return Pair(copy, distributed, "the working tree", found)
    with suppress(ScratchError):  # no git
        original, named = export(root, "HEAD", workspace / "committed")
        if (original / script).is_file() and _wanting(original / script, settings):
            return Pair(original, distributed, named)
    copy = copy_project(root, workspace / "original")
    return Pair(copy, distributed, "the working tree on one device")


def _wanting(script: Path, settings: Settings) -> bool:
    found = pipeline.migrate((script,), settings)
    return bool(found.changes or found.refusals)


def _committed(
    options: Options, settings: Settings, root: Path, distributed: Path, into: Path
) -> Pair:
    """Migrated in the working tree, and not committed yet: the last commit is the original.

    Where that has none, what ``ddpify undo`` would bring back.
    """
    ways = "name the original with --baseline, or compare it with itself by --distributed-only"
    script = options.script.resolve().relative_to(root)
    try:
        original, named = export(root, "HEAD", into)
        if (original / script).is_file() and _status(
            original / script, settings
        ) not in DISTRIBUTED:
            return Pair(original, distributed, named)
        why = f"in {named} too; {ways}"
    except ScratchError as error:
        why = f"{ways} ({error})"
    before = copy_project(root, into.with_name("before"))
    command = put_back(root, before)
    if command and _status(before / script, settings) not in DISTRIBUTED:
        return Pair(before, distributed, f"what was there before `{command}`")
    raise CannotCompare(f"{options.script}: is distributed already, {why}")


def _status(script: Path, settings: Settings) -> Status:
    found = pipeline.status(script, settings)
    if not isinstance(found, Status):
        raise CannotCompare("\n".join(refusal.message for refusal in found))
    return found


def _migrate(script: Path, settings: Settings, options: Options) -> Outcome:
    outcome, facts = pipeline.examine((script,), settings)
    if outcome.refusals:
        raise CannotCompare("\n".join(refusal.message for refusal in outcome.refusals))
    _refuse_batch(outcome, facts, options)
    write.apply(outcome.changes, outcome.root)
    return outcome


def _refuse_batch(outcome: Outcome, facts: Sequence[Facts], options: Options) -> None:
    """Before anything runs: the ranks would come to the same sentence, half a minute later."""
    for one in facts:
        for sentence in undivided(outcome, one, options.arguments, options.nproc):
            raise CannotCompare(f"{options.script}: {sentence}")
