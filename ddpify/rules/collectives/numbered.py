"""Numbers that a rank gives to what is in its own part of the data: a vocabulary."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from ddpify.ranks.model import RankCall, RankThing
from ddpify.ranks.origins import DATA
from ddpify.ranks.run import Run
from ddpify.ranks.values import spread
from ddpify.rules.shared.syntax import parents, scope_nodes
from ddpify.rules.shared.wrapped import wraps
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
        made = _dict_of(call)
        if given is None or not call.everywhere or made is None or _only_picks(call, made):
            continue
        sources = (t for t in given.sources() if t.name.rpartition(".")[2] in _DISTINCT)
        counts = (t.call for t in sources if t.call is not None and is_own(t.call))
        counted = min(counts, key=lambda one: one.order, default=None)
        sets = any(isinstance(node, ast.SetComp) for node in ast.walk(call.node))
        if counted is not None or (sets and is_own(call)):
            yield _given(run, counted or call), call.site


def _given(run: Run, counts: RankCall) -> Site:
    """Where the part of this rank is handed to what numbers whatever it is given, and makes no
    model of it: ``Vocab(rows[rank::world])``; else where it is counted."""
    models = [wrap.call for wrap in wraps(run)]
    handed = (c for c in counts.stack if is_own(c) and not any(c in one.stack for one in models))
    return next(handed, counts).site


def _dict_of(call: RankCall) -> ast.DictComp | None:
    made = (node for node in scope_nodes(call) if isinstance(node, ast.DictComp))
    return next((one for one in made if call.node in [p.iter for p in one.generators]), None)


def _only_picks(call: RankCall, made: ast.DictComp) -> bool:
    """Whether its numbers are only places in something that the rank keeps for itself:
    ``seen[number[word]] += 1``."""
    above = parents(call.module.tree)
    holder = above.get(made)
    if not isinstance(holder, ast.Assign) or len(holder.targets) != 1:
        return False
    name = ast.unparse(holder.targets[0])
    asked = [
        node
        for node in above
        if (isinstance(node, ast.Subscript) and ast.unparse(node.value) == name)
        or (isinstance(node, ast.Call) and ast.unparse(node.func) == f"{name}.get")
    ]
    return bool(asked) and all(_is_place(node, above) for node in asked)


def _is_place(node: ast.AST, above: dict[ast.AST, ast.AST]) -> bool:
    """Whether a number is what stands in brackets, under a name of its own or not."""
    holder = above.get(node)
    if _is_slice(node, above):
        return True
    if not isinstance(holder, ast.Assign) or not isinstance(holder.targets[0], ast.Name):
        return False
    names = (one for one in above if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load))
    used = [one for one in names if one.id == holder.targets[0].id]
    return bool(used) and all(_is_slice(one, above) for one in used)


def _is_slice(node: ast.AST, above: dict[ast.AST, ast.AST]) -> bool:
    holder = above.get(node)
    return isinstance(holder, ast.Subscript) and holder.slice is node


def is_own(call: RankCall) -> bool:
    """Whether a call is given what this rank alone has."""
    return any(origin.kind == DATA for value in call.inputs for origin in spread(value))


def is_kept(init: ast.AST, name: str) -> bool:
    """Whether a constructor only keeps what it is given, as ``self.name``, and makes nothing of
    it."""
    above = parents(init)
    used = [n for n in above if isinstance(n, ast.Name) and n.id == name]
    holders = [above[one] for one in used]
    targets = [h.targets[0] for h in holders if isinstance(h, ast.Assign)]
    kept = [ast.unparse(one) for one in targets if isinstance(one, ast.Attribute)]
    read = (n for n in above if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load))
    return 0 < len(kept) == len(used) and not any(ast.unparse(one) in kept for one in read)
