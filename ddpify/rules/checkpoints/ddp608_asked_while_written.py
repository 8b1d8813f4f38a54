"""DDP608: each rank looks for itself whether a file is there that rank 0 writes if it is not."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Final

from ddpify.facts.events import Call
from ddpify.facts.model import Facts
from ddpify.facts.scopes import Guard
from ddpify.facts.values import OF_ONE_RANK, Kind, Thing
from ddpify.ranks import words
from ddpify.ranks.model import ALL, RankCall, RankGuard, RankValue
from ddpify.ranks.origins import FILES
from ddpify.ranks.run import Run
from ddpify.ranks.values import text
from ddpify.rules.base import Edit, Finding, How, Rule, Severity
from ddpify.rules.edits import edit, is_local, is_whole_test, statement_of
from ddpify.rules.examples import CORRECT, SCRIPT, changed
from ddpify.rules.examples.ranks import on_ranks
from ddpify.rules.shared.exchanges import exchanges
from ddpify.rules.shared.named_files import named_alike, read_files, written_files
from ddpify.settings import Settings
from ddpify.source import Site


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield a finding per test for a file that the same function writes, or else reads."""
    reads = tuple(read_files(facts))
    done: set[Site] = set()
    for write, path in written_files(facts):
        alike = [one for one in reads if named_alike(facts, (write, path), one)]
        before = [one for one in alike if _soon(facts, one[0], write)] if alike else []
        asked = [_asking(facts, *one) for one in ((write, path), *before)]
        again = [call for call, _ in alike]
        for guard in dict.fromkeys(asked) if again else ():
            if guard is None or guard.site in done:
                continue
            done.add(guard.site)
            yield _found(facts, guard, write, again)


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per test for a file that one rank writes where it is missing, and on which
    it hangs whether ranks meet afterwards."""
    met = list(exchanges(run))
    for asked in (call for call in run.calls if _is_test(call) and call.everywhere):
        path = asked.arg(0, "path") if asked.name in words.FILE_TESTS else asked.receiver
        first = next((c.order for c in met if c.order > asked.order), inf)
        meeting = next((c for c in met if c.order == first and _hangs_on(run, c, asked)), None)
        if meeting is None or path is None:
            continue
        written = (c for c in run.calls if asked.order < c.order < first and c.ranks != ALL)
        write = next((c for c in written if _is_given(c, path)), None)
        if write is not None:
            yield Finding(
                "DDP608",
                meeting.place,
                "each rank looks for itself whether a file is there that one rank writes meanwhile:"
                " a rank that comes late finds it, does not meet the others here, and they wait",
                Severity.ERROR,
                advice="let all ranks meet, whoever has found the file",
                because=((asked.site, "asked by each rank"), (write.site, "written by one")),
            )


def _is_test(call: RankCall) -> bool:
    return call.name in words.FILE_TESTS or call.method in words.PATH_TESTS


def _is_given(call: RankCall, path: RankValue) -> bool:
    """Whether a call is given a path, by its value; not one that asks for it."""
    key = text(path.atoms[0])
    return not _is_test(call) and any(text(value.atoms[0]) == key for value in call.inputs)


def _hangs_on(run: Run, meeting: RankCall, asked: RankCall) -> bool:
    """Whether ranks meet there on one answer only: under the test, or past a return under it."""
    here = [one for one in run.exits if asked.order < one.order < meeting.order]
    ways = (e.guards for e in here if e.kind == "return" and e.function is meeting.function)
    found = any(_answers(guard, asked) is True for guards in ways for guard in guards)
    return found or any(_answers(guard, asked) is False for guard in meeting.guards)


def _answers(guard: RankGuard, asked: RankCall) -> bool | None:
    """What a test for a file has said where this condition holds; None if it asks more, or less."""
    if not any(o.kind == FILES and o.site == asked.site for o in guard.test.origins):
        return None
    said, key = text(guard.test.atoms[0]), text(asked.result.atoms[0] if asked.result else "")
    there = {key: guard.holds, f"not {key}": not guard.holds}
    return there.get(said)


def _soon(facts: Facts, read: Call, write: Call) -> bool:
    """Whether a file is written after it was looked for, before any training lets ranks meet."""
    steps = [loop.backward.order for loop in facts.training]
    return read.order < write.order and not any(read.order < n < write.order for n in steps)


def _found(facts: Facts, guard: Guard, write: Call, again: list[Call]) -> Finding:
    fix = _fix(facts, guard, write, again)
    return Finding(
        "DDP608",
        guard.site,
        "each rank would look for itself whether this file is there: one that comes late reads"
        " what is half written",
        Severity.ERROR,
        fix,
        "" if fix else "ask on rank 0 alone, in the test of an `if`, and tell the others",
        ((write.site, "written here by rank 0"), (again[0].site, "read here")),
    )


def _asking(facts: Facts, use: Call, path: Site) -> Guard | None:
    """The condition on a file's use that asks for it, where all ranks come by it."""
    guards = use.where.guards
    for number, guard in reversed(list(enumerate(guards))):
        asked = guard.test.dep(*OF_ONE_RANK)
        if {thing.kind for thing in asked} == {Kind.FILES}:
            own = (g.test.dep(*OF_ONE_RANK) or is_local(facts, g.test) for g in guards[:number])
            apart = is_local(facts, guard.test) or any(own)
            return guard if not apart and any(_asks_for(facts, t, path) for t in asked) else None
    return None


def _asks_for(facts: Facts, asked: Thing, path: Site) -> bool:
    """Whether what is asked for is that path, or the folder it is written as a part of."""
    calls = [call for call in facts.calls if call.site == asked.born]
    sites = {c.receiver_site if c.name[:1] == "." else c.arg_site(0, "path") for c in calls}
    return any(site is not None and facts.text(site) in facts.text(path) for site in sites)


def _fix(facts: Facts, guard: Guard, write: Call, reads: list[Call]) -> tuple[Edit, ...]:
    """Rank 0's answer for all; the others wait for what it writes where they read it after that."""
    if not is_whole_test(facts, guard.site):
        return ()
    statement = statement_of(facts, guard.site)
    edits = [edit(facts, How.REPLACE, guard.site, "broadcast({})")]
    later = [r for r in reads if r.order > write.order and not _excludes(guard, r)]
    if later and write.name != "torch.save":
        inside = all(read.site.within(statement) for read in later)
        there = write.site.within(statement) and not inside
        after = statement if there else write.where.statement
        edits.append(edit(facts, How.AFTER, after, "barrier()"))
    return tuple(edits)


def _excludes(guard: Guard, read: Call) -> bool:
    """Whether a read is in the other branch."""
    return any(g.site == guard.site and g.holds is not guard.holds for g in read.where.guards)


CACHED = (
    ("import torch\nimport", "import os\nimport pickle\n\nimport torch\nimport"),
    (
        "rows = TensorDataset(torch.randn(4096, 20), torch.randint(0, 2, (4096,)))\n",
        'if not os.path.exists("rows.pkl"):  # DDP608\n'
        "    rows = TensorDataset(torch.randn(4096, 20), torch.randint(0, 2, (4096,)))\n"
        "    if is_main_process():\n"
        '        with open("rows.pkl", "wb") as kept:\n            pickle.dump(rows, kept)\n'
        "else:\n"
        '    with open("rows.pkl", "rb") as kept:\n        rows = pickle.load(kept)\n',
    ),
)
AGREED = (
    (
        'if not os.path.exists("rows.pkl"):  # DDP608',
        'if broadcast(not os.path.exists("rows.pkl")):',
    ),
    ("    begin_epoch,\n", "    begin_epoch,\n    broadcast,\n"),
)
# Loaded if it is there, else made and written: the question is around the reading alone.
LOADED = (
    ("import torch\nimport", "import os\nimport pickle\n\nimport torch\nimport"),
    (
        "rows = TensorDataset(torch.randn(4096, 20), torch.randint(0, 2, (4096,)))\n",
        'there = False\nif os.path.exists("rows.pkl"):  # DDP608\n'
        '    with open("rows.pkl", "rb") as kept:\n        rows = pickle.load(kept)\n'
        "    there = True\nif not there:\n"
        "    rows = TensorDataset(torch.randn(4096, 20), torch.randint(0, 2, (4096,)))\n"
        "    if is_main_process():\n"
        '        with open("rows.pkl", "wb") as kept:\n            pickle.dump(rows, kept)\n',
    ),
)
LATER = (
    ("else:\n    with open", "with open"),
    ('"rb") as kept:\n        rows', '"rb") as kept:\n    rows'),
)
WAITED = (
    ("pickle.dump(rows, kept)\n", "pickle.dump(rows, kept)\nbarrier()\n"),
    ("    begin_epoch,\n", "    barrier,\n    begin_epoch,\n"),
)

_CACHE: Final = """
if not os.path.exists("cache.pt"):
    if rank == 0:
        torch.save(value, "cache.pt")
    {}
value = torch.load("cache.pt")
"""
_RESUMED: Final = """
if os.path.exists("last.pt"):
    held = [torch.load("last.pt") if rank == 0 else None]
    dist.broadcast_object_list(held, src=0)
"""
_EARLY: Final = """
def cached(path):
    if os.path.isfile(path):
        return torch.load(path)
    if dist.get_rank() == 0:
        torch.save(torch.ones(1), path)
    dist.barrier()  # DDP608
    return torch.load(path)

"""

RULE = Rule(
    "DDP608",
    "asked-while-written",
    "A cache is written where it is missing: rank 0 writes while the others still ask. One that"
    " comes late finds half a file, or goes on with other random numbers than those that computed."
    " Rank 0's answer is for all. A barrier behind the question is met by those alone that asked"
    " in time: the next collective of the others pairs with it (measured: a timeout).",
    "PATTERNS, one-time preparation; BUGS K03, K09",
    check,
    lint=lint,
    words=("exists(", "isfile(", "is_file("),
    bad=(
        on_ranks(_CACHE.format("dist.barrier()  # DDP608")),
        on_ranks('value = cached("cache.pt")', _EARLY),
        changed(SCRIPT, *CACHED),
        changed(SCRIPT, *CACHED, *LATER),
        changed(SCRIPT, *LOADED),
    ),
    good=(
        *CORRECT,
        on_ranks(_CACHE.format("pass") + "dist.barrier()"),
        on_ranks(_RESUMED),
        changed(SCRIPT, *CACHED, *AGREED),
        changed(SCRIPT, *CACHED, *AGREED, *LATER, *WAITED),
        changed(  # another file: both are there from the beginning
            SCRIPT,
            *CACHED,
            ('exists("rows.pkl"):  # DDP608', 'exists("options.txt"):'),
            ('else:\n    with open("rows.pkl"', 'else:\n    with open("old.pkl"'),
        ),
        changed(  # an option decides, alike on all ranks
            SCRIPT,
            *CACHED,
            ('if not os.path.exists("rows.pkl"):  # DDP608', 'if os.environ.get("FRESH"):'),
        ),
    ),
)
