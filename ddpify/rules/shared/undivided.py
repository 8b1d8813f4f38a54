"""Loaders that take no sampler where they are made: their batches are shared out once made."""

from __future__ import annotations

from ddpify.facts.details import call_that_made, loader_arguments
from ddpify.facts.library_classes import makes_its_own
from ddpify.facts.model import Facts
from ddpify.facts.values import Thing


def has_batch_sampler(loader: Thing) -> bool:
    """Whether a loader is given its batches of indices."""
    given = loader_arguments(loader).batch_sampler
    return given is not None and not (given.known and given.const is None)


def takes_no_sampler(facts: Facts, loader: Thing) -> bool:
    """Whether no sampler and batch size of ours can be given to the call that makes a loader."""
    if has_batch_sampler(loader) or makes_its_own(loader):
        return True
    call, sampler = call_that_made(loader), loader_arguments(loader).sampler
    own = sampler is not None and not (sampler.known and sampler.const is None)
    if own or call is None:
        return False
    return call.bound or not facts.tree(call.site).can_be_preceded(
        call.site, call.arg_site(0, "dataset")
    )
