"""What a loop shows of the one sample that a batch is: of the sample that it would be shown of.

Every so many samples that is the one that completes them, which the last rank has, or the first of
the next, which rank 0 has.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from ddpify.facts.events import Call
from ddpify.facts.model import Facts, Status, TrainingLoop
from ddpify.facts.sinks import LAST, Part
from ddpify.rules.shared.sample_counts import every
from ddpify.rules.shared.single_samples import counter_of, deals_single
from ddpify.source import Site

_FIRST = "get_world_size() * is_main_process()"  # all weight is on the rank that has it
_LAST = "get_world_size() * (get_rank() == get_world_size() - 1)"


def shown_of_one(facts: Facts, call: Call, part: Part) -> Iterator[Part]:
    """A part of what is shown, if not rank 0 has it anyhow, or that was decided before.

    Of a meter the last value is that of this sample.
    """
    if part.how == LAST and facts.status is Status.MIGRATED:
        return
    loops = [one for one in facts.training if one.batch in call.where.loops()]
    single = bool(loops) and deals_single(loops[0].loaders)
    first = single and _comes_first(facts, loops[0], call.site)
    if single and part.how == "global_meter":
        part = replace(part, given=f", weight={_FIRST if first else _LAST}")
    if part.how != LAST or not first:
        yield part


def _comes_first(facts: Facts, loop: TrainingLoop, site: Site) -> bool:
    """``if i % 50 == 0``: shown of the sample that comes after so many."""
    tree, counter = facts.tree(site), counter_of(facts, loop)
    node = tree.statement(site)
    if counter is None or node is None:
        return False
    for above in tree.ancestors(node):
        asked = every(above.test) if isinstance(above, ast.If) else None
        if asked is not None and counter.names(asked.rest):
            return counter.first + counter.offset(asked.rest.left) == 0 and asked.last is None
    return False
