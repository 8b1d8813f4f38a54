"""Where evaluation should call the inner module, and which expression to unwrap for it.

The wrapper broadcasts buffers in every forward, also in eval mode, so evaluation and sampling
go around it. The outermost argument that only evaluation uses is the smallest edit.
"""

from __future__ import annotations

import ast

from ddpify.facts import roles
from ddpify.facts.events import Forward
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import Frame
from ddpify.facts.values import Kind
from ddpify.source import Site


def unwraps(m: Machine) -> tuple[tuple[Site, Forward], ...]:
    """(expression, forward) for each evaluation forward through a wrapper."""
    calls = roles.calls_of(m)
    forwards = roles.forwards_of(m)
    trained = roles.training_forwards(calls, forwards)
    training = [f for f in forwards if f.output in trained]
    found: dict[Site, Forward] = {}
    for forward in forwards:
        if forward.output in trained or forward.model.kind is not Kind.WRAPPED:
            continue
        site = _site(m, forward, training)
        if site is not None:
            found.setdefault(site, forward)
    return tuple(found.items())


def _site(m: Machine, forward: Forward, training: list[Forward]) -> Site | None:
    """The outermost safe expression that carries the model to this forward."""
    best: Site | None = None
    frame: Frame | None = forward.call.where.frame
    site: Site | None = forward.call.owner_site
    if not any(t.call.owner_site == site for t in training):
        best = site
    while frame is not None and site is not None:
        node = m.tree(site.path).expression(site)
        name = node.id if isinstance(node, ast.Name) else None
        passed = frame.parameters.get(name) if name is not None else None
        if passed is None or _trains_below(frame, training):
            break
        best = site = passed
        frame = frame.caller
    return best


def _trains_below(frame: Frame, training: list[Forward]) -> bool:
    """Whether a training forward happens inside this same call."""
    depth = len(frame.stack)
    return any(t.call.where.stack[:depth] == frame.stack for t in training)
