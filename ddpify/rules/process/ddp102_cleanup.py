"""DDP102: the process group is joined and never left."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.facts.model import Facts
from ddpify.ranks.model import RankThing
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, How, Rule, Severity
from ddpify.rules.edits import edit
from ddpify.rules.examples import BY_HAND, CORRECT, PROJECT, SCRIPT, changed
from ddpify.settings import Settings

ENDS = "ddpify.runtime.cleanup_distributed"
DESTROY = "torch.distributed.destroy_process_group"
OURS = "ddpify.runtime.setup_distributed"


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per setup without an end."""
    if facts.named(ENDS):
        return
    for call in facts.named(OURS)[:1]:
        last = facts.entry.guard[-1] if facts.entry.guard else facts.entry.last
        fix = (edit(facts, How.AFTER, last, "cleanup_distributed()"),)
        message = "the process group is joined and never left"
        yield Finding("DDP102", call.site, message, Severity.NOTE, fix)


def lint(run: Run) -> Iterable[Finding]:
    """Yield the opening of a group that nothing in the program leaves."""
    session = run.session
    if session is None or not run.script or run.frameworks or _left(run):
        return
    yield Finding(
        "DDP102",
        session.place,
        "the process group is joined and never left: some runs abort after their work is done",
        Severity.NOTE,
        advice="call torch.distributed.destroy_process_group() where the program ends normally",
    )


def _left(run: Run) -> bool:
    """Whether the group is left, or what leaves it is handed to something that calls it."""
    if not run.complete or any(run.named(DESTROY)):
        return True
    values = (v for call in run.calls for v in (*call.args, *call.kwargs.values()))
    return any(_leaves(thing) for value in values for thing in value.things)


def _leaves(thing: RankThing) -> bool:
    if thing.kind == "function":
        return "destroy_process_group" in thing.info.text
    return thing.name == DESTROY


RULE = Rule(
    "DDP102",
    "missing-cleanup",
    "A process that exits without destroy_process_group leaves its threads and sockets to the"
    " interpreter's shutdown: NCCL warns, and some runs abort after their work is done.",
    "pytorch#190489, PR#179291; BUGS L08",
    check,
    bad=(
        changed(
            SCRIPT,
            ("setup_distributed()\ndevice", "setup_distributed()  # DDP102\ndevice"),
            ("cleanup_distributed()\n", ""),
        ),
        changed(
            PROJECT,
            ("import distributed_session,", "import setup_distributed,"),
            (
                "    with distributed_session():\n        main()\n",
                "    setup_distributed()  # DDP102\n    main()\n",
            ),
        ),
        changed(
            BY_HAND,
            ('("nccl")\n', '("nccl")  # DDP102\n'),
            ("    dist.destroy_process_group()\n", ""),
        ),
    ),
    good=CORRECT,
    lint=lint,
    severity=Severity.NOTE,
)
