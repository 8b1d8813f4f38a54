"""Who has waited for whom: what a rank reads that another may still be writing.

The n-th collective of one rank meets the n-th of the other. What rank 0 wrote before its n-th is
there for everything that rank 1 does after its own n-th, and for nothing before.
"""

from __future__ import annotations

import ast
import re
from bisect import bisect_left
from collections.abc import Iterator

from ddpify.ranks.collective import collective
from ddpify.ranks.model import ALL, RANK0, RANK1, RankCall, RankGuard, RankValue
from ddpify.ranks.origins import FILES
from ddpify.ranks.run import Run
from ddpify.ranks.words import COLLECTIVE_CALLS, COLLECTIVE_OPS, DIST, FILE_TESTS, WRAPPERS
from ddpify.rules.shared.beginnings import before_launch
from ddpify.rules.shared.exclusion import excludes
from ddpify.rules.shared.folders import listed, looked_for, spelled
from ddpify.rules.shared.outputs import (
    MAPS,
    MOVES,
    OPENS,
    caught,
    checkpoints,
    files,
    is_path,
    maps_anew,
    opens_to_write,
    own,
)
from ddpify.rules.shared.parents import in_parent
from ddpify.rules.shared.syntax import scope
from ddpify.rules.shared.wrapped import exclusive

READS = {
    "gensim.models.KeyedVectors.load_word2vec_format": (0, "fname"),
    "gensim.models.keyedvectors.KeyedVectors.load_word2vec_format": (0, "fname"),
    "gensim.models.word2vec.LineSentence": (0, "source"),
    "gensim.models.word2vec.Text8Corpus": (0, "fname"),
    "torch.load": (0, "f"),
    "torch.jit.load": (0, "f"),
    "numpy.load": (0, "file"),
    "numpy.loadtxt": (0, "fname"),
    "numpy.genfromtxt": (0, "fname"),
    "numpy.fromfile": (0, "file"),
    "pandas.read_csv": (0, "filepath_or_buffer"),
    "pandas.read_json": (0, "path_or_buf"),
    "pandas.read_parquet": (0, "path"),
    "pandas.read_pickle": (0, "filepath_or_buffer"),
    "safetensors.torch.load_file": (0, "filename"),
    "joblib.load": (0, "filename"),
}
_OF_PATHS = frozenset({"read_text", "read_bytes"})
# After these nobody has waited for rank 0: only the receiving rank does.
_ONE_WAY = frozenset({"reduce", "gather", "gather_object", "new_group", "destroy_process_group"})
_RECEIVES = frozenset("recv irecv recv_object_list batch_isend_irecv".split())
_IN_TURN = frozenset({"main_process_first", "local_main_process_first", "rank_zero_first"})
_WAITS = frozenset({"wait_for_everyone", "barrier"})
_BIDES = re.compile(r"\b(?:sleep|time|monotonic|perf_counter)\(")
_TRAINS = re.compile(r"\b(?:backward|step)\(")
_ASKS = re.compile(r"\b(?:exists|isfile|is_file)\(")


def early_reads(run: Run) -> Iterator[tuple[RankCall, RankCall]]:
    """(read, write): the read may come before the write of another rank has ended."""
    written = [
        (write.call, write.path)
        for write in (*files(run), *checkpoints(run))
        if write.path is not None and write.call.ranks in (RANK0, RANK1)
    ]
    if not written:
        return
    for call, path in reads(run):
        if own(path) or in_parent(run, call):
            continue
        early = [
            write
            for write, where in written
            if write.order < call.order and one_path(where, path) and not excludes(run, write, call)
        ]
        if early and overtakes(run, early[-1], call) and not _asked(run, early[-1], call, path):
            yield call, early[-1]


def waited_for(run: Run, first: RankCall, second: RankCall) -> bool:
    """Whether any collective of all ranks stands between: also one rank alone may wait in it."""
    return any(
        (c.everywhere and (collective(c) is not None or _meets(c)))
        or (c.ranks & second.ranks and (_receives(c) or (polls(c) and _looks_up(c))))
        for c in _between(run, first, second)
    )


def _between(run: Run, first: RankCall, second: RankCall) -> Iterator[RankCall]:
    return (call for call in run.calls if first.order < call.order < second.order)


def _looks_up(call: RankCall) -> bool:
    return looked_for(call) is not None or listed(call) is not None


def _receives(call: RankCall) -> bool:
    """Whether one rank waits there for what another sends, or puts into a store."""
    if call.name.startswith(DIST) and call.method in _RECEIVES:
        return True
    stores = call.receiver.sources() if call.receiver is not None else ()
    return call.method in ("wait", "get") and any(
        thing.name.startswith(DIST) and thing.name.lower().endswith("store") for thing in stores
    )


def goes_first(call: RankCall) -> bool:
    """Whether a framework's block lets one rank go before the others: ``main_process_first()``."""
    entered = (thing.name for value in call.contexts for thing in value.things)
    return any(name.rpartition(".")[2] in _IN_TURN for name in entered)


def at_once(run: Run, call: RankCall) -> bool:
    """Whether ranks may come to a call at the same time: no barrier lets one go first."""
    entered = (thing.info for value in call.contexts for thing in value.things)
    if any(i and i.module.ours and i.name == "main_process_first" for i in entered):
        return False
    if goes_first(call):
        return False
    shared = [one.order for one in run.calls if one.everywhere and _meets(one)]
    since = max((order for order in shared if order < call.order), default=-1)  # a bug is before
    between = [
        one
        for one in run.calls
        if since <= one.order < call.order and _meets(one) and not exclusive(one, call)
    ]
    first, other = (sum(bool(one.ranks & rank) for one in between) for rank in (RANK0, RANK1))
    # Others who wait let rank 0 go first. Where it waits, and they never come, that is a bug apart.
    return first == other or (
        first > other
        and not any(
            one.ranks == RANK1 and _meets(one) for one in run.calls if one.order > call.order
        )
    )


def one_was_first(run: Run, call: RankCall) -> bool:
    """Whether one rank came here alone before, and all ranks have met since.

    Lightning lets all wait for the one that it has call ``prepare_data``.
    """
    now = [bisect_left(_meetings(run, rank), call.order) for rank in (RANK0, RANK1)]
    for one in run.calls:
        if one.node is call.node and one.order < call.order and one.ranks in (RANK0, RANK1):
            if any(guard.node is hook.node for guard in one.guards for hook in one.stack):
                return True
            then = [bisect_left(_meetings(run, rank), one.order) for rank in (RANK0, RANK1)]
            if all(before < after for before, after in zip(then, now, strict=True)):
                return True
    return False


def done_before(run: Run, call: RankCall) -> bool:
    """Whether a call is there for files as they were, and one rank has made it before: it wrote
    what was missing, removed what was there, or asked whether to."""
    asked = any(guard.test.has(FILES) for guard in call.guards)
    return (asked and one_was_first(run, call)) or (
        for_missing(run, call) and before_launch(run, call)
    )


def for_missing(run: Run, call: RankCall) -> bool:
    """Whether a call is there for a file that is missing: what was there may be there again.

    It stands in an arm, ``if not exists(path):``, or behind ``if exists(path): return …``.
    """
    left = (
        one.guards[-1]
        for one in run.exits
        if one.kind == "return" and one.function is call.function and one.order < call.order
        if one.guards and one.guards[-1] not in call.guards
    )
    return any(_says_missing(guard, guard.holds) for guard in call.guards) or any(
        _says_missing(guard, not guard.holds) for guard in left
    )


def _says_missing(guard: RankGuard, holds: bool) -> bool:
    return guard.test.has(FILES) and ("not " in str(guard.test.atoms[0])) is holds


def reads(run: Run) -> Iterator[tuple[RankCall, RankValue]]:
    """Calls that read a file, which must be there, with its path."""
    for call in run.calls:
        path = None
        if call.name in READS:
            path = call.arg(*READS[call.name])
        elif call.name in MAPS and not maps_anew(call):
            path = call.arg(0, "filename")
        elif call.name in OPENS and not opens_to_write(call):
            path = call.receiver if call.receiver is not None else call.arg(0, "file")
        elif call.method in _OF_PATHS and call.receiver is not None and is_path(call.receiver):
            path = call.receiver
        if path is not None and not caught(call):
            yield call, path


def read_behind(run: Run, call: RankCall, where: RankValue) -> bool:
    """Whether what a call writes is read after it by ranks that have not waited for the others.

    What reads it in the other arm of the same condition, on a later start, is not behind it.
    """
    missing = for_missing(run, call)
    return any(
        call.order < read.order
        and one_path(where, path)
        and not excludes(run, call, read)
        and not (missing and _in_other_arm(call, read))
        and not waited_for(run, call, read)
        for read, path in reads(run)
    )


def _in_other_arm(call: RankCall, read: RankCall) -> bool:
    """``if not exists(path): write(path)``, ``else: read(path)``."""
    return any(
        one.node is other.node and one.holds is not other.holds
        for one in call.guards
        for other in read.guards
    )


def overtakes(run: Run, first: RankCall, second: RankCall, ranks: int = ALL) -> bool:
    """Whether a rank other than those of ``first``, which comes before in the program, may come to
    ``second`` before they are done with it; ``ranks``: of those of ``first``, who is asked about.
    """
    ranks &= first.ranks
    others = ALL & ~ranks
    if ranks not in (RANK0, RANK1) or not second.ranks & others:
        return False
    together = (call.order for call in run.calls if call.everywhere and _meets(call))
    if any(first.order < order < second.order for order in together):
        return False
    if any(_receives(c) and c.ranks & others for c in _between(run, first, second)):
        return False
    before = bisect_left(_meetings(run, ranks), first.order)
    return bisect_left(_meetings(run, others), second.order) <= before


def _meetings(run: Run, rank: int) -> list[int]:
    return run.once(_meetings_of)[rank]


def _meetings_of(run: Run) -> dict[int, list[int]]:
    meets = [call for call in run.calls if _meets(call)]
    return {rank: [one.order for one in meets if one.ranks & rank] for rank in (RANK0, RANK1)}


def _meets(call: RankCall) -> bool:
    shared = collective(call)
    if shared is not None or (call.name.startswith(DIST) and call.method in COLLECTIVE_OPS):
        return call.method not in _ONE_WAY and not (shared is not None and shared.divided)
    if call.name in COLLECTIVE_CALLS or call.name in WRAPPERS or call.method in _WAITS:
        return True
    return call.method == "backward" and call.receiver is not None


def one_path(a: RankValue, b: RankValue) -> bool:
    """Whether two paths are surely the same."""
    if a.known and b.known:
        return a.constant is not None and a.constant == b.constant
    if set(a.things) & set(b.things):
        return True
    return all(spelled(a, rank) == spelled(b, rank) for rank in (0, 1))


def same_words(write: RankCall, read: RankCall) -> bool:
    """Whether the program writes the path in the same way for both: ``f"{moment}.pt"``."""
    asked = write.asked.node
    said = {ast.unparse(one) for one in (*asked.args, *(k.value for k in asked.keywords))}
    return not said.isdisjoint(ast.unparse(one) for one in read.node.args[:1])


def _asked(run: Run, write: RankCall, read: RankCall, path: RankValue) -> bool:
    """Whether the program looks between the two if the file is there.

    One that waits for it finds the beginning of what is written in place.
    """
    moved = write.name in MOVES
    return any(
        write.order < call.order < read.order and one_path(path, call.args[0])
        for call in run.calls
        if call.args and (moved or not polls(call))
        if call.name in FILE_TESTS or (moved and _looks(call))
    )


def polls(call: RankCall) -> bool:
    """``while not os.path.exists(path):``, or a loop that looks, and sleeps or watches the time."""
    return call.node in call.module.source.once(_waiting, scope(call))


def _waiting(around: ast.AST) -> frozenset[ast.AST]:
    """All that loops wait for."""
    loops = (node for node in ast.walk(around) if isinstance(node, ast.While))
    return frozenset(one for loop in loops for one in ast.walk(_watched(loop)))


def _watched(loop: ast.While) -> ast.AST:
    """What of a loop waits for something."""
    ended = any(isinstance(one, ast.Break | ast.Return) for one in ast.walk(loop))
    text = ast.unparse(loop) if ended else ""
    return loop if _BIDES.search(text) and not _TRAINS.search(text) else loop.test


def _looks(call: RankCall) -> bool:
    """Whether a function, which may not be read any further, is about whether files are there."""
    return call.target is not None and _ASKS.search(call.target.text) is not None
