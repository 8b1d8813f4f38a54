"""State dicts of a distributed program: whose keys they have, and whether they are saved."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.origins import ITEM, Symbol
from ddpify.ranks.run import Run
from ddpify.ranks.values import key_of, text
from ddpify.ranks.words import DDP
from ddpify.rules.shared.meetings import one_path
from ddpify.rules.shared.outputs import CHECKPOINTS

_PICKLES = frozenset({"pickle.dump", "pickle.dumps", "joblib.dump", "dill.dump"})
_SAVES = frozenset({"torch.save", "accelerate.Accelerator.save", "accelerate.utils.save"})
_WRITERS = _PICKLES | _SAVES | {*CHECKPOINTS}
# What a class says of how its objects are pickled.
_SAYS_WHAT = ("__getstate__", "__reduce__", "__reduce_ex__")
_STRIPS = "consume_prefix_in_state_dict_if_present"


def wrapped_states(run: Run) -> Iterator[tuple[RankCall, str]]:
    """``state_dict()`` calls whose keys have a wrapper's prefix and that end up in a file."""
    saved = {
        thing for call in run.calls if call.name in _WRITERS for thing in held(call.arg(0, "obj"))
    }
    for call in run.methods("state_dict"):
        made = call.result.things if call.result is not None else ()
        prefix = _prefix(run, call)
        if prefix and not saved.isdisjoint(made):
            yield call, prefix


def saved_wrappers(run: Run) -> Iterator[RankCall]:
    """Calls that write the wrapper itself, not its state, or an object that has it."""
    for call in run.calls:
        if call.name in _PICKLES | _SAVES and any(  # `torch.onnx.export` traces a graph
            thing.kind == "result" and thing.name == DDP for thing in _pickled(call.arg(0, "obj"))
        ):
            yield call.asked


def _pickled(value: RankValue | None, depth: int = 4) -> Iterator[RankThing]:
    """What a value is or holds; an object's attributes are written with it."""
    for thing in held(value, depth):
        yield thing
        said = thing.cls is not None and any(map(thing.cls.method, _SAYS_WHAT))
        if thing.kind == "instance" and not said and depth:
            for own in thing.attrs.values():
                yield from _pickled(own, depth - 1)


def held(value: RankValue | None, depth: int = 4) -> Iterator[RankThing]:
    """The things that a value is, or that its elements are."""
    if value is None or depth == 0:
        return
    yield from value.things
    for item in value.items or ():
        yield from held(item, depth - 1)
    for _, item in value.keys or ():
        yield from held(item, depth - 1)


def _prefix(run: Run, call: RankCall) -> str:
    """What a wrapper puts before the names of parameters."""
    if call.receiver is not None and all_wrappers(call):
        return "" if _unwrapped(run, call.receiver.things) else "module."
    return "_orig_mod." if _is_compiled(run, call) else ""


def _unwrapped(run: Run, things: tuple[RankThing, ...]) -> bool:
    """Whether a state came out of a function of the project that takes wrappers off."""
    return any(
        call.target is not None
        and call.result is not None
        and not set(things).isdisjoint(call.result.things)
        and (".module" in call.target.text or "_orig_mod" in call.target.text)
        for call in run.calls
    )


def _is_compiled(run: Run, call: RankCall) -> bool:
    """Whether the name before ``.state_dict()`` was bound to what torch.compile gave."""
    if call.function is None or not isinstance(call.node.func, ast.Attribute):
        return False
    compiled = {c.node for c in run.named("torch.compile") if c.function is call.function}
    if not compiled:
        return False
    name = ast.unparse(call.node.func.value)
    bound = [
        node.value
        for node in ast.walk(call.function.node)
        if isinstance(node, ast.Assign) and any(ast.unparse(t) == name for t in node.targets)
    ]
    return bool(bound) and all(value in compiled for value in bound)


def prefix_expected(run: Run) -> bool:
    """Whether what is loaded has the prefix too, or the prefix is taken off somewhere."""
    for call in run.methods("load_state_dict"):
        if call.receiver is not None and call.receiver.made_by(DDP) is not None:
            return True
    if any(call.method == _STRIPS and not call.module.ours for call in run.calls):
        return True
    return any(_strips(module.tree) for module in run.modules.values() if not module.ours)


def _strips(tree: ast.Module) -> bool:
    """Whether a text "module." is an argument, of ``replace`` or ``startswith`` for instance."""
    return any(
        isinstance(argument, ast.Constant) and argument.value in ("module.", "_orig_mod.")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for argument in node.args
    )


def plain_into_wrapper(run: Run) -> Iterator[tuple[RankCall, RankCall]]:
    """(load, save): what was saved without the prefix is given to the wrapper."""
    read = {
        thing: call
        for call in run.named("torch.load")
        if call.result is not None
        for thing in call.result.things
    }
    for call in run.methods("load_state_dict"):
        given = call.arg(0, "state_dict")
        if given is None or not all_wrappers(call) or not is_strict(call):
            continue
        for load in (read[thing] for thing in given.things if thing in read):
            yield from ((call, save) for save in _plain_saves(run, load))
        of, entry = _entry(given)
        for load in (one for one in read.values() if of and key_of(one.result or given) == of):
            yield from ((call, save) for save in _plain_saves(run, load, entry))


def _entry(value: RankValue) -> tuple[str, str]:
    """``checkpoint`` and "model" of ``checkpoint["model"]``."""
    atom = value.atoms[0]
    kind, *parts = (atom.parts if isinstance(atom, Symbol) else ()) or ("",)
    named = kind == ITEM and isinstance(parts[1], str)
    return (text(parts[0]), parts[1]) if named else ("", "")


def _plain_saves(run: Run, load: RankCall, entry: str = "") -> Iterator[RankCall]:
    """The writing of the state of a model inside a wrapper to the file that is loaded, or under
    an entry of it."""
    path = load.arg(0, "f")
    states = {
        thing
        for call in run.methods("state_dict")
        if call.result is not None and call.receiver is not None
        if any(t.wrapper is not None for t in call.receiver.things)
        if not any(t.name == DDP for t in call.receiver.things)
        for thing in call.result.things
    }
    for call in run.named("torch.save"):
        state, where = call.arg(0, "obj"), call.arg(1, "f")
        if state is None or where is None or path is None or not one_path(where, path):
            continue
        kept = dict(state.keys or ()).get(entry) if entry else state
        if kept is not None and not states.isdisjoint(kept.things):
            yield call


def all_wrappers(call: RankCall) -> bool:
    """Whether a method is surely one of a wrapper."""
    things = call.receiver.things if call.receiver is not None else ()
    return bool(things) and all(t.kind == "result" and t.name == DDP for t in things)


def is_strict(call: RankCall) -> bool:
    """Whether a load fails where keys are missing."""
    strict = call.arg(1, "strict")
    return not call.star and (strict is None or strict.constant is True)


def loaded(run: Run) -> Iterator[RankCall]:
    """``torch.load`` calls of which something is given to ``load_state_dict`` of what has tensors:
    no scheduler or sampler, which have counters."""
    used = {
        thing
        for call in run.methods("load_state_dict")
        if not _counts(call)
        for value in (*call.args, *call.kwargs.values())
        for thing in value.sources()
    }
    for call in run.named("torch.load"):
        if call.result is not None and not used.isdisjoint(call.result.things):
            yield call


def fills_optimizer(run: Run, load: RankCall) -> bool:
    """Whether an optimizer gets what a call has loaded."""
    made = set(load.result.things) if load.result is not None else set()
    given = (
        call
        for call in run.methods("load_state_dict")
        if any(not made.isdisjoint(value.sources()) for value in call.given)
    )
    return any(map(_is_optimizer_s, given))


def _is_optimizer_s(call: RankCall) -> bool:
    """Whether a method is an optimizer's: by what made it, or else by what it is called."""
    things = call.receiver.things if call.receiver is not None else ()
    made = [thing for thing in things if thing.kind in ("result", "instance")]
    if made:
        return any(kind.startswith("torch.optim.") for one in made for kind in _kinds(one))
    return "opt" in ast.unparse(call.node.func).lower()


def _counts(call: RankCall) -> bool:
    """Whether a method is one of what only counts: by what made it, or else by what it is called.

    A state of which other parts are given to a model is loaded with its tensors all the same.
    """
    things = call.receiver.things if call.receiver is not None else ()
    made = [thing for thing in things if thing.kind in ("result", "instance")]
    if made:
        return all(any(map(_is_counter, _kinds(thing))) for thing in made)
    node = call.node.func
    named = ast.unparse(node.value) if isinstance(node, ast.Attribute) else ""
    return bool(_COUNTERS.search(named.rpartition(".")[2]))


_COUNTERS: Final = re.compile(r"sched|sampler|scaler|(^|_)loader|dataloader", re.IGNORECASE)


def _kinds(thing: RankThing) -> Iterator[str]:
    yield thing.name
    yield from thing.cls.external_bases() if thing.cls is not None else ()


def _is_counter(name: str) -> bool:
    return name.startswith(("torch.optim.lr_scheduler.", "torch.utils.data.")) or (
        "schedule" in name.rpartition(".")[2].lower() or name.endswith("GradScaler")
    )
