"""Parameters of models that nobody turns to another type: float32, which is no array's default."""

from __future__ import annotations

import re
from typing import Final

from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.origins import Symbol

# An element of ``net.parameters()``, or its gradient; nothing that is computed from it.
_ELEMENT: Final = re.compile(r"element@[^\[\]]*:\d+(\[1\])?(\.grad|\.data)?")
_TURNING: Final = re.compile(r"float64|double|set_default|half\b|float16|fp16|bf16|deepspeed|dtype")
_GIVING: Final = frozenset({"parameters", "named_parameters"})


def is_single(value: RankValue, rank: int) -> bool:
    """Whether a value surely is a parameter of float32, the gradient of one, or all of them."""
    atom = value.atoms[rank]
    things = value.things_on(rank)
    element = isinstance(atom, Symbol) and _ELEMENT.fullmatch(atom.key) is not None
    given = value.made_from if element and not things else things
    made = [t.call for t in given if t.call is not None and t.call.method in _GIVING]
    return bool(made) and all(map(_is_untouched, made)) and (element or len(things) == len(made))


def _is_untouched(call: RankCall) -> bool:
    """Whether it gives the parameters of a module, and no file on the way there speaks of types
    but those of NumPy."""
    on = call.receiver.things if call.receiver is not None else ()
    files = {one.module for one in call.way} | {t.cls.module for t in on if t.cls is not None}
    texts = (one.source.text for one in files)
    plain = (re.sub(r"(dtype=)?(np|numpy)\.\w+", "", text) for text in texts)
    return bool(on) and all(map(_is_module, on)) and not any(map(_TURNING.search, plain))


def _is_module(thing: RankThing) -> bool:
    own = thing.cls is not None and thing.cls.inherits("torch.nn.Module")
    return own or (thing.kind == "result" and thing.name.startswith("torch.nn."))
