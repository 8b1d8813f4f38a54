"""One page that needs nothing else: verdict, checks, causes, curves, tables, the diff.

Everything a program printed is text in it (jinja2 escapes it); only the charts are markup.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ddpify import __version__
from ddpify.links import rule_page
from ddpify.names import HEADER_PREFIX
from ddpify.report.hunks import FileDiff, file_diffs
from ddpify.terminal import block
from ddpify.verify.checks.pairs import Worst
from ddpify.verify.recording import RunRecord
from ddpify.verify.report import charts, series, tables, words
from ddpify.verify.report.svg import MANY
from ddpify.verify.report.timeline import timeline
from ddpify.verify.verdict import Verdict, Verification

_WORDS: Final = {
    Verdict.PASS: "pass",
    Verdict.FAIL: "fail",
    Verdict.UNDECIDED: "undecided",
    Verdict.SKIPPED: "skipped",
    Verdict.INFO: "info",
}
_SIGNS: Final = {
    Verdict.PASS: "✓",
    Verdict.FAIL: "✗",
    Verdict.UNDECIDED: "?",
    Verdict.SKIPPED: "–",  # noqa: RUF001
    Verdict.INFO: "i",
}
_LAST_LINES = 200  # of what a process printed
_LONGEST = 2000  # characters of one printed line
_MOST_FILES = 200
_MOST_COLLECTIVES = 60


@dataclass(frozen=True)
class Tile:
    """A number at the top; ``note`` is a few words below it."""

    label: str
    value: str
    note: str


@dataclass(frozen=True)
class ProcessText:
    """A text of one process: its name, one line about it, and the text."""

    name: str
    note: str
    body: str


@dataclass(frozen=True)
class Changed:
    """A file of the migration; ``shown`` if it is open when the page is."""

    diff: FileDiff
    added: int
    removed: int
    shown: bool
    note: str


def render(verification: Verification) -> str:
    """The whole page."""
    folder = Path(__file__).parent
    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        line=words.printable,
        block=block,
        size=words.size,
        duration=words.duration,
        rule_page=rule_page,
    )
    page = environment.get_template("page.html.jinja").render(**_context(verification))
    return page.encode("utf-8", "replace").decode()


def _context(verification: Verification) -> dict[str, object]:
    collectives = tables.collective_rows(verification.distributed)
    files = tables.file_rows(verification)
    one, many = verification.reference.runs[:1], verification.distributed.runs
    differences = series.differences(one[0], many) if one else ()
    return {
        "version": __version__,
        "verification": verification,
        "verdict": words.verdict(verification).removesuffix("."),
        "settled": _WORDS[words.settled(verification)],
        "sign": _SIGNS[words.settled(verification)],
        "signs": {_WORDS[one]: _SIGNS[one] for one in Verdict},
        "limits": words.limits(verification),
        "compared": words.compared(verification),
        "commands": words.commands(verification),
        "counts": [(_WORDS[v], words.count(verification, v)) for v in Verdict],
        "words": {one: _WORDS[one] for one in Verdict},
        "tiles": tuple(_tiles(verification, differences)),
        "charts": charts.charts(verification, differences),
        "averaged": any(len(run.steps) > MANY for run in (*one, *many)),
        "ranks": tables.rank_rows(verification),
        "files": files[:_MOST_FILES],
        "more_files": max(len(files) - _MOST_FILES, 0),
        "collectives": collectives[:_MOST_COLLECTIVES],
        "more_collectives": max(len(collectives) - _MOST_COLLECTIVES, 0),
        "speeds": _speeds(verification),
        "speed_checks": [c for c in verification.checks if c.name == "speed"],
        "stopped": tuple(_stopped(verification)),
        "reasons": words.reasons(verification),
        "again": words.again(verification),
        "to_decide": words.to_decide(verification),
        "timeline": timeline(verification.distributed),
        "occasion": verification.occasion,
        "outputs": tuple(_outputs(verification)),
        "changes": _changes(verification),
        "status": words.status,
    }


def _tiles(verification: Verification, found: tuple[Worst, ...]) -> Iterator[Tile]:
    one, many = verification.reference.runs[:1], verification.distributed.runs
    value = _both(_counted(one), _counted(many))
    yield Tile("Optimizer steps", value, f"1 process and {len(many)} ranks")
    if found:
        worst = max(found, key=lambda each: each.difference)
        allowed = f"tolerance {verification.options.allowed:.0e}"
        yield Tile("Largest parameter difference", words.number(worst.difference, 2), allowed)
    losses = series.losses(one[0]) if one else series.Series.of(())
    mean = series.mean(tuple(series.losses(run) for run in many))
    common = sorted({*losses.steps.tolist()} & {*mean.steps.tolist()})
    if common:
        (ours,), (theirs,) = losses.at(common[-1:]), mean.at(common[-1:])
        value = _both(*(words.number(one or 0.0) for one in (ours, theirs)))
        yield Tile(f"Loss at step {common[-1]}", value, "1 process and mean of the ranks")
    before, after = (speed for _, speed in _speeds(verification))
    if before.step and after.step:
        value = f"{words.duration(before.step)} → {words.duration(after.step)}"
        yield Tile("Median step", value, "1 process and the slowest rank")


def _counted(runs: tuple[RunRecord, ...]) -> str:
    counts = sorted({len(run.steps) for run in runs})
    return f"{counts[0]:,} to {counts[-1]:,}" if len(counts) > 1 else f"{sum(counts):,}"


def _both(ours: str, theirs: str) -> str:
    return ours if ours == theirs else f"{ours} / {theirs}"


def _speeds(verification: Verification) -> tuple[tuple[str, tables.Speed], ...]:
    one, many = verification.reference, verification.distributed
    return ("1 process", tables.speed(one)), (f"{len(many.runs)} ranks", tables.speed(many))


def _runs(verification: Verification) -> Iterator[tuple[str, RunRecord]]:
    yield from (("1 process", run) for run in verification.reference.runs[:1])
    yield from ((f"rank {run.rank}", run) for run in verification.distributed.runs)


def _stopped(verification: Verification) -> Iterator[ProcessText]:
    """Where processes hung or crashed."""
    for name, run in _runs(verification):
        if run.stack or run.traceback or run.crashed:
            yield ProcessText(
                name, words.status(run), "\n".join(filter(None, (run.traceback, run.stack)))
            )
    job = verification.distributed
    if not job.finished and job.launcher_output.strip():
        yield ProcessText("torchrun", f"exit code {job.returncode}", _tail(job.launcher_output))


def _outputs(verification: Verification) -> Iterator[ProcessText]:
    """What each process printed; ``note`` counts lines."""
    for name, run in _runs(verification):
        for stream, text in (("stdout", run.stdout), ("stderr", run.stderr)):
            if text.strip():
                lines = words.plural(len(text.splitlines()), "line")
                yield ProcessText(f"{name}, {stream}", lines, _tail(text))


def _tail(text: str) -> str:
    lines = block(text).splitlines()
    kept = [f"{line[:_LONGEST]}…" if len(line) > _LONGEST else line for line in lines]
    if len(kept) <= _LAST_LINES:
        return "\n".join(kept)
    hidden = f"… {words.plural(len(kept) - _LAST_LINES, 'line')} before"
    return "\n".join([hidden, *kept[-_LAST_LINES:]])


def _changes(verification: Verification) -> tuple[Changed, ...]:
    """The files ddpify changed: the helpers it adds come last, folded."""
    if verification.migration is None:
        return ()
    found = (_changed(diff) for diff in file_diffs(verification.migration))
    return tuple(sorted(found, key=lambda changed: not changed.shown))


def _changed(diff: FileDiff) -> Changed:
    lines = [line for hunk in diff.hunks for line in hunk.lines]
    helpers = diff.is_new and "".join(lines[:1]).startswith(f"+{HEADER_PREFIX}")
    note = "new: the helpers that the migrated code calls" if helpers else "new" * diff.is_new
    added, removed = (sum(line.startswith(mark) for line in lines) for mark in "+-")
    return Changed(diff, added, removed, not helpers, note)
