"""DDP609: a checkpoint that is written within an epoch has the random streams of rank 0 alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ddpify.facts.effects import EffectKind
from ddpify.facts.events import Bind, Call
from ddpify.facts.model import Facts
from ddpify.facts.values import Kind, Thing, Value
from ddpify.names import OF_CHECKPOINTS
from ddpify.ranks.model import RANK0, RANK1, RankCall
from ddpify.ranks.run import Run
from ddpify.ranks.streams import seeded_by
from ddpify.ranks.words import DIST, SEEDERS
from ddpify.rules.base import Edit, Finding, How, Rule, Severity
from ddpify.rules.edits import edit, once, statement_of
from ddpify.rules.examples import CORRECT, SCRIPT, changed
from ddpify.rules.shared.outputs import Write, checkpoints, own
from ddpify.rules.shared.seeds import Stream, stream
from ddpify.settings import Settings
from ddpify.source import Site

KEEPS = "ddpify.runtime.with_rank_streams"
_READS = (
    "torch.get_rng_state",
    "torch.random.get_rng_state",
    "torch.cuda.get_rng_state",
    "torch.cuda.get_rng_state_all",
    "numpy.random.get_state",
    "random.getstate",
)
_RESTORES = (
    "torch.set_rng_state",
    "torch.random.set_rng_state",
    "torch.cuda.set_rng_state",
    "torch.cuda.set_rng_state_all",
    "numpy.random.set_state",
    "random.setstate",
)


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per ``torch.save`` in an epoch of what a resumed run draws from.

    At the end of an epoch ranks need none: ``begin_epoch`` begins theirs.
    """
    batches = {loop.batch.site for loop in facts.training}
    saves = tuple(e.call for e in facts.effects if e.kind is EffectKind.CHECKPOINT)
    saves = (*saves, *facts.named(*OF_CHECKPOINTS))
    for site, calls in once(saves).items():
        within = any(loop.site in batches for call in calls for loop in call.where.loops())
        if not within or facts.named(KEEPS) or not any(_has_streams(facts, c) for c in calls):
            continue
        given, restored = calls[0].arg_site(0, "obj"), tuple(_restored(facts))
        fix: tuple[Edit, ...] = ()
        saved = [call.arg(0, "obj") for call in calls]
        dicts = all(one is not None and one.of(Kind.DICT) == one.things != () for one in saved)
        if given is not None and restored and dicts:
            fix = (edit(facts, How.REPLACE, given, "with_rank_streams({})"), *restored)
        yield Finding(
            "DDP609",
            site,
            "it has the random streams of rank 0: a run that goes on from it within an epoch would"
            " draw the same on every rank",
            Severity.WARNING,
            fix,
            "" if fix else "keep the states of all ranks, and let each restore its own",
        )


def _has_streams(facts: Facts, save: Call) -> bool:
    """Whether the states of random streams are in what is saved, as is or in a dict in it."""
    saved = save.arg(0, "obj")
    made = {thing.born for thing in _dicts(saved)} if saved is not None else set()
    places = (save.where.statement, *made)
    reads = facts.named(*_READS)
    return any(one.within(place) for read in reads for one in read.way for place in places)


def _dicts(value: Value, depth: int = 3) -> Iterator[Thing]:
    for thing in value.of(Kind.DICT, Kind.TUPLE):
        yield thing
        for held in (*(thing.keys or {}).values(), *(thing.items or ())) if depth else ():
            yield from _dicts(held, depth - 1)


def _restored(facts: Facts) -> Iterator[Edit]:
    """After rank 0's streams are restored in a function that has the checkpoint by a name."""
    found: dict[tuple[int, str], Site] = {}
    for call in facts.named(*_RESTORES):
        loaded = set(call.args[0].dep(Kind.CHECKPOINT)) if call.args else set()
        for bind in facts.binds:
            held = loaded.intersection(bind.value.of(Kind.CHECKPOINT))
            named = held and bind.target.isidentifier()
            statement = _statement(facts, call, bind) if named else None
            if statement is not None:
                key = _block(facts, statement), bind.target
                found[key] = max(found.get(key, statement), statement)
    for (_, name), statement in found.items():
        yield edit(facts, How.AFTER, statement, f"restore_rank_streams({name})")


def _statement(facts: Facts, call: Call, bind: Bind) -> Site | None:
    """The statement of the checkpoint's function in which a call is made, here or further in."""
    function = bind.where.function
    for site in call.way:
        inside = function is None or site.within(function.site)
        if inside and site.path == bind.site.path and bind.site < site:
            return statement_of(facts, site)
    return None


def _block(facts: Facts, statement: Site) -> int:
    tree = facts.tree(statement)
    node = tree.statement(statement)
    return id(tree.block(node)) if node is not None else 0


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per stream that all ranks set as rank 0 has kept its own."""
    kept = [write.call for write in checkpoints(run) if _keeps_one(write)]
    seen: set[Site] = set()
    for call in run.named(*_RESTORES) if kept else ():
        library = SEEDERS[call.name][0]
        how, seeding = stream(run, call, library)
        if call.site in seen or how is not Stream.APART or not call.everywhere:
            continue
        if _is_of_one(call) and not _parts_again(run, call, library):
            seen.add(call.site)
            yield Finding(
                "DDP609",
                call.site,
                "all ranks go on with the random stream of the one that saved it: from here they"
                " draw the same, and each had its own before",
                Severity.WARNING,
                advice="keep the states of all ranks, and let each restore its own",
                because=(
                    (kept[0].site, "saved here on one rank"),
                    *(((seeding.site, "each has its own stream here"),) if seeding else ()),
                ),
            )


def _keeps_one(write: Write) -> bool:
    """Whether one rank writes its own stream into a file, by itself."""
    saved = write.call.arg(0, "obj")
    if saved is None or write.call.ranks not in (RANK0, RANK1):
        return False
    made = [thing for thing in saved.sources() if thing.name in _READS]
    return bool(made) and not any(thing.name.startswith(DIST) for thing in saved.sources())


def _is_of_one(restore: RankCall) -> bool:
    """Whether what is restored is of a file that all ranks read, and the same part of it."""
    state = restore.arg(0, "new_state")
    loads = [t.call for t in state.sources() if t.name == "torch.load"] if state else []
    paths = [call.arg(0, "f") for call in loads if call is not None]
    if state is None or state.by_rank or not paths:
        return False
    return not any(path is None or path.by_rank or own(path) for path in paths)


def _parts_again(run: Run, restore: RankCall, library: str) -> bool:
    """Whether the streams are seeded again behind it."""
    return any(
        call.order > restore.order and library in seeded_by(call) and call.name not in _RESTORES
        for call in run.calls
    )


RESUMES = (
    ("fork_random_streams()\nfor n", 'old = torch.load("old.pt")\nfork_random_streams()\nfor n'),
    (
        "    for x, y in feed:\n",
        "    for x, y in feed:\n        if old:\n"
        '            torch.set_rng_state(old["rng"])\n            old = None\n',
    ),
)
SAVES = (
    (
        "        running += cost.item()\n",
        "        running += cost.item()\n"
        '        state = {"net": unwrap(net).state_dict(), "rng": torch.get_rng_state()}\n'
        '        save_on_main(state, "old.pt")  # DDP609\n',
    ),
)

RULE = Rule(
    "DDP609",
    "streams-of-one-rank",
    "Ranks draw apart: dropout, augmentation. A checkpoint that is written within an epoch has the"
    " streams of the rank that writes it, and a run that goes on from it sets these on all ranks:"
    " one mask for the samples of all. Each rank's are kept, and restored where as many go on; that"
    " another number of ranks, or another batch size, goes on is said.",
    "CONTRACT: Checkpoints, RNG as the author had them; seed 003",
    check,
    lint=lint,
    words=("rng_state", "getstate", "setstate", ".load("),
    severity=Severity.WARNING,
    bad=(
        changed(SCRIPT, *RESUMES, *SAVES),
        changed(
            SCRIPT,
            *RESUMES,
            *SAVES,
            ("torch.get_rng_state()}", "states()}"),
            (
                "setup_distributed()\n",
                'def states():\n    return {"torch": torch.get_rng_state()}\n\n\n'
                "setup_distributed()\n",
            ),
        ),
    ),
    good=(
        *CORRECT,
        changed(  # those of each rank
            SCRIPT,
            *RESUMES,
            (SAVES[0][0], SAVES[0][1].replace("  # DDP609", "")),
            ("save_on_main(state,", "save_on_main(with_rank_streams(state),"),
            (
                'set_rng_state(old["rng"])\n',
                'set_rng_state(old["rng"])\n            restore_rank_streams(old)\n',
            ),
            ("    save_on_main,\n", "    restore_rank_streams, save_on_main, with_rank_streams,\n"),
        ),
        changed(  # at the end of an epoch
            SCRIPT,
            (
                "    running = reduce_mean(running)\n",
                "    running = reduce_mean(running)\n"
                '    state = {"net": unwrap(net).state_dict(), "rng": torch.get_rng_state()}\n'
                '    save_on_main(state, "old.pt")\n',
            ),
        ),
    ),
)
