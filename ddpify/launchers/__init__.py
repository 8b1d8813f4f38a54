"""Launchers: the scripts that start a migrated entry, and how they start it with torchrun.

The parsers are loaded when a file is read, not when this package is imported.
"""

from __future__ import annotations

from ddpify.launchers.discover import LauncherKind, discover, kind_of
from ddpify.launchers.edits import launch_edits
from ddpify.launchers.model import Launch
from ddpify.launchers.reading import findings, launches, started
from ddpify.launchers.shell import read_shell
from ddpify.launchers.slurm import nodes_of, tasks_edit, tasks_problem

__all__ = [
    "Launch",
    "LauncherKind",
    "discover",
    "findings",
    "kind_of",
    "launch_edits",
    "launches",
    "nodes_of",
    "read_shell",
    "started",
    "tasks_edit",
    "tasks_problem",
]
