"""Along which axis the tensors of a batch hold samples, by all that says so."""

from __future__ import annotations

from collections.abc import Sequence

from ddpify.facts.bodies import CutBody
from ddpify.facts.drawn_order import is_any_drawn
from ddpify.facts.events import Forward
from ddpify.facts.layer_axes import axes_of, by_rows
from ddpify.facts.loss_flow import loss_values
from ddpify.facts.model import TrainingLoop
from ddpify.facts.protocol import Machine


def said_axes(
    m: Machine,
    training: TrainingLoop,
    split: CutBody,
    names: Sequence[str],
    forwards: Sequence[Forward],
    known: set[int | None],
) -> set[int | None]:
    """The axes that are ``known``, those of layers, and those along which order is drawn.

    Where none of them says it, a model that works row by row may be given some rows.
    """
    tree = m.tree(training.batch.site.path)
    said = known | axes_of(tree, forwards, names)
    if is_any_drawn(m, tree, split, names):
        said.add(0)
    if said - {None}:
        return said
    loss = loss_values(m, training, split.rest)
    return {0} if loss is not None and by_rows(tree, forwards, loss) else said


def the_axis(names: tuple[str, ...], said: set[int | None], objects: bool) -> int | str:
    """The one axis that is said, or why none is."""
    known = sorted(one for one in said if one is not None)
    if len(known) > 1:
        return "along which axis samples lie is said in different ways"
    if not known:
        every = " and ".join(f"`{name}`" for name in names)
        usual = "--batch-dim 1, where torchtext's fields are not `batch_first`"
        hint = usual if objects else "--batch-dim 0 says the first"
        return f"nothing says along which axis {every} hold samples ({hint})"
    return known[0]
