"""What the project's own launch lines say of a program: it is taken over into the start file."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from ddpify import launchers
from ddpify.clusters.environment import known_value, variables
from ddpify.clusters.model import Taken
from ddpify.clusters.sealing import program_of
from ddpify.launchers.discover import LauncherKind
from ddpify.launchers.embedded import EmbeddedPiece
from ddpify.launchers.model import Gpus, Launch
from ddpify.launchers.reading import launches
from ddpify.launchers.script import Script, Word
from ddpify.launchers.slurm import gpus_of_batch

_ALL = re.compile(r'"?\$\{?[@*]\}?"?')
_PROCESSES = re.compile(r"--nproc[_-]per[_-]node(?:=(\d+))?")
_DIRECTIVE = re.compile(r"^#SBATCH[ \t]+(-{1,2}[a-zA-Z-]+)(.*)$", re.MULTILINE)
_SETUP = re.compile(r"^(?:module|ml|source|conda|mamba|micromamba|spack)[ \t].+$", re.MULTILINE)
# Said anew by the start file.
_OWN = frozenset(
    "--nodes -N --ntasks -n --ntasks-per-node --gres --gpus -G --gpus-per-node --gpus-per-task "
    "--signal --requeue --no-requeue --open-mode --output -o --error -e --array -a".split()
)
# Enough for one process, and perhaps not for one per GPU.
_SINGLE = frozenset("--cpus-per-task -c --mem --mem-per-cpu --mem-per-gpu --cpus-per-gpu".split())


def taken(root: Path, entry: str, files: Sequence[str]) -> Taken:
    """The first launch line of ``entry``: of a script rather than of a README."""
    found = sorted(_every(root, entry, files), key=lambda pair: pair[0])
    if not found:
        return Taken()
    others = tuple(one.place for _, one in found[1:])
    return replace(found[0][1], others=others)


def _every(root: Path, entry: str, files: Sequence[str]) -> Iterator[tuple[bool, Taken]]:
    for path in launchers.discover(root, (entry,)):
        text = (root / path).read_bytes().decode("utf-8", "surrogateescape")
        if program_of(text):
            continue
        shown = launchers.kind_of(path) is LauncherKind.MARKDOWN
        for piece, launch in launches(path, text, (entry,), files):
            yield shown, _with_batch(_of_launch(piece, launch), "" if shown else text)


def _of_launch(piece: EmbeddedPiece, launch: Launch) -> Taken:
    script = Script.parse(piece.path, piece.text)
    sites = {script.site(c.node.start_byte, c.node.end_byte): c for c in script.commands}
    command = sites.get(launch.site)
    found = _program(script, command.words, launch.entry) if command is not None else None
    site = piece.site(launch.site)
    place = f"{site.path}:{site.span.line}"
    if command is None or found is None:
        return Taken(place, left=("the whole line",))
    at, program = found
    arguments, left = _arguments(script, command.words[at + 1 :])
    module = _is_module(command.words, at)
    folder = "" if module else _folder(program, launch.entry)
    gpus = _gpus(launch.gpus) or _processes(command.words[:at])
    given = variables(script, command, at)
    left = (*given.left, *left)
    return Taken(place, arguments, left, folder, module, gpus, given.known, given.decided)


def _program(script: Script, words: Sequence[Word], entry: str) -> tuple[int, Word] | None:
    """Which word names the program, and the word that it is where a variable stands for it."""
    dotted = entry.removesuffix(".py").removesuffix("/__main__").replace("/", ".")
    for at, word in enumerate(words):
        for one in (word, *script.values(word)):
            if posixpath.basename(one.tail) == posixpath.basename(entry):
                return at, one
        if _is_module(words, at) and word.literal and f".{dotted}".endswith(f".{word.literal}"):
            return at, word
    return None


def _is_module(words: Sequence[Word], at: int) -> bool:
    before = words[at - 1].literal if at else None
    return before is not None and re.fullmatch(r"-[a-zA-Z]*m|--module", before) is not None


def _folder(word: Word, entry: str) -> str:
    """Where the program is started, so that its relative paths mean the same."""
    path = posixpath.normpath(word.tail.lstrip("/") if word.literal is None else word.tail)
    return entry[: -len(path)].rstrip("/") if f"/{entry}".endswith(f"/{path}") else ""


def _arguments(script: Script, words: Sequence[Word]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The program's arguments, and those that only the running shell knows.

    An option whose value is not known goes with it.
    """
    kept: list[str] = []
    left: list[str] = []
    for word in words:
        value = known_value(script, word)
        if value is not None:
            kept.append(value)
        elif not _ALL.fullmatch(word.text):
            option = kept and kept[-1].startswith("-") and "=" not in kept[-1]
            left.append(f"{kept.pop()} {word.text}" if option else word.text)
    return tuple(kept), tuple(left)


def _gpus(gpus: Gpus) -> int | None:
    """More than one GPU that the line lists or counts: the number a node has."""
    said = gpus.number or ""
    number = int(said) if said.isdecimal() else gpus.count
    return number if number and number > 1 else None


def _processes(words: Sequence[Word]) -> int | None:
    texts = [word.literal or "" for word in words]
    for text, following in zip(texts, [*texts[1:], ""], strict=True):
        found = _PROCESSES.fullmatch(text)
        number = (found.group(1) or following) if found else ""
        if number.isdecimal() and int(number) > 1:
            return int(number)
    return None


def _with_batch(one: Taken, text: str) -> Taken:
    """With what a batch script says of the cluster."""
    lines = [(found.group(1), found.group(0).rstrip()) for found in _DIRECTIVE.finditer(text)]
    if not lines:
        return one
    return replace(
        one,
        gpus=one.gpus or gpus_of_batch(text),
        is_batch=True,
        batch=tuple(line for name, line in lines if name not in _OWN | _SINGLE),
        single=tuple(line.split(None, 1)[1] for name, line in lines if name in _SINGLE),
        setup=tuple(found.group(0).rstrip() for found in _SETUP.finditer(text)),
    )
