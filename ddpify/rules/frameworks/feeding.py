"""The loaders that a Trainer takes its batches from, and where each is dealt to the ranks."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ddpify.facts.tree import last_name
from ddpify.names import INSTALLED
from ddpify.ranks.collective import collective
from ddpify.ranks.hooks import BATCHES, LOADS, TRAINER
from ddpify.ranks.model import RankCall, RankLoop, RankThing, RankValue
from ddpify.ranks.modules import Module
from ddpify.ranks.passes import is_loader, iterated, loaders_in
from ddpify.ranks.run import Fed, Run
from ddpify.ranks.words import COLLECTIVE_CALLS, SIZE_CALLS, SIZE_VARIABLES
from ddpify.rules.base import Edit, How, Import
from ddpify.rules.frameworks.lightnings import logs
from ddpify.rules.shared.feeds import argument, dataset_of, dealt_by
from ddpify.rules.shared.hook_parts import evaluating
from ddpify.rules.shared.rank_zero import in_hook
from ddpify.site import Site, Span

GONE_OVER = "the program goes over it, too: make another one for the Trainer"
_STREAM = "torch.utils.data.IterableDataset"
_BY_ITSELF = "prepare_data"
_PROCESSES = ("world_size", "num_devices", "device_count", "get_world_size", "num_processes")
_COMBINED = ".CombinedLoader"
_HELD = tuple(
    f"{TRAINER}.{name}" for name in ("train_dataloader", "val_dataloaders", "test_dataloaders")
)
_TAKES = tuple(f"builtins.{name}" for name in ("iter", "list", "tuple", "enumerate", "zip", "map"))


@dataclass(frozen=True)
class FedLoader:
    """A loader, what gave it to the Trainer, and whether training goes over it."""

    thing: RankThing
    made: RankCall
    fed: Fed

    @property
    def trains(self) -> bool:
        """Whether steps are made of its batches; else an evaluation is."""
        return self.fed.trains


def loaders(run: Run) -> list[FedLoader]:
    """The loaders of a run that no sampler of the program deals."""
    return run.once(_loaders)


def _loaders(run: Run) -> list[FedLoader]:
    found = {
        (thing, fed.trains): FedLoader(thing, thing.call, fed)
        for fed in run.fed
        for thing in loaders_in(fed.value)
        if thing.call is not None and not thing.deals and not dealt_by(thing)
    }
    return list(found.values())


def unknown(run: Run) -> Iterator[Fed]:
    """Hooks that give something else than loaders, if beside loaders, and arguments; each once."""
    seen = set()
    for one in run.fed:
        key = one.hook or one.call.node
        nothing = one.value.known or one.value.items == ()
        if not nothing and key not in seen and not all(map(_is_fed, _parts(one.value))):
            seen.add(key)
            yield one


def _parts(value: RankValue) -> list[RankValue]:
    """What a list or a dictionary holds, or the value itself."""
    held = value.items if value.items is not None else [one for _, one in value.keys or ()]
    return [part for one in held for part in _parts(one)] if held else [value]


def _is_fed(value: RankValue) -> bool:
    """Whether a value is None, loaders, or Lightning's combination of some."""
    if not value.things:
        return value.known
    return all(
        is_loader(thing) or (thing.name.endswith(_COMBINED) and bool(loaders_in(value)))
        for thing in value.things
    )


def place_of(fed: Fed) -> Site:
    """The head of the hook, or the call that is given something."""
    if fed.hook is None:
        return fed.call.site
    site = fed.hook.site
    line = site.span.line
    return Site(site.path, Span(line, site.span.column, line, site.span.column))


def dealt(run: Run, loader: FedLoader) -> tuple[tuple[Edit, ...], str]:
    """The edit that has a helper deal a loader's batches, or why there is none."""
    helper = "share_training" if loader.trains else "share_evaluation"
    why = _why_not(run, loader)
    site = None if why else _place(run, loader)
    if why or site is None:
        return (), why or "one call makes it and another one: make them in two calls"
    return (Edit(How.REPLACE, site, f"{helper}({{}})", imports=(Import(INSTALLED, helper),)),), ""


def _why_not(run: Run, loader: FedLoader) -> str:
    hooks = [f.name for f in (one.function for one in loader.made.way) if f is not None and f.owner]
    if loader.trains and is_divided(loader):
        return "its batch size is that of a process"
    if loader.trains and run.once(_asks_for_size):
        return "the program asks how many processes there are: is this the size for one of them?"
    if _BY_ITSELF in hooks:
        return "prepare_data makes it, in one process: make it in setup()"
    if loader.made.node in run.once(_gone_over):
        return GONE_OVER
    dataset = dataset_of(loader.thing)
    if dataset is not None and any(_streams(thing) for thing in dataset.things):
        return "an IterableDataset deals its samples itself: give the loader a process's batch size"
    if not _is_followed(dataset) and run.once(_says_stream):
        return "what it loads is not followed, and may be an IterableDataset: give it one that is"
    size = loader.made.arg(1, "batch_size")
    if size is not None and size.known and argument(loader.thing, 1, "batch_size") is None:
        return "`batch_size=None`: what it is given makes batches, to be divided there"
    return ""


def is_divided(loader: FedLoader) -> bool:
    """Whether the batch size is made of the number of processes: the author has divided it."""
    size = loader.made.arg(1, "batch_size")
    sources = {*size.sources()} if size is not None else set()
    devices = loader.fed.call.receiver.made_by(TRAINER) if loader.fed.call.receiver else None
    given = devices.call.kwargs.get("devices") if devices is not None and devices.call else None
    named = any(one.name.rpartition(".")[2] in _PROCESSES for one in sources)
    return named or (given is not None and not sources.isdisjoint(given.things))


def _asks_for_size(run: Run) -> bool:
    """Whether the program asks for the number of processes, of which a size may be made."""
    own = [module for module in run.modules.values() if not module.ours]
    read = any(name in module.source.text for module in own for name in SIZE_VARIABLES)
    read |= any(call.name in SIZE_CALLS and not call.module.ours for call in run.calls)
    return read or _computes(own, {*_devices(run)})


def _devices(run: Run) -> Iterator[str]:
    """The names by which Trainers are given their number of devices."""
    for call in run.named(TRAINER):
        given = (one.value for one in getattr(call.node, "keywords", ()) if one.arg == "devices")
        yield from map(last_name, given)


def _computes(modules: Iterable[Module], names: set[str]) -> bool:
    """Whether a file multiplies or divides by something of such a name."""
    return any(
        {last_name(node.left), last_name(node.right)} & names - {""}
        for module in modules
        for node in module.nodes
        if isinstance(node, ast.BinOp)
    )


def _gone_over(run: Run) -> set[ast.AST]:
    """The calls that make loaders that the program itself goes over; a hook may look at a batch."""
    outside = [call for call in run.calls if not in_hook(call)]
    taken = [one for call in outside if call.name in _TAKES for one in call.args]
    loops = {loop for call in run.calls for loop in call.loops}
    held = {trains for loop in loops for trains in _held(loop)}
    fed = [one for one in _loaders(run) if one.trains in held]
    things = [
        *(thing for loop in loops for thing in iterated(loop)),
        *(thing for value in taken for thing in loaders_in(value)),
        *(one.thing for one in fed),
    ]
    return {thing.call.node for thing in things if thing.call is not None}


def _held(loop: RankLoop) -> Iterator[bool]:
    """``for batch in trainer.val_dataloaders``: whether it is trained on."""
    things = (*loop.over.things, *loop.over.sources()) if loop.over is not None else ()
    yield from (thing.name == _HELD[0] for thing in things if thing.name in _HELD)


def _streams(thing: RankThing) -> bool:
    return thing.cls is not None and thing.cls.inherits(_STREAM)


def _is_followed(dataset: RankValue | None) -> bool:
    """Whether it is known what makes a data set."""
    kinds = {thing.kind for thing in dataset.things} if dataset is not None else set()
    return bool(kinds) and kinds <= {"instance", "result"}


def _says_stream(run: Run) -> bool:
    own = (module for module in run.modules.values() if not module.ours)
    return any("IterableDataset" in module.source.text for module in own)


def _place(run: Run, loader: FedLoader) -> Site | None:
    """The call that makes it, or what leads there from the hook if others come there, too."""
    others = [
        one
        for one in loaders(run)
        if one.made.node is loader.made.node and one.trains is not loader.trains
    ]
    if not others:
        return loader.made.site
    first = _in_its_hook(loader)
    if first is None or any(first.node in [c.node for c in o.made.way] for o in others):
        return None
    if first.result is None or loader.thing not in first.result.things:
        return None  # a tuple of loaders
    return first.site


def _in_its_hook(loader: FedLoader) -> RankCall | None:
    return next((c for c in loader.made.way if c.function is loader.fed.hook), None)


def meeting(run: Run) -> RankCall | None:
    """A call at which all ranks meet in each batch of an evaluation, as a step's logs do."""
    return run.once(_meeting)


def _meeting(run: Run) -> RankCall | None:
    met = next((call for call in run.calls if _meets(call)), None)
    return met or next((call for call in logs(run) if _is_synced_by_step(call)), None)


def _meets(call: RankCall) -> bool:
    hook = evaluating(call)
    if hook is None or hook.name not in BATCHES:
        return False
    known = collective(call) is not None or call.name in COLLECTIVE_CALLS
    return known or (call.method == "compute" and call.target is None)


def _is_synced_by_step(call: RankCall) -> bool:
    given = [call.kwargs.get(name) for name in ("on_step", "sync_dist")]
    asked = all(one is not None and one.constant is not False for one in given)
    return asked and evaluating(call) is not None


def are_dealt(run: Run, training: bool) -> bool:
    """Whether our helpers deal all batches of the training, or of the evaluations, or will."""
    rest = [one for one in loaders(run) if one.trains is training]
    known = all(one.trains is not training for one in unknown(run))
    calm = training or meeting(run) is None
    return known and calm and all(dealt(run, one)[0] for one in rest)


def is_one(run: Run, hook: str) -> bool:
    """Whether one loader gives the batches of a hook of this name."""
    stage = "val" if "valid" in hook else "test"
    given = [fed for fed in run.fed if fed.name in (f"{stage}{LOADS}", f"{stage}{LOADS}s")]
    found = {thing for fed in given for thing in loaders_in(fed.value)}
    return len(found) == 1 and not any(fed.value.items for fed in given)
