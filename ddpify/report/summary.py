"""What a migration comes to, for people: what changed, what it leaves, and what to do next."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ddpify.outcome import Outcome
from ddpify.report import kinds
from ddpify.report.concise import plural
from ddpify.report.hunks import file_diffs
from ddpify.report.spelled import placed, spelled
from ddpify.report.text import commands, followed, left_by_hand

_STEPS = "20"
_TODOS = "Left to do by hand, marked `# ddpify: TODO`; until it is done the program does not start"
_PROOF = "Prove it (one process against two, in scratch copies; without --steps: the whole run)"


def planned(outcome: Outcome, before: str = "", command: str = "") -> str:
    """After a diff: lines are those of the files as they are; ``command`` writes what it shows."""
    lines = [*_changed(outcome, before), *_left(outcome, before, written=False)]
    if outcome.changes and command:
        lines += _section("Nothing is written yet; this does it", [command])
    return _joined(lines)


def done(
    outcome: Outcome,
    before: str = "",
    written: Sequence[Path] = (),
    baseline: str = "",
    start: Sequence[str] = (),
) -> str:
    """After writing: lines are those of the written files.

    ``baseline`` is the folder that holds the original, if it is not what git has; ``start`` are
    the commands, where they are others than from here.
    """
    lines: list[str] = []
    if written:
        lines += _section(f"Wrote {plural(len(written), 'file')}", map(_shown, written))
    lines += [*_changed(outcome, before), *_left(outcome, before, written=True)]
    if outcome.todos:
        again = shlex.join(["ddpify", "migrate", *_entries(outcome, before), "--inplace"])
        lines += _section("Once that is done and the comments are gone", [again])
    elif outcome.changes:
        lines += _section("Run it (arguments as before)", start or commands(outcome, before))
        lines += _section("On several nodes", outcome.on_nodes)
        lines += _section(_PROOF, proofs(outcome, before, baseline))
    return _joined(lines)


def proofs(outcome: Outcome, before: str = "", baseline: str = "") -> Iterator[str]:
    """The line that proves each entry, with the arguments that a launcher gives it."""
    given = dict(outcome.arguments)
    against = ["--baseline", baseline] if baseline else []
    for entry in outcome.entries:
        own = ["--", *given[entry]] if given.get(entry) else []
        words = ["ddpify", "verify", placed(before, entry), *against, "--steps", _STEPS, *own]
        yield shlex.join(words)


def _entries(outcome: Outcome, before: str) -> list[str]:
    return [placed(before, one) for one in outcome.entries]


def _changed(outcome: Outcome, before: str) -> Iterator[str]:
    diffs = file_diffs(outcome)
    if not diffs:
        names = ", ".join(_entries(outcome, before)) or "this project"
        yield f"Nothing to change in {names}."
        return
    hunks = plural(sum(len(diff.hunks) for diff in diffs), "hunk")
    title = f"{hunks} in {plural(len(diffs), 'file')}, by kind (`ddpify rule CODE` explains)"
    yield from _section(title, kinds.lines(diffs))


def _left(outcome: Outcome, before: str, *, written: bool) -> Iterator[str]:
    """What is not as before, what is left to do, and what was not followed."""
    told = spelled(outcome, before, written=written)
    by_hand = (f"{left.place}: {left.text}" for left in left_by_hand(outcome))
    notes = (f"{note.site}: {note.message}" for note in outcome.notes)
    todos = (
        f"{placed(before, one.site.path)}:{one.site.span.line}: {told(one.message)}"
        for one in outcome.todos
    )
    yield from _section(_TODOS, todos)
    yield from _section("Not the same as in one process", map(told, outcome.differences))
    yield from _section("Left to do by hand", map(told, by_hand))
    yield from _section("Notes", map(told, notes))
    if outcome.account is not None:
        yield told(followed(outcome.account))


def _section(title: str, items: Iterable[str]) -> Iterator[str]:
    rows = [f"  {item}" for item in items]
    if rows:
        yield f"{title}:"
        yield from rows


def _shown(path: Path) -> str:
    way = os.path.relpath(path)
    return str(path) if way.startswith("..") else way


def _joined(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
