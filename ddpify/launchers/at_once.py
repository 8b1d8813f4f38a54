"""Scripts that start several torchruns at once on one machine, which all listen on one port."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ddpify.launchers.legacy import LEGACY, MODERN
from ddpify.launchers.script import LOOPS, Command, Script, Word, ancestors, is_left, statement

_WRAPPERS: Final = frozenset(("nohup", "time", "exec", "command", "setsid"))
_FLAGS: Final = frozenset(
    "standalone no_python run_path use_env force_multi no_local_rank save_pid no_ssh_check".split()
)
_ELSEWHERE: Final = ("standalone", "node_rank")  # a free port, or another machine's
_DEFAULT: Final = "29500"


def at_once(script: Script) -> Iterator[tuple[Word, str]]:
    """The torchrun that finds its port taken by another one, and which port that is."""
    begun: dict[tuple[int, str], Command] = {}
    ends = [one.node.start_byte for one in script.commands if one.words[:1] and _waits(one)]
    for command in script.commands:
        start = start_of(command)
        left = start is not None and is_left(command.node)
        port = _port(script, command, start) if start is not None and left else ""
        if start is None or not port:
            continue
        block = next(ancestors(statement(command.node)))
        loop = next((one for one in ancestors(command.node) if one.type in LOOPS), None)
        at = command.node.start_byte
        earlier = begun.setdefault((block.start_byte, port), command)
        since = earlier.node.start_byte
        again = loop is not None and not any(loop.start_byte < n < loop.end_byte for n in ends)
        if again or (earlier is not command and not any(since < n < at for n in ends)):
            yield start, port


def _waits(command: Command) -> bool:
    return command.words[0].literal in ("wait", "exit", "ssh", "kill", "pkill", "killall")


def start_of(command: Command) -> Word | None:
    """The word that is torchrun, with which a command begins."""
    words = command.words
    while words and words[0].literal in _WRAPPERS:
        words = words[1:]
    if words and (words[0].literal or "").rpartition("/")[2] == "torchrun":
        return words[0]
    names = [word.literal for word in words[:3]]
    module = len(names) == 3 and names[1] == "-m" and names[2] in (LEGACY, MODERN)
    return words[2] if module and (names[0] or "").startswith("python") else None


def _port(script: Script, command: Command, start: Word) -> str:
    """The port that torchrun is told, or takes where it is told none; "" if that is not known."""
    told = own_options(command.words[command.words.index(start) + 1 :])
    by_name = (*command.prefixes, *script.assignments)
    if told is None or any(one.name.startswith("PET_") for one in by_name):
        return ""
    several = told.get("nnodes", "1") not in ("1", "1:1")
    if several or any(name in told for name in _ELSEWHERE):
        return ""
    if "rdzv_endpoint" in told:
        port = (told["rdzv_endpoint"] or "").rpartition(":")[2]
    else:
        port = told.get("master_port", "" if "rdzv_backend" in told else _DEFAULT) or ""
    return port if port.isdecimal() and port != "0" else ""


def own_options(words: tuple[Word, ...]) -> dict[str, str | None] | None:
    """A launcher's options, with None for what the shell fills in; None if it may fill in any."""
    found: dict[str, str | None] = {}
    name = ""
    for word in words:
        if name:
            found[name], name = word.literal, ""
        elif word.literal in ("-m", "--module") or not word.text.startswith("-"):
            return found if word.literal is not None or word.tail.endswith(".py") else None
        else:
            option, equals, _ = word.text.lstrip("-").replace("-", "_").partition("=")
            value = word.literal.partition("=")[2] if word.literal is not None else None
            found[option] = value
            name = "" if equals or option in _FLAGS else option
    return None
