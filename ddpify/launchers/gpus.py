"""How many processes a launch needs: its GPU list, written out or as shell text.

A list on the command itself is counted; one that comes from elsewhere is followed, so
that whoever edits it later does not have to know about the process count.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ddpify.launchers.model import Gpus
from ddpify.launchers.script import Assignment, Command, Script, Word, ancestors, nodes
from ddpify.site import Span

if TYPE_CHECKING:
    from tree_sitter import Node

VARIABLE = "CUDA_VISIBLE_DEVICES"
_UNREPEATABLE = re.compile(r"\$\((?!\()|`|\+\+|--|[-+*/%|&^]=|:=|[<>]\(|['\\]")
_WRAPPED = frozenset(
    ("declaration_command", "variable_assignments", "redirected_statement", "list")
)


def gpus_of(script: Script, command: Command, start: int) -> Gpus:
    """The GPU list in force for ``command``, whose interpreter starts at byte ``start``."""
    own = _own_value(script, command, start)
    if own is not None:
        return _gpus(own)
    if _unset(script):
        return Gpus()
    every = [a for a in script.assignments if a.name == VARIABLE]
    certain = [a for a in every if always_before(script, a, command)]
    if not certain:
        return Gpus()
    if len(every) == 1:
        ids = _ids(certain[0].value)
        if ids is not None:
            return Gpus(ids=ids)
    return Gpus(value=f'"${VARIABLE}"')


def pin_of(script: Script, command: Command) -> Span | None:
    """``CUDA_VISIBLE_DEVICES=0`` before a command, with the blanks behind it; None: not one GPU."""
    for prefix in command.prefixes:
        if prefix.name == VARIABLE and len(_ids(prefix.value) or ()) == 1:
            words = (*(one.start for one in command.prefixes), *(w.start for w in command.words))
            return script.span(prefix.start, min(at for at in words if at > prefix.start))
    return None


def _own_value(script: Script, command: Command, start: int) -> Word | None:
    """The value given on the command line itself (the last one wins)."""
    found = [prefix.value for prefix in command.prefixes if prefix.name == VARIABLE]
    for word in command.words:
        if word.start < start and word.text.startswith(f"{VARIABLE}="):
            found.append(_after_equals(script, word))
    return found[-1] if found else None


def _after_equals(script: Script, word: Word) -> Word:
    skip = len(VARIABLE) + 1
    parts = ((word.parts[0] or "")[skip:], *word.parts[1:])
    text = script.slice(word.start + skip, word.end)
    return Word(word.start + skip, word.end, text, tuple(part for part in parts if part != ""))


def _gpus(value: Word) -> Gpus:
    ids = _ids(value)
    if ids is not None:
        return Gpus(ids=ids)
    # run a second time the value must give the same: `$(pick_gpu)` may not
    if _UNREPEATABLE.search(value.text):
        return Gpus()
    return Gpus(value='"' + value.text.replace('"', "") + '"')


def _ids(value: Word) -> tuple[str, ...] | None:
    if value.literal is None:
        return None
    ids: list[str] = []
    for piece in value.literal.split(","):
        piece = piece.strip()
        if piece.startswith("-"):  # CUDA stops at the first number that is not a device
            break
        if piece:
            ids.append(piece)
    return tuple(ids)


def _unset(script: Script) -> bool:
    return any(
        VARIABLE in script.slice(node.start_byte, node.end_byte)
        for node in nodes(script.root)
        if node.type == "unset_command"
    )


def always_before(script: Script, assignment: Assignment, command: Command) -> bool:
    """Whether ``assignment`` has been made whenever ``command`` runs."""
    if assignment.start > command.node.start_byte:
        return False
    node, around, sure = assignment.node, tuple(ancestors(command.node)), True
    for parent in ancestors(assignment.node):
        if parent.type not in _WRAPPED:
            return sure and parent in around and not _in_other_branch(parent, around)
        if parent.type == "list" and node.start_byte != parent.start_byte:
            between = script.slice(parent.start_byte, command.node.start_byte)
            sure = sure and parent in around and "||" not in between
        node = parent
    return False


def _in_other_branch(block: Node, around: tuple[Node, ...]) -> bool:
    """Whether the command is in the `else` of the `if` that holds the assignment."""
    return any(
        parent.type in ("else_clause", "elif_clause") and parent.parent == block
        for parent in around
    )
