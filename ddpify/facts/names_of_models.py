"""The names that a model has, and the one by which it is called."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ddpify.facts.events import Bind, Call, Forward
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import Frame
from ddpify.facts.values import Thing
from ddpify.source import Site

_KEY = re.compile(r"""('\w+'|"\w+"|\d+)]""")


def as_written(m: Machine, target: str, bind: Bind) -> str:
    """An entry with the quotes that the program uses."""
    written = m.tree(bind.site.path).source.segment(bind.site.span)
    return written if target == bind.target and "[" in written else target


def called_as(m: Machine, things: tuple[Thing, ...], names: list[Bind], last: Bind) -> str:
    """The name by which a model is called: after ``m = model.to(device)`` perhaps ``model``."""
    calls = [e.call for e in m.events if isinstance(e, Forward) and e.model in things]
    called = {text for call in calls for text in _handed_as(m, call)}
    known = {one.target for one in names} & called
    return known.pop() if len(known) == 1 else last.target


def _handed_as(m: Machine, call: Call) -> Iterator[str]:
    """By what it is called, and by what it was handed there: ``net`` of ``train(model=net)``."""
    site: Site | None = call.owner_site
    frame = call.where.frame
    while site is not None:
        node = m.tree(site.path).expression(site)
        yield ast.unparse(node) if node is not None else ""
        if not isinstance(node, ast.Name) or frame.caller is None:
            return
        site, frame = frame.parameters.get(node.id), frame.caller


def is_entry(target: str) -> bool:
    """``self.models["encoder"]``."""
    name, bracket, key = target.partition("[")
    return bool(bracket) and is_namable(name) and bool(_KEY.fullmatch(key))


def is_namable(target: str) -> bool:
    parts = target.split(".")
    return all(p.isidentifier() for p in parts) and len(parts) <= 2


def is_alias(m: Machine, bind: Bind) -> bool:
    """``self.model = model``: another name for the same object."""
    if bind.value_site is None:
        return False
    node = m.tree(bind.site.path).expression(bind.value_site)
    return isinstance(node, (ast.Name, ast.Attribute))


def visible_bind(binds: list[Bind], frame: Frame) -> Bind | None:
    """The last name the model has in this activation or, failing that, in its callers."""
    here: Frame | None = frame
    while here is not None:
        found = [b for b in binds if b.where.stack == here.stack]
        if found:
            return found[-1]
        here = here.caller
    return binds[-1]
