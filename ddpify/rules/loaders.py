"""How a loader call is written and what a sampler changes in it; shared by the data rules."""

from __future__ import annotations

import ast

from ddpify.facts.events import Call
from ddpify.facts.model import Facts, Loader
from ddpify.facts.values import Thing, Value
from ddpify.rules.base import Edit, How
from ddpify.rules.edits import edit, fresh, statement_of
from ddpify.source import Site


def spread(facts: Facts, call: Call, key: str) -> Site | None:
    """The ``**name`` argument that may carry ``key``."""
    if key not in call.kwargs or key in call.kwarg_sites:
        return None
    tree = facts.tree(call.site)
    node = tree.expression(call.site)
    for keyword in node.keywords if isinstance(node, ast.Call) else ():
        if keyword.arg is None and isinstance(keyword.value, ast.Name):
            return tree.site(keyword.value)
    return None


def training_condition(loader: Loader) -> str | None:
    """A parameter of the factory that is one constant for training and another otherwise."""
    training = [c for c in loader.calls if c in loader.training]
    others = [c for c in loader.calls if c not in training]
    if not training or not others:
        return None
    for name in training[0].where.frame.parameters:
        yes = {_given(c, name) for c in training}
        no = {_given(c, name) for c in others}
        if None in yes | no or yes & no or len(yes) != 1:
            continue
        (wanted,) = yes
        if wanted in ("True", "False"):
            return name if wanted == "True" else f"not {name}"
        return f"{name} == {wanted}"
    return None


def _given(call: Call, name: str) -> str | None:
    value = call.where.frame.env.get(name)
    known = value is not None and value.known and isinstance(value.const, (bool, str))
    return repr(value.const) if known and value is not None else None


def direct(facts: Facts, site: Site) -> bool:
    """The call is the value of an assignment or a return: a statement can go before it."""
    tree = facts.tree(site)
    node = tree.expression(site)
    above = tree.parent(node) if node is not None else None
    if isinstance(above, ast.Tuple):
        above = tree.parent(above)
    return isinstance(above, (ast.Assign, ast.AnnAssign, ast.Return))


def sampler_name(facts: Facts, call: Call, default: str) -> str:
    """``train_loader`` → ``train_sampler``; ``default`` when the name does not say."""
    tree = facts.tree(call.site)
    node = tree.statement(call.site)
    targets = node.targets if isinstance(node, ast.Assign) else []
    if not targets or not isinstance(targets[0], ast.Name):
        return default if isinstance(node, ast.Assign) else "sampler"
    name = targets[0].id
    for ending in ("_dataloader", "_data_loader", "_loader", "_dl", "dataloader", "loader"):
        if name.lower().endswith(ending) and len(name) > len(ending):
            return f"{name[: -len(ending)].rstrip('_')}_sampler"
    return default


def dataset_name(facts: Facts, call: Call, sampler: str) -> tuple[tuple[Edit, ...], str]:
    """The data set's name; an expression that makes one is hoisted so that both get the same."""
    site = call.arg_site(0, "dataset")
    if site is None:
        return (), "None"
    text = facts.text(site)
    node = facts.tree(site).expression(site)
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


def shuffled(facts: Facts, call: Call, sampler: str) -> tuple[str, tuple[Edit, ...]]:
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
