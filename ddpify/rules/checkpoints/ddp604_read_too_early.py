"""DDP604: all ranks read a file that rank 0 may still be writing."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

from ddpify.facts.effects import EffectKind
from ddpify.facts.events import Call
from ddpify.facts.model import Facts
from ddpify.facts.roles import backwards
from ddpify.facts.values import Kind
from ddpify.names import COLLECTIVES
from ddpify.ranks.model import RankCall
from ddpify.ranks.run import Run
from ddpify.rules.base import Edit, Finding, How, Rule, Severity
from ddpify.rules.edits import edit, is_local, statement_of
from ddpify.rules.examples import BY_HAND, CORRECT, SCRIPT, changed
from ddpify.rules.shared.early_folders import early_uses
from ddpify.rules.shared.early_parts import early_parts
from ddpify.rules.shared.meetings import early_reads
from ddpify.rules.shared.named_files import named_alike, read_files, written_files
from ddpify.rules.shared.rank_zero import waits
from ddpify.settings import Settings
from ddpify.source import Site

COPIES = frozenset(
    "shutil.copy shutil.copy2 shutil.copyfile shutil.move os.rename os.replace".split()
)

_MADE = (EffectKind.DIRECTORY, EffectKind.FILE)
# What looks into a folder, and what has to be done by then: a pattern fits nothing without one.
LISTS = {"os.listdir": _MADE, "os.scandir": _MADE, "glob.glob": (EffectKind.FILE,)}
# What asks whether the one folder is there that it names: `if not isdir(out): raise …`.
ASKS = ("os.path.isdir", "os.path.exists")


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per load on all ranks that may overtake a write on one rank."""
    yield from _listed(facts)
    yield from _named(facts)
    loads = tuple(c for c in facts.named("torch.load") if not c.where.one_rank())
    writes, meetings = list(_writes(facts)), _meetings(facts)
    for load in loads:
        early = [write for write in writes if _overtakes(write, load, meetings)]
        if early:
            yield Finding(
                "DDP604",
                _statement(facts, early[-1], load),
                "other ranks may load this file before rank 0 has written it",
                Severity.ERROR,
                _fix(facts, early[-1], load),
                "let all ranks wait (barrier) between the write and the load",
                because=((early[-1].site, "written here by rank 0 alone"),),
            )


def _listed(facts: Facts) -> Iterable[Finding]:
    """Folders that a function looks into which it has let rank 0 make or fill."""
    meetings = _meetings(facts)
    done: set[Site] = set()
    for listing in facts.named(*LISTS, *ASKS):
        where = listing.where
        writes = [
            call
            for call in _fillings(facts, listing)
            if call.where.stack == where.stack and _overtakes(call, listing, meetings)
        ]
        if not writes or where.one_rank() or where.statement in done:
            continue
        if facts.tree(where.statement).handles(where.statement):
            continue  # rank 0 alone comes there: what it makes was there already
        done.add(where.statement)
        yield Finding(
            "DDP604",
            where.statement,
            "other ranks may look into this folder before rank 0 has made or filled it",
            Severity.ERROR,
            _fix(facts, writes[-1], listing),
            "let all ranks wait (barrier) before they look",
            because=((writes[-1].site, "written here by rank 0 alone"),),
        )


def _fillings(facts: Facts, look: Call) -> list[Call]:
    """What makes or fills a folder that a call looks into, or what it asks for."""
    if look.name in LISTS:
        return [e.call for e in facts.effects if e.kind in LISTS[look.name]]
    made = [e.call for e in facts.effects if e.kind is EffectKind.DIRECTORY]
    asked = look.arg_sites[0] if look.arg_sites else None
    alike = [
        call
        for call in made
        if asked and call.arg_sites and named_alike(facts, (call, call.arg_sites[0]), (look, asked))
    ]
    makes_it = any(call.site.within(look.where.statement) for call in alike)
    return [] if makes_it else alike


def _named(facts: Facts) -> Iterable[Finding]:
    """Files that rank 0 prepares, and that all ranks read by the same name."""
    meetings, done = _meetings(facts), set[Site]()
    once = _once(facts)
    reads = [
        (call, path)
        for call, path in read_files(facts)
        if call.name != "torch.load" and not call.where.one_rank()
        if not any(at.within(one) for at in (call.site, *call.where.stack) for one in once)
    ]
    for write, path in written_files(facts):
        asked = any(guard.test.dep(Kind.FILES) for guard in write.where.guards)  # DDP608
        if asked or write.name == "torch.save":
            continue
        early = [
            call
            for call, name in reads
            if named_alike(facts, (write, path), (call, name)) and _overtakes(write, call, meetings)
        ]
        first = min(early, key=lambda call: call.order, default=None)
        if first is None or _statement(facts, write, first) in done:
            continue
        done.add(_statement(facts, write, first))
        yield Finding(
            "DDP604",
            _statement(facts, write, first),
            "other ranks may read this file before rank 0 has written it",
            Severity.ERROR,
            _fix(facts, write, first),
            "let all ranks wait (barrier) between the write and the read",
            because=((write.site, "written here by rank 0 alone"), (first.site, "read here")),
        )


def _once(facts: Facts) -> tuple[Site, ...]:
    """What rank 0 alone will do: ``print(len(lines("log.txt")))``."""
    alone = (effect.call.site for effect in facts.effects if effect.call.alone)
    return (*alone, *(call.site for call in facts.calls if call.target in facts.helpers))


def _writes(facts: Facts) -> Iterable[Call]:
    """Files that rank 0 makes, or will, without the others waiting for it."""
    return (effect.call for effect in facts.effects if effect.call.name in COPIES)


def _meetings(facts: Facts) -> list[int]:
    """When all ranks meet: nobody passes before rank 0 is there."""
    ours = {f"ddpify.runtime.{name}" for name in COLLECTIVES}
    calls = [*facts.named(*ours), *backwards(facts.calls)]
    calls += [e.call for e in facts.effects if e.kind is EffectKind.CHECKPOINT]
    return [call.order for call in calls if not call.where.one_rank()]


def _overtakes(write: Call, load: Call, meetings: list[int]) -> bool:
    if write.order > load.order or any(write.order < m < load.order for m in meetings):
        return False
    return not _in_one_run_or_the_other(write, load)


def _in_one_run_or_the_other(write: Call, load: Call) -> bool:
    """``if mode == "train": train() else: test()``, which no loop repeats."""
    loops = [loop.site for loop in load.where.loops()]
    held = {guard.site: guard.holds for guard in write.where.guards}
    return any(
        held.get(guard.site, guard.holds) is not guard.holds
        for guard in load.where.guards
        if not any(guard.site.within(loop) for loop in loops)
    )


def _fix(facts: Facts, write: Call, load: Call) -> tuple[Edit, ...]:
    """A barrier before the load, unless some ranks may not come there."""
    local = any(is_local(facts, guard.test) for guard in load.where.conditions())
    site = _statement(facts, write, load)
    return () if local else (edit(facts, How.BEFORE, site, "barrier()"),)


def _statement(facts: Facts, write: Call, load: Call) -> Site:
    """The statement that loads, itself or in what it calls, in the function where both happen."""
    ways = zip(write.where.stack, load.where.stack, strict=False)
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], ways))
    deeper = load.where.stack[shared:]
    return statement_of(facts, deeper[0]) if deeper else load.where.statement


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per read of a file that another rank may still be writing."""
    for read, write in early_reads(run):
        yield _finding(
            read,
            "other ranks may read this file before it is written: no file, half of one, or the old",
            "let all ranks wait between the write and the read: torch.distributed.barrier()",
            (write, "written here on one rank"),
            mends=tuple(Edit(How.BEFORE, _parting(write, read), code) for code in waits(run, read)),
        )
    for write, making in early_uses(run):
        yield _finding(
            write,
            "other ranks may write here before the folder is made: FileNotFoundError",
            "make it on every rank with exist_ok=True, or let all ranks wait in between",
            (making, "made here on one rank"),
        )
    for look, write, named in early_parts(run):
        yield _finding(
            look,
            "the other ranks may not have written their files by then: those are missing, or old",
            "let all ranks wait between the writes and this: torch.distributed.barrier()",
            (write, "each rank writes its own here"),
            Severity.ERROR if named else Severity.WARNING,
        )


def _finding(
    early: RankCall,
    message: str,
    advice: str,
    because: tuple[RankCall, str],
    severity: Severity = Severity.ERROR,
    mends: tuple[Edit, ...] = (),
) -> Finding:
    made, what = because
    return Finding(
        "DDP604",
        early.site,
        message,
        severity,
        advice=advice,
        because=((made.site, what),),
        mends=mends,
    )


def _parting(write: RankCall, read: RankCall) -> Site:
    """Where the function that comes by both goes on to the read."""
    ways = zip(write.stack, read.stack, strict=False)
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], ways))
    return read.way[shared].site


PREPARED = (
    ("import torch\nimport", "import json\n\nimport torch\nimport"),
    (
        "rows = TensorDataset(",
        "def prepare():\n"
        '    with open("sizes.json", "w") as file:\n        json.dump([4096], file)\n\n\n'
        "if is_main_process():\n    prepare()\n"
        'with open("sizes.json") as kept:  # DDP604\n    sizes = json.load(kept)\n'
        "rows = TensorDataset(",
    ),
)
SHOWN = 'if is_main_process():\n    print(json.load(open("sizes.json")))\n'
WAITED = (
    ("    prepare()\nwith", "    prepare()\nbarrier()\nwith"),
    ("kept:  # DDP604", "kept:"),
    ("import (", "import (barrier, "),
)

RULE = Rule(
    "DDP604",
    "read-too-early",
    "Rank 0 alone writes, all ranks read: without a meeting point in between the others find no"
    " file, half of one, or the one before (FileNotFoundError, or different weights per rank). The"
    " same with a folder that rank 0 makes and into which all ranks write.",
    "DDP tutorial, save and load checkpoints; BUGS K03",
    check,
    bad=(
        changed(
            SCRIPT,
            ("import torch\nimport", "import shutil\n\nimport torch\nimport"),
            (
                'save_on_main(unwrap(net).state_dict(), "net.pt")\n',
                'save_on_main(unwrap(net).state_dict(), "net.pt")\n'
                "if is_main_process():\n"
                '    shutil.copyfile("net.pt", "best.pt")\n'
                'kept = torch.load("best.pt", map_location=device)  # DDP604\n',
            ),
        ),
        changed(
            SCRIPT,
            ("import torch\nimport", "import os\n\nimport torch\nimport"),
            (
                'save_on_main(unwrap(net).state_dict(), "net.pt")\n',
                'save_on_main(unwrap(net).state_dict(), "net.pt")\n'
                "if is_main_process():\n"
                '    os.makedirs("shown", exist_ok=True)\n'
                'shown = len(os.listdir("shown"))  # DDP604\n',
            ),
        ),
        changed(
            SCRIPT,
            ("import torch\nimport", "import os\n\nimport torch\nimport"),
            (
                "fork_random_streams()\nfor",
                'if not os.path.exists("shown") and is_main_process():\n    os.makedirs("shown")\n'
                'if not os.path.isdir("shown"):  # DDP604\n'
                '    raise OSError("shown is no folder")\nfork_random_streams()\nfor',
            ),
        ),
        changed(SCRIPT, *PREPARED),
        changed(  # read again later: the ranks have met by then
            SCRIPT,
            *PREPARED,
            (
                "sizes = json.load(kept)\n",
                'sizes = json.load(kept)\nagain = open("sizes.json").read()\n',
            ),
        ),
        changed(
            BY_HAND,
            (
                '            torch.save(model.module.state_dict(), "model.pt")\n',
                '            torch.save(model.module.state_dict(), "model.pt")\n'
                '        kept = torch.load("model.pt", map_location="cpu")  # DDP604\n',
            ),
        ),
    ),
    good=(
        *CORRECT,
        changed(  # the ranks meet in between
            SCRIPT,
            ("import torch\nimport", "import shutil\n\nimport torch\nimport"),
            ("import (", "import (barrier, "),
            (
                'save_on_main(unwrap(net).state_dict(), "net.pt")\n',
                'save_on_main(unwrap(net).state_dict(), "net.pt")\n'
                "if is_main_process():\n"
                '    shutil.copyfile("net.pt", "best.pt")\n'
                "barrier()\n"
                'kept = torch.load("best.pt", map_location=device)\n',
            ),
        ),
        changed(  # whoever comes there made it: a barrier would be one of rank 0 alone
            SCRIPT,
            ("import torch\nimport", "import os\n\nimport torch\nimport"),
            (
                "fork_random_streams()\nfor",
                'try:\n    if is_main_process():\n        os.makedirs("shown")\n'
                'except OSError:\n    if not os.path.isdir("shown"):\n        raise\n'
                "fork_random_streams()\nfor",
            ),
        ),
        changed(  # it is asked for to make it
            SCRIPT,
            ("import torch\nimport", "import os\n\nimport torch\nimport"),
            (
                "fork_random_streams()\nfor",
                'for name in ("shown", "kept"):\n'
                "    if not os.path.exists(name) and is_main_process():\n"
                "        os.makedirs(name)\nfork_random_streams()\nfor",
            ),
        ),
        changed(SCRIPT, *PREPARED, *WAITED),
        changed(  # rank 0 reads it alone
            SCRIPT,
            *PREPARED,
            ('with open("sizes.json") as kept:  # DDP604\n    sizes = json.load(kept)\n', SHOWN),
        ),
        changed(  # another file
            SCRIPT,
            *PREPARED,
            ('open("sizes.json") as kept:  # DDP604', 'open("others.json") as kept:'),
        ),
        changed(  # one run writes, another one loads
            SCRIPT,
            ("import torch\nimport", "import shutil\nimport sys\n\nimport torch\nimport"),
            (
                'save_on_main(unwrap(net).state_dict(), "net.pt")\n',
                'save_on_main(unwrap(net).state_dict(), "net.pt")\n'
                "if len(sys.argv) > 1:\n"
                "    if is_main_process():\n"
                '        shutil.copyfile("net.pt", "best.pt")\n'
                "else:\n"
                '    kept = torch.load("best.pt", map_location=device)\n',
            ),
        ),
        changed(  # the file is of the run before
            SCRIPT,
            ("import torch\nimport", "import shutil\n\nimport torch\nimport"),
            (
                'save_on_main(unwrap(net).state_dict(), "net.pt")\n',
                'kept = torch.load("net.pt", map_location=device)\n'
                'save_on_main(unwrap(net).state_dict(), "net.pt")\n'
                "if is_main_process():\n"
                '    shutil.copyfile("net.pt", "best.pt")\n',
            ),
        ),
    ),
    lint=lint,
    words=(".load(", "read_text", "read_bytes", "read_csv", "read_json", "fromfile(", "memmap("),
)
