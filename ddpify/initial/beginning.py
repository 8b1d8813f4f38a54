"""The files that `ddpify init` writes, from what was detected or chosen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ddpify.clusters.files import change_of, start_files
from ddpify.clusters.model import StartFile
from ddpify.initial import table
from ddpify.initial.hooks import hook
from ddpify.outcome import Note, Refusal
from ddpify.plan import Change
from ddpify.settings import LauncherName, Settings

_DISTRIBUTED = (b"init_process_group(", b"distributed_session(", b"setup_distributed(")


class CannotBegin(Exception):
    """Nothing is written; the message is one sentence for the user."""


@dataclass(frozen=True)
class Chosen:
    """What the user wants; ``launcher`` "" is this machine alone."""

    root: Path
    entries: tuple[str, ...]
    launcher: LauncherName = ""
    nodes: int = 1
    gpus: int | None = None
    pre_commit: bool = True

    @property
    def table(self) -> Mapping[str, object]:
        """The keys of ``[tool.ddpify]``."""
        keys: dict[str, object] = {"strategy": "ddp", "batch-size": "global"}
        if self.launcher:
            keys |= {"launcher": self.launcher, "nodes": self.nodes}
            keys |= {"gpus-per-node": self.gpus} if self.gpus else {}
        return keys


@dataclass(frozen=True)
class Beginning:
    """What is to be written, what is to be said, and the next command's words."""

    changes: tuple[Change, ...]
    told: tuple[str, ...]
    following: tuple[str, ...]


def beginning(chosen: Chosen) -> Beginning:
    """All that `ddpify init` does. Raises CannotBegin."""
    try:
        before, after = table.with_table(chosen.root, chosen.table)
    except table.TableThere as error:
        raise CannotBegin(str(error)) from error
    changes = [Change(table.NAME, before, after, ())]
    told: list[str] = []
    for file in _start_files(chosen):
        found = change_of(chosen.root, file)
        if isinstance(found, Refusal):
            raise CannotBegin(found.message)
        if isinstance(found, Note):
            told.append(f"{found.site.path}: {found.message}")
        elif found is not None:
            changes.append(found)
            told.append(f"{file.command} starts it, once it is migrated")
    if chosen.pre_commit:
        hooked = hook(chosen.root)
        changes += [hooked] if isinstance(hooked, Change) else []
        told += [hooked] if isinstance(hooked, str) and hooked else []
    return Beginning(tuple(changes), tuple(told), _following(chosen))


def _start_files(chosen: Chosen) -> tuple[StartFile, ...]:
    if not chosen.launcher:
        return ()
    settings = Settings(launcher=chosen.launcher, nodes=chosen.nodes, gpus_per_node=chosen.gpus)
    return start_files(chosen.root, chosen.entries, settings)


def _following(chosen: Chosen) -> tuple[str, ...]:
    """`diff` for a program of one process, `check` for one that is distributed."""
    texts = [(chosen.root / entry).read_bytes() for entry in chosen.entries]
    if all(any(word in text for word in _DISTRIBUTED) for text in texts):
        return ("check",)
    return ("diff", *chosen.entries)
