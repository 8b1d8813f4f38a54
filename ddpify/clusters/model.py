"""What a start file is made of, as data."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from string import Template

GPUS = 8  # of a node, where a number has to be written and nothing says which
PORT = 29500
# Minutes may pass between the first node and the last: images are pulled, nodes boot.
PATIENCE = 900


@dataclass(frozen=True)
class Taken:
    """What a present launch line gives: ``arguments`` of the program, and where they stand.

    ``left`` is what could not be taken over. ``folder`` is where it runs, from the project's top;
    ``module``: it is started with ``-m``. ``variables`` are the names and values of its
    environment, ``decided`` those that the start file says itself. Of a script for sbatch
    (``is_batch``) ``batch`` are the directives, ``setup`` the lines that prepare the environment,
    ``single`` directives that were meant for one process. ``others`` are the places of further
    launch lines.
    """

    place: str = ""
    arguments: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    folder: str = ""
    module: bool = False
    gpus: int | None = None
    variables: tuple[tuple[str, str], ...] = ()
    decided: tuple[str, ...] = ()
    is_batch: bool = False
    batch: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    single: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


def stems(entries: Sequence[str]) -> tuple[str, ...]:
    """Each program in one word of its own: files, jobs, runs and pods are called so.

    With its folders where another has the same name, with a number where even those do not help.
    """
    last = [_word(_module(entry).rpartition("/")[2]) for entry in entries]
    whole = [
        short if last.count(short) == 1 else _word(_module(entry))
        for entry, short in zip(entries, last, strict=True)
    ]
    names: list[str] = []
    for one in whole:
        numbered = (f"{one}-{number}" for number in count(2))
        free = (name for name in numbered if name not in (*names, *whole))
        names.append(next(free) if one in names else one)
    return tuple(names)


def _module(entry: str) -> str:
    return entry.removesuffix(".py").removesuffix("/__main__")


def _word(name: str) -> str:
    """It is a name for a Service of Kubernetes: up to 40 of a-z, 0-9 and ``-``, a letter first."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    whole = plain if plain[:1].isalpha() else f"train-{plain}"
    return whole[:40].strip("-")


@dataclass(frozen=True)
class ClusterJob:
    """One program, ``stem`` in a word, on ``nodes`` nodes; ``gpus`` of each if asked for."""

    entry: str
    stem: str
    nodes: int
    gpus: int | None = None
    taken: Taken = field(default_factory=Taken)

    @property
    def program(self) -> tuple[str, ...]:
        """What torchrun is given to start."""
        path = self.entry.removeprefix(f"{self.taken.folder}/") if self.taken.folder else self.entry
        if self.taken.module:
            return "-m", _module(path).replace("/", ".")
        return (path,)

    @property
    def below(self) -> str:
        """Where it is started, below the project's top, for a shell."""
        return f"/{shlex.quote(self.taken.folder)}" if self.taken.folder else ""

    @property
    def gpus_per_node(self) -> int | None:
        """As asked for, or as the present launch line says."""
        return self.gpus or self.taken.gpus

    @property
    def size(self) -> str:
        """The number of nodes, in words."""
        return f"{self.nodes} node{'s' * (self.nodes != 1)}"


def comment(said: str) -> list[str]:
    """A sentence as lines of comment, whatever is quoted in it."""
    # in words: the second line of a word that has several would not be a comment
    lines = textwrap.wrap(said, 85, break_long_words=False, break_on_hyphens=False)
    return [f"# {line}" for line in lines]


@dataclass(frozen=True)
class StartFile:
    """A file to write, relative to the project's top; ``command`` is how it is used."""

    path: str
    text: str
    command: str


class StartText(Template):
    """Text of a start file with ``@@names``, since ``$`` is the shell's."""

    delimiter = "@@"

    def filled(self, job: ClusterJob, path: str, **own: object) -> str:
        """The whole file of a job: with ``own`` of its kind, which win, and what all kinds say."""
        gpus = job.gpus_per_node or GPUS
        common: dict[str, object] = {
            "entry": job.entry,
            "size": job.size,
            "path": path,
            "gpus": gpus,
            "stem": job.stem,
            "nodes": job.nodes,
            "folder": job.below,
            "program": shlex.join(job.program),
            "port": PORT,
            "patience": PATIENCE,
        }
        return self.substitute({**common, **own})
