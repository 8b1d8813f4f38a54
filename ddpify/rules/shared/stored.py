"""Checkpoints to which each rank writes its shards: whose states go there as they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ddpify.facts.events import Call
from ddpify.facts.model import Facts
from ddpify.facts.values import Kind, Thing, Value
from ddpify.rules.shared.named_files import named_alike
from ddpify.rules.shared.saving import is_distributed, saves_of
from ddpify.source import Site
from ddpify.strategies.base import Strategy

# What only puts together what it is given.
_DISPLAYS = frozenset({"dict", "collections.OrderedDict"})
_NO_USE = frozenset({".state_dict", *_DISPLAYS})


@dataclass(frozen=True)
class Stored:
    """The saves that hold states of shards, these states, and what else is done with one."""

    saves: dict[Site, Call] = field(default_factory=dict)
    states: frozenset[Site] = frozenset()
    otherwise: dict[Site, Site] = field(default_factory=dict)

    @classmethod
    def of(cls, facts: Facts, strategy: Strategy) -> Stored:
        if not strategy.saves_shards:
            return cls()
        made = facts.named(".state_dict")
        shards = {call.site for call in made if is_distributed(facts, call, strategy)}
        written = {call: _states(call.arg(0, "obj")) & shards for call in saves_of(facts)}
        saves = {call.site: call for call, states in written.items() if states}
        states = frozenset[Site]().union(*written.values())
        uses = {state: use for use in _uses(facts, saves) for state in _given(use) & states}
        otherwise = {
            call.site: uses[state].site
            for call, held in written.items()
            for state in held
            if state in uses
        }
        return cls(saves, states - uses.keys(), otherwise)

    def named_as(self, facts: Facts, call: Call, path: Site) -> bool:
        """Whether a path is, to all appearance, one of these checkpoints'."""
        own = ((save, save.arg_site(1, "f")) for save in self.saves.values())
        return any(at is not None and named_alike(facts, (s, at), (call, path)) for s, at in own)


def _uses(facts: Facts, saves: dict[Site, Call]) -> Iterator[Call]:
    """Calls of which it is not known that they leave what they are given alone."""
    for call in facts.calls:
        if call.target is None and call.site not in saves and call.name not in _NO_USE:
            yield call


def _given(call: Call) -> frozenset[Site]:
    values = (call.receiver, *call.args, *call.kwargs.values())
    return frozenset[Site]().union(*(_states(value) for value in values))


def _states(value: Value | None) -> frozenset[Site]:
    """Where the states were made that a value is, holds or was computed from."""
    found = () if value is None else (*value.dep(Kind.STATE), *_held(value))
    return frozenset(thing.born for thing in found if thing.kind is Kind.STATE)


def _held(value: Value, depth: int = 4) -> Iterator[Thing]:
    for thing in value.of(Kind.STATE, Kind.DICT, Kind.TUPLE):
        yield thing
        for one in (*(thing.keys or {}).values(), *(thing.items or ())) if depth else ():
            yield from _held(one, depth - 1)
