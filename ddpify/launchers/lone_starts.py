"""Programs that are started as one process, by all that the repository says of them.

A program is named in a command that starts it with plain python, and nothing that names it starts
several: no launcher, no job of several tasks, no script that is handed its name. What is not
understood counts as several: then nothing is said. A launcher that is told to start one process
counts as several, too, unless it is asked whether such a one starts it.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path

from ddpify.launchers.discover import LauncherKind, kind_of
from ddpify.launchers.embedded import EmbeddedPiece
from ddpify.launchers.model import Launch
from ddpify.launchers.one_process import starts_one
from ddpify.launchers.reading import launches
from ddpify.launchers.script import line_starts
from ddpify.source import Site

_LAUNCHES = (
    r"torchrun|torchx|distributed[./](?:launch|run)\b|accelerate[\"',\s]+launch|mpirun|mpiexec"
    r"|horovodrun|\bsrun\b|colossalai\s+run|(?<![\w-])deepspeed\s+(?:-|\S*\.py)"
)
_LAUNCHER = re.compile(_LAUNCHES)
# In what is written for people a launcher starts something only where it is given something; of
# "use horovodrun to train on several GPUs" others say what.
_GIVEN = re.compile(rf"(?:{_LAUNCHES})[`\"']?\s+[-$<{{\[]")
# A line with one of these words may start what it names in any way.
_HANDED = re.compile(rf"{_LAUNCHES}|\.sh\b|\b(?:sbatch|bsub|qsub)\b")
# And so may any other file which names it anywhere: a program, a configuration, a notebook.
_STARTS = re.compile(
    rf"{_LAUNCHES}|notebook_launcher|Popen|subprocess|os\.system|sys\.executable|submitit|\.sh\b"
    r"|PyTorchJob|MPIJob"  # of Kubernetes, which start plain python on each node
)
_PEERS = re.compile(r"(?:^|\s)(?:RANK|LOCAL_RANK|WORLD_SIZE|MASTER_ADDR)=", re.MULTILINE)
_SEVERAL = re.compile(
    r"[\s.\-](?:gpus|n(?:um)?[-_]?(?:gpus?|nodes|devices|proc(?:s|esses)?|machines)|nnodes|nproc"
    r"|devices|world[-_]?size|(?:node[-_]|local[-_]|machine[-_])?rank|dist(?:ributed)?(?:[-_]\w+)?"
    r"|ddp|fsdp|multiprocessing[-_]distributed|launcher)(?:[-_]per[-_]\w+)?\b"
    r"(?![= ][\"']?(?:-?1|0|none|false)(?![\w,.]))",
    re.IGNORECASE,
)
# A program that a line names; where a launcher starts none, it may be any.
_PROGRAM = re.compile(r"\.py\b|-m\s+(?!torch\.|accelerate\.)\w")
_GOES_ON = re.compile(r"\\\r?\n[ \t]*#*")  # a command that is commented out goes on, too
_BEFORE = (".", "m ", "'", '"')  # what a module's name stands behind
_PRUNED = frozenset((".git", "node_modules", "site-packages", "__pycache__"))
_MADE = frozenset(("pyvenv.cfg", "CACHEDIR.TAG"))  # what tools put into the folders that they make
_LARGEST = 4 * 1024 * 1024  # notebooks hold pictures
_MOST = 10_000  # files, data among them, and letters: in more, nobody looks for a start
_LONGEST = 64 * 1024 * 1024


class LoneStarts:
    """The scripts of a project that only one process runs.

    ``launchers`` and ``python`` are its files; ``read``: what else was looked into, folders, to
    which a file may be added, among it.
    """

    def __init__(self, root: Path, launchers: Sequence[Path], python: Sequence[Path]) -> None:
        self._root = root
        inside = (file for file in launchers if file.is_relative_to(root))
        self._launchers = tuple(file for file in inside if kind_of(file.name) is not None)
        self._python = tuple(file for file in python if file.is_relative_to(root))
        self._known: dict[tuple[str, bool], Site | None] = {}
        self.read: frozenset[Path] = frozenset()

    def line(self, script: str, launched: bool = False) -> Site | None:
        """A command that starts the script as one process, where nothing starts several.

        ``launched``: one of a launcher that is told to start one.
        """
        if (script, launched) not in self._known:
            self._known[script, launched] = self._line(_Named(script, self._paths, launched))
        return self._known[script, launched]

    def _line(self, named: _Named) -> Site | None:
        texts = [(path, text) for path, text in self._texts if named.within(path, text)]
        found = [one for path, text in texts for one in self._starts(named, path, text)]
        first = next((site for site, launched in found if launched is named.launched), None)
        several = any(site is None for site, _ in found)
        if first is None or several or any(named.handed(path, text) for path, text in texts):
            return None
        others = self._others
        elsewhere = others is None or any(named.started(*one) for one in others)
        return None if elsewhere else first

    def _starts(self, named: _Named, path: str, text: str) -> Iterator[tuple[Site | None, bool]]:
        """The places of the commands, None for one that may start several; if it is a launcher's"""
        for piece, launch in launches(path, text, (named.script,), self._paths):
            several = named.is_several(piece, launch)
            yield None if several else piece.site(launch.site), launch.already_torchrun

    @cached_property
    def _texts(self) -> list[tuple[str, str]]:
        return [(self._path(file), _text(file)) for file in self._launchers]

    @cached_property
    def _paths(self) -> tuple[str, ...]:
        return tuple(self._path(file) for file in self._python)

    @cached_property
    def _others(self) -> list[tuple[str, str]] | None:
        """Programs, and what else the repository holds, that may start others; None: too much."""
        known = {*self._launchers, *self._python}
        found = [*islice(_below(_repository(self._root)), _MOST)]
        self.read = frozenset(file for file in found if file not in known)
        texts, length = [], 0
        for file in (*self._python, *self.read):
            texts.append((self._path(file), _text(file)))
            length += len(texts[-1][1])
        return texts if len(found) < _MOST and length < _LONGEST else None

    def _path(self, file: Path) -> str:
        return Path(os.path.relpath(file, self._root)).as_posix()


class _Named:
    """How texts name one script: by a path that may be its own, or as a module."""

    def __init__(self, script: str, paths: tuple[str, ...], launched: bool) -> None:
        name = posixpath.basename(script)
        stem = posixpath.basename(posixpath.dirname(script)) if name == "__main__.py" else name
        module = re.escape(stem.removesuffix(".py"))
        self._words = (name, *(f"{before}{stem.removesuffix('.py')}" for before in _BEFORE))
        self.script = script
        self.launched = launched
        self._paths = paths
        self._by = re.compile(
            rf"(?P<path>[\w./-]*(?<![\w-]){re.escape(name)})\b"
            rf"|-m[\s\"',]+(?P<module>[\w.]*\b{module})\b"
        )

    def handed(self, path: str, text: str) -> bool:
        """Whether a line of a launcher, which no shell was seen to run, may start it otherwise."""
        lines = self._lines(text)
        launcher = _GIVEN if kind_of(path) is LauncherKind.MARKDOWN else _LAUNCHER
        open_ended = (launcher.search(line) and not _PROGRAM.search(line) for line in lines)
        told = (line for line in lines if _HANDED.search(line) and self.within(path, line))
        return any(open_ended) or any(told)

    def within(self, path: str, text: str) -> bool:
        """Whether a text in the file ``path`` may name it."""
        own = posixpath.dirname(path)
        held = any(map(text.__contains__, self._words))  # many times faster than the expression
        return held and any(self._is_ours(own, found) for found in self._by.finditer(text))

    def started(self, path: str, text: str) -> bool:
        """Whether a file of the repository that names it may start it."""
        if kind_of(path) is not None:  # a launcher of another project
            return self.within(path, text) and self.handed(path, text)
        return self.within(path, text) and bool(_STARTS.search("\n".join(self._lines(text))))

    def is_several(self, piece: EmbeddedPiece, launch: Launch) -> bool:
        """Whether a command may start several processes."""
        if launch.unsupported:
            return True
        starts, span = line_starts(piece.text), launch.site.span
        first = starts[span.line - 1] + span.column
        command = piece.text[first : starts[span.end_line - 1] + span.end_column]
        if launch.already_torchrun:
            return not self._is_one(_GOES_ON.sub(" ", command), piece.text)
        return bool(_SEVERAL.search(command) or _PEERS.search(piece.text))

    def _lines(self, text: str) -> list[str]:
        """The lines of a text, without those in which a launcher starts one process."""
        lines = _GOES_ON.sub(" ", text).splitlines()
        return [line for line in lines if not self._is_one(line, text)] if self.launched else lines

    def _is_one(self, line: str, text: str) -> bool:
        return self.launched and len(_HANDED.findall(line)) == 1 and starts_one(line, text)

    def _is_ours(self, own: str, found: re.Match[str]) -> bool:
        module = (found["module"] or "").replace(".", "/")
        said = (found["path"],) if found["path"] else (f"{module}.py", f"{module}/__main__.py")
        places = {posixpath.normpath(posixpath.join(b, one)) for b in (own, "") for one in said}
        meant = [path for path in self._paths if path in places]
        tails = [f"/{one.lstrip('./')}" for one in said]
        ends = [p for p in self._paths for t in tails if f"/{p}".endswith(t) or t.endswith(f"/{p}")]
        return self.script in (meant or ends)


def _repository(root: Path) -> Path:
    """The repository that a project is a part of, which may start its programs, too."""
    return next((one for one in (root, *root.parents) if (one / ".git").exists()), root)


def _below(root: Path) -> Iterator[Path]:
    """The folders and the files below, those of tools left out."""
    for folder, below, files in os.walk(root):
        made = not _MADE.isdisjoint(files)
        below[:] = [] if made else [one for one in below if one not in _PRUNED]
        yield from () if made else (Path(folder, file) for file in ("", *files))


def _text(file: Path) -> str:
    """What is in a file; nothing for one that is no text, or too large to be a launcher."""
    try:
        raw = b"" if file.stat().st_size > _LARGEST else file.read_bytes()
    except OSError:
        return ""
    return "" if b"\0" in raw[:1024] else raw.decode("utf-8", "surrogateescape")
