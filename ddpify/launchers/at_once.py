"""Scripts that start several torchruns at once on one machine, which all listen on one port."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ddpify.launchers.legacy import LEGACY, MODERN
from ddpify.launchers.script import Command, Script, Word, ancestors

if TYPE_CHECKING:
    from tree_sitter import Node

_LOOPS: Final = frozenset(("for_statement", "c_style_for_statement", "while_statement"))
_FREE: Final = re.compile(r"--standalone|--nnodes|--node[_-]rank|[:=\s]0(?:\s|$)|\$|PET_")
_PORT: Final = re.compile(r"--(?:master[_-]port[=\s]+|rdzv[_-]endpoint[=\s]+\S*:)(\d+)")
_DEFAULT: Final = "29500"


def at_once(script: Script) -> Iterator[tuple[Word, str]]:
    """The torchrun that finds its port taken by another one, and which port that is."""
    begun: dict[tuple[int, str], Command] = {}
    ends = [one.node.start_byte for one in script.commands if one.words[:1] and _waits(one)]
    for command in script.commands:
        start = _start(command)
        port = _port(command, start) if start is not None and _is_left(command.node) else ""
        if start is None or not port:
            continue
        block = next(iter(ancestors(command.node)))
        loop = next((one for one in ancestors(command.node) if one.type in _LOOPS), None)
        at = command.node.start_byte
        earlier = begun.setdefault((block.start_byte, port), command)
        since = earlier.node.start_byte
        again = loop is not None and not any(loop.start_byte < n < loop.end_byte for n in ends)
        if again or (earlier is not command and not any(since < n < at for n in ends)):
            yield start, port


def _waits(command: Command) -> bool:
    return command.words[0].literal in ("wait", "exit", "ssh")


def _start(command: Command) -> Word | None:
    """The word that is torchrun, with which a command begins."""
    words = command.words
    if words and (words[0].literal or "").rpartition("/")[2] == "torchrun":
        return words[0]
    names = [word.literal for word in words[:3]]
    module = len(names) == 3 and names[1] == "-m" and names[2] in (LEGACY, MODERN)
    return words[2] if module and (names[0] or "").startswith("python") else None


def _is_left(node: Node) -> bool:
    """Whether the shell goes on at once: ``torchrun … &``."""
    while node.parent is not None and node.parent.type == "redirected_statement":
        node = node.parent
    return node.next_sibling is not None and node.next_sibling.type == "&"


def _port(command: Command, start: Word) -> str:
    """The port that torchrun is told, or takes where it is told none; "" if that is not known."""
    words = command.words[command.words.index(start) + 1 :]
    own = next((n for n, w in enumerate(words) if w.tail.endswith(".py") or w.text == "-m"), None)
    told = " ".join(word.text for word in words[:own])
    found = _PORT.search(told)
    open_ = own is None or _FREE.search(re.sub(r"--nproc[_-]per[_-]node[=\s]+\S+", "", told))
    return "" if open_ else found.group(1) if found else "" if "port" in told else _DEFAULT
