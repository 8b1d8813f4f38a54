"""What a distributed program writes: which calls, where to, and whether every rank comes there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from ddpify.python import writers
from ddpify.ranks import words
from ddpify.ranks.hooks import trains
from ddpify.ranks.model import RankCall, RankGuard, RankValue
from ddpify.ranks.origins import CLOCK, DATA, RANDOM, RANK, Origin
from ddpify.ranks.prepared import is_model
from ddpify.ranks.run import Run
from ddpify.ranks.single import runs_alone
from ddpify.ranks.values import spread
from ddpify.ranks.words import FILE_TESTS, OWN_FILES
from ddpify.rules.shared.doubts import in_doubt, of_rank
from ddpify.rules.shared.exclusion import excludes
from ddpify.rules.shared.feeds import held
from ddpify.rules.shared.parents import in_parent
from ddpify.rules.shared.visible import shows_one
from ddpify.site import Site

# Calls that write a file: where the path is among the arguments, -1 for the receiver itself.
FILES = {
    **{name: place for name, place in writers.FUNCTIONS.items() if place is not None},
    "logging.FileHandler": (0, "filename"),
    "logging.handlers.RotatingFileHandler": (0, "filename"),
    "logging.basicConfig": (-2, "filename"),
}
CHECKPOINTS = {
    "torch.save": (1, "f"),
    "torch.jit.save": (1, "f"),
    "safetensors.torch.save_file": (1, "filename"),
    "safetensors.torch.save_model": (1, "filename"),
    "torch.onnx.export": (2, "f"),
}
_LOCK = re.compile(r"(?<![bc])lock$", re.IGNORECASE)  # no block, no clock
SAME = "the same contents, as far as is seen, but who reads it meanwhile finds half of it"
OPENS = frozenset({*writers.OPENS, "pathlib.Path.open"})
MOVES = frozenset({"os.replace", "os.rename", "shutil.move"})
# What makes a file that is an array: where its mode is. "w+" wipes what the file had.
MAPS = {"numpy.memmap": 2, "numpy.lib.format.open_memmap": 1}
# They are imported for much else.
_IDLE = frozenset({"lightning", "transformers"})
_STARTING = (words.TRAINER, *words.COMMANDLINES, words.HF_TRAINER, words.HF_ARGUMENTS)
# What a path is made from when each process has its own, or when nothing reaches the disk.
_OWN = (
    *OWN_FILES,
    "tempfile.SpooledTemporaryFile",
    "io.BytesIO",
    "io.StringIO",
    "os.getpid",
    "os.devnull",
    "uuid.",
    "socket.",
    "platform.node",
    "multiprocessing.current_process",
)


@dataclass(frozen=True)
class Write:
    """A call that writes the file ``path``; None: it is not seen."""

    call: RankCall
    path: RankValue | None

    @property
    def noun(self) -> str:
        """What a reader calls it: models and their states are checkpoints, logits are none."""
        given = self.call.arg(0, "obj") if self.call.name == "torch.save" else None
        return "checkpoint" if given is None or _is_state(given) else "file"


def _is_state(value: RankValue) -> bool:
    """Whether a value is or holds a model or a state: not what a model gave."""
    made = [thing for thing in value.things if not thing.name.endswith(".__call__")]
    within = [*(value.items or ()), *(part for _, part in value.keys or ())]
    own = any(is_model(thing) or thing.name.endswith("state_dict") for thing in made)
    return own or any(map(_is_state, within))


def files(run: Run) -> list[Write]:
    """Files that are written or opened for writing, checkpoints left out."""
    return run.once(_all_files)


def _all_files(run: Run) -> list[Write]:
    return list(_files(run))


def _files(run: Run) -> Iterator[Write]:
    for call in run.calls:
        if call.name in FILES:
            position, keyword = FILES[call.name]
            if position != -2 or keyword in call.kwargs:
                yield Write(call, call.arg(position, keyword))
        elif call.name in OPENS:
            if opens_to_write(call):
                yield Write(call, _opened(call))
        elif call.name in MAPS:
            if maps_anew(call):
                yield Write(call, call.arg(0, "filename"))
        elif call.receiver is not None:
            path = _path_of_method(call, call.receiver)
            if path is not None:
                yield Write(call, path)


def _path_of_method(call: RankCall, receiver: RankValue) -> RankValue | None:
    """Where a method writes, None where it writes nothing."""
    if call.method in writers.METHODS:
        return call.arg(*writers.METHODS[call.method])
    if call.method in writers.OF_PATHS and is_path(receiver):
        return receiver
    made_by = [thing.name for thing in receiver.sources()]
    picture = call.method == "save" and any(name.startswith(writers.PICTURES) for name in made_by)
    return call.arg(*writers.SAVES) if picture else None


def checkpoints(run: Run) -> list[Write]:
    """Models and states that are written; into an open file or memory they are not counted."""
    return run.once(_all_checkpoints)


def _all_checkpoints(run: Run) -> list[Write]:
    return list(_checkpoints(run))


def _checkpoints(run: Run) -> Iterator[Write]:
    for call in run.calls:
        if call.name in CHECKPOINTS:
            path = call.arg(*CHECKPOINTS[call.name])
            if path is None or not _is_stream(path):
                yield Write(call, path)
        elif call.method == "save_pretrained" and _saves_itself(call):
            yield Write(call, call.arg(0, "save_directory"))


def _saves_itself(call: RankCall) -> bool:
    """Whether a library writes, on each rank that calls: of the program's own function, read like
    any other, what it calls tells."""
    return call.target is None and "is_main_process" not in call.kwargs


def opens_to_write(call: RankCall) -> bool:
    """Whether an ``open`` may write: its mode is known and is not just reading."""
    if call.name in writers.OPENS and not writers.OPENS[call.name]:
        return True
    together = call.arg(-1, "driver")  # all ranks open parallel HDF5, each writes its own rows
    if together is not None and together.constant == "mpio":
        return False
    return any(letter in _mode(call) for letter in "wax+")


def _mode(call: RankCall) -> str:
    position = 0 if call.method == "open" and call.receiver is not None else 1
    mode, node = call.arg(position, "mode"), call.node_of(position, "mode")
    text = mode.constant if mode is not None else None
    if text is None and isinstance(node, ast.IfExp):  # "a" if resume else "w": both write
        arms = [arm.value for arm in (node.body, node.orelse) if isinstance(arm, ast.Constant)]
        text = arms[0] if len(arms) == 2 and all(set("wax+") & set(str(a)) for a in arms) else None
    return text if isinstance(text, str) else ""


def only_wipes(call: RankCall) -> bool:
    """``with open(path, "w"): pass``, ``open(path, "a").close()``: as often as one likes."""
    nodes = [*call.module.nodes]
    methods = (one for one in nodes if isinstance(one, ast.Attribute) and one.attr == "close")
    if any(one.value is call.node for one in methods):
        return True
    blocks = (one for one in nodes if isinstance(one, ast.With))
    return any(
        any(item.context_expr is call.node for item in block.items)
        and all(isinstance(one, ast.Pass) for one in block.body)
        for block in blocks
    )


def copies_console(run: Run, call: RankCall) -> bool:
    """Whether a file is opened to add to by what takes the place of ``sys.stdout``.

    Then in it is what is printed, on whichever ranks, and their errors.
    """
    if "a" not in _mode(call) or call.result is None:
        return False
    consoles = [
        store.value
        for store in run.stores
        if store.key in ("stdout", "stderr") and "sys" in store.base.names()
    ]
    return any(not held(value).isdisjoint(call.result.things) for value in consoles)


def adds(call: RankCall) -> bool:
    """Whether a file is opened to add to."""
    return call.name in OPENS and "a" in _mode(call)


def _opened(call: RankCall) -> RankValue | None:
    return call.receiver if call.receiver is not None else call.arg(0, "file")


def maps_anew(call: RankCall) -> bool:
    """Whether an array on the disk is made, not one that is there looked at."""
    mode = call.arg(MAPS[call.name], "mode")
    return mode is not None and mode.constant in ("w+", "write")


def is_path(value: RankValue) -> bool:
    """Whether a value is a path, or was made from one."""
    return any(thing.name.startswith("pathlib.") for thing in value.sources())


def _is_stream(value: RankValue) -> bool:
    """Whether a value is an open file, or made from one at once; a path may be read from one."""
    made = [arg for t in value.things if t.call is not None for arg in t.call.args]
    return any(t.name in OPENS for one in (value, *made) for t in one.things)


def own(value: RankValue | None) -> bool:
    """Whether a path is each process's own, or no path at all."""
    if value is None:
        return False
    if value.by_rank or of_rank(value) or any(map(_is_each_rank_s, value.origins)):
        return True
    if value.constant == "/dev/null" or value.atoms == (None, None):
        return True
    # Our helpers pack what they send in memory: what comes out is everybody's.
    made = (t for t in value.sources() if t.call is None or not t.call.module.ours)
    return any(thing.name.startswith(_OWN) for thing in made)


def _is_each_rank_s(origin: Origin) -> bool:
    """What a listing tells of is no rank's own, though another may find more when it looks."""
    return origin.kind in (DATA, CLOCK, RANDOM) and origin.what not in FILE_TESTS


def its_own(run: Run, write: Write) -> bool:
    """``own``; a path that is not seen may be among what the callers gave."""
    if write.call.name in MOVES and own(write.call.arg(0, "src")):
        return True  # a whole file takes the place of another
    if write.path is not None:
        return own(write.path) or _goes_along(run, write)
    given = [v for call in write.call.stack[-1:] for v in (*call.args, *call.kwargs.values())]
    return any(own(value) for value in given)


def _goes_along(run: Run, write: Write) -> bool:
    """Whether a path belongs to a sample: ``for one, path in zip(this rank's outputs, paths)``."""
    path = write.call.node_of(*CHECKPOINTS.get(write.call.name, (-1, "")))
    names = {n.id for n in ast.walk(path) if isinstance(n, ast.Name)} if path is not None else set()
    within = [
        loop.module.site(loop.node.iter)
        for loop in write.call.loops
        if isinstance(loop.node, ast.For)
        and names & {n.id for n in ast.walk(loop.node.target) if isinstance(n, ast.Name)}
    ]
    zipped = [one for one in run.named("builtins.zip") if any(map(one.site.within, within))]
    return any(_is_unseen_beside(one.given) for one in zipped)


def _is_unseen_beside(values: tuple[RankValue, ...]) -> bool:
    """Whether what goes along with this rank's data is not seen: of a list of names it is."""
    data = [any(origin.kind == DATA for origin in spread(value)) for value in values]
    rest = [value for value, own_data in zip(values, data, strict=True) if not own_data]
    return any(data) and all(value.items is None for value in rest)


def unequal(run: Run, write: Write) -> bool:
    """Whether ranks are seen to write different things there, or to add to the file.

    Of a program that ddpify migrates each file has one writer, whatever is in it.
    """
    if run.helpers or run.assumed:
        return True
    if adds(write.call):
        return True
    return bool(_differs_by(run, write))


def difference(run: Run, write: Write) -> tuple[tuple[Site, str], ...]:
    """Why ranks write different things there, where that is seen."""
    first = next(iter(sorted(_differs_by(run, write), key=lambda one: one.site)), None)
    return ((first.site, first.told),) if first is not None else ()


def _differs_by(run: Run, write: Write) -> set[Origin]:
    """What a temporary file is called says nothing of what is in it."""
    origins = (origin for value in _written(run, write) for origin in spread(value))
    kinds = (RANK, DATA, CLOCK, RANDOM)
    return {one for one in origins if one.kind in kinds and one.what not in OWN_FILES}


def _written(run: Run, write: Write) -> Iterator[RankValue]:
    """What a call writes, and what is written later into the file that it opens."""
    call = write.call
    yield from (value for value in call.given if value is not write.path)
    holds = call.name in OPENS or call.name in MAPS
    opened = set(call.result.things) if holds and call.result is not None else set()
    yield from (s.value for s in run.stores if opened and not opened.isdisjoint(s.base.things))
    for other in run.calls if opened else ():
        if any(not opened.isdisjoint(part.things) for part in other.inputs):
            yield from other.given


def by_all(run: Run, call: RankCall) -> bool:
    """Whether all ranks surely come to a call, each as a process of its own."""
    if not call.everywhere or in_parent(run, call) or _is_locked(call):
        return False
    if not run.once(_has_ranks):
        return False
    if run.openings and all(excludes(run, one, call) for one in run.openings):
        return False  # where there is no group
    return not any(map(_ruled_out, call.guards)) and not in_doubt(run, call)


def _has_ranks(run: Run) -> bool:
    """Whether there are several processes: a library that may start some is called to.

    A model of transformers is one in one process as well; pytest runs a test in one, and a driver
    of Ray is one.
    """
    if run.session is not None:
        return True
    if not run.script:
        return bool(run.frameworks) and not runs_alone(run)
    if run.opener is None and not run.joined and not run.assumed:
        return False  # others of the project open a group, and this one does not come to it
    if shows_one(run):
        return False  # a framework's objects work in one process as well
    if run.assumed or not run.frameworks or not run.frameworks <= _IDLE:
        return bool(run.frameworks)
    return run.opener is not None or any(map(_may_start, run.calls))


def _may_start(call: RankCall) -> bool:
    """Whether it makes what starts processes, or a class of the project that is one, or trains
    with one that was made in code that is not read."""
    made = call.result.things if call.result is not None else ()
    own = (thing.cls for thing in made if thing.cls is not None)
    return trains(call) or call.name in _STARTING or any(cls.inherits(*_STARTING) for cls in own)


def _is_locked(call: RankCall) -> bool:
    """Whether ranks do it one after the other, and mostly only one."""
    names = (name for value in call.contexts for name in value.names())
    return any(_LOCK.search(part) for name in names for part in name.split("."))


def _ruled_out(guard: RankGuard) -> bool:
    """Whether an `assert` of the file, for distributed runs mostly, says the contrary."""
    if guard.test.known:
        return False
    said = ast.unparse(guard.node)
    contrary = f"not {said}" if guard.holds else said
    return contrary in guard.module.asserted


def caught(call: RankCall) -> bool:
    """Whether the call's errors are handled around it."""
    if call.swallows:
        return True
    return any(one.handlers and call.site.within(one.body) for one in call.module.attempts)


def once(calls: Iterator[RankCall]) -> Iterator[RankCall]:
    """The first call of each place."""
    seen: set[Site] = set()
    for call in calls:
        if call.site not in seen:
            seen.add(call.site)
            yield call
