"""Scripts that start torchrun more often than its port allows, or on more nodes than it is told.

Each task that `srun` starts runs the command: four tasks on a node are four torchruns there. One
that is not told of the other nodes makes a job of its own on each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from ddpify.launchers.at_once import at_once
from ddpify.launchers.embedded import EmbeddedPiece
from ddpify.launchers.legacy import LEGACY, MODERN
from ddpify.launchers.reading import pieces
from ddpify.launchers.script import Command, Script, Word
from ddpify.launchers.slurm import given
from ddpify.rules.base import Finding, Severity
from ddpify.source import Source

CODE = "DDP007"
_SINGLE = ("1", "1:1")
# What tells the tasks of a job apart: each has a port, a seed, GPUs of its own.
_OF_TASK = re.compile(r"SLURM_(?:NODEID|PROCID|LOCALID|NTASKS)")
# What gives each task GPUs of its own.
_OWN_GPUS = re.compile(r"--(?:gpus-per-task|gpu-bind|tres-per-task)|CUDA_VISIBLE_DEVICES")


def findings(root: Path, files: Sequence[Path]) -> list[Finding]:
    """One finding per command behind `srun` that starts torchrun on each of several tasks."""
    found: list[Finding] = []
    for file in files:
        file = root / file
        raw = file.read_bytes() if file.is_file() else b""
        steps = b"srun" in raw and b"SBATCH" in raw
        left = b"&" in raw and (b"torchrun" in raw or b"torch.distributed" in raw)
        if not steps and not left:  # no parser for what cannot matter
            continue
        path = file.resolve().relative_to(root.resolve()).as_posix()
        text = Source.plain(raw, file, path).text
        for piece in pieces(path, text):
            if piece.certain and not piece.brief and steps and "srun" in piece.text:
                found += _in_piece(path, piece)
            if piece.certain and not piece.brief and left and "&" in piece.text:
                found += _at_once(path, piece)
    return found


def _at_once(path: str, piece: EmbeddedPiece) -> Iterator[Finding]:
    script = Script.parse(path, piece.text)
    for word, port in at_once(script):
        site = script.site(word.start, word.end)
        if piece.holds(site):
            what = f"another torchrun that this script has started still listens on port {port}"
            advice = "give each a --master_port of its own, or --standalone"
            found = Finding(CODE, site, f"{what}: this one cannot", Severity.ERROR, advice=advice)
            yield piece.placed(found)


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
    own, told = (" ".join(word.text for word in words) for words in (before, after))
    if _OF_TASK.search(f"{own} {told}") or "PET_" in script.text or _is_open(before):
        return None
    nodes, tasks, each = (given(w, own, script) for w in ("nodes", "tasks", "tasks per node"))
    if "--ntasks-per-node" not in own and tasks:  # how many there are in all
        each = ""
    several = nodes.isdecimal() and int(nodes) > 1
    started = _times(tasks, nodes) if tasks and not each else int(each) if each.isdecimal() else 1
    alone = "--standalone" in told or "localhost:0" in told  # takes a port that is free
    count = _option(told, "nnodes") or "1"
    if started > 1 and not alone and count.isdecimal() and int(count) < started * int(nodes or 1):
        return (
            f"srun starts this {started} times on each node, and each is a torchrun of its own:"
            " they take the same port, or wait for no more than they are told of",
            "ask for one task per node: --ntasks-per-node=1",
            Severity.ERROR,
        )
    if started > 1 and alone and not _has_own_gpus(own, script):
        return (
            f"srun starts this {started} times on each node, and each is a torchrun of its own that"
            " knows of no other: the same training runs as often, on the same GPUs",
            "ask for one task per node: --ntasks-per-node=1",
            Severity.WARNING,
        )
    if several and started and (alone or count in _SINGLE):
        return (
            f"srun starts this on {nodes} nodes, and torchrun is told of one: the nodes do not"
            " train one model",
            f"give it --nnodes={nodes} and a --rdzv_endpoint that all nodes know",
            Severity.ERROR,
        )
    return None


def _has_own_gpus(own: str, script: Script) -> bool:
    """Whether a task may get other GPUs than its neighbours: it is a run of its own then."""
    return _OWN_GPUS.search(f"{own} {script.text}") is not None


def _is_open(before: tuple[Word, ...]) -> bool:
    """Whether the shell fills in options of `srun`: what these say of tasks is not known."""
    for number, word in enumerate(before):
        if word.text.lstrip("\"'").startswith("$"):
            return True
        value = number > 0 and before[number - 1].text.startswith("-")
        if not word.text.startswith("-") and not value:
            return False  # what `srun` starts, with options of its own
    return False


def _times(tasks: str, nodes: str) -> int:
    """How often a node starts it, of so many tasks in all; 0 where some do not, or nobody knows."""
    known = tasks.isdecimal() and nodes.isdecimal() and int(nodes) > 0
    return int(tasks) // int(nodes) if known else 0


def _option(told: str, name: str) -> str:
    """The value of `--nnodes=2`, `--nproc_per_node 4`; "" where it is left out."""
    found = re.search(rf"(?:^|\s)--{name}(?:[_-]per[_-]node)?(?:=|\s+)(\S+)", told)
    return found.group(1).strip("\"'") if found else ""
