"""Launchers: the scripts that start a migrated entry, and how they start it with torchrun.

The shell parser is loaded when a script is read, not when this package is imported.
"""

from __future__ import annotations

from collections.abc import Collection

from ddpify.launchers.discover import discover
from ddpify.launchers.edits import launch_edits
from ddpify.launchers.model import Launch
from ddpify.launchers.shell import read_shell
from ddpify.rules.base import Finding, Severity

__all__ = ["Launch", "discover", "findings", "launch_edits", "read_shell"]

_ADVICE = (
    "Start it by hand with `torchrun --standalone --nproc_per_node=<processes>` "
    "in place of `python`."
)


def findings(
    path: str,
    text: str,
    entries: Collection[str],
    rule_id: str = "DDP002",
    files: Collection[str] = (),
) -> tuple[Finding, ...]:
    """What a script has to change to start ``entries`` with torchrun; see ``read_shell``."""
    launches = read_shell(path, text, entries, files)
    return tuple(_finding(launch, rule_id) for launch in launches if not launch.already_torchrun)


def _finding(launch: Launch, rule_id: str) -> Finding:
    fix = launch_edits(launch)
    message = f"starts {launch.entry} as one process; torchrun starts one process per GPU"
    if launch.unsupported:
        message = f"starts {launch.entry} without torchrun, and {launch.unsupported}"
    advice = "" if fix else _ADVICE
    return Finding(rule_id, launch.site, message, Severity.WARNING, fix, advice)
