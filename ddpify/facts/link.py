"""Read one entry's whole program and state the facts.

The first readings find who trains whom; the last shows the program as it will be (models
wrapped at their homes, loaders sharded), which is what rules judge.
"""

from __future__ import annotations

from dataclasses import replace

from ddpify.facts import evaluation, groups, roles, sharding
from ddpify.facts.distributed import mentions
from ddpify.facts.forms import AS_IT_STANDS, Target
from ddpify.facts.frameworks import FRAMEWORKS
from ddpify.facts.gather import gather, models_of
from ddpify.facts.homes import home_of
from ddpify.facts.machine import ProgramReader
from ddpify.facts.model import Facts, Home, Model, Status
from ddpify.facts.protocol import Machine
from ddpify.facts.shares import shares
from ddpify.facts.values import Thing
from ddpify.names import INSTALLED
from ddpify.project import Project
from ddpify.source import Site


class TooLarge(Exception):
    """What hangs on the entry exceeds the reader's budget; the message is one sentence."""


def analyze(project: Project, shard_evaluation: bool = True) -> Facts | None:
    """The facts of one entry, or None when the entry itself cannot be read.

    ``shard_evaluation``: let each rank evaluate a share where only sums are kept.

    Raises:
        TooLarge: the program cannot be followed whole.
    """
    readings = _Readings(project)
    first = readings.first
    module = first.entry
    if module is None or not module.tree.body:
        return None
    status, evidence = _status(first)
    if status is Status.DISTRIBUTED:  # refused: what several processes would change, they do
        return replace(gather(project, first, (), status), evidence=evidence)
    bare = readings.of(Target(drop_data_parallel=True))
    homes = _homes(bare)
    models = models_of(first, bare, homes)
    facts = _as_migrated(readings, bare, homes, models, status, shard_evaluation)
    return replace(facts, evidence=evidence)


def _as_migrated(
    readings: _Readings,
    bare: Machine,
    homes: dict[tuple[Thing, ...], Home | None],
    models: tuple[Model, ...],
    status: Status,
    shard_evaluation: bool,
) -> Facts:
    """Read the program as it will be: a trial shards all evaluation, the last what bears it."""
    sharded = _sharded(bare) | sharding.presharded(bare)
    wanted = sharding.candidates(bare) if shard_evaluation else frozenset()
    wrapped = Target(_wraps(homes), True, sharded | wanted)
    trial = readings.of(wrapped)
    unwraps = evaluation.unwraps(trial)
    shared_out = sharding.shardable(trial, wanted)
    of_all = shares(trial)
    dealt = sharding.dealt_already(bare, sharded)
    migrated = replace(
        wrapped,
        unwraps=frozenset(site for site, _ in unwraps),
        shares=frozenset(share.site for share in of_all),
    )
    rest = sharding.dealable(trial, wanted - shared_out - sharded)
    if rest:
        dealing = replace(migrated, sharded=sharded | shared_out | rest, dealt=dealt | rest)
        rest = sharding.shardable(readings.of(dealing), rest)
    shared_out |= rest
    target = readings.of(replace(migrated, sharded=sharded | shared_out, dealt=dealt | rest))
    replicated = sharding.left_whole(trial, wanted - shared_out)
    facts = gather(readings.project, target, models, status)
    return replace(facts, unwraps=unwraps, replicated=replicated, shares=of_all)


class _Readings:
    """The readings of one entry: each target is read once, and the first serves where it can."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._known: dict[Target, ProgramReader] = {}
        self.first = self.of(AS_IT_STANDS)

    def of(self, target: Target) -> ProgramReader:
        """The program, read as ``target`` says. Raises TooLarge."""
        if target.drop_data_parallel and not self.first.parallel:
            target = replace(target, drop_data_parallel=False)
        if target not in self._known:
            self._known[target] = self._read(target)
        return self._known[target]

    def _read(self, target: Target) -> ProgramReader:
        machine = ProgramReader(self.project, target)
        module = machine.run()
        known = machine.exhausted and _status(machine)[0] is Status.DISTRIBUTED
        if module is not None and machine.exhausted and not known:
            raise TooLarge(
                f"{module.source.path}: the program is too large to follow whole;"
                " name a smaller entry script"
            )
        return machine


def _wraps(
    homes: dict[tuple[Thing, ...], Home | None],
) -> tuple[tuple[Site, tuple[str, ...]], ...]:
    """The names to wrap, by the statement after which they are."""
    found: dict[Site, tuple[str, ...]] = {}
    for home in homes.values():
        if home is not None:
            found[home.statement] = (*found.get(home.statement, ()), home.target)
    return tuple(found.items())


def _status(m: Machine) -> tuple[Status, tuple[tuple[Site, str], ...]]:
    calls = roles.calls_of(m)
    ours = [(c.site, c.name) for c in calls if c.name.startswith(f"{INSTALLED}.")]
    if ours:
        return Status.MIGRATED, tuple(ours)
    framework = [(c.site, FRAMEWORKS[c.name]) for c in calls if c.name in FRAMEWORKS]
    by_hand = framework or _mentions(m)
    if by_hand:
        return Status.DISTRIBUTED, tuple(by_hand)
    parallel = [(c.site, c.name) for c in calls if c.name.endswith(".DataParallel")]
    return (Status.DATA_PARALLEL if parallel else Status.SINGLE), tuple(parallel)


def _mentions(m: Machine) -> list[tuple[Site, str]]:
    """Distributed code anywhere in the files read."""
    return [
        (module.source.site(node), name)
        for module in m.modules.values()
        for node, name in mentions(module.tree)
    ]


def _homes(m: Machine) -> dict[tuple[Thing, ...], Home | None]:
    found: dict[tuple[Thing, ...], Home | None] = {}
    wrapped = groups.wrapped(m)
    for things, _ in groups.groups(m):
        found[things] = None if set(things) & wrapped else home_of(m, things)
    return found


def _sharded(m: Machine) -> frozenset[Site]:
    """The calls whose loaders train: each rank gets its share of their samples."""
    calls = roles.calls_of(m)
    training = roles.training_loops(calls)
    return frozenset(t.born for loop in training for t in loop.loaders)
