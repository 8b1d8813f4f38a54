"""DDP301: a trained model's gradients are not synchronised."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from ddpify.facts.joining import held
from ddpify.facts.model import Facts, Home, Model
from ddpify.facts.roles import whole
from ddpify.facts.values import Kind
from ddpify.rules.base import Edit, Finding, How, Rule, Severity
from ddpify.rules.edits import edit, proof
from ddpify.rules.examples import (
    CORRECT,
    LEARNER,
    PROJECT,
    SCRIPT,
    SINGLE,
    TRAINER,
    changed,
    marked,
)
from ddpify.rules.model.building import Building, building
from ddpify.rules.shared.sharding import idle_options, sharded, unknown_classes
from ddpify.rules.shared.unfreezing import unfreezes
from ddpify.settings import Settings
from ddpify.source import Site
from ddpify.strategies import of

OPTIONS = {  # in the order in which they are written
    "sync_batchnorm": True,
    "broadcast_buffers": False,
    "find_unused_parameters": True,
    "static_graph": True,
}
_BUILT = "with built_on_main():"
RUNS_MODEL = (".add_graph", "torch.onnx.export", ".summary", "torch.jit.trace")


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per trained model that nothing wraps."""
    for name in unknown_classes(facts, settings) if facts.models else ():
        message = f"no file that was read has a class {name}: one that does not fit shards nothing"
        yield Finding("DDP301", facts.models[0].things[0].born, message, Severity.NOTE)
    for model in facts.models:
        if model.wrapped:
            continue
        home = model.home
        fix: tuple[Edit, ...] = ()
        if home is not None:
            alike = [m for m in facts.models if m.home == home and not m.wrapped]
            if of(settings).shards:
                for option in idle_options(facts, alike, settings):
                    yield Finding(
                        "DDP301",
                        home.statement,
                        f"nothing repeats in this model: {option} changes nothing",
                        Severity.NOTE,
                        advice="name the classes of its blocks: --fsdp-wrap CLASS",
                    )
                normed = any("sync_batchnorm" in _of_one(facts, m, settings) for m in alike)
                fix = (sharded(facts, home, alike, settings, normed),)
                if settings.fsdp_meta:
                    made = building(facts, home, alike)
                    yield from _not_by_shapes(made)
                    fix = (*fix, *(edit(facts, How.INDENT, s, _BUILT) for s in made.statements))
            else:
                fix = (_wrapped(facts, home, alike, settings),)
        if model.batch_norm and settings.sync_bn == "auto":
            yield from _without_sync(facts, model)
        yield Finding(
            "DDP301",
            home.statement if home is not None else model.things[0].born,
            "its gradients are not averaged over the ranks: the model is not wrapped",
            Severity.ERROR,
            fix,
            "" if fix else "give the model a name before its optimizer is built, then run again",
            proof(model.things),
        )


def _not_by_shapes(made: Building) -> Iterable[Finding]:
    """What stands against a construction of shapes alone."""
    for site, why in made.against:
        yield Finding(
            "DDP301",
            site,
            f"ranks > 0 would have shapes alone of the model, and this {why}",
            Severity.ERROR,
            advice="change it, or leave out --fsdp-meta",
        )


def _wrapped(facts: Facts, home: Home, alike: list[Model], settings: Settings) -> Edit:
    """The edit that wraps what has a home."""
    code = _written(facts, home, _options(facts, alike, settings))
    unused = next((m.unused for m in alike if m.unused), "")
    unused = unused if settings.find_unused == "auto" else ""
    code += f"  # {unused}" if unused else ""
    if any(unfreezes(facts, m) for m in alike) and not home.each:
        code = f"with unfrozen({home.target}):\n{textwrap.indent(code, '    ')}"
    return edit(facts, How.AFTER, home.statement, code)


def _written(facts: Facts, home: Home, options: str) -> str:
    """The statement that wraps what has a home."""
    name = "model" if home.each else home.target
    wrapped = f"wrap_model({name}{options})"
    wrapped = f"average_statistics({wrapped})" if facts.keeps_means else wrapped
    wrapped = f"split_batches({wrapped})" if facts.whole_batches else wrapped
    if home.each == "list":
        return f"{home.target} = [{wrapped} for model in {home.target}]"
    if home.each:
        return f"{home.target} = {{key: {wrapped} for key, model in {home.target}.items()}}"
    code = f"{home.target} = {wrapped}"
    return f"if {home.target} is not None:\n    {code}" if home.optional else code


def _options(facts: Facts, models: list[Model], settings: Settings) -> str:
    """What the wrapper is told; of models that get one name, what any of them needs."""
    wanted = {one for model in models for one in _of_one(facts, model, settings)}
    cap = settings.bucket_cap
    said = "".join(f", {name}={value}" for name, value in OPTIONS.items() if name in wanted)
    return said + (f", bucket_cap_mb={cap}" if cap is not None else "")


def _of_one(facts: Facts, model: Model, settings: Settings) -> Iterable[str]:
    """A single-GPU script's batch norm saw the whole batch; DataParallel's saw one replica's."""
    wanted = settings.sync_bn == "on"
    if settings.sync_bn == "auto":
        whole_batch = not model.data_parallel or _synchronised_by_hand(facts)
        alone = _shown_by_one_rank(facts, model) or _told_by_class(facts) is not None
        wanted = whole_batch and not alone
    if wanted and model.batch_norm:
        yield "sync_batchnorm"
    if model.repeated and model.buffers:  # a broadcast between forwards would change the graph
        yield "broadcast_buffers"
    unused = model.unused or unfreezes(facts, model)
    if settings.find_unused == "on" or (unused and settings.find_unused == "auto"):
        yield "find_unused_parameters"
    if settings.static_graph:
        yield "static_graph"


def _synchronised_by_hand(facts: Facts) -> bool:
    """A batch norm of the project's own that meets its replicas under nn.DataParallel.

    The hook is that of Synchronized-BatchNorm-PyTorch, which many projects carry a copy of; torch
    converts its layers as any that inherit `_BatchNorm`.
    """
    hook = "def __data_parallel_replicate__("
    return any(hook in tree.source.text for tree in facts.trees.values())


def _without_sync(facts: Facts, model: Model) -> Iterable[Finding]:
    if model.data_parallel:
        return
    place, why = model.things[0].born, ""
    asked = _told_by_class(facts)
    if _shown_by_one_rank(facts, model):
        why = "one rank alone runs the model for the tracker"
        advice = "remove that call"
    elif asked is not None:
        place, why = asked, "this code, which runs while the model trains, asks for torch's class"
        advice = "ask for `torch.nn.modules.batchnorm._BatchNorm` here"
    if why:
        advice += " and pass --sync-bn on to keep statistics over the whole batch"
        message = f"batch norm stays per rank: {why}"
        yield Finding("DDP301", place, message, Severity.NOTE, (), advice)


def _told_by_class(facts: Facts) -> Site | None:
    """Where training asks whether a layer is `nn.BatchNorm2d`, which `SyncBatchNorm` is not."""
    loops = {loop.site for one in facts.training for loop in (one.batch, one.epoch) if loop}
    inside = [call for call in facts.within if call.name == "builtins.isinstance"]
    for call in (*facts.named("builtins.isinstance"), *inside):
        names = [t.name for t in held(call.args[1], Kind.EXTERNAL)] if len(call.args) > 1 else []
        asks = any(name.startswith("torch.nn.BatchNorm") for name in names)
        if asks and (call in inside or any(loop.site in loops for loop in call.where.loops())):
            return call.site
    return None


def _shown_by_one_rank(facts: Facts, model: Model) -> bool:
    """A tracker that runs the model does so on rank 0 alone: SyncBatchNorm would wait there."""
    made = {t.born for t in model.things}
    return any(
        whole(thing).born in made
        for call in facts.calls
        if call.name.endswith(RUNS_MODEL)
        for value in (*call.args, *call.kwargs.values())
        for thing in value.of(Kind.MODEL, Kind.WRAPPED)
    )


RULE = Rule(
    "DDP301",
    "model-not-wrapped",
    "DistributedDataParallel averages gradients over the ranks during backward. A trained model"
    " or parameter without it becomes a different one on every rank, silently.",
    "torch.nn.parallel.DistributedDataParallel; CONTRACT: Model",
    check,
    bad=(
        changed(SCRIPT, (".to(device)\nnet = wrap_model(net)", ".to(device)  # DDP301")),
        changed(
            PROJECT,
            (".to(place)\n    brain = wrap_model(brain)", ".to(place)  # DDP301"),
        ),
        changed(
            TRAINER,
            (
                "to(local_device())\n        self.pupil = wrap_model(self.pupil)",
                "to(local_device())  # DDP301",
            ),
        ),
        marked(SINGLE, "DDP301", "nn.Linear(32, 4)).cuda()"),
        marked(LEARNER, "DDP301", "self.core.to(place)"),
        changed(  # SyncBatchNorm is no BatchNorm1d: it would keep its momentum
            SINGLE,
            ("nn.Linear(16, 32), nn.ReLU", "nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU"),
            ("nn.Linear(32, 4)).cuda()\n", "nn.Linear(32, 4)).cuda()  # DDP301\n"),
            ("        net.train()\n", "        net.train()\n        net.apply(slow)\n"),
            (
                "def main():\n",
                "def slow(layer):\n"
                "    if isinstance(layer, nn.BatchNorm1d):  # DDP301\n"
                "        layer.momentum = 0.01\n\n\ndef main():\n",
            ),
        ),
    ),
    good=CORRECT,
)
