"""Plain lines for people: what a migration did and what it leaves.

Places are written as an editor can follow them from the current folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ddpify.outcome import Account, Outcome, Refusal
from ddpify.report.concise import plural
from ddpify.roots import prefix as prefix

_NAMED = 3  # uses that were not followed, in the line that counts them


@dataclass(frozen=True)
class Left:
    """One thing that ddpify leaves to the user: where, and what."""

    place: str
    text: str


def refusal(one: Refusal, root: Path) -> str:
    """One line for standard error; a place in the project is reached from the current folder."""
    place = f"{one.site}: " if one.site and not one.message.startswith(one.site.path) else ""
    told = f"{place}{one.message}"
    file = Path(told.partition(":")[0])
    inside = not file.is_absolute() and (root / file).is_file()
    return f"ddpify: {prefix(root) if inside else ''}{told}"


def left_by_hand(outcome: Outcome, before: str = "") -> tuple[Left, ...]:
    """Findings that nothing fixes, and fixes that got in each other's way."""
    advice = (
        Left(f"{before}{found.site}", f"{found.rule} {found.message}. {found.advice}".rstrip(". "))
        for found in outcome.findings
        if not found.fix
    )
    clashes = (
        Left(f"{before}{clash.site}", f"{', '.join(clash.rules)} {clash.message}")
        for clash in outcome.clashes
    )
    return (*advice, *clashes)


def commands(outcome: Outcome, before: str = "") -> tuple[str, ...]:
    """The line that starts each entry on every GPU of this machine."""
    start = "python" if outcome.starts_itself else "torchrun --standalone --nproc_per_node=gpu"
    return tuple(f"{start} {before}{entry}" for entry in outcome.entries)


def summary(outcome: Outcome, before: str = "", written: Sequence[Path] | None = None) -> str:
    """The written files (None: none were meant to be), how to run them, what is left to do."""
    lines: list[str] = []
    if written is not None:
        lines += _section(f"Wrote {plural(len(written), 'file')}", map(_shown, written))
        lines += _section("Run it (arguments as before)", commands(outcome, before))
    by_hand = left_by_hand(outcome, before)
    lines += _section("Left to do by hand", (f"{left.place}: {left.text}" for left in by_hand))
    notes = (f"{before}{note.site}: {note.message}" for note in outcome.notes)
    lines += _section("Notes", notes)
    lines += [followed(outcome.account, before)] if outcome.account is not None else []
    return "".join(f"{line}\n" for line in lines)


def followed(account: Account, before: str = "") -> str:
    """The line that counts: how many uses of tracked values were followed, and which were not."""
    counted = f"{plural(account.uses, 'use')} of {plural(account.values, 'value')} followed"
    if not account.left:
        return f"{counted}; none is left out."
    named = [f"{before}{note.site} {note.message}" for note in account.left[:_NAMED]]
    more = len(account.left) - len(named)
    rest = f", and {more} more" if more else ""
    return f"{counted}; {len(account.left)} not: {', '.join(named)}{rest}."


def _section(title: str, items: Iterator[str] | Sequence[str]) -> Iterator[str]:
    rows = [f"  {item}" for item in items]
    if rows:
        yield f"{title}:"
        yield from rows


def _shown(path: Path) -> str:
    way = os.path.relpath(path)
    return str(path) if way.startswith("..") else way
