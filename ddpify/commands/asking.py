"""``migrate --interactive``: each change is asked for, by rule, as ``git add -p`` asks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from ddpify.commands.shared import CLEAN

if TYPE_CHECKING:
    from ddpify.choosing import Proposal

_HELP = """\
y - make this change
n - leave it out
a - make this change and all later ones of this rule
d - leave out this change and all later ones of this rule
q - quit; nothing is written
? - print this
What is left out and has to be done is marked `# ddpify: TODO`: the program does not start then.
"""


def asked(choices: Sequence[Proposal], root: Path, color: bool) -> tuple[Proposal, ...]:
    """The changes that are wanted; ends the run where the user quits."""
    taken: list[Proposal] = []
    settled: dict[str, bool] = {}
    for number, one in enumerate(choices, 1):
        if one.rule not in settled:
            answer = _answer(one, f"({number}/{len(choices)})", root, color)
            if answer in "ad":
                settled[one.rule] = answer == "a"
            wanted = answer in "ya"
        else:
            wanted = settled[one.rule]
        taken += [one] * wanted
    return tuple(taken)


def leave() -> NoReturn:
    """End the run: nothing was chosen."""
    click.echo("Nothing was chosen: nothing is written.", err=True)
    click.get_current_context().exit(CLEAN)


def _answer(one: Proposal, count: str, root: Path, color: bool) -> str:
    _show(one, root, color)
    while True:
        prompt = f"{count} {one.rule}: make this change [y,n,a,d,q,?]?"
        said = click.prompt(prompt, default="?", show_default=False, prompt_suffix=" ", err=True)
        answer = str(said).strip().lower()[:1]
        if answer == "q":
            leave()
        if answer and answer in "ynad":
            return answer
        click.echo(_HELP, nl=False, err=True)


def _show(one: Proposal, root: Path, color: bool) -> None:
    from ddpify.outcome import Outcome
    from ddpify.report import diff
    from ddpify.roots import prefix

    for finding in one.findings:
        told = f"{finding.rule} {prefix(root)}{finding.site}: {finding.message}"
        click.echo(click.style(told, bold=True) if color else told, err=True)
    text = diff.render(Outcome(root, (), changes=one.changes), prefix(root), color=color)
    click.echo(text, nl=False, err=True, color=color)
