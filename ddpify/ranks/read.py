"""From files to runs: which can matter, which are scripts, which functions no script reaches."""

from __future__ import annotations

import ast
import gc
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from ddpify.ranks import (
    attributes,
    calls,
    functions,
    hooks,
    naming,
    prepared,
    trainer_hooks,
    words,
)
from ddpify.ranks.files import DistributedProject
from ddpify.ranks.frames import RankFrame
from ddpify.ranks.imports import is_ours
from ddpify.ranks.interest import Interest, says
from ddpify.ranks.machine import RankReader
from ddpify.ranks.memory import TextMemory
from ddpify.ranks.model import ALL, RankCall, RankGuard, RankThing, RankValue
from ddpify.ranks.modules import FunctionDefinition, Module, Place
from ddpify.ranks.opened import asked_library, opens
from ddpify.ranks.run import Run, is_test
from ddpify.ranks.single import drives, is_idle, is_tested, one_process
from ddpify.ranks.values import constant, of

# The largest of ten well-known repositories takes 75,000 for all its runs, 6,000 for one.
MAX_STATEMENTS, PROJECT_STATEMENTS, FEW_STATEMENTS = 12_000, 200_000, 1_000
# What makes a function that no script reaches worth a run of its own.
_START = (
    *"dist. distributed all_reduce all_gather barrier( get_rank rank is_main is_master".split(),
    *"DataParallel DDP FSDP fully_shard DistributedSampler no_sync set_epoch Accelerator".split(),
    *"Fabric self.log( rank_zero use_reentrant sync_dist".split(),
)
_SPAWN = "spawn("
_INIT = f"{words.DIST}init_process_group"
_SESSIONS = frozenset(
    {
        words.DDP,
        words.FSDP,
        words.FULLY_SHARD,
        words.SAMPLER,
        *words.STARTERS,
    }
)
_MULTIPLE = frozenset(
    "main_process_first local_main_process_first split_between_processes print accumulate".split()
)
_STRATEGIES = ("fsdp", "deepspeed", "ddp_")


@dataclass
class Reading:
    """The starts of a project, and one run from each."""

    project: DistributedProject
    interest: Interest
    assumed: bool = False
    entered: set[Place] = field(default_factory=set)
    spent: int = 0

    @classmethod
    def of(
        cls,
        root: Path,
        files: Sequence[Path],
        texts: Mapping[Path, bytes] | None = None,
        assume_distributed: bool = False,
        words: Sequence[str] = (),
        memory: TextMemory | None = None,
    ) -> Reading:
        """Read ``files`` and what they import; nothing is parsed yet. ``words``: see Interest."""
        project = DistributedProject.of(root, files, texts or {}, memory)
        if assume_distributed:
            project.concerned = sorted(project.texts)
        told = project.texts if project.concerned else {}
        interest = Interest.of(told.values(), words, memory)
        return cls(project, interest, assume_distributed)

    def scripts(self) -> Iterator[Run]:
        """One run for each script."""
        found = map(self.script, self.project.scripts())
        return (run for run in found if run is not None)

    def script(self, file: Path) -> Run | None:
        """The run of one script; None if it cannot be read."""
        module = self.project.modules.load(file)
        if module is None:
            return None
        return self._finished(_script(self.project, self.interest, module, self.limit))

    @cached_property
    def starts(self) -> dict[Place, FunctionDefinition]:
        """The functions that may be worth a run of their own, callers before what they call.

        First those that spawn: they say what the processes are given.
        """
        todo = _starts(self.project, self.interest)
        called = {name for info in todo for name in info.called() if name != info.name}
        todo.sort(key=lambda info: (_SPAWN not in info.text, info.name in called))
        return {info.place: info for info in todo}

    def functions(self) -> Iterator[Run]:
        """One run for each function that no run has entered."""
        return (self.function(place) for place in self.starts if place not in self.entered)

    def function(self, place: Place) -> Run:
        """The run that starts there."""
        info = self.starts[place]
        few = is_test(info.module.path)  # there are many, and each enters as much as a program
        limit = FEW_STATEMENTS if few else self.limit
        return self._finished(_function(self.project, self.interest, info, limit))

    @property
    def opened(self) -> frozenset[Path]:
        """Every file that was looked into."""
        modules = self.project.modules
        configs = (path for tree in modules.configs.values() for path in tree.files)
        named = (modules.root / path for path in configs)
        return frozenset({*self.project.texts, *modules.loaded, *modules.words, *named})

    @property
    def limit(self) -> int:
        """How many statements the next run may take: few, once the project has had its share."""
        return MAX_STATEMENTS if self.spent < PROJECT_STATEMENTS else FEW_STATEMENTS

    def _finished(self, machine: RankReader) -> Run:
        self.spent += machine.spent
        run = machine.finish()
        run.calls = list(_of_the_ranks(run.calls))
        run.missed = tuple(self._missed(run)) if run.stopped else ()
        self.entered |= run.entered
        run.session = next(run.named(_INIT), None)
        run.assumed = self.assumed
        run.distributed = self.assumed or _is_distributed(run)
        return run

    def _missed(self, run: Run) -> Iterator[str]:
        """What should have been read of the file in which a script begins."""
        module = run.modules.get(run.start)
        for info in module.all_functions() if module is not None else ():
            if info.place not in run.entered and self.interest.enters(info):
                yield f"{info.owner.name}.{info.name}" if info.owner else info.name


def read(
    root: Path,
    files: Sequence[Path],
    *,
    texts: Mapping[Path, bytes] | None = None,
    assume_distributed: bool = False,
) -> list[Run]:
    """All runs of the project that ``files`` are of."""
    with room():
        reading = Reading.of(root, files, texts, assume_distributed)
        return [*reading.scripts(), *reading.functions()]


@contextmanager
def room() -> Iterator[None]:
    """Programs nest deeply; and syntax trees are large and stay, so that looking through them for
    garbage again and again would cost half the time."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, 20_000))
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)
        if collecting:
            gc.enable()


def _of_the_ranks(calls: Sequence[RankCall]) -> Iterator[RankCall]:
    """Without those of the other arm: `if train: <opens a group> else: <one process infers>`."""
    openers = [call for call in calls if call.name == _INIT or call.name in _SESSIONS]
    for call in calls:
        if not openers or not all(_excludes(opener, call) for opener in openers):
            yield call


def _excludes(opener: RankCall, call: RankCall) -> bool:
    """Whether one run comes by one of both only: in each round, or each time that a function is
    called, a condition may be another one."""
    if not set(opener.loops).isdisjoint(call.loops):
        return False
    way = {(guard.node, guard.test.atoms): guard.holds for guard in opener.guards}
    return any(
        way.get((guard.node, guard.test.atoms), guard.holds) is not guard.holds
        for guard in call.guards
        if not guard.test.known
    )


def _is_distributed(run: Run) -> bool:
    if one_process(run) or is_tested(run) or drives(run):
        return False
    if run.unopened is not None:
        return True
    if any(call.name == _INIT or _joins(run, call) for call in run.calls):
        return True
    return _is_lightning(run) or _trains_by_rank(run) or _parts_before_backward(run)


def _parts_before_backward(run: Run) -> bool:
    """Whether, in a part of a program, ranks go apart before a backward in a file that wraps."""
    events = (one.event for one in run.mismatches if one.event.op == "backward")
    return not run.script and any(_WRAPS in event.module.source.text for event in events)


_WRAPS = "DistributedDataParallel"


def _is_asked(run: Run) -> bool:
    """Whether an Accelerator is given something, or asked who is who."""
    given = (call for call in run.calls if call.name.startswith("accelerate."))
    used = any(call.name in prepared.CALLS or call.method in _MULTIPLE for call in given)
    return used or any(guard.ranks != ALL for call in run.calls for guard in call.guards)


def _joins(run: Run, call: RankCall) -> bool:
    """Whether a call is one of several processes."""
    if call.module.ours or call.name.startswith("transformers."):
        return False  # in one process they do nothing, or as much as in several
    if call.name == words.SAMPLER and run.script:  # `if distributed:`; it needs a group
        return all(one.test.known or _is_answered(run, one, call) for one in call.conditions)
    if call.name == prepared.MAKES[0]:  # for its device or its precision alone?
        return _is_asked(run)
    if call.name == words.TRAINER:
        return not run.once(is_idle)
    named = call.name in _SESSIONS or call.name in words.COLLECTIVE_CALLS
    return named or (call.name.startswith(words.DIST) and call.method in words.COLLECTIVE_OPS)


def _is_answered(run: Run, guard: RankGuard, call: RankCall) -> bool:
    """``if is_using_ddp():`` of a library by which the program has opened its group."""
    library = asked_library(guard)
    return bool(library) and guard.holds and opens(run, library, call)


def _trains_by_rank(run: Run) -> bool:
    """Whether the Hugging Face Trainer trains, and the program tells its ranks apart, or says how
    models are put on several devices."""
    trains = any(call.name.startswith(f"{words.HF_TRAINER}.") for call in run.calls)
    apart = any(guard.ranks != ALL for call in run.calls for guard in call.guards)
    return trains and (apart or any(map(_says_how, run.named(words.HF_ARGUMENTS))))


def _says_how(arguments: RankCall) -> bool:
    """``TrainingArguments(fsdp="full_shard")``"""
    given = (value for name, value in arguments.kwargs.items() if name.startswith(_STRATEGIES))
    return any(value.constant not in (None, "", False) for value in given if value.known)


def _is_lightning(run: Run) -> bool:
    """Whether a Trainer may run a LightningModule: a script that makes one and fits nothing uses
    it as a module, in one process."""
    if not any(call.name.startswith("lightning.pytorch.LightningModule.") for call in run.calls):
        return False
    made = any(run.named(words.TRAINER)) and not run.once(is_idle)
    made = made or any(run.named(*words.COMMANDLINES)) or any(map(hooks.trains, run.calls))
    return made or not run.script


def _script(
    project: DistributedProject, interest: Interest, module: Module, limit: int
) -> RankReader:
    machine = RankReader(project.modules, interest, Run(module.path, True), limit)
    space = naming.namespace(machine, module).attrs
    space["__name__"] = constant("__main__")
    _guarded(machine, lambda: machine.execute(RankFrame(module, None, space), module.tree.body))
    return machine


def _function(
    project: DistributedProject, interest: Interest, info: FunctionDefinition, limit: int
) -> RankReader:
    run = Run(f"{info.module.path}:{info.node.lineno}", False)
    machine = RankReader(project.modules, interest, run, limit)
    machine.entered.add(info)
    _guarded(machine, lambda: _start(machine, info))
    return machine


def _start(machine: RankReader, info: FunctionDefinition) -> None:
    """Call a function with arguments that nothing is known about."""
    frame = RankFrame(info.module, None, naming.namespace(machine, info.module).attrs)
    if info.owner is None:
        value = naming.global_name(machine, info.module, info.name)
    else:
        naming.make_class(machine, frame, info.owner)
        cls = machine.classes[info.owner]  # itself, whatever its decorators make of it
        made = calls.instantiate(machine, frame, cls, (), {}, None).things[0]
        if hooks.is_hook(info):
            _trained(machine, frame, info, made)
            return
        machine.run.hook = trainer_hooks.is_hook(info)
        found = naming.class_attribute(machine, info.owner, info.name)
        value = found if found is not None else of(made)
        for thing in value.things:
            thing.receiver = attributes.receiver_of(machine, made, thing)
    for thing in value.things:
        if thing.kind == "function":
            args = tuple(_unknowns(machine, thing))
            functions.enter(machine, frame, thing, args, {}, None)


def _trained(
    machine: RankReader, frame: RankFrame, info: FunctionDefinition, made: RankThing
) -> None:
    """All hooks of an object that no script is seen to hand to a Trainer: what one sets, another
    reads."""
    node = ast.copy_location(ast.Call(ast.Constant(...), [], []), info.node)
    callback = info.owner is not None and info.owner.inherits(*hooks.CALLBACKS)
    options = {"callbacks": of(made)} if callback else {}
    hooks.with_trainer(machine, frame, node, () if callback else (of(made),), options)


def _unknowns(machine: RankReader, thing: RankThing) -> list[RankValue]:
    """Unknown arguments also for parameters with defaults: nobody is known to leave them out."""
    info: FunctionDefinition = thing.info
    names = info.parameters if thing.receiver is None else info.parameters[1:]
    return [functions.parameter_value(machine, info, name) for name in names]


def _guarded(machine: RankReader, work: Callable[[], None]) -> None:
    try:
        work()
    except RecursionError:
        machine.run.complete = False
        machine.items = []  # those of some inner block


def _starts(project: DistributedProject, interest: Interest) -> list[FunctionDefinition]:
    found: list[FunctionDefinition] = []
    for file in project.concerned:
        text = project.texts[file]
        if is_ours(file, text) or not says(text, (*_START, _SPAWN)):
            continue
        module = project.modules.load(file)
        if module is not None:
            found += [
                info
                for info in module.all_functions()
                if says(info.text, (*_START, _SPAWN)) or interest.communicates(info)
            ]
    return found
