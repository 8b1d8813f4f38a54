"""Models that fill up what they have unpacked to the longest of the samples that they are given. ::

    hidden, _ = pad_packed_sequence(packed)    # as long as the longest, which another rank may have

Of a batch that was filled up before it is divided, targets and masks are as long as all of it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from ddpify.facts.bodies import loaded, stored
from ddpify.facts.events import Forward
from ddpify.facts.filled_inputs import DEPTH, texts
from ddpify.facts.tree import FUNCTIONS

WHY = (
    "the model fills up what it unpacks to the longest of its samples (`pad_packed_sequence` "
    "without `total_length`), which another rank may have"
)


def pads(call: ast.Call) -> bool:
    """Whether it fills sequences up to the longest of them."""
    name = ast.unparse(call.func).rpartition(".")[2]
    told = any(keyword.arg == "total_length" for keyword in call.keywords)
    return name in ("pad_packed_sequence", "pad_sequence") and not told


def unpacks(forwards: Iterable[Forward]) -> bool:
    """Whether one of these models reads what it has filled up so."""
    found = (node for forward in forwards for _, node in texts(forward.model, DEPTH))
    return any(_reads_padded(node) for node in found if isinstance(node, FUNCTIONS))


def _reads_padded(method: ast.AST) -> bool:
    """Whether what is padded is read: often only the state of the layer is."""
    read = set(loaded(method))
    assigned = [n for n in ast.walk(method) if isinstance(n, ast.Assign)]
    for node in (n for n in ast.walk(method) if isinstance(n, ast.Call) and pads(n)):
        targets = [t for a in assigned if a.value is node for t in a.targets]
        first = [t.elts[0] if isinstance(t, ast.Tuple) and t.elts else t for t in targets]
        if not first or stored(first) & read:
            return True
    return False
