"""Read one entry's whole program and state the facts.

The first readings find who trains whom; the last shows the program as it will be (models
wrapped at their homes, loaders sharded), which is what rules judge.
"""

from __future__ import annotations

import ast
from dataclasses import replace

from ddpify.facts import evaluation, graph, roles, sharding
from ddpify.facts.effects import effect_of
from ddpify.facts.events import Access, Bind, Call
from ddpify.facts.helpers import io_helpers
from ddpify.facts.homes import home_of
from ddpify.facts.machine import RUNTIME, Machine
from ddpify.facts.model import Entry, Facts, Home, Model, Status
from ddpify.facts.preparation import preparations, prepared
from ddpify.facts.scopes import ModuleInfo
from ddpify.facts.sinks import parts, sinks
from ddpify.facts.values import Kind, Thing
from ddpify.project import Project
from ddpify.source import Site

DISTRIBUTED_NAMES = frozenset(
    """init_process_group DistributedDataParallel FullyShardedDataParallel fully_shard
    DistributedSampler""".split()
)
FRAMEWORKS = {
    "accelerate.Accelerator": "Hugging Face Accelerate",
    "lightning.Trainer": "Lightning",
    "lightning.pytorch.Trainer": "Lightning",
    "pytorch_lightning.Trainer": "Lightning",
    "lightning.Fabric": "Lightning Fabric",
    "lightning.fabric.Fabric": "Lightning Fabric",
    "deepspeed.initialize": "DeepSpeed",
    "horovod.torch.init": "Horovod",
    "transformers.Trainer": "the Hugging Face Trainer",
    "torch.multiprocessing.spawn": "torch.multiprocessing.spawn",
    "torch.distributed.rpc.init_rpc": "torch.distributed.rpc",
}


class TooLarge(Exception):
    """What hangs on the entry exceeds the reader's budget; the message is one sentence."""


def analyze(project: Project, shard_evaluation: bool = True) -> Facts | None:
    """The facts of one entry, or None when the entry itself cannot be read.

    ``shard_evaluation``: let each rank evaluate a share where only sums are kept.

    Raises:
        TooLarge: the program cannot be followed whole.
    """
    first = Machine(project)
    module = first.run()
    if module is None or not module.tree.body:
        return None
    if first.exhausted:
        raise TooLarge(
            f"{module.source.path}: the program is too large to follow whole;"
            " name a smaller entry script"
        )
    status, evidence = _status(first)
    bare = first
    if status is not Status.DISTRIBUTED:
        bare = Machine(project, drop_data_parallel=True)
        bare.run()
    homes = _homes(bare)
    sharded = _sharded(bare)
    wraps: dict[Site, tuple[str, ...]] = {}
    for home in homes.values():
        if home is not None:
            wraps[home.statement] = (*wraps.get(home.statement, ()), home.target)
    drop = status is not Status.DISTRIBUTED
    if drop:
        sharded |= sharding.presharded(bare)
    wanted = sharding.candidates(bare) if drop and shard_evaluation else frozenset()
    target = Machine(project, wraps, drop, sharded | wanted)
    target.run()
    unwraps = evaluation.unwraps(target) if drop else ()
    shared_out = sharding.shardable(target, wanted)
    sharded |= shared_out
    replicated = sharding.left_whole(target, wanted - shared_out)
    target = Machine(project, wraps, drop, sharded, frozenset(site for site, _ in unwraps))
    target.run()
    facts = _facts(project, target, bare, first, homes, (status, evidence))
    return replace(facts, unwraps=unwraps, replicated=replicated)


def _status(m: Machine) -> tuple[Status, tuple[tuple[Site, str], ...]]:
    calls = roles.calls_of(m)
    ours = [(c.site, c.name) for c in calls if c.name.startswith(f"{RUNTIME}.")]
    if ours:
        return Status.MIGRATED, tuple(ours)
    framework = [(c.site, FRAMEWORKS[c.name]) for c in calls if c.name in FRAMEWORKS]
    by_hand = framework or _mentions(m)
    if by_hand:
        return Status.DISTRIBUTED, tuple(by_hand)
    parallel = [(c.site, c.name) for c in calls if c.name.endswith(".DataParallel")]
    return (Status.DATA_PARALLEL if parallel else Status.SINGLE), tuple(parallel)


def _mentions(m: Machine) -> list[tuple[Site, str]]:
    """Distributed code anywhere in the files read, run or not: a dead branch counts too."""
    found = []
    for module in m.modules.values():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Call):
                name = _tail(node.func)
                if name in DISTRIBUTED_NAMES:
                    found.append((module.source.site(node), name))
    return found


def _tail(func: ast.expr) -> str:
    return func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")


def _groups(m: Machine) -> list[tuple[tuple[Thing, ...], tuple[Thing, ...]]]:
    """(models, optimizers): models that are alternatives of one variable belong together."""
    stepped = {o for call in roles.steps(roles.calls_of(m)) for o in roles.stepped(call)}
    groups: list[tuple[set[Thing], set[Thing]]] = []
    for optimizer in sorted(stepped, key=lambda t: t.serial):
        for alternatives in _alternatives(m, roles.models_of_optimizer(optimizer)):
            joined = [g for g in groups if g[0] & alternatives]
            if joined:
                joined[0][0].update(alternatives)
                joined[0][1].add(optimizer)
            else:
                groups.append((set(alternatives), {optimizer}))
    return [
        (tuple(sorted(g[0], key=lambda t: t.serial)), tuple(sorted(g[1], key=lambda t: t.serial)))
        for g in groups
    ]


def _alternatives(m: Machine, models: tuple[Thing, ...]) -> list[set[Thing]]:
    """Split an optimizer's models by variable: what one name may hold is one model."""
    left = set(models)
    found: list[set[Thing]] = []
    for event in m.events:
        if isinstance(event, Bind):
            held = {t for t in event.value.things if t in left}
            merged = [g for g in found if g & held]
            if held and not merged:
                found.append(held)
            elif held:
                merged[0].update(held)
    rest = left - {t for g in found for t in g}
    return found + [{t} for t in sorted(rest, key=lambda t: t.serial)]


def _homes(m: Machine) -> dict[tuple[Thing, ...], Home | None]:
    found: dict[tuple[Thing, ...], Home | None] = {}
    wrapped = _wrapped(m)
    for things, _ in _groups(m):
        found[things] = None if set(things) & wrapped else home_of(m, things)
    return found


def _wrapped(m: Machine) -> set[Thing]:
    """Models the program itself wraps."""
    found: set[Thing] = set()
    for call in roles.calls_of(m):
        for outer in call.result.of(Kind.WRAPPED):
            if outer.detail.get("wrapper", "").endswith("DataParallel") or outer.inner:
                found.add(roles.whole(outer))
    return found


def _sharded(m: Machine) -> frozenset[Site]:
    """The calls whose loaders train: each rank gets its share of their samples."""
    calls = roles.calls_of(m)
    training = roles.training_loops(calls)
    return frozenset(t.born for loop in training for t in loop.loaders)


def _facts(
    project: Project,
    m: Machine,
    bare: Machine,
    first: Machine,
    homes: dict[tuple[Thing, ...], Home | None],
    status: tuple[Status, tuple[tuple[Site, str], ...]],
) -> Facts:
    calls = roles.calls_of(m)
    forwards = roles.forwards_of(m)
    training = roles.training_loops(calls)
    trained = roles.training_forwards(calls, forwards)
    wrapped = {
        t.inner.things[0]
        for e in forwards
        for t in (e.model,)
        if t.kind is Kind.WRAPPED and t.inner
    }
    own = {roles.whole(t) for t in wrapped}
    sites = preparations(calls)
    known = (effect_of(call) for call in calls if not prepared(call, sites))
    effects = tuple(effect for effect in known if effect is not None)
    trees = {path: m.tree(path) for path in m.modules}
    helpers = io_helpers(calls, effects, trees)
    entry = next(iter(m.modules.values()))
    return Facts(
        root=str(project.root),
        entry=_entry(m, entry),
        status=status[0],
        evidence=status[1],
        models=_models(first, bare, homes),
        training=training,
        loaders=roles.loaders(calls, training, m),
        steps=roles.steps(calls),
        calls=calls,
        effects=effects,
        training_forwards=tuple(f for f in forwards if f.output in trained),
        evaluation_forwards=tuple(
            f for f in forwards if f.output not in trained and roles.whole(f.model) in own
        ),
        accesses=tuple(e for e in m.events if isinstance(e, Access)),
        ends=tuple(m.ends.values()),
        unknowns=tuple(m.unknowns),
        values=m.values,
        sharded=m.sharded,
        trees=trees,
        runtime=("", ""),
        bypasses=_bypasses(calls),
        helpers=helpers,
        preparations=sites,
        counted=frozenset(t.born for t in sharding.counted(m)),
        phases=roles.phases(m, training),
        sinks=tuple(
            (call, tuple(parts(trees[call.site.path], call, m.values, m.sharded)))
            for call in sinks(calls, effects, helpers)
        ),
    )


def _bypasses(calls: tuple[Call, ...]) -> tuple[Call, ...]:
    """Calls of a model's parts or methods that a backward pass goes through."""
    found: list[Call] = []
    for call in roles.backwards(calls):
        for value in (call.receiver, *call.args):
            deps = value.deps if value is not None else frozenset()
            found.extend(d.detail["bypass"] for d in deps if "bypass" in d.detail)
    return tuple(dict.fromkeys(sorted(found, key=lambda c: c.order)))


def _models(
    first: Machine, bare: Machine, homes: dict[tuple[Thing, ...], Home | None]
) -> tuple[Model, ...]:
    calls = roles.calls_of(bare)
    norms = [c for c in calls if c.name.startswith("torch.nn.BatchNorm")]
    parallel = tuple(c for c in roles.calls_of(first) if c.name.endswith(".DataParallel"))
    wrapped = _wrapped(bare)
    again = graph.repeated(bare)
    optimizers = dict(_groups(bare))
    return tuple(
        Model(
            things,
            optimizers[things],
            home,
            bool(set(things) & wrapped),
            bool(norms),
            bool(norms) or any(_opaque(t) for t in things),
            bool({t.born for t in things} & again),
            graph.unused(bare, things),
            parallel,
        )
        for things, home in homes.items()
    )


def _opaque(model: Thing) -> bool:
    """A model whose layers cannot be seen may have buffers."""
    return model.ref is None and not model.name.startswith("torch.nn.")


def _entry(m: Machine, module: ModuleInfo) -> Entry:
    body = module.tree.body
    guard: tuple[Site, ...] = ()
    for node in body:
        if isinstance(node, ast.If) and _is_main_guard(node.test):
            guard = tuple(m.site_of(module, s) for s in node.body)
    first = next((s for s in body if not _leading(s)), body[-1])
    return Entry(
        module.source.path,
        m.site_of(module, body[0]),
        guard,
        m.site_of(module, first),
        m.site_of(module, body[-1]),
    )


def _leading(node: ast.stmt) -> bool:
    docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return docstring or isinstance(node, (ast.Import, ast.ImportFrom))


def _is_main_guard(test: ast.expr) -> bool:
    return (
        isinstance(test, ast.Compare)
        and "__name__" in ast.unparse(test)
        and "__main__" in ast.unparse(test)
    )
