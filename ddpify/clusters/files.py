"""The start files that the settings ask for, as changes; what is there and is not ours stays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from ddpify import discover
from ddpify.clusters import kubernetes, slurm, torchrun, torchx
from ddpify.clusters.model import ClusterJob, StartFile, stems
from ddpify.clusters.sealing import is_untouched, program_of, sealed
from ddpify.clusters.taken import taken
from ddpify.outcome import Note, Outcome, Refusal
from ddpify.plan import Change, PlannedEdit
from ddpify.rules.base import Edit, Finding, How, Severity
from ddpify.settings import Settings
from ddpify.source import Site, Span

RULE = "DDP002"
NODES = 2
_KINDS: Mapping[str, ModuleType] = {
    "torchrun": torchrun,
    "slurm": slurm,
    "torchx": torchx,
    "kubernetes": kubernetes,
}
_TOP = Span(1, 0, 1, 0)


def start_files(root: Path, entries: Sequence[str], settings: Settings) -> tuple[StartFile, ...]:
    """A start file for each entry, of the kind that is asked for; none where none is."""
    kind = _KINDS.get(settings.launcher)
    if kind is None:
        return ()
    python = tuple(p.relative_to(root).as_posix() for p in discover.python_files(root))
    found = []
    for entry, stem in zip(entries, stems(entries), strict=True):
        line = taken(root, entry, python)
        job = ClusterJob(entry, stem, settings.nodes or NODES, settings.gpus_per_node, line)
        which = "" if len(entries) == 1 else f"{stem}_"
        path = f"run_{which}{job.size.replace(' ', '_')}{kind.SUFFIX}"
        command = _command(settings.launcher, path)
        found.append(StartFile(path, sealed(kind.text(job, path), entry), command))
    return tuple(found)


def _command(launcher: str, path: str) -> str:
    """How the file is used, from the project's top folder."""
    return {
        "torchrun": f"HEAD=<a node> bash {path}   (on each node)",
        "slurm": f"sbatch {path}",
        "torchx": f"SCHEDULER=<name> bash {path}",
        "kubernetes": f"kubectl apply -f {path}",
    }[launcher]


def with_start_files(outcome: Outcome, settings: Settings) -> Outcome:
    """The outcome, with the start files of its entries as further changes.

    A file of that name which ddpify did not write, or for another program, is a refusal; one that
    was edited since stays.
    """
    if outcome.refusals or not settings.launcher:
        return outcome
    for file in start_files(outcome.root, outcome.entries, settings):
        outcome = replace(outcome, on_nodes=(*outcome.on_nodes, file.command))
        outcome = _with(outcome, file, settings)
        if outcome.refusals:
            return outcome
    if outcome.starts_itself and (settings.nodes or NODES) > 1:
        told = f"Trainer(num_nodes={settings.nodes or NODES}) has to say the number of nodes, too"
        sites = (Site(entry, _TOP) for entry in outcome.entries)
        notes = (*outcome.notes, *(Note(site, told) for site in sites))
        outcome = replace(outcome, notes=notes)
    return outcome


def _with(outcome: Outcome, file: StartFile, settings: Settings) -> Outcome:
    change = change_of(outcome.root, file)
    if isinstance(change, Refusal):
        return replace(outcome, changes=(), on_nodes=(), refusals=(change,))
    if isinstance(change, Note):
        return replace(outcome, notes=(*outcome.notes, change))
    if change is None:
        return outcome
    nodes = settings.nodes or NODES
    message = f"starts on {nodes} node{'s' * (nodes != 1)}: {file.command}"
    edit = Edit(How.NEW_FILE, Site(file.path, _TOP), file.text)
    found = Finding(RULE, edit.site, message, Severity.NOTE, (edit,))
    change = replace(change, edits=(PlannedEdit(edit, RULE, message),))
    return replace(
        outcome,
        findings=(*outcome.findings, found),
        changes=(*outcome.changes, change),
    )


def change_of(root: Path, file: StartFile) -> Change | Note | Refusal | None:
    """What writing the file is: a change, or why it stays as it is; None: it is there already."""
    target = root / file.path
    if not target.exists():
        return Change(file.path, None, file.text.encode(), ())
    before = target.read_bytes()
    text = before.decode("utf-8", "surrogateescape")
    if text == file.text:
        return None
    site = Site(file.path, _TOP)
    program = program_of(text)
    if program is None or program != program_of(file.text):
        said = f"starts {program}" if program else "was not written by ddpify"
        mend = "and is not overwritten; move it, or choose another --launcher or --nodes"
        return Refusal(f"{file.path}: {said} {mend}", site)
    if not is_untouched(text):
        return Note(site, "was edited since ddpify wrote it, and stays; delete it for a new one")
    return Change(file.path, before, file.text.encode(), ())
