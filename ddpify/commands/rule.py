"""``ddpify rule``: what a code means."""

from __future__ import annotations

import click

from ddpify.commands.completion import rule_codes
from ddpify.commands.shared import CLEAN, Stop


@click.command()
@click.argument("code", required=False, shell_complete=rule_codes)
@click.option("--all", "everything", is_flag=True, help="All rules, as one page.")
@click.option(
    "--output-format",
    "--format",
    "form",
    type=click.Choice(("text", "json")),
    default="text",
    show_default=True,
    help="Markdown, or JSON for programs.",
)
def rule(code: str | None, everything: bool, form: str) -> int:
    """Explain the rule CODE: what happens if it is broken, with a wrong and a right program.

    CODE may also be the rule's number or its name.

    Example: ddpify rule DDP801, ddpify rule 801, ddpify rule collective-on-some-ranks
    """
    if bool(code) is everything:
        raise Stop("name a rule's code, or give --all.")
    from ddpify.checking.lookup import looked_up, suggested
    from ddpify.report import rule as report

    chosen = looked_up(code)
    if not chosen:
        others = suggested(code or "")
        hint = f"; near: {', '.join(others)}" if others else "; `ddpify rule --all` lists all"
        raise Stop(f"there is no rule {code}{hint}")
    if form == "json":
        click.echo(report.render_json(chosen, everything), nl=False)
    else:
        click.echo(report.pages(chosen) if everything else report.page(chosen[0]), nl=False)
    return CLEAN
