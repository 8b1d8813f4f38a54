"""How a loader call is written and what a sampler changes in it; shared by the data rules."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from ddpify.facts.details import call_that_made
from ddpify.facts.events import Call
from ddpify.facts.model import Facts, Loader, Role
from ddpify.facts.tree import Tree, written
from ddpify.facts.values import MORE, Kind, Thing
from ddpify.rules.base import Edit, How
from ddpify.rules.data.streams import is_stream
from ddpify.rules.edits import edit, fresh
from ddpify.source import Site

LISTED = "map_style({})"
NAMED = (ast.Name, ast.Attribute, ast.Subscript)  # saying it twice does nothing twice


def spread(facts: Facts, call: Call, key: str) -> Site | None:
    """The ``**name`` argument that may carry ``key``."""
    if key not in call.kwargs or key in call.kwarg_sites:
        return None
    tree = facts.tree(call.site)
    node = tree.expression(call.site)
    for keyword in node.keywords if isinstance(node, ast.Call) else ():
        site = tree.site(keyword.value)
        if keyword.arg is None and _may_give(facts, site, key):
            return site
    return None


def _may_give(facts: Facts, site: Site, key: str) -> bool:
    """Whether a mapping may have this key: one that nobody follows may have any."""
    known = [t.keys for t in facts.values[site].of(Kind.DICT)]
    return not known or any(keys is None or key in keys or MORE in keys for keys in known)


def is_shared_out(facts: Facts, loader: Loader) -> bool:
    """Whether each rank evaluates a share of what this call's loaders give (some may be idle)."""
    evaluates = loader.roles - {Role.OTHER} == {Role.EVALUATION}
    return evaluates and loader.call.site in facts.sharded


def direct(facts: Facts, call: Call) -> bool:
    """A statement can go before the call: nothing else runs between the two."""
    return facts.tree(call.site).can_be_preceded(call.site, call.arg_site(0, "dataset"))


def sampler_name(facts: Facts, loader: Loader) -> str:
    """``train_loader`` → ``train_sampler``; loaders of one name in a function are numbered."""
    numbers: dict[Loader, int] = {}
    for one in sorted(facts.loaders, key=lambda x: x.call.site):
        taken = (number for x, number in numbers.items() if _beside(facts, x, one))
        numbers[one] = 1 + max(taken, default=0)
    name = _plain_name(facts, loader)
    return f"{name}{numbers[loader]}" if numbers[loader] > 1 else name


def _beside(facts: Facts, one: Loader, other: Loader) -> bool:
    """Whether two loaders get samplers of one name in one function, and both are made there."""
    tree = facts.tree(other.call.site)
    if one.call.site.path != other.call.site.path:
        return False
    if Role.TRAINING not in one.roles and one.call.site not in facts.sharded:
        return False
    first, second = tree.statement(one.call.site), tree.statement(other.call.site)
    return (
        first is not None
        and second is not None
        and tree.function(first) is tree.function(second)
        and not tree.excludes(first, second)
        and _plain_name(facts, one) == _plain_name(facts, other)
    )


def _plain_name(facts: Facts, loader: Loader) -> str:
    tree = facts.tree(loader.call.site)
    node = tree.statement(loader.call.site)
    if not isinstance(node, ast.Assign):
        return "sampler"
    alone = tree.site(node.value) == loader.call.site
    if alone and isinstance(node.targets[0], (ast.Name, ast.Attribute)):
        name = written(node.targets[0]).rpartition(".")[2]
        for ending in ("_dataloader", "_data_loader", "_loader", "_dl", "dataloader", "loader"):
            if name.lower().endswith(ending) and len(name) > len(ending):
                return f"{name[: -len(ending)].rstrip('_')}_sampler"
    return "train_sampler" if Role.TRAINING in loader.roles else "eval_sampler"


def none_before(facts: Facts, statement: Site, name: str) -> Site | None:
    """The ``None`` of ``name = None`` right before the statement, where the sampler can stand."""
    tree = facts.tree(statement)
    node = tree.statement(statement)
    block = tree.block(node) if node is not None else []
    place = block.index(node) - 1 if node in block else -1
    assigned = block[place] if place >= 0 else None
    if isinstance(assigned, ast.Assign) and ast.unparse(assigned) == f"{name} = None":
        return tree.site(assigned.value)
    return None


@dataclass(frozen=True)
class Dataset:
    """What a loader and its sampler are given: ``lines`` name it first where it has no name."""

    name: str
    edits: tuple[Edit, ...] = ()
    lines: str = ""


def dataset_name(facts: Facts, call: Call, sampler: str) -> Dataset:
    """The data set's name; an expression that makes one is hoisted so that both get the same."""
    site = call.arg_site(0, "dataset")
    if site is None:
        return Dataset("None")
    text, value = facts.text(site), call.arg(0, "dataset")
    listed = is_stream(value)
    if isinstance(facts.tree(site).expression(site), NAMED) and not listed:
        return Dataset(text)
    name = fresh(facts, site, sampler.replace("sampler", "dataset"))
    code = f"{name} = {LISTED.format(text) if listed else text}"
    if value is not None and any(downloads(t) for t in value.things):
        code = f"with main_process_first():\n    {code}"
    return Dataset(name, (edit(facts, How.REPLACE, site, name),), f"{code}\n")


def downloads(thing: Thing) -> bool:
    """Whether making this data set may download it."""
    call = call_that_made(thing)
    flag = call.kwargs.get("download") if call is not None else None
    return flag is not None and flag.known and bool(flag.const)


@dataclass(frozen=True)
class Shuffle:
    """How a loader's shuffling moves into its sampler."""

    given: str  # what the sampler is told
    edits: tuple[Edit, ...] = ()  # what keeps shuffle out of the sampled loader
    lines: str = ""  # statements to put after the sampler


def shuffled(facts: Facts, loader: Loader, sampler: str) -> Shuffle:
    """``shuffle`` and a sampler exclude each other: one process keeps the first."""
    call = loader.call
    positional = call.arg_sites[2] if len(call.arg_sites) > 2 else None
    site = call.kwarg_sites.get("shuffle") or positional
    if site is not None:
        return _written(facts, site, sampler)
    options = spread(facts, call, "shuffle")
    if options is None:
        return Shuffle("False")
    name, value = facts.text(options), call.kwargs["shuffle"]
    given = f'{name}.get("shuffle", False)'
    if not isinstance(facts.tree(options).expression(options), NAMED) and value.decided:
        given = repr(bool(value.const))
    elif _own(facts, loader, options):
        lines = f'\nif {sampler} is not None:\n    {name}["shuffle"] = False'
        return Shuffle(given, (), lines)
    if given == "False":
        return Shuffle(given)
    code = f"{sampler} is None" + ("" if given == "True" else f" and {given}")
    return Shuffle(given, (edit(facts, How.ENTRY, options, code, "shuffle"),))


def _written(facts: Facts, site: Site, sampler: str) -> Shuffle:
    node = facts.tree(site).expression(site)
    if not isinstance(node, ast.Constant):
        code = f"{sampler} is None and {{}}"
        return Shuffle(facts.text(site), (edit(facts, How.REPLACE, site, code),))
    if not node.value:
        return Shuffle("False")
    return Shuffle("True", (edit(facts, How.REPLACE, site, f"{sampler} is None"),))


def option_site(facts: Facts, loader: Loader, options: Site, key: str) -> Site | None:
    """Where ``key`` is written in the dict that this loader alone is given."""
    dicts = {t.born for t in _own(facts, loader, options)}
    found = [_entry(facts, born, key) for born in dicts]
    return found[0] if len(found) == 1 else None


def _scope(tree: Tree, site: Site) -> ast.AST | None:
    node = tree.expression(site)
    return tree.function(node) if node is not None else None


def _own(facts: Facts, loader: Loader, options: Site) -> frozenset[Thing]:
    """The dicts that come to this call, where they come to nothing else."""
    dicts = frozenset(facts.values[options].of(Kind.DICT))
    tree, call = facts.tree(options), loader.call.site
    scope = _scope(tree, options)
    for site in (t.born for t in dicts if len(loader.calls) > 1):
        if site.path != call.path or _scope(tree, site) is not scope:
            return frozenset()
    uses = (site for site, value in facts.values.items() if not dicts.isdisjoint(value.things))
    return dicts if all(site == options or _fills(facts, site) for site in uses) else frozenset()


def _fills(facts: Facts, site: Site) -> bool:
    """Whether a dict is made here, or given entries: what is asked of it is asked elsewhere."""
    tree = facts.tree(site)
    node = tree.expression(site)
    if isinstance(node, ast.Dict | ast.Call):
        return True
    above = tree.parent(node) if node is not None else None
    if isinstance(above, ast.Attribute):
        return above.attr == "update"
    return isinstance(above, ast.Subscript) and isinstance(above.ctx, ast.Store)


def _entry(facts: Facts, site: Site, key: str) -> Site | None:
    """The value written for ``key`` in a dict display or ``dict(...)`` call."""
    tree = facts.tree(site)
    node = tree.expression(site)
    if isinstance(node, ast.Dict):
        for name, value in zip(node.keys, node.values, strict=True):
            if isinstance(name, ast.Constant) and name.value == key:
                return tree.site(value)
    if isinstance(node, ast.Call):
        for keyword in node.keywords:
            if keyword.arg == key:
                return tree.site(keyword.value)
    return None
