"""What functions keep of a batch: in objects, in globals, in lists that are there in the next."""

from __future__ import annotations

from collections.abc import Iterator

from ddpify.facts.events import Where
from ddpify.facts.growth import MUTATES
from ddpify.facts.kinds import CONTAINERS
from ddpify.facts.model import Facts
from ddpify.facts.values import Kind
from ddpify.rules.edits import is_local
from ddpify.source import Site


def kept_by(facts: Facts, within: list[Site]) -> Iterator[Site]:
    """Where functions that are entered there bind, or add to, what is there in the next round."""

    def entered(where: Where) -> bool:
        return any(site.within(one) for site in where.stack for one in within)

    for bind in facts.binds:
        frame = bind.where.frame
        own = frame.self_thing is not None and frame.self_thing.kind is Kind.INSTANCE
        shared = ("." in bind.target and own) or bind.target in frame.globals_ | frame.nonlocals
        if shared and entered(bind.where) and is_local(facts, bind.value):
            yield bind.site
    for call in facts.calls:
        held = call.receiver.of(*CONTAINERS) if call.receiver is not None else ()
        home = call.where.function
        stays = home is not None and any(not thing.born.within(home.site) for thing in held)
        grows = call.name[1:] in MUTATES and any(is_local(facts, value) for value in call.args)
        if stays and grows and entered(call.where):
            yield call.site
