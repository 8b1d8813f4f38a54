"""DDP502: every rank writes the same file."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.facts.effects import LOG_SET_UP, EffectKind
from ddpify.facts.events import Call
from ddpify.facts.model import Facts
from ddpify.ranks.model import RankCall
from ddpify.ranks.run import Run
from ddpify.rules.base import Edit, Finding, How, Rule, Severity
from ddpify.rules.edits import MAIN, edit, gate, once
from ddpify.rules.effects.effects import gated, opened
from ddpify.rules.effects.log_levels import by_rank
from ddpify.rules.effects.one_adds import one_adds
from ddpify.rules.effects.read_back import is_read, read_only
from ddpify.rules.examples import BY_HAND, CORRECT, SCRIPT, SINGLE, TRAINER, changed
from ddpify.rules.shared.beginnings import same_beginning
from ddpify.rules.shared.brought import brought_before
from ddpify.rules.shared.hook_parts import is_part
from ddpify.rules.shared.meetings import (
    at_once,
    done_before,
    read_behind,
)
from ddpify.rules.shared.outputs import (
    SAME,
    Write,
    adds,
    by_all,
    copies_console,
    difference,
    files,
    its_own,
    only_wipes,
    unequal,
)
from ddpify.rules.shared.rank_zero import named_apart, on_rank_zero
from ddpify.rules.shared.taken import tables
from ddpify.settings import Settings

MESSAGE = "every rank would write this file"


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per file that all ranks write or open for writing."""
    yield from gated(facts, "DDP502", (EffectKind.FILE,), MESSAGE, Severity.ERROR)
    opens = tuple(
        e.call
        for e in facts.effects
        if e.kind in (EffectKind.OPEN, EffectKind.LOGGING_FILE)
        and e.call.where.function not in facts.helpers
    )
    for site, calls in once(opens).items():
        if all(c.where.one_rank() for c in calls):
            continue
        fix = _fix(facts, calls[0])
        yield Finding(
            "DDP502", site, MESSAGE, Severity.ERROR, fix, "" if fix else "open it on rank 0 only"
        )


def _fix(facts: Facts, call: Call) -> tuple[Edit, ...]:
    if call.name == "logging.basicConfig" or call.name in LOG_SET_UP:
        return (gate(facts, call.where.statement),)
    if call.name.startswith("logging."):
        code = f"{{}} if {MAIN} else {call.name.split('.')[0]}.NullHandler()"
        return (edit(facts, How.REPLACE, call.site, code),)
    if is_read(facts, call):
        return read_only(facts, call)
    return (opened(facts, call),)


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per file that every rank writes under one path."""
    for write in files(run):
        if (its_own(run, write) and not named_apart(run, write.path)) or not by_all(
            run, write.call
        ):
            continue
        if same_beginning(run, write.call) or _is_done(run, write):
            continue
        if _is_quiet(run, write.call) or only_wipes(write.call):
            continue
        if adds(write.call) and one_adds(run, write.call):
            continue
        if write.path is not None and is_part(run, write.path):
            continue  # named by the samples that Lightning deals
        if at_once(run, write.call) and not copies_console(run, write.call):
            damaged = unequal(run, write)
            severity, what = _DAMAGE if damaged else _RACE if _is_used(run, write) else _AGAIN
            yield Finding(
                "DDP502",
                write.call.site,
                f"every rank writes this file: {what}",
                severity,
                on_rank_zero(run, write.call),
                "write it on the rank with number 0 only, or put the rank into its name",
                difference(run, write) if damaged else (),
            )

    for call in tables(run):
        yield Finding(
            "DDP502",
            call.site,
            "every rank makes this table in one file: those that come second fail",
            Severity.ERROR,
            advice="say `create table if not exists`, or make it on one rank and let all wait",
        )


_DAMAGE = (Severity.ERROR, "what one has written is lost or repeated")
_RACE = (Severity.WARNING, SAME)
_AGAIN = (Severity.NOTE, "the same contents, as far as is seen")


def _is_done(run: Run, write: Write) -> bool:
    """Whether the file is there by then, though it is asked for once more."""
    return done_before(run, write.call) or brought_before(run, write.call, write.path)


def _is_used(run: Run, write: Write) -> bool:
    """Whether equal contents are not all that counts: some ranks may read what others truncate, or
    it stays open for what each has to say. What is written where it is missing, once, is as good
    as any: unless it is read behind that."""
    call = write.call
    if call.name.startswith("logging."):
        return True
    return write.path is not None and read_behind(run, call, write.path)


def _is_quiet(run: Run, call: RankCall) -> bool:
    """Whether a log is opened by all and written by one, as its loggers are stopped elsewhere."""
    if not call.name.startswith("logging."):
        return False
    return run.once(by_rank) or any(_is_main_s(one, call) for one in run.methods("addHandler"))


def _is_main_s(adding: RankCall, call: RankCall) -> bool:
    """Whether a log is given to a logger of Accelerate, which only the main process writes to."""
    made = call.result.things if call.result is not None else ()
    owners = adding.receiver.sources() if adding.receiver is not None else ()
    given = {thing for value in adding.given for thing in value.things}
    return not given.isdisjoint(made) and any(
        thing.name.startswith("accelerate.logging.get_logger") for thing in owners
    )


RULE = Rule(
    "DDP502",
    "file-on-every-rank",
    "N processes that open one path truncate and interleave each other's writes; the file ends up"
    " with lines repeated or lost. Where all write the same at once and nothing is seen to read it,"
    " it is a note.",
    "baby-llama2#56; BUGS K01, M07",
    check,
    bad=(
        changed(
            SINGLE,
            ("import argparse\n", "import argparse\nfrom pathlib import Path\n"),
            (
                '        print("round"',
                '        with (Path("out") / "now.txt").open("w") as book:  # DDP502\n'
                "            book.write(str(round_))\n"
                '        print("round"',
            ),
        ),
        changed(  # off today
            SINGLE,
            ("import argparse\n", "import argparse\nfrom pathlib import Path\n"),
            ("def accuracy", "KEEP = False\n\n\ndef accuracy"),
            (
                '        print("round"',
                "        if KEEP:\n"
                '            Path("now.txt").write_text("now")  # DDP502\n'
                '        print("round"',
            ),
        ),
        changed(
            TRAINER,
            (
                "            if is_main_process():\n"
                '                with open(f"{self.folder}/diary.txt", "a") as diary:\n'
                '                    diary.write(f"{number}\\n")\n',
                '            with open(f"{self.folder}/diary.txt", "a") as diary:  # DDP502\n'
                '                diary.write(f"{number}\\n")\n',
            ),
        ),
        changed(
            SCRIPT,
            ("import torch\nimport", "import json\n\nimport torch\nimport"),
            (
                "    if is_main_process():\n        print(n, running / len(feed))\n",
                '    json.dump(running, open("running.json", "w"))  # DDP502\n',
            ),
        ),
        changed(  # a path's own `open`
            SCRIPT,
            ("import torch\nimport", "from pathlib import Path\n\nimport torch\nimport"),
            (
                "    if is_main_process():\n        print(n, running / len(feed))\n",
                '    with Path("now.txt").open("wt") as now:  # DDP502\n'
                "        now.write(str(running))\n",
            ),
        ),
        changed(
            SINGLE,
            ("import argparse\n", "import argparse\nimport json\nimport logging.config\n"),
            (
                "    opt = parser",
                '    logging.config.dictConfig(json.load(open("log.json")))  # DDP502\n'
                "    opt = parser",
            ),
        ),
        changed(
            BY_HAND,
            ("import os\n", "import logging\nimport os\n"),
            (
                "    gpu = int",
                '    logging.basicConfig(filename="train.log")  # DDP502\n    gpu = int',
            ),
        ),
    ),
    good=(
        *CORRECT,
        changed(SCRIPT, ("device = ", 'options = open("options.txt").read()\ndevice = ')),
    ),
    lint=lint,
    words=(
        "open(",
        "memmap(",
        "execute(",
        "executescript(",
        "addFilter",
        "basicConfig",
        "FileHandler",
        "savetxt",
        "savez",
        "savefig",
        "imwrite",
        "shutil.",
        "write_text",
        ".write(",
    ),
)
