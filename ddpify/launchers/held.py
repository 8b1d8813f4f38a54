"""Launch commands that are text: in a variable, in `eval "…"`, in a heredoc for another shell.

They are named, not rewritten: which quotes such text goes through before it runs is not
written where the text stands.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpify.launchers.entries import LaunchEntries
from ddpify.launchers.model import Launch
from ddpify.launchers.script import Script, ancestors, nodes

if TYPE_CHECKING:
    from tree_sitter import Node

_HOLDERS = frozenset(("string", "raw_string", "heredoc_body", "array"))
_RUNNERS = re.compile(
    r"eval|exec|trap|bash|sh|zsh|dash|ssh|su|sudo|env|nohup|timeout|watch|xargs|parallel|tmux"
    r"|screen|sbatch|srun|qsub|bsub|docker|podman|singularity|apptainer|kubectl|conda"
)
_DISTRIBUTED = re.compile(r"torchrun|torch\.distributed|accelerate\s+launch|deepspeed")


def held_launches(script: Script, entries: LaunchEntries) -> Iterator[Launch]:
    """Launches inside text that the script runs later or hands to another shell."""
    patterns = {entry: _pattern(entry) for entry in entries.migrated}
    inside = -1
    for node in nodes(script.root):
        if node.type not in _HOLDERS or node.start_byte < inside:
            continue
        text = script.slice(node.start_byte, node.end_byte)
        entry = next((e for e, pattern in patterns.items() if pattern.search(text)), None)
        where = _run_by(script, node)
        if entry is None or not where or _DISTRIBUTED.search(text):
            continue
        inside = node.end_byte
        site = script.site(node.start_byte, node.end_byte)
        yield Launch(site, entry, unsupported=f"the command is text {where}")


def held_in(text: str, entries: LaunchEntries) -> str | None:
    """The entry that a command in ``text``, a makefile's, starts without torchrun."""
    text = re.sub(r"\$\((\w+)\)", r"${\1}", text)
    if _DISTRIBUTED.search(text):
        return None
    return next((e for e in entries.migrated if _pattern(e).search(text)), None)


def _pattern(entry: str) -> re.Pattern[str]:
    name = re.escape(posixpath.basename(entry))
    module = re.escape(entry.removesuffix(".py").replace("/", "."))
    python = r"(?:python[\d.]*|\$\{?\w*py\w*\}?)[\"']?\s+(?:-\w+\s+)*"
    return re.compile(rf"{python}(?:[^\s;|&]*(?<![\w.-]){name}|-m\s+{module})(?![\w.])", re.I)


def _run_by(script: Script, node: Node) -> str:
    """Where the text goes, as a phrase; "" where it is only shown."""
    for parent in ancestors(node):
        if parent.type == "variable_assignment":
            name = parent.child_by_field_name("name")
            return "" if name is None else f"in ${script.slice(name.start_byte, name.end_byte)}"
        if parent.type == "command" or parent.type == "redirected_statement":
            command = parent if parent.type == "command" else parent.children[0]
            return _destination(script, command, node)
    return ""


def _destination(script: Script, command: Node, text: Node) -> str:
    words = script.command(command).words if command.type == "command" else ()
    name = posixpath.basename(words[0].literal or "") if words else ""
    if _RUNNERS.fullmatch(name):
        return f"for {name}"
    around = command.parent
    to_file = around is not None and any(c.type == "file_redirect" for c in around.children)
    return "written to a file" if text.type == "heredoc_body" and to_file else ""
