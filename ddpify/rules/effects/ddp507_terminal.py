"""DDP507: every rank asks at the terminal."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.facts.events import Call
from ddpify.facts.model import Facts
from ddpify.facts.scopes import Guard
from ddpify.facts.values import OF_ONE_RANK, Kind
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, How, Rule, Severity
from ddpify.rules.edits import MAIN, edit, is_local, is_whole_test, once
from ddpify.rules.effects.collectives import ASKS, questions
from ddpify.rules.examples import CORRECT, SCRIPT, SINGLE, changed
from ddpify.rules.shared.beginnings import before_launch
from ddpify.rules.shared.meetings import done_before
from ddpify.rules.shared.outputs import by_all
from ddpify.settings import Settings


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per question that all ranks would ask."""
    for site, calls in once(tuple(questions(facts))).items():
        early = any(_before_session(facts, call) for call in calls)
        guards = dict.fromkeys(guard for call in calls for guard in call.where.guards)
        code = f"broadcast({{}} if {MAIN} else None)"
        told = [edit(facts, How.REPLACE, site, code)]
        told += [edit(facts, How.REPLACE, g.site, "broadcast({})") for g in guards if _looks(g)]
        apart = any(_parts(facts, guard) for guard in guards)
        yield Finding(
            "DDP507",
            site,
            "every rank would ask, and each take another line of the answers, or wait for one",
            Severity.ERROR,
            () if early or apart else tuple(told),
            "take the answer from the command line" if early or apart else "",
        )


def _looks(guard: Guard) -> bool:
    """Whether each rank looks for itself what is on the disk: rank 0 may have made it already."""
    return {thing.kind for thing in guard.test.dep(*OF_ONE_RANK)} == {Kind.FILES}


def _parts(facts: Facts, guard: Guard) -> bool:
    """Whether some ranks alone may come to a question, and rank 0 cannot tell them."""
    disk = _looks(guard) and not is_whole_test(facts, guard.site)
    return disk or is_local(facts, guard.test)


def _before_session(facts: Facts, call: Call) -> bool:
    """Whether a file asks while it is imported, or before the guard of the entry."""
    first = call.where.stack[0] if call.where.stack else call.site
    guard = facts.entry.guard
    if first.path != facts.entry.path:
        return True
    return bool(guard) and not any(first.within(statement) for statement in guard)


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per question that all processes of a job ask; a note, for what asks is
    meant for one process: of four such reports in public programs none was right."""
    for call in run.named(*ASKS):
        asked = before_launch(run, call) or done_before(run, call)
        if by_all(run, call) and not asked:
            yield Finding(
                "DDP507",
                call.site,
                "every rank asks: each takes another line of the answers, or waits for one",
                Severity.NOTE,
                advice="ask on rank 0, and broadcast the answer",
            )


RULE = Rule(
    "DDP507",
    "asked-on-every-rank",
    "torchrun gives all processes the same standard input: a question is asked N times, an answer"
    " goes to whoever reads first, and the others wait for more. Rank 0 asks and tells the rest."
    " What asks is mostly meant for one process, so that it is a note.",
    "torch.distributed.run; lot 5, BERT4Rec-VAE-Pytorch",
    check,
    lint=lint,
    words=("input(", "getpass("),
    severity=Severity.NOTE,
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
        changed(  # rank 0 may have made the folder when another looks: all go by what rank 0 saw
            SINGLE,
            ("import argparse\n", "import argparse\nimport os\nimport shutil\n"),
            (
                "    adam = ",
                '    if os.path.exists("kept"):\n'
                '        if opt.ema or input("Remove? ") == "y":  # DDP507\n'
                '            shutil.rmtree("kept")\n'
                '            os.makedirs("kept/new")  # DDP503\n'
                '    else:\n        os.makedirs("kept")  # DDP503\n    adam = ',
            ),
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
