"""Programs that are one process: they say ``world_size=1``, ``devices=1``, they start Ray's actors,
or pytest runs them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import chain
from typing import Final

from ddpify.ranks import prepared, words
from ddpify.ranks.events import Store
from ddpify.ranks.hooks import trains
from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.run import Run

_DEVICES = ("lightning.fabric.Fabric", "lightning.pytorch.Trainer")
_SHARED = ("ddp", "fsdp", "deepspeed", "horovod")
_ENGINE: Final = "deepspeed.initialize"
_WRAPS: Final = frozenset(
    (
        *(words.DDP, words.FSDP, words.FULLY_SHARD, words.SAMPLER),
        *(_ENGINE, "horovod.torch.DistributedOptimizer"),
    )
)
_MEETS: Final = words.COLLECTIVE_OPS - words.SESSION_OPS
_STARTS: Final = re.compile(
    r"spawn\(|\bProcess\(|start_processes|submitit|import ray\b|(?<![.\w])launch\(|_launcher\("
    r"|nprocs?\b|nproc_per_node|sys\.executable|[\"'](?:python3?|torchrun|mpirun|srun)\b"
)
_ASKS: Final = re.compile(r"world_?size|get_rank|main_process", re.IGNORECASE)
_PLACES: Final = frozenset(("set_device", "device", "to", "cuda", "print"))
_SCOPES: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_ASKS_OF_TORCH: Final = re.compile(r"__name__|is_initialized|is_available")


def one_process(run: Run) -> bool:
    """Whether every group that it opens has one member, and every framework one device."""
    opened = [*run.named(f"{words.DIST}init_process_group")]
    made = [*run.named("accelerate.Accelerator", *_DEVICES)]
    if not opened and not made:
        return False
    return all(map(_one_device, made)) and all(_one_member(run, call) for call in opened)


def drives(run: Run) -> bool:
    """Whether it is the one process that starts Ray's actors, which open the group."""
    return run.opener is None and any(call.everywhere for call in run.named("ray.init"))


def runs_alone(run: Run) -> bool:
    """Whether pytest runs it, in one process: it asks for no others."""
    asks = any(may_be_several(call) for call in run.named(*_DEVICES))
    return run.tested and run.session is None and not asks


def is_tested(run: Run) -> bool:
    """Whether it is a test with a framework's objects, which work in the one process of pytest as
    well, and nothing of several processes."""
    objects = any(run.named("accelerate.Accelerator", *_DEVICES))
    return objects and runs_alone(run) and not any(map(_is_of_several, run.calls))


def may_be_alone(run: Run) -> bool:
    """Whether a script, started as one process, is one to its end, and need not be more: it joins
    a group only where it finds others, starts none, and trains no model for several."""
    joins = (*run.openings, *run.named("deepspeed.init_distributed", _ENGINE))
    return _starts_none(run) and not _trains_for_several(run) and all(map(_is_chosen, joins))


def is_of_one(run: Run) -> bool:
    """Whether a script that a launcher starts as one process has nothing for more: it deals no
    data, meets no others, and asks neither which rank it is nor how many there are."""
    asks = any(_ASKS.search(module.source.text) for module in run.modules.values())
    return _starts_none(run) and not asks and not any(map(_is_for_several, run.calls))


def _starts_none(run: Run) -> bool:
    """Whether a script is read to its end, and starts no other processes."""
    begins = any(run.named(*_DEVICES))
    starts = any(_STARTS.search(module.source.text) for module in run.modules.values())
    return run.complete and not run.assumed and not begins and not starts


def _is_for_several(call: RankCall) -> bool:
    if call.name == _ENGINE:
        return call.arg(4, "training_data") is not None  # it deals them
    wraps = call.name in _WRAPS or call.name in prepared.CALLS or call.method in _MEETS
    here = call.method not in _PLACES and any(value.by_rank for value in call.given)
    return wraps or here or any(guard.test.by_rank for guard in call.guards)


def _trains_for_several(run: Run) -> bool:
    """Whether it was written for several processes, whatever a first example starts."""
    if any(run.named(f"{words.HF_TRAINER}.train")):
        return True
    return bool(run.backwards) and any(
        call.name in _WRAPS or call.name in prepared.CALLS or call.method in _MEETS
        for call in run.calls
    )


def _is_chosen(opening: RankCall) -> bool:
    """Whether a condition stands before a call: its own, a caller's, or one that returns first."""
    return any(
        isinstance(node, ast.If)
        and not _ASKS_OF_TORCH.search(ast.unparse(node.test))
        and (call.node in ast.walk(node) or (_returns(node) and node.lineno < call.node.lineno))
        for call in opening.way
        for node in _within(call.function.node if call.function else call.module.tree)
    )


def _within(scope: ast.AST) -> Iterator[ast.AST]:
    """What stands in a function or a file, and not in a function within."""
    for node in ast.iter_child_nodes(scope):
        if not isinstance(node, _SCOPES):
            yield node
            yield from _within(node)


def _returns(node: ast.If) -> bool:
    return any(isinstance(one, ast.Return) for one in ast.walk(node))


def _is_of_several(call: RankCall) -> bool:
    return call.name.startswith(words.DIST) or call.name in (words.DDP, words.FSDP)


def is_idle(run: Run) -> bool:
    """Whether the Trainers of a script run nothing, so that none starts a process: they are asked
    for no loop, and nobody else gets them. A model is loaded beside one, whose logger is used."""
    if not (run.script and run.complete) or any(map(trains, run.calls)):
        return False
    made = [call for call in run.named(words.TRAINER) if call.result is not None]
    things = {thing for call in made if call.result is not None for thing in call.result.things}
    kept = (store.value for store in run.stores)
    used = (value for call in run.calls if call.target is None for value in call.inputs)
    return bool(made) and not any(_holds(value, things) for value in chain(kept, used))


def _holds(value: RankValue, things: set[RankThing], depth: int = 4) -> bool:
    parts = (*(value.items or ()), *(part for _, part in value.keys or ()))
    return not things.isdisjoint(value.things) or (
        depth > 0 and any(_holds(part, things, depth - 1) for part in parts)
    )


def _one_device(call: RankCall) -> bool:
    """Whether a call is ``Fabric(devices=1)``, written so: a parameter may be another number."""
    written = {word.arg: ast.unparse(word.value) for word in call.node.keywords}
    configured = call.kwargs.get("devices")
    if "devices" not in written and configured is not None:  # by a configuration
        written["devices"] = repr(configured.constant)
    one = written.get("devices") in ("1", "'1'") or _on_the_cpu(call, written)
    return one and written.get("num_nodes", "1") == "1" and call.name in _DEVICES


def _on_the_cpu(call: RankCall, written: dict[str | None, str]) -> bool:
    """``Trainer(accelerator="cpu")``: of CPUs a Trainer takes one, unless it is told how many.
    A Fabric may be told by ``fabric run``."""
    told = None in written or call.star or "devices" in written or "strategy" in written
    return call.name == words.TRAINER and written.get("accelerator") == "'cpu'" and not told


def _one_member(run: Run, call: RankCall) -> bool:
    size, store = call.arg(3, "world_size"), call.arg(5, "store")
    if store is not None and store.made_by(f"{words.DIST}HashStore"):
        return True  # no other process can reach it
    if size is not None and size.constant is not None and str(size.constant) == "1":
        return True
    return _said(run, call)


def _said(run: Run, call: RankCall) -> bool:
    """Whether the program sets WORLD_SIZE to 1 before, or RANK to one number, wherever it opens the
    group, and asks for them there."""
    sizes = _set_before(run, call, "WORLD_SIZE") if call.arg(3, "world_size") is None else []
    ranks = _set_before(run, call, "RANK") if call.arg(4, "rank") is None else []
    return (bool(sizes) and set(sizes) == {"1"}) or (bool(ranks) and "None" not in ranks)


def _set_before(run: Run, call: RankCall, name: str) -> list[str]:
    """What a variable of the environment is set to before a call; "None" if that is not known, or
    not done wherever the call is made."""
    stores = [
        (store, store.value)
        for store in run.stores
        if store.key == name and "os.environ" in store.base.names()
    ]
    updates = [
        (one, value)
        for one in run.named("os.environ.update")
        for key, value in (*one.kwargs.items(), *((one.args[0].keys or ()) if one.args else ()))
        if key == name
    ]
    return [
        str(value.constant if set(one.guards) <= set(call.guards) else None)
        for one, value in chain[tuple[Store | RankCall, RankValue]](stores, updates)
        if one.order < call.order
    ]


def may_be_several(trainer: RankCall) -> bool:
    """Whether the arguments of a Trainer or a Fabric may start several processes."""
    given = [trainer.kwargs.get(name) for name in ("devices", "gpus", "num_nodes")]
    counts = [value for value in given if value is not None]
    strategy = trainer.kwargs.get("strategy")
    if any(_is_one(value) for value in counts[:1]) and len(counts) == 1:
        return False
    said = (strategy.constant, *strategy.names()) if strategy is not None else ()
    return bool(counts) or any(_is_shared(one) for one in said)


def _is_shared(strategy: object) -> bool:
    """``"ddp_spawn"``, or what a ``lightning.pytorch.strategies.DDPStrategy()`` is called."""
    word = strategy.rpartition(".")[2].lower() if isinstance(strategy, str) else ""
    return word.startswith(_SHARED)


def _is_one(value: RankValue) -> bool:
    single = value.items is not None and len(value.items) == 1
    return single or str(value.constant) in ("0", "1")
