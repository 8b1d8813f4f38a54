"""What a model is called by where a function is called that calls the model."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from ddpify.facts.events import Call
from ddpify.facts.model import Facts
from ddpify.facts.scopes import FunctionNode
from ddpify.site import Site


def named_in(facts: Facts, sites: Sequence[Site], call: Call) -> str | None:
    """The name of what is called, in these statements of a frame; None where it has none there.

    ``learner.net`` for ``learner.fit(x)`` that calls ``self.net(x)``.
    """
    way = [*call.where.stack, call.site]
    first = next((n for n, s in enumerate(way) if any(s.within(one) for one in sites)), None)
    if first is None:
        return None
    text: str | None = facts.text(call.owner_site)
    for site in reversed(way[first:-1]):
        text = _given_as(facts, site, text) if text is not None else None
    return text if text is not None and text.replace(".", "_").isidentifier() else None


def _given_as(facts: Facts, site: Site, text: str) -> str | None:
    """What ``text`` of a function is, where the function is called."""
    found = {_before(facts, call, text) for call in facts.calls if call.site == site}
    return found.pop() if len(found) == 1 else None


def _before(facts: Facts, call: Call, text: str) -> str | None:
    root, dot, rest = text.partition(".")
    function = call.target.node if call.target is not None else None
    if function is None or call.star or call.bound:
        return None
    own = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and _is_stored(n)}
    given = _sites(call, function).get(root)
    if given is not None and root not in own:
        outer = facts.text(given)
        return f"{outer}{dot}{rest}" if outer.replace(".", "_").isidentifier() else None
    parameters = {n.arg for n in ast.walk(function) if isinstance(n, ast.arg)}
    here = call.target is not None and call.target.site.path == call.site.path
    return text if here and root not in own | parameters | _locals(facts, call) else None


def _sites(call: Call, function: FunctionNode) -> dict[str, Site]:
    """What is given for each parameter, ``self`` with them."""
    names = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    given = dict(call.kwarg_sites)
    if call.receiver_site is not None and call.target is not None and call.target.owner is not None:
        given[names[0]] = call.receiver_site
        names = names[1:]
    return given | dict(zip(names, call.arg_sites, strict=False))


def _locals(facts: Facts, call: Call) -> set[str]:
    """The names that the calling function binds."""
    function = call.where.function.node if call.where.function is not None else None
    nodes = ast.walk(function) if function is not None else ()
    stored = {n.id for n in nodes if isinstance(n, ast.Name) and _is_stored(n)}
    arguments = ast.walk(function.args) if function is not None else ()
    return stored | {n.arg for n in arguments if isinstance(n, ast.arg)}


def _is_stored(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)
