"""DDP507: every rank asks at the terminal."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.facts.events import Call
from ddpify.facts.model import Facts
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, How, Rule, Severity
from ddpify.rules.edits import MAIN, edit, is_local, once
from ddpify.rules.examples import CORRECT, SCRIPT, SINGLE, changed
from ddpify.rules.shared.beginnings import before_launch
from ddpify.rules.shared.outputs import by_all
from ddpify.settings import Settings

ASKS = ("builtins.input", "getpass.getpass")


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per question that all ranks would ask."""
    for site, calls in once(facts.named(*ASKS)).items():
        if all(call.where.one_rank() for call in calls):
            continue
        early = any(_before_session(facts, call) for call in calls)
        local = any(is_local(facts, g.test) for call in calls for g in call.where.guards)
        code = f"broadcast({{}} if {MAIN} else None)"
        yield Finding(
            "DDP507",
            site,
            "every rank would ask, and each take another line of the answers, or wait for one",
            Severity.ERROR,
            () if early or local else (edit(facts, How.REPLACE, site, code),),
            "take the answer from the command line" if early or local else "",
        )


def _before_session(facts: Facts, call: Call) -> bool:
    """Whether a file asks while it is imported, or before the guard of the entry."""
    first = call.where.stack[0] if call.where.stack else call.site
    guard = facts.entry.guard
    if first.path != facts.entry.path:
        return True
    return bool(guard) and not any(first.within(statement) for statement in guard)


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per question that all processes of a job ask."""
    for call in run.named(*ASKS):
        if by_all(run, call) and not before_launch(run, call):
            yield Finding(
                "DDP507",
                call.site,
                "every rank asks: each takes another line of the answers, or waits for one",
                Severity.ERROR,
                advice="ask on rank 0, and broadcast the answer",
            )


RULE = Rule(
    "DDP507",
    "asked-on-every-rank",
    "torchrun gives all processes the same standard input: a question is asked N times, an answer"
    " goes to whoever reads first, and the others wait for more. Rank 0 asks and tells the rest.",
    "torch.distributed.run; lot 5, BERT4Rec-VAE-Pytorch",
    check,
    lint=lint,
    words=("input(", "getpass("),
    bad=(
        changed(
            SINGLE,
            ("    adam = ", '    again = input("Again? ") == "y"  # DDP507\n    adam = '),
            ("range(5)", "range(5 if again else 1)"),
        ),
        changed(
            SCRIPT,
            (
                "fork_random_streams()\nfor",
                'name = input("Name: ")  # DDP507\nfork_random_streams()\nfor',
            ),
            ('"net.pt")', 'f"{name}.pt")'),
        ),
    ),
    good=(
        *CORRECT,
        changed(
            SCRIPT,
            (
                "fork_random_streams()\nfor",
                'name = broadcast(input("Name: ") if is_main_process() else None)\n'
                "fork_random_streams()\nfor",
            ),
            ("    begin_epoch,\n", "    begin_epoch,\n    broadcast,\n"),
            ('"net.pt")', 'f"{name}.pt")'),
        ),
    ),
)
