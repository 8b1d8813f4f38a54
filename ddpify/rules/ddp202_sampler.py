"""DDP202: every rank would train on all samples."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from ddpify.facts.events import Call
from ddpify.facts.model import Facts, Loader, Role, Status
from ddpify.facts.values import Thing, Value
from ddpify.rules.base import Edit, Finding, How, Rule, Severity
from ddpify.rules.edits import edit, fresh, proof, statement_of
from ddpify.rules.loaders import spread, training_condition
from ddpify.settings import Settings
from ddpify.source import Site


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per call that makes an unsharded training loader."""
    for loader in facts.loaders:
        if Role.TRAINING not in loader.roles or _sharded(loader):
            continue
        fix, why_not = (), _unsupported(facts, loader)
        if not why_not:
            fix, why_not = _fix(facts, loader)
        yield Finding(
            "DDP202",
            loader.call.site,
            "each rank would train on all samples: the loader has no distributed sampler",
            Severity.ERROR,
            fix,
            why_not,
            proof(loader.things),
        )


def _sharded(loader: Loader) -> bool:
    """Whether a sampler or the data set itself gives each rank its share."""
    for thing in loader.things:
        for name in ("sampler", "batch_sampler"):
            given = thing.detail.get(name)
            names = [t.name for t in given.things] if given is not None else []
            if any("istributed" in name for name in names):
                return True
    return False


def _unsupported(facts: Facts, loader: Loader) -> str:
    for thing in loader.things:
        for name in ("sampler", "batch_sampler"):
            given = thing.detail.get(name)
            if given is not None and not (given.known and given.const is None):
                return (
                    f"it has its own `{name}`: give each rank its share of that order by hand"
                    " (same seed everywhere, every world_size-th index)"
                )
        dataset = thing.detail.get("dataset")
        if dataset is not None and any(_iterable(t) for t in dataset.things):
            return "an IterableDataset takes no sampler: shard it by rank and worker in __iter__"
    if facts.status is Status.DISTRIBUTED:
        return "pass sampler=DistributedSampler(dataset) and drop shuffle=True"
    return ""


def _iterable(thing: Thing) -> bool:
    bases = getattr(thing.ref, "external_bases", tuple)()
    return any(base.endswith("IterableDataset") for base in bases)


def _fix(facts: Facts, loader: Loader) -> tuple[tuple[Edit, ...], str]:
    call = loader.call
    statement = statement_of(facts, call.site)
    if not _direct(facts, call.site):
        return (), "made inside an expression: give it a statement of its own, then run again"
    condition = ""
    if loader.roles != {Role.TRAINING}:
        found = training_condition(loader)
        if found is None:
            return (), (
                "one call makes the training and another loader and no argument tells them apart:"
                " make them in two calls"
            )
        condition = found
    return _edits(facts, call, statement, condition), ""


def _direct(facts: Facts, site: Site) -> bool:
    """The call is the value of an assignment or a return: a statement can go before it."""
    tree = facts.tree(site)
    node = tree.expression(site)
    above = tree.parent(node) if node is not None else None
    if isinstance(above, ast.Tuple):
        above = tree.parent(above)
    return isinstance(above, (ast.Assign, ast.AnnAssign, ast.Return))


def _edits(facts: Facts, call: Call, statement: Site, condition: str) -> tuple[Edit, ...]:
    sampler = fresh(facts, call.site, _sampler_name(facts, call))
    dataset_site = call.arg_site(0, "dataset")
    if dataset_site is None:
        return ()
    hoisted, dataset = _dataset(facts, call, dataset_site, sampler)
    shuffle, shuffle_edits = _shuffle(facts, call, sampler)
    arguments = [dataset, f"shuffle={shuffle}"]
    drop_last = call.kwarg_sites.get("drop_last")
    if drop_last is not None:
        arguments.append(f"drop_last={facts.text(drop_last)}")
    made = f"{sampler} = distributed_sampler({', '.join(arguments)})"
    if condition:
        made += f" if {condition} else None"
    return (
        *hoisted,
        edit(facts, How.BEFORE, statement, made),
        *shuffle_edits,
        edit(facts, How.ARGUMENT, call.site, sampler, "sampler"),
    )


def _sampler_name(facts: Facts, call: Call) -> str:
    """``train_loader`` → ``train_sampler``; ``sampler`` when the loader has no plain name."""
    tree = facts.tree(call.site)
    node = tree.statement(call.site)
    targets = node.targets if isinstance(node, ast.Assign) else []
    if not targets or not isinstance(targets[0], ast.Name):
        return "train_sampler" if isinstance(node, ast.Assign) else "sampler"
    name = targets[0].id
    for ending in ("_dataloader", "_data_loader", "_loader", "_dl", "dataloader", "loader"):
        if name.lower().endswith(ending) and len(name) > len(ending):
            return f"{name[: -len(ending)].rstrip('_')}_sampler"
    return "train_sampler"


def _dataset(
    facts: Facts, call: Call, site: Site, sampler: str
) -> tuple[tuple[Edit, ...], str]:
    """The data set's name; an expression that makes one is hoisted so that both get the same."""
    tree = facts.tree(site)
    node = tree.expression(site)
    text = facts.text(site)
    if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
        return (), text
    name = fresh(facts, site, sampler.replace("sampler", "dataset"))
    code = f"{name} = {text}"
    value = call.arg(0, "dataset")
    if value is not None and any(downloads(t) for t in value.things):
        code = f"with main_process_first():\n    {code}"
    statement = statement_of(facts, call.site)
    return (
        edit(facts, How.BEFORE, statement, code),
        edit(facts, How.REPLACE, site, name),
    ), name


def downloads(thing: Thing) -> bool:
    """Whether making this data set may download it."""
    call = thing.detail.get("call")
    flag = call.kwargs.get("download") if call is not None else None
    return flag is not None and flag.known and bool(flag.const)


def _shuffle(facts: Facts, call: Call, sampler: str) -> tuple[str, tuple[Edit, ...]]:
    """(what the sampler gets as shuffle, edits that keep shuffle out of the sampled loader)."""
    site = call.kwarg_sites.get("shuffle") or (
        call.arg_sites[2] if len(call.arg_sites) > 2 and "shuffle" not in call.kwargs else None
    )
    if site is not None:
        value = call.arg(2, "shuffle") or Value()
        if value.known:
            shuffle = "True" if value.const else "False"
            code = f"{sampler} is None" if value.const else "False"
        else:
            shuffle = facts.text(site)
            code = f"{sampler} is None and {{}}"
        changed = () if value.known and not value.const else (edit(facts, How.REPLACE, site, code),)
        return shuffle, changed
    given = spread(facts, call, "shuffle")
    if given is None:
        return "False", ()
    name = facts.text(given)
    shuffle = f'{name}.get("shuffle", False)'
    return shuffle, (
        edit(facts, How.ARGUMENT, call.site, f"{sampler} is None and {shuffle}", "shuffle"),
        edit(facts, How.REPLACE, given, '{k: v for k, v in {}.items() if k != "shuffle"}'),
    )


RULE = Rule(
    "DDP202",
    "missing-distributed-sampler",
    "Without a distributed sampler every rank iterates over the whole data set: N ranks do the"
    " same epoch N times, and with one seed they even train on the same batches.",
    "torch.utils.data.distributed.DistributedSampler; BUGS D04",
    check,
)
