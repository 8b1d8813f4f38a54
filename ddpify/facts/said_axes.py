"""Along which axis the tensors of a batch hold samples, by all that says so."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Final

from ddpify.facts.bodies import CutBody
from ddpify.facts.drawn_order import is_any_drawn
from ddpify.facts.events import Forward
from ddpify.facts.layer_axes import axes_of, by_rows
from ddpify.facts.loss_flow import loss_values
from ddpify.facts.model import TrainingLoop
from ddpify.facts.protocol import Machine

# What only gives another type, place or shape to what is there already.
CONVERTS: Final = frozenset(
    """from_numpy tensor as_tensor Tensor FloatTensor LongTensor DoubleTensor Variable array asarray
    cuda to cpu float double long int view reshape unsqueeze squeeze astype type detach clone
    requires_grad_ zero_grad train""".split()
)


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
    if not _is_made_anew(split):
        return said  # all data in each pass: nobody has divided it into batches
    loss = loss_values(m, training, split.rest)
    return {0} if loss is not None and by_rows(tree, forwards, loss) else said


def _is_made_anew(split: CutBody) -> bool:
    """Whether a pass makes a batch of its own: by its number, or by what a function gives.

    ``inputs = torch.from_numpy(rows)`` is the same in each.
    """
    nodes = [node for statement in split.made_by for node in ast.walk(statement)]
    calls = (ast.unparse(n.func).rpartition(".")[2] for n in nodes if isinstance(n, ast.Call))
    numbered = any(isinstance(n, ast.Name) and n.id in split.targets for n in nodes)
    return numbered or any(name not in CONVERTS for name in calls)


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
