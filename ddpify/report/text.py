"""Plain lines for people: refusals, what is left to do, what was followed.

Places are those of the project (``spelled`` turns them into those an editor can follow).
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from ddpify.outcome import Account, Outcome, Refusal
from ddpify.report.concise import plural
from ddpify.report.spelled import placed
from ddpify.roots import prefix as prefix

_NAMED = 3  # uses that were not followed, in the line that counts them


@dataclass(frozen=True)
class Left:
    """One thing that ddpify leaves to the user: where, and what."""

    place: str
    text: str


def refusal(one: Refusal) -> str:
    """One line for standard error; its places are those of the project."""
    place = f"{one.site}: " if one.site and not one.message.startswith(one.site.path) else ""
    return f"ddpify: {place}{one.message}"


def left_by_hand(outcome: Outcome) -> tuple[Left, ...]:
    """Findings that nothing fixes, and fixes that got in each other's way."""
    advice = (
        Left(str(found.site), f"{found.rule} {found.message}. {found.advice}".rstrip(". "))
        for found in outcome.findings
        if not found.fix
    )
    clashes = (
        Left(str(clash.site), f"{', '.join(clash.rules)} {clash.message}")
        for clash in outcome.clashes
    )
    return (*advice, *clashes)


def commands(outcome: Outcome, before: str = "", folder: str = "") -> tuple[str, ...]:
    """The line that starts each entry on every GPU of this machine, to be pasted.

    In ``folder`` if it is given; ``before`` leads to the project, from there.
    """
    start = "python" if outcome.starts_itself else "torchrun --standalone --nproc_per_node=gpu"
    go = f"cd {shlex.quote(folder)} && " if folder else ""
    named = (shlex.quote(placed(before, entry)) for entry in outcome.entries)
    return tuple(f"{go}{start} {name}" for name in named)


def followed(account: Account) -> str:
    """The line that counts: how many uses of tracked values were followed, and which were not."""
    counted = f"{plural(account.uses, 'use')} of {plural(account.values, 'value')} followed"
    if not account.left:
        return f"{counted}; none is left out."
    named = [f"{note.site} {note.message}" for note in account.left[:_NAMED]]
    more = len(account.left) - len(named)
    rest = f", and {more} more" if more else ""
    return f"{counted}; {len(account.left)} not: {', '.join(named)}{rest}."
