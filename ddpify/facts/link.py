"""Read one entry's whole program and state the facts.

The first readings find who trains whom; the last shows the program as it will be (models
wrapped at their homes, loaders sharded), which is what rules judge.
"""

from __future__ import annotations

from dataclasses import replace

from ddpify.facts import (
    configured,
    division,
    evaluation,
    groups,
    objective,
    own_shares,
    roles,
    sharding,
    splitting,
)
from ddpify.facts.agreements import agreements, own_tests, tests_of_terms
from ddpify.facts.coupling import coupled
from ddpify.facts.escapes import with_escapes
from ddpify.facts.forms import AS_IT_STANDS, Target
from ddpify.facts.frameworks import FRAMEWORKS, mentions
from ddpify.facts.gather import asks_methods, bypasses, gather, models_of
from ddpify.facts.homes import home_of
from ddpify.facts.in_steps import in_steps, unclear
from ddpify.facts.kept import kept
from ddpify.facts.locality import way_to
from ddpify.facts.machine import OutOfBudget, ProgramReader
from ddpify.facts.model import Agreement, Facts, Gather, Home, Model, Status
from ddpify.facts.pooled import followed, pooled
from ddpify.facts.protocol import Machine
from ddpify.facts.routes import routes
from ddpify.facts.shares import shares
from ddpify.facts.sized import sized, whole_shapes
from ddpify.facts.tracing import is_mean
from ddpify.facts.values import Kind, Thing
from ddpify.facts.whole import gathers, losses
from ddpify.names import FITTED_NAMES, INSTALLED
from ddpify.project import Project
from ddpify.source import Site

ROUNDS = 4
_TOO_LARGE = ": the program is too large to follow whole; name a smaller entry script"


class TooLarge(Exception):
    """What hangs on the entry exceeds the reader's budget; the message is one sentence."""


def analyze(
    project: Project,
    shard_evaluation: bool = True,
    batch_dim: int | None = None,
    whole_batches: bool = False,
    shards: bool = False,
) -> Facts | None:
    """The facts of one entry, or None when the entry itself cannot be read.

    ``shard_evaluation``: let each rank evaluate a share where only sums are kept. ``batch_dim``:
    the axis of samples, where the user has named it. ``whole_batches``: every rank makes whole
    batches, and computes its rows of them. ``shards``: models are not wrapped but sharded, before
    their optimizers are made, and have no inner module.

    Raises:
        TooLarge: the program cannot be followed whole.
    """
    try:
        return _analyzed(project, shard_evaluation, batch_dim, whole_batches, shards)
    except OutOfBudget:  # by what is asked after a reading
        raise TooLarge(f"{project.relative(project.entry)}{_TOO_LARGE}") from None


def _analyzed(
    project: Project,
    shard_evaluation: bool,
    batch_dim: int | None,
    whole_batches: bool,
    shards: bool,
) -> Facts | None:
    readings = _Readings(project)
    first = readings.first
    module = first.entry
    if module is None or not module.tree.body:
        return None
    status, evidence = _status(first)
    if status is Status.DISTRIBUTED and shards and (replicas := groups.in_ddp(first)):
        return replace(_as_sharded(readings, status), evidence=evidence, replicas=replicas)
    if status is Status.DISTRIBUTED:  # refused: what several processes would change, they do
        configured.load(first)
        return replace(gather(project, first, (), status), evidence=evidence)
    bare = readings.of(Target(drop_data_parallel=True))
    homes = _homes(bare, shards)
    models = models_of(first, bare, homes)
    if whole_batches:
        wrapped = Target(_wraps(homes), True, whole_batches=True)
        found, _ = division.divisions(first, bare, batch_dim)
        by_rows = frozenset(one.loop for one in found if not one.axis)
        facts = _of_whole_batches(readings, wrapped, models, status, by_rows)
        return replace(facts, evidence=evidence)
    divisions, undivided = division.divisions(first, bare, batch_dim)
    through: dict[Site, tuple[Site, bool]] = {}
    if bypasses(roles.calls_of(bare)) or asks_methods(roles.calls_of(bare)):
        through = routes(readings.of(Target(_wraps(homes), True)), models)
    if through:  # as methods they are entered, as forwards of the wrapper they are calls of a model
        models = _routed(models, through)
        bare = readings.of(Target(_wraps(homes), True, routes=frozenset(through)))
    wrapped = Target(
        _wraps(homes), True, _sharded(bare), divisions=divisions, routes=frozenset(through)
    )
    wrapped = replace(wrapped, shards=shards)
    facts = _as_migrated(readings, bare, wrapped, models, status, shard_evaluation)
    facts = replace(facts, routes=frozenset(through))
    return replace(facts, evidence=evidence, divisions=divisions, undivided=undivided)


def _routed(models: tuple[Model, ...], found: dict[Site, tuple[Site, bool]]) -> tuple[Model, ...]:
    """Of models whose methods are called, each call may use other parameters."""
    several = dict(found.values())
    several |= {born: True for born, more in found.values() if more}
    why = "methods are called, too"
    return tuple(
        (
            replace(one, unused=one.unused or why, repeated=one.repeated or several[born])
            if (born := next((t.born for t in one.things if t.born in several), None))
            else one
        )
        for one in models
    )


def _of_whole_batches(
    readings: _Readings,
    wrapped: Target,
    models: tuple[Model, ...],
    status: Status,
    by_rows: frozenset[Site],
) -> Facts:
    """The program of which nothing is divided but what its models compute."""
    unwraps = evaluation.unwraps(readings.of(wrapped))
    target = readings.of(replace(wrapped, unwraps=frozenset(site for site, _ in unwraps)))
    facts = gather(readings.project, target, models, status)
    kept = facts.model_shapes | facts.first_batches
    why = splitting.why_whole(readings.first, readings.of(wrapped), models, by_rows, kept)
    return with_escapes(replace(facts, unwraps=unwraps, whole_batches=True, unsplit=why))


def _as_sharded(readings: _Readings, status: Status) -> Facts:
    """A program with DDP as it will be when its models are sharded, each at its home."""
    first = readings.first
    together = groups.groups(first)
    trained = frozenset(thing for things, _ in together for thing in things)
    homes = {things: home_of(first, things, trained, True, moved=False) for things, _ in together}
    models = models_of(first, first, homes)
    target = readings.of(Target(_wraps(homes), shards=True))
    return gather(readings.project, target, models, status)


def _as_migrated(
    readings: _Readings,
    bare: Machine,
    wrapped: Target,
    models: tuple[Model, ...],
    status: Status,
    shard_evaluation: bool,
) -> Facts:
    """Read the program as it will be: a trial shards all evaluation, the last what bears it."""
    divided = frozenset(one.statement for one in wrapped.divisions) | own_shares.divided(bare)
    shared_before = sharding.presharded(bare) | divided
    averaged, trained = objective.addends(bare), wrapped.sharded | divided
    sharded = wrapped.sharded | shared_before
    sizes, again = sized(bare), evaluation.evaluated_whole(bare)
    wanted = sharding.candidates(bare)
    wanted = wanted.difference(*again.values())  # what gives all samples takes them as they come
    wrapped = replace(wrapped, sharded=sharded | wanted, trained=trained)
    wrapped = replace(wrapped, sized=sizes, again=frozenset(again))
    scaled = replace(wrapped, summed=objective.sums(bare, trained))
    wrapped = scaled if scaled.summed and followed(readings.of(scaled)) else wrapped
    trial = readings.of(wrapped)
    unwraps = () if wrapped.shards else evaluation.unwraps(trial)
    shared_out = sharding.shardable(trial, wanted) if shard_evaluation else frozenset()
    terms = _terms(readings, wrapped)
    wrapped = replace(wrapped, agreed=frozenset(site for one in terms for site in one.means))
    pool = _pooled(readings, wrapped)
    whole = () if pool else _whole(readings, wrapped)
    gathering = frozenset(gather.site for gather, _ in (*pool, *whole))
    of_all = shares(readings.of(replace(wrapped, whole=gathering)))
    dealt = sharding.dealt_already(bare, sharded)
    migrated = replace(
        wrapped,
        spared=_spared(bare, sharded - shared_before),
        unwraps=frozenset(site for site, _ in unwraps),
        shares=frozenset(share.site for share in of_all),
        whole=gathering,
        averaged=averaged,
    )
    rest = sharding.dealable(trial, wanted - shared_out - sharded)
    if rest := rest if shard_evaluation else frozenset():
        dealing = replace(migrated, sharded=sharded | shared_out | rest, dealt=dealt | rest)
        rest = sharding.shardable(readings.of(dealing), rest)
    shared_out |= rest
    migrated = replace(migrated, sharded=sharded | shared_out, dealt=dealt | rest)
    facts = _with_agreements(readings, migrated, models, status, terms)
    left = (wanted - shared_out) | set(again)
    replicated = sharding.left_whole(trial, left, facts.spared)
    facts = replace(facts, unwraps=unwraps, replicated=replicated, shares=of_all, whole=whole)
    facts = replace(facts, again=again, summed=wrapped.summed, pooled=pool, sized=sizes)
    return with_escapes(replace(facts, whole_shapes=whole_shapes(bare)))


def _with_agreements(
    readings: _Readings,
    migrated: Target,
    models: tuple[Model, ...],
    status: Status,
    terms: tuple[Agreement, ...],
) -> Facts:
    """The facts of the last reading, in which ranks have agreed on numbers of their own."""
    final, agreed, held = _agreed(readings, migrated)
    facts = gather(readings.project, readings.of(final), models, status)
    facts, held = _in_steps(readings, final, facts, held)
    return replace(facts, kept=tuple(held.items()), agreements=(*terms, *agreed))


def _in_steps(
    readings: _Readings, target: Target, facts: Facts, held: dict[Site, str]
) -> tuple[Facts, dict[Site, str]]:
    """The facts where more numbers are reduced in each step, and all that are.

    Only if that leaves less that is shown of one rank's samples.
    """
    more = in_steps(readings.of(target), facts)
    if not more:
        return facts, held
    read = readings.of(replace(target, agreed=target.agreed.union(more)))
    reduced = gather(readings.project, read, facts.models, facts.status)
    return (reduced, held | more) if unclear(reduced) < unclear(facts) else (facts, held)


def _agreed(
    readings: _Readings, migrated: Target
) -> tuple[Target, tuple[Agreement, ...], dict[Site, str]]:
    """The form of the last reading: conditions are asked of the means over the whole batch.

    And objects keep those means.
    """
    held = dict.fromkeys(kept(readings.of(migrated)), "reduce_mean")
    migrated = replace(migrated, agreed=migrated.agreed.union(held))
    read = readings.of(migrated)
    found = _asked(readings, migrated, own_tests(read))
    means = frozenset(site for one in found for site in one.means)
    return replace(migrated, agreed=migrated.agreed | means), found, held


def _asked(readings: _Readings, target: Target, tests: dict[Site, Site]) -> tuple[Agreement, ...]:
    """Those of ``tests`` that ask means, in a reading in which all ranks agree on all of them."""
    if not tests:
        return ()
    return agreements(readings.of(replace(target, agreed=target.agreed.union(tests))), tests)


def _terms(readings: _Readings, target: Target) -> tuple[Agreement, ...]:
    """The conditions that say of which terms losses are, where they are followed but for these.

    Those that decide whether ranks meet are among them: what such a one skips is a loss, too.
    """
    gathering = frozenset(gather.site for gather, _ in _whole(readings, target))
    target = replace(target, whole=gathering)
    read = readings.of(target)
    if followed(read):
        return ()
    meeting = own_tests(read)
    found = _asked(readings, target, tests_of_terms(read) | meeting)
    means = frozenset(site for one in found for site in one.means)
    right = means and followed(readings.of(replace(target, agreed=means)))
    return tuple(replace(one, terms=one.site not in meeting) for one in found) if right else ()


def _pooled(readings: _Readings, target: Target) -> tuple[tuple[Gather, Site], ...]:
    """What to gather for losses that are not followed, also if what they compare is gathered."""
    gathering = frozenset(gather.site for gather, _ in _whole(readings, target))
    if followed(readings.of(replace(target, whole=gathering))):
        return ()

    def read(whole: frozenset[Site]) -> Machine:
        return readings.of(replace(target, whole=whole))

    return pooled(read, lambda: readings.afresh(target))


def _whole(readings: _Readings, target: Target) -> tuple[tuple[Gather, Site], ...]:
    """What to gather, and what for: only what leaves no sample compared with a share's alone."""
    wanted: dict[Gather, Site] = {}
    read = readings.of(target)
    for _ in range(ROUNDS):  # what was hidden behind one comparison shows where that is gone
        more = dict(gathers(read))
        if more.keys() <= wanted.keys():
            break
        wanted |= more
        read = readings.of(replace(target, whole=frozenset(gather.site for gather in wanted)))
    left = {thing.born for thing in coupled(losses(read))}
    left |= {why for gather, why in wanted.items() if not is_mean(read, gather)}
    return tuple((gather, why) for gather, why in wanted.items() if why not in left)


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

    def afresh(self, target: Target) -> ProgramReader:
        """The same, to ask more of it than the program does."""
        return self._read(target)

    def _read(self, target: Target) -> ProgramReader:
        machine = ProgramReader(self.project, target)
        module = machine.run()
        known = machine.exhausted and _status(machine)[0] is Status.DISTRIBUTED
        if module is not None and machine.exhausted and not known:
            raise TooLarge(f"{module.source.path}{_TOO_LARGE}")
        return machine


def _wraps(
    homes: dict[tuple[Thing, ...], Home | None],
) -> tuple[tuple[Site, tuple[Home, ...]], ...]:
    """What to wrap, by the statement after which it is."""
    found: dict[Site, tuple[Home, ...]] = {}
    for home in dict.fromkeys(homes.values()):
        if home is not None:
            found[home.statement] = (*found.get(home.statement, ()), home)
    return tuple(found.items())


def _status(m: ProgramReader) -> tuple[Status, tuple[tuple[Site, str], ...]]:
    calls = roles.calls_of(m)
    ours = [(c.site, c.name) for c in calls if c.name.startswith(f"{INSTALLED}.")]
    if any(name.rpartition(".")[2] not in FITTED_NAMES for _, name in ours):
        return Status.MIGRATED, tuple(ours)
    framework = [(c.site, FRAMEWORKS[c.name]) for c in calls if c.name in FRAMEWORKS]
    framework += configured.evidence(m)
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


def _homes(m: Machine, early: bool) -> dict[tuple[Thing, ...], Home | None]:
    found: dict[tuple[Thing, ...], Home | None] = {}
    wrapped = groups.wrapped(m)
    together = groups.groups(m)
    trained = frozenset(thing for things, _ in together for thing in things)
    for things, _ in together:
        found[things] = None if set(things) & wrapped else home_of(m, things, trained, early)
    return found


def _sharded(m: Machine) -> frozenset[Site]:
    """The calls whose loaders train: each rank gets its share of their samples."""
    return frozenset(loader.born for loader in _trained(m))


def _spared(m: Machine, sharded: frozenset[Site]) -> frozenset[tuple[Site, ...]]:
    """The ways to loaders of those calls that do not train: of other calls of a factory."""
    trained = _trained(m)
    made = {t for t in m.made(Kind.LOADER) if t.born in sharded}
    return frozenset(map(way_to, made - trained)) - frozenset(map(way_to, trained))


def _trained(m: Machine) -> set[Thing]:
    training = roles.training_loops(roles.calls_of(m))
    return {loader for loop in training for loader in loop.loaders}
