"""``with`` blocks: generators of the project, objects with ``__enter__``, those of libraries."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace

from ddpify.python import words as names
from ddpify.ranks import words
from ddpify.ranks.calls import call_method, given
from ddpify.ranks.frames import RankFrame
from ddpify.ranks.functions import enter
from ddpify.ranks.model import RankThing, RankValue
from ddpify.ranks.protocol import RankMachine
from ddpify.ranks.recording import record
from ddpify.ranks.trace import BLOCK, LEAVING, Inline, Item, first
from ddpify.ranks.values import constant, of


def entered_context(
    m: RankMachine, f: RankFrame, expression: ast.expr, inside: Callable[[RankValue], None]
) -> None:
    """``with expression: …``; ``inside`` runs the block with what is bound by ``as``."""
    if isinstance(expression, ast.Call):
        callee = m.evaluate(f, expression.func)
        thing = next((t for t in callee.things if t.traits.context), None)
        if thing is not None and thing.info not in m.entering:
            _generator_context(m, f, expression, thing, inside)
            return
    value = m.evaluate(f, expression)
    bound = call_method(m, f, value, "__enter__", expression)
    if bound is None:
        bound = call_method(m, f, value, "__aenter__", expression)
    here = m.here
    m.here = replace(here, contexts=(*here.contexts, value))
    if any(t.name in words.NO_GRAD for t in value.things):
        m.here = replace(m.here, grad=any(_enables(t) for t in value.things))
    inside(bound if bound is not None and bound.things else value)
    m.here = here
    call_method(m, f, value, "__exit__", expression)


def _enables(thing: RankThing) -> bool:
    return (
        thing.name == names.SET_GRAD
        and thing.call is not None
        and bool(thing.call.args)
        and thing.call.args[0].constant is not False
    )


def _generator_context(
    m: RankMachine,
    f: RankFrame,
    expression: ast.Call,
    thing: RankThing,
    inside: Callable[[RankValue], None],
) -> None:
    """A ``@contextmanager`` of the project: the block runs at the first yield of each rank."""
    one = record(m, f, thing.name, given(m, f, expression), thing.info)
    came, after, start = 0, 0, len(m.items)
    blocks: list[Inline] = []

    def block(value: RankValue) -> None:
        nonlocal came, after
        kept = (m.live, m.here)
        m.live &= ~came
        came |= m.live
        if m.live:
            held = of(RankThing("context", thing.name, info=thing.info, call=one))
            m.here = replace(m.here, stack=one.stack, contexts=(*m.here.contexts, held))
            blocks.append(Inline([], m.live, BLOCK))
            items, m.items = m.items, blocks[-1].body
            inside(value)
            after |= m.live
            m.items = items
            m.items.append(blocks[-1])
        m.live, m.here = kept

    enter(m, f, thing, one.args, one.kwargs, one, block)
    _take_out(m.items, start, blocks)
    if came:
        m.live = after
    else:
        inside(constant(None))


def _take_out(items: list[Item], start: int, blocks: list[Inline]) -> None:
    """Put the block beside the generator: its exits are those of the function that has the
    ``with``, and what follows the ``yield`` comes before them."""
    made = items[start:]
    whole = made[0] if len(made) == len(blocks) == 1 else None
    if not isinstance(whole, Inline) or blocks[0] not in whole.body:
        return
    at = whole.body.index(blocks[0])
    before, after = replace(whole, body=whole.body[:at]), replace(whole, body=whole.body[at + 1 :])
    items[start:] = [before, *first([after], blocks[0].body, LEAVING), after]
