"""What calls of libraries give and do, as far as ranks are concerned."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from ddpify.python import words as names
from ddpify.ranks import (
    assigning,
    attributes,
    builtin,
    casts,
    changes,
    commandline,
    configured,
    containers,
    environment,
    hooks,
    inflight,
    measured,
    mixing,
    naming,
    objects,
    other_libraries,
    picked,
    prepared,
    streams,
    trainer_hooks,
    words,
    wrapped,
)
from ddpify.ranks.buffers import has_buffers
from ddpify.ranks.collective import collective, is_world
from ddpify.ranks.frames import RankFrame
from ddpify.ranks.given import Given
from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.origins import CLOCK, FILES, HASH, RANK
from ddpify.ranks.passes import differentiated, is_scaler, training_loops
from ddpify.ranks.process_groups import (
    is_initialized,
    is_true,
    local_rank,
    meet,
    note_opening,
    on_collective,
    rank_and_size,
    rank_of_group,
    true,
    world_size,
)
from ddpify.ranks.protocol import RankMachine
from ddpify.ranks.results import dealt, result, rooted, with_origin
from ddpify.ranks.trace import WRAPPING
from ddpify.ranks.values import NONE, OwnRows, key_of, symbol


def called(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue:
    """The effect and the value of a call of a library's name or of an unknown object's method."""
    note_opening(m, one)
    inflight.begin(m, one)
    handler = _HANDLERS.get(one.name)
    value = handler(m, f, one) if handler is not None else None
    if value is None:
        value = picked.called(one, _combining(m, f, one, _by_kind(m, f, one)))
    one.result = value
    return value


def _combining(m: RankMachine, f: RankFrame, one: RankCall, value: RankValue) -> RankValue:
    """``a.div_(b)`` is a quotient from now on, and so is what ``a.div(b)`` gives."""
    made = mixing.called(m, one, value)
    func = one.node.func
    if made is not value and one.method.endswith("_") and isinstance(func, ast.Attribute):
        assigning.assign_quietly(m, f, func.value, made)
    return made


def _is_of_metric(m: RankMachine, one: RankCall) -> bool:
    """``compute()`` of torchmetrics puts together what all ranks have, unless it is told not to,
    or knows it since the last one."""
    held = one.receiver
    if one.method != "compute" or not one.name.startswith("torchmetrics.") or held is None:
        return False
    made = [thing.call for thing in held.sources() if thing.call is not None]
    if any("sync_on_compute" in call.kwargs for call in made) or not _has_group(m):
        return False
    before = (call for call in reversed(m.run.calls) if call is not one)
    own = (call for call in before if call.receiver and call.receiver.things == held.things)
    last = next(own, None)
    return last is None or last.method != "compute" or not last.everywhere


def _has_group(m: RankMachine) -> bool:
    """Whether a process group is open, as far as is known."""
    opened = m.opened or m.unread or not m.interest.opens
    return opened and not any(call.method == "destroy_process_group" for call in m.run.calls)


def _by_kind(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue:
    name = one.name
    shared = collective(one)
    if shared is not None:
        return on_collective(m, f, shared)
    gathers = name in words.COLLECTIVE_CALLS or one.method in words.COLLECTIVE_METHODS
    gathers = gathers or _is_of_metric(m, one)
    if gathers or (name in words.CLIPS and _is_of_shards(one)):
        meet(m, f, one)
    if one.method == "log" and is_true(one.kwargs.get("sync_dist")):
        m.event("log(sync_dist=True)", one, one.node, f)
    if name in other_libraries.ROOTED:
        return rooted(one, one.arg(other_libraries.ROOTED[name], "root"))
    if name in words.AGREEING_CALLS:
        return mixing.of_library(m, result(one).clean(), one)
    if name in words.CLOCK_CALLS:
        m.run.shared.discard(one.site)
        return with_origin(result(one), CLOCK, name, one)
    random = streams.random(m, one)
    if random is not None:
        return random
    if name in words.FILE_TESTS or one.method in names.PATH_TESTS:
        made = result(one)  # under a name that only this process has, none finds anything
        found = replace(made, origins=frozenset(o for o in made.origins if o.what != HASH))
        return with_origin(found, CLOCK if _is_polled(m, one) else FILES, name, one)
    named = _by_its_name(m, one) if one.receiver is None or one.method in words.MAIN_NAMES else None
    if one.receiver is not None:
        return named or _method(m, f, one)
    return named or result(one)


def _is_of_shards(one: RankCall) -> bool:
    """Whether it is given what fully_shard has taken: the norm of all needs all ranks' shards."""
    return any(thing.sharded is not None for value in one.given for thing in value.sources())


def _is_polled(m: RankMachine, one: RankCall) -> bool:
    """Whether a file is looked for again while the program trains: each rank when it comes by."""
    training = training_loops(m.run.calls) if one.loops else frozenset()
    # a loop around the start of all ranks is none of theirs: each round begins with new ones
    starts = (call for call in m.run.calls if one.loops and call.name == names.SPAWN)
    around = {loop.node for call in starts for loop in call.loops}
    own = (loop for loop in one.loops if loop.node not in around)
    return any(loop.trains or loop.node in training for loop in own)


def _by_its_name(m: RankMachine, one: RankCall) -> RankValue | None:
    """``is_main_process()`` of what is not here: nothing but the name says what it is."""
    known = one.name.startswith("torch.") or one.name.partition(".")[0] in sys.stdlib_module_names
    return None if known else m.by_name(one.method.removeprefix("get_"), one.site)


# -- torch.distributed -----------------------------------------------------------------------------


def _imported(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    """``sys.modules.get("numpy")``: the module, where it is there."""
    name = one.args[0].constant if one.args else None
    return naming.external(m, name) if isinstance(name, str) else None


def _share(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    """``with accelerator.split_between_processes(samples) as share:``"""
    share, padded = dealt(result(one), one), one.arg(1, "apply_padding")
    given = one.arg(0, "inputs")
    if given is None or (padded is not None and padded.constant is not False):
        return share
    own = OwnRows(key_of(share), (), (), picked.rows_of(given), stride=True)
    return replace(share, atoms=(own, own))


def _second(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    """``cast(Net, model)``."""
    return one.arg(1, "val")


def _spawn(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue:
    """``mp.spawn(fn, args=…)``: the function gets its process's number first."""
    target = one.arg(0, "fn")
    m.run.shared |= {call.site for call in m.run.calls}
    if target is not None:
        given = one.arg(1, "args")
        rest = given.items if given is not None and given.items is not None else ()
        number = m.rank_value(RANK, "the number that spawn gives", one.site)
        m.call_value(f, target, Given(one.node, args=(number, *rest)))
    return result(one)


# -- wrapped models --------------------------------------------------------------------------------


def _wrap(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue:
    value = result(one)
    wrapper = value.things[0]
    inner = one.arg(0, "module")
    if inner is not None:
        if not inner.things:  # a model whose making is not seen
            inner = replace(inner, things=(RankThing("parameter", "module", one.site),))
        wrapper.attrs["module"] = inner
        for thing in inner.things:
            thing.wrapper = wrapper
    if one.name == words.DDP and _is_of_all(wrapper):
        m.event(WRAPPING, one, one.node, f)
    return value


def _is_of_all(wrapper: RankThing) -> bool:
    """Whether a wrapper is not made for a group, of whose members nothing is known."""
    made = wrapper.call if wrapper.name in words.WRAPPERS else None
    position = 1 if wrapper.name == words.FSDP else -1
    group = made.arg(position, "process_group") if made is not None else None
    return group is None or is_world(group)


def _fully_shard(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue:
    model = one.arg(0, "module")
    for thing in model.things if model is not None else ():
        thing.sharded = one
    return model if model is not None else result(one)


def forward_event(m: RankMachine, f: RankFrame, one: RankCall) -> None:
    """A model is called: what that communicates."""
    thing = one.receiver.things[0] if one.receiver is not None and one.receiver.things else None
    if thing is None:
        return
    if not _is_of_all(thing):
        return
    if (
        thing.name == words.FSDP
        or thing.sharded is not None
        or (thing.name == words.DDP and thing.kind == "result" and has_buffers(thing))
    ):
        m.event("forward", one, one.node, f)


def _backward(m: RankMachine, f: RankFrame, one: RankCall) -> None:
    """The backward of a wrapped model reduces gradients; of one whose making is seen it may not."""
    loss = differentiated(one)
    if loss is None or not _reaches_wrapper(loss, m.run.script):
        return
    m.event("backward", one, one.node, f)


def _reaches_wrapper(loss: RankValue, script: bool) -> bool:
    """Through a wrapped model; in a part of a program also through one that is not seen made.

    Not where its forwards ran under ``no_sync()``.
    """
    sources = set(loss.sources())
    wrappers = [t for t in sources if t.name in words.WRAPPERS or t.sharded is not None]
    if wrappers:
        return not all(_is_alone(one, sources) or not _is_of_all(one) for one in wrappers)
    models = [t for t in sources if _is_module(t)]
    return not script and not models and any(t.kind in ("parameter", "attribute") for t in sources)


def _is_module(thing: RankThing) -> bool:
    """An object that may be a model: not the trainer that holds one, nor a loss by a function."""
    if thing.kind == "instance":
        return thing.cls is None or thing.cls.inherits("torch.nn.Module")
    functions = thing.name.startswith("torch.nn.functional.")
    return thing.name.startswith("torch.nn.") and not functions


def _is_alone(wrapper: RankThing, sources: set[RankThing]) -> bool:
    """Whether a wrapper was called, and each time such that the backward does not reduce."""
    calls = [t.call for t in sources if t.call is not None and t.call.method == "__call__"]
    mine = [c for c in calls if c.receiver is not None and wrapper in c.receiver.things]
    return bool(mine) and all(wrapped.is_unsynced(call, wrapper) for call in mine)


# -- methods ---------------------------------------------------------------------------------------


def _method(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue:
    receiver = one.receiver
    assert receiver is not None
    method = one.method
    if method == "__call__":
        forward_event(m, f, one)
        if is_scaler(one):
            _backward(m, f, one)
        return result(one)
    if method == "backward" and not one.name.startswith(("accelerate.", "lightning.")):
        _backward(m, f, one)
        return NONE
    if method in names.RETURNS_SELF | names.SAME_TENSOR and receiver.things:
        wrapped.modes(m, f, one)
        return casts.turned(m, one, receiver)
    if method == "addFilter":
        return _filtered(m, f, one)
    held = configured.asked(m, f, one, receiver) or objects.updated(m, one, receiver)
    held = held or containers.method(m, f, one, receiver)
    held = held or (builtin.names_of(receiver) if method == "keys" else None)
    if held is not None:
        return held
    if changes.changes(m, one):
        return changes.changed(m, f, one, receiver)
    if method in ("get", "pop") and any(t.name == "os.environ" for t in receiver.things):
        return environment.get(m, f, one) or result(one)
    if method in words.FRAMEWORK_MAINS:  # the Hugging Face Trainer's is a method
        found = [attributes.framework_rank(m, t, method, one.site) for t in receiver.things]
        return found[0] if len(found) == 1 and found[0] is not None else result(one)
    return measured.size(one, receiver) or result(one)


def _filtered(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue:
    """``logger.addFilter(lambda record: rank == 0)``: what the filter says of a record."""
    given = one.arg(0, "filter")
    if given is None or not given.things:
        return result(one)
    record = (symbol("record"),)
    asked = m.call_method(f, given, "filter", one.node, record)
    functions = all(thing.kind == "function" for thing in given.things)
    return asked or (m.apply(f, given, one.node, record) if functions else result(one))


# -- builtins --------------------------------------------------------------------------------------


def _identity(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    return one.args[0] if one.args else None


def _hooks(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    hooks.trained(m, f, one)
    return None


def _hf_hooks(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    trainer_hooks.trained(m, f, one)
    return None


def _known_and_rest(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue:
    """What ``parse_args`` gives, and the words that the parser does not know."""
    made = result(one)
    return replace(made, items=(made, replace(made, things=())))


_HF_WAYS: Final = ("train", "evaluate", "predict")
_HANDLERS: Final[dict[str, Callable[[RankMachine, RankFrame, RankCall], RankValue | None]]] = {
    **builtin.HANDLERS,
    **measured.HANDLERS,
    **dict.fromkeys(words.RANK_CALLS, rank_of_group),
    **dict.fromkeys(words.LOCAL_RANK_CALLS, local_rank),
    **dict.fromkeys(words.SIZE_CALLS, world_size),
    **dict.fromkeys(words.RANK_AND_SIZE_CALLS, rank_and_size),
    **dict.fromkeys(words.TRUE_CALLS, true),
    f"{words.DIST}is_initialized": is_initialized,
    "sys.modules.get": _imported,
    "typing.cast": _second,
    "argparse.ArgumentParser.parse_known_args": _known_and_rest,
    words.DDP: _wrap,
    words.FSDP: _wrap,
    words.FULLY_SHARD: _fully_shard,
    names.SPAWN: _spawn,
    **dict.fromkeys(words.SPLITS, _share),
    **dict.fromkeys(prepared.MAKES, prepared.made),
    **dict.fromkeys(prepared.CALLS, prepared.prepared),
    "deepspeed.initialize": prepared.engine,
    **dict.fromkeys(prepared.UNWRAPS, prepared.unwrapped),
    **dict.fromkeys(commandline.CALLS, commandline.started),
    **dict.fromkeys(configured.CALLS, configured.instantiated),
    "lightning.pytorch.Trainer.fit": _hooks,
    "lightning.pytorch.Trainer.validate": _hooks,
    "lightning.pytorch.Trainer.test": _hooks,
    **dict.fromkeys([f"{words.HF_TRAINER}.{way}" for way in _HF_WAYS], _hf_hooks),
    **dict.fromkeys(names.COMPILERS, _identity),
    "torch.nn.SyncBatchNorm.convert_sync_batchnorm": _identity,
}
