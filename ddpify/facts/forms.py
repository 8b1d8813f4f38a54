"""The forms in which a program is read: as it stands and, in part or whole, as it will be."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ddpify.facts.model import Division, Home
from ddpify.source import Site


@dataclass(frozen=True)
class Target:
    """How a program is read: as it stands or, in part or whole, as it will be.

    ``wraps`` are statements and the homes of what is wrapped right after each,
    ``drop_data_parallel`` reads ``nn.DataParallel(x)`` as ``x``, ``sharded`` are the calls
    whose loaders give each rank its share but for those on the ways ``spared``, ``unwraps`` the
    expressions that will name the inner module, ``again`` the training loaders that evaluation
    will go through whole, ``shares`` the counts and means that will be of
    all ranks, ``dealt`` those of ``sharded`` that deal whole batches, ``divisions`` where ranks
    take shares of a batch, ``whole`` what will be that of the whole batch, ``sized`` the batch
    size as a number that will be that of a rank, ``averaged`` losses that are not known to be means
    of batches of the loaders ``trained``, ``summed`` the sums in such losses that will be
    multiplied by the number of ranks, and ``agreed`` the means over a batch in conditions that
    will be those of all ranks. ``whole_batches``: nothing is divided but what models compute.
    ``routes``: calls of methods that go through the wrapper. ``shards``: nothing is wrapped, and
    evaluation calls what trains.
    """

    wraps: tuple[tuple[Site, tuple[Home, ...]], ...] = ()
    drop_data_parallel: bool = False
    sharded: frozenset[Site] = frozenset()
    spared: frozenset[tuple[Site, ...]] = frozenset()
    unwraps: frozenset[Site] = frozenset()
    again: frozenset[Site] = frozenset()
    shares: frozenset[Site] = frozenset()
    dealt: frozenset[Site] = frozenset()
    divisions: tuple[Division, ...] = ()
    whole: frozenset[Site] = frozenset()
    sized: frozenset[Site] = frozenset()
    averaged: frozenset[Site] = frozenset()
    trained: frozenset[Site] = frozenset()
    summed: frozenset[Site] = frozenset()
    agreed: frozenset[Site] = frozenset()
    whole_batches: bool = False
    routes: frozenset[Site] = frozenset()
    shards: bool = False

    @cached_property
    def divided(self) -> dict[Site, Division]:
        """The divisions, by the statement after which each is."""
        return {division.statement: division for division in self.divisions}


AS_IT_STANDS = Target()
