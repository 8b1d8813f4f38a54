"""Files that a program names where it writes and where it reads them."""

from __future__ import annotations

from collections.abc import Iterator

from ddpify.facts.effects import EffectKind, opens_path, writes
from ddpify.facts.events import Call
from ddpify.facts.model import Facts
from ddpify.facts.preparation import prepared
from ddpify.facts.values import NOTHING
from ddpify.python import writers
from ddpify.rules.shared.meetings import READS
from ddpify.source import Site

Named = tuple[Call, Site]  # a call, and its path
_PLACES = {EffectKind.OPEN: (0, "file"), EffectKind.CHECKPOINT: (1, "f")}


def written_files(facts: Facts) -> Iterator[Named]:
    """What writes a file."""
    for effect in facts.effects:
        call = effect.call
        place = _PLACES.get(effect.kind) or writers.FUNCTIONS.get(call.name)
        path = call.receiver_site if opens_path(call) else None
        path = call.arg_site(*place) if path is None and place is not None else path
        if path is not None and not prepared(call, facts.preparations):
            yield call, path


def read_files(facts: Facts) -> Iterator[Named]:
    """What reads a file, which must be there."""
    for call in facts.calls:
        place = READS.get(call.name)
        if call.name in writers.OPENS and not writes(call):
            place = (0, "file")
        path = call.receiver_site if opens_path(call) and not writes(call) else None
        path = call.arg_site(*place) if place is not None else path
        if path is not None and not prepared(call, facts.preparations):
            yield call, path


def named_alike(facts: Facts, write: Named, read: Named) -> bool:
    """Whether one function names the path in the same way for both, or both say the same text."""
    together = write[0].where.function is read[0].where.function
    if together and facts.text(write[1]) == facts.text(read[1]):
        return True
    said = [facts.values.get(path, NOTHING).const for _, path in (write, read)]
    return isinstance(said[0], str) and said[0] == said[1]
