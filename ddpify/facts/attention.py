"""Along which axis the layers of a transformer take samples."""

from __future__ import annotations

from typing import Final

from ddpify.facts.details import call_that_made
from ddpify.facts.values import Thing

# Each with the place of ``batch_first``, counted from the first argument.
_PLACES: Final = {
    "torch.nn.TransformerEncoderLayer": 6,
    "torch.nn.TransformerDecoderLayer": 6,
    "torch.nn.Transformer": 11,
}
_STACKS: Final = frozenset({"torch.nn.TransformerEncoder", "torch.nn.TransformerDecoder"})
ATTENDS: Final = frozenset(_PLACES) | _STACKS


def attention_axis(layer: Thing) -> int | None:
    """The axis that ``batch_first`` says, of a stack that of its layers; else None."""
    made = call_that_made(layer)
    if made is None or made.star:
        return None
    if layer.name in _STACKS:
        given = made.arg(0, f"{'en' if 'Encoder' in layer.name else 'de'}coder_layer")
        inner = given.things if given is not None else ()
        axes = {attention_axis(one) if one.name in _PLACES else None for one in inner}
        return axes.pop() if len(axes) == 1 else None
    given = made.arg(_PLACES.get(layer.name, 0), "batch_first")
    if given is None:
        return 1
    return (0 if given.const else 1) if isinstance(given.const, bool) else None
