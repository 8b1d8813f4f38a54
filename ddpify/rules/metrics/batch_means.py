"""Sums of the means of a rank's batches, over how many batches that is: the mean of this rank.

``total += loss`` in each round and ``total / len(loader)``; summed over the ranks, it is N times
that, whether it is divided before or afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from ddpify.ranks.mixing import Mark, Of
from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.origins import DATA, Symbol
from ddpify.ranks.passes import is_loader
from ddpify.ranks.run import Run
from ddpify.ranks.sizes import Sized
from ddpify.ranks.values import Turn, text
from ddpify.rules.metrics.averages import made_of
from ddpify.rules.shared.feeds import dealt_by
from ddpify.rules.shared.losses import reduction

_BEGINS: Final = frozenset({"torch.zeros", "torch.tensor", "torch.zeros_like"})
_SCALES: Final = ("div_", "mul_", "true_divide_")


def is_own_mean(run: Run, value: RankValue) -> bool:
    """``total / len(loader)``, the mean of this rank's batches."""
    atom = value.atoms[0]
    if not isinstance(atom, Symbol) or atom.parts[:1] != ("Div",):
        return False
    whole = RankValue((atom.parts[1],) * 2, value.things, value.deps, value.origins)
    return _counts_batches(run, atom.parts[2], value) and adds_means(run, whole)


def over_batches(run: Run, reduces: RankCall, value: RankValue) -> Mark | None:
    """Where what a reduction has summed was divided by the number of one rank's batches, if
    nothing has divided it by that of the ranks since."""
    for mark in value.made_from:
        if isinstance(mark, Mark) and mark.of is Of.PER:
            above, below = mark.parts
            sums = (one for one in above.made_from if isinstance(one, Mark) and one.of is Of.ALL)
            ours = any(one.site == reduces.site for one in sums)
            if ours and _counts_batches(run, below.atoms[0], above):
                return mark
    return None


def adds_means(run: Run, value: RankValue) -> bool:
    """Whether it is a sum of losses that are means over batches, which nothing has scaled."""
    if not any(one.kind == DATA for one in value.all_origins):
        return False
    held = set(value.sources())
    scaled = (one.receiver for one in run.methods(*_SCALES) if one.receiver is not None)
    if any(not held.isdisjoint(one.things) for one in scaled):
        return False
    summed = [one for one in made_of(value) if one.method == "sum"]
    if summed:
        return all(_are_means(one.inputs) for one in summed)
    leaves = list(_terms(value.atoms[0]))
    known = {thing.key: thing for thing in held}
    means = [_is_mean(leaf, known) for leaf in leaves]
    return True in means and all(
        is_mean or _begins(a, known) for is_mean, a in zip(means, leaves, strict=True)
    )


def _are_means(values: tuple[RankValue, ...]) -> bool:
    made = [one for value in values for one in made_of(value)]
    return bool(made) and all(reduction(one) == "mean" for one in made)


def _terms(atom: Any) -> Iterator[Any]:
    if isinstance(atom, Symbol) and atom.parts[:1] == ("Add",):
        for part in atom.parts[1:]:
            yield from _terms(part)
    else:
        yield atom


def _is_mean(atom: Any, known: dict[str, RankThing]) -> bool:
    thing = known.get(text(atom))
    return thing is not None and _are_means((RankValue((atom, atom), (thing,)),))


def _begins(atom: Any, known: dict[str, RankThing]) -> bool:
    """What a sum begins at, or what was added in the rounds before."""
    thing = known.get(text(atom))
    return atom == 0 or isinstance(atom, Turn) or (thing is not None and thing.name in _BEGINS)


def _counts_batches(run: Run, atom: Any, value: RankValue) -> bool:
    """``len(loader)`` of a loader that is dealt, a counter of its rounds, ``len(losses)``."""
    terms = list(_terms(atom))
    if any(isinstance(one, Turn) for one in terms):
        rest = (one for one in terms if not isinstance(one, Turn))
        return all(one == 1 and not isinstance(one, Sized) for one in rest)
    loaders = (one for one in value.sources() if is_loader(one))
    if any(text(atom) == f"len({one.key})" for one in loaders if one.deals or dealt_by(one)):
        return True
    lengths = ((c.result, c.args[0].items) for c in run.named("builtins.len") if c.args)
    return any(n is not None and n.atoms[0] == atom and _are_means(of or ()) for n, of in lengths)
