"""How a loader call is written: keywords spread from a dict, factories that make every split."""

from __future__ import annotations

import ast

from ddpify.facts.events import Call
from ddpify.facts.model import Facts, Loader
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
