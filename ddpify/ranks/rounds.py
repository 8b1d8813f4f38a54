"""Loops whose rounds are known: each is run by itself."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from ddpify.ranks import assigning, leaving
from ddpify.ranks.frames import RankFrame
from ddpify.ranks.model import RankGuard, RankLoop, RankValue
from ddpify.ranks.paths import leavers
from ddpify.ranks.protocol import RankMachine
from ddpify.ranks.trace import Inline, Item

Round = tuple[
    int, RankValue, RankValue | None
]  # who runs it, what is bound, and what decides who does


def run_rounds(
    m: RankMachine,
    f: RankFrame,
    node: ast.For | ast.AsyncFor,
    loop: RankLoop,
    rounds: Iterable[Round],
) -> None:
    """One round after the other, then ``else``; each rank goes on where its exit leads."""
    live, around, outside = m.live, m.here, m.items
    turns: list[Item] = []
    here, broke = live, 0
    with leaving.block(m, f, node, "break") as block:
        for ranks, element, test in rounds:
            m.live, m.items = here & ranks, []
            if not m.live:
                continue
            if test is not None:
                m.here = around.under(RankGuard(test, node.iter, f.module, True, m.live))
            m.run.loops.append(loop)
            started = m.live
            with leaving.block(m, f, node, "continue") as turn:
                assigning.assign(m, f, node.target, element)
                m.execute(f, node.body)
                leaving.join(m, f, turn, m.live)
            if started != live and test is not None:
                leaving.only_on(m, f, turn.mark, started, test.origins)
            turns.append(Inline(m.items, started, "continue"))
            gone = started & ~m.live
            broke |= leavers(m.items, gone, "break")
            here &= ~gone | leavers(m.items, gone, "continue")
        m.live, m.here, m.items = here, around, []
        m.execute(f, node.orelse)
        leaving.join(m, f, block, m.live)
    turns += m.items
    m.items, m.live = outside, m.live | broke
    if turns:
        m.items.append(Inline(turns, live, "break"))
