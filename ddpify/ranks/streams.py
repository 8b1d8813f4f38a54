"""Random numbers: the stream a call draws from, and whether ranks draw the same from it.

The state of a stream is a value: False on a rank where nothing has seeded it, and the origins of
its seed. Those of the libraries are the machine's, that of a generator is the generator's.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ddpify.python.words import TORCH_GENERATOR
from ddpify.ranks import words
from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.origins import IDENTITY, RANDOM, RANK, Origin
from ddpify.ranks.protocol import RankMachine
from ddpify.ranks.results import result, with_origin
from ddpify.ranks.values import FALSE, TRUE, spread

_ENVIRONMENTS: Final = ("gym.", "gymnasium.", "envpool.")
_DISTRIBUTIONS: Final = "torch.distributions."
_BY_NAME: Final = frozenset({"torch.normal", "torch.bernoulli", "torch.multinomial"})
SEED: Final = "seed"  # where a generator's state has that of its stream
# What takes its seed from the system if it is given none.
_FROM_SYSTEM: Final = frozenset({"random.seed", "numpy.random.seed", "torch.seed"})


def unseeded() -> dict[str, RankValue]:
    """The libraries' streams at the start of a process."""
    return dict.fromkeys(words.STREAMS, FALSE)


def seeded_by(one: RankCall) -> tuple[str, ...]:
    """The libraries whose streams a call seeds; of an unknown function all, of a generator none."""
    if one.method in ("seed", "manual_seed") and _generators(one.receiver):
        return ()
    known = words.SEEDERS.get(one.name)
    if known is not None:
        return known
    says = "seed" in one.method.lower()  # `monai.utils.set_seed` and the like seed everything
    reads = one.method.startswith(("get_", "initial_")) or _library(one) is not None
    return words.STREAMS if says and not reads else ()


def random(m: RankMachine, one: RankCall) -> RankValue | None:
    """What a call gives that seeds, makes a generator, or draws what differs between ranks."""
    if one.method in ("seed", "manual_seed") and _generators(one.receiver):
        return _seed_generator(m, one)
    libraries = seeded_by(one)
    for library in libraries:
        m.write(m.streams, library, _state(one, one.name in _FROM_SYSTEM))
    if libraries:
        return result(one)
    if one.name in words.GENERATORS:
        return _generator(m, one)
    if one.name.startswith(_ENVIRONMENTS):
        return _simulated(m, one)
    drawn = _library(one)
    if drawn is not None and _is_apart(m, one, drawn):
        m.run.shared.discard(one.site)
        return with_origin(result(one), RANDOM, one.name, one)
    return None


def _simulated(m: RankMachine, one: RankCall) -> RankValue | None:
    """``gym.make(…)``, and what its ``reset(seed=…)`` and ``step(…)`` give: an environment draws
    from a stream of its own."""
    if one.receiver is None:
        made = result(one)
        made.things[0].state[SEED] = _state(replace(one, args=()), True)
        return made
    if "seed" in one.kwargs:
        for thing in _generators(one.receiver):
            m.write(thing.state, SEED, _state(replace(one, args=()), True))
    if one.method not in ("reset", "step"):
        return None
    states = [thing.state[SEED] for thing in _generators(one.receiver)]
    if not any(map(apart, states)):
        return None
    return with_origin(result(one), RANDOM, "what this rank's environment answers", one)


def apart(state: RankValue) -> bool:
    """Whether ranks draw different numbers: one of them has no seed, or each has its own."""
    missing = any(atom is False for atom in state.atoms)
    return missing or any(origin.kind in IDENTITY for origin in state.origins)


def _state(one: RankCall, from_system: bool) -> RankValue:
    seed = one.given[0] if one.given else None
    if from_system and (seed is None or (seed.known and seed.atoms == (None, None))):
        return FALSE
    own = one.arg(1, "device_specific") if one.name.startswith("accelerate.") else None
    origins = frozenset(o for value in one.given for o in spread(value))
    if own is not None and own.constant is True:
        origins |= {Origin(RANK, "device_specific", one.site)}
    return replace(TRUE, origins=origins)


def _library(one: RankCall) -> str | None:
    """Whose numbers a call draws; ``torch.rand(1).item()`` draws none."""
    sampled = one.name.startswith(_DISTRIBUTIONS) and one.method in ("sample", "rsample")
    if sampled or one.name in _BY_NAME:
        return words.TORCH
    if one.receiver is not None and not _generators(one.receiver):
        return None
    return next((lib for prefix, lib in words.DRAWS if one.name.startswith(prefix)), None)


def _is_apart(m: RankMachine, one: RankCall, library: str) -> bool:
    given = one.kwargs.get("generator")
    if given is None or given.atoms == (None, None):
        given = one.receiver
    elif not _generators(given):
        return False  # one whose making is not seen
    states = [thing.state[SEED] for thing in _generators(given)]
    return all(map(apart, states or [m.streams.get(library, FALSE)]))


def _generators(value: RankValue | None) -> list[RankThing]:
    return [thing for thing in value.things if SEED in thing.state] if value is not None else []


def _generator(m: RankMachine, one: RankCall) -> RankValue:
    """``random.Random(seed)``; one of torch's starts with the same seed everywhere."""
    made = result(one)
    inner = _generators(one.given[0]) if one.given else []
    state = inner[0].state[SEED] if inner else _state(one, True)
    if one.name == TORCH_GENERATOR:
        state = TRUE  # what it is given is its device
    made.things[0].state[SEED] = state
    return replace(made, origins=state.origins)


def _seed_generator(m: RankMachine, one: RankCall) -> RankValue:
    assert one.receiver is not None
    state = _state(one, True)
    for thing in _generators(one.receiver):
        m.write(thing.state, SEED, state)
    return replace(one.receiver, origins=state.origins)
