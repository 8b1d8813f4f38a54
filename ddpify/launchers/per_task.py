"""Batch scripts in which `srun` starts torchrun more often, or on more nodes, than it is told.

Each task that `srun` starts runs the command: four tasks on a node are four torchruns there. One
that is not told of the other nodes makes a job of its own on each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from ddpify.launchers.embedded import EmbeddedPiece
from ddpify.launchers.legacy import LEGACY, MODERN
from ddpify.launchers.reading import pieces
from ddpify.launchers.script import Command, Script, Word
from ddpify.launchers.slurm import given
from ddpify.rules.base import Finding, Severity
from ddpify.source import Source

CODE = "DDP007"
_SINGLE = ("1", "1:1")
_SAID_ELSEWHERE = re.compile(r"PET_NNODES|SLURM_(?:NODEID|PROCID|LOCALID)")


def findings(root: Path, files: Sequence[Path]) -> list[Finding]:
    """One finding per command behind `srun` that starts torchrun on each of several tasks."""
    found: list[Finding] = []
    for file in files:
        file = root / file
        raw = file.read_bytes() if file.is_file() else b""
        if b"srun" not in raw or b"SBATCH" not in raw:  # no parser for what cannot matter
            continue
        path = file.resolve().relative_to(root.resolve()).as_posix()
        text = Source.plain(raw, file, path).text
        for piece in pieces(path, text):
            if piece.certain and not piece.brief and "srun" in piece.text:
                found += _in_piece(path, piece)
    return found


def _in_piece(path: str, piece: EmbeddedPiece) -> Iterator[Finding]:
    script = Script.parse(path, piece.text)
    for command in script.commands:
        one = _step(command)
        if one is None:
            continue
        before, start, after = one
        site = script.site(start.start, start.end)
        wrong = _wrong(script, before, after)
        if wrong is not None and piece.holds(site):
            yield piece.placed(Finding(CODE, site, wrong[0], wrong[2], advice=wrong[1]))


def _step(command: Command) -> tuple[tuple[Word, ...], Word, tuple[Word, ...]] | None:
    """The options of `srun`, the word that is torchrun, and the options of that."""
    words = command.words
    if not words or words[0].literal != "srun":
        return None
    for number, word in enumerate(words):
        name = (word.literal or "").rpartition("/")[2]
        module = number > 0 and words[number - 1].literal == "-m"
        if name == "torchrun" or (module and word.literal in (LEGACY, MODERN)):
            return words[1:number], word, _options(words[number + 1 :])
    return None


def _options(words: tuple[Word, ...]) -> tuple[Word, ...]:
    """The words before the program, which has options of its own."""
    ends = (n for n, w in enumerate(words) if w.tail.endswith(".py") or w.literal == "-m")
    return words[: next(ends, len(words))]


def _wrong(
    script: Script, before: tuple[Word, ...], after: tuple[Word, ...]
) -> tuple[str, str, Severity] | None:
    """What is wrong, what to do, and how bad it is."""
    own, told = " ".join(w.text for w in before), " ".join(w.text for w in after)
    nodes, each = given("nodes", own, script), _tasks_of_node(script, own)
    if each > 1 and _option(told, "nproc") not in ("", "1"):
        return (
            f"srun starts this {each} times on each node, and each starts its own processes: they"
            " take the same port and the same GPUs",
            "ask for one task per node: --ntasks-per-node=1",
            Severity.ERROR,
        )
    count = _option(told, "nnodes") or "1"
    alone = "--standalone" in told or count in _SINGLE
    if nodes.isdecimal() and int(nodes) > 1 and alone and not _SAID_ELSEWHERE.search(script.text):
        return (
            f"srun starts this on {nodes} nodes, and torchrun is told of one: each node trains a"
            " model of its own, or waits for none",
            f"give it --nnodes={nodes} and a --rdzv_endpoint that all nodes know",
            Severity.ERROR,
        )
    return None


def _tasks_of_node(script: Script, own: str) -> int:
    """How many tasks each node runs; 1 where that is not known."""
    each, tasks = given("tasks per node", own, script), given("tasks", own, script)
    if tasks and "--ntasks-per-node" not in own:  # how many there are in all
        nodes = given("nodes", own, script) or "1"
        known = tasks.isdecimal() and nodes.isdecimal() and int(nodes) > 0
        return int(tasks) // int(nodes) if known else 1
    return int(each) if each.isdecimal() else 1


def _option(told: str, name: str) -> str:
    """The value of `--nnodes=2`, `--nproc_per_node 4`; "" where it is left out."""
    found = re.search(rf"(?:^|\s)--{name}(?:[_-]per[_-]node)?(?:=|\s+)(\S+)", told)
    return found.group(1).strip("\"'") if found else ""
