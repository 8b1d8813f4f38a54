"""Numbers that a rank gives to what is in its own part of the data: a vocabulary."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from ddpify.ranks.model import RankCall, RankThing
from ddpify.ranks.origins import DATA
from ddpify.ranks.run import Run
from ddpify.ranks.values import spread
from ddpify.rules.shared.syntax import scope
from ddpify.site import Site

_DISTINCT: Final = frozenset({"set", "Counter", "unique", "most_common"})


def embeds(part: RankThing) -> bool:
    """Whether a model has a vector for each number."""
    if part.cls is not None:
        return ".Embedding(" in part.cls.module.text(part.cls.node)
    return part.name in ("torch.nn.Embedding", "torch.nn.EmbeddingBag")


def numbered(run: Run) -> Iterator[tuple[Site, Site]]:
    """Where what is in this rank's data is counted, and where it is numbered: ``{word: i for i,
    word in enumerate(sorted(set(words)))}``."""
    for call in run.named("builtins.enumerate"):
        given = call.arg(0, "iterable")
        if given is None or not call.everywhere or not _is_of_a_dict(call):
            continue
        sources = (t for t in given.sources() if t.name.rpartition(".")[2] in _DISTINCT)
        counts = (t.call for t in sources if t.call is not None and is_own(t.call))
        counted = min(counts, key=lambda one: one.order, default=None)
        sets = any(isinstance(node, ast.SetComp) for node in ast.walk(call.node))
        if counted is not None or (sets and is_own(call)):
            yield (counted or call).site, call.site


def _is_of_a_dict(call: RankCall) -> bool:
    return any(
        call.node is part.iter
        for node in ast.walk(scope(call))
        if isinstance(node, ast.DictComp)
        for part in node.generators
    )


def is_own(call: RankCall) -> bool:
    """Whether a call is given what this rank alone has."""
    return any(origin.kind == DATA for value in call.inputs for origin in spread(value))
