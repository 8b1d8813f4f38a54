"""How the project's launchers start an entry: the options they pass and the GPUs they list."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from ddpify import discover, launchers
from ddpify.advice.model import Start
from ddpify.launchers.model import Gpus, Launch
from ddpify.launchers.reading import launches
from ddpify.launchers.script import Command, Script, Word

_PROCESSES = re.compile(r"--nproc[_-]per[_-]node(?:=(\d+))?")
_VARIABLE = re.compile(r"\"?\$(?:(\w+)|\{(\w+)(?::?-([^}$]*))?\})\"?")
_FILLED = re.compile(r"\$(?:\w+|\{\w+(?::?-[^}$]*)?\})")
_OWN = ("$@", "$*")  # what the launcher itself is given


def starts(root: Path, entry: str, known: Sequence[str]) -> tuple[Start, ...]:
    """Every command that starts ``entry``; ``known`` are the options the program declares."""
    files = tuple(p.relative_to(root).as_posix() for p in discover.python_files(root))
    found: list[Start] = []
    for path in launchers.discover(root, (entry,)):
        text = (root / path).read_bytes().decode("utf-8", "surrogateescape")
        for piece, of_piece in groupby(launches(path, text, (entry,), files), itemgetter(0)):
            script = Script.parse(path, piece.text)
            commands = {script.site(c.node.start_byte, c.node.end_byte): c for c in script.commands}
            for _, launch in of_piece:
                command = commands.get(launch.site)
                if command is not None and not launch.unsupported:
                    place = str(piece.site(launch.site))
                    found.append(_start(script, command, launch, place, known))
    return tuple(found)


def asked(arguments: Sequence[str], known: Sequence[str]) -> Start:
    """The command line that the plan was asked for."""
    text = shlex.join(("python", "main.py", *arguments))
    script = Script.parse("", text)
    return Start("these arguments", None, tuple(_values(script, script.commands[0].words, known)))


def _start(
    script: Script, command: Command, launch: Launch, place: str, known: Sequence[str]
) -> Start:
    values = tuple(_values(script, command.words, known))
    # how many GPUs several nodes come to is not in the script's own list
    gpus = None if launch.nodes else _gpus(script, launch.gpus) or _ranks(command.words)
    after = _after(command.words, launch.entry)
    if after is None:
        return Start(place, gpus, values)
    first = next((word.literal or "" for word in after), "")
    return Start(place, gpus, values, first, _arguments(script, after))


def _after(words: Sequence[Word], entry: str) -> Sequence[Word] | None:
    """The words after the program; None where that is started by another name than its file's."""
    names = [Path(word.literal or "").name for word in words]
    name = Path(entry).name
    return words[names.index(name) + 1 :] if name in names else None


def _arguments(script: Script, words: Sequence[Word]) -> tuple[str, ...] | None:
    """The words as the program gets them; None where the shell fills in what is not known."""
    given = [_said(script, word) for word in words if word.text.strip('"') not in _OWN]
    known = tuple(one for one in given if one is not None)
    return known if len(known) == len(given) else None


def _said(script: Script, word: Word) -> str | None:
    return word.literal if word.literal is not None else _filled(script, word.text, frozenset())


def _gpus(script: Script, gpus: Gpus) -> int | None:
    """The length of the list; of a variable, that of the one list it is given."""
    if gpus.count is not None:
        return gpus.count
    value = _value(script, gpus.value or "")
    return len([one for one in value.split(",") if one.strip()]) or None if value else None


def _ranks(words: Sequence[Word]) -> int | None:
    """The processes of a line that is ``torchrun`` already."""
    texts = [word.literal or "" for word in words]
    for text, following in zip(texts, [*texts[1:], ""], strict=True):
        found = _PROCESSES.fullmatch(text)
        if found:
            number = found.group(1) or following
            return int(number) if number.isdigit() else None
    return None


def _values(
    script: Script, words: Sequence[Word], known: Sequence[str]
) -> Iterator[tuple[str, str | None]]:
    """``--name value`` and ``--name=value``; a beginning that only one option has is that one."""
    for at, word in enumerate(words):
        name, equals, given = word.text.partition("=")
        option = _option(name, known)
        if option is None:
            continue
        if not equals:
            given = words[at + 1].text if at + 1 < len(words) else ""
        yield option, _value(script, given)


def _option(name: str, known: Sequence[str]) -> str | None:
    if name in known:
        return name
    fits = [one for one in known if name.startswith("--") and one.startswith(name)]
    return fits[0] if len(name) > 2 and len(fits) == 1 else None


def _value(script: Script, text: str, within: frozenset[str] = frozenset()) -> str | None:
    """What a word stands for: itself, or the one value that the script gives a variable.

    ``within`` are variables whose own value this is: ``EPOCHS=${EPOCHS:-5}``.
    """
    variable = _VARIABLE.fullmatch(text)
    if variable is None:
        return _filled(script, text, within)
    name, default = variable.group(1) or variable.group(2), variable.group(3)
    if name.isdigit():
        return default
    given = [a.value for a in script.assignments if a.name == name and name not in within]
    if len(given) > 1:
        return None
    if not given:
        return default
    return given[0].literal or _value(script, given[0].text, within | {name})


def _filled(script: Script, text: str, within: frozenset[str]) -> str | None:
    """A word with the values of variables in it: ``out/$NAME``."""
    pieces = [_value(script, found[0], within) for found in _FILLED.finditer(text)]
    if None in pieces:
        return None
    values = iter(pieces)
    plain = _FILLED.sub(lambda _: next(values) or "", text).strip("\"'")
    return None if re.search(r"[$`\"']", plain) else plain
