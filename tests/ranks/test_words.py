"""The tables of collectives say what torch says."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable

import pytest
import torch.distributed as dist

from ddpify.ranks import words


@pytest.mark.parametrize("name", [name for name in words.COLLECTIVES if hasattr(dist, name)])
def test_parameters_stand_where_torch_has_them(name: str) -> None:
    """Arguments are read by position, so the order has to be torch's."""
    _stand_alike(words.COLLECTIVES[name], getattr(dist, name))


@pytest.mark.parametrize("name", words.FUNCTIONS)
def test_parameters_of_functions_stand_where_torch_has_them(name: str) -> None:
    """The functions of ``nn`` and those of the functional collectives, too."""
    place, _, last = name.rpartition(".")
    made = getattr(importlib.import_module(place), last)
    _stand_alike(words.FUNCTIONS[name], made)


def test_what_agrees_communicates() -> None:
    """Ranks agree on what they exchange, and on nothing else."""
    assert words.AGREEING_OPS <= words.COLLECTIVE_OPS
    communicating = words.COLLECTIVE_CALLS | words.FUNCTIONS.keys()
    assert communicating >= words.AGREEING_CALLS


def _stand_alike(ours: str, function: Callable[..., object]) -> None:
    """Older versions have fewer parameters."""
    theirs = list(inspect.signature(function).parameters)
    assert ours.split()[: len(theirs)] == theirs[: len(ours.split())]
