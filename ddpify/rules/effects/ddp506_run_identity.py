"""DDP506: the run's name comes from the clock or the disk and differs between ranks."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.facts.effects import EffectKind
from ddpify.facts.events import Bind, Call
from ddpify.facts.joining import flat_deps
from ddpify.facts.model import Facts
from ddpify.facts.values import Kind, Thing, Value
from ddpify.names import OF_CHECKPOINTS
from ddpify.ranks.model import RANK0
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, How, Rule, Severity
from ddpify.rules.edits import edit, is_local
from ddpify.rules.effects.own_names import apart, scattered, unmade
from ddpify.rules.examples import CORRECT, SCRIPT, SINGLE, TRAINER, changed
from ddpify.settings import Settings
from ddpify.site import Site

PATH_ARGUMENT = {EffectKind.OPEN: 0, EffectKind.DIRECTORY: 0, EffectKind.CHECKPOINT: 1}


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per clock reading that ends up in a path."""
    clocks: dict[Thing, Call] = {}
    for call, path in _paths(facts):
        for thing in flat_deps(path):
            if thing.kind is Kind.CLOCK and not _is_own(thing, call):
                clocks.setdefault(thing, call)
    for clock, user in clocks.items():
        yield Finding(
            "DDP506",
            clock.born,
            "the clock differs between ranks, and so would this path",
            Severity.ERROR,
            (edit(facts, How.REPLACE, clock.born, "broadcast({})"),),
            because=((user.site, "used as a path"),),
        )
    yield from _of_hydra(facts)
    yield from _free_names(facts)


def _free_names(facts: Facts) -> Iterable[Finding]:
    """``while os.path.exists(f"run{n}"): n += 1``: rank 0 takes the name that others see taken."""
    once = {effect.call.site for effect in facts.effects}
    once |= {call.site for call in facts.calls if call.target in facts.helpers}
    alone = {
        call.site
        for call in facts.calls
        if call.where.one_rank()  # `open(free_name(), "w")` is rank 0's own affair, too
        or any(at.within(one) for at in (call.site, *call.where.stack) for one in once)
    }
    done: set[Site] = set()
    for bind in facts.binds:
        own = bind.where.function  # what its callers asked is of names of theirs
        guards = bind.where.conditions()
        guards = tuple(g for g in guards if own is None or g.site.within(own.site))
        for asked in {t.born for guard in guards for t in guard.test.dep(Kind.FILES)}:
            if asked not in done and asked not in alone and _says(facts, asked, bind.target):
                done.add(asked)
                yield _taken(facts, asked, bind)


def _says(facts: Facts, site: Site, name: str) -> bool:
    tree = facts.tree(site)
    node = tree.expression(site)
    return node is not None and name in tree.names(node)


def _taken(facts: Facts, asked: Site, bind: Bind) -> Finding:
    guards = (g for call in facts.calls if call.site == asked for g in call.where.guards)
    local = any(is_local(facts, guard.test) for guard in guards)
    return Finding(
        "DDP506",
        asked,
        "each rank would look for a free name: others find that rank 0 has taken it",
        Severity.ERROR,
        () if local else (edit(facts, How.REPLACE, asked, "broadcast({})"),),
        "look on rank 0, and broadcast the name" if local else "",
        because=((bind.site, "another name is tried here"),),
    )


def _of_hydra(facts: Facts) -> Iterable[Finding]:
    """``@hydra.main()`` makes a folder that it names by the clock before any of this runs."""
    for call in facts.calls:
        if call.target is not None and call.target.decorated_with("hydra.main"):
            yield Finding(
                "DDP506",
                call.site,
                "hydra names the folder of the run by each rank's own clock",
                Severity.WARNING,
                (),
                "start it with hydra.run.dir=FOLDER, the same on all ranks",
            )


def _is_own(clock: Thing, call: Call) -> bool:
    """``open(f"{time.time()}.txt", "w")``: rank 0 alone reads the clock, and hands nothing on.

    It would wait in a broadcast for the others, who do not open the file.
    """
    collective = call.name in ("torch.save", *OF_CHECKPOINTS)
    return clock.born.within(call.site) and not collective


def _paths(facts: Facts) -> list[tuple[Call, Value]]:
    found = []
    for effect in facts.effects:
        call = effect.call
        if effect.kind in PATH_ARGUMENT:
            position = PATH_ARGUMENT[effect.kind]
            path = call.args[position] if len(call.args) > position else None
            if call.name == ".mkdir" and call.receiver is not None:
                path = call.receiver
            if path is not None:
                found.append((call, path))
    for call in facts.named(*OF_CHECKPOINTS):
        if len(call.args) > 1:
            found.append((call, call.args[1]))
    for call in facts.calls:
        if call.result.of(Kind.TRACKER) and call.name.endswith("SummaryWriter"):
            where = call.arg(0, "log_dir") or call.arg(0, "logdir")
            if where is not None:
                found.append((call, where))
    return found


_LATE = (
    "each rank names this file for itself: others look for rank 0's in vain",
    "rank 0 writes it",
    "all read it",
)
_SPREAD = (
    "each rank names this folder for itself: rank 0 looks for the others' files in its own",
    "each rank writes its part",
    "all parts are looked for here",
)
_SCATTERED = "each rank names this folder for itself: parts of one checkpoint lie in several"

_UNMADE = (
    "each rank names this folder for itself: the others write into one that nobody has made",
    "one rank makes its own",
    "each rank writes into what it calls so",
)


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per name of a file that ranks give for themselves and others look for."""
    for own, write, read in apart(run):
        message, here, there = _LATE if write.ranks == RANK0 else _SPREAD
        yield _own_name(own.site, message, Severity.ERROR, (write.place, here), (read.site, there))
    for own, write in scattered(run):
        yield _own_name(own.site, _SCATTERED, Severity.WARNING, (write.place, _SPREAD[1]))
    for own, making, write in unmade(run):
        because = (making.place, _UNMADE[1]), (write.place, _UNMADE[2])
        yield _own_name(own.site, _UNMADE[0], Severity.WARNING, *because)


def _own_name(site: Site, message: str, severity: Severity, *because: tuple[Site, str]) -> Finding:
    advice = "broadcast the name from rank 0"
    return Finding("DDP506", site, message, severity, advice=advice, because=because)


NUMBERED = (
    ("import torch\nimport", "import os\n\nimport torch\nimport"),
    (
        "fork_random_streams()\nfor",
        'run = "run1"\nwhile os.path.exists(run):  # DDP506\n    run += "1"\n'
        "if is_main_process():\n    os.mkdir(run)\nfork_random_streams()\nfor",
    ),
    ('"net.pt")', 'f"{run}/net.pt")'),
)

RULE = Rule(
    "DDP506",
    "run-name-from-clock",
    "Ranks start at slightly different times (measured: milliseconds apart): a run directory named"
    " from the clock may be another directory on each rank, and one named by a random id is. Who"
    " resumes or reads looks in the wrong one.",
    "PATTERNS B2.21; BUGS K03",
    check,
    bad=(
        changed(
            TRAINER,
            ("import argparse\n", "import argparse\nimport time\n"),
            (
                "Tutor(streams, flags.folder)\n",
                'Tutor(streams, "runs/" + time.strftime("%H%M%S"))  # DDP506\n',
            ),
        ),
        changed(
            SCRIPT,
            ("import torch\nimport", "from datetime import datetime\n\nimport torch\nimport"),
            (
                "fork_random_streams()\nfor",
                "moment = datetime.now()  # DDP506\nfork_random_streams()\nfor",
            ),
            ('"net.pt")', 'f"net-{moment:%H%M}.pt")'),
        ),
        changed(SCRIPT, *NUMBERED),
    ),
    lint=lint,
    words=("strftime", "datetime.now", "time.time()", "mkdtemp", "TemporaryDirectory"),
    good=(
        *CORRECT,
        changed(
            SCRIPT,
            *NUMBERED,
            (
                "while os.path.exists(run):  # DDP506",
                "while broadcast(os.path.exists(run)):",
            ),
            ("    begin_epoch,\n", "    begin_epoch,\n    broadcast,\n"),
        ),
        changed(  # rank 0 alone reads the clock
            SINGLE,
            ("import torch\n", "import time\n\nimport torch\n"),
            ("    adam =", '    open(f"{time.time()}.txt", "w").write("begun")\n    adam ='),
        ),
        changed(
            TRAINER,
            ("import argparse\n", "import argparse\nimport time\n"),
            ("import distributed_sampler,", "import broadcast, distributed_sampler,"),
            (
                "Tutor(streams, flags.folder)",
                'Tutor(streams, "runs/" + broadcast(time.strftime("%H%M%S")))',
            ),
        ),
        changed(  # measured, not named
            SCRIPT,
            ("import torch\nimport", "import time\n\nimport torch\nimport"),
            ("print(n, ", "print(time.time(), n, "),
        ),
    ),
)
