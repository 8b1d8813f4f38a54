"""Loaders whose sampler draws an order of its own: each rank takes its share of rank 0's."""

from __future__ import annotations

import ast

from ddpify.facts.details import MakingCall, loader_arguments
from ddpify.facts.events import Bind, Call
from ddpify.facts.model import Facts, Loader
from ddpify.facts.scopes import ClassInfo
from ddpify.facts.values import Kind, Thing, Value
from ddpify.rules.base import Edit, How
from ddpify.rules.data.lengths import is_length, used_otherwise
from ddpify.rules.edits import edit, statement_of
from ddpify.source import Site

_TORCHS = frozenset("""RandomSampler SequentialSampler SubsetRandomSampler WeightedRandomSampler
    BatchSampler""".split())
# What an order must not follow from: it would be of rank 0's samples alone.
_OF_TRAINING = (Kind.BATCH, Kind.FORWARD, Kind.MODEL, Kind.WRAPPED, Kind.OPTIMIZER)


def why_not(facts: Facts, loader: Loader) -> str:
    """Why ranks cannot share the order of a loader's own sampler, nothing where they can."""
    site = loader.call.arg_site(3, "sampler")
    if site is None or not _surely_given(facts, loader.call, site):
        return "it has its own `sampler`, or none: make them two loaders, each with its own call"
    if why := unfollowed(facts, loader):
        return why
    if used_otherwise(facts, loader):
        return "its `sampler` is asked for, which is a share of the order then: keep it in a name"
    if any(taken_apart(facts, call, loader) for call in facts.named("builtins.iter")):
        return "its sampler's order is of all ranks: begin each pass over it by a `for` loop"
    return ""


def unfollowed(facts: Facts, loader: Loader) -> str:
    """Why the order of a loader's own sampler is not rank 0's to say, "" where it is."""
    for thing in (t for one in loader.things for t in _samplers(one)):
        why = _unfollowed(thing) or _changed(facts, thing)
        if why:
            return f"it has its own `sampler`, {why}: shard it by hand"
    return ""


def share(facts: Facts, loader: Loader, condition: str) -> tuple[Edit, ...]:
    """``sampler=order_share(sampler)``, of a factory's loaders the one that trains."""
    call = loader.call
    site = call.arg_site(3, "sampler")
    assert site is not None
    dropped = call.kwarg_sites.get("drop_last")
    code = "order_share({}" + (f", drop_last={facts.text(dropped)})" if dropped else ")")
    return (
        edit(facts, How.REPLACE, site, f"{code} if {condition} else {{}}" if condition else code),
    )


def _samplers(loader: Thing) -> tuple[Thing, ...]:
    return tuple(t for given in loader_arguments(loader).samplers for t in given.things)


def _surely_given(facts: Facts, call: Call, site: Site) -> bool:
    """Whether it is made right there, or has a name that nothing else is ever given."""
    tree = facts.tree(site)
    node = tree.expression(site)
    if isinstance(node, ast.Call):
        return True
    if not isinstance(node, (ast.Name, ast.Attribute)):
        return False
    name = ast.unparse(node)
    binds = [b for b in facts.binds if b.target == name and b.site.path == site.path]
    made = {t.born for value in (call.arg(3, "sampler"),) if value for t in value.things}
    return bool(binds) and all(b.value_site in made for b in binds)


def _unfollowed(sampler: Thing) -> str:
    """A class that is not read, or what is drawn from what ranks do not have in common."""
    own = isinstance(sampler.ref, ClassInfo)
    if sampler.kind is not Kind.SAMPLER:
        return "which is not known to be one"
    if not own and sampler.name.rpartition(".")[2] not in _TORCHS:
        return f"a `{sampler.name}`, which is not followed"
    made = sampler.detail(MakingCall)
    given = [v for v in (*made.call.args, *made.call.kwargs.values())] if made is not None else []
    found = {d.kind for v in given for d in v.all_deps()} | (
        {d.kind for d in made.deps} if made is not None else set()
    )
    return "which follows from what is trained" if found & set(_OF_TRAINING) else ""


def _changed(facts: Facts, sampler: Thing) -> str:
    """Whether the program may tell a sampler more than how it was made, and the epoch."""
    for access in facts.accesses:
        outside = access.where.frame.self_thing is not sampler
        asked = access.attribute == "set_epoch" or is_length(facts, access)
        if outside and sampler in access.base.things and not asked:
            return f"whose `{access.attribute}` is used"
    made = sampler.detail(MakingCall)
    sites = (*made.call.arg_sites, *made.call.kwarg_sites.values()) if made is not None else ()
    for site in sites:  # `weights`, which the sampler keeps, may be written to
        node = facts.tree(site).expression(site)
        names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} if node else set()
        if any(_follows(bind, site.path, names) for bind in facts.binds):
            return "which follows from what is trained"
    return ""


def _follows(bind: Bind, path: str, names: set[str]) -> bool:
    return bind.target in names and bind.site.path == path and bool(bind.value.dep(*_OF_TRAINING))


def _is(value: Value, loader: Loader) -> bool:
    return any(thing in loader.things for thing in value.things)


def taken_apart(facts: Facts, call: Call, loader: Loader) -> bool:
    """``next(iter(loader))`` in a statement that one rank alone may come to run."""
    if not any(_is(value, loader) for value in call.args):
        return False
    node = facts.tree(call.site).statement(statement_of(facts, call.site))
    return not (
        isinstance(node, ast.Assign) and facts.tree(call.site).site(node.value) == call.site
    )
