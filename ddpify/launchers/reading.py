"""The launches of any kind of launcher, and what each has to change."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import replace
from functools import lru_cache

from ddpify.launchers import makefile, markdown
from ddpify.launchers.discover import LauncherKind, kind_of
from ddpify.launchers.edits import launch_edits
from ddpify.launchers.embedded import EmbeddedPiece
from ddpify.launchers.entries import LaunchEntries
from ddpify.launchers.held import held_in
from ddpify.launchers.model import Form, Launch
from ddpify.launchers.script import line_starts
from ddpify.launchers.shell import read_shell
from ddpify.rules.base import Finding, Severity
from ddpify.source import Site, Span

_RUNS = re.compile(r"\.py\b|-\w*m")
_ADVICE = (
    "Start it by hand with `torchrun --standalone --nproc_per_node=<processes>` "
    "in place of `python`."
)


def findings(
    path: str,
    text: str,
    entries: Collection[str],
    rule_id: str = "DDP002",
    files: Collection[str] = (),
) -> tuple[Finding, ...]:
    """What a launcher has to change to start ``entries`` with torchrun; see ``read_shell``."""
    found = launches(path, text, entries, files)
    return tuple(
        piece.placed(_finding(launch, rule_id))
        for piece, launch in found
        if not launch.already_torchrun
    )


def started(
    path: str, text: str, entries: Collection[str], files: Collection[str] = ()
) -> tuple[str, ...]:
    """Which of ``entries`` a launcher starts, in the order of its text."""
    found = launches(path, text, entries, files)
    return tuple(dict.fromkeys(launch.entry for _, launch in found))


def launches(
    path: str, text: str, entries: Collection[str], files: Collection[str]
) -> tuple[tuple[EmbeddedPiece, Launch], ...]:
    """The commands that start one of ``entries``, with the shell text their places are in."""
    return _known_launches(path, text, tuple(entries), tuple(files))


@lru_cache(maxsize=1024)  # asked for the advice and for the edits; a project has hundreds
def _known_launches(
    path: str, text: str, entries: tuple[str, ...], files: tuple[str, ...]
) -> tuple[tuple[EmbeddedPiece, Launch], ...]:
    return tuple(_launches(path, text, entries, files))


def _launches(
    path: str, text: str, entries: Collection[str], files: Collection[str]
) -> Iterator[tuple[EmbeddedPiece, Launch]]:
    for piece in pieces(path, text):
        if not _RUNS.search(piece.text):  # no parser for what cannot matter
            continue
        for launch in read_shell(path, piece.text, entries, files):
            if piece.holds(launch.site) and _meant(piece, launch):
                yield piece, _fitted(piece, launch)
    if kind_of(path) is LauncherKind.MAKE:
        yield from _held(path, text, LaunchEntries.of(entries, files))


def pieces(path: str, text: str) -> tuple[EmbeddedPiece, ...]:
    kind = kind_of(path)
    if kind is LauncherKind.MAKE:
        return makefile.pieces(path, text)
    if kind is LauncherKind.MARKDOWN:
        return markdown.pieces(path, text)
    return (EmbeddedPiece.whole(path, text),)


def _meant(piece: EmbeddedPiece, launch: Launch) -> bool:
    """Whether text that may be shell is a launch: `./main.py` may be a line of a listing."""
    if piece.certain:
        return True
    bare = launch.python is not None and launch.python.form is Form.PREFIX
    return not launch.unsupported and not bare


def _fitted(piece: EmbeddedPiece, launch: Launch) -> Launch:
    """``launch`` as the file that holds it can have it."""
    if piece.brief:
        launch = replace(launch, brief=True)
    if piece.lines:
        return launch
    nodes = replace(launch.nodes, above=None) if launch.nodes else None
    return replace(launch, above=None, counted=False, nodes=nodes)


def _held(path: str, text: str, entries: LaunchEntries) -> Iterator[tuple[EmbeddedPiece, Launch]]:
    """Launches that a makefile keeps as text."""
    for piece in makefile.held(path, text):
        entry = held_in(piece.text, entries)
        if entry is not None:
            problem = "the command is text that make fills in"
            yield piece, Launch(_all_of(piece), entry, unsupported=problem)


def _all_of(piece: EmbeddedPiece) -> Site:
    starts = line_starts(piece.text.rstrip())
    return Site(piece.path, Span(1, 0, len(starts), len(piece.text.rstrip()) - starts[-1]))


def _finding(launch: Launch, rule_id: str) -> Finding:
    fix = launch_edits(launch)
    message = f"starts {launch.entry} as one process; torchrun starts one process per GPU"
    if launch.unsupported:
        message = f"starts {launch.entry} without torchrun, and {launch.unsupported}"
    advice = "" if fix else _ADVICE
    # what documentation shows still works, on one process
    severity = Severity.NOTE if launch.brief else Severity.WARNING
    return Finding(rule_id, launch.site, message + launch.remark, severity, fix, advice)
