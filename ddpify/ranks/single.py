"""Programs that say themselves that they are one process: ``world_size=1``, ``devices=1``."""

from __future__ import annotations

import ast
from itertools import chain

from ddpify.ranks import words
from ddpify.ranks.events import Store
from ddpify.ranks.model import RankCall, RankValue
from ddpify.ranks.run import Run

_DEVICES = ("lightning.fabric.Fabric", "lightning.pytorch.Trainer")
_SHARED = ("ddp", "fsdp", "deepspeed", "horovod")


def one_process(run: Run) -> bool:
    """Whether every group that it opens has one member, and every framework one device."""
    opened = [*run.named(f"{words.DIST}init_process_group")]
    made = [*run.named("accelerate.Accelerator", *_DEVICES)]
    if not opened and not made:
        return False
    return all(map(_one_device, made)) and all(_one_member(run, call) for call in opened)


def _one_device(call: RankCall) -> bool:
    """Whether a call is ``Fabric(devices=1)``, written so: a parameter may be another number."""
    written = {word.arg: ast.unparse(word.value) for word in call.node.keywords}
    configured = call.kwargs.get("devices")
    if "devices" not in written and configured is not None:  # by a configuration
        written["devices"] = repr(configured.constant)
    one = written.get("devices") in ("1", "'1'") and written.get("num_nodes", "1") == "1"
    return one and call.name in _DEVICES


def _one_member(run: Run, call: RankCall) -> bool:
    size, store = call.arg(3, "world_size"), call.arg(5, "store")
    if store is not None and store.made_by(f"{words.DIST}HashStore"):
        return True  # no other process can reach it
    if size is not None and size.constant is not None and str(size.constant) == "1":
        return True
    return _said(run, call)


def _said(run: Run, call: RankCall) -> bool:
    """Whether the program sets WORLD_SIZE to 1 before, wherever it opens the group."""
    stores = [
        (store, store.value)
        for store in run.stores
        if store.key == "WORLD_SIZE" and "os.environ" in store.base.names()
    ]
    updates = [
        (one, value)
        for one in run.named("os.environ.update")
        for key, value in (*one.kwargs.items(), *((one.args[0].keys or ()) if one.args else ()))
        if key == "WORLD_SIZE"
    ]
    said = [
        str(value.constant) == "1" and set(one.guards) <= set(call.guards)
        for one, value in chain[tuple[Store | RankCall, RankValue]](stores, updates)
        if one.order < call.order
    ]
    return bool(said) and all(said)


def asks_for_several(run: Run) -> bool:
    """Whether a Trainer or a Fabric is made with arguments that may start several processes."""
    return any(may_be_several(call) for call in run.named(*_DEVICES))


def may_be_several(trainer: RankCall) -> bool:
    """Whether the arguments of a Trainer or a Fabric may start several processes."""
    given = [trainer.kwargs.get(name) for name in ("devices", "gpus", "num_nodes")]
    counts = [value for value in given if value is not None]
    strategy = trainer.kwargs.get("strategy")
    if any(_is_one(value) for value in counts[:1]) and len(counts) == 1:
        return False
    word = strategy.constant if strategy is not None else None
    return bool(counts) or (isinstance(word, str) and word.startswith(_SHARED))


def _is_one(value: RankValue) -> bool:
    single = value.items is not None and len(value.items) == 1
    return single or str(value.constant) in ("0", "1")
